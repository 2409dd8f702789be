"""Remove spans from texts, as T5 does.

Source: Raffel et al., arXiv 1910.10683, Sec. 3.1.4. Imports no torch before data are changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.tasks import IGNORED, Split
from bench.tasks.readers.generate import drawn, smallest_id_type
from bench.tasks.readers.tokenise import PADDING

SENTINELS = 100
Ids = NDArray[Any]


def num_removed(num_tokens: int, *, rate: int, length: int) -> tuple[int, int]:
    """Return how many tokens of a text are removed, and in how many spans.

    `rate` percent of the tokens, in spans of `length` tokens on average; both are rounded half up and at least one.
    """
    tokens = max(1, (num_tokens * rate + 50) // 100)
    return tokens, max(1, (2 * tokens + length) // (2 * length))


def corrupt_spans(split: Split, seed: int, *, vocab_size: int, rate: int, length: int) -> Split:
    """Remove spans from texts of `half` tokens.

    Returns ids `(items, 2 half)` and answers in the second half: `IGNORED` in the first and after the last sentinel. Sentinels have the ids from
    `vocab_size` on, and the start symbol the one after them. No two spans of a text touch. Spans are drawn once per item: the same items and `seed`
    give the same result.
    """
    assert split.lengths is not None
    generator = np.random.default_rng(seed)
    num_items, half = split.inputs.shape
    inputs = np.full((num_items, 2 * half), PADDING, dtype=smallest_id_type(vocab_size + SENTINELS + 1))
    targets = np.full((num_items, 2 * half), IGNORED, dtype=np.int64)
    inputs[:, half] = vocab_size + SENTINELS
    for item, (ids, num_tokens) in enumerate(zip(split.inputs.numpy(), split.lengths.tolist(), strict=True)):
        shown, answers = _corrupt(
            ids[:num_tokens].astype(np.int64), generator, vocab_size, *num_removed(num_tokens, rate=rate, length=length)
        )
        inputs[item, : len(shown)] = shown
        inputs[item, half + 1 : half + len(answers)] = answers[:-1]
        targets[item, half : half + len(answers)] = answers
    return drawn(inputs, targets)


def _corrupt(ids: Ids, generator: np.random.Generator, first_sentinel: int, num_tokens: int, num_spans: int) -> tuple[Ids, Ids]:
    """Return a text with sentinels in place of its spans, and the spans after their sentinels with one at the end."""
    num_kept = len(ids) - num_tokens
    num_spans = min(num_spans, num_kept + 1)
    gaps = np.sort(generator.permutation(num_kept + 1)[:num_spans])  # each span lies in a gap of its own between the kept tokens
    cuts = np.sort(generator.permutation(num_tokens - 1)[: num_spans - 1]) + 1
    ends = np.append(cuts, num_tokens)
    starts = np.insert(cuts, 0, 0)
    places = np.arange(num_tokens) + np.repeat(gaps, ends - starts)
    sentinels = first_sentinel + np.arange(num_spans)
    shown = np.insert(np.delete(ids, places), gaps, sentinels)
    return shown, np.append(np.insert(ids[places], starts, sentinels), first_sentinel + num_spans)

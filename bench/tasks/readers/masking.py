"""Hide tokens for masked-token prediction, as BERT does.

Source: Devlin et al., arXiv 1810.04805, Sec. 3.1. A share of an item's real tokens must be predicted. Of these, 80 % become the mask token, 10 %
another random token, and 10 % stay unchanged. Imports torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bench.tasks import IGNORED, Split

MASKED, REPLACED = 0.8, 0.1
ITEMS_AT_ONCE = 1000
"""Items per chunk: random draws take about 40 bytes per token."""


def hide_tokens(split: Split, *, vocab_size: int, rate: int, seed: int) -> Split:
    """Hide `rate` percent of each item's real tokens (rounded, at least one).

    The mask token's id is `vocab_size`, one above the largest id of the texts. Targets: the original token, `(items, tokens)` int64, and `IGNORED`
    elsewhere. Tokens are drawn once per item: the same items, `rate` and `seed` give the same result.
    """
    assert split.lengths is not None
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.empty_like(split.inputs, dtype=torch.int16 if vocab_size <= torch.iinfo(torch.int16).max else torch.int32)
    targets = torch.empty_like(split.inputs, dtype=torch.int64)
    for start in range(0, len(inputs), ITEMS_AT_ONCE):
        part = slice(start, start + ITEMS_AT_ONCE)
        ids = split.inputs[part]
        asked = choose_tokens(ids.shape[1], split.lengths[part], rate, generator)
        inputs[part] = _hide(ids.int(), asked, vocab_size, generator)
        targets[part] = torch.where(asked, ids.long(), IGNORED)
    return Split(inputs=inputs, targets=targets, lengths=split.lengths)


def choose_tokens(num_tokens: int, lengths: Tensor, rate: int, generator: torch.Generator) -> Tensor:
    """Choose `rate` percent of each item's first `lengths` tokens, `(items, tokens)` bool.

    The number is rounded half up and at least one.
    """
    # double precision makes equal keys practically impossible, so any selection algorithm finds the same smallest keys
    keys = torch.rand(len(lengths), num_tokens, generator=generator, dtype=torch.float64)
    asked = torch.zeros_like(keys, dtype=torch.bool)
    num_asked = ((lengths * rate + 50) // 100).clamp(min=1)
    most = int(num_asked.max())
    least = keys.masked_fill(torch.arange(num_tokens) >= lengths[:, None], 2.0).topk(most, dim=1, largest=False).indices
    return asked.scatter_(1, least, torch.arange(most) < num_asked[:, None])


def _hide(ids: Tensor, asked: Tensor, vocab_size: int, generator: torch.Generator) -> Tensor:
    """Mask, replace or keep the chosen int32 ids.

    Every position draws random numbers, so the draws do not depend on the lengths.
    """
    fate = torch.rand(ids.shape, generator=generator)
    # another real token, uniform over 1 .. vocab_size - 1 without the current one
    other = torch.randint(1, vocab_size - 1, ids.shape, generator=generator, dtype=torch.int32)
    other = other + (other >= ids)
    hidden = torch.where(asked & (fate < MASKED), vocab_size, ids)
    return torch.where(asked & (fate >= MASKED) & (fate < MASKED + REPLACED), other, hidden)

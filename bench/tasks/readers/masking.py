"""Hiding tokens to be told again, as BERT does (Devlin et al., arXiv 1810.04805, Sec. 3.1). Imports torch.

Of an item's real tokens, a share is asked for. Of those 80 % become the mask token, 10 % another token drawn at random, and 10 % stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bench.tasks import IGNORED, Split

MASKED, REPLACED = 0.8, 0.1
ITEMS_AT_ONCE = 1000
"""Draws take some 40 bytes per token: made for a part of the items at a time."""


def hide_tokens(split: Split, *, vocab_size: int, rate: int, seed: int) -> Split:
    """The items with `rate` percent of their real tokens asked for (rounded, at least one); `vocab_size`, one id above the texts', is the mask token.

    Targets: `(items, tokens)` int64, the token that was there, `IGNORED` elsewhere. Drawn once per item: equal for equal items, `rate` and `seed`.
    """
    if split.lengths is None:
        raise ValueError("hiding tokens needs the lengths of the items: padding is never asked for")
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
    """`(items, tokens)` bool: in each item, `rate` percent of the first `lengths` tokens, rounded half up, at least one."""
    # with double precision no two keys are equal in practice, so that the least ones are the same whatever finds them
    keys = torch.rand(len(lengths), num_tokens, generator=generator, dtype=torch.float64)
    asked = torch.zeros_like(keys, dtype=torch.bool)
    num_asked = ((lengths * rate + 50) // 100).clamp(min=1)
    most = int(num_asked.max())
    least = keys.masked_fill(torch.arange(num_tokens) >= lengths[:, None], 2.0).topk(most, dim=1, largest=False).indices
    return asked.scatter_(1, least, torch.arange(most) < num_asked[:, None])


def _hide(ids: Tensor, asked: Tensor, vocab_size: int, generator: torch.Generator) -> Tensor:
    """The int32 ids with what is asked for masked, replaced or kept. Every position draws, so that the draws do not depend on the lengths."""
    fate = torch.rand(ids.shape, generator=generator)
    # one of the other real tokens, 1 .. vocab_size - 1 without the one that is there
    other = torch.randint(1, vocab_size - 1, ids.shape, generator=generator, dtype=torch.int32)
    other = other + (other >= ids)
    hidden = torch.where(asked & (fate < MASKED), vocab_size, ids)
    return torch.where(asked & (fate >= MASKED) & (fate < MASKED + REPLACED), other, hidden)

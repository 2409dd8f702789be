"""In cross-attention, every token reads all tokens of another sequence.

The other sequence is called the memory (arXiv 1706.03762, Sec. 3.2.3).
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, Polynomial, fused_attention, linear
from models.layers.padding import readable, zero_padding


class CrossAttention(nn.Module):
    """Multi-head attention from the tokens of one sequence to a memory.

    `(batch, queries, width)` and a memory `(batch, keys, width)` -> `(batch, queries, width)`. Queries have their own projection; keys and
    values share one product.

    `valid`: `(batch, keys)` bool, True where the memory is data. A memory that consists of padding only is read as zeros.
    """

    DROPS_AT = "attention"

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = 0.0
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.project = nn.Linear(width, width)

    def forward(self, tokens: Tensor, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        mask = None
        if valid is not None:
            # masking adds -inf to a score and multiplies a value by zero: NaN in padding would survive both
            memory, mask = zero_padding(memory, valid), readable(valid)[:, None, None]
        key, value = self.key_value(memory).chunk(2, dim=-1)
        query, key, value = (self._split(part) for part in (self.query(tokens), key, value))
        dropped = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropped)
        return self.project(mixed.transpose(1, 2).reshape(tokens.shape))

    def _split(self, tokens: Tensor) -> Tensor:
        """Split heads: `(batch, n, width)` -> `(batch, heads, n, width / heads)`."""
        return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def cross_attention_cost(width: int, *, queries: Polynomial, keys: Polynomial) -> Cost:
    """Return the cost of `CrossAttention`.

    Scores and weighted sum each take queries x keys x width multiply-adds. Keys and values of the memory are kept.
    """
    return Cost(
        (
            linear("query", width, width, tokens=queries),
            linear("key_value", width, 2 * width, tokens=keys),
            *fused_attention(queries * keys * width, state=keys * (2 * width)),
            linear("project", width, width, tokens=queries),
        )
    )

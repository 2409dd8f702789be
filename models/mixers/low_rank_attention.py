"""Low-rank attention reads `rank` learned sums of tokens in place of all tokens.

Its cost is linear in n, and so are its parameters. This is Linformer (Wang et al., arXiv 2006.04768, Sec. 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Term, constant, fused_attention, linear
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_heads


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of low-rank attention.

    `rank`: rows that keys and values are compressed to, k in the paper; at least 2. It may exceed `seq_len`, but then costs more than
        `attention`.
    `share`: keys and values are compressed by the same matrix, E = F (key-value sharing).

    Heads share E and F, and each block has its own.

    Raises ValueError for an invalid size, or if the heads do not divide the width.
    """

    seq_len: int
    width: int
    heads: int = 1
    rank: int = 64
    share: bool = False

    def __post_init__(self) -> None:
        require_heads(self, "rank")
        if self.rank < 2:
            raise ValueError(f"rank must be at least 2, not {self.rank}: a single row leaves queries nothing to weigh")

    @property
    def matrices(self) -> int:
        """Number of matrices over tokens: E and F, or one for both."""
        return 1 if self.share else 2


class LowRankAttention(nn.Module):
    """Attention from n queries to `rank` keys and values, (E X) W_k and (F X) W_v.

    `(batch, n, width)` -> `(batch, n, width)`. `dropout` applies to the attention weights in training.

    The paper writes E (X W_k). The product is the same in either order, but compressing first leaves `rank` rows to project instead of n.
    The authors' code (fairseq, examples/linformer) does so too, and adds the biases after it. Padded tokens are zeros in X, so they
    contribute nothing.
    """

    DROPS_AT = "attention"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        # E and F; a sum of n independent tokens has the variance of a token, at any n
        self.compress = nn.Parameter(torch.empty(config.matrices, config.rank, config.seq_len).normal_(std=config.seq_len**-0.5))
        self.query = nn.Linear(config.width, config.width)
        # a bias would add the same number to all scores of a query, and the softmax cancels it
        self.key = nn.Linear(config.width, config.width, bias=False)
        self.value = nn.Linear(config.width, config.width)
        self.project = nn.Linear(config.width, config.width)
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        query, key, value = self._parts(zero_padding(tokens, valid))
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout if self.training else 0.0)
        return self.project(mixed.transpose(1, 2).reshape(tokens.shape))

    def token_weights(self, tokens: Tensor) -> Tensor:
        """Return the attention weights times F, averaged over a batch without padding.

        `(batch, n, width)` -> `(heads, n, n)`. Values are linear in tokens, so this is how much of token j reaches token i. It may be
        negative.
        """
        query, key, _ = self._parts(tokens)
        scores = query @ key.mT / query.shape[-1] ** 0.5
        return scores.softmax(dim=-1).mean(dim=0) @ self.compress[-1]

    def _parts(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, `(batch, heads, n, width / heads)`, and keys and values, `(batch, heads, rank, width / heads)`."""
        batch, _, width = tokens.shape
        # (matrices x rank, n) x (n, width) for each sample, without a transposed copy of the tokens
        rows = torch.bmm(self.compress.flatten(0, 1).expand(batch, -1, -1), tokens).unflatten(1, self.compress.shape[:2])
        parts = self.query(tokens), self.key(rows[:, 0]), self.value(rows[:, -1])
        query, key, value = (part.view(batch, -1, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        return query, key, value


def build(config: Config) -> LowRankAttention:
    return initialise_linears(LowRankAttention(config))


def cost(config: Config) -> Cost:
    """Return the cost of `LowRankAttention`.

    E and F have `rank` x n weights each, whatever the batch. Compressing, scores and weighted sum each take n x `rank` x width
    multiply-adds, compressing twice unless E = F. Keys and values are projected in `rank` rows. A fused kernel recomputes the scores in its
    backward.
    """
    width, rank = config.width, config.rank
    pairs, rows = N * (rank * width), constant(rank)
    return Cost(
        (
            Term(name="compress", params=N * (config.matrices * rank), macs=pairs * config.matrices),
            linear("query", width, width),
            linear("key", width, width, tokens=rows, bias=False),
            linear("value", width, width, tokens=rows),
            *fused_attention(pairs),
            linear("project", width, width),
        )
    )

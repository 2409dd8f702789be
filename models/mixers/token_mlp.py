"""A token MLP mixes tokens through a hidden layer over tokens.

All channels share it. This is MLP-Mixer's token mixing (Tolstikhin et al., arXiv 2105.01601, Sec. 2);
`metaformer+mixer=token_mlp+positions=none` is MLP-Mixer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Term, constant
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_non_negative, require_sizes


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the token MLP.

    `token_hidden`: hidden tokens (0: half of the width, as in all published sizes; arXiv 2105.01601, Table 1, D_S).
    """

    seq_len: int
    width: int
    token_hidden: int = 0

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width")
        require_non_negative("token_hidden", self.token_hidden)

    @property
    def hidden(self) -> int:
        return self.token_hidden or max(1, self.width // 2)


class TokenMLP(nn.Module):
    """Compute W2 GELU(W1 x) over tokens, in each channel.

    `(batch, n, width)` -> `(batch, n, width)`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.expand = nn.Linear(config.seq_len, config.hidden)
        self.contract = nn.Linear(config.hidden, config.seq_len)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        mixed: Tensor = self.contract(F.gelu(self.expand(zero_padding(tokens, valid).transpose(1, 2))))
        return mixed.transpose(1, 2)


def build(config: Config) -> TokenMLP:
    return initialise_linears(TokenMLP(config))


def cost(config: Config) -> Cost:
    """Return the cost of `TokenMLP`.

    Each channel takes two products of n x hidden weights. Unlike spatial gating, that is linear in n, provided the hidden layer does not
    grow with n.
    """
    hidden, products = config.hidden, N * (config.hidden * config.width)
    return Cost(
        (
            Term(name="expand", params=N * hidden, macs=products),
            Term(name="expand_bias", params=constant(hidden)),
            Term(name="contract", params=N * hidden + N, macs=products),
        )
    )

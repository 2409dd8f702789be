"""A linear layer over the channels of each token, which mixes no tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from models.layers.cost import Cost, N, Term, constant
from models.layers.initialise import initialise_linears
from models.layers.shape import require_positive


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options.

    `bias`: add a bias.
    """

    seq_len: int
    width: int
    bias: bool = False

    def __post_init__(self) -> None:
        require_positive("seq_len", self.seq_len)
        require_positive("width", self.width)


class PerToken(nn.Module):
    """`(batch, n, width)` -> `(batch, n, width)`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.projection = initialise_linears(nn.Linear(config.width, config.width, bias=config.bias))

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:  # noqa: ARG002
        projected: Tensor = self.projection(tokens)
        return projected


def build(config: Config) -> PerToken:
    return PerToken(config)


def cost(config: Config) -> Cost:
    weights = config.width**2
    return Cost((Term(name="projection", params=constant(weights + config.width * config.bias), macs=N * weights),))

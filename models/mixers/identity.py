"""The identity mixes nothing: tokens pass unchanged, s(Z) = Z.

It is the control for every other mixer (arXiv 2105.08050, Sec. 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from models.layers.cost import Cost
from models.layers.shape import require_sizes


@dataclass(frozen=True, kw_only=True)
class Config:
    seq_len: int
    width: int

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width")

    @property
    def causal(self) -> bool:
        """True: no token reads another."""
        return True


class Identity(nn.Module):
    """Return the tokens unchanged, `(batch, n, width)`."""

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:  # noqa: ARG002 - every mixer takes `valid`
        return tokens


def build(config: Config) -> Identity:
    return Identity()


def cost(config: Config) -> Cost:
    return Cost(())

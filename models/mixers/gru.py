"""GRU: every token reads the state that the tokens before it have left, one step after another, so that cost is linear in n (arXiv 1409.1259).

Recurrence as the table of Vaswani et al. has it (arXiv 1706.03762, Table 1): n d^2 products, n sequential steps, path length n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from models.layers.cost import Cost
from models.layers.recurrence import gru_cost, initialise_gru, run_gru, run_gru_in_products
from models.layers.shape import require_divisible, require_one_of, require_positive

STEPWISE = True
"""The reference takes one token after another."""
REFERENCE_OPTIONS = {"recurrence": "products"}
RECURRENCES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"native": run_gru, "products": run_gru_in_products}
"""Formulations of equal answers. `products` is the reference: fvcore sees nothing of a GRU."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """`bidirectional`: half of the channels are states of a run from the last token to the first. `recurrence`: formulation, of equal answers."""

    seq_len: int
    width: int
    bidirectional: bool = False
    recurrence: str = "native"

    def __post_init__(self) -> None:
        for name in ("seq_len", "width"):
            require_positive(name, getattr(self, name))
        if self.bidirectional:
            require_divisible("width", self.width, "2 directions", 2)
        require_one_of("recurrence", self.recurrence, tuple(RECURRENCES))

    @property
    def causal(self) -> bool:
        """Whether no token reads a later one."""
        return not self.bidirectional

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1


class RecurrentMixer(nn.Module):
    """`(batch, n, width)` -> the same: `torch.nn.GRU`, of `width` hidden units, or of `width / 2` in each of two directions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.run = RECURRENCES[config.recurrence]
        self.gru = nn.GRU(config.width, config.width // config.directions, batch_first=True, bidirectional=config.bidirectional)
        initialise_gru(self.gru)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.run(self.gru, tokens, valid)[0]


def build(config: Config) -> RecurrentMixer:
    return RecurrentMixer(config)


def cost(config: Config) -> Cost:
    """3 (d d + d d) multiply-adds per token; in two directions 2 x 3 (d d/2 + d/2 d/2), three quarters of that."""
    return gru_cost(config.width, config.width // config.directions).repeated(config.directions)

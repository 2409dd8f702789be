"""A GRU mixes tokens through a state, token by token.

Its cost is linear in n (arXiv 1409.1259). In the terms of Vaswani et al. (arXiv 1706.03762, Table 1), recurrence takes n d^2 operations, n
sequential steps and a path of length n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from models.layers.cost import Cost
from models.layers.recurrence import gru_cost, initialise_gru, run_gru, run_gru_in_products
from models.layers.shape import require_choices, require_divisible, require_sizes

STEPWISE = True
REFERENCE_OPTIONS = {"recurrence": "products"}
RECURRENCES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"native": run_gru, "products": run_gru_in_products}
"""Equivalent formulations of the recurrence.

`products` is the reference, because fvcore does not count a GRU.
"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of the GRU.

    `bidirectional`: half of the channels are states of a second run, from the last token to the first.
    `recurrence`: `native` or `products`; both give the same answers.

    Raises ValueError for an unknown value, or for an odd width with `bidirectional`.
    """

    seq_len: int
    width: int
    bidirectional: bool = False
    recurrence: str = "native"

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width")
        if self.bidirectional:
            require_divisible("width", self.width, "2 with bidirectional=true", 2)
        require_choices(self, recurrence=RECURRENCES)

    @property
    def causal(self) -> bool:
        return not self.bidirectional

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1


class RecurrentMixer(nn.Module):
    """Mix tokens by `torch.nn.GRU`.

    `(batch, n, width)` -> `(batch, n, width)`. The GRU has `width` hidden units, or `width / 2` in each of two directions.
    """

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
    """Return the cost of `RecurrentMixer`.

    With d channels, it takes 3 (d d + d d) multiply-adds per token; two directions take 2 x 3 (d d/2 + d/2 d/2), three quarters as many.
    """
    return gru_cost(config.width, config.width // config.directions).repeated(config.directions)

"""Kernel regression predicts Gaussian-weighted means of observed values.

Nadaraya 1964, Watson 1964; "Dive into Deep Learning", Sec. 11.2. It is an early form of attention: the answer at x is the sum over observed
(x_i, y_i) of K((x - x_i) / h) y_i, divided by the sum of K((x - x_i) / h), with K the Gaussian. Its only parameter, if any, is the
bandwidth h.

Each token is (x, y, query flag), as in the task curve_fitting; the flag is nonzero if y is to be predicted. Width, depth, heads and
ffn_width have no effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.layers.cost import ONE, ZERO, Cost, N, Term
from models.layers.padding import zero_padding
from models.layers.shape import NO_POOL, Interface, Shape, require_one_of

NOMINAL_FFN_RATIO = 4
USES_HEADS = False
BANDWIDTHS = ("fixed", "learned")
NARROWEST_PERCENT = 10
TOKEN_CHANNELS = 3
"""Channels read from each token (x, y, query flag); others are ignored."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of kernel regression.

    `bandwidth`: `fixed`, or `learned`, starting at `bandwidth_percent`.
    `bandwidth_percent`: h in hundredths of a unit of x, at least 10. With a smaller h, almost only the nearest point would count, and
        gradients would vanish.

    Raises ValueError for an invalid option, or an interface other than points (x, y, query flag) with one number per token.
    """

    shape: Shape
    interface: Interface = Interface(patch_dim=TOKEN_CHANNELS, num_classes=1, output="tokens")
    bandwidth: str = "fixed"
    bandwidth_percent: int = 100

    def __post_init__(self) -> None:
        require_one_of("bandwidth", self.bandwidth, BANDWIDTHS)
        percent = self.bandwidth_percent
        if isinstance(percent, bool) or not isinstance(percent, int) or percent < NARROWEST_PERCENT:
            raise ValueError(f"bandwidth_percent must be a whole number from {NARROWEST_PERCENT} up, not {percent!r}")
        interface, needed = self.interface, "kernel regression reads points (x, y, query flag) and predicts one number per point"
        for name, only in (("input", "patches"), ("output", "tokens"), ("num_classes", 1)):
            if (found := getattr(interface, name)) != only:
                raise ValueError(f"{name} must be {only}, not {found!r}: {needed}")
        if interface.patch_dim < TOKEN_CHANNELS:
            raise ValueError(f"patch_dim must be at least {TOKEN_CHANNELS}, not {interface.patch_dim}: {needed}")

    @property
    def pool(self) -> str:
        return NO_POOL


class KernelSmoothing(nn.Module):
    """Predict the weighted mean of the observed values at every token.

    `(batch, n, channels)` -> `(batch, n, 1)`. An observed token counts towards its own mean. The weights are a softmax of
    -(x - x_i)^2 / 2 h^2, which equals the quotient but does not become 0 / 0 far from all points. The answer is 0 for an item without
    observed tokens.
    """

    TOKEN_ORDER = "x"

    log_bandwidth: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        start = torch.tensor([math.log(config.bandwidth_percent / 100)])
        if config.bandwidth == "learned":
            self.log_bandwidth = nn.Parameter(start)
        else:
            self.register_buffer("log_bandwidth", start, persistent=False)

    def forward(self, points: Tensor, valid: Tensor | None = None) -> Tensor:
        points = zero_padding(points, valid)
        observed = _observed(points, valid)
        values = points[..., 1:2].masked_fill(~observed[..., None], 0.0)
        return self._weights(points, observed) @ values

    def token_weights(self, points: Tensor) -> Tensor:
        """Return the weights, averaged over a batch without padding.

        `(batch, n, channels)` -> `(1, n, n)`: the share of the value at token j in the answer at token i, tokens sorted by x. Rows sum to
        one; queried tokens have no weight.
        """
        points = points.gather(1, points[..., :1].argsort(dim=1).expand_as(points))
        return self._weights(points, _observed(points, None)).mean(dim=0, keepdim=True)

    def _weights(self, points: Tensor, observed: Tensor) -> Tensor:
        """Return the weights, `(batch, n, n)`.

        If no token is observed, all weights are equal, so that no row is 0 / 0.
        """
        x = points[..., 0] / self.log_bandwidth.exp()
        scores = -0.5 * (x[:, :, None] - x[:, None]).square()
        return scores.masked_fill(~observed[:, None], torch.finfo(scores.dtype).min).softmax(dim=-1)


def _observed(points: Tensor, valid: Tensor | None) -> Tensor:
    """Return a `(batch, n)` bool mask of tokens with a known y."""
    known = points[..., 2] == 0
    return known if valid is None else known & valid


class KernelRegression(nn.Module):
    """Predict a value at every point.

    `(batch, data tokens, channels)` -> `(batch, data tokens, 1)`. There is one block, without embedding or head.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([KernelSmoothing(config)])

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the predicted values.

        `valid`: `(batch, data tokens)` bool, True where a token is data (None: everywhere).
        """
        for block in self.blocks:
            data = block(data, valid)
        return data


def build(config: Config) -> KernelRegression:
    return KernelRegression(config)


def cost(config: Config) -> Cost:
    """Return the cost of `KernelRegression`.

    Weights times values take n^2 multiply-adds, for the single channel of y. Distances on a line are differences, not matrix products.
    Values need no gradient, and weights need one only if the bandwidth is learned.
    """
    is_learned = config.bandwidth == "learned"
    return Cost(
        (
            Term(name="blocks.bandwidth", params=ONE if is_learned else ZERO),
            Term(name="blocks.weighted_sum", macs=N * N, backward_products=1 if is_learned else 0),
        )
    )


def uses_attention(config: Config) -> bool:
    return False

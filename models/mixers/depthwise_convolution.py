"""A depthwise convolution mixes `kernel_size` neighbouring tokens in each channel.

Its cost is linear in n. This is ConvMixer's spatial step (arXiv 2201.09792, Sec. 2) in one dimension; ConvFormer (arXiv 2210.13452) adds
projections around it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.layers.cost import Cost
from models.layers.padding import zero_padding
from models.layers.shape import require_choices, require_sizes
from models.layers.short_convolution import CONVOLUTIONS, short_convolution

REACH = "kernel_size"
REFERENCE_OPTIONS = {"convolution": "products"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the convolution.

    `kernel_size`: tokens that each token reads, with itself in the middle; odd and at least 3.
    `convolution`: `native` or `products`; both give the same answers.

    Raises ValueError for an unknown value or an invalid size.
    """

    seq_len: int
    width: int
    kernel_size: int = 9
    convolution: str = "native"

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width", "kernel_size")
        if self.kernel_size < 3 or self.kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size must be odd and at least 3, not {self.kernel_size}: a token reads equally far before and after it"
            )
        require_choices(self, convolution=CONVOLUTIONS)


class DepthwiseConvolution(nn.Module):
    """Convolve each channel over tokens, with zeros beyond both ends.

    `(batch, n, width)` -> `(batch, n, width)`. Padded tokens are read as zeros.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.convolve = CONVOLUTIONS[config.convolution]
        # Xavier-uniform, as in every linear layer: fan-in and fan-out are both kernel_size
        bound = math.sqrt(6 / (2 * config.kernel_size))
        self.weight = nn.Parameter(torch.empty(config.width, 1, config.kernel_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(config.width))

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.convolve(zero_padding(tokens, valid), self.weight.squeeze(1), self.bias, self.weight.shape[-1] // 2)


def build(config: Config) -> DepthwiseConvolution:
    return DepthwiseConvolution(config)


def cost(config: Config) -> Cost:
    """Return the cost: `kernel_size` multiply-adds per token and channel.

    Products with the zeros beyond both ends count too, as in kernels and counters.
    """
    return Cost((short_convolution("convolution", config.width, config.kernel_size),))

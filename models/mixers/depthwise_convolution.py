"""A depthwise convolution mixes `kernel_size` neighbouring tokens in each channel.

Its cost is linear in n. This is ConvMixer's spatial step (arXiv 2201.09792, Sec. 2) in one dimension; ConvFormer (arXiv 2210.13452) adds
projections around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, N, Term, constant
from models.layers.padding import zero_padding
from models.layers.shape import require_one_of, require_positive

REACH = "kernel_size"
REFERENCE_OPTIONS = {"convolution": "products"}


def _native(tokens: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    # as an image of height one the tokens are already channels-last, which two-dimensional kernels read and write without a copy
    image = tokens.transpose(1, 2).unsqueeze(2)
    mixed = F.conv2d(image, weight.unsqueeze(2), bias, padding=(0, weight.shape[-1] // 2), groups=weight.shape[0])
    return mixed.squeeze(2).transpose(1, 2)


def _products(tokens: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    margin = weight.shape[-1] // 2
    # (batch, n, width, kernel_size)
    neighbours = F.pad(tokens, (0, 0, margin, margin)).unfold(1, weight.shape[-1], 1)
    return torch.einsum("bndk,dk->bnd", neighbours, weight.squeeze(1)) + bias


CONVOLUTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {"native": _native, "products": _products}
"""Equivalent formulations of the convolution over tokens.

`(batch, n, width)`, `(width, 1, kernel_size)`, `(width,)` -> `(batch, n, width)`. `products` is the reference, because fvcore cannot trace
a convolution on the `meta` device and torch's counter treats the backward of a depthwise convolution as dense.
"""


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
        for name in ("seq_len", "width", "kernel_size"):
            require_positive(name, getattr(self, name))
        if self.kernel_size < 3 or self.kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size must be odd and at least 3, not {self.kernel_size}: a token reads equally far before and after it"
            )
        require_one_of("convolution", self.convolution, tuple(CONVOLUTIONS))


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
        if valid is not None:
            tokens = zero_padding(tokens, valid)
        return self.convolve(tokens, self.weight, self.bias)


def build(config: Config) -> DepthwiseConvolution:
    return DepthwiseConvolution(config)


def cost(config: Config) -> Cost:
    """Return the cost: `kernel_size` multiply-adds per token and channel.

    Products with the zeros beyond both ends count too, as in kernels and counters.
    """
    weights = config.kernel_size * config.width
    return Cost((Term(name="convolution", params=constant(weights + config.width), macs=N * weights),))

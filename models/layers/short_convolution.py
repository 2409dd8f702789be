"""A short causal convolution in each channel, as recurrent mixers apply before their state.

Fu et al., arXiv 2212.14052 (H3), Sec. 3; Dao and Gu, arXiv 2405.21060 (Mamba-2), Sec. 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import N, Term, constant


def _native(tokens: Tensor, weight: Tensor, bias: Tensor, margin: int = 0) -> Tensor:
    # as an image of height one the tokens are already channels-last, which two-dimensional kernels read and write without a copy
    image = tokens.transpose(1, 2).unsqueeze(2)
    mixed = F.conv2d(image, weight[:, None, None], bias, padding=(0, margin), groups=len(weight))
    return mixed.squeeze(2).transpose(1, 2)


def _products(tokens: Tensor, weight: Tensor, bias: Tensor, margin: int = 0) -> Tensor:
    # (batch, n, width, size)
    neighbours = F.pad(tokens, (0, 0, margin, margin)).unfold(1, weight.shape[-1], 1)
    return torch.einsum("bndk,dk->bnd", neighbours, weight) + bias


CONVOLUTIONS: dict[str, Callable[..., Tensor]] = {"native": _native, "products": _products}
"""Equivalent formulations of a convolution in each channel, with `margin` zeros at either end.

`(batch, n + size - 1 - 2 margin, width)`, `(width, size)`, `(width,)`, margin -> `(batch, n, width)`. `products` is the reference,
because fvcore cannot trace a convolution on the `meta` device and torch's counter treats the backward of a depthwise convolution as dense.
"""


class ShortConvolution(nn.Module):
    """Convolve each channel over a token and the `size - 1` tokens before it, or after it with `backwards`.

    `(batch, n, width)` -> `(batch, n, width)`. Zeros lie beyond the end. Padded tokens must be zero.

    `centred`: as many tokens before it as after it, for an odd `size`.
    """

    def __init__(self, width: int, size: int, *, convolution: str = "native", backwards: bool = False, centred: bool = False) -> None:
        super().__init__()
        self.convolve = CONVOLUTIONS[convolution]
        self.margin = (size // 2, size // 2) if centred else (0, size - 1) if backwards else (size - 1, 0)
        bound = math.sqrt(3 / size)  # an output has the variance of an input
        self.weight = nn.Parameter(torch.empty(width, size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.convolve(F.pad(tokens, (0, 0, *self.margin)), self.weight, self.bias)


def short_convolution(name: str, width: int, size: int, *, scope: str = "blocks") -> Term:
    """Return the cost: `size` multiply-adds per token and channel, products with zeros included.

    Read token by token, it keeps the last `size - 1` inputs, which are zeros at first.
    """
    params, state = constant(width * size + width), constant(width * (size - 1))
    return Term(name=name, scope=scope, params=params, macs=N * (width * size), state=state)

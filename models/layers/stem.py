"""The convolutional stem replaces ViT's linear patch layer by overlapping convolutions.

Xiao et al., arXiv 2106.14881, Sec. 3. As for every family, patches are cut beforehand: the stem reassembles the image, halves it until each
patch is one pixel, and ends in a 1x1 convolution.

The paper's batch normalisation is left out, because an item's answer would depend on its batch; the first block begins with its own norm.
Weights follow He et al. (arXiv 1502.01852), which keeps the variance through ReLUs without normalisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from models.layers.cost import Cost, Polynomial, Term, linear
from models.layers.shape import Interface, patch_of, require_one_of

STEMS = ("linear", "convolution")
KERNEL, STRIDE, MARGIN = 3, 2, 1


def _native(image: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.conv2d(image, weight, bias, stride=STRIDE, padding=MARGIN)


def _products(image: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    height, width = image.shape[2] // STRIDE, image.shape[3] // STRIDE
    # (batch, height x width, channels x 9)
    neighbours = F.unfold(image, KERNEL, padding=MARGIN, stride=STRIDE).transpose(1, 2)
    return F.linear(neighbours, weight.flatten(1), bias).transpose(1, 2).unflatten(2, (height, width))


STEM_CONVOLUTIONS: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {"native": _native, "products": _products}
"""Equivalent formulations of the convolution, for images of even sides.

`(batch, channels, height, width)`, `(out, channels, 3, 3)`, `(out,)` -> `(batch, out, height / 2, width / 2)`. `products` is the reference,
because fvcore cannot trace a convolution on the `meta` device.
"""


def require_stem(stem: str, interface: Interface) -> None:
    """Raise ValueError, naming the rule, if `interface` does not allow `stem`.

    A convolutional stem needs patches with a side of 2, 4, 8, ... pixels.
    """
    require_one_of("stem", stem, STEMS)
    if stem == "linear":
        return
    if interface.input != "patches":
        raise ValueError(f"stem must be linear with input={interface.input}, not {stem!r}: only patches form an image")
    _, side = patch_of(interface.patch_dim)
    if side < STRIDE or side & (side - 1):
        raise ValueError(f"patch side must be a power of two, 2 or more, with stem={stem}, not {side}: each convolution halves the patch")


def grid_of(data_tokens: int) -> tuple[int, int]:
    """Return (rows, columns) of the grid that the patches fill, if nothing says it.

    The grid is a square if `data_tokens` is a perfect square, otherwise as close to one as full rows allow (17 patches: 1 x 17).
    `image_grid` makes one row of them instead; a stem reads patches that are cut already, so one model never uses both.
    """
    rows = next(rows for rows in range(math.isqrt(data_tokens), 0, -1) if data_tokens % rows == 0)
    return rows, data_tokens // rows


def stage_channels(patch_side: int, width: int) -> list[int]:
    """Return the output channels of each convolution.

    Each convolution halves the patch. Channels double up to `width`, rounded up if they do not halve evenly.
    """
    halvings = patch_side.bit_length() - 1
    return [-(-width // 2**left) for left in reversed(range(halvings))]


class ConvolutionStem(nn.Module):
    """Embed patches by log2(patch side) convolutions and a 1x1 convolution.

    `(batch, data tokens, patch_dim)` -> `(batch, data tokens, width)`. Convolutions are 3x3 with stride 2 and zeros around the image.
    Patches lie row by row in the grid; inside a patch the order is channel, row, column, as `bench` cuts them.
    """

    def __init__(self, interface: Interface, *, data_tokens: int, width: int, convolution: str) -> None:
        super().__init__()
        self.channels, self.side = patch_of(interface.patch_dim)
        self.rows, self.columns = (interface.rows, data_tokens // interface.rows) if interface.rows else grid_of(data_tokens)
        self.convolve = STEM_CONVOLUTIONS[convolution]
        outputs = stage_channels(self.side, width)
        inputs = [self.channels, *outputs[:-1]]
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, KERNEL, STRIDE, MARGIN) for i, o in zip(inputs, outputs, strict=True))
        for layer in self.convolutions:
            nn.init.kaiming_uniform_(layer.get_parameter("weight"), nonlinearity="relu")
            nn.init.zeros_(layer.get_parameter("bias"))
        self.project = nn.Linear(width, width)

    def forward(self, patches: Tensor) -> Tensor:
        image = self.image(patches)
        for layer in self.convolutions:
            image = F.relu(self.convolve(image, layer.weight, layer.bias))  # type: ignore[arg-type]
        return self.project(image.flatten(2).transpose(1, 2))

    def image(self, patches: Tensor) -> Tensor:
        """Reassemble the image from its patches.

        `(batch, data tokens, patch_dim)` -> `(batch, channels, height, width)`, channels last in memory, the layout that fast kernels
        prefer.
        """
        sizes = {"rows": self.rows, "columns": self.columns, "c": self.channels, "y": self.side, "x": self.side}
        pixels = rearrange(patches, "b (rows columns) (c y x) -> b (rows y) (columns x) c", **sizes)
        return rearrange(pixels, "b height width c -> b c height width")


def convolution_stem_cost(interface: Interface, width: int, *, data_tokens: Polynomial) -> Cost:
    """Return the cost of `ConvolutionStem`.

    Each weight takes one multiply-add per output pixel; products with the zeros around the image count too, as in kernels and counters.
    Stage s leaves `(side / 2^s)^2` pixels of each patch, whatever the grid. The image needs no gradient.
    """
    channels, side = patch_of(interface.patch_dim)
    terms: list[Term] = []
    for stage, outputs in enumerate(stage_channels(side, width)):
        side //= STRIDE
        pixels, needed = data_tokens * (side * side), 2 if stage else 1
        name, inputs = f"convolutions.{stage}", KERNEL * KERNEL * channels
        terms.append(linear(name, inputs, outputs, scope="embedding", tokens=pixels, backward_products=needed))
        channels = outputs
    return Cost((*terms, linear("project", width, width, scope="embedding", tokens=data_tokens)))

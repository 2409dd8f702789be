"""Cutting images into patches, the tokens that every family reads."""

from __future__ import annotations

import math

from einops import rearrange
from torch import Tensor


def cut_patches(images: Tensor, patch_side: int) -> Tensor:
    """`(items, channels, side, side)` -> `(items, patches, channels * patch_side**2)`.

    Patches run row by row over the image; inside a patch the order is channel, row, column, that of a convolution's flattened weight, so that a
    linear layer on patches is ViT's strided convolution (arXiv 2010.11929, Sec. 3.1). Raises ValueError where the patches do not tile the image.
    """
    side = images.shape[-1]
    if images.ndim != 4 or images.shape[-2] != side or side % patch_side:
        raise ValueError(
            f"patches of {patch_side} px do not tile images of shape {tuple(images.shape)}: sides must be equal multiples of it"
        )
    return rearrange(images, "item channel (row y) (column x) -> item (row column) (channel y x)", y=patch_side, x=patch_side).contiguous()


def join_patches(patches: Tensor, channels: int) -> Tensor:
    """The images that `cut_patches` cut: `(items, patches, channels * patch_side**2)` -> `(items, channels, side, side)`."""
    rows, patch_side = math.isqrt(patches.shape[1]), math.isqrt(patches.shape[2] // channels)
    if rows * rows != patches.shape[1] or channels * patch_side**2 != patches.shape[2]:
        raise ValueError(f"patches of shape {tuple(patches.shape)} make no square images with {channels} channels")
    return rearrange(patches, "item (row column) (channel y x) -> item channel (row y) (column x)", row=rows, y=patch_side, x=patch_side)


def image_size(inputs: Tensor, patch_side: int) -> tuple[int, int]:
    """(channels, side) of images, stored whole, `(items, channels, side, side)`, or cut into patches of `patch_side` pixels."""
    if inputs.ndim == 4:
        return inputs.shape[1], inputs.shape[-1]
    return inputs.shape[2] // patch_side**2, math.isqrt(inputs.shape[1]) * patch_side

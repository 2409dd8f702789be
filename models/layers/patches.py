"""Cut images into patches, and reassemble them."""

from __future__ import annotations

from einops import rearrange
from torch import Tensor

from models.layers.shape import image_grid


def cut_patches(images: Tensor, side: int) -> Tensor:
    """Cut images into square patches of `side` pixels.

    `(batch, channels, rows x side, columns x side)` -> `(batch, rows x columns, channels x side x side)`.

    Patches run row by row over the image. Inside a patch the order is channel, row, column, as in a flattened convolution weight, so that a
    linear layer on patches equals ViT's strided convolution (arXiv 2010.11929, Sec. 3.1).
    """
    return rearrange(images, "b c (rows y) (columns x) -> b (rows columns) (c y x)", y=side, x=side)


def fold_patches(patches: Tensor, channels: int, side: int, rows: int = 0) -> Tensor:
    """Invert `cut_patches`.

    Without `rows` the grid is a square if the number of patches is a perfect square, otherwise a single row (`image_grid`).
    """
    rows, columns = image_grid(patches.shape[1], rows)
    return rearrange(
        patches, "b (rows columns) (c y x) -> b c (rows y) (columns x)", rows=rows, columns=columns, c=channels, y=side, x=side
    )

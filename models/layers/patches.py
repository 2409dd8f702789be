"""Cut images into patches, and reassemble them: views and one copy."""

from __future__ import annotations

from torch import Tensor

from models.layers.shape import image_grid


def cut_patches(images: Tensor, side: int) -> Tensor:
    """Cut images into square patches of `side` pixels.

    `(batch, channels, rows x side, columns x side)` -> `(batch, rows x columns, channels x side x side)`.

    Patches run row by row over the image. Inside a patch the order is channel, row, column, as in a flattened convolution weight, so that a
    linear layer on patches equals ViT's strided convolution (arXiv 2010.11929, Sec. 3.1).
    """
    # (batch, channels, rows, side, columns, side)
    grid = images.unflatten(3, (-1, side)).unflatten(2, (-1, side))
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def fold_patches(patches: Tensor, channels: int, side: int, rows: int = 0) -> Tensor:
    """Invert `cut_patches`.

    Without `rows` the grid is a square if the number of patches is a perfect square, otherwise a single row (`image_grid`).
    """
    grid = patches.unflatten(2, (channels, side, side)).unflatten(1, image_grid(patches.shape[1], rows))
    return grid.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)

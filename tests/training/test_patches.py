"""Cutting patches, then one linear layer, is a strided convolution."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bench.training.reading import cut_patches


@pytest.mark.parametrize("patch_side", [1, 2, 4, 8])
def test_a_linear_layer_on_patches_is_a_strided_convolution(patch_side: int) -> None:
    torch.manual_seed(0)
    images = torch.randn(3, 2, 8, 8, dtype=torch.float64)
    weight = torch.randn(5, 2, patch_side, patch_side, dtype=torch.float64)
    convolved = F.conv2d(images, weight, stride=patch_side)  # (3, 5, grid, grid)
    projected = F.linear(cut_patches(images, patch_side), weight.flatten(1))  # (3, grid^2, 5)
    torch.testing.assert_close(projected, convolved.flatten(2).transpose(1, 2))


def test_patches_run_row_by_row_and_hold_channel_row_column() -> None:
    images = torch.arange(32).view(1, 2, 4, 4)
    expected = [[0, 1, 4, 5, 16, 17, 20, 21], [2, 3, 6, 7, 18, 19, 22, 23]]
    assert cut_patches(images, 2)[0, :2].tolist() == expected


@pytest.mark.parametrize(("shape", "patch_side"), [((1, 1, 8, 8), 3), ((1, 1, 4, 8), 4), ((1, 8, 8), 4)])
def test_patches_that_do_not_tile_are_refused(shape: tuple[int, ...], patch_side: int) -> None:
    with pytest.raises(ValueError, match=f"patches of {patch_side} px do not tile"):
        cut_patches(torch.zeros(shape), patch_side)

"""Images cut into patches inside a model: the same numbers as patches cut beforehand, the same answers, the same cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bench import catalog
from models.layers.patches import cut_patches, fold_patches
from models.layers.shape import Interface, Shape, image_grid, image_sides

FAMILIES = ("gmlp", "vit", "transformer", "metaformer")
PATCHES, IMAGES = Interface(patch_dim=12), Interface(patch_dim=12, input="images")


def test_patches_of_a_small_image_by_hand() -> None:
    image = torch.arange(16).reshape(1, 1, 4, 4)
    assert cut_patches(image, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]
    assert cut_patches(image[:, :, :2], 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]


def test_colours_of_a_patch_follow_one_another() -> None:
    images = torch.arange(32).view(1, 2, 4, 4)
    expected = [[0, 1, 4, 5, 16, 17, 20, 21], [2, 3, 6, 7, 18, 19, 22, 23]]
    assert cut_patches(images, 2)[0, :2].tolist() == expected
    assert cut_patches(images.to(memory_format=torch.channels_last), 2)[0, :2].tolist() == expected


@pytest.mark.parametrize("patch_side", [1, 2, 4, 8])
def test_a_linear_layer_on_patches_is_a_strided_convolution(patch_side: int) -> None:
    torch.manual_seed(0)
    images = torch.randn(3, 2, 8, 8, dtype=torch.float64)
    weight = torch.randn(5, 2, patch_side, patch_side, dtype=torch.float64)
    convolved = F.conv2d(images, weight, stride=patch_side)  # (3, 5, grid, grid)
    projected = F.linear(cut_patches(images, patch_side), weight.flatten(1))  # (3, grid^2, 5)
    torch.testing.assert_close(projected, convolved.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("data_tokens", [16, 17, 2])
def test_folding_is_the_inverse_of_cutting(data_tokens: int) -> None:
    images = torch.randn(2, *image_sides(data_tokens, 12))
    patches = cut_patches(images, 2)
    assert patches.shape == (2, data_tokens, 12)
    assert torch.equal(fold_patches(patches, 3, 2), images)
    assert not torch.equal(fold_patches(patches.flip(1), 3, 2), images)


def test_a_grid_is_a_square_or_one_row() -> None:
    assert [image_grid(tokens) for tokens in (1, 16, 17, 196, 12)] == [(1, 1), (4, 4), (1, 17), (14, 14), (1, 12)]
    assert image_sides(17, 192) == (3, 8, 136)
    assert image_sides(16, 64) == (1, 32, 32)


def family_config(family: str, interface: Interface, n: int = 17) -> tuple[Any, Any]:
    module = catalog.load("families", family)
    return module, module.Config(shape=Shape(seq_len=n, width=16, depth=2, heads=2, ffn_width=32), interface=interface)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [17, 18])
def test_images_and_patches_give_the_same_answers_at_the_same_cost(family: str, n: int) -> None:
    module, of_patches = family_config(family, PATCHES, n)
    _, of_images = family_config(family, IMAGES, n)
    first, second = module.build(of_patches), module.build(of_images)
    second.load_state_dict(first.state_dict())
    tokens = n - 1 if of_patches.pool == "cls" else n
    images = torch.randn(2, *image_sides(tokens, 12))
    assert torch.equal(second(images), first(cut_patches(images, 2)))
    assert module.cost(of_images) == module.cost(of_patches)


@pytest.mark.parametrize("family", ["encoder_decoder", "recurrent_attention", "kernel_regression"])
def test_what_reads_no_images_says_so(family: str) -> None:
    with pytest.raises(ValueError, match="not 'images'"):
        family_config(family, IMAGES)


def test_an_image_is_made_of_square_patches() -> None:
    with pytest.raises(ValueError, match="patch_dim must be a square or three times a square, not 13"):
        Interface(patch_dim=13, input="images")

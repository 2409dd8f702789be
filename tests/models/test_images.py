"""Images: cut into patches inside a model or before it, and put together again by the convolutional stem."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bench import catalog
from bench.contracts.subjects import family_config
from models.layers.patches import cut_patches, fold_patches
from models.layers.shape import Interface, image_grid, image_sides, patch_of
from models.layers.stem import ConvolutionStem, grid_of, stage_channels


@pytest.mark.parametrize("patch_side", [1, 2, 4, 8])
def test_a_linear_layer_on_patches_is_a_strided_convolution(patch_side: int) -> None:
    torch.manual_seed(0)
    images, weight = torch.randn(3, 2, 8, 8).double(), torch.randn(5, 2, patch_side, patch_side).double()
    convolved = F.conv2d(images, weight, stride=patch_side)  # (3, 5, grid, grid)
    for layout in (images, images.to(memory_format=torch.channels_last)):
        projected = F.linear(cut_patches(layout, patch_side), weight.flatten(1))  # (3, grid^2, 5)
        torch.testing.assert_close(projected, convolved.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("data_tokens", [16, 17, 2])
def test_folding_is_the_inverse_of_cutting(data_tokens: int) -> None:
    images = torch.randn(2, *image_sides(data_tokens, 12))
    patches = cut_patches(images, 2)
    assert patches.shape == (2, data_tokens, 12)
    assert torch.equal(fold_patches(patches, 3, 2), images)


def test_grids_and_patches_by_hand() -> None:
    assert [image_grid(tokens) for tokens in (1, 16, 17, 196, 12)] == [(1, 1), (4, 4), (1, 17), (14, 14), (1, 12)]
    assert [grid_of(tokens) for tokens in (16, 17, 6, 196, 48, 1)] == [(4, 4), (1, 17), (2, 3), (14, 14), (6, 8), (1, 1)]
    assert image_sides(17, 192) == (3, 8, 136)
    assert [patch_of(size) for size in (192, 768, 64, 16, 12)] == [(3, 8), (3, 16), (1, 8), (1, 4), (3, 2)]
    assert [stage_channels(*sizes) for sizes in ((16, 192), (2, 8), (8, 10))] == [[24, 48, 96, 192], [8], [3, 5, 10]]


@pytest.mark.parametrize("family", ["gmlp", "vit", "transformer", "metaformer"])
@pytest.mark.parametrize("n", [17, 18])
def test_images_and_patches_give_the_same_answers_at_the_same_cost(family: str, n: int) -> None:
    module = catalog.load("families", family)
    of_patches, of_images = (family_config(family, Interface(patch_dim=12, input=kind), seq_len=n)() for kind in ("patches", "images"))
    first, second = module.build(of_patches), module.build(of_images)
    second.load_state_dict(first.state_dict())
    images = torch.randn(2, *image_sides(n - 1 if of_patches.pool == "cls" else n, 12))
    assert torch.equal(second(images), first(cut_patches(images, 2)))
    assert module.cost(of_images) == module.cost(of_patches)


@pytest.mark.parametrize("family", ["encoder_decoder", "recurrent_attention", "kernel_regression"])
def test_what_reads_no_images_says_so(family: str) -> None:
    with pytest.raises(ValueError, match="not 'images'"):
        family_config(family, Interface(patch_dim=12, input="images"))()


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 4)])
def test_the_stem_reads_the_image_that_was_cut(channels: int, side: int) -> None:
    stem = ConvolutionStem(Interface(patch_dim=channels * side**2), data_tokens=6, width=12, convolution="native")
    rows = torch.randn(2, 6, channels * side**2)
    expected = F.fold(rows.transpose(1, 2), (2 * side, 3 * side), side, stride=side)
    assert torch.equal(stem.image(rows), expected)


@pytest.mark.parametrize(
    ("interface", "rule"),
    [
        (Interface(input="tokens"), "stem must be linear"),
        (Interface(patch_dim=3 * 6 * 6), "power of two"),
        (Interface(patch_dim=3), "power of two"),
        (Interface(patch_dim=50), "patch_dim must be a square"),
    ],
)
def test_what_is_no_image_is_refused(interface: Interface, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        family_config("vit", interface)(stem="convolution")

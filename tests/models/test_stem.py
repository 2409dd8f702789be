"""The convolutional stem: the image that was cut is the image that it reads, and both formulations are the definition."""

from __future__ import annotations

import pytest
import torch
from einops import rearrange
from torch import Tensor

from bench.flop_counter import count_with_torch
from models import vit
from models.layers.patches import cut_patches
from models.layers.shape import Interface, Shape, patch_of
from models.layers.stem import STEM_CONVOLUTIONS, ConvolutionStem, grid_of, require_stem, stage_channels
from tests.contracts.checks import assert_close_to_largest, randomise

SIZES = [(3, 4, 16), (1, 2, 9), (3, 8, 6), (1, 4, 5)]
"""(channels, side of a patch, data tokens): square grids, and grids of 2 x 3 and 1 x 5."""


def stem(channels: int, side: int, tokens: int, convolution: str = "native", width: int = 12) -> ConvolutionStem:
    torch.manual_seed(0)
    module = ConvolutionStem(Interface(patch_dim=channels * side**2), data_tokens=tokens, width=width, convolution=convolution)
    randomise(module)
    return module


def by_definition(image: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Every second pixel: the bias and the sum of its nine neighbours, each by its own matrix over channels; zeros beyond the border."""
    height, width = image.shape[2:]
    padded = torch.zeros(*image.shape[:2], height + 2, width + 2, dtype=image.dtype)
    padded[:, :, 1:-1, 1:-1] = image
    rows = []
    for y in range(0, height, 2):
        pixels = []
        for x in range(0, width, 2):
            pixels.append(torch.einsum("ocyx,bcyx->bo", weight, padded[:, :, y : y + 3, x : x + 3]) + bias)
        rows.append(torch.stack(pixels, dim=-1))
    return torch.stack(rows, dim=-2)


@pytest.mark.parametrize("side", [2, 4, 8])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_stem_reads_the_image_that_was_cut(channels: int, side: int) -> None:
    images = torch.randn(2, channels, 16, 16)
    patches = cut_patches(images, side)
    assert torch.equal(stem(channels, side, patches.shape[1]).image(patches), images)


def test_patches_of_no_square_number_lie_in_whole_rows() -> None:
    patches = torch.randn(2, 6, 3 * 4 * 4)
    expected = rearrange(patches, "b (row column) (c y x) -> b c (row y) (column x)", row=2, c=3, y=4)
    assert torch.equal(stem(3, 4, 6).image(patches), expected)
    assert [grid_of(tokens) for tokens in (16, 17, 6, 196, 48, 1)] == [(4, 4), (1, 17), (2, 3), (14, 14), (6, 8), (1, 1)]


@pytest.mark.parametrize("convolution", STEM_CONVOLUTIONS)
@pytest.mark.parametrize(("channels", "side", "tokens"), SIZES)
def test_every_formulation_is_the_definition_in_outputs_and_gradients(channels: int, side: int, tokens: int, convolution: str) -> None:
    module = stem(channels, side, tokens, convolution).double()
    patches = torch.randn(2, tokens, channels * side**2, dtype=torch.float64)
    image = module.image(patches)
    for layer in module.convolutions:
        image = by_definition(image, layer.get_parameter("weight"), layer.get_parameter("bias")).relu()
    expected = torch.stack([module.project(image[:, :, row, column]) for row in range(module.rows) for column in range(module.columns)], 1)
    found, parameters = module(patches), list(module.parameters())
    assert found.shape == (2, tokens, 12)
    assert_close_to_largest(found, expected, 1e-12)
    upstream = torch.randn_like(found)
    for ours, theirs in zip(
        torch.autograd.grad(found, parameters, upstream), torch.autograd.grad(expected, parameters, upstream), strict=True
    ):
        assert_close_to_largest(ours, theirs, 1e-10)


def test_another_order_of_weights_is_noticed() -> None:
    image, weight, bias = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    for convolve in STEM_CONVOLUTIONS.values():
        with pytest.raises(AssertionError, match="differs"):
            assert_close_to_largest(convolve(image, weight.transpose(2, 3), bias), by_definition(image, weight, bias), 1e-5)


def test_tokens_overlap_with_the_patches_around_them_and_no_others() -> None:
    module, images = stem(3, 4, 16), torch.randn(1, 3, 16, 16)
    other = images.clone()
    other[..., 7, 7] += 1.0  # the last pixel of the patch in row 1, column 1
    changed = (module(cut_patches(images, 4)) != module(cut_patches(other, 4))).any(dim=-1).view(4, 4)
    assert changed.nonzero().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_channels_double_up_to_the_width() -> None:
    assert stage_channels(16, 192) == [24, 48, 96, 192]
    assert stage_channels(2, 8) == [8]
    assert stage_channels(8, 10) == [3, 5, 10]


def config(n: int, convolution: str) -> vit.Config:
    shape = Shape(seq_len=n, width=16, depth=1, heads=2, ffn_width=32)
    return vit.Config(shape=shape, interface=Interface(patch_dim=48), stem="convolution", convolution=convolution)


def test_cost_is_nine_products_per_weight_of_a_pixel() -> None:
    terms = {term.name.removeprefix("embedding.stem."): term for term in vit.cost(config(65, "native")).terms}
    first, second, last = (terms[name] for name in ("convolutions.0", "convolutions.1", "project"))
    assert first.macs.at(65) == 64 * (2 * 2) * 9 * 3 * 8
    assert second.macs.at(65) == 64 * 9 * 8 * 16
    assert last.macs.at(65) == 64 * 16 * 16
    assert (first.params.at(65), second.params.at(65), last.params.at(65)) == (9 * 3 * 8 + 8, 9 * 8 * 16 + 16, 16 * 16 + 16)


@pytest.mark.parametrize("n", [17, 18, 65])
def test_the_native_convolution_costs_what_is_counted(n: int) -> None:
    with torch.device("meta"):
        model, data = vit.build(config(n, "native")).eval(), torch.randn(1, n - 1, 48)
    assert count_with_torch(model, data).flops == vit.cost(config(n, "native")).flops().at(n)


@pytest.mark.parametrize(
    ("interface", "rule"),
    [
        (Interface(input="tokens"), "stem must be linear with input=tokens, not 'convolution'"),
        (Interface(patch_dim=3 * 6 * 6), "patch side must be a power of two, 2 or more, with stem=convolution, not 6"),
        (Interface(patch_dim=3), "patch side must be a power of two, 2 or more, with stem=convolution, not 1"),
        (Interface(patch_dim=50), "patch_dim must be a square or three times a square, not 50"),
    ],
)
def test_what_is_no_image_is_refused(interface: Interface, rule: str) -> None:
    require_stem("linear", interface)
    with pytest.raises(ValueError, match=rule):
        require_stem("convolution", interface)


def test_colour_and_grey_patches_are_told_apart() -> None:
    assert [patch_of(size) for size in (192, 768, 64, 16, 12)] == [(3, 8), (3, 16), (1, 8), (1, 4), (3, 2)]

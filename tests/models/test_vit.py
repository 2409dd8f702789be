"""ViT's and the Transformer's options: positions, a hidden layer in the head, and defaults that leave the models of stored plans alone."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import transformer, vit
from models.layers.embedding import sinusoidal_positions
from models.layers.shape import Shape
from tests.contracts.checks import assert_close_to_largest, randomise

SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=32)


def built(family: ModuleType, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = family.build(family.Config(shape=SHAPE, **options))
    return model.eval()


def drawn() -> Tensor:
    return torch.randn(3, 16, 192, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("positions", "knows_order"), [("learned", True), ("sinusoidal", True), ("none", False)])
def test_only_positions_tell_the_order_of_patches(positions: str, knows_order: bool) -> None:
    model, patches = built(vit, positions=positions), drawn()
    randomise(model)
    with torch.no_grad():
        found, turned = model(patches), model(patches.flip(1))
    assert torch.allclose(found, turned, atol=1e-5) != knows_order
    assert found.abs().max() > 0.1


def test_sinusoidal_positions_are_added_to_the_projected_patches() -> None:
    embedding = built(vit, positions="sinusoidal", pool="mean").get_submodule("embedding")
    patches = torch.randn(2, 17, 192)
    assert_close_to_largest(embedding(patches), embedding.get_submodule("project")(patches) + sinusoidal_positions(17, 16), 1e-6)


@pytest.mark.parametrize("family", [vit, transformer])
def test_a_hidden_layer_stands_before_the_classifier(family: ModuleType) -> None:
    model = built(family, head_hidden=24)
    randomise(model)
    read: list[Tensor] = []
    model.get_submodule("head").register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    found = model(drawn())
    head = dict(model.get_submodule("head").named_children())
    assert_close_to_largest(found, head["classify"](F.gelu(head["hidden"](read[0][:, 0]))), 1e-6)
    assert (head["hidden"].get_parameter("weight").shape, head["classify"].get_parameter("weight").shape) == ((24, 16), (10, 24))


@pytest.mark.parametrize("family", [vit, transformer])
def test_a_hidden_layer_of_negative_width_is_refused(family: ModuleType) -> None:
    with pytest.raises(ValueError, match="head_hidden must be zero or a positive whole number, not -1"):
        family.Config(shape=SHAPE, head_hidden=-1)


def test_the_defaults_are_the_model_of_stored_plans() -> None:
    names = [name for name, _ in built(vit).named_parameters()]
    around_blocks = [name for name in names if not name.startswith("blocks.")]
    embedding = ["class_token", "positions", "project.weight", "project.bias"]
    head = ["norm.weight", "norm.bias", "head.classify.weight", "head.classify.bias"]
    assert around_blocks == [*(f"embedding.{name}" for name in embedding), *head]


def test_the_formulation_of_the_stem_changes_no_weight_and_no_answer() -> None:
    native, products = (built(vit, stem="convolution", convolution=name) for name in ("native", "products"))
    assert all(torch.equal(value, products.state_dict()[name]) for name, value in native.state_dict().items())
    for model in (native, products):
        torch.manual_seed(2)
        randomise(model)
    assert_close_to_largest(native(drawn()), products(drawn()), 1e-5)


def test_an_image_has_no_padding() -> None:
    model = built(vit, stem="convolution")
    with pytest.raises(ValueError, match="valid must be None with stem=convolution"):
        model(drawn(), torch.ones(3, 16, dtype=torch.bool))

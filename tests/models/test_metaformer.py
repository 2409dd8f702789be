"""MetaFormer: with attention it is ViT; which mixers it holds, and what it asks of them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from models import metaformer, vit
from models.layers.shape import Interface, Shape
from tests.contracts.checks import assert_close_to_largest, randomise

SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=64)


def config(**options: str | int) -> metaformer.Config:
    return metaformer.Config(shape=SHAPE, **options)  # type: ignore[arg-type]


def as_in_vit(name: str) -> str:
    return name.replace(".norm_mixer", ".norm_attention").replace(".mixer.", ".attention.")


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("output", ["class", "tokens"])
def test_with_attention_it_costs_what_vit_costs(pool: str, output: str) -> None:
    interface = Interface(output=output)
    ours = metaformer.cost(metaformer.Config(shape=SHAPE, interface=interface, mixer="attention", pool=pool))
    theirs = vit.cost(vit.Config(shape=SHAPE, interface=interface, pool=pool))
    assert [dataclasses.replace(term, name=as_in_vit(term.name)) for term in ours.terms] == list(theirs.terms)
    assert metaformer.cost(config(mixer="window_attention", pool=pool)).macs() != ours.macs()


def test_with_attention_and_its_weights_it_answers_as_vit() -> None:
    model = metaformer.build(config(mixer="attention", pool="cls")).eval()
    torch.manual_seed(0)
    randomise(model)
    peer = vit.build(vit.Config(shape=SHAPE)).eval()
    data = torch.randn(3, 16, 192)
    with torch.no_grad():
        assert not torch.equal(model(data), peer(data))
        peer.load_state_dict({as_in_vit(name): value for name, value in model.state_dict().items()})
        assert model(data).std() > 0.01
        assert torch.equal(model(data), peer(data))


def test_a_window_over_all_tokens_is_attention() -> None:
    model, local = (metaformer.build(config(mixer="window_attention", reach=reach)).eval() for reach in (17, 16))
    peer = metaformer.build(config(mixer="attention")).eval()
    torch.manual_seed(0)
    randomise(model)
    for other in (local, peer):
        other.load_state_dict(model.state_dict())
    data = torch.randn(3, 17, 192)
    with torch.no_grad():
        expected = peer(data)
        assert_close_to_largest(model(data), expected, 1e-5)
        with pytest.raises(AssertionError, match="differs"):
            assert_close_to_largest(local(data), expected, 1e-4)


def test_every_mixer_that_keeps_the_width_can_be_held() -> None:
    assert metaformer.mixer_names() == ("attention", "depthwise_convolution", "identity", "window_attention")


@pytest.mark.parametrize(
    ("mixer", "attends"), [("attention", True), ("depthwise_convolution", False), ("identity", False), ("window_attention", True)]
)
def test_attention_is_used_by_the_mixers_that_call_its_kernel(mixer: str, attends: bool) -> None:
    assert metaformer.uses_attention(config(mixer=mixer)) is attends


@pytest.mark.parametrize(("mixer", "field"), [("window_attention", "window"), ("depthwise_convolution", "kernel_size")])
def test_reach_is_the_size_that_the_mixer_names(mixer: str, field: str) -> None:
    assert getattr(config(mixer=mixer, reach=5).mixing, field) == 5
    assert getattr(config(mixer=mixer).mixing, field) == {"window": 16, "kernel_size": 9}[field]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"mixer": "attention", "reach": 5}, "reach must be 0 with mixer=attention"),
        ({"mixer": "identity", "reach": 5}, "reach must be 0 with mixer=identity"),
        ({"reach": -1}, "reach must be zero or a positive whole number"),
        ({"reach": 4}, "kernel_size must be odd"),
        ({"mixer": "window_attention", "reach": 1}, "window must be at least 2"),
        ({"mixer": "spatial_gating"}, "mixer must be one of"),
    ],
)
def test_a_mixer_that_cannot_be_built_is_refused(options: dict[str, str | int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        config(**options)


def test_heads_of_the_shape_are_those_of_the_mixer() -> None:
    assert config(mixer="window_attention").mixing.heads == 2
    assert config(mixer="attention").mixing.heads == 2

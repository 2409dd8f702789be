"""MetaFormer: with attention it is ViT; which mixers it holds, and what it asks of them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bench import catalog
from models import metaformer, transformer, vit
from models.layers.dropout import set_dropout
from models.layers.shape import Interface, Shape
from tests.contracts.checks import assert_close_to_largest, randomise

SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=64)


def config(**options: str | int) -> metaformer.Config:
    return metaformer.Config(shape=SHAPE, **options)  # type: ignore[arg-type]


def as_in_vit(name: str) -> str:
    return name.replace(".norm_mixer", ".norm_attention").replace(".mixer.", ".attention.")


AS_TRANSFORMER: dict[str, str | int] = {
    "mixer": "attention",
    "residual": "post",
    "norm": "layer",
    "activation": "relu",
    "positions": "sinusoidal",
}
POOLS = ["cls", "mean"]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("output", ["class", "tokens"])
@pytest.mark.parametrize("head_hidden", [0, 24])
def test_with_attention_it_costs_what_vit_costs(pool: str, output: str, head_hidden: int) -> None:
    interface = Interface(output=output)
    options = {"pool": pool, "head_hidden": head_hidden}
    ours = metaformer.cost(metaformer.Config(shape=SHAPE, interface=interface, mixer="attention", **options))  # type: ignore[arg-type]
    theirs = vit.cost(vit.Config(shape=SHAPE, interface=interface, **options))  # type: ignore[arg-type]
    assert [dataclasses.replace(term, name=as_in_vit(term.name)) for term in ours.terms] == list(theirs.terms)
    assert metaformer.cost(config(mixer="window_attention", pool=pool)).macs() != ours.macs()


@pytest.mark.parametrize("pool", POOLS)
def test_as_the_transformer_it_costs_what_that_costs(pool: str) -> None:
    ours, theirs = metaformer.cost(config(**AS_TRANSFORMER, pool=pool)), transformer.cost(transformer.Config(shape=SHAPE, pool=pool))
    assert sorted(as_in_vit(term.name) for term in ours.terms) == sorted(term.name for term in theirs.terms)
    assert {as_in_vit(term.name): (term.params, term.macs) for term in ours.terms} == {t.name: (t.params, t.macs) for t in theirs.terms}


@pytest.mark.parametrize("pool", POOLS)
def test_with_attention_and_its_weights_it_answers_as_vit(pool: str) -> None:
    assert_same_model(metaformer.build(config(mixer="attention", pool=pool)), vit.build(vit.Config(shape=SHAPE, pool=pool)))


@pytest.mark.parametrize("pool", POOLS)
def test_as_the_transformer_with_its_weights_it_answers_as_that(pool: str) -> None:
    peer = transformer.build(transformer.Config(shape=SHAPE, pool=pool))
    assert_same_model(metaformer.build(config(**AS_TRANSFORMER, pool=pool)), peer)


def assert_same_model(model: nn.Module, peer: nn.Module) -> None:
    """Bit-equal answers with the same weights: in evaluation, among padding, and in training with the same draws of dropout."""
    torch.manual_seed(0)
    randomise(model)
    data, valid = torch.randn(3, 16 if model.pool == "cls" else 17, 192), torch.ones(3, 16 if model.pool == "cls" else 17, dtype=torch.bool)
    valid[0, 5:] = False
    with torch.no_grad():
        assert not torch.equal(model(data), peer(data))
        peer.load_state_dict({as_in_vit(name): value for name, value in model.state_dict().items()})
        assert model(data).std() > 0.01
        assert torch.equal(model.eval()(data), peer.eval()(data))
        assert torch.equal(model(data, valid), peer(data, valid))
        assert not torch.equal(model(data, valid), model(data))
        assert torch.equal(*(dropped(trained, data) for trained in (model, peer)))
        assert not torch.equal(dropped(model, data), model.eval()(data))


def dropped(model: nn.Module, data: Tensor) -> Tensor:
    torch.manual_seed(1)
    set_dropout(model, 0.3)
    answer: Tensor = model.train()(data)
    return answer


@pytest.mark.parametrize(
    ("residual", "formula"),
    [
        ("pre", lambda x, f, norm: x + f(norm(x))),
        ("post", lambda x, f, norm: norm(x + f(x))),
        ("inner", lambda x, f, norm: x + norm(f(x))),
        ("none", lambda x, f, norm: f(norm(x))),
    ],
)
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_a_block_is_its_formula(residual: str, formula: Callable[..., Tensor], norm: str) -> None:
    block = metaformer.MixerBlock(config(residual=residual, norm=norm, mixer="attention", activation="relu"))
    torch.manual_seed(0)
    randomise(block)
    tokens = torch.randn(3, 17, 16)
    expected = formula(formula(tokens, block.mixer, block.norm_mixer), block.feed_forward, block.norm_feed_forward)
    assert torch.equal(block(tokens), expected)


@pytest.mark.parametrize(("residual", "norms"), [("pre", 5), ("post", 4), ("inner", 5), ("none", 5)])
def test_a_last_norm_follows_blocks_that_do_not_end_in_one(residual: str, norms: int) -> None:
    model = metaformer.build(config(residual=residual))
    assert len([module for module in model.modules() if isinstance(module, nn.LayerNorm)]) == norms


def test_padding_takes_no_part_in_the_statistics_of_a_batch() -> None:
    model = metaformer.build(config(norm="batch", mixer="attention"))
    torch.manual_seed(0)
    randomise(model)
    data, valid = torch.randn(3, 17, 192), torch.ones(3, 17, dtype=torch.bool)
    valid[0, 5:] = False
    fresh = copy.deepcopy(model.state_dict())
    answers, states = [], []
    for fill in (0.0, 1e6, float("nan")):
        model.load_state_dict(fresh)
        answers.append(model(data.masked_fill(~valid[..., None], fill), valid))
        states.append(model.state_dict()["norm.running_mean"].clone())
    assert answers[0].std() > 0.01
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])
    assert torch.equal(states[0], states[2])
    assert not torch.equal(states[0], fresh["norm.running_mean"])


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


def test_a_short_convolution_before_the_blocks_mixes_each_token_with_those_before_it() -> None:
    interface = Interface(input="tokens", output="tokens", num_classes=4)
    found = metaformer.Config(shape=SHAPE, interface=interface, mixer="identity", short_convolution=3)
    model = metaformer.build(found)
    torch.manual_seed(0)
    randomise(model)
    ids, valid = torch.randint(200, (2, 17)), torch.ones(2, 17, dtype=torch.bool)
    changed, valid[:, 3:5] = ids.clone(), False
    changed[:, 4] += 1
    with torch.no_grad():
        differs = (model(ids) != model(changed)).any(dim=2)[0]
        assert differs.nonzero().flatten().tolist() == [4, 5, 6]
        assert torch.equal(model(ids, valid)[:, 5:], model(changed, valid)[:, 5:])
        reference = metaformer.build(dataclasses.replace(found, formulation="reference"))
        reference.load_state_dict(model.state_dict())
        assert_close_to_largest(reference(ids), model(ids), 1e-5)
    term = next(term for term in metaformer.cost(found).terms if term.name == "short_convolution")
    assert (term.scope, term.params.at(17), term.macs.at(17)) == ("embedding", 3 * 16 + 16, 17 * 3 * 16)
    assert sum(parameter.numel() for parameter in model.parameters()) == metaformer.cost(found).params().at(17)


def test_every_mixer_that_keeps_the_width_can_be_held() -> None:
    assert set(metaformer.mixer_names()) == set(catalog.names("mixers")) - {"spatial_gating"}


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
        ({"short_convolution": -1}, "short_convolution must be zero or a positive whole number, not -1"),
        ({"short_convolution": 1}, r"short_convolution must be 0 \(none\) or at least 2, not 1"),
        ({"reach": -1}, "reach must be zero or a positive whole number"),
        ({"reach": 4}, "kernel_size must be odd"),
        ({"mixer": "window_attention", "reach": 1}, "window must be at least 2"),
        ({"mixer": "spatial_gating"}, "mixer must be one of"),
        ({"mixer": "spatial_gating:heads=2"}, "mixer must be one of"),
        ({"mixer": "window_attention:kernel_size=3"}, "unknown option of mixer=window_attention: 'kernel_size'; allowed: window"),
        ({"mixer": "window_attention:heads=2"}, "unknown option of mixer=window_attention: 'heads'; allowed: window"),
        ({"mixer": "attention:out_width=8"}, "unknown option of mixer=attention: 'out_width'"),
        ({"mixer": "window_attention:window=8:window=4"}, "option window of mixer=window_attention is given twice"),
        ({"mixer": "window_attention:window=wide"}, "option window of mixer=window_attention must be a whole number"),
        ({"mixer": "window_attention:window=08"}, "not '08'"),
        ({"mixer": "window_attention:window"}, "must be a whole number from 0 to 999,999,999, not ''"),
        ({"mixer": "window_attention:window=1"}, "window must be at least 2"),
        ({"mixer": "window_attention:window=8", "reach": 4}, "the mixer's own option sets it"),
        ({"mixer": "gru:bidirectional=yes"}, "option bidirectional of mixer=gru must be true or false, not 'yes'"),
        ({"mixer": "gru:recurrence="}, "option recurrence of mixer=gru must be a word"),
        ({"mixer": "gru:recurrence=magic"}, "recurrence must be one of native, products"),
        ({"mixer": "identity:heads=2"}, "unknown option of mixer=identity: 'heads'; it has no options"),
    ],
)
def test_a_mixer_that_cannot_be_built_is_refused(options: dict[str, str | int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        config(**options)


@pytest.mark.parametrize(
    ("mixer", "field", "value"),
    [
        ("window_attention:window=8", "window", 8),
        ("depthwise_convolution:kernel_size=5:convolution=products", "convolution", "products"),
        ("gru:bidirectional=true", "bidirectional", True),
        ("gru:bidirectional=false", "bidirectional", False),
        ("attention:inner_width=8", "inner_width", 8),
    ],
)
def test_a_mixer_is_named_with_options_of_its_own(mixer: str, field: str, value: str | int) -> None:
    found = config(mixer=mixer)
    assert getattr(found.mixing, field) == value
    model = metaformer.build(found)
    assert model(torch.randn(2, 17, 192)).shape == (2, 10)
    assert sum(parameter.numel() for parameter in model.parameters()) == metaformer.cost(found).params().at(17)


def test_an_option_of_the_mixer_is_the_same_as_the_reach() -> None:
    named, reached = config(mixer="window_attention:window=8"), config(mixer="window_attention", reach=8)
    assert named.mixing == reached.mixing
    assert metaformer.cost(named) == metaformer.cost(reached)


def test_the_reference_is_that_of_the_mixer() -> None:
    for mixer, option in (("depthwise_convolution:kernel_size=5", "convolution"), ("gru:bidirectional=true", "recurrence")):
        native, reference = config(mixer=mixer), config(mixer=mixer, formulation="reference")
        assert getattr(native.mixing, option) == "native"
        assert reference.mixing == dataclasses.replace(native.mixing, **{option: "products"})
    assert config(mixer="attention", formulation="reference").mixing == config(mixer="attention").mixing
    kept = config(mixer="gated_projection:kernel=fft:toeplitz=true", formulation="reference").mixing
    assert (kept.kernel, config(mixer="gated_projection:kernel=matmul", formulation="reference").mixing.kernel) == ("fft", "linear")


@pytest.mark.parametrize(("mixer", "stepwise"), [("gru", True), ("gru:bidirectional=true", True), ("attention", False)])
def test_what_goes_step_by_step_says_so(mixer: str, stepwise: bool) -> None:
    assert metaformer.is_stepwise(config(mixer=mixer)) is stepwise


def test_heads_of_the_shape_are_those_of_the_mixer() -> None:
    assert config(mixer="window_attention").mixing.heads == 2
    assert config(mixer="attention").mixing.heads == 2

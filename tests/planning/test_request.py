"""Mixers with options of their own, from the command line to a model."""

from __future__ import annotations

import json
import re

import pytest

from bench import catalog
from bench.measure.model import config_of, cost_of
from bench.planning.request import parse_model
from bench.planning.sizing import resolve_models
from bench.serialize import content_id, from_json, to_json
from bench.spec import ModelSpec, RequestError
from models.layers.shape import Shape
from tests.requested import parse_request

SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=32)


def spec(text: str) -> ModelSpec:
    wanted = parse_model(text)
    return ModelSpec(name=wanted.name, family=wanted.family, options=wanted.options, shape=SHAPE)


def test_options_of_a_mixer_survive_the_command_line() -> None:
    model = spec("metaformer+residual=post+mixer=window_attention:window=8")
    assert model.name == "metaformer+mixer=window_attention:window=8+residual=post"
    assert config_of(model).mixing.window == 8
    assert from_json(ModelSpec, json.loads(json.dumps(to_json(model)))) == model


def test_equal_models_have_equal_names_and_ids() -> None:
    one, other = (
        spec(f"metaformer+mixer=gru:{text}") for text in ("bidirectional=true:recurrence=native", "recurrence=native:bidirectional=true")
    )
    assert one == other
    assert content_id(one) == content_id(other) != content_id(spec("metaformer+mixer=gru:bidirectional=false"))


def test_an_old_plan_costs_what_it_did() -> None:
    old = ModelSpec(name="m", family="metaformer", options=(("convolution", "products"), ("reach", 5)), shape=SHAPE)
    assert cost_of(old) == cost_of(spec("metaformer+mixer=depthwise_convolution:kernel_size=5"))
    assert config_of(old).mixing.convolution == "products"


WORDS = {
    **{f"{family}+": family for family in catalog.names("families")},
    **{f"metaformer+mixer={mixer}:": mixer for mixer in catalog.names("mixers") if mixer != "spatial_gating"},
}
"""How an option is typed, and the plugin that has it. A MetaFormer takes no spatial_gating, which may halve the width."""


@pytest.mark.parametrize("start", WORDS)
def test_every_option_is_listed_with_the_words_that_it_allows(start: str) -> None:
    kind = "mixers" if start.endswith(":") else "families"
    texts = catalog.option_texts(WORDS[start], kind)
    for option in catalog.options(WORDS[start], kind):
        assert texts[option.name]
        if isinstance(option.default, str):
            with pytest.raises(ValueError, match=rf"{option.name} must be one of .*, not '\?'") as refused:
                config_of(spec(f"{start}{option.name}=?"))
            allowed = str(refused.value).partition("must be one of ")[2].partition(", not ")[0].split(", ")
            named = ["bench list mixers"] if option.name == "mixer" else allowed
            assert [word for word in named if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", texts[option.name])] == []


@pytest.mark.parametrize(
    ("mixer", "rule"),
    [
        ("window_attention:windw=8", "unknown option of mixer=window_attention: 'windw'; allowed: window"),
        ("window_attention:window=8:window=8", "option window of mixer=window_attention is given twice"),
        ("nonsense:window=8", "mixer must be one of additive_attention, attention"),
    ],
)
def test_what_a_mixer_does_not_have_is_refused_with_what_it_has(mixer: str, rule: str) -> None:
    request = parse_request(models=f"metaformer+mixer={mixer}", seq="17")
    with pytest.raises(RequestError, match=rule):
        list(resolve_models(request))

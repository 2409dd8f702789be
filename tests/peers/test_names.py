"""How outside models are named, and what is refused in one line before any library is imported."""

from __future__ import annotations

import pytest

from bench.peers import names
from bench.planning.request import ModelRequest, parse_model
from bench.spec import RequestError
from tests.requested import parse_request


def test_names_and_their_options() -> None:
    found = [parse_model(name) for name in ("gmlp", "torchvision:vit_b_16", "python:a.b:f+pool=cls+size=3+deep=true+kind=x")]
    assert found[0].family == "gmlp"
    assert found[1] == ModelRequest(name="torchvision:vit_b_16", family="torchvision", options=(("model", "vit_b_16"),))
    assert found[2].family == "python"
    assert found[2].options == (("arguments", "deep=true+kind=x+size=3"), ("factory", "a.b:f"), ("pool", "cls"))
    assert names.read_arguments("deep=true+kind=x+size=3") == {"deep": True, "kind": "x", "size": 3}
    assert [model.is_outside for model in found] == [False, True, True]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("timm:", "'timm:' must have the form timm:NAME"),
        ("timm:hf-hub:someone/some", "must have the form timm:NAME"),
        ("torchvision:vit_b_16+depth=3", "takes no options, found 'depth=3'"),
        ("python:os", "must have the form python:package.module:factory"),
        ("python:os:path:join", "must have the form python:package.module:factory"),
        ("python:a:f+size", "'size' in 'python:a:f+size' must have the form argument=value"),
        ("python:a:f+size=1+size=2", "argument size is given twice"),
        ("python:a:f+pool=max", "pool=max in 'python:a:f+pool=max' must be one of cls, mean"),
        ("timmm:x", "unknown model 'timmm:x'"),
    ],
)
def test_what_is_no_name_is_refused(entry: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_model(entry)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "entry",
    [
        "timm:resnet18,pretrained",
        "timm:resnet18+pretrained=true",
        "timm:resnet18:pretrained",
        "timm:resnet18.a1_in1k",
        "torchvision:vit_b_16+weights=DEFAULT",
        "vit+pretrained",
    ],
)
def test_who_asks_for_pretrained_weights_is_told_where_they_are_named(entry: str) -> None:
    with pytest.raises(RequestError, match="but models are built with fresh weights") as caught:
        parse_request(models=entry, seq="17", width="16")
    assert "add --recipe init=FILE" in caught.value.hint


def test_a_factory_may_have_an_argument_of_that_name() -> None:
    assert dict(parse_model("python:a.weights:f+pretrained=true").options)["arguments"] == "pretrained=true"


def test_published_models_have_sizes_and_a_length_of_their_own() -> None:
    assert parse_request(models="torchvision:vit_b_16").seq == ()
    with pytest.raises(RequestError, match="published models have fixed sizes"):
        parse_request(models="torchvision:vit_b_16", depth="3")
    with pytest.raises(RequestError, match="--seq is missing"):
        parse_request(models="python:a:f")

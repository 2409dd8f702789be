"""The kinds of fields: what each text comes to, and how a wrong one is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.planning.fields import read
from bench.planning.request import Request
from bench.planning.values import entries, named_path, one_of, params, params_text, several, whole_number
from bench.spec import RequestError
from models.layers.options import as_keywords

TEXTS = {
    "models": "gmlp+pool=mean,vit",
    "seq": "17,65",
    "params": "250k,1.5M",
    "width": "64",
    "phase": "train,infer",
    "limit_s": "2.5",
    "recipe": "epochs=3",
    "data_root": ".",
    "quick": "true",
}


def test_texts_become_the_fields_of_a_request() -> None:
    request = read(Request, TEXTS)
    assert request.typed == TEXTS.keys()
    assert [model.name for model in request.models] == ["gmlp+pool=mean", "vit"]
    assert (request.seq, request.params, request.width, request.phase) == ((17, 65), (250_000, 1_500_000), 64, ("train", "infer"))
    assert (request.limit_s, request.recipe, request.data_root, request.quick) == (2.5, (("epochs", 3),), Path(), True)
    assert read(Request, {}) == Request()


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        ({"depth": "0"}, "wrong value of --depth: '0' is not a whole number", "try --depth 6"),
        ({"params": "1T"}, "wrong value of --params", "try 250k"),
        ({"sequence": "17"}, "there is no --sequence", "did you mean --seq?"),
    ],
)
def test_a_wrong_text_names_its_field(texts: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        read(Request, texts)
    assert hint in refused.value.hint


def test_an_error_names_fields_as_the_surface_does_and_survives_a_process() -> None:
    error = RequestError("`accuracy_seq=65` is not among `seq=17,33`", "try `fail_if=latency_ms>1.05` or leave `seq` out")
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert (str(same), same.hint) == (
            "--accuracy-seq 65 is not among --seq 17,33",
            "try --fail-if 'latency_ms>1.05' or leave --seq out",
        )
        assert (as_keywords(same.message), as_keywords(same.marked_hint)) == (
            "accuracy_seq=65 is not among seq=[17, 33]",
            'try fail_if="latency_ms>1.05" or leave seq= out',
        )


@given(number=st.builds(lambda digits, power: digits * 10**power, st.integers(1, 999), st.integers(0, 8)))
def test_a_budget_is_read_as_it_is_written(number: int) -> None:
    assert params(params_text(number)) == number


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("250k", 250_000), ("1.5m", 1_500_000), ("2B", 2 * 10**9), ("1G", 10**9)])
def test_a_budget_has_a_suffix_or_none(text: str, number: int) -> None:
    assert params(text) == number


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (entries, "17,,65", "'17,,65' has an empty entry"),
        (several(one_of(("infer", "train"))), "infer,trian", "unknown value 'trian'; allowed: infer, train"),
        (whole_number(2, 9), "1", "'1' is not a whole number between 2 and 9"),
        (whole_number(2, 9), "10", "is not a whole number"),
        (whole_number(), "17.5", "is not a whole number between 1 and 1,048,576"),
        (params, "1T", "is not a number of parameters"),
        (params, "0.1", "is not a number of parameters"),
        (named_path, "", "an empty path names nothing"),
    ],
)
def test_a_wrong_text_is_refused_with_what_is_allowed(parse: Any, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse(text)


def test_a_list_holds_each_value_once() -> None:
    assert several(whole_number())("4, 2,4") == (4, 2)

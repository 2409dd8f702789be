"""The kinds of flags: what each text comes to, and that grids and the command line read it alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from bench import cli
from bench.planning.flags import Flags, read_flags
from bench.planning.values import entries, memory, named_path, one_of, params, params_text, several, several_of, whole_number
from bench.spec import RequestError

TEXTS = {
    "models": "gmlp+pool=mean,vit",
    "seq": "17,65",
    "params": "250k,1.5M",
    "width": "64",
    "phase": "train,infer",
    "limit_s": "2.5",
    "recipe": "epochs=3",
    "data_root": ".",
}


def test_grids_are_read_as_the_command_line_is() -> None:
    words = [word for name, text in TEXTS.items() for word in ("--" + name.replace("_", "-"), text)]
    group: Any = typer.main.get_command(cli.app)
    typed = group.commands["run"].make_context("bench run", words).params
    flags = read_flags(TEXTS)
    assert {name: getattr(flags, name) for name in typed if hasattr(flags, name)} == {
        name: typed[name] for name in typed if hasattr(flags, name)
    }
    assert flags.typed == TEXTS.keys()
    assert [model.name for model in flags.models] == ["gmlp+pool=mean", "vit"]
    assert (flags.seq, flags.params, flags.width, flags.phase) == ((17, 65), (250_000, 1_500_000), 64, ("train", "infer"))
    assert (flags.limit_s, flags.recipe) == (2.5, (("epochs", 3),))
    assert flags.data_root == Path()


def test_without_texts_flags_have_their_defaults() -> None:
    assert read_flags({}) == Flags()


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
        (entries, "", "has an empty entry"),
        (several_of(("infer", "train")), "infer,trian", "unknown value 'trian'; allowed: infer, train"),
        (one_of(("cpu", "cuda")), "tpu", "unknown value 'tpu'; allowed: cpu, cuda"),
        (whole_number(2, 9), "1", "'1' is not a whole number between 2 and 9"),
        (whole_number(2, 9), "10", "is not a whole number"),
        (whole_number(), "max", "is not a whole number between 1 and 1,048,576"),
        (params, "1T", "is not a number of parameters"),
        (params, "0.1", "is not a number of parameters"),
        (memory, "8GB", "is not an amount of memory"),
        (named_path, "", "an empty path names nothing"),
    ],
)
def test_a_wrong_text_is_refused_with_what_is_allowed(parse: Any, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse(text)


def test_a_list_holds_each_value_once() -> None:
    assert several(whole_number())("4, 2,4") == (4, 2)

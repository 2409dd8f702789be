"""Options as text: each kind is read into its type, and a refusal names the option, the rule and a value to write."""

from __future__ import annotations

from typing import Any

import pytest

from models.layers.options import Option, RequestError, Value, option_text, read_options

OPTIONS = (
    Option("pool", "cls"),
    Option("form", "blank", ("blank", "shifted")),
    Option("places", ("head",), ("attention", "head")),
    Option("augment", (), ("crop", "flip")),
    Option("depth", 3, low=1, high=2000),
    Option("rate", 0.5, high=1.0, above_low=True),
    Option("share", 0.5, high=1.0),
    Option("causal", False),
)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("pool=mean", "mean"),
        ("form=shifted", "shifted"),
        ("places=head+attention+head", ("attention", "head")),
        ("augment=none", ()),
        ("depth=2000", 2000),
        ("rate=1e-3", 0.001),
        ("share=0", 0.0),
        ("causal=true", True),
    ],
)
def test_a_text_becomes_a_value_of_its_type_and_is_written_as_it_was(setting: str, value: Value) -> None:
    name = setting.partition("=")[0]
    found = read_options("x", [setting], OPTIONS)
    assert found == {name: value}
    assert type(found[name]) is type(value)
    assert read_options("x", [f"{name}={option_text(value)}"], OPTIONS) == found


@pytest.mark.parametrize(
    ("setting", "rule", "hint"),
    [
        ("pool", "a word", "pool=cls"),
        ("form=other", "one of blank, shifted", "form=blank"),
        ("places=none", "attention, head, joined by +", "places=head"),
        ("augment=crop+", "or none", "augment=none"),
        ("depth=0", "from 1 to 2,000", "depth=3"),
        ("depth=03", "a whole number", "depth=3"),
        ("rate=0", "above 0 and up to 1", "rate=0.5"),
        ("rate=nan", "above 0", "rate=0.5"),
        ("share=1.1", "from 0 to 1", "share=0.5"),
        ("causal=yes", "true or false", "causal=false"),
        ("dept=1", "allowed: pool, form", "depth"),
        ("@=1", "unknown option", "leave it out"),
    ],
)
def test_a_refusal_names_the_option_the_rule_and_what_to_write(setting: str, rule: str, hint: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_options("x", [setting], OPTIONS)
    assert setting.partition("=")[0] in str(refused.value)
    assert rule in str(refused.value)
    assert hint in refused.value.hint


def test_an_option_is_given_once() -> None:
    with pytest.raises(RequestError, match="depth of x is given twice"):
        read_options("x", ["depth=1", "depth=1"], OPTIONS)


@pytest.mark.parametrize(("option", "value"), [("depth", 0), ("depth", 2001), ("rate", 0.0), ("rate", float("nan"))])
def test_a_stored_number_out_of_bounds_is_not_allowed(option: str, value: Any) -> None:
    (declared,) = (entry for entry in OPTIONS if entry.name == option)
    assert declared.allows(declared.default)
    assert not declared.allows(value)

"""Options as text: each kind is read into its type, and a refusal names the option, the rule and a value to write."""

from __future__ import annotations

from typing import Any

import pytest

from models.layers.options import Option, RequestError, Value, option_text, read_options, split_choice

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
        ("rate=.5", 0.5),
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
    ("settings", "message", "hint"),
    [
        (["pool="], "option pool of x must be a word, not ''", "write pool=cls"),
        (["pool"], "option pool of x must be a word, not ''", "write pool=cls"),
        (["form=other"], "option form of x must be one of blank, shifted, not 'other'", "write form=blank"),
        (["places=none"], "option places of x must be one or more of attention, head, joined by +, not 'none'", "write places=head"),
        (["augment=crop+"], "one or more of crop, flip, joined by +, or none", "write augment=none"),
        (["depth=0"], "option depth of x must be a whole number from 1 to 2,000, not '0'", "write depth=3"),
        (["depth=03"], "a whole number", "write depth=3"),
        (["depth=2.5"], "a whole number", "write depth=3"),
        (["rate=0"], "option rate of x must be above 0 and up to 1, not '0'", "write rate=0.5"),
        (["rate=nan"], "above 0", "write rate=0.5"),
        (["share=1.1"], "option share of x must be from 0 to 1, not '1.1'", "write share=0.5"),
        (["share=-0.1"], "from 0 to 1", "write share=0.5"),
        (["causal=yes"], "option causal of x must be true or false, not 'yes'", "write causal=false"),
        (["depth=1", "depth=1"], "option depth of x is given twice", "leave one out"),
        (["dept=1"], "unknown option of x: 'dept'; allowed: pool, form", "did you mean depth?"),
        (["@=1"], "unknown option of x: '@'", "leave it out"),
    ],
)
def test_a_refusal_names_the_option_the_rule_and_what_to_write(settings: list[str], message: str, hint: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_options("x", settings, OPTIONS)
    assert message in str(refused.value)
    assert refused.value.hint == hint


@pytest.mark.parametrize(("option", "value"), [("depth", 0), ("depth", 2001), ("rate", 0.0), ("rate", float("nan")), ("share", 1.5)])
def test_a_stored_number_out_of_bounds_is_not_allowed(option: str, value: Any) -> None:
    (declared,) = (entry for entry in OPTIONS if entry.name == option)
    assert declared.allows(declared.default)
    assert not declared.allows(value)


def test_a_choice_with_options_has_one_order() -> None:
    assert split_choice("gru:b=2:a=1") == split_choice("gru:a=1:b=2") == ("gru", ["a=1", "b=2"])

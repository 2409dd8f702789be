"""Every family and mixer that the catalog finds keeps the contract, with every value of every option."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from bench import catalog
from models.layers.shape import Interface, Shape
from tests.contracts import checks
from tests.contracts.subjects import (
    MIXER_SIZES,
    Subject,
    every_subject,
    family_config,
    family_defaults,
    interfaces,
    mixer_config,
    mixer_defaults,
    refusal,
)

SUBJECTS = list(every_subject())
SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=32)
over_subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.label)


@over_subjects
def test_contract(subject: Subject) -> None:
    for check in checks.CONTRACT:
        check(subject)


@pytest.mark.slow
@over_subjects
def test_all_flop_counts_agree_at_every_length(subject: Subject) -> None:
    checks.check_flops(subject, subject.lengths)


def test_the_subjects_are_of_every_kind() -> None:
    assert {subject.name for subject in SUBJECTS} == {*catalog.names("families"), *catalog.names("mixers")}
    assert {len(subject.reached(0)) > 1 for subject in SUBJECTS} == {True, False}
    assert {subject.is_stepwise for subject in SUBJECTS} == {subject.reads_data for subject in SUBJECTS} == {True, False}


@pytest.mark.parametrize("name", ["seq_len", "width", "depth", "heads", "ffn_width", "patch_dim", "vocab_size", "num_classes"])
def test_a_size_that_is_no_positive_whole_number_is_refused(name: str) -> None:
    owner = SHAPE if hasattr(SHAPE, name) else Interface()
    values: tuple[Any, ...] = (0, -8, 8.0, True)
    for value in values:
        with pytest.raises(ValueError, match=f"{name} must be a positive whole number"):
            dataclasses.replace(owner, **{name: value})


def test_a_single_token_is_refused() -> None:
    with pytest.raises(ValueError, match="seq_len must be at least 2"):
        dataclasses.replace(SHAPE, seq_len=1)


def configs() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Of each family and mixer: its config of options, and their defaults."""
    of_families = {name: (family_config(name, interfaces(name)[0]), family_defaults(name)) for name in catalog.names("families")}
    return of_families | {name: (mixer_config(name), mixer_defaults(name)) for name in catalog.names("mixers")}


@pytest.mark.parametrize("name", configs())
def test_impossible_sizes_and_options_are_refused_by_name(name: str) -> None:
    config, defaults = configs()[name]
    for size in MIXER_SIZES if name in catalog.names("mixers") else ():
        with pytest.raises(ValueError, match=f"{size} must be a positive whole number"):
            catalog.load("mixers", name).Config(**{"seq_len": 17, "width": 16, size: 0})
    for option, default in defaults.items():
        if not isinstance(default, bool):
            assert option.split("_")[-1] in refusal(config, {option: "nonsense" if isinstance(default, str) else -1})

    if name in catalog.names("families") and catalog.load("families", name).USES_HEADS:
        assert "width must be a multiple of heads" in refusal(family_config(name, Interface(), heads=3), {})
    assert "heads" not in defaults or "must be a multiple of" in refusal(config, {"heads": 3})

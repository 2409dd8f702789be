"""Every family and mixer that the catalog finds keeps the contract, with every value of every option."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bench import catalog
from bench.contracts.architectures import CONTRACT, check_flops, check_refusals
from bench.contracts.subjects import Subject, every_subject
from models.layers.shape import Interface, Shape
from tests.contracts.reference_checks import check_reference

SUBJECTS = list(every_subject(catalog.names("families"), catalog.names("mixers")))
SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=32)
over_subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.label)


@over_subjects
def test_contract(subject: Subject) -> None:
    for check in (*CONTRACT, check_reference):
        check(subject)


@pytest.mark.slow
@over_subjects
def test_all_flop_counts_agree_at_every_length(subject: Subject) -> None:
    check_flops(subject, subject.lengths)


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


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ("families", "mixers") for name in catalog.names(kind)])
def test_impossible_sizes_and_options_are_refused_by_name(kind: str, name: str) -> None:
    check_refusals(kind, name)

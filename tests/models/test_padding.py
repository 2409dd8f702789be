"""Padding cannot leak, in any family or mixer: drawn weights, lengths and padding. And tokens meet where they should, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.layers.padding import mean_over_valid, with_class_token
from models.layers.stem import ConvolutionStem
from tests.contracts import checks
from tests.contracts.subjects import Subject, families, mixers

ALL = families() + mixers(pooled=False)
SUBJECTS = [subject for subject in ALL if subject.takes_padding]
over_subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.label)
over_token_answers = pytest.mark.parametrize(
    "subject", [s for s in SUBJECTS if "output=class" not in s.label], ids=lambda subject: subject.label
)


@over_subjects
def test_what_padded_tokens_hold_changes_no_answer(subject: Subject) -> None:
    checks.check_padding(subject, seed=0)


@over_subjects
def test_an_item_among_padding_answers_as_in_a_model_of_its_own_length(subject: Subject) -> None:
    checks.check_cut(subject, seed=0)


@pytest.mark.slow
@over_subjects
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1))
def test_nor_with_any_drawn_weights_lengths_and_padding(subject: Subject, seed: int) -> None:
    checks.check_padding(subject, seed=seed)
    checks.check_cut(subject, seed=seed)


@over_subjects
def test_an_item_answers_the_same_among_longer_ones(subject: Subject) -> None:
    model, data = checks.randomised(subject, seed=0)
    valid = checks.random_valid(data, seed=0)
    with torch.no_grad():
        alone, together = model(data[:1], valid[:1]), model(data, valid)[:1]
    found, expected = (checks.valid_answers(output, valid[:1]) for output in (together, alone))
    checks.assert_close_to_largest(found, expected, 1e-5)


@over_subjects
def test_all_tokens_valid_is_the_same_as_none_padded(subject: Subject) -> None:
    checks.check_all_valid(subject)


@over_token_answers
def test_tokens_meet_unless_nothing_mixes_them(subject: Subject) -> None:
    checks.check_mixing(subject)


def test_only_what_reads_its_tokens_as_one_image_refuses_padding_and_tokens_meet_there_too() -> None:
    refusing = [subject for subject in ALL if not subject.takes_padding]
    assert {type(subject.build(17).get_submodule("embedding.project")) for subject in refusing} == {ConvolutionStem}
    for subject in refusing:
        data = subject.data(17)
        with pytest.raises(ValueError, match="valid must be None"):
            subject.build(17)(data, torch.ones(data.shape[:2], dtype=torch.bool))
        if "output=tokens" in subject.label:
            checks.check_mixing(subject)


def test_both_kinds_of_subjects_answer_at_every_token() -> None:
    answering = [s for s in SUBJECTS if "output=class" not in s.label]
    assert {s.mixes for s in answering} == {True, False}
    assert {s.label.split("+")[0] for s in answering} == {s.label.split("+")[0] for s in SUBJECTS}


def test_the_class_token_comes_first_and_is_valid() -> None:
    valid = torch.tensor([[False, True], [True, False]])
    extended = with_class_token(valid, "cls")
    assert extended is not None
    assert extended.tolist() == [[True, False, True], [True, True, False]]
    assert with_class_token(valid, "mean") is valid
    assert with_class_token(None, "cls") is None


def test_the_mean_is_over_valid_tokens_alone() -> None:
    tokens = torch.tensor([[[1.0], [3.0], [float("nan")]], [[2.0], [4.0], [9.0]]])
    valid = torch.tensor([[True, True, False], [True, True, True]])
    assert mean_over_valid(tokens, valid).tolist() == [[2.0], [5.0]]

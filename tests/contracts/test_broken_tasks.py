"""Deliberately broken tasks: each check of the contract catches its fault. That it passes sound tasks is test_tasks.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.contracts.tasks import Subject, check_all, check_chance, check_refusals, check_same_bits, subject_of
from bench.tasks import IGNORED, Splits
from bench.tasks._info import CLASS, Images, info_of
from tests.contracts.made_data import FEW

IMAGES, IDS, CLASSES, VALUES = "digits", f"listops{FEW}", f"copy{FEW}", f"curve_fitting{FEW}"


def broken(task: str, spoil: Callable[[Splits], Splits]) -> Subject:
    sound = subject_of(task)
    return dataclasses.replace(sound, load=lambda num_tokens: spoil(sound.load(num_tokens)))


def with_test(splits: Splits, **changed: Tensor) -> Splits:
    return dataclasses.replace(splits, test=dataclasses.replace(splits.test, **changed))


def with_train(splits: Splits, **changed: Tensor) -> Splits:
    return dataclasses.replace(splits, train=dataclasses.replace(splits.train, **changed))


FAULTS: dict[str, tuple[str, Callable[[Splits], Splits]]] = {
    "class never met": (IMAGES, lambda s: with_test(s, targets=torch.zeros_like(s.test.targets))),
    "float64 images": (IMAGES, lambda s: with_test(s, inputs=s.test.inputs.double())),
    "test item learned from": (IMAGES, lambda s: with_test(s, inputs=s.train.inputs[: len(s.test)])),
    "not normalised": (IMAGES, lambda s: with_train(s, inputs=s.train.inputs + 1)),
    "id out of range": (IDS, lambda s: with_test(s, inputs=s.test.inputs + 16)),
    "a token too many": (IDS, lambda s: with_test(s, inputs=torch.cat((s.test.inputs, s.test.inputs[:, :1]), dim=1))),
    "empty item": (IDS, lambda s: with_test(s, lengths=torch.zeros(len(s.test), dtype=torch.int64))),
    "nothing asked": (CLASSES, lambda s: with_test(s, targets=torch.full_like(s.test.targets, IGNORED))),
    "token class out of range": (CLASSES, lambda s: with_test(s, targets=torch.where(s.test.targets < 0, IGNORED, 16))),
    "padding asked": (CLASSES, lambda s: with_test(s, lengths=torch.ones(len(s.test), dtype=torch.int64))),
    "infinite value": (VALUES, lambda s: with_test(s, targets=s.test.targets / 0)),
    "NaN read": (VALUES, lambda s: with_test(s, inputs=s.test.inputs * torch.nan)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_contract_catches_broken_data(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_all(broken(*FAULTS[fault]))


@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        (IMAGES, {"num_train": 41}),
        (IMAGES, {"reads": Images(channels=2, height=32, width=32)}),
        (CLASSES, {"answers": CLASS}),
        (IMAGES, {"chance": 0.2}),
        (IMAGES, {"chance": 0.05}),
        (CLASSES, {"chance": 0.5}),
        (VALUES, {"chance": 0.1}),
    ],
)
def test_the_contract_catches_wrong_facts(task: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check_all(dataclasses.replace(subject_of(task), info=dataclasses.replace(info_of(task), **wrong)))


def test_the_most_frequent_class_may_be_the_guess() -> None:
    """As in a test of which three in four items are of one class."""
    sound = subject_of(IMAGES)
    targets = sound.splits.test.targets
    mostly = torch.where(torch.arange(len(targets)) % 4 > 0, targets[0], targets)
    subject = dataclasses.replace(
        sound, info=dataclasses.replace(sound.info, chance=0.75), load=lambda _: with_test(sound.splits, targets=mostly)
    )
    check_chance(subject.info, subject.splits)
    with pytest.raises(AssertionError, match=r"chance is 0.75, but guesses of 10 classes score 0.1 to 0.1"):
        check_chance(subject.info, sound.splits)


def test_the_contract_catches_data_drawn_from_the_global_generator() -> None:
    def seeded(splits: Splits) -> Splits:
        torch.manual_seed(0)
        return with_test(splits, inputs=torch.randn(splits.test.inputs.shape))

    with torch.random.fork_rng(), pytest.raises(AssertionError):
        check_same_bits(broken(VALUES, seeded))


def test_the_contract_catches_data_that_differ_at_every_load() -> None:
    loads = iter(range(2))
    with pytest.raises(AssertionError):
        check_same_bits(broken(IDS, lambda s: with_test(s, inputs=s.test.inputs + next(loads))))


def test_the_contract_catches_a_length_that_is_not_refused() -> None:
    info = dataclasses.replace(info_of(IMAGES))
    object.__setattr__(info, "interface", lambda seq_len, pool: (seq_len, pool))
    with pytest.raises(AssertionError, match="is not refused"):
        check_refusals(info)

"""Deliberately broken tasks: each check of the contract catches its fault, and a sound task of each kind passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.tasks import IGNORED, Split, Splits
from bench.tasks._info import CLASS, TOKEN_CLASS, TOKEN_VALUE, Images, Sequences, TaskInfo
from tests.contracts.task_checks import Subject, check_all, check_refusals, check_same_bits

FACTS = TaskInfo(name="made", summary="", source="", reads=Images(channels=1, side=4), num_classes=2, chance=0.5, num_train=40, num_test=20)
INFOS = {
    "images": FACTS,
    "uint8 images": FACTS,
    "ids": dataclasses.replace(FACTS, reads=Sequences(vocab_size=9, min_tokens=6, max_tokens=80)),
    "token classes": dataclasses.replace(FACTS, reads=Sequences(vocab_size=9, multiple=2), answers=TOKEN_CLASS),
    "token values": dataclasses.replace(FACTS, reads=Sequences(vector_width=3), answers=TOKEN_VALUE, num_classes=1),
}


def sound(kind: str) -> Subject:
    return Subject(info=INFOS[kind], load=lambda num_tokens: sound_splits(kind, num_tokens))


def sound_splits(kind: str, num_tokens: int) -> Splits:
    generator = torch.Generator().manual_seed(0)
    if kind == "images":
        images = torch.randn(60, 1, 4, 4, generator=generator)
        return halves((images - images[:40].mean()) / images[:40].std(), torch.arange(60) % 2)
    if kind == "uint8 images":
        images = torch.randint(256, (60, 1, 4, 4), generator=generator, dtype=torch.uint8)
        learned = images[:40].double() / 255
        return dataclasses.replace(halves(images, torch.arange(60) % 2), mean=learned.mean().view(1), spread=learned.std().view(1))
    if kind == "token values":
        vectors = torch.randn(60, num_tokens, 3, generator=generator)
        return halves(vectors, torch.where(torch.arange(num_tokens) == 1, vectors[..., 0], torch.nan))
    # the first ids spell the number of the item, so that no two are alike
    ids = torch.randint(9, (60, num_tokens), generator=generator, dtype=torch.int16)
    ids[:, 0], ids[:, 1] = torch.arange(60) // 9, torch.arange(60) % 9
    if kind == "ids":
        return halves(ids, torch.arange(60) % 2, lengths=torch.arange(60) % 5 + 2)
    return halves(ids, torch.where(torch.arange(num_tokens) == 1, ids.long() % 2, IGNORED))


def halves(inputs: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Splits:
    train, test = (
        Split(inputs=inputs[chosen], targets=targets[chosen], lengths=None if lengths is None else lengths[chosen])
        for chosen in (slice(None, 40), slice(40, None))
    )
    return Splits(train=train, test=test)


def with_test(splits: Splits, **changed: Tensor) -> Splits:
    return dataclasses.replace(splits, test=dataclasses.replace(splits.test, **changed))


DATA_FAULTS: dict[str, tuple[str, Callable[[Splits], Splits]]] = {
    "class out of range": ("images", lambda s: with_test(s, targets=s.test.targets + 1)),
    "class never met": ("images", lambda s: with_test(s, targets=torch.zeros_like(s.test.targets))),
    "float64 images": ("images", lambda s: with_test(s, inputs=s.test.inputs.double())),
    "test item learned from": ("images", lambda s: with_test(s, inputs=s.train.inputs[:20])),
    "not normalised": ("images", lambda s: dataclasses.replace(s, train=dataclasses.replace(s.train, inputs=s.train.inputs + 1))),
    "no mean": ("uint8 images", lambda s: dataclasses.replace(s, mean=None)),
    "mean of 0 to 255": ("uint8 images", lambda s: dataclasses.replace(s, mean=torch.tensor([127.0]))),
    "id out of range": ("ids", lambda s: with_test(s, inputs=s.test.inputs + 1)),
    "ids as numbers": ("ids", lambda s: with_test(s, inputs=s.test.inputs.float())),
    "a token too many": ("ids", lambda s: with_test(s, inputs=torch.cat((s.test.inputs, s.test.inputs[:, :1]), dim=1))),
    "empty item": ("ids", lambda s: with_test(s, lengths=torch.zeros(20, dtype=torch.int64))),
    "length beyond the tokens": ("ids", lambda s: with_test(s, lengths=torch.full((20,), 65))),
    "validation not announced": ("ids", lambda s: dataclasses.replace(s, validation=s.test)),
    "nothing asked": ("token classes", lambda s: with_test(s, targets=torch.full_like(s.test.targets, IGNORED))),
    "token class out of range": ("token classes", lambda s: with_test(s, targets=torch.where(s.test.targets < 0, IGNORED, 2))),
    "int32 targets": ("token classes", lambda s: with_test(s, targets=s.test.targets.int())),
    "padding asked": ("token classes", lambda s: with_test(s, lengths=torch.ones(20, dtype=torch.int64))),
    "no value asked": ("token values", lambda s: with_test(s, targets=torch.full_like(s.test.targets, torch.nan))),
    "infinite value": ("token values", lambda s: with_test(s, targets=s.test.targets / 0)),
    "NaN read": ("token values", lambda s: with_test(s, inputs=s.test.inputs * torch.nan)),
}
FACT_FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "training items": ("images", {"num_train": 41}),
    "classes": ("images", {"num_classes": 3}),
    "channels": ("images", {"reads": Images(channels=2, side=4)}),
    "vector width": ("token values", {"reads": Sequences(vector_width=4)}),
    "vocabulary": ("token classes", {"reads": Sequences(vocab_size=8, multiple=2)}),
    "kind of answers": ("token classes", {"answers": CLASS}),
}


@pytest.mark.parametrize("kind", INFOS)
def test_the_contract_accepts_a_sound_task(kind: str) -> None:
    check_all(sound(kind))


@pytest.mark.parametrize("fault", DATA_FAULTS)
def test_the_contract_catches_broken_data(fault: str) -> None:
    kind, spoil = DATA_FAULTS[fault]
    with pytest.raises(AssertionError):
        check_all(Subject(info=INFOS[kind], load=lambda num_tokens: spoil(sound_splits(kind, num_tokens))))


@pytest.mark.parametrize("fault", FACT_FAULTS)
def test_the_contract_catches_wrong_facts(fault: str) -> None:
    kind, changed = FACT_FAULTS[fault]
    with pytest.raises(AssertionError):
        check_all(dataclasses.replace(sound(kind), info=dataclasses.replace(INFOS[kind], **changed)))


@pytest.mark.parametrize("seeded", [False, True])
def test_the_contract_catches_data_drawn_from_the_global_generator(seeded: bool) -> None:
    def load(num_tokens: int) -> Splits:
        splits = sound_splits("token values", num_tokens)
        if seeded:
            torch.manual_seed(0)
        return with_test(splits, inputs=torch.randn(splits.test.inputs.shape))

    with torch.random.fork_rng(), pytest.raises(AssertionError):
        check_same_bits(Subject(info=INFOS["token values"], load=load))


def test_the_contract_catches_data_that_differ_at_every_load() -> None:
    loads = iter(range(2))

    def load(num_tokens: int) -> Splits:
        splits = sound_splits("ids", num_tokens)
        return with_test(splits, inputs=(splits.test.inputs + next(loads)) % 9)

    with pytest.raises(AssertionError):
        check_same_bits(Subject(info=INFOS["ids"], load=load))


def test_the_contract_catches_a_length_that_is_not_refused() -> None:
    info = dataclasses.replace(INFOS["images"])
    object.__setattr__(info, "interface", lambda seq_len, pool: (seq_len, pool))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check_refusals(info)

"""Every task that the catalog finds keeps the contract of bench/tasks: its facts are those of its data, and its splits can be trained on."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bench import catalog
from bench.spec import RequestError, TaskInfo
from bench.tasks import Split, Splits
from bench.training.patches import cut_patches
from models.layers.shape import POOLS, num_data_tokens


def check_facts(info: TaskInfo, splits: Splits) -> None:
    for split, num_items in ((splits.train, info.num_train), (splits.test, info.num_test)):
        assert split.images.shape == (num_items, info.channels, info.side, info.side)
        assert split.labels.shape == (num_items,)
        assert (split.images.dtype, split.labels.dtype) == (torch.float32, torch.int64)
        assert split.images.isfinite().all()
        assert split.labels.unique().tolist() == list(range(info.num_classes))


def check_normalised_on_train(info: TaskInfo, splits: Splits) -> None:
    spread, mean = torch.std_mean(splits.train.images.double(), dim=(0, 2, 3))
    torch.testing.assert_close(mean, torch.zeros(info.channels).double(), atol=1e-3, rtol=0)
    torch.testing.assert_close(spread, torch.ones(info.channels).double(), atol=1e-3, rtol=0)


def check_splits_disjoint(splits: Splits) -> None:
    train = {image.numpy().tobytes() for image in splits.train.images}
    assert not any(image.numpy().tobytes() in train for image in splits.test.images)


def check_lengths(info: TaskInfo, splits: Splits, pool: str) -> None:
    """Every length that the facts offer cuts into that many tokens, of the size that the interface announces."""
    lengths = info.seq_lens(pool)
    assert lengths
    for seq_len in lengths:
        patch_side = info.patch_side(seq_len, pool)
        assert patch_side is not None
        patches = cut_patches(splits.test.images[:2], patch_side)
        assert patches.shape == (2, num_data_tokens(seq_len, pool), info.interface(seq_len, pool).patch_dim)


@pytest.fixture(scope="module", params=catalog.names("tasks"))
def task(request: pytest.FixtureRequest) -> tuple[TaskInfo, Splits]:
    module = catalog.load("tasks", request.param)
    assert module.INFO.name == request.param
    return module.INFO, module.load("")


def test_facts_are_those_of_the_data(task: tuple[TaskInfo, Splits]) -> None:
    check_facts(*task)


def test_images_are_normalised_on_the_training_split(task: tuple[TaskInfo, Splits]) -> None:
    check_normalised_on_train(*task)


def test_no_test_item_is_learned_from(task: tuple[TaskInfo, Splits]) -> None:
    check_splits_disjoint(task[1])


@pytest.mark.parametrize("pool", POOLS)
def test_every_length_cuts_into_its_tokens(task: tuple[TaskInfo, Splits], pool: str) -> None:
    check_lengths(*task, pool)


@pytest.mark.parametrize("pool", POOLS)
def test_a_length_that_does_not_fit_is_refused_naming_those_that_do(task: tuple[TaskInfo, Splits], pool: str) -> None:
    info = task[0]
    with pytest.raises(RequestError, match=", ".join(str(n) for n in info.seq_lens(pool))):
        info.interface(info.seq_lens(pool)[-1] + 1, pool)


GOOD_INFO = TaskInfo(name="made", summary="", source="", num_classes=2, channels=1, side=4, num_train=40, num_test=20)


def made_splits() -> Splits:
    images = torch.randn(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    images = (images - images[:40].mean()) / images[:40].std()
    labels = torch.arange(60) % 2
    return Splits(train=Split(images=images[:40], labels=labels[:40]), test=Split(images=images[40:], labels=labels[40:]))


def check_all(info: TaskInfo, splits: Splits) -> None:
    check_facts(info, splits)
    check_normalised_on_train(info, splits)
    check_splits_disjoint(splits)
    for pool in POOLS:
        check_lengths(info, splits, pool)


def broken(fault: str) -> tuple[TaskInfo, Splits]:
    splits = made_splits()
    train, test = splits.train, splits.test
    if fault == "label out of range":
        return GOOD_INFO, Splits(train=train, test=Split(images=test.images, labels=test.labels + 1))
    if fault == "test item learned from":
        return GOOD_INFO, Splits(train=train, test=Split(images=train.images[:20], labels=train.labels[:20]))
    if fault == "not normalised":
        return GOOD_INFO, Splits(train=Split(images=train.images + 1, labels=train.labels), test=test)
    return dataclasses.replace(GOOD_INFO, **{fault: getattr(GOOD_INFO, fault) + 1}), splits


def test_the_contract_accepts_a_sound_task() -> None:
    check_all(GOOD_INFO, made_splits())


@pytest.mark.parametrize(
    "fault",
    ["label out of range", "test item learned from", "not normalised", "num_train", "num_test", "side", "channels", "num_classes"],
)
def test_the_contract_catches_a_broken_task(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_all(*broken(fault))

"""What a model reads of what is stored: normalised patches, ids, the mask of valid tokens; changed only while learning."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from bench.tasks import Split, Splits
from bench.training.augment import Augmentation
from bench.training.data import digest
from bench.training.reading import Reader

MEAN, SPREAD = torch.tensor([0.2, 0.4]), torch.tensor([0.5, 0.25])
READER = Reader(patch_side=2, mean=MEAN, spread=SPREAD)


def made_images(num_items: int = 5) -> Split:
    images = torch.randint(0, 256, (num_items, 2, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Split(inputs=images, targets=torch.arange(num_items) % 2)


def test_uint8_images_are_brought_to_0_to_1_and_normalised_by_channel() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(1, 2, 1, 1).expand(1, 2, 2, 2)
    batch = READER.read(Split(inputs=images, targets=torch.tensor([1])))
    torch.testing.assert_close(batch.data, torch.tensor([[[-0.4] * 4 + [2.4] * 4]]))
    assert batch.valid is None


def test_float_images_are_normalised_without_scaling_and_not_at_all_without_a_mean() -> None:
    images = torch.tensor([0.2, 0.65]).view(1, 2, 1, 1).expand(1, 2, 2, 2)
    examples = Split(inputs=images, targets=torch.tensor([1]))
    torch.testing.assert_close(READER.read(examples).data, torch.tensor([[[0.0] * 4 + [1.0] * 4]]))
    assert torch.equal(Reader(patch_side=2).read(examples).data, torch.tensor([[[0.2] * 4 + [0.65] * 4]]))


def test_patches_prepared_once_are_those_read_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = made_images()
    prepared = READER.prepare(examples)
    assert prepared.inputs.shape == (5, 4, 8)
    monkeypatch.setattr("bench.training.reading.CHUNK_ITEMS", 2)
    assert torch.equal(READER.prepare(examples).inputs, prepared.inputs)
    chosen = torch.tensor([3, 1])
    once, each = READER.read(prepared.select(chosen)), READER.read(examples.select(chosen))
    assert torch.equal(once.data, each.data)
    assert torch.equal(once.targets, each.targets)
    assert torch.equal(READER.learn(prepared.select(chosen)).data, each.data)


def test_images_too_large_or_to_be_augmented_stay_images(monkeypatch: pytest.MonkeyPatch) -> None:
    augmented = dataclasses.replace(READER, augmentation=Augmentation(("flip",), num_classes=2))
    examples = made_images()
    assert augmented.prepare(examples) is examples
    monkeypatch.setattr("bench.training.reading.WHOLE_IMAGE_BYTES", examples.inputs.nelement() * 4 - 1)
    assert READER.prepare(examples) is examples


def test_ids_become_indices_and_the_mask_is_true_up_to_each_length() -> None:
    ids = torch.tensor([[5, 6, 7], [8, 0, 0]], dtype=torch.uint8)
    batch = Reader().read(Split(inputs=ids, targets=torch.tensor([0, 1]), lengths=torch.tensor([3, 1])))
    assert batch.data.dtype == torch.int64
    assert batch.data.tolist() == ids.tolist()
    assert batch.valid is not None
    assert batch.valid.tolist() == [[True, True, True], [True, False, False]]


def test_augmentation_only_changes_what_is_learned_from() -> None:
    examples = made_images(32)
    augmented = dataclasses.replace(READER, augmentation=Augmentation(("crop", "flip", "mixup"), num_classes=2))
    torch.manual_seed(0)
    assert torch.equal(augmented.read(examples).data, READER.read(examples).data)
    first, second = augmented.learn(examples), augmented.learn(examples)
    assert not torch.equal(first.data, READER.read(examples).data)
    assert not torch.equal(first.data, second.data)
    assert first.targets.shape == (32, 2)


def test_the_digest_tells_data_apart_by_every_bit_and_their_order() -> None:
    images = torch.arange(12, dtype=torch.uint8).reshape(3, 1, 2, 2)
    targets = torch.tensor([0, 1, 0])
    plain = Split(inputs=images, targets=targets)
    splits = Splits(train=plain, test=plain)
    changes: list[dict[str, Tensor]] = [
        {"inputs": images.flip(0)},
        {"inputs": images.reshape(3, 1, 1, 4)},
        {"targets": targets.flip(0) + 1},
        {"lengths": torch.ones(3, dtype=torch.int64)},
    ]
    others = [Splits(train=plain, test=plain, validation=plain)]
    others += [Splits(train=plain, test=dataclasses.replace(plain, **change)) for change in changes]
    assert digest(splits) == digest(Splits(train=plain, test=plain))
    assert len({digest(splits), *map(digest, others)}) == 1 + len(others)

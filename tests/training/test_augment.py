"""Augmentation: what each change does to a batch, drawn per image or per chunk, and the same again for the same seed."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.spec import AUGMENTATIONS
from bench.training.augment import NUM_CHUNKS, PADDING, Augmentation, crop, flip

NUM_CLASSES = 5
BATCH = 32
over_names = pytest.mark.parametrize("names", [*((name,) for name in AUGMENTATIONS), AUGMENTATIONS], ids="+".join)


def made_images(batch: int = BATCH, channels: int = 3, side: int = 12) -> Tensor:
    """No zeros, so that what is padded or erased is seen."""
    return torch.randint(1, 256, (batch, channels, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def made_labels(batch: int = BATCH) -> Tensor:
    return torch.arange(batch) % NUM_CLASSES


def change(names: tuple[str, ...], images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Raw images after `before`; then, brought to 0..1, images and labels after `after`."""
    augmentation = Augmentation(names, num_classes=NUM_CLASSES)
    raw = augmentation.before(images)
    return raw, *augmentation.after(raw.float() / 255, labels)


@over_names
def test_the_state_of_the_global_generator_decides_everything(names: tuple[str, ...]) -> None:
    images, labels = made_images(), made_labels()
    torch.manual_seed(3)
    change(names, images, labels)
    state = torch.get_rng_state()
    first, second = change(names, images, labels), change(names, images, labels)
    assert not torch.equal(first[1], second[1])
    torch.set_rng_state(state)
    assert all(torch.equal(a, b) for a, b in zip(change(names, images, labels), first, strict=True))


@over_names
def test_shape_and_type_stay_and_the_input_is_not_changed(names: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    for channels, batch in itertools.product((1, 3), (1, 3, BATCH)):
        images, labels = made_images(batch, channels), made_labels(batch)
        kept = images.clone()
        raw, normalised, targets = change(names, images, labels)
        assert (raw.shape, raw.dtype) == (images.shape, torch.uint8)
        assert (normalised.shape, normalised.dtype) == (images.shape, torch.float32)
        assert torch.equal(images, kept)
        mixes = {"mixup", "cutmix"} & {*names}
        assert targets.shape == ((batch, NUM_CLASSES) if mixes else (batch,))
        assert targets.dtype == (torch.float32 if mixes else torch.int64)


def test_crop_moves_each_image_on_its_own_and_pads_with_zero() -> None:
    torch.manual_seed(0)
    images = made_images()
    padded = F.pad(images, (PADDING,) * 4)
    windows = padded.unfold(2, 12, 1).unfold(3, 12, 1)  # every cut that an image can have
    is_cut = (windows == crop(images)[:, :, None, None]).all(dim=1).flatten(3).all(dim=3).flatten(1)
    assert is_cut.any(dim=1).all()
    assert len(is_cut.int().argmax(dim=1).unique()) > BATCH // 2
    images = made_images(1, 1, 5).expand(2000, 1, 5, 5)
    assert len(crop(images).unique(dim=0)) == (2 * PADDING + 1) ** 2  # every offset is reached


def test_flip_mirrors_about_half_of_the_images() -> None:
    torch.manual_seed(0)
    images = made_images(400)
    flipped = flip(images)
    is_mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    is_kept = (flipped == images).flatten(1).all(1)
    assert torch.equal(is_mirrored, ~is_kept)
    assert 150 < is_mirrored.sum().item() < 250


def test_randaugment_draws_for_each_chunk() -> None:
    torch.manual_seed(0)
    images = made_images(1).expand(BATCH, -1, -1, -1)
    changed = Augmentation(("randaugment",), num_classes=NUM_CLASSES).before(images)
    per_chunk = [chunk.unique(dim=0) for chunk in changed.chunk(NUM_CHUNKS)]
    assert [len(kinds) for kinds in per_chunk] == [1] * NUM_CHUNKS
    assert len(changed.unique(dim=0)) > NUM_CHUNKS // 2


def test_a_stronger_magnitude_changes_images_more() -> None:
    def distance(magnitude: int) -> float:
        torch.manual_seed(0)
        images = made_images(256)
        changed = Augmentation(("randaugment",), num_classes=NUM_CLASSES, magnitude=magnitude).before(images)
        return float((changed.float() - images.float()).abs().mean())

    assert 0 < distance(1) < distance(9) < distance(30)


def test_erasing_blanks_a_box_in_some_chunks() -> None:
    torch.manual_seed(0)
    images, labels = made_images() / 255, made_labels()
    erased, kept = Augmentation(("erasing",), num_classes=NUM_CLASSES).after(images, labels)
    blank = erased == 0
    assert kept is labels
    assert torch.equal(erased[~blank], images[~blank])
    has_box = blank.flatten(1).any(1)
    assert 0 < has_box.sum().item() < BATCH
    assert torch.equal(has_box, has_box.view(NUM_CHUNKS, -1)[:, :1].expand(-1, BATCH // NUM_CHUNKS).flatten())


@pytest.mark.parametrize(("names", "blended"), [(("mixup",), {True}), (("cutmix",), {False}), (("mixup", "cutmix"), {True, False})])
def test_labels_are_the_shares_that_the_images_hold_and_only_mixup_blends(names: tuple[str, ...], blended: set[bool]) -> None:
    """Of images that say their own label at every pixel. With both, one is drawn per batch."""
    labels, found = made_labels(), set[bool]()
    images = F.one_hot(labels, NUM_CLASSES).float()[:, :, None, None].expand(-1, -1, 10, 10)
    for seed in range(20):
        torch.manual_seed(seed)
        mixed, shares = Augmentation(names, num_classes=NUM_CLASSES).after(images, labels)
        torch.testing.assert_close(shares, mixed.mean(dim=(2, 3)))
        torch.testing.assert_close(shares.sum(1), torch.ones(BATCH))
        found.add(bool(((mixed > 0) & (mixed < 1)).any()))
    assert found == blended


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"randaugment needs uint8 images, found torch\.float32"):
        Augmentation(("randaugment",), num_classes=NUM_CLASSES).before(made_images().float())

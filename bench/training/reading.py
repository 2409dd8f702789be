"""Convert stored items to model input.

Images are augmented, normalised and cut into patches. Token ids are converted to int64, with masks of valid tokens. Splits are whole tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bench.tasks import Split
from bench.training.augment import Augmentation
from models.layers.patches import cut_patches

WHOLE_IMAGE_BYTES = 4 << 30
"""Largest size of float32 images to cut before training."""
CHUNK_ITEMS = 4096
PIXEL_SCALE = 255.0


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch for a model.

    `data`, `valid`: input of the model and mask of valid tokens.
    `targets`: as the objective takes them; soft, `(batch, classes)`, after mixing images.
    """

    data: Tensor
    valid: Tensor | None
    targets: Tensor


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads batches of stored items.

    `patch_side`: pixels per side of a patch; None if items are not images.
    `mean`, `spread`: mean and standard deviation for normalising, `(channels,)`; None for normalised images.
    `augmentation`: changes to training images; None without any.
    """

    patch_side: int | None = None
    mean: Tensor | None = None
    spread: Tensor | None = None
    augmentation: Augmentation | None = None

    def learn(self, examples: Split) -> Batch:
        """Return a training batch, with the augmentation, if any."""
        if self.patch_side is None or self.augmentation is None or examples.inputs.ndim != 4:
            return self.read(examples)
        images = self._normalise(self.augmentation.before(examples.inputs))
        images, targets = self.augmentation.after(images, examples.targets)
        return Batch(data=_patches(images, self.patch_side), valid=None, targets=targets)

    def read(self, examples: Split) -> Batch:
        """Return a batch without augmentation; inputs that are already patches pass unchanged."""
        inputs = examples.inputs
        if self.patch_side is not None and inputs.ndim == 4:
            return Batch(data=_patches(self._normalise(inputs), self.patch_side), valid=None, targets=examples.targets)
        data = inputs if inputs.is_floating_point() else inputs.long()
        return Batch(data=data, valid=_valid_tokens(examples), targets=examples.targets)

    def prepare(self, examples: Split) -> Split:
        """Cut small images into patches once, unless augmentation changes them."""
        is_small = examples.inputs.nelement() * 4 <= WHOLE_IMAGE_BYTES
        if self.patch_side is None or self.augmentation is not None or not is_small:
            return examples
        chunks = zip(examples.inputs.split(CHUNK_ITEMS), examples.targets.split(CHUNK_ITEMS), strict=True)
        parts = [self.read(Split(inputs=inputs, targets=targets)).data for inputs, targets in chunks]
        return Split(inputs=torch.cat(parts), targets=examples.targets)

    def to(self, device: str) -> Reader:
        mean, spread = (None if tensor is None else tensor.to(device) for tensor in (self.mean, self.spread))
        return replace(self, mean=mean, spread=spread)

    def _normalise(self, images: Tensor) -> Tensor:
        """Normalise images by the training split's mean and spread.

        Returns float32 `(batch, channels, height, width)`.
        """
        scaled = images if images.is_floating_point() else images.float().div_(PIXEL_SCALE)
        if self.mean is None or self.spread is None:
            return scaled
        return (scaled - self.mean[:, None, None]) / self.spread[:, None, None]


def _patches(images: Tensor, side: int) -> Tensor:
    """Cut images into patches that are contiguous in memory."""
    return cut_patches(images, side).contiguous()  # with one pixel per patch, the cut is a strided view


def _valid_tokens(examples: Split) -> Tensor | None:
    """Mark the first `lengths` tokens of each item, `(batch, tokens)` bool."""
    if examples.lengths is None:
        return None
    positions = torch.arange(examples.inputs.shape[1], device=examples.lengths.device)
    return positions < examples.lengths[:, None]


def split_validation(examples: Split, fraction: float, generator: torch.Generator) -> tuple[Split, Split]:
    """Split items into (training, validation), both in stored order.

    Validation items are `fraction` of the items, drawn at random, at least one and never all. If items have one class each, the draw is per class.
    Raises ValueError for a fraction outside (0, 1), or if no class has two items.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"validation_fraction must be between 0 and 1, not {fraction}: validation items select the best epoch")
    strata = examples.targets.cpu() if examples.targets.ndim == 1 else torch.zeros(len(examples), dtype=torch.int64)
    shuffled = torch.randperm(len(strata), generator=generator)
    held_out = torch.zeros(len(strata), dtype=torch.bool)
    for stratum in strata.unique():
        members = shuffled[strata[shuffled] == stratum]
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        held_out[members[:count]] = True
    if not held_out.any():
        raise ValueError(f"{len(strata)} training items are too few for validation: some class needs at least two items")
    return examples.select(~held_out), examples.select(held_out)


def image_size(inputs: Tensor, patch_side: int) -> tuple[int, int]:
    """Return (channels, side) of square images.

    Images are stored whole, `(items, channels, side, side)`, or cut into patches of `patch_side` pixels.
    """
    if inputs.ndim == 4:
        return inputs.shape[1], inputs.shape[-1]
    return inputs.shape[2] // patch_side**2, math.isqrt(inputs.shape[1]) * patch_side

"""From stored items to what the model reads: augmented, normalised, cut into patches; ids and the mask of valid tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bench.tasks import Splits
from bench.training.augment import RANDAUGMENT_MAGNITUDE, Augmentation
from bench.training.examples import Examples
from bench.training.patches import cut_patches

WHOLE_IMAGE_BYTES = 4 << 30
"""Images are brought into patches once, before training, where nothing changes them and the result is no larger than this."""
CHUNK_ITEMS = 4096
PIXEL_SCALE = 255.0


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`data` and `valid` as the model takes them; `targets` as the objective takes them (soft, `(batch, classes)`, after a mixture of images)."""

    data: Tensor
    valid: Tensor | None
    targets: Tensor


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads batches of stored items. `patch_side`: pixels, for images; `mean`, `spread`: `(channels,)`, or None for normalised images."""

    patch_side: int | None = None
    mean: Tensor | None = None
    spread: Tensor | None = None
    augmentation: Augmentation | None = None

    def learn(self, examples: Examples) -> Batch:
        """A batch to learn from: augmented, where a recipe says so."""
        if self.patch_side is None or self.augmentation is None or examples.inputs.ndim != 4:
            return self.read(examples)
        images = self._normalise(self.augmentation.before(examples.inputs))
        images, targets = self.augmentation.after(images, examples.targets)
        return Batch(data=cut_patches(images, self.patch_side), valid=None, targets=targets)

    def read(self, examples: Examples) -> Batch:
        """A batch as it is stored. Inputs that are patches already pass."""
        inputs = examples.inputs
        if self.patch_side is not None and inputs.ndim == 4:
            return Batch(data=cut_patches(self._normalise(inputs), self.patch_side), valid=None, targets=examples.targets)
        data = inputs if inputs.is_floating_point() else inputs.long()
        return Batch(data=data, valid=_valid_tokens(examples), targets=examples.targets)

    def prepare(self, examples: Examples) -> Examples:
        """The same items, cut into patches once and for all where no augmentation will change them."""
        is_small = examples.inputs.nelement() * 4 <= WHOLE_IMAGE_BYTES
        if self.patch_side is None or self.augmentation is not None or not is_small:
            return examples
        parts = [self.read(_slice(examples, start)).data for start in range(0, len(examples), CHUNK_ITEMS)]
        return Examples(inputs=torch.cat(parts), targets=examples.targets)

    def to(self, device: str) -> Reader:
        moved = [None if tensor is None else tensor.to(device) for tensor in (self.mean, self.spread)]
        return Reader(patch_side=self.patch_side, mean=moved[0], spread=moved[1], augmentation=self.augmentation)

    def _normalise(self, images: Tensor) -> Tensor:
        """`(batch, channels, side, side)` -> float32, mean 0 and spread 1 over the training split."""
        scaled = images if images.is_floating_point() else images.float().div_(PIXEL_SCALE)
        if self.mean is None or self.spread is None:
            return scaled
        return (scaled - self.mean[:, None, None]) / self.spread[:, None, None]


def build_reader(
    splits: Splits, *, patch_side: int | None, augment: tuple[str, ...], num_classes: int, magnitude: int = RANDAUGMENT_MAGNITUDE
) -> Reader:
    """Raises ValueError for an augmentation of what are no images."""
    if augment and patch_side is None:
        raise ValueError(f"augment={'+'.join(augment)} is for images, and this task has none")
    augmentation = Augmentation(augment, num_classes=num_classes, magnitude=magnitude) if augment else None
    return Reader(patch_side=patch_side, mean=splits.mean, spread=splits.spread, augmentation=augmentation)


def _slice(examples: Examples, start: int) -> Examples:
    return Examples(inputs=examples.inputs[start : start + CHUNK_ITEMS], targets=examples.targets[start : start + CHUNK_ITEMS])


def _valid_tokens(examples: Examples) -> Tensor | None:
    """`(batch, tokens)` bool: the first `lengths` of each item."""
    if examples.lengths is None:
        return None
    positions = torch.arange(examples.inputs.shape[1], device=examples.lengths.device)
    return positions < examples.lengths[:, None]

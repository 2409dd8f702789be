"""Random augmentation of a whole batch of training images.

crop         pad by 4 zero pixels (black for uint8 images), then crop back at a random offset per image
flip         mirror each image left to right with probability 0.5
randaugment  two random operations at a magnitude of 0 to 30, by default 9 (Cubuk et al. 2019, arXiv:1909.13719), drawn per chunk of the batch
erasing      blank a random box (Zhong et al. 2017, arXiv:1708.04896), drawn per chunk of the batch
mixup        blend each image and its label with the neighbour's (Zhang et al. 2017, arXiv:1710.09412), alpha 0.8
cutmix       replace a box of each image by the neighbour's, and mix labels in proportion (Yun et al. 2019, arXiv:1905.04899), alpha 1.0

Augmentation runs on the device of the images. Every random number comes from torch's global CPU generator, whatever the device: training resumed
from a checkpoint continues exactly, and CPU and GPU see the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4
NUM_CHUNKS = 8
"""Chunks per batch for RandAugment and erasing.

Each gets its own draw, because torchvision draws once per call.
"""
RANDAUGMENT_OPERATIONS, RANDAUGMENT_MAGNITUDE = 2, 9
MIXUP_ALPHA, CUTMIX_ALPHA = 0.8, 1.0


@dataclass(frozen=True)
class Augmentation:
    """Augmentations before and after normalising; without names, images stay unchanged.

    `names`: from `bench.spec.AUGMENTATIONS`.
    `num_classes`: width of mixed labels.
    `magnitude`: strength of RandAugment, 0 to 30.
    """

    names: tuple[str, ...]
    num_classes: int = field(kw_only=True)
    magnitude: int = field(default=RANDAUGMENT_MAGNITUDE, kw_only=True)

    def before(self, images: Tensor) -> Tensor:
        """Augment raw images; keep their shape and type.

        `images`: `(batch, channels, height, width)`, uint8 or float32.

        Raises ValueError if RandAugment is requested for images that are not uint8.
        """
        if "crop" in self.names:
            images = crop(images)
        if "flip" in self.names:
            images = flip(images)
        if "randaugment" in self.names:
            if images.dtype != torch.uint8:
                raise ValueError(f"randaugment needs uint8 images, found {images.dtype}: its operations are defined on 0..255")
            from torchvision.transforms import v2  # takes a second to import

            images = per_chunk(v2.RandAugment(num_ops=RANDAUGMENT_OPERATIONS, magnitude=self.magnitude), images)
        return images

    def after(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Augment normalised float images `(batch, channels, height, width)` and their labels.

        `labels`: `(batch,)` int64. With mixup or cutmix they become shares, `(batch, num_classes)` float32, with rows that sum to 1. With both, one
        of the two is drawn per batch.
        """
        if not {"erasing", "mixup", "cutmix"} & {*self.names}:
            return images, labels
        from torchvision.transforms import v2

        if "erasing" in self.names:
            images = per_chunk(v2.RandomErasing(), images)
        kinds = {"mixup": (v2.MixUp, MIXUP_ALPHA), "cutmix": (v2.CutMix, CUTMIX_ALPHA)}
        chosen = [kind(alpha=alpha, num_classes=self.num_classes) for name, (kind, alpha) in kinds.items() if name in self.names]
        if chosen:
            images, labels = (chosen[0] if len(chosen) == 1 else v2.RandomChoice(chosen))(images, labels)
        return images, labels


def crop(images: Tensor) -> Tensor:
    """Pad each image by `PADDING` zeros; crop at a random offset."""
    height, width = images.shape[2:]
    tops, lefts = torch.randint(2 * PADDING + 1, (2, len(images))).to(images.device, non_blocking=True)
    # every crop is a view, (batch, channels, 9, 9, height, width): one indexing operation copies the chosen ones
    cuts = F.pad(images, (PADDING,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    return cuts[torch.arange(len(images), device=images.device), :, tops, lefts]


def flip(images: Tensor) -> Tensor:
    """Mirror each image left to right with probability 0.5."""
    is_flipped = torch.randint(2, (len(images), 1, 1, 1), dtype=torch.bool).to(images.device, non_blocking=True)
    return torch.where(is_flipped, images.flip(-1), images)


def per_chunk(change: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Apply a change to each of `NUM_CHUNKS` chunks of the batch."""
    return torch.cat([change(chunk) for chunk in images.chunk(NUM_CHUNKS)])

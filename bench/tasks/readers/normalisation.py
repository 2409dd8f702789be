"""Mean and standard deviation of each channel of a training split, in one pass that never holds a float copy of the whole set.

Moments of chunks are merged by the pairwise update of Chan, Golub and LeVeque ("Algorithms for computing the sample variance", The American
Statistician 37, 1983, equations 2.1), which is Welford's (Technometrics 4, 1962) where a chunk is one item: no cancellation of large sums.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.tasks.readers import cache

CHUNK_VALUES = 2**22
"""Values of one chunk: 32 MiB as float64, whatever the size of an image."""
WHITE = 255.0


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Of `count` values per channel: their mean and the sum of their squared distances from it, both `(channels,)` float64."""

    count: int
    mean: Tensor
    squares: Tensor


def channel_statistics(images: Tensor, *, chunk_values: int = CHUNK_VALUES) -> tuple[Tensor, Tensor]:
    """Mean and sample standard deviation, `(channels,)` float64, of uint8 images `(items, channels, side, side)` taken as 0..1.

    A channel that is the same everywhere has spread 1, so that dividing by it changes nothing. Raises ValueError for other images, or none.
    """
    if images.dtype != torch.uint8 or images.dim() != 4 or not images.numel():
        raise ValueError(f"statistics are of uint8 images (items, channels, side, side), found {images.dtype} {tuple(images.shape)}")
    chunks = images.split(max(1, chunk_values // images[0].numel()))
    total = moments_of(chunks[0])
    for chunk in chunks[1:]:
        total = merge(total, moments_of(chunk))
    spread = (total.squares / max(1, total.count - 1)).sqrt()
    return total.mean, torch.where(spread > 0, spread, 1.0)


def moments_of(images: Tensor) -> Moments:
    """The moments of one chunk of uint8 images, taken as 0..1."""
    values = images.to(torch.float64).div_(WHITE)
    mean = values.mean(dim=(0, 2, 3))
    squares = values.sub_(mean[:, None, None]).square_().sum(dim=(0, 2, 3))
    return Moments(count=values.numel() // len(mean), mean=mean, squares=squares)


def merge(first: Moments, second: Moments) -> Moments:
    """The moments of both sets together."""
    count = first.count + second.count
    step = second.mean - first.mean
    return Moments(
        count=count,
        mean=first.mean + step * (second.count / count),
        squares=first.squares + second.squares + step.square() * (first.count * second.count / count),
    )


def remembered_statistics(task: str, images: Tensor) -> tuple[Tensor, Tensor]:
    """`channel_statistics` as float32, kept in the user's cache by the task's text and the sha256 of shape and all bytes of the images.

    Every byte is hashed, an eighth of the work of the statistics: no sample of a set shows that the rest is unchanged.
    """

    def compute() -> dict[str, list[float]]:
        mean, spread = channel_statistics(images)
        return {"mean": mean.tolist(), "spread": spread.tolist()}

    value = cache.remembered("normalisation", {"task": task, "images": fingerprint(images)}, compute)
    return torch.tensor(value["mean"], dtype=torch.float32), torch.tensor(value["spread"], dtype=torch.float32)


def fingerprint(images: Tensor) -> str:
    """sha256 of the shape and the bytes of uint8 images on the CPU."""
    digest = hashlib.sha256(str(tuple(images.shape)).encode())
    digest.update(images.contiguous().numpy().data)
    return digest.hexdigest()

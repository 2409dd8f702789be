"""Mean and standard deviation per channel of training images, in one pass.

The pass never holds a float copy of the whole set. It merges moments of chunks by the pairwise update of Chan, Golub and LeVeque ("Algorithms for
computing the sample variance", The American Statistician 37, 1983, equations 2.1), which avoids cancellation of large sums. For chunks of one item it
equals Welford's update (Technometrics 4, 1962).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.tasks.readers import cache

CHUNK_VALUES = 2**22
"""Values per chunk: 32 MiB as float64, for any image size."""
WHITE = 255.0


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Moments of `count` values per channel.

    `mean`: `(channels,)` float64.
    `squares`: sum of squared distances from the mean, `(channels,)` float64.
    """

    count: int
    mean: Tensor
    squares: Tensor


def channel_statistics(images: Tensor, *, chunk_values: int = CHUNK_VALUES) -> tuple[Tensor, Tensor]:
    """Return mean and sample standard deviation of uint8 images per channel.

    Both are `(channels,)` float64, of images scaled to 0..1.

    `images`: `(items, channels, side, side)`. A constant channel gets standard deviation 1, so that dividing by it changes nothing. Raises ValueError
    for images of another type or shape, or without values.
    """
    if images.dtype != torch.uint8 or images.dim() != 4 or not images.numel():
        raise ValueError(f"statistics need uint8 images (items, channels, side, side), found {images.dtype} {tuple(images.shape)}")
    chunks = images.split(max(1, chunk_values // images[0].numel()))
    total = moments_of(chunks[0])
    for chunk in chunks[1:]:
        total = merge(total, moments_of(chunk))
    spread = (total.squares / max(1, total.count - 1)).sqrt()
    return total.mean, torch.where(spread > 0, spread, 1.0)


def moments_of(images: Tensor) -> Moments:
    """Return the moments of one chunk of uint8 images scaled to 0..1."""
    values = images.to(torch.float64).div_(WHITE)
    mean = values.mean(dim=(0, 2, 3))
    squares = values.sub_(mean[:, None, None]).square_().sum(dim=(0, 2, 3))
    return Moments(count=values.numel() // len(mean), mean=mean, squares=squares)


def merge(first: Moments, second: Moments) -> Moments:
    """Return the moments of both sets together."""
    count = first.count + second.count
    step = second.mean - first.mean
    return Moments(
        count=count,
        mean=first.mean + step * (second.count / count),
        squares=first.squares + second.squares + step.square() * (first.count * second.count / count),
    )


def cached_statistics(task: str, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return `channel_statistics` as float32, from the cache if possible.

    The cache key is the task's text and a sha256 of the images' shape and all bytes. Hashing takes an eighth of the time of the statistics; a hash of
    a sample could miss changes elsewhere.
    """

    def compute() -> dict[str, list[float]]:
        mean, spread = channel_statistics(images)
        return {"mean": mean.tolist(), "spread": spread.tolist()}

    value = cache.cached("normalisation", {"task": task, "images": fingerprint(images)}, compute)
    return torch.tensor(value["mean"], dtype=torch.float32), torch.tensor(value["spread"], dtype=torch.float32)


def fingerprint(images: Tensor) -> str:
    """Return the sha256 of the shape and bytes of uint8 CPU images."""
    digest = hashlib.sha256(str(tuple(images.shape)).encode())
    digest.update(images.contiguous().numpy().data)
    return digest.hexdigest()

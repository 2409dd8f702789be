"""Image data sets that torchvision reads: required files, errors, splits.

Imports no torch.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import MissingDataError, TaskChoice, TaskInfo
from models.layers.options import Option

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

READ_ERRORS = (OSError, EOFError, HTTPException, RuntimeError, ValueError, TypeError, LookupError, AssertionError, zlib.error)
"""Errors of torchvision and its libraries for bad files or downloads."""

ITEMS_OPTION = Option("items", 0)
"""Number of training images, for data sets that allow subsets; 0: all."""
SUBSET_SEED = 0
"""Makes subsets reproducible; every larger subset contains the smaller ones."""
WHITE = 255
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Copied from torchvision.datasets.folder, because importing that would import torch."""
MEND = "delete {} and copy what is intact there, or delete it and add `download` where there is a network"
TORCHVISION_ADVICE = "You can use download=True to download it"


def require_files(task: str, place: Place, folder: str, names: Iterable[str], kind: str, *, endings: Sequence[str] = ("",)) -> None:
    """Let torchvision's class `kind` download missing files if `place` allows it.

    A file may have any of `endings`. Raises RequestError, naming the expected folder, if a file is missing and cannot be downloaded.
    """
    expected = place.folder(task) / folder
    absent = [name for name in names if not any((expected / f"{name}{ending}").is_file() for ending in endings)]
    if absent and not place.download:
        raise MissingDataError(
            f"task {task} expects its data in {expected}; not found there: {', '.join(absent)}",
            f"put the data into {expected}, name another `data_root`, or add `download`",
        )
    if absent:
        from torchvision import datasets

        with reading_errors(task, place, folder, attempted="downloaded"):
            getattr(datasets, kind)(place.folder(task), download=True)


def require_intact(task: str, sums: Mapping[Path, str]) -> None:
    """Raise RequestError, naming the file, unless the files have their published md5 sums."""
    for path, published in sums.items():
        stat = path.stat()
        if _md5(path, stat.st_size, stat.st_mtime_ns) != published:
            raise RequestError(f"task {task}: {path} does not match its published md5 sum", MEND.format(path))


@functools.cache
def _md5(path: Path, _size: int, _changed: int) -> str:
    """`_size` and `_changed` tell a replaced file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, functools.partial(hashlib.md5, usedforsecurity=False)).hexdigest()


@contextmanager
def reading_errors(task: str, place: Place, folder: str, *, attempted: str = "read") -> Iterator[None]:
    """Turn errors from damaged files or failed downloads into a one-line RequestError."""
    expected = place.folder(task) / folder
    hint = MEND.format(expected) if attempted == "read" else f"try again where there is a network, or copy the data into {expected}"
    try:
        yield
    except RequestError:
        raise
    except READ_ERRORS as error:
        reason = " ".join(str(error).split()).removesuffix(TORCHVISION_ADVICE).rstrip() or type(error).__name__
        raise RequestError(
            f"task {task}: the data in {expected} cannot be {attempted}: {reason}",
            hint,
        ) from error


def splits_of(train: Split, test: Split, validation: Split | None = None, classes: Sequence[str] = ()) -> Splits:
    """Join splits, the statistics of the training images and the names of the classes."""
    mean, spread = channel_statistics(train.inputs)
    return Splits(train=train, test=test, validation=validation, mean=mean, spread=spread, classes=tuple(classes))


def channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and sample standard deviation of uint8 images per channel, of images scaled to 0..1.

    Both are `(channels,)` float32, and exact before they are rounded: they follow from how often each of the 256 values occurs. A constant channel
    gets standard deviation 1, so that dividing by it changes nothing.

    `images`: `(items, channels, height, width)`.
    """
    import torch

    means, spreads, levels = [], [], torch.arange(256)
    for channel in images.unbind(1):
        counts = torch.bincount(channel.flatten(), minlength=256)
        size, total, squares = channel.numel(), int((counts * levels).sum()), int((counts * levels**2).sum())
        means.append(total / size / WHITE)
        spreads.append(((size * squares - total**2) / (size * max(1, size - 1))) ** 0.5 / WHITE or 1.0)
    return torch.tensor(means), torch.tensor(spreads)


def load_cifar(choice: TaskChoice, whole: TaskInfo, kind: str, place: Place, folder: str) -> Splits:
    """Load torchvision's `CIFAR10` or `CIFAR100` in stored order, with the requested number of training images.

    torchvision checks the files against the published md5 sums.
    """
    import torch
    from torchvision import datasets

    def split_of(stored: Any) -> Split:
        images: Tensor = torch.from_numpy(stored.data).permute(0, 3, 1, 2).contiguous()
        return Split(inputs=images, targets=torch.tensor(stored.targets, dtype=torch.int64))

    with reading_errors(whole.name, place, folder):
        stored = [getattr(datasets, kind)(place.folder(whole.name), train=is_train) for is_train in (True, False)]
        train, test = map(split_of, stored)
    return subset_splits(choice, whole, train, test, stored[0].classes)


def read_images(paths: Sequence[Path], *, height: int, width: int, channels: int = 3, of: str = "") -> Tensor:
    """Read images, `(items, channels, height, width)` uint8.

    Each is turned upright (EXIF), converted to RGB or grey of 8 bits, and resized until it just covers height and width; the middle is kept.

    `of`: first words of errors. Raises RequestError, naming the file, for an unreadable image.
    """
    import torch
    from torchvision.transforms.v2 import functional

    images = torch.empty(len(paths), channels, height, width, dtype=torch.uint8)
    for item, path in enumerate(paths):
        image = read_image(path, of).convert("L" if channels == 1 else "RGB")
        is_wide = image.width * height >= image.height * width
        covering = [height, image.width * height // image.height] if is_wide else [image.height * width // image.width, width]
        images[item] = functional.pil_to_tensor(functional.center_crop(functional.resize(image, covering), [height, width]))
    return images


def read_image(path: Path, of: str = "") -> Image:
    """Read an image as RGB of 8 bits, the way a viewer shows it.

    `of`: first words of errors. Raises RequestError for a missing, damaged or huge file, and for floats and 32-bit numbers: no file says which value
    is white.
    """
    import numpy as np
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as stored:
            image: Image.Image = ImageOps.exif_transpose(stored)
    except (*READ_ERRORS, SyntaxError, Image.DecompressionBombError) as error:  # Pillow raises SyntaxError for a damaged PNG
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        hints: dict[type[BaseException], str] = {FileNotFoundError: "name a file that is there", IsADirectoryError: "name the images in it"}
        hint = hints.get(type(error), f"remove it, or replace it with {'a smaller' if 'exceeds limit' in reason else 'an intact'} copy")
        if isinstance(error, UnidentifiedImageError) and not path.name.lower().endswith(EXTENSIONS):
            hint = f"name an image, a file such as {', '.join(EXTENSIONS)}"
        raise RequestError(f"{of}{path} cannot be read as an image: {reason}", hint) from error
    if image.mode in ("I", "F"):
        pixels = "floats" if image.mode == "F" else "32-bit numbers"
        raise RequestError(f"{of}the pixels of {path} are {pixels}, of unknown range", "save it with 8 or 16 bits per channel")
    if image.mode.startswith("I;16"):  # converted as it is, all above 255 would be white
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")


def subset_info(choice: TaskChoice, whole: TaskInfo, *, most: int = 0) -> TaskInfo:
    """Return the data set's facts with the requested number of training images.

    `most`: the most that classes of unlike size allow; 0 if they are equal. Raises RequestError if the number is larger, or not a multiple of the
    number of classes.
    """
    items = choice.options["items"]
    if items > whole.num_train:
        raise RequestError(f"task {whole.name} has {whole.num_train} training images, not {items}", f"write {whole.name}+items=0")
    if items % whole.num_classes:
        below = max(whole.num_classes, items - items % whole.num_classes)
        raise RequestError(
            f"option items of task {whole.name} is {items}; it must be a multiple of {whole.num_classes}, the same number for each class",
            f"write {whole.name}+items={below}",
        )
    if most and items > most:
        raise RequestError(
            f"task {whole.name} has {most} training images with the same number for each class, not {items}",
            f"write {whole.name}+items={most}, or {whole.name} for all {whole.num_train}",
        )
    return dataclasses.replace(whole, name=choice.text, num_train=items or whole.num_train)


def subset_splits(choice: TaskChoice, whole: TaskInfo, train: Split, test: Split, classes: Sequence[str]) -> Splits:
    """Join the splits of a data set, limited to the requested number of training images; test images and normalisation stay unchanged."""
    return dataclasses.replace(splits_of(train, test, classes=classes), train=chosen_items(choice, whole, train))


def chosen_items(choice: TaskChoice, whole: TaskInfo, train: Split) -> Split:
    """Return the requested number of training images, the same number of each class.

    Raises RequestError if a class has too few images.
    """
    num_items = choice.options["items"]
    if not num_items:
        return train
    chosen = balanced_subset(train.targets, num_items // whole.num_classes)
    if len(chosen) < num_items:
        raise RequestError(
            f"task {choice.text}: some class has fewer than {num_items // whole.num_classes} training images", f"write {whole.name}+items=0"
        )
    return train.select(chosen)


def balanced_subset(labels: Tensor, per_class: int) -> Tensor:
    """Return indices of `per_class` random items of each class.

    Indices are in stored order. A class with fewer items gives all of them. The draw depends on `SUBSET_SEED` alone.
    """
    import torch

    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SUBSET_SEED))
    parts = [shuffled[labels[shuffled] == label][:per_class] for label in labels.unique()]
    return torch.cat(parts).sort().values

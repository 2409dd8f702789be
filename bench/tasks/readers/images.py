"""Image sets that torchvision reads: which files must be there, how a fault is told, and the splits with their normalisation. Imports no torch."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING

from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import TaskChoice, TaskInfo
from models.layers.options import Option

if TYPE_CHECKING:
    from torch import Tensor

FAULTS = (OSError, EOFError, HTTPException, RuntimeError, ValueError, TypeError, LookupError, AssertionError, zlib.error)
"""What torchvision and the libraries under it raise for files that are absent, torn or of another kind, and for downloads that fail."""

ITEMS_OPTION = Option("items", 0)
"""Of a set of which a part may be learned from: how many training images there are (0: all)."""
SUBSET_SEED = 0
"""Subsets are the same at every call, and a smaller one lies within every larger one."""
TORCHVISION_ADVICE = "You can use download=True to download it"


def require_files(task: str, place: Place, folder: str, names: Sequence[str], *, endings: Sequence[str] = ("",)) -> None:
    """Raise RequestError, naming the folder that is expected under the data root, where a file is absent and may not be downloaded.

    A file may end in any of `endings`.
    """
    expected = place.folder(task) / folder
    absent = [name for name in names if not any((expected / f"{name}{ending}").is_file() for ending in endings)]
    if absent and not place.download:
        raise RequestError(
            f"task {task} expects its data in {expected}; not found there: {', '.join(absent)}",
            f"put the data into {expected}, name another --data-root, or add --download",
        )


@contextmanager
def faults_told(task: str, place: Place, folder: str) -> Iterator[None]:
    """Turn what a library raises for torn files or a failed download into a RequestError of one line."""
    expected = place.folder(task) / folder
    try:
        yield
    except RequestError:
        raise
    except FAULTS as error:
        done = "read or downloaded" if place.download else "read"
        reason = " ".join(str(error).split()).removesuffix(TORCHVISION_ADVICE).rstrip() or type(error).__name__
        raise RequestError(
            f"task {task}: the data in {expected} cannot be {done}: {reason}",
            f"delete {expected} and put a sound copy there, or add --download where there is a network",
        ) from error


def splits_of(task: str, train: Split, test: Split, validation: Split | None = None) -> Splits:
    """The splits of a task with the mean and spread, `(channels,)`, of its uint8 training images taken as 0..1."""
    from bench.tasks.readers.normalisation import remembered_statistics

    mean, spread = remembered_statistics(task, train.inputs)
    return Splits(train=train, test=test, validation=validation, mean=mean, spread=spread)


def load_cifar(task: str, kind: str, place: Place, folder: str) -> Splits:
    """Both splits of torchvision's `CIFAR10` or `CIFAR100`, checked against their published md5 sums, in stored order."""
    import torch
    from torchvision import datasets

    def split(*, is_train: bool) -> Split:
        stored = getattr(datasets, kind)(place.folder(task), train=is_train, download=place.download)
        images: Tensor = torch.from_numpy(stored.data).permute(0, 3, 1, 2).contiguous()
        return Split(inputs=images, targets=torch.tensor(stored.targets, dtype=torch.int64))

    with faults_told(task, place, folder):
        train, test = split(is_train=True), split(is_train=False)
    return splits_of(task, train, test)


def subset_info(choice: TaskChoice, whole: TaskInfo) -> TaskInfo:
    """The facts of the set with as many training images as asked for. Raises RequestError where they are not the same number of every class."""
    items = choice.options["items"]
    if items > whole.num_train:
        raise RequestError(f"task {whole.name} has {whole.num_train} training images, not {items}", f"write {whole.name}+items=0")
    if items % whole.num_classes:
        below = max(whole.num_classes, items - items % whole.num_classes)
        raise RequestError(
            f"option items of task {whole.name} is {items}; it must be a multiple of {whole.num_classes}, as many of each class",
            f"write {whole.name}+items={below}",
        )
    return dataclasses.replace(whole, name=choice.text, num_train=items or whole.num_train)


def subset_splits(choice: TaskChoice, whole: TaskInfo, splits: Splits) -> Splits:
    """The splits with as many training images as asked for, drawn of each class; test images and normalisation stay those of the whole set."""
    num_items = choice.options["items"]
    if not num_items:
        return splits
    chosen = balanced_subset(splits.train.targets, num_items // whole.num_classes)
    if len(chosen) < num_items:
        raise RequestError(
            f"task {choice.text}: some class has fewer than {num_items // whole.num_classes} training images", f"write {whole.name}+items=0"
        )
    train = Split(inputs=splits.train.inputs[chosen], targets=splits.train.targets[chosen])
    return dataclasses.replace(splits, train=train)


def balanced_subset(labels: Tensor, per_class: int) -> Tensor:
    """Indices, in stored order, of `per_class` items of each class (all, where there are fewer), drawn from `SUBSET_SEED`."""
    import torch

    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SUBSET_SEED))
    parts = [shuffled[labels[shuffled] == label][:per_class] for label in labels.unique()]
    return torch.cat(parts).sort().values

"""The contract of a task: one file, `bench/tasks/<name>.py`, found by the catalog, importing no torch at its top level.

info          (TaskChoice) -> TaskInfo: the facts that planning needs; imports no torch
load          (TaskChoice, *, num_tokens, place) -> Splits; may import torch; raises RequestError where the data are absent
require_data  (TaskChoice, Place) -> None, optional: raise RequestError where the data are absent, before anything is measured; imports no torch
OPTIONS       optional: an `Option` for each that may be written `name+option=value`
ARGUMENT      optional: what must follow `name:`, such as FOLDER
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench import catalog
from bench.spec import RequestError
from bench.tasks._info import TaskChoice, TaskInfo, choose

if TYPE_CHECKING:
    from torch import Tensor

DATA_VARIABLE = "BENCH_DATA"
"""The environment variable that names the folder with data sets; `--data-root` sets it for a run."""
DOWNLOAD_VARIABLE = "BENCH_DOWNLOAD"
"""Set to 1 where data may be downloaded into that folder; `--download` sets it for a run."""
IGNORED = -100
"""The target of a token at which no class is asked for; at tokens without a value the target is NaN."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """`inputs`: images `(items, channels, side, side)`, uint8 or float32; ids `(items, tokens)`; or vectors `(items, tokens, width)`, float32.

    `targets`: classes `(items,)` int64; `(items, tokens)` int64 with `IGNORED`; or `(items, tokens)` float32 with NaN. `lengths`: `(items,)`
    int64, how many of each item's tokens are data (at least one), the rest being padding; None where all are.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Splits:
    """`train` is what may be learned from, and split for validation where there is no `validation`; `test` is scored once.

    `mean` and `spread`, `(channels,)`: of the training images (uint8 ones brought to 0..1), to normalise with; None where nothing is left to do.
    """

    train: Split
    test: Split
    validation: Split | None = None
    mean: Tensor | None = None
    spread: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where data lie: the folder with data sets (empty: none was named), and whether they may be downloaded into it."""

    data_root: str = ""
    download: bool = False

    def folder(self, task: str) -> Path:
        """The folder with data sets. Raises RequestError where none was named."""
        if not self.data_root:
            raise RequestError(f"task {task} needs a folder with data sets", f"add --data-root DIR, or set {DATA_VARIABLE}")
        return Path(self.data_root)


class Task(Protocol):
    def info(self, choice: TaskChoice) -> TaskInfo: ...

    def load(self, choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits: ...


def place_named() -> Place:
    """The place that the environment names."""
    return Place(data_root=os.environ.get(DATA_VARIABLE, ""), download=os.environ.get(DOWNLOAD_VARIABLE) == "1")


def load_splits(text: str, *, num_tokens: int) -> Splits:
    """The data of a task as asked for, at `num_tokens` data tokens per item (images come whole, whatever their number)."""
    choice = choose(text)
    splits: Splits = catalog.load("tasks", choice.name).load(choice, num_tokens=num_tokens, place=place_named())
    return splits


def require_data(text: str) -> None:
    """Raise RequestError, naming the folder that was expected, where the data of a task are absent."""
    choice = choose(text)
    check = getattr(catalog.load("tasks", choice.name), "require_data", None)
    if check:
        check(choice, place_named())

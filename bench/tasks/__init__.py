"""Contract of a task: one file, `bench/tasks/<name>.py`.

The catalog finds the files. What they need is here: `Images` or `Sequences` says what a task reads, `TaskInfo` its facts, `TaskChoice` how it was
requested; `Split` and `Splits` hold its items. A task file imports no torch at its top level and defines:

info          (TaskChoice) -> TaskInfo: the facts that planning needs. Imports no torch.
load          (TaskChoice, *, num_tokens, place) -> Splits. May import torch. Raises RequestError if the data are missing.
require_data  optional: (TaskChoice, Place) -> None. Downloads what is missing if the place allows it; raises RequestError if data are not
              the published ones, MissingDataError if they are not there. It runs before any measurement, and imports no torch unless it downloads.
OPTIONS       optional: an `Option` for each option that may be written `name+option=value`.
ARGUMENT      optional: the word for the argument that must follow `name:`, such as FOLDER.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import catalog
from bench.spec import RequestError
from bench.tasks._info import Images as Images
from bench.tasks._info import MissingDataError as MissingDataError
from bench.tasks._info import Sequences as Sequences
from bench.tasks._info import TaskChoice as TaskChoice
from bench.tasks._info import TaskInfo as TaskInfo
from bench.tasks._info import choose

if TYPE_CHECKING:
    from torch import Tensor

DATA_VARIABLE = "BENCH_DATA"
"""Environment variable with the data folder; `--data-root` sets it for a run."""
DOWNLOAD_VARIABLE = "BENCH_DOWNLOAD"
"""Environment variable that, if 1, allows downloads into the data folder.

`--download` sets it for a run.
"""
DATA_VARIABLES = (DATA_VARIABLE, DOWNLOAD_VARIABLE)
IGNORED = -100
"""Class target of a token without a question.

Value targets use NaN instead.
"""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Items and targets of one split.

    `inputs`: images `(items, channels, height, width)`, uint8 or float32; ids `(items, tokens)`; or vectors `(items, tokens, width)`, float32.
    `targets`: classes `(items,)` int64; `(items, tokens)` int64 with `IGNORED`; or `(items, tokens)` float32 with NaN.
    `lengths`: number of data tokens per item, at least 1, `(items,)` int64; the rest is padding. None if no item is padded.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: str) -> Split:
        return self._each(lambda held: held.to(device))

    def select(self, chosen: Tensor) -> Split:
        """Return the items at `chosen`, a mask or indices."""
        return self._each(lambda held: held[chosen])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Split:
        lengths = None if self.lengths is None else change(self.lengths)
        return Split(inputs=change(self.inputs), targets=change(self.targets), lengths=lengths)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The splits of a task's data.

    `train`: items to learn from.
    `test`: items scored once, after training.
    `validation`: None if validation items are drawn from `train`.
    `mean`, `spread`: mean and standard deviation for normalising images scaled to 0..1, `(channels,)`; None without images.
    `are_normalised`: whether the images are stored normalised; others are uint8.
    `classes`: names of the classes, in order; empty if they have none.
    """

    train: Split
    test: Split
    validation: Split | None = None
    mean: Tensor | None = None
    spread: Tensor | None = None
    are_normalised: bool = False
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Location of data sets.

    `data_root`: the data folder; empty if the user named none.
    `download`: whether missing data may be downloaded into it.
    """

    data_root: str = ""
    download: bool = False

    def folder(self, task: str) -> Path:
        """Return the data folder. Raises RequestError if the user named none."""
        if not self.data_root:
            raise RequestError(f"task {task} needs a folder with data sets", f"add `data_root=DIR`, or set {DATA_VARIABLE}")
        return Path(self.data_root)


def place_named() -> Place:
    """Return the place set by environment variables."""
    return Place(data_root=os.environ.get(DATA_VARIABLE, ""), download=os.environ.get(DOWNLOAD_VARIABLE) == "1")


def data_variables() -> dict[str, str]:
    """Return those of the environment variables about data that are set."""
    return {name: os.environ[name] for name in DATA_VARIABLES if name in os.environ}


def load_splits(text: str, *, num_tokens: int) -> Splits:
    """Load a task's splits at `num_tokens` data tokens per item.

    Images are loaded whole, whatever `num_tokens` is.
    """
    choice = choose(text)
    splits: Splits = catalog.load("tasks", choice.name).load(choice, num_tokens=num_tokens, place=place_named())
    return splits


def require_data(text: str, say: Callable[[str], None] | None = None) -> None:
    """Download a task's missing data if that is allowed; `say` is told before.

    Raises RequestError, naming the expected folder, if they are missing.
    """
    choice, place = choose(text), place_named()
    check = getattr(catalog.load("tasks", choice.name), "require_data", None)
    if not check:
        return
    try:
        check(choice, dataclasses.replace(place, download=False))
    except RequestError as error:
        if not place.download:
            raise
        if say and isinstance(error, MissingDataError):
            say(f"downloading what task {choice.name} lacks into {place.folder(choice.name)}")
        check(choice, place)

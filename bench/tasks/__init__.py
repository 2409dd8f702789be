"""The contract of a task: one file, `bench/tasks/<name>.py`, found by the catalog, importing no torch at its top level.

INFO   a `TaskInfo`: the facts that planning needs
load   (data_root) -> Splits; may import torch; raises RequestError where the data are absent
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bench.spec import TaskInfo

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Split:
    """`images`: `(items, channels, side, side)` float32, normalised; `labels`: `(items,)` int64."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True, kw_only=True)
class Splits:
    """`train` is what may be learned from and split for validation; `test` is scored once."""

    train: Split
    test: Split


DATA_VARIABLE = "BENCH_DATA"
"""The environment variable that names the folder with data sets; `--data-root` sets it for a run."""


class Task(Protocol):
    INFO: TaskInfo

    def load(self, data_root: str) -> Splits: ...

"""Contract of a metric: one file, `bench/metrics/<name>.py`.

The catalog finds the files. A metric file imports no torch at its top level and defines:

    REPEAT     how often to measure: "once" per cell, once per "round", once per "seed" (training), once per "trial" (tuning), or "pilot": before
               another metric, never on request
    COLUMNS    the columns that it fills
    NOT_NUMBERS optional: columns that hold text or flags
    measure    (Job) -> Measurement. Runs in its own worker process; may import torch
    take_turns replaces measure if jobs of a timing group take turns: (Job) -> a generator. It yields when warm and after each burst, runs a burst
               for each True sent to it, and returns the Measurement for False. On CUDA it also yields when built, and warms up for the first
               True
    NEEDS_TASK optional: True if only cells with a task can be measured
    EVERY      optional: a metric of rounds is measured in every so many of them
    shared_by  optional: (Cell, Settings) -> facts. Cells with equal facts share one measurement ("once" and "round")
    MEASURES_PROCESS optional: True if the metric measures the process's memory, so that the allocator keeps no freed memory for speed
    summarise  (measured records of one cell, by repeat) -> column values. Pure; imports no torch

A cell is one configuration: a model at one size with one workload. A round measures all cells once, each in a fresh process. A value that could not
be measured is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.spec import Record

PLAIN = (str, int, float)
Repeat = Literal["once", "round", "seed", "trial", "pilot"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of one job, with units in the names.

    `values`: single figures by name.
    `samples`: raw series by name.

    Arrays and their scalars, of numpy or torch, become plain numbers. Raises TypeError for a value that JSON does not hold.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in ("values", "samples"):
            object.__setattr__(self, part, {name: _plain(name, value) for name, value in getattr(self, part).items()})


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(name, entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, entry) for entry in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{name} is of type {type(value).__name__}; values are numbers, texts, lists or mappings")


def last_values(records: Sequence[Record], columns: Sequence[str]) -> dict[str, Any]:
    """Return the columns as measured, equal in every record of a cell; None if not measured."""
    values = records[-1].outcome.values if records else {}
    return {column: values.get(column) for column in columns}

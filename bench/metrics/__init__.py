"""The contract of a metric: one file, `bench/metrics/<name>.py`, found by the catalog, importing no torch at its top level.

    REPEAT     how often it is measured: "once" per cell, once per "round", once per "seed" (training), once per "trial" (tuning), or as the
               "pilot" of another metric, which nobody asks for
    COLUMNS    the columns it fills
    NOT_NUMBERS optional: those of them that hold texts or flags
    measure    (Job) -> Measurement, in a worker process that does nothing else; may import torch
    take_turns in place of measure: (Job) -> a generator that yields when warm and after each burst that True was sent for, and returns the
               Measurement when False is sent; the jobs of a timing group take turns
    NEEDS_TASK optional: True where a cell without a task cannot be measured
    shared_by  optional: (Cell, Settings) -> facts; cells that agree on all of them share one measurement ("once" and "round")
    MEASURES_PROCESS optional: True where the memory that a process holds is what is measured, so that none is kept for the sake of speed
    summarise  (measured records of one cell, by repeat) -> column values; pure, imports no torch

A value that could not be measured is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bench.spec import Record

Repeat = Literal["once", "round", "seed", "trial", "pilot"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """`values`: single figures; `samples`: raw series. Units are in the names."""

    values: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Metric(Protocol):
    REPEAT: Repeat
    COLUMNS: tuple[str, ...]

    def summarise(self, records: Sequence[Record]) -> Mapping[str, Any]: ...

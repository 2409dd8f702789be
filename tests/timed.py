"""Times by cell and round, as a run of one cell after the other gives them, or of cells that took turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pandas

from bench.reading.timings import Timings
from bench.spec import Job

GROUP = "compare/n=17"


def in_group(job: Job, *, num_blocks: int = 3, num_calls: int = 1, group: str = GROUP) -> Job:
    """The job as a member of a timing group."""
    return dataclasses.replace(job, group=group, num_blocks=num_blocks, num_calls=num_calls)


def timings_of_rounds(rounds: pandas.DataFrame) -> Timings:
    """From the columns `cell_id`, `round` and `latency_ms`."""
    found: dict[str, dict[int, float]] = {}
    for cell_id, place, latency_ms in zip(rounds["cell_id"], rounds["round"], rounds["latency_ms"], strict=True):
        found.setdefault(str(cell_id), {})[int(place)] = float(latency_ms)
    return Timings(found)


def timings_of_blocks(blocks: Mapping[str, Sequence[Sequence[float]]], group: str = GROUP) -> Timings:
    """From the times in ms of every cell, by round and block, of one group."""
    by_cell = {cell: {place: float(np.median(times)) for place, times in enumerate(rounds)} for cell, rounds in blocks.items()}
    num_rounds = max(map(len, blocks.values()))
    bursts = {
        (group, place): {cell: rounds[place] for cell, rounds in blocks.items() if place < len(rounds)} for place in range(num_rounds)
    }
    return Timings(by_cell, bursts)

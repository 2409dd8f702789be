"""Pairs of configurations timed in a few seconds each, as `bench run` times a group: the material of the experiments on interleaved timing."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.intervals import Interval, ratio_over_rounds
from bench.planning.build import build_plan
from bench.planning.timing import PILOT, calls_of_burst
from bench.running.executors.process import Executor
from bench.spec import MEASURED, Cell, Job, Recipe, Settings
from tests.requested import parse_request

BOOKED = 50
"""Calls of a burst of the planted truth; the slower side makes one more and books as many."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A pair over several rounds. `logs`: of each round the log-ratio, second over first; `wall_s`: processes, warm-up and bursts together."""

    logs: tuple[float, ...]
    wall_s: float

    def interval(self, level: float = 0.95) -> Interval:
        found = ratio_over_rounds(self.logs, level)
        assert found is not None
        return found


def cell_of(model: str, n: int, *, params: str = "300k", depth: int = 3, batch: int = 1, width: str = "") -> Cell:
    """A cell of `bench run --models MODEL --seq N ...`."""
    flags = {"width": width} if width else {"params": params}
    request = parse_request(models=model, seq=str(n), depth=str(depth), batch=str(batch), metrics="latency", **flags)
    return build_plan(request, settings=Settings(), recipe=Recipe(), device="cpu").cells[0].cell


def measure_pair(
    runner: Executor,
    first: Cell,
    second: Cell,
    settings: Settings,
    *,
    blocks: int,
    planted: bool = False,
    together: bool = True,
) -> Measured:
    """Time two cells over the settings' rounds, in bursts that a pilot of each sizes (outside of `wall_s`). `planted`: the first makes 50 calls a
    burst, the second 51, booked as 50. `together`: in turns; otherwise one after the other, in rounds of random order."""
    calls = {cell.cell_id: 0 if planted else _calls(runner, cell, settings) for cell in (first, second)}
    numbers = [BOOKED, BOOKED + 1] if planted else [calls[cell.cell_id] for cell in (first, second)]
    logs = []
    start = time.perf_counter()
    for repeat in range(settings.rounds):
        jobs = [
            Job(
                cell=cell,
                metric="latency",
                repeat=repeat,
                control=place == 1,
                settings=settings,
                group="pair",
                num_calls=num,
                num_blocks=blocks,
            )
            for place, (cell, num) in enumerate(zip((first, second), numbers, strict=True))
        ]
        times = _times(runner, jobs, together=together)
        if planted:
            times[1] *= (BOOKED + 1) / BOOKED
        if together:
            logs.append(float(np.median(np.log(times[1]) - np.log(times[0]))))
        else:
            logs.append(float(np.log(np.median(times[1])) - np.log(np.median(times[0]))))
    return Measured(logs=tuple(logs), wall_s=time.perf_counter() - start)


def _calls(runner: Executor, cell: Cell, settings: Settings) -> int:
    outcome = runner.run(Job(cell=cell, metric=PILOT, repeat=0, settings=settings))
    assert outcome.status == MEASURED, outcome.reason
    return calls_of_burst(float(outcome.values["call_s"]))


def _times(runner: Executor, jobs: Sequence[Job], *, together: bool) -> list[np.ndarray]:
    """Per call and block, of each job."""
    if together:
        outcomes = runner.run_group(tuple(jobs))
    else:
        order = sorted(jobs, key=lambda job: (hash((job.repeat, job.control)) * 2654435761) % 97)
        found = {job.control: runner.run_group((job,))[0] for job in order}
        outcomes = [found[job.control] for job in jobs]
    assert all(outcome.status == MEASURED for outcome in outcomes), [outcome.reason for outcome in outcomes]
    return [np.array(outcome.samples["wall_ms"]) for outcome in outcomes]


def settings_of(rounds: int, threads: int = 1) -> Settings:
    return dataclasses.replace(Settings(), rounds=rounds, sample_s=0.3, threads=threads)

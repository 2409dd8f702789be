"""Times taken in turns against a known truth: a model takes as long as itself, and 2 % longer where 51 calls are booked as 50."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import numpy as np
import pytest

from bench.intervals import ratio_over_rounds
from bench.planning.build import build_plan
from bench.running.executors.process import Executor
from bench.spec import MEASURED, Cell, Job, Recipe, Settings
from tests.requested import parse_request

BOOKED = 50
"""Calls of a burst."""
BLOCKS, ROUNDS = 5, 21
LEVEL = 0.999
"""One run in a thousand misses the truth."""


@pytest.mark.parametrize("extra_calls", [0, 1])
def test_the_interval_holds_the_planted_ratio(benchmark: Any, extra_calls: int) -> None:
    """A model over itself, where the second makes so many calls a burst that are not booked; two rounds where nothing is timed."""
    rounds = 2 if benchmark.disabled else ROUNDS
    with Executor() as runner:
        logs = benchmark.pedantic(lambda: [log_ratio(runner, repeat, extra_calls) for repeat in range(rounds)])
    found, planted = ratio_over_rounds(logs, LEVEL), 1 + extra_calls / BOOKED
    assert found is not None
    benchmark.extra_info.update(planted=planted, found=found.estimate, low=found.low, high=found.high)
    assert benchmark.disabled or found.low < planted < found.high


def log_ratio(runner: Executor, repeat: int, extra_calls: int) -> float:
    """Of one round: two fresh processes in turns."""
    settings = dataclasses.replace(Settings(), rounds=ROUNDS, sample_s=0.3, threads=1)
    job = Job(cell=small_vit(), metric="latency", repeat=repeat, settings=settings, group="pair", num_calls=BOOKED, num_blocks=BLOCKS)
    pair = (job, dataclasses.replace(job, control=True, num_calls=BOOKED + extra_calls))
    outcomes = runner.run_group(pair)
    assert all(outcome.status == MEASURED for outcome in outcomes), [outcome.reason for outcome in outcomes]
    first, second = (np.log(outcome.samples["wall_ms"]) for outcome in outcomes)
    return float(statistics.median(second - first)) + float(np.log1p(extra_calls / BOOKED))


def small_vit() -> Cell:
    request = parse_request(models="vit", seq="17", width="96", depth="2", batch="1", metrics="latency")
    return build_plan(request, settings=Settings(), recipe=Recipe(), device="cpu").cells[0].cell

"""A step timed beside its reference, in turns, and held to the limit on the ratio of the two."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.benchmarks.limits import LIMITS

PROJECT = Path(__file__).parents[2]
Clock = Callable[[], float]


class Against(Protocol):
    """Time `step` and `reference` in turns, `rounds` times each, and fail where the median ratio is above the limit of that name."""

    def __call__(
        self, name: str, step: Callable[[], object], reference: Callable[[], object], *, rounds: int = 5, clock: Clock = ...
    ) -> None: ...


def cpu_seconds() -> float:
    """Of this process and of the children that have ended: other people's work on the machine is not in it."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in found)


def run_python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=PROJECT, check=True, capture_output=True)


def import_pandas() -> None:
    run_python("-c", "import pandas")


def loop() -> int:
    """What the interpreter itself is good for."""
    return sum(i * i for i in range(100_000))


@pytest.fixture
def against(benchmark: Any) -> Against:
    def timed(
        name: str, step: Callable[[], object], reference: Callable[[], object], *, rounds: int = 5, clock: Clock = cpu_seconds
    ) -> None:
        limit = LIMITS[name]
        if benchmark.disabled:
            reference()
            benchmark(step)
            return
        references: list[float] = []
        steps: list[float] = []

        def before() -> None:
            references.append(_seconds(reference, clock))

        benchmark.group = "beside " + name.partition(" / ")[2]
        benchmark.pedantic(lambda: steps.append(_seconds(step, clock)), setup=before, rounds=rounds, warmup_rounds=1)
        ratio = statistics.median(own / other for own, other in zip(steps[1:], references[1:], strict=True))
        seconds, reference_s = statistics.median(steps[1:]), statistics.median(references[1:])
        benchmark.extra_info.update(name=name, ratio=ratio, limit=limit, seconds=seconds, reference_s=reference_s)
        assert ratio <= limit, f"{name}: {ratio:.3g} times ({seconds:.3g} s / {reference_s:.3g} s), where {limit:g} is the limit"

    return timed


@pytest.fixture
def num_rows(benchmark: Any) -> int:
    """Ten thousand; a few where nothing is timed."""
    return 60 if benchmark.disabled else 10_000


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Each ratio beside its limit."""
    found = [bench for bench in terminalreporter.config._benchmarksession.benchmarks if "ratio" in bench.extra_info]
    if found:
        terminalreporter.section("ratios to references of the same run")
    for bench in found:
        info = bench.extra_info
        line = (
            f"{info['name']:45} {info['ratio']:8.3g} of at most {info['limit']:g}   ({info['seconds']:.3g} s / {info['reference_s']:.3g} s)"
        )
        terminalreporter.write_line(line)


def _seconds(call: Callable[[], object], clock: Clock) -> float:
    start = clock()
    call()
    return clock() - start


wall_seconds: Clock = time.perf_counter

"""How many seconds does each way of timing need until it knows the ratio of two models' times to 2 %, and is it then right?

    python -m tests.benchmarks.harnesses --out FILE.csv [--repeats 5] [--busy] [--ways bench pyperf] [--pairs vit/vit,n=65,batch=32]

Every way times one warm forward call of the same two models, on one thread, in processes that keep freed memory. All are forked from one server that
has imported everything, so no way pays for imports. Each tries harder, until its 95 % interval has a half-width of 2 % or its time is up. `bench`
alone pins its processes; it leaves out the A/A control, which the others lack too. The true ratio is the estimate of 40 rounds of `bench`, 20 before
the ways and 20 after them, in the same conditions; of a model over itself it is 1. A pair's rows are written when all its repeats are done.

`seconds`: until 2 %, all tries together; empty if not reached in time. `last_s`: those of the last try alone, for who knew what it would take.
`spent_s`: all seconds. `effort`: of the last try. `covers`: the interval holds the true ratio. `near`: it meets the true ratio's own interval.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Timer

from bench import fork_server
from bench.console import print_table
from bench.intervals import LEVEL, Interval, mean_interval, median_interval, ratio_over_rounds, t_quantile
from bench.measure.allocator import keep_freed_memory
from bench.measure.environment import inspect_environment
from bench.measure.step import build_step
from bench.planning.build import build_plan
from bench.planning.jobs import group_jobs
from bench.planning.timing import designed, pilots_of
from bench.running.child import die_with_parent
from bench.running.executors.process import Executor
from bench.spec import MEASURED, PILOT, Cell, Job, Recipe, Settings
from tests.made_jobs import small_record
from tests.requested import parse_request

WANTED, LIMIT_S = 0.02, 60.0  # the half-width to reach, and the seconds for it
DEFAULT_ROUNDS, TRUE_ROUNDS, TRUE_SEED = 20, 40, 1000
PAIRS = (
    *(f"vit/gmlp,n={n},batch=32" for n in (17, 65, 257)),
    *("vit/gmlp,n=65,batch=1", "transformer/vit,n=65,batch=32", "vit/vit,n=65,batch=32"),
)
TORCH_TRIES: dict[str, list[dict[str, float]]] = {
    "adaptive_autorange": [{"threshold": share, "max_run_time": most} for share, most in ((0.1, 10), (0.03, 10), (0.01, 10), (0.003, 20))],
    "blocked_autorange": [{"min_run_time": seconds} for seconds in (0.2, 1, 5, 20, 30)],
}
NVBENCH_TRIES_S = ((0.5, 15.0), (5.0, 15.0), (20.0, 30.0))  # --min-time and --timeout; here and above, the first try has the defaults
PROCESSES, VALUES, VALUE_S, WARM_CALLS, TIMED_CALLS = 20, 3, 0.1, 10, 40  # the defaults of pyperf and of timm's benchmark.py
ADDING = ("bench", "pyperf", "timm")  # a try adds to the one before; others begin again
COLUMNS = "machine date way pair repeat busy seconds half_width ratio low high covers near true_ratio true_half_width effort last_s spent_s".split()

Call = Callable[[], object]
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """The two models' cells; `seed` draws weights, data and the order of turns."""

    name: str
    cells: tuple[Cell, Cell]
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Try:
    """What a way knows after one more effort: the ratio of the first time to the second; None while it has no interval."""

    effort: str
    ratio: Interval | None

    @property
    def half_width(self) -> float:
        found = self.ratio
        return math.inf if found is None or found.is_open else (found.high - found.low) / (2 * found.estimate)


def bench(pair: Pair) -> Iterator[Try]:
    """Fresh pairs of pinned processes each round, in turns: the Hodges-Lehmann estimate over rounds with its exact interval."""
    logs: list[float] = []
    for log_ratio in rounds(pair):
        logs.append(log_ratio)
        yield Try(effort=f"{len(logs)} rounds", ratio=ratio_over_rounds(logs))


def torch_timer(method: str, pair: Pair) -> Iterator[Try]:
    """A method of torch.utils.benchmark's Timer, one model after the other in a fresh process for each try."""
    for options in TORCH_TRIES[method]:
        found = in_fresh_process(torch_times, pair.cells, pair.seed, method, options)
        yield Try(effort=" ".join(f"{name}={value}" for name, value in options.items()), ratio=ratio_of_medians(*found))


def pyperf(pair: Pair) -> Iterator[Try]:
    """pyperf's protocol, not its package: 20 processes of one model, then 20 of the other; more are added, as by its --append."""
    loops = [in_fresh_process(pyperf_loops, [cell], pair.seed) for cell in pair.cells]
    means: tuple[list[float], list[float]] = ([], [])
    while True:
        for cell, number, found in zip(pair.cells, loops, means, strict=True):
            found += [statistics.fmean(in_fresh_process(pyperf_values, [cell], pair.seed, number)) for _ in range(PROCESSES)]
        yield Try(effort=f"{len(means[0])} processes each", ratio=ratio_of_means(*means))


def timm(pair: Pair) -> Iterator[Try]:
    """The protocol of timm's benchmark.py, both models in a fresh process, again and again: Student's interval, which one repeat lacks."""
    logs: list[float] = []
    while True:
        first, second = in_fresh_process(timm_means, pair.cells, pair.seed)
        logs.append(math.log(first / second))
        found = mean_interval(logs)
        yield Try(effort=f"{len(logs)} repeats", ratio=found and found.exp())


def nvbench(pair: Pair) -> Iterator[Try]:
    """nvbench's default stopping, `stdrel`, on a CPU: a fresh process for each model."""
    for least_s, most_s in NVBENCH_TRIES_S:
        first, second = (in_fresh_process(stdrel_times, [cell], pair.seed, least_s, most_s) for cell in pair.cells)
        yield Try(effort=f"{least_s:g} to {most_s:g} s, {len(first)} and {len(second)} samples", ratio=ratio_of_means(first, second))


WAYS: dict[str, Callable[[Pair], Iterator[Try]]] = {
    "bench": bench,
    "torch-adaptive": functools.partial(torch_timer, "adaptive_autorange"),
    "torch-blocked": functools.partial(torch_timer, "blocked_autorange"),
    "pyperf": pyperf,
    "timm": timm,
    "nvbench": nvbench,
}


def rounds(pair: Pair) -> Iterator[float]:
    """Yield the log-ratio of each of the project's own rounds, which a pilot of each model plans."""
    settings = Settings(seed=pair.seed)
    with Executor() as executor:
        pilots = [Job(cell=cell, metric=PILOT, repeat=0, settings=settings) for cell in dict.fromkeys(pair.cells)]
        known = pilots_of([small_record(PILOT, executor.run(job).values, subject_id=job.subject_id) for job in pilots])
        group = designed("pair", list(zip(pair.cells, (False, pair.cells[0] == pair.cells[1]), strict=True)), known, settings)
        for repeat in itertools.count():
            outcomes = executor.run_group(tuple(group_jobs(group, settings, repeat)))
            assert all(outcome.status == MEASURED for outcome in outcomes), [outcome.reason for outcome in outcomes]
            blocks = zip(*(outcome.samples["wall_ms"] for outcome in outcomes), strict=True)
            yield statistics.median(math.log(first / second) for first, second in blocks)


def torch_times(calls: Sequence[Call], method: str, options: dict[str, float]) -> list[list[float]]:
    return [getattr(Timer("call()", globals={"call": call}, num_threads=1), method)(**options).times for call in calls]


def pyperf_loops(calls: Sequence[Call]) -> int:
    """Return the calls of a value, doubled until they take VALUE_S."""
    return next(loops for loops in (1 << power for power in itertools.count()) if loops * seconds_of(calls[0], loops) >= VALUE_S)


def pyperf_values(calls: Sequence[Call], loops: int) -> list[float]:
    return [seconds_of(calls[0], loops) for _ in range(1 + VALUES)][1:]


def timm_means(calls: Sequence[Call]) -> list[float]:
    return [[seconds_of(call, WARM_CALLS), seconds_of(call, TIMED_CALLS)][1] for call in calls]


def stdrel_times(calls: Sequence[Call], least_s: float, most_s: float) -> list[float]:
    """Sample single calls until their relative standard deviation is below 0.5 %, or stays as it is; see stdrel_criterion.cxx of nvbench."""
    seconds_of(calls[0], 1)
    times, noises = list[float](), list[float]()
    began, total, squares = time.perf_counter(), 0.0, 0.0
    while time.perf_counter() - began < most_s:
        times.append(seconds_of(calls[0], 1))
        total, squares = total + times[-1], squares + times[-1] ** 2
        mean = total / len(times)
        if len(times) >= 5:
            noises.append(math.sqrt(max(0.0, squares - total * mean) / (len(times) - 1)) / mean)
        if len(times) >= 10 and total > least_s and is_settled(noises[-512:], len(times)):
            break
    return times


def is_settled(noises: Sequence[float], num_samples: int) -> bool:
    now = noises[-1]
    if now < 0.005 or len(noises) <= 64 or num_samples % 16:
        return now < 0.005
    return math.sqrt(math.fsum((noise - now) ** 2 for noise in noises) / (len(noises) - 1)) / now < 0.05


def seconds_of(call: Call, loops: int) -> float:
    """Return the mean seconds of one of so many calls."""
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return (time.perf_counter() - start) / loops


def in_fresh_process(measure: Callable[..., Any], cells: Sequence[Cell], seed: int, *arguments: object) -> Any:
    """Return what `measure` finds with the calls of these cells, in a process of its own."""
    process, connection = fork_server.new_process(serve, measure, tuple(cells), seed, arguments)
    with connection:
        found = connection.recv()
    process.kill()
    process.join()
    return found


def serve(connection: Connection, measure: Callable[..., Any], cells: Sequence[Cell], seed: int, arguments: Sequence[object]) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    keep_freed_memory()
    connection.send(measure([build_step(cell, seed=seed).call for cell in cells], *arguments))


def ratio_of_medians(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Combine the intervals of two medians on the log scale (Zou and Donner 2008); None with fewer than six samples in one."""
    bounds, others = median_bounds(first), median_bounds(second)
    if bounds is None or others is None:
        return None
    middle, other = statistics.median(first), statistics.median(second)
    below = math.hypot(math.log(middle / bounds[0]), math.log(others[1] / other))
    above = math.hypot(math.log(bounds[1] / middle), math.log(other / others[0]))
    log = math.log(middle / other)
    return Interval(estimate=log, low=log - below, high=log + above, num=len(first)).exp()


def median_bounds(times: Sequence[float]) -> tuple[float, float] | None:
    """Return the exact bounds, or of many times those of the normal approximation, since binomial coefficients overflow."""
    rank = int(len(times) / 2 - 0.98 * math.sqrt(len(times)))
    return median_interval(times) if len(times) <= 1000 else (sorted(times)[rank - 1], sorted(times)[-rank])


def ratio_of_means(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Student's interval of the ratio of two means, by the delta method on the log scale."""
    means = [statistics.fmean(times) for times in (first, second)]
    errors = [statistics.stdev(times) / mean / math.sqrt(len(times)) for times, mean in zip((first, second), means, strict=True)]
    log, half = math.log(means[0] / means[1]), t_quantile(LEVEL, len(first) + len(second) - 2) * math.hypot(*errors)
    return Interval(estimate=log, low=log - half, high=log + half, num=len(first)).exp()


def planned_pair(name: str) -> Pair:
    families, seq, batch = (part.rpartition("=")[2] for part in name.split(","))
    models = families.split("/")
    wanted = {"models": ",".join(dict.fromkeys(models)), "seq": seq, "batch": batch, "params": "1M", "depth": "6", "metrics": "latency"}
    plan = build_plan(parse_request(**wanted), settings=Settings(), recipe=Recipe(), device="cpu")
    first, second = (next(planned.cell for planned in plan.cells if planned.cell.model.family == family) for family in models)
    return Pair(name=name, cells=(first, second))


def rows_of_way(name: str, pair: Pair) -> list[Row]:
    """Try harder and harder; return the row at 2 % or at the end, and of `bench` also that of its default rounds, where nothing stops it."""
    rows, least = list[Row](), DEFAULT_ROUNDS if name == "bench" else 1
    began = last = time.perf_counter()
    for found in WAYS[name](pair):
        now = time.perf_counter()
        rows.append(row_of(name, found, now - began, now - last))
        if len(rows) >= least and (now - began >= LIMIT_S or any(row["seconds"] for row in rows)):
            break
        last = now
    chosen = next((row for row in rows if row["seconds"]), rows[-1])
    return [chosen, {**rows[least - 1], "way": f"bench-{least}-rounds"}] if name == "bench" else [chosen]


def row_of(way: str, found: Try, spent_s: float, last_s: float) -> Row:
    low, high = (getattr(found.ratio, name, None) for name in ("low", "high"))
    seconds = spent_s if found.half_width <= WANTED and spent_s <= LIMIT_S else None
    known = {
        "half_width": found.half_width,
        "ratio": getattr(found.ratio, "estimate", None),
        "low": low,
        "high": high,
        "effort": found.effort,
    }
    return {"way": way, "seconds": seconds, **known, "last_s": spent_s if way in ADDING else last_s, "spent_s": spent_s}


def rows_of_pair(pair: Pair, ways: Sequence[str], repeats: int) -> Iterator[Row]:
    """Try every way so many times, in random orders, between two halves of the rounds that tell the true ratio."""
    found, true_rounds = [], rounds(dataclasses.replace(pair, seed=TRUE_SEED))
    half = 0 if pair.cells[0] == pair.cells[1] else TRUE_ROUNDS // 2
    logs = list(itertools.islice(true_rounds, half))
    for repeat in range(repeats):
        for way in random.Random(f"{pair.name}/{repeat}").sample(ways, len(ways)):
            rows = rows_of_way(way, dataclasses.replace(pair, seed=repeat))
            found += [{**row, "pair": pair.name, "repeat": repeat} for row in rows]
            for row in rows:
                sys.stderr.write(f"{pair.name}: {row['way']}: {row['half_width']} after {row['spent_s']:.0f} s, {row['effort']}\n")
    logs += itertools.islice(true_rounds, half)
    true = ratio_over_rounds(logs) or Interval(estimate=1.0, low=1.0, high=1.0, num=0)
    truth = {"true_ratio": true.estimate, "true_half_width": Try(effort="", ratio=true).half_width}
    for row in found:
        low, high = row["low"] or 0.0, row["high"] or math.inf
        yield {**row, **truth, "covers": low <= true.estimate <= high, "near": low <= true.high and high >= true.low}


def summary(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield a line for each way; a try that did not reach 2 % counts as longer than all others in the median."""
    for way in dict.fromkeys(row["way"] for row in rows):
        tries = [row for row in rows if row["way"] == way]
        reached = [row for row in tries if row["seconds"]]
        middle = statistics.median(row["seconds"] or math.inf for row in tries)
        shares = [f"{sum(row[name] for row in reached) / len(reached):.0%}" if reached else "" for name in ("covers", "near")]
        yield [way, f"{middle:.1f}", f"{len(reached) / len(tries):.0%}", *shares, str(len(tries))]


def multiply(connection: Connection) -> None:
    """Multiply matrices on one core, whichever the system gives, until the other end of the connection closes."""
    torch.set_num_threads(1)
    matrix = torch.randn(512, 512)
    while not connection.poll():
        matrix @ matrix


def main() -> None:
    asked, rows = arguments(), list[Row]()
    cpu_type = inspect_environment(threads=1, device="cpu")["cpu_type"]
    same = {"machine": cpu_type, "date": time.strftime("%Y-%m-%d"), "busy": asked.busy}
    fork_server.use_libraries({"tests.benchmarks.harnesses"})
    with asked.out.open("w", newline="") as file, Executor(), fork_server.new_process(multiply)[1] if asked.busy else nullcontext():
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in asked.pairs:
            found = [{**same, **row} for row in rows_of_pair(planned_pair(name), asked.ways, asked.repeats)]
            writer.writerows(found)
            file.flush()
            rows += found
    print_table(["way", "median s", "reach 2 %", "of these cover", "near", "tries"], list(summary(rows)), [False, *[True] * 5])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="beside a process that computes on one core")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=PAIRS)
    return parser.parse_args()


if __name__ == "__main__":
    from tests.benchmarks import harnesses  # new processes find this module's functions by that name

    harnesses.main()

"""What interleaved timing is worth: a planted truth, A/A pairs, bias by cold caches, and coverage.

    python -m tests.benchmarks.harness.run interleaved --out results/DATE_cpu_harness_interleaved --only truth,aa

Every experiment appends to a table of its own and goes on where it stopped. `--only` chooses among truth, aa, bias and coverage.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas
import typer

from bench import console
from bench.intervals import RoundMean, ratio_over_rounds, round_mean
from bench.measure.environment import inspect_environment
from bench.running.executors.process import Executor
from tests.benchmarks.harness.busy import burning
from tests.benchmarks.harness.folders import agree_on_environment, machine_text, markdown_table, start_folder, write_csv, write_page
from tests.benchmarks.harness.pairs import BOOKED, Measured, cell_of, measure_pair, settings_of
from tests.benchmarks.harness.spread import expected_to_hold, processes_needed, spread_over_rounds

TRUTH = 1 + 1 / BOOKED
LONG = 1025
"""From here on fifty calls are too long for a burst: nothing is planted, and the spread alone says what 90 % power takes."""
TRUTH_CELLS = {"vit n=17": ("vit", 17, 21, 5), "gmlp n=65": ("gmlp", 65, 21, 3), "vit n=1025": ("vit", 1025, 7, 3)}
"""Model, length, rounds and blocks: less than 10 s for a pair of calls under 10 ms."""
AA_CELL, AA_ROUNDS, AA_BLOCKS, AA_PAIRS = ("vit", 17), 7, 3, 200
BIAS_LENGTHS, BIAS_ROUNDS = (17, 1025), 24
COVERAGE_RUNS = 40
Row = dict[str, Any]


def measure(
    out: Annotated[Path, typer.Option(help="Folder of the session.")],
    only: Annotated[str, typer.Option(help="Experiments, by comma.")] = "truth,aa,bias,coverage",
    repeats: Annotated[int, typer.Option(help="Of the planted truth, quiet and busy.")] = 10,
) -> None:
    """Run the experiments and write their tables and a page.

    Example: python -m tests.benchmarks.harness.run interleaved --out results/2026-11-23_cpu_harness_interleaved
    """
    start_folder(out, {"truth_repeats": repeats, "aa_pairs": AA_PAIRS, "bias_rounds": BIAS_ROUNDS, "coverage_runs": COVERAGE_RUNS})
    agree_on_environment(out, inspect_environment(threads=1, device="cpu"))
    wanted: dict[str, Callable[[Executor], Iterator[tuple[tuple[Any, ...], Callable[[], Row]]]]] = {
        "truth": lambda runner: _truth(runner, repeats),
        "aa": _aa,
        "bias": _bias,
        "coverage": _coverage,
    }
    with Executor() as runner:
        for name in only.split(","):
            _go_on(out / f"{name}.csv", name, wanted[name](runner))
    write_page(out, *_page(out))


def _go_on(path: Path, name: str, cases: Iterator[tuple[tuple[Any, ...], Callable[[], Row]]]) -> None:
    """Measure the cases that the table lacks, and write it after each."""
    rows = pandas.read_csv(path).to_dict("records") if path.exists() else []
    done = {row["case"] for row in rows}
    for key, case in cases:
        label = " ".join(map(str, key))
        if label in done:
            continue
        rows.append({"case": label, **case()})
        write_csv(pandas.DataFrame(rows), path)
        console.say(f"{name}: {label}")


def _row(found: Measured, **facts: Any) -> Row:
    interval = found.interval()
    return {
        **facts,
        "ratio": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "spread": spread_over_rounds(found.logs),
        "rounds": len(found.logs),
        "wall_s": found.wall_s,
        "logs": " ".join(f"{log:.6f}" for log in found.logs),
    }


def _truth(runner: Executor, repeats: int) -> Iterator[tuple[tuple[Any, ...], Callable[[], Row]]]:
    """A cell against itself, one of them with 51 calls booked as 50; quiet, and beside a process that keeps one core busy."""
    for busy in (False, True):
        for name in TRUTH_CELLS:
            for number in range(repeats):
                yield (name, "busy" if busy else "quiet", number), functools.partial(_truth_row, runner, name, busy)


def _truth_row(runner: Executor, name: str, busy: bool) -> Row:
    model, n, rounds, blocks = TRUTH_CELLS[name]
    cell = cell_of(model, n, width="96", depth=2)
    with burning(1 if busy else 0):
        return _row(
            measure_pair(runner, cell, cell, settings_of(rounds), blocks=blocks, planted=n < LONG), cell=name, busy=busy, planted=n < LONG
        )


def _aa(runner: Executor) -> Iterator[tuple[tuple[Any, ...], Callable[[], Row]]]:
    """A cell against itself."""
    for busy in (False, True):
        for number in range(AA_PAIRS):
            yield ("busy" if busy else "quiet", number), functools.partial(_aa_row, runner, busy, number)


def _aa_row(runner: Executor, busy: bool, number: int) -> Row:
    """With a seed of its own: one seed would draw the same orders for every pair."""
    cell = cell_of(*AA_CELL, width="96", depth=2)
    with burning(1 if busy else 0):
        return _row(measure_pair(runner, cell, cell, dataclasses.replace(settings_of(AA_ROUNDS), seed=number), blocks=AA_BLOCKS), busy=busy)


def _bias(runner: Executor) -> Iterator[tuple[tuple[Any, ...], Callable[[], Row]]]:
    """gMLP against ViT, in turns and one after the other, in alternating stretches of four rounds."""
    for n, number, together in itertools.product(BIAS_LENGTHS, range(BIAS_ROUNDS // 4), (True, False)):
        yield (n, number, "in turns" if together else "one after the other"), functools.partial(_bias_row, runner, n, together)


def _bias_row(runner: Executor, n: int, together: bool) -> Row:
    first, second = (cell_of(model, n, width="96", depth=2) for model in ("vit", "gmlp"))
    return _row(measure_pair(runner, first, second, settings_of(4), blocks=5, together=together), n=n, together=together)


def _coverage(runner: Executor) -> Iterator[tuple[tuple[Any, ...], Callable[[], Row]]]:
    """Forty runs of one pair."""
    for number in range(COVERAGE_RUNS):
        yield (number,), functools.partial(_coverage_row, runner)


def _coverage_row(runner: Executor) -> Row:
    return _row(measure_pair(runner, cell_of("vit", 65), cell_of("gmlp", 65), settings_of(7), blocks=9))


def truth_table(found: pandas.DataFrame) -> pandas.DataFrame:
    """How often the planted 2 % was found (the interval of 95 % above 1), the spread between rounds, and the seconds of 90 % power."""
    rows = []
    for (cell, busy), members in found.groupby(["cell", "busy"], sort=False):
        deviation = math.sqrt(statistics.fmean(value**2 for value in members["spread"]))
        per_round = float((members["wall_s"] / members["rounds"]).mean())
        rounds = rounds_for_power(deviation, math.log(TRUTH))
        rows.append(
            {
                "pair": cell,
                "machine": "one core busy" if busy else "quiet",
                "found": f"{int((members['low'] > 1).sum())} of {len(members)}" if members["planted"].all() else "",
                "mean ratio": math.exp(statistics.fmean(map(math.log, members["ratio"]))),
                "seconds of one run": float(members["wall_s"].mean()),
                "spread between rounds": deviation,
                "rounds for 90 % power": rounds,
                "seconds for 90 % power": rounds * per_round if rounds else None,
            }
        )
    return pandas.DataFrame(rows)


def rounds_for_power(deviation: float, effect: float, power: float = 0.9, level: float = 0.95) -> int | None:
    """The least number of rounds at which a two-sided t-test finds the effect with this power (noncentral t); None above 10,000."""
    from scipy import stats

    for num in range(2, 10_001):
        bound = stats.t.ppf(0.5 + level / 2, num - 1)
        if stats.nct.sf(bound, num - 1, effect * math.sqrt(num) / deviation) >= power:
            return num
    return None


def aa_table(found: pandas.DataFrame) -> pandas.DataFrame:
    """Of pairs of one cell with itself, how many intervals of 95 % leave out 1."""
    rows = []
    for busy, members in found.groupby("busy", sort=False):
        outside = int(((members["low"] > 1) | (members["high"] < 1)).sum())
        low, high = expected_to_hold(len(members), 0.05)
        half = float(((members["high"] / members["low"]).map(math.log) / 2).median())
        rows.append(
            {
                "machine": "one core busy" if busy else "quiet",
                "pairs": len(members),
                "leave out 1": outside,
                "expected": f"{low} to {high}",
                "median half-width": half,
                "spread between rounds": math.sqrt(statistics.fmean(value**2 for value in members["spread"])),
                "seconds of one pair": float(members["wall_s"].mean()),
            }
        )
    return pandas.DataFrame(rows)


def bias_table(found: pandas.DataFrame) -> pandas.DataFrame:
    """The ratio by both designs, and that of the two ratios."""
    rows = []
    for n, members in found.groupby("n", sort=False):
        logs = {together: _all_logs(part) for together, part in members.groupby("together")}
        both: dict[bool, RoundMean] = {together: known for together, values in logs.items() if (known := round_mean(values))}
        apart = both[True].mean - both[False].mean
        error = math.hypot(both[True].error, both[False].error)
        rows.append(
            {
                "n": n,
                "in turns": _interval_text(logs[True]),
                "one after the other": _interval_text(logs[False]),
                "quotient": f"{math.exp(apart):.4f} [{math.exp(apart - 2 * error):.4f}, {math.exp(apart + 2 * error):.4f}]",
                "spread in turns": spread_over_rounds(logs[True]),
                "spread one after the other": spread_over_rounds(logs[False]),
            }
        )
    return pandas.DataFrame(rows)


def coverage_table(found: pandas.DataFrame) -> pandas.DataFrame:
    """How many runs' intervals hold the mean of the other runs."""
    logs = [math.log(ratio) for ratio in found["ratio"]]
    held = sum(
        math.log(low) <= (sum(logs) - own) / (len(logs) - 1) <= math.log(high)
        for own, low, high in zip(logs, found["low"], found["high"], strict=True)
    )
    return pandas.DataFrame(
        [
            {
                "runs": len(logs),
                "hold the mean of the others": held,
                "median half-width": float(((found["high"] / found["low"]).map(math.log) / 2).median()),
                "spread between runs": statistics.stdev(logs),
                "seconds of one run": float(found["wall_s"].mean()),
                "rounds for 2 %": processes_needed(math.sqrt(statistics.fmean(v**2 for v in found["spread"])), math.log(1.02)),
            }
        ]
    )


def _all_logs(part: pandas.DataFrame) -> list[float]:
    return [float(log) for text in part["logs"] for log in str(text).split()]


def _interval_text(logs: list[float]) -> str:
    interval = ratio_over_rounds(logs)
    assert interval is not None
    return f"{interval.estimate:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


TABLES: Mapping[str, tuple[str, Callable[[pandas.DataFrame], pandas.DataFrame]]] = {
    "truth": ("Planted truth: 51 calls booked as 50", truth_table),
    "aa": ("A cell against itself", aa_table),
    "bias": ("gMLP over ViT, in turns and one after the other", bias_table),
    "coverage": ("Forty runs of gMLP over ViT at n = 65", coverage_table),
}


def _page(out: Path) -> Iterator[str]:
    yield "# What interleaved timing is worth"
    yield machine_text(out)
    for name, (title, table_of) in TABLES.items():
        if (out / f"{name}.csv").exists():
            yield f"## {title}"
            yield str(table_of.__doc__)
            yield markdown_table(table_of(pandas.read_csv(out / f"{name}.csv")))

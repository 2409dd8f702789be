"""What repeated small runs show: A/A intervals, and the ratio of two models by each protocol, on a quiet and on a busy machine.

Pure functions on the table of all latencies: `repetition busy protocol cell control round latency_ms run_s
other_cores`; a peer has one round per repetition. `other_cores`: processor time that others took when the repetition began, in cores.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pandas

from bench.intervals import CONTROL_LEVEL, LEVEL, Interval, geometric_interval
from tests.benchmarks.harness.readings import BENCH
from tests.benchmarks.harness.spread import expected_to_hold, spread, spread_interval

QUIET, BUSY, ALL = "quiet", "busy", "all"


def repetitions_table(latencies: pandas.DataFrame, numerator: str, denominator: str) -> pandas.DataFrame:
    """One row per repetition and protocol: the ratio of the two cells (bench: paired by round, with its 95 % interval), bench's A/A ratio with its
    99 % interval, and the wall time."""
    keys = ["repetition", "busy", "other_cores", "protocol"]
    rows = [
        {**dict(zip(keys, names, strict=True)), "run_s": part["run_s"].iloc[0], **_ratios(part, numerator, denominator)}
        for names, part in latencies.groupby(keys, sort=False, dropna=False)
    ]
    return pandas.DataFrame(rows)


def control_table(repetitions: pandas.DataFrame) -> pandas.DataFrame:
    """How often the A/A ratio's 99 % interval held 1, what may be expected (central 95 % of the binomial), and its widths (high over low, less 1)."""
    bench = repetitions[repetitions["protocol"] == BENCH]
    return pandas.DataFrame([_control_row(name, part) for name, part in _conditions(bench)])


def ratio_table(repetitions: pandas.DataFrame) -> pandas.DataFrame:
    """Per condition and protocol: the spread of the ratio over repetitions (standard deviation of the log, with its 95 % interval), and the same at
    equal time: if the protocol were repeated and averaged for as long as bench takes, its repetitions being independent. `holds`: how many of bench's
    95 % intervals held the mean of the condition."""
    rows = [
        _ratio_row(name, protocol, part, _mean_run_s(condition, BENCH))
        for name, condition in _conditions(repetitions)
        for protocol, part in condition.groupby("protocol", sort=False)
    ]
    return pandas.DataFrame(rows)


def _ratios(part: pandas.DataFrame, numerator: str, denominator: str) -> dict[str, Any]:
    named = part[~part["control"]].pivot(index="round", columns="cell", values="latency_ms")
    control = part[part["control"]].set_index("round")
    if control.empty:
        return {"ratio": float(named[numerator].iloc[0] / named[denominator].iloc[0])}
    twin = named[control["cell"].iloc[0]]
    return {
        **_bounds("", _paired(named[numerator], named[denominator], LEVEL)),
        **_bounds("control_", _paired(control["latency_ms"], twin, CONTROL_LEVEL)),
    }


def _paired(above: pandas.Series, below: pandas.Series, level: float) -> Interval:
    both = pandas.concat([above, below], axis=1).dropna()
    interval = geometric_interval((both.iloc[:, 0] / both.iloc[:, 1]).tolist(), level)
    if interval is None:
        raise ValueError("a run of bench has fewer than two rounds in common")
    return interval


def _bounds(prefix: str, interval: Interval) -> dict[str, float]:
    return {f"{prefix}ratio": interval.estimate, f"{prefix}low": interval.low, f"{prefix}high": interval.high}


def _conditions(table: pandas.DataFrame) -> list[tuple[str, pandas.DataFrame]]:
    found = [(QUIET, table[~table["busy"]]), (BUSY, table[table["busy"]]), (ALL, table)]
    return [(name, part) for name, part in found if len(part)]


def _control_row(name: str, part: pandas.DataFrame) -> dict[str, Any]:
    holds = (part["control_low"] <= 1) & (part["control_high"] >= 1)
    widths = part["control_high"] / part["control_low"] - 1
    expected = expected_to_hold(len(part), CONTROL_LEVEL)
    return {
        "condition": name,
        "runs": len(part),
        "other_cores": float(part["other_cores"].mean()),
        "hold_1": int(holds.sum()),
        "expected": f"{expected[0]} to {expected[1]}",
        "width_median": float(widths.median()),
        "width_p90": float(widths.quantile(0.9)),
        "width_max": float(widths.max()),
        "mean_ratio": statistics.geometric_mean(part["control_ratio"]),
    }


def _mean_run_s(condition: pandas.DataFrame, protocol: str) -> float:
    return float(condition[condition["protocol"] == protocol]["run_s"].mean())


def _ratio_row(name: str, protocol: str, part: pandas.DataFrame, bench_s: float) -> dict[str, Any]:
    ratios = part["ratio"].tolist()
    mean = geometric_interval(ratios)
    found = spread(ratios) if mean else math.nan
    low, high = spread_interval(found, len(ratios) - 1) if mean else (math.nan, math.nan)
    run_s = float(part["run_s"].mean())
    return {
        "condition": name,
        "protocol": protocol,
        "runs": len(ratios),
        "run_s": run_s,
        "ratio": mean.estimate if mean else ratios[0],
        "smallest": min(ratios),
        "largest": max(ratios),
        "spread": found,
        "spread_low": low,
        "spread_high": high,
        "spread_at_equal_time": found * math.sqrt(run_s / bench_s),
        **_holding(name, part, mean if protocol == BENCH else None),
    }


def _holding(name: str, part: pandas.DataFrame, mean: Interval | None) -> dict[str, Any]:
    """How many of bench's 95 % intervals hold the condition's mean, and how many of as many may be expected to; of both conditions there is
    no one mean."""
    if mean is None or name == ALL:
        return {"holds": None, "expected": None}
    low, high = expected_to_hold(len(part), LEVEL)
    holds = (part["low"] <= mean.estimate) & (mean.estimate <= part["high"])
    return {"holds": int(holds.sum()), "expected": f"{low} to {high}"}


def busy_repetitions(num: int, *, first: bool = False) -> Sequence[bool]:
    """The second half is measured on a busy machine, or the first."""
    return [(number >= num // 2) != first for number in range(num)]

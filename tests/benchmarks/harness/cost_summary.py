"""What a session of `cost` shows: times, spreads between processes, and what each protocol would need for the width that bench reaches.

Pure functions on the tables that the session wrote. `readings`: `pass protocol process cell latency_ms low_ms high_ms`, one row per process and
cell, a round of bench being a process. `runs`: `pass protocol process wall_s timed_s`, one row per start of a protocol.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas

from tests.benchmarks.harness.readings import BENCH
from tests.benchmarks.harness.spread import half_width, pooled, processes_needed, relative_width, single_process_s, spread, spread_interval


def cells_table(readings: pandas.DataFrame) -> pandas.DataFrame:
    """One row per protocol and cell. `half_width`: of the 95 % t-interval over one pass's processes; `spread`: between processes of one pass;
    `own_half_width`: what a process says of itself; `own_holds`: the share of those intervals that hold the mean of their pass;
    `processes`: needed for bench's half-width (`_low`, `_high`: by the 95 % interval of the spread)."""
    table = pandas.DataFrame([_cell_row(keys, group) for keys, group in readings.groupby(["protocol", "cell"], sort=False)])
    wanted = table[table["protocol"] == BENCH].set_index("cell")["half_width"]
    needed = [_needed(row, wanted[row.cell]) for row in table.itertuples()]
    return pandas.concat([table, pandas.DataFrame(needed, index=table.index)], axis=1)


def protocols_table(cells: pandas.DataFrame, runs: pandas.DataFrame) -> pandas.DataFrame:
    """One row per protocol, over its cells by geometric means. Times in seconds, widths as high over low, less one. `width`: over the processes of
    one pass; `own_width`: what one process says of itself; `naive_s`: time to bench's width if that were true; `equal_width_s`: the number of fresh
    processes that the spread between them asks for, times the wall time of one; `every_cell_s` likewise for the worst cell."""
    wanted = _geometric(cells[cells["protocol"] == BENCH]["half_width"])
    groups = cells.groupby("protocol", sort=False)
    return pandas.DataFrame([_protocol_row(name, group, runs[runs["protocol"] == name], wanted) for name, group in groups])


def _cell_row(keys: tuple[str, str], group: pandas.DataFrame) -> dict[str, Any]:
    passes = [part["latency_ms"].tolist() for _, part in group.groupby("pass")]
    own = (np.log(group["high_ms"] / group["low_ms"]) / 2).dropna()
    return {
        "protocol": keys[0],
        "cell": keys[1],
        "latency_ms": _geometric(group["latency_ms"]),
        "num_passes": len(passes),
        "num_processes": len(passes[0]),
        "spread": pooled([spread(values) for values in passes]),
        "half_width": pooled([half_width(values) for values in passes]),
        "own_half_width": pooled(own.tolist()) if len(own) else math.nan,
        "own_holds": _share_that_holds(group),
    }


def _share_that_holds(group: pandas.DataFrame) -> float:
    """The truth is what the intervals are of, the geometric mean of samples, over the processes of a pass:
    it lies in the middle of each, on the log scale."""
    judged = group.dropna(subset=["low_ms"])
    means = np.sqrt(judged["low_ms"] * judged["high_ms"]).groupby(judged["pass"]).agg(_geometric)
    truth = judged["pass"].map(means)
    holds = (judged["low_ms"] <= truth) & (truth <= judged["high_ms"])
    return float(holds.mean()) if len(holds) else math.nan


def _needed(row: Any, wanted: float) -> dict[str, Any]:
    if row.protocol == BENCH:
        return {"processes": row.num_processes, "processes_low": None, "processes_high": None}
    low, high = spread_interval(row.spread, row.num_passes * (row.num_processes - 1))
    numbers = [processes_needed(found, wanted) for found in (row.spread, low, high)]
    return dict(zip(("processes", "processes_low", "processes_high"), numbers, strict=True))


def _protocol_row(name: str, cells: pandas.DataFrame, runs: pandas.DataFrame, wanted: float) -> dict[str, Any]:
    wall_s, timed_s = float(runs["wall_s"].mean()), float(runs["timed_s"].mean())
    own, between = _geometric(cells["own_half_width"]), _geometric(cells["spread"])
    found: dict[str, Any] = {
        "protocol": name,
        "wall_s": wall_s,
        "timed_s": timed_s,
        "processes_run": int(cells["num_processes"].iloc[0]),
        "width": relative_width(_geometric(cells["half_width"])),
        "own_width": relative_width(own),
        "own_holds": float(cells["own_holds"].mean()),
        "spread": between,
    }
    if name == BENCH:
        needs = {"processes": None, "equal_width_s": wall_s, "every_cell_processes": None, "every_cell_s": wall_s}
        return {**found, "naive_s": math.nan, **needs}
    processes, worst = processes_needed(between, wanted), cells["processes"].max(skipna=False)
    return {
        **found,
        "naive_s": single_process_s(wall_s - timed_s, timed_s, own, wanted),
        "processes": processes,
        "equal_width_s": processes * wall_s if processes else math.nan,
        "every_cell_processes": worst,
        "every_cell_s": worst * wall_s,
    }


def _geometric(values: pandas.Series) -> float:
    return float(np.exp(np.log(values).mean()))

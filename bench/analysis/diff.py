"""Compare two runs of the same cells.

Lists the cells whose times, counts or scores differ, that cannot be compared, and that fail a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from bench import catalog, numbers
from bench.analysis.frame import cell_names
from bench.analysis.latency_tests import DIFFERS, NOT_COMPARABLE, NOT_SHOWN, TOO_FEW, CellComparison, compare_cells
from bench.analysis.run_changes import ACCURACY_COLUMN, COUNTED_COLUMNS, Change, ScoreComparison, compare_trained, counted_changes, value_of
from bench.analysis.series import row_values
from bench.intervals import Interval
from bench.measure.hosts import host_differences, machine_differences
from bench.reading.store import StoredRun, read_runs
from bench.reading.table import references_of, rows_of, times_of
from bench.spec import MEASURED, RequestError

LATENCY_COLUMN = "latency_ms"
BOUND = re.compile(r"\s*(\w+)\s*([<>])\s*(\d+(?:\.\d+)?)\s*")
BOUNDED = (LATENCY_COLUMN, ACCURACY_COLUMN, *COUNTED_COLUMNS)
"""Columns that a bound may be set on."""
ORDER = (DIFFERS, NOT_COMPARABLE, TOO_FEW, NOT_SHOWN)
IDENTITY_COLUMNS = ("task", "width", "depth", "heads", "ffn_width", "batch_size", "phase", "engine", "dtype", "device", "attention")
"""Columns in which two cells of one model and length may differ."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The allowed ratio of a column, second run over first.

    `latency_ms>1.05` fails above 1.05.
    """

    column: str
    above: bool
    value: float

    def is_violated_by(self, ratio: float) -> bool:
        return ratio > self.value if self.above else ratio < self.value

    def is_passed_by(self, ratio: Interval) -> bool:
        """Return whether the whole interval lies beyond the bound."""
        return self.is_violated_by(ratio.low if self.above else ratio.high)

    @property
    def text(self) -> str:
        return f"{self.column}{'>' if self.above else '<'}{self.value:g}"


@dataclass(frozen=True, kw_only=True)
class BoundCheck:
    """Configurations checked against a bound.

    `failing`: one line per configuration that is shown to be beyond the bound, or has lost the value.
    `num_judged`: the number of configurations that were judged.
    """

    bound: Bound
    failing: tuple[str, ...]
    num_judged: int

    def require_judged(self) -> None:
        """Raise RequestError if the bound was tested on nothing."""
        if not self.failing and not self.num_judged:
            raise RequestError(
                f"`fail_if={self.bound.text}` tests nothing: no configuration has comparable {self.bound.column} in both runs",
                "measure it in both on one machine, with more rounds; see the reasons above",
            )


@dataclass(frozen=True, kw_only=True)
class TwoRuns:
    """The comparison of two runs.

    `first`, `second`: the names of the runs.
    `names`: the name of each cell.
    `differing`: facts about machine and software that differ.
    `cells`: latencies by cell.
    `ratios`: ids of the compared cells whose `ratio` both runs have, to one and the same cell.
    `changes`: counts and scores that differ.
    `trained`: the scores of trained models.
    `rows`: the rows of each run, by cell id.
    """

    first: str
    second: str
    names: Mapping[str, str]
    differing: Mapping[str, tuple[Any, Any]]
    cells: tuple[CellComparison, ...]
    ratios: tuple[str, ...]
    changes: tuple[Change, ...]
    trained: ScoreComparison
    rows: tuple[Mapping[str, dict[str, Any]], Mapping[str, dict[str, Any]]]

    def check(self, bound: Bound) -> BoundCheck:
        """Find the cells that fail a bound.

        A latency fails if the interval of its ratio lies beyond the bound, a score if its difference is shown and its ratio is beyond, a count if its
        ratio is beyond. A cell in both runs also fails if only the first run has the value.
        """
        beyond = self._beyond(bound)
        failing = [f"{self.names[cell]}: {bound.column} x {numbers.significant(ratio)}" for cell, ratio in beyond.items()]
        lost = [f"{self.names[cell]}: {bound.column} missing ({status} in the second run)" for cell, status in self._lost(bound.column)]
        return BoundCheck(bound=bound, failing=(*failing, *lost), num_judged=self._num_judged(bound.column) + len(lost))

    def _beyond(self, bound: Bound) -> dict[str, float]:
        if bound.column == LATENCY_COLUMN:
            return {c.cell_id: c.ratio.estimate for c in self.cells if c.ratio and bound.is_passed_by(c.ratio)}
        ratios = {c.cell_id: c.second / c.first for c in self.changes if c.column == bound.column and c.shown and c.first}
        return {cell: ratio for cell, ratio in ratios.items() if bound.is_violated_by(ratio)}

    def _lost(self, column: str) -> Iterator[tuple[str, str]]:
        for cell, row in self.rows[0].items():
            other = self.rows[1].get(cell)
            if other is not None and value_of(row, column) is not None and value_of(other, column) is None:
                yield cell, str(other["status"]) if other["status"] != MEASURED else "not measured"
        if column == ACCURACY_COLUMN:
            yield from ((cell, "fewer seeds than planned") for cell in self.trained.lost)

    def _num_judged(self, column: str) -> int:
        if column == LATENCY_COLUMN:
            return sum(c.verdict in (DIFFERS, NOT_SHOWN) for c in self.cells)
        if column == ACCURACY_COLUMN:
            return sum(name == column and cell not in self.trained.lost for cell, name in self.trained.compared.items())
        return sum(all(value_of(rows.get(cell, {}), column) is not None for rows in self.rows) for cell in self.rows[0])


def parse_bound(text: str) -> Bound:
    """Parse a column, < or >, and a ratio; raise RequestError otherwise."""
    match = BOUND.fullmatch(text)
    if match is None or not float(match[3]):
        raise RequestError(
            f"`fail_if` cannot read {text!r}: it takes a column and a ratio, second run over first",
            "try `fail_if=latency_ms>1.05`",
        )
    column, sign, value = match.groups()
    if column not in BOUNDED:
        raise catalog.unknown("column of `fail_if`:", column, BOUNDED, "bench diff --help")
    return Bound(column=column, above=sign == ">", value=float(value))


def compare_folders(first: Path, second: Path, fail_if: str | None) -> tuple[TwoRuns, BoundCheck | None]:
    """Compare two runs, and check the bound if there is one. Raises RequestError."""
    bound = None if fail_if is None else parse_bound(fail_if)
    found = compare_two(*read_runs((first, second)))
    return found, found.check(bound) if bound else None


def compare_two(first: StoredRun, second: StoredRun) -> TwoRuns:
    """Compare every cell of either run.

    Times are compared only between hosts of one type. Raises RequestError if the runs have no cell in common.
    """
    tables = [rows_of(run) for run in (first, second)]
    rows = ({row["cell_id"]: row for row in row_values(tables[0])}, {row["cell_id"]: row for row in row_values(tables[1])})
    if not rows[0].keys() & rows[1].keys():
        raise RequestError(
            f"{first.folder} and {second.folder} have no configuration in common{_nearest(*rows)}",
            f"run the same request twice: bench run --plan {first.folder} --out NEW",
        )
    cells = sorted(compare_cells(times_of(first), times_of(second), _reasons(first, second, rows)), key=lambda c: ORDER.index(c.verdict))
    compared, others, trained = {c.cell_id for c in cells if c.ratio}, references_of(second.plan), compare_trained(first, second)
    paired = [cell for cell, reference in references_of(first.plan).items() if cell in compared and others.get(cell) == reference]
    return TwoRuns(
        first=first.folder.resolve().name,
        second=second.folder.resolve().name,
        names=cell_names(pandas.concat(tables).drop_duplicates("cell_id")),
        differing=host_differences(first.environment, second.environment),
        cells=tuple(cells),
        ratios=tuple(cell for cell in paired if all(value_of(found[cell], "ratio") for found in rows)),
        changes=(*counted_changes(*rows), *trained.changes),
        trained=trained,
        rows=rows,
    )


def _nearest(first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]]) -> str:
    """Say how two similar cells differ, for an error message.

    The cells are the first two of one model and length.
    """
    for row in first.values():
        for other in second.values():
            if (row["model"], row["seq_len"]) == (other["model"], other["seq_len"]):
                pairs = [(key, str(row.get(key)), str(other.get(key))) for key in IDENTITY_COLUMNS]
                differing = [f"{key}: {before} and {after}" for key, before, after in pairs if before != after]
                return f"; {row['model']} n={row['seq_len']} differs in {', '.join(differing)}" if differing else ""
    return ""


def _reasons(first: StoredRun, second: StoredRun, rows: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Say of each cell why its times cannot be compared; empty if they can.

    A cell is missing in one run, was not measured, or the machines differ.
    """
    if not any("latency" in run.plan.metrics for run in (first, second)):
        return {}
    differing = machine_differences(first.environment, second.environment)
    machine = "; ".join(f"{key}: {before!r} and {after!r}" for key, (before, after) in differing.items())
    found = dict.fromkeys([*rows[0], *rows[1]], machine)
    for cell in found:
        for name, own, times in zip(("first", "second"), rows, map(times_of, (first, second)), strict=True):
            if cell not in own:
                found[cell] = f"not in the {name} run"
            elif not times.get(cell):
                status = own[cell]["status"]
                found[cell] = f"{status if status != MEASURED else 'not timed'} in the {name} run"
    return found

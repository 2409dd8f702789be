"""Compare two runs of the same cells: times, counts and scores that differ, cells that cannot be compared, and those that fail a bound.

Times are compared only between hosts of one type.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from bench import catalog, numbers
from bench.analysis.accuracy import Row, compare_scores, seed_caveat
from bench.analysis.frame import cell_names
from bench.intervals import ROUNDING, Interval, joint_level
from bench.measure.hosts import host_differences, machine_differences
from bench.reading.store import StoredRun, read_runs
from bench.reading.table import SeedScores, item_scores_of, references_of, row_values, rows_of
from bench.spec import MEASURED, RequestError

COUNTED_COLUMNS = ("params", "flops", "peak_memory_bytes")
"""Columns that are equal in every run of the same code."""
ACCURACY_COLUMN, SQUARED_ERROR = "accuracy", "-MSE"
"""The columns of test scores.

`accuracy` is the share of right answers, `-MSE` minus the squared error.
"""
OPEN = "too few items to decide"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A value of one cell that differs between two runs.

    `low`, `high`: bounds of the difference of two scores, second minus first, which hold for all compared ones together; None for counts, and
    for scores without an interval.
    `caveat`: why a difference in scores is not claimed; empty if it may be.
    """

    cell_id: str
    column: str
    first: float
    second: float
    low: float | None = None
    high: float | None = None
    caveat: str = ""

    @property
    def shown(self) -> bool:
        return not self.caveat and (self.low is None or self.high is None or not self.low <= 0 <= self.high)


@dataclass(frozen=True, kw_only=True)
class ScoreComparison:
    """The scores of models that both runs trained.

    `compared`: the score column of every tested cell, by cell id.
    `changes`: the scores that differ.
    `untested`: why a cell could not be tested, by cell id.
    `lost`: ids of the cells that miss planned seeds in the second run but not in the first.
    """

    compared: Mapping[str, str]
    changes: tuple[Change, ...]
    untested: Mapping[str, str]
    lost: tuple[str, ...]


def value_of(row: Row, column: str) -> float | None:
    """Return a finite number from a row, else None."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def counted_changes(first: Mapping[str, Row], second: Mapping[str, Row]) -> Iterator[Change]:
    """Yield the counts that differ; `first` and `second` are by cell id."""
    for cell_id, row in first.items():
        for column in COUNTED_COLUMNS:
            before, after = value_of(row, column), value_of(second.get(cell_id, {}), column)
            if before is not None and after is not None and before != after:
                yield Change(cell_id=cell_id, column=column, first=before, second=after)


def compare_trained(first: StoredRun, second: StoredRun) -> ScoreComparison:
    """Compare the mean scores of models that both runs trained.

    Both must be scored on the same items. The intervals hold for all models together (Bonferroni). A difference is claimed only if each run has at
    least five seeds and none is missing (decision 7). A model with a tuned learning rate is compared as tuned.
    """
    scores = [item_scores_of(run) for run in (first, second)]
    data = [_data_ids(run) for run in (first, second)]
    untested: dict[str, str] = {}
    pairs: dict[tuple[str, str], str] = {}
    for cell in (cell for cell in scores[0] if cell in scores[1]):
        before, after = scores[0][cell], scores[1][cell]
        if data[0].get(before.training) != data[1].get(after.training):
            untested[cell] = "trained or tested on different data"
        elif not before.scores.shape[1] == after.scores.shape[1] >= 2:
            untested[cell] = "scored on different numbers of test items, or on one"
        else:
            pairs.setdefault((before.training, after.training), cell)
    cells = list(pairs.values())
    level = joint_level(len(cells))
    differences = {cell: compare_scores(scores[1][cell].scores, scores[0][cell].scores, level) for cell in cells}
    columns = {cell: _column(scores[0][cell]) for cell in cells}
    changes = [
        Change(
            cell_id=cell,
            column=columns[cell],
            first=float(scores[0][cell].scores.mean()),
            second=float(scores[1][cell].scores.mean()),
            low=found.bounds[0],
            high=found.bounds[1],
            caveat=seed_caveat([(len(scores[i][cell].seeds), run.plan.seeds_by_cell[cell]) for i, run in enumerate((first, second))])
            or (OPEN if found.is_open else ""),
        )
        for cell, found in differences.items()
        if found.estimate
    ]
    lost = [cell for cell in cells if _lacks_seeds(cell, scores[1], second) and not _lacks_seeds(cell, scores[0], first)]
    return ScoreComparison(compared=columns, changes=tuple(changes), untested=untested, lost=tuple(lost))


def _lacks_seeds(cell: str, scores: Mapping[str, SeedScores], run: StoredRun) -> bool:
    return len(scores[cell].seeds) < run.plan.seeds_by_cell[cell]


def _column(scores: SeedScores) -> str:
    return ACCURACY_COLUMN if (scores.scores >= 0).all() else SQUARED_ERROR


def _data_ids(run: StoredRun) -> dict[str, Any]:
    return {r.subject_id: r.outcome.values.get("data_id") for r in run.records if r.metric == "accuracy" and r.outcome.status == MEASURED}


DIFFERS, NOT_SHOWN = "differs between these two occasions", "no significant difference"
TOO_FEW, NOT_COMPARABLE = "too few rounds to decide", "not comparable"
Readings = Mapping[int, float]
"""Latency in ms by round."""


@dataclass(frozen=True, kw_only=True)
class CellComparison:
    """One cell in two runs.

    `reason`: why it cannot be compared; empty if it can.
    `ratio`: latency in the second run over the first; None if not comparable.
    `rounds`: rounds of the first and of the second run.
    """

    cell_id: str
    reason: str
    ratio: Interval | None
    rounds: tuple[int, int]

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return NOT_COMPARABLE
        return TOO_FEW if self.ratio.is_open else NOT_SHOWN if self.ratio.contains(1.0) else DIFFERS


def compare_cells(first: Mapping[str, Readings], second: Mapping[str, Readings], reasons: Mapping[str, str]) -> Iterator[CellComparison]:
    """Compare cells at a level that holds for all compared ones together (Bonferroni).

    `reasons`: by cell id, why it cannot be compared; empty if it can.
    """
    level = joint_level(sum(not reason for reason in reasons.values()))
    for cell, reason in reasons.items():
        before, after = (list(run.get(cell, {}).values()) for run in (first, second))
        ratio = None if reason else shift(before, after, level)
        yield CellComparison(cell_id=cell, reason=reason, ratio=ratio, rounds=(len(before), len(after)))


def shift(first: Collection[float], second: Collection[float], level: float) -> Interval:
    """Return the median ratio of the second times to the first, over all pairs (Hodges and Lehmann 1963).

    The interval inverts the exact rank-sum test (Mann and Whitney 1947). Rounds that are too few for the level have the range of the ratios.
    """
    logs = sorted(math.log(after / before) for before in first for after in second)
    rank = sum(2 * tail <= 1 - level + ROUNDING for tail in _rank_sum_tails(len(first), len(second)))
    low, high = (logs[rank - 1], logs[-rank]) if rank else (-math.inf, math.inf)
    span = None if rank else (logs[0], logs[-1])
    return Interval(estimate=statistics.median(logs), low=low, high=high, num=len(logs), span=span).exp()


@functools.cache
def _rank_sum_tails(first: int, second: int) -> tuple[float, ...]:
    """Return the probabilities that the rank-sum statistic of two samples of these sizes is at most 0, 1, ...

    The ways to attain each value are the coefficients of the product of (1 - x^(second + i)) / (1 - x^i) over i = 1 to `first`.
    """
    ways = [1] + [0] * (first * second)
    for i in range(1, first + 1):
        for place in range(first * second, second + i - 1, -1):
            ways[place] -= ways[place - second - i]
        for place in range(i, first * second + 1):
            ways[place] += ways[place - i]
    return tuple(num / sum(ways) for num in itertools.accumulate(ways))


LATENCY_COLUMN = "latency_ms"
BOUND = re.compile(r"\s*(\w+)\s*([<>])\s*(\d+(?:\.\d+)?)\s*")
BOUNDED = (LATENCY_COLUMN, ACCURACY_COLUMN, *COUNTED_COLUMNS)
"""Columns that a bound may be set on."""
ORDER = (DIFFERS, NOT_COMPARABLE, TOO_FEW, NOT_SHOWN)


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
            f"{first.folder} and {second.folder} have no configuration in common",
            f"run the same request twice: bench run --plan {first.folder} --out NEW",
        )
    cells = sorted(compare_cells(first.times, second.times, _reasons(first, second, rows)), key=lambda c: ORDER.index(c.verdict))
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
        for name, own, times in zip(("first", "second"), rows, (first.times, second.times), strict=True):
            if cell not in own:
                found[cell] = f"not in the {name} run"
            elif not times.get(cell):
                status = own[cell]["status"]
                found[cell] = f"{status if status != MEASURED else 'not timed'} in the {name} run"
    return found

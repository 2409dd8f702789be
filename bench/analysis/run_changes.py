"""Compare counts and trained scores of two runs of the same cells.

Sizes and counts are compared exactly, scores by tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.analysis.significance import ONE_SEED, SEEDS_LOST, Row, ScoreDifference, compare_scores, holm
from bench.intervals import LEVEL
from bench.reading.store import StoredRun
from bench.reading.table import SeedScores, item_scores_of
from bench.spec import MEASURED

COUNTED_COLUMNS = ("params", "flops", "peak_memory_bytes")
"""Columns that are equal in every run of the same code."""
ACCURACY_COLUMN, SQUARED_ERROR = "accuracy", "-MSE"
"""The columns of test scores.

`accuracy` is the share of right answers, `-MSE` minus the squared error.
"""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A value of one cell that differs between two runs.

    `p_adjusted`: Holm's p-value over all compared scores; None for counts.
    `caveat`: why a difference in scores is not claimed; empty if it may be.
    """

    cell_id: str
    column: str
    first: float
    second: float
    p_adjusted: float | None = None
    caveat: str = ""

    @property
    def shown(self) -> bool:
        return not self.caveat and (self.p_adjusted is None or self.p_adjusted < 1 - LEVEL)


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
    """Test the mean scores of models that both runs trained.

    Both must be scored on the same items. Holm's correction covers all tests. A difference is claimed only if each run has at least two seeds and
    none is missing (decision 7). A model with a tuned learning rate is compared as tuned.
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
    tested = [compare_scores(scores[1][cell].scores, scores[0][cell].scores) for cell in cells]
    adjusted = holm([difference.p_value for difference in tested])
    columns = {cell: _column(scores[0][cell]) for cell in cells}
    changes = [
        Change(
            cell_id=cell,
            column=columns[cell],
            first=float(scores[0][cell].scores.mean()),
            second=float(scores[1][cell].scores.mean()),
            p_adjusted=p_value,
            caveat=_caveat(difference, [(scores[i][cell], run) for i, run in enumerate((first, second))]),
        )
        for cell, difference, p_value in zip(cells, tested, adjusted, strict=True)
        if difference.estimate
    ]
    lost = [cell for cell in cells if _lacks_seeds(scores[1][cell], second) and not _lacks_seeds(scores[0][cell], first)]
    return ScoreComparison(compared=columns, changes=tuple(changes), untested=untested, lost=tuple(lost))


def _lacks_seeds(scores: SeedScores, run: StoredRun) -> bool:
    return len(scores.seeds) < run.plan.settings.seeds


def _caveat(difference: ScoreDifference, trained: Sequence[tuple[SeedScores, StoredRun]]) -> str:
    if any(_lacks_seeds(scores, run) for scores, run in trained):
        return SEEDS_LOST
    return "" if difference.over_seeds else ONE_SEED


def _column(scores: SeedScores) -> str:
    return ACCURACY_COLUMN if (scores.scores >= 0).all() else SQUARED_ERROR


def _data_ids(run: StoredRun) -> dict[str, Any]:
    return {r.subject_id: r.outcome.values.get("data_id") for r in run.records if r.metric == "accuracy" and r.outcome.status == MEASURED}

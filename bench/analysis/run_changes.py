"""What else differs between two runs of the same cells: sizes and counts, which are compared exactly, and what trained models score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.analysis.significance import LEVEL, ONE_SEED, Difference, Row, compare_scores, holm
from bench.running.store import StoredRun
from bench.running.table import SeedScores, item_scores_of
from bench.spec import MEASURED

COUNTED = ("params", "flops", "peak_memory_bytes")
"""What is the same in every run of the same code: any difference is a change."""
ACCURACY, SQUARED_ERROR = "accuracy", "-MSE"
"""What test items score: a share of right answers, or minus the squared error."""
SEEDS_LOST = "seeds were lost"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A value of one cell that differs between the runs. Of scores `p_adjusted` is over all that were compared, and `doubt` says why a difference is
    not claimed whatever it is."""

    cell_id: str
    column: str
    first: float
    second: float
    p_adjusted: float | None = None
    doubt: str = ""

    @property
    def shown(self) -> bool:
        return not self.doubt and (self.p_adjusted is None or self.p_adjusted < 1 - LEVEL)


@dataclass(frozen=True, kw_only=True)
class ScoreComparison:
    """Of trained models: `compared` are all whose scores were tested, with the column, `changes` those that differ; `untested` says by cell why it
    could not be; `lost` are the cells whose second run lacks seeds that it was to train, and whose first does not."""

    compared: Mapping[str, str]
    changes: tuple[Change, ...]
    untested: Mapping[str, str]
    lost: tuple[str, ...]


def value_of(row: Row, column: str) -> float | None:
    """A row's figure; None where it has none."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def counted_changes(first: Mapping[str, Row], second: Mapping[str, Row]) -> Iterator[Change]:
    """Rows by cell id."""
    for cell_id, row in first.items():
        for column in COUNTED:
            before, after = value_of(row, column), value_of(second.get(cell_id, {}), column)
            if before is not None and after is not None and before != after:
                yield Change(cell_id=cell_id, column=column, first=before, second=after)


def compare_trained(first: StoredRun, second: StoredRun) -> ScoreComparison:
    """The mean scores of models that both runs trained, tested on the same items; corrected for their number.

    Only models with two seeds at least in each run, and none lost, are claimed to differ (decision 7). A model whose learning rate was tuned is
    compared as tuned.
    """
    scores = [item_scores_of(run) for run in (first, second)]
    data = [_data_ids(run) for run in (first, second)]
    untested: dict[str, str] = {}
    pairs: dict[tuple[str, str], str] = {}
    for cell in (cell for cell in scores[0] if cell in scores[1]):
        before, after = scores[0][cell], scores[1][cell]
        if data[0].get(before.training) != data[1].get(after.training):
            untested[cell] = "trained or tested on other data"
        elif not before.scores.shape[1] == after.scores.shape[1] >= 2:
            untested[cell] = "scored on another number of test items"
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
            doubt=_doubt(difference, [(scores[i][cell], run) for i, run in enumerate((first, second))]),
        )
        for cell, difference, p_value in zip(cells, tested, adjusted, strict=True)
        if difference.estimate
    ]
    lost = [cell for cell in cells if _lacks_seeds(scores[1][cell], second) and not _lacks_seeds(scores[0][cell], first)]
    return ScoreComparison(compared=columns, changes=tuple(changes), untested=untested, lost=tuple(lost))


def _lacks_seeds(scores: SeedScores, run: StoredRun) -> bool:
    return len(scores.seeds) < run.plan.settings.seeds


def _doubt(difference: Difference, trained: Sequence[tuple[SeedScores, StoredRun]]) -> str:
    if any(_lacks_seeds(scores, run) for scores, run in trained):
        return SEEDS_LOST
    return "" if difference.over_seeds else ONE_SEED


def _column(scores: SeedScores) -> str:
    return ACCURACY if (scores.scores >= 0).all() else SQUARED_ERROR


def _data_ids(run: StoredRun) -> dict[str, Any]:
    return {r.subject_id: r.outcome.values.get("data_id") for r in run.records if r.metric == "accuracy" and r.outcome.status == MEASURED}

"""A run as the effects of its arms see it: rows, item scores, data and seeds by cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas

from bench.analysis.effects import Observations
from bench.analysis.series import Timings, row_values
from bench.render.report_data import ReportData
from bench.spec import MEASURED, Record, training_id
from bench.tuning import recipe_of

PER_SEED: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "perplexity": lambda values: math.exp(values["cross_entropy"]) if values.get("cross_entropy") is not None else None
}
"""What is compared seed by seed, since no item has a score of its own, and how a record tells it."""


def observations_of(frame: pandas.DataFrame, data: ReportData, timings: Timings) -> Observations:
    """`frame` is prepared."""
    trainings = _trainings(data)
    found = {cell_id: values for cell_id, values in trainings.items() if values}
    return Observations(
        rows={row["cell_id"]: row for row in row_values(frame)},
        scores=data.scores,
        data_ids={cell_id: str(records[0].outcome.values.get("data_id") or "") for cell_id, records in found.items()},
        seed_values={name: _by_cell(found, told) for name, told in PER_SEED.items()},
        timings=timings,
        num_seeds=data.plan.settings.seeds,
    )


def _trainings(data: ReportData) -> Mapping[str, list[Record]]:
    """The measured trainings of every cell."""
    by_subject: dict[str, list[Record]] = {}
    for record in data.records:
        if record.metric == "accuracy" and record.outcome.status == MEASURED:
            by_subject.setdefault(record.subject_id, []).append(record)
    found = {}
    for planned in data.plan.cells if by_subject else ():
        recipe = recipe_of(planned.cell, data.plan, data.records)
        found[planned.cell.cell_id] = by_subject.get(training_id(planned.cell, recipe), []) if recipe else []
    return found


def _by_cell(trainings: Mapping[str, list[Record]], told: Callable[[Mapping[str, Any]], float | None]) -> Mapping[str, tuple[float, ...]]:
    """One value per seed, for the cells that have any."""
    found = {}
    for cell_id, records in trainings.items():
        values = [told(record.outcome.values) for record in records]
        if known := tuple(value for value in values if value is not None):
            found[cell_id] = known
    return found

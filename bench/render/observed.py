"""A run as the effects of its arms see it: rows, item scores, data and seeds by cell."""

from __future__ import annotations

from collections.abc import Mapping

import pandas

from bench.analysis.effects import Observations
from bench.analysis.series import Timings
from bench.render.report_data import ReportData
from bench.spec import MEASURED, Record, training_id
from bench.tuning import recipe_of

PER_SEED = ("perplexity",)
"""What is compared seed by seed, since it is no mean over items."""


def observations_of(frame: pandas.DataFrame, data: ReportData, timings: Timings) -> Observations:
    """`frame` is prepared."""
    trainings = _trainings(data)
    found = {cell_id: values for cell_id, values in trainings.items() if values}
    return Observations(
        rows={row["cell_id"]: row for row in frame.to_dict("records")},
        scores=data.scores,
        data_ids={cell_id: str(records[0].outcome.values.get("data_id") or "") for cell_id, records in found.items()},
        seed_values={
            name: {cell_id: values for cell_id, records in found.items() if (values := _values(records, name))} for name in PER_SEED
        },
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


def _values(records: list[Record], name: str) -> tuple[float, ...]:
    return tuple(float(record.outcome.values[name]) for record in records if record.outcome.values.get(name) is not None)

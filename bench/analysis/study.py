"""Everything known of a run, worked out once: rows, verdicts, effects, growth, crossovers, rankings, trust."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas

from bench.analysis.effects import Effect, Observations, contrasts_of, effects_of, with_baselines
from bench.analysis.evidence import Evidence
from bench.analysis.growth import Growth, growth_of
from bench.analysis.predictions import Outcome, judge_predictions
from bench.analysis.regimes import usable_for_scaling
from bench.analysis.run_crossovers import ClosedCrossing, EqualTerms, PairCrossing, closed_pairs, equal_terms, measured_pairs
from bench.analysis.series import Timings, row_values, timings_of
from bench.analysis.significance import Scores
from bench.analysis.verdicts import Verdict, judge
from bench.planning.tuning import recipe_of
from bench.spec import MEASURED, Plan, Record, training_id


@dataclass(frozen=True, kw_only=True)
class Study:
    """`verdicts` on the claims; `growth` of every series; where two cost the same, `measured` and by `closed` form; where a model's own terms are
    `equal`; `effects` of an ablation's arms and the `outcomes` of its predictions; `doubt`: why nothing timed may be decided."""

    verdicts: Sequence[Verdict]
    growth: Sequence[Growth]
    measured: Sequence[PairCrossing]
    closed: Sequence[ClosedCrossing]
    equal: Sequence[EqualTerms]
    effects: Sequence[Effect] = ()
    outcomes: Sequence[Outcome] = ()
    doubt: str = ""


def study_of(frame: pandas.DataFrame, data: ReportData) -> Study:
    """`frame` is prepared."""
    evidence = evidence_of(frame, data)
    observed = observations_of(frame, data, evidence.timings)
    predictions = with_baselines(data.plan.question.predictions if data.plan.question else (), data.plan.parts)
    contrasts = contrasts_of(data.plan.parts, predictions, observed.rows)
    effects = effects_of(contrasts, observed)
    return Study(
        verdicts=judge(evidence),
        growth=growth_of(frame, evidence.timings, evidence.usable),
        measured=measured_pairs(frame, evidence.timings),
        closed=closed_pairs(data.plan),
        equal=equal_terms(data.plan),
        effects=effects,
        outcomes=judge_predictions(predictions, contrasts, effects, doubt=evidence.doubt, quick=evidence.quick),
        doubt=evidence.doubt,
    )


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


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """A run as data: nothing here is measured or read from disk by the report.

    `rows`: one row per cell (docs: Records and tables); missing columns count as empty. `environment`: facts by name; whatever is there is shown.
    `control`: the A/A control, with `cell`, `ratio`, `low`, `high`, `contains_one` and `level`; None where none was run. `findings`: advice on
    trust, one sentence each. `rounds`: `cell_id`, `round`, `latency_ms`, for ratios paired by round; without it, ratios are of medians.
    `folders`: the names of the runs that were merged. `scores`: the test items' scores of every trained model, by cell id. `records`: all of them.
    """

    name: str
    plan: Plan
    rows: pandas.DataFrame
    environment: Mapping[str, Any]
    control: Mapping[str, Any] | None = None
    findings: tuple[str, ...] | list[str] = ()
    rounds: pandas.DataFrame | None = None
    folders: tuple[str, ...] = ()
    scores: Mapping[str, Scores] = field(default_factory=dict)
    records: tuple[Record, ...] = ()


def evidence_of(frame: pandas.DataFrame, data: ReportData) -> Evidence:
    """The run as its claims see it; `frame` is prepared."""
    return Evidence(
        frame=frame,
        timings=timings_of(data.rounds),
        usable=frozenset(usable_for_scaling(frame)["cell_id"]),
        scores=data.scores,
        doubt=_doubt(data),
        quick=data.plan.settings.quick,
    )


def _doubt(data: ReportData) -> str:
    """Why nothing timed may be decided; "" where it may."""
    if data.plan.settings.quick:
        return "A quick run decides nothing: few rounds, short limits."
    if data.control is not None and not data.control.get("contains_one"):
        return "The A/A control leaves out 1: the machine was too noisy."
    return ""

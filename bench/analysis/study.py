"""Everything known of a run, worked out once and when first asked for: rows, verdicts, effects, growth, crossovers, rankings, trust.

Terminal, page, verdicts, the index of results and the comparison of cost with quality read it; `bench check` asks for the findings alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas

from bench.analysis.claims import Verdict, withheld
from bench.analysis.crossover import ClosedCrossing, ClosedForm, PairCrossing, closed_forms, closed_pairs, measured_pairs
from bench.analysis.effects import Contrast, Effect, Observations, contrasts_of, effects_of, with_baselines
from bench.analysis.evidence import Evidence
from bench.analysis.frame import cells, prepare, varying
from bench.analysis.growth import Growth, growth_of
from bench.analysis.kernel_shares import KernelShare, kernel_shares
from bench.analysis.peer_targets import absent_arms, judge_target, with_targets
from bench.analysis.peers import Standing, standing_of
from bench.analysis.predictions import judge_prediction
from bench.analysis.quadratic_terms import flops_by_degree, quadratic_home
from bench.analysis.ranking import Ranking, rank_latency
from bench.analysis.regimes import limits, regimes, usable_for_scaling
from bench.analysis.saturation import Saturation, saturations
from bench.analysis.series import row_values
from bench.analysis.trust import Finding, findings
from bench.analysis.verdicts import judge
from bench.planning.timing import GROWTH, compared_lengths
from bench.planning.tuning import recipe_of
from bench.running.merge import merge_runs, rows_of_runs
from bench.running.store import StoredRun, superseded
from bench.running.table import SeedScores, control_of, is_extended, item_scores_of, num_missing, times_of
from bench.running.timings import Timings
from bench.spec import MEASURED, Plan, Prediction, Record, training_id


@dataclass(frozen=True, kw_only=True)
class Study:
    """One run, or several merged into one.

    `folders`: the names of the runs. `rows`: the table, one row per cell (docs/columns.md); missing columns count as empty. `control`: the A/A
    control, with `cell`, `ratio`, `low`, `high`, `contains_one` and `level`; None where none was run. `findings`: what there is to object to.
    `timings`: of every cell by round, and its bursts beside others'; without, ratios are of medians. `scores`: the test items' scores of
    every trained model, by cell id. `records`: all of them. `superseded`: what of it a later run replaces, and why; "" for none.
    """

    name: str
    plan: Plan
    rows: pandas.DataFrame
    environment: Mapping[str, Any]
    control: Mapping[str, Any] | None = None
    findings: Sequence[Finding] = ()
    timings: Timings = field(default_factory=Timings)
    folders: tuple[str, ...] = ()
    scores: Mapping[str, SeedScores] = field(default_factory=dict)
    records: tuple[Record, ...] = ()
    superseded: str = ""

    @functools.cached_property
    def frame(self) -> pandas.DataFrame:
        """The rows with every column (`bench.analysis.frame`); a cell in several parts of the plan has a row in each."""
        return prepare(self.rows, self.plan.parts)

    @functools.cached_property
    def cells(self) -> pandas.DataFrame:
        """The frame with one row per cell."""
        return cells(self.frame)

    @functools.cached_property
    def row_by_cell(self) -> Mapping[str, Mapping[str, Any]]:
        """The frame's rows by cell id."""
        return {row["cell_id"]: row for row in row_values(self.frame)}

    @functools.cached_property
    def doubt(self) -> str:
        """Why nothing timed may be decided; "" where it may."""
        if self.plan.settings.quick:
            return "A quick run decides nothing: few rounds, short limits."
        if self.control is not None and not self.control.get("contains_one") and not self.control.get("interleaved"):
            return "The A/A control leaves out 1: the machine was too noisy."
        return ""

    @functools.cached_property
    def evidence(self) -> Evidence:
        """The run as its claims see it."""
        return Evidence(
            frame=self.frame,
            timings=self.timings,
            usable=frozenset(usable_for_scaling(self.frame, self.timings.in_groups(GROWTH))["cell_id"]),
            scores={cell_id: found.scores for cell_id, found in self.scores.items()},
            doubt=self.doubt,
            quick=self.plan.settings.quick,
        )

    @functools.cached_property
    def verdicts(self) -> Sequence[Verdict]:
        """On the claims about quadratic cost."""
        return judge(self.evidence)

    @functools.cached_property
    def rankings(self) -> Sequence[Ranking]:
        """Which model is fastest at each size, length and workload."""
        frame, places = self.frame, compared_lengths(self.plan)
        lengths = [places.get(cell_id, n) for cell_id, n in zip(frame["cell_id"], frame["seq_len"], strict=True)]
        own = [f" (n = {n:.0f})" if n != place else "" for n, place in zip(frame["seq_len"], lengths, strict=True)]
        placed = frame.assign(seq_len=lengths, label=frame["label"] + own)
        return rank_latency(placed, (*varying(frame), "size", "seq_len"), self.timings, self.plan.settings.margin)

    @functools.cached_property
    def growth(self) -> Sequence[Growth]:
        """Of every series with n."""
        return growth_of(self.evidence.shaped, self.evidence.fits)

    @functools.cached_property
    def measured_crossovers(self) -> Sequence[PairCrossing]:
        """Where two series were measured to cost the same."""
        return measured_pairs(self.evidence.shaped, self.timings)

    @functools.cached_property
    def closed_crossovers(self) -> Sequence[ClosedCrossing]:
        """Where two models cost the same by their closed forms."""
        return closed_pairs(self.plan)

    @functools.cached_property
    def closed_forms(self) -> Sequence[ClosedForm]:
        """The cost of every model that keeps its shape, and where its quadratic term is as large as its linear one."""
        return closed_forms(self.plan)

    @functools.cached_property
    def flops_by_degree(self) -> pandas.DataFrame:
        """FLOPs of every cell by power of n."""
        return flops_by_degree(self.plan)

    @functools.cached_property
    def quadratic_home(self) -> pandas.DataFrame:
        """Where the n^2 of every model lives: weights or activations."""
        return quadratic_home(self.plan)

    @functools.cached_property
    def regimes(self) -> pandas.DataFrame:
        """What bounds each cell: launches, bytes or arithmetic."""
        return regimes(self.cells)

    @functools.cached_property
    def limits(self) -> pandas.DataFrame:
        """How far the cells of the frame that have a roofline are from it."""
        return limits(self.frame)

    @functools.cached_property
    def saturations(self) -> Sequence[Saturation]:
        """Where sweeps of batch size and length saturate."""
        return saturations(self.cells, self.plan.ladders, self.timings)

    @functools.cached_property
    def predictions(self) -> Sequence[Prediction]:
        """Of the plan's question, each against its part's baseline where it names no other arm; beside peers, the targets too."""
        found = self.plan.question.predictions if self.plan.question else ()
        return with_baselines(with_targets(found, self.plan.parts) if self.peers else found, self.plan.parts)

    @functools.cached_property
    def observations(self) -> Observations:
        """The run as the effects of its arms see it: rows, item scores, data and seeds by cell."""
        trainings = _trainings(self.plan, self.records)
        found = {cell_id: records for cell_id, records in trainings.items() if records}
        return Observations(
            rows=self.row_by_cell,
            scores=self.evidence.scores,
            data_ids={cell_id: str(records[0].outcome.values.get("data_id") or "") for cell_id, records in found.items()},
            seed_values={name: _by_cell(found, value_of) for name, value_of in PER_SEED.items()},
            timings=self.timings,
            num_seeds=self.plan.settings.seeds,
        )

    @property
    def _has_arms(self) -> bool:
        return any(part.arms for part in self.plan.parts)

    @functools.cached_property
    def contrasts(self) -> Sequence[Contrast]:
        """The pairs of arms that are compared; none in a run without arms."""
        return contrasts_of(self.plan.parts, self.predictions, self.row_by_cell) if self._has_arms else ()

    @functools.cached_property
    def effects(self) -> Sequence[Effect]:
        """Of an ablation's arms, each against its part's baseline."""
        return effects_of(self.contrasts, self.observations) if self.contrasts else ()

    @functools.cached_property
    def outcomes(self) -> Sequence[Verdict]:
        """On the predictions, in their order."""
        found = [
            judge_target(prediction, self.peers, absent_arms(prediction.part, self.predictions, self.plan.parts))
            if self.peers and prediction.is_target
            else judge_prediction(prediction, self.contrasts, self.effects)
            for prediction in self.predictions
        ]
        return [withheld(verdict, self.doubt, quick=self.plan.settings.quick) for verdict in found]

    @functools.cached_property
    def peers(self) -> Standing | None:
        """Our models beside the peers'; None where the run compares with none."""
        return standing_of(self.plan.parts, self.row_by_cell, self.timings) if self._has_arms else None

    @functools.cached_property
    def kernel_shares(self) -> Sequence[KernelShare]:
        """How much of "attention is faster" is kernel."""
        return kernel_shares(self.peers, self.timings) if self.peers else ()


def study(*runs: StoredRun, name: str = "") -> Study:
    """The study of a run, or of several as one. `name`: what it is called (default: the first run's folder).

    Raises RequestError, naming the first key that differs, where the runs may not be merged.
    """
    stored = merge_runs(runs)
    return Study(
        name=name or runs[0].folder.resolve().name,
        folders=tuple(run.folder.resolve().name for run in runs),
        plan=stored.plan,
        rows=rows_of_runs(runs),
        environment=stored.environment,
        control=_worst_control(runs),
        findings=findings_of(*runs),
        timings=times_of(stored),
        scores=item_scores_of(stored),
        records=stored.records,
        superseded="; ".join(filter(None, (superseded(run.folder.resolve()) for run in runs))),
    )


def findings_of(*runs: StoredRun) -> list[Finding]:
    """What there is to object to in the merged rows; of the runs' controls and competitors the worst count."""
    busiest = max(runs, key=lambda run: run.environment.get("busy_cores") or 0.0)
    return findings(
        rows_of_runs(runs),
        _worst_control(runs),
        busiest.environment,
        metrics=merge_runs(runs).plan.metrics,
        num_missing=sum(num_missing(run) for run in runs),
        timed=[r.outcome.values for run in runs for r in run.records if r.metric == "latency" and r.outcome.status == MEASURED],
        timings=[times_of(run) for run in runs],
        extended=any(is_extended(run) for run in runs),
        others=[run.environment for run in runs if run is not busiest],
    )


def _worst_control(runs: Sequence[StoredRun]) -> dict[str, Any] | None:
    """The A/A control that convicts a run of noise, where one does; else the first."""
    found = [control for run in runs if (control := control_of(run))]
    return min(found, key=lambda control: bool(control["contains_one"]), default=None)


PER_SEED: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "perplexity": lambda values: math.exp(values["cross_entropy"]) if values.get("cross_entropy") is not None else None
}
"""What is compared seed by seed, since no item has a score of its own, and how a record holds it."""


def _trainings(plan: Plan, records: Sequence[Record]) -> Mapping[str, list[Record]]:
    """The measured trainings of every cell."""
    by_subject: dict[str, list[Record]] = {}
    for record in records:
        if record.metric == "accuracy" and record.outcome.status == MEASURED:
            by_subject.setdefault(record.subject_id, []).append(record)
    found = {}
    for planned in plan.cells if by_subject else ():
        recipe = recipe_of(planned.cell, plan, records)
        found[planned.cell.cell_id] = by_subject.get(training_id(planned.cell, recipe), []) if recipe else []
    return found


def _by_cell(
    trainings: Mapping[str, list[Record]], value_of: Callable[[Mapping[str, Any]], float | None]
) -> Mapping[str, tuple[float, ...]]:
    """One value per seed, for the cells that have any."""
    found = {}
    for cell_id, records in trainings.items():
        values = [value_of(record.outcome.values) for record in records]
        if known := tuple(value for value in values if value is not None):
            found[cell_id] = known
    return found

"""Compute everything known about a run, each part when first read.

A `Study` holds rows, verdicts, effects, growth, crossovers, rankings and reasons to distrust the run. The terminal, the page, the index of results
and `bench compare` read it; `bench check` needs the concerns alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas

from bench.analysis.accuracy import CurveGroup, Solved, equal_budgets, solved_seeds
from bench.analysis.arm_fronts import ArmFront, arm_fronts
from bench.analysis.claims import Evidence, judge
from bench.analysis.crossings import ClosedCrossing, PairCrossing, closed_pairs, measured_pairs
from bench.analysis.effects import Contrast, Effect, Observations, contrasts_of, effects_of, with_baselines
from bench.analysis.frame import cells, is_subject, mixes_all, prepare, scopes_of, varying
from bench.analysis.growth import FlopsGrowth, Growth, flops_growth, growth_of, quadratic_home
from bench.analysis.peers import PeerComparison, compare_peers
from bench.analysis.predictions import judge_prediction, judge_solving
from bench.analysis.ratios import Ranking, RelativeTimes, main_rows, rank_latency, relative_times
from bench.analysis.trust import Concern, concerns
from bench.analysis.verdicts import QUICK, Verdict, withheld
from bench.planning.jobs import expected_jobs
from bench.questions import Prediction
from bench.reading.merge import merge_runs, rows_of_runs
from bench.reading.store import StoredRun
from bench.reading.table import SeedScores, control_of, item_scores_of, row_values, trainings_of
from bench.reading.timings import Timings
from bench.spec import MEASURED, NO_MATCH, Plan, Record
from bench.timing_groups import compared_lengths, num_contrasts


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """The analysis of one run, or of several runs merged.

    `name`: the title.
    `rows`: the table, one row per cell (docs/columns.md); missing columns count as empty.
    `environment`: facts about machine and software.
    `control`: the A/A control with `cell`, `ratio`, `low`, `high`, `contains_one`, `level`; None if it was not run.
    `concerns`: reasons to distrust the run, with advice.
    `timings`: latency of every cell by round and block; without timings, ratios are ratios of medians.
    `folders`: the names of the runs' folders.
    `scores`: scores of every trained model on the test items, by cell id.
    `records`: all records.
    `num_missing`: jobs left to run.
    """

    name: str
    plan: Plan
    rows: pandas.DataFrame
    environment: Mapping[str, Any]
    control: Mapping[str, Any] | None = None
    concerns: Sequence[Concern] = ()
    timings: Timings = field(default_factory=Timings)
    folders: tuple[str, ...] = ()
    scores: Mapping[str, SeedScores] = field(default_factory=dict)
    records: tuple[Record, ...] = ()
    num_missing: int = 0

    @property
    def so_far(self) -> str:
        """How much of an unfinished run there is, to begin its answer with; empty if it is complete."""
        num_done = len({record.key for record in self.records})
        return f"So far, with {num_done} of {num_done + self.num_missing} jobs: " if self.num_missing else ""

    @functools.cached_property
    def frame(self) -> pandas.DataFrame:
        """The rows with every column (`bench.analysis.frame.prepare`).

        A cell in several parts of the plan has one row in each.
        """
        return prepare(self.rows, self.plan.parts)

    @functools.cached_property
    def cells(self) -> pandas.DataFrame:
        """The frame reduced to one row per cell."""
        return cells(self.frame)

    @functools.cached_property
    def frame_rows(self) -> Sequence[dict[str, Any]]:
        """The rows of the frame as dicts, which are many times as fast to read one by one."""
        return row_values(self.frame)

    @functools.cached_property
    def row_by_cell(self) -> Mapping[str, Mapping[str, Any]]:
        """One row of the frame per cell id."""
        return {row["cell_id"]: row for row in self.frame_rows}

    @property
    def caveat(self) -> str:
        """Why nothing timed or trained is decided; empty if it may be."""
        return QUICK if self.plan.settings.quick else ""

    @functools.cached_property
    def evidence(self) -> Evidence:
        """The data that claims about quadratic cost are judged by."""
        return Evidence(
            rows=self.frame_rows,
            timings=self.timings,
            homes=self.quadratic_home,
            scores={cell_id: found.scores for cell_id, found in self.scores.items()},
            planned_seeds=self.plan.seeds_by_cell,
            quick=self.plan.settings.quick,
            contrasts=self._contrasts,
        )

    @functools.cached_property
    def verdicts(self) -> Sequence[Verdict]:
        """Verdicts on the claims about quadratic cost."""
        return judge(self.evidence)

    @functools.cached_property
    def winners(self) -> Sequence[Ranking]:
        """The fastest model at each size, length and workload.

        An ablation may add references that do not mix all tokens. They would win everywhere, so they take no part.
        """
        rows = self.frame_rows
        if self.plan.parts and len({row["label"] for row in rows if is_subject(row, "global")}) > 1:
            rows = [row for row in rows if mixes_all(row)]
        placed = []
        for row in rows:
            n = row["seq_len"]
            place = self._places.get(row["cell_id"], n)
            # models compared at slightly different lengths (with and without a class token) show their own length
            placed.append({**row, "seq_len": place, "label": f"{row['label']} (n = {n:.0f})" if n != place else row["label"]})
        return rank_latency(placed, (*varying(self.frame), "size", "seq_len"), self.timings, self._contrasts, self.plan.settings.margin)

    @functools.cached_property
    def _contrasts(self) -> Mapping[str, int]:
        """How many ratios of times are decided together with each cell's."""
        return num_contrasts(self.plan)

    @functools.cached_property
    def _places(self) -> Mapping[str, int]:
        """The length under which each cell is compared."""
        return compared_lengths(self.plan)

    @functools.cached_property
    def relative_times(self) -> Sequence[RelativeTimes]:
        """Times relative to fused attention, in the primary scopes."""
        return relative_times(self.frame, self._places, self.timings, self._contrasts, self.plan.settings.margin)

    @functools.cached_property
    def growth(self) -> Sequence[Growth]:
        """The growth of every series with n."""
        return growth_of(self.evidence.shaped, self.timings)

    @functools.cached_property
    def measured_crossovers(self) -> Sequence[PairCrossing]:
        """The lengths at which two series were measured to cost the same."""
        return measured_pairs(self.evidence.shaped, self.timings)

    @functools.cached_property
    def closed_crossovers(self) -> Sequence[ClosedCrossing]:
        """The lengths at which two closed forms are equal."""
        return closed_pairs(self.plan)

    @functools.cached_property
    def quadratic_home(self) -> Mapping[str, Mapping[str, Any]]:
        """The n^2 terms of every cell, in weights or activations, by cell id."""
        return quadratic_home(self.plan)

    @functools.cached_property
    def growth_rows(self) -> pandas.DataFrame:
        """The rows that show how cost grows with n: of the primary scope that was timed, else of one with memory or FLOPs; empty if none.

        Where sizes are as given, and one model has several widths, they are of the first part that has one.
        """
        for column in ("latency_ms", "peak_memory_bytes", "flops"):
            known = self.frame[self.frame[column] > 0]
            parts = [known[known["cell_id"].isin(part.cells)] for part in self.plan.parts]
            for frame in parts if parts and _has_several_widths(known) else [known]:
                if scopes := scopes_of(frame, column, self._places):
                    return main_rows(scopes[0].rows)
        return self.frame.head(0).assign(place=0)

    @functools.cached_property
    def flops_growth(self) -> Sequence[FlopsGrowth]:
        """How the FLOPs of `growth_rows` grow."""
        return flops_growth(self.growth_rows, self.quadratic_home)

    @functools.cached_property
    def predictions(self) -> Sequence[Prediction]:
        """The predictions of the plan's question.

        A prediction that names no other arm is compared with the part's baseline. Predictions for another device are left out.
        """
        asked = self.plan.question.predictions if self.plan.question else ()
        devices = {"", *(planned.cell.workload.device for planned in self.plan.cells)}
        return with_baselines([prediction for prediction in asked if prediction.device in devices], self.plan.parts)

    @functools.cached_property
    def trainings(self) -> Mapping[str, Sequence[Record]]:
        """The measured trainings of every cell, by cell id."""
        return trainings_of(self.plan, self.records)

    @functools.cached_property
    def solved(self) -> Mapping[str, Solved]:
        """How many seeds of every trained cell solve its task, by cell id; without tasks that are not solved or missed.

        The shares of a part's variants hold together.
        """
        among = {cell_id: len(part.arms) for part in self.plan.parts for arm in part.arms for cell_id in arm.cells}
        found = {
            cell_id: solved_seeds(str(self.row_by_cell[cell_id]["task"]), self.trainings[cell_id], trained.scores)
            for cell_id, trained in self.scores.items()
        }
        return {cell_id: dataclasses.replace(solved, among=among.get(cell_id, 1)) for cell_id, solved in found.items() if solved}

    @functools.cached_property
    def observations(self) -> Observations:
        """The data that effects are estimated from."""
        found = {cell_id: records for cell_id, records in self.trainings.items() if records}
        return Observations(
            rows=self.row_by_cell,
            scores=self.evidence.scores,
            data_ids={cell_id: str(records[0].outcome.values.get("data_id") or "") for cell_id, records in found.items()},
            cross_entropies={
                cell_id: values
                for cell_id, records in found.items()
                if (values := [value for record in records if (value := record.outcome.values.get("cross_entropy")) is not None])
            },
            timings=self.timings,
            planned_seeds=self.plan.seeds_by_cell,
            metrics={part.name: part.metrics for part in self.plan.parts if part.metrics},
        )

    @property
    def _has_arms(self) -> bool:
        return any(part.arms for part in self.plan.parts)

    @functools.cached_property
    def contrasts(self) -> Sequence[Contrast]:
        """The pairs of arms to compare; empty for a run without arms."""
        return contrasts_of(self.plan.parts, self.predictions, self.row_by_cell) if self._has_arms else ()

    @functools.cached_property
    def effects(self) -> Sequence[Effect]:
        """The effect of each arm against the part's baseline."""
        return effects_of(self.contrasts, self.observations) if self.contrasts else ()

    @functools.cached_property
    def arm_fronts(self) -> Sequence[ArmFront]:
        """The quality of arms against their time in another part; empty for a run without both."""
        return arm_fronts(self.plan.parts, self.row_by_cell, self.effects, self.predictions)

    @functools.cached_property
    def equal_budgets(self) -> Sequence[CurveGroup]:
        """Trained models at equal epochs, training FLOPs and training time."""
        variants = {cell_id for part in self.plan.parts for arm in part.arms for cell_id in arm.cells}
        rows = list(self.row_by_cell.values())
        return equal_budgets(rows, self.trainings, variants=variants, planned_seeds=self.plan.seeds_by_cell)

    @functools.cached_property
    def prediction_verdicts(self) -> Sequence[Verdict]:
        """Verdicts on the predictions, in their order."""
        found = [
            judge_solving(prediction, self.plan, self.solved)
            if prediction.is_about_solving
            else judge_prediction(prediction, self.contrasts, self.effects)
            for prediction in self.predictions
        ]
        return [withheld(verdict, quick=self.plan.settings.quick) for verdict in found]

    @functools.cached_property
    def peers(self) -> PeerComparison | None:
        """Our models against peers; None if the run has no peers."""
        return compare_peers(self.plan.parts, self.row_by_cell, self.timings) if self._has_arms else None


def study(*runs: StoredRun, name: str = "") -> Study:
    """Return the study of a run, or of several runs as one.

    `name`: the title (default: the first run's folder). Raises RequestError, naming the first key that differs, if the runs may not be merged.
    """
    stored, rows, left = merge_runs(runs), rows_of_runs(runs), sum(map(num_missing, runs))
    return Study(
        name=name or runs[0].folder.resolve().name,
        folders=tuple(run.folder.resolve().name for run in runs),
        plan=stored.plan,
        rows=rows,
        environment=stored.environment,
        control=_worst_control(runs),
        concerns=concerns_of(*runs, rows=rows, left=left),
        timings=stored.times,
        scores=item_scores_of(stored),
        records=stored.records,
        num_missing=left,
    )


def num_missing(run: StoredRun) -> int:
    """Return the number of jobs left to run, expected follow-ups included."""
    return len(expected_jobs(run.plan, run.records))


def concerns_of(*runs: StoredRun, rows: pandas.DataFrame, left: int | None = None) -> list[Concern]:
    """Return the concerns on one run, or on several merged runs.

    For several runs, the worst control and the busiest machine are used.
    `rows`: their table. `left`: their number of jobs left to run, if known.
    """
    busiest = max(runs, key=lambda run: run.environment.get("busy_cores") or 0.0)
    return concerns(
        rows,
        _worst_control(runs),
        busiest.environment,
        metrics=merge_runs(runs).plan.metrics,
        num_missing=sum(map(num_missing, runs)) if left is None else left,
        timed=[r.outcome.values for run in runs for r in run.records if r.metric == "latency" and r.outcome.status == MEASURED],
        timings=[run.times for run in runs],
        others=[run.environment for run in runs if run is not busiest],
    )


def _worst_control(runs: Sequence[StoredRun]) -> dict[str, Any] | None:
    """Return the first control that excludes 1, else the first control."""
    found = [control for run in runs if (control := control_of(run))]
    return min(found, key=lambda control: bool(control["contains_one"]), default=None)


def _has_several_widths(frame: pandas.DataFrame) -> bool:
    """Whether some model whose size is as given has several widths, so that its rows are of unlike models."""
    given = frame[frame["match"] == NO_MATCH]
    return bool((given.groupby(["label", "phase", "engine", "dtype"], dropna=False)["width"].nunique() > 1).any())

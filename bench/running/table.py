"""From records to one tidy row per cell, and the A/A control. Imports no torch."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench import catalog
from bench.files import write_atomically, write_text
from bench.intervals import CONTROL_LEVEL, INTERLEAVED_CONTROL_LEVEL, LEVEL
from bench.planning.jobs import expected_jobs, shared_ids
from bench.planning.recipe import recipe_changes
from bench.planning.timing import COMPARE, cell_groups, home_groups
from bench.planning.tuning import TUNING, recipe_of, trial_ids
from bench.running.roofline import COLUMNS as ROOFLINE
from bench.running.roofline import roofline_of, step_flops
from bench.running.store import StoredRun, collector_off
from bench.running.timings import CONTROL_MARK, Timings, ratio_columns, ratio_of, timings_of
from bench.spec import MEASURED, Cell, Plan, PlannedCell, Record, RequestError, is_trained, training_id

IDENTITY = (
    "cell_id model family seq_len batch_size phase engine dtype device attention task recipe match sizing budget budget_error status reason quick "
    "width depth heads ffn_width ffn_moved params params_seq params_blocks"
).split()
TEXTS = "cell_id model family phase engine dtype device attention task recipe match sizing status reason".split()
MFU = "mfu"
"""Model FLOPs utilisation, a fraction of the measured ceiling (Chowdhery et al., PaLM, 2022, appendix B)."""
WITH_ROOFLINE = {"latency", "ceiling"}
"""The metrics that the columns of the roofline need."""
UNMEASURED = "unmeasured"
ROWS, TIMES = "rows", "times"
MS_PER_S = 1e3


@dataclass(frozen=True, kw_only=True)
class SeedScores:
    """What one trained model scored, item by item: `scores` is `(seeds, items)`, items in stored order; `training` names the training."""

    training: str
    seeds: tuple[int, ...]
    scores: NDArray[np.float64]


def rows_of(run: StoredRun) -> pd.DataFrame:
    """One row per cell, in plan order; the columns of the metrics that were asked for; what was not measured is empty.

    Worked out once per run; every caller has a copy of its own.
    """
    if ROWS not in run.derived:
        run.derived[ROWS] = _all_rows(run)
    rows: pd.DataFrame = run.derived[ROWS]
    return rows.copy()


@collector_off()
def _all_rows(run: StoredRun) -> pd.DataFrame:
    by_subject: dict[str, list[Record]] = defaultdict(list)
    home = home_groups(run.records)
    for record in run.records:
        if not record.control and record.group in ("", home.get(record.subject_id, record.group)):
            by_subject[record.subject_id].append(record)
    columns = [*IDENTITY, *(c for metric in run.plan.metrics for c in catalog.load("metrics", metric).COLUMNS)]
    columns += [MFU] if "latency" in run.plan.metrics else []
    columns += ROOFLINE if set(run.plan.metrics) >= WITH_ROOFLINE else ()
    rows = [_row(planned, run.plan, by_subject) for planned in run.plan.cells]
    if "latency" in run.plan.metrics:
        ratios = _ratios(run)
        rows = [{**row, **ratios.get(row["cell_id"], {})} for row in rows]
    return _typed(pd.DataFrame(rows, columns=list(dict.fromkeys(columns)), dtype=object), not_numbers(run.plan))


def references_of(plan: Plan) -> dict[str, str]:
    """The cell that each cell's `ratio` is to, by cell id: of those that it is compared with, its part's baseline, else the first in the plan; of
    equal budget where there is one. The reference itself has none."""
    baselines = {cell_id for part in plan.parts for arm in part.arms if arm.name == part.baseline for cell_id in arm.cells}
    budgets = {planned.cell.cell_id: planned.sizing.budget for planned in plan.cells}
    found: dict[str, str] = {}
    for cells in (cells for name, cells in cell_groups(plan.cells, plan) if name.startswith(COMPARE)):
        ids = sorted((cell.cell_id for cell in cells), key=lambda cell_id: cell_id not in baselines)
        for cell_id in ids:
            reference = next((other for other in ids if budgets[other] == budgets[cell_id]), ids[0])
            if reference != cell_id:
                found.setdefault(cell_id, reference)
    return found


def _ratios(run: StoredRun) -> dict[str, dict[str, Any]]:
    timings, names = times_of(run), _names(run.plan)
    return {
        cell_id: ratio_columns(cell_id, reference, names[reference], timings, LEVEL)
        for cell_id, reference in references_of(run.plan).items()
    }


def _names(plan: Plan) -> dict[str, str]:
    """Of each cell, short: its model, and the engine and kernel where they are not the usual ones."""
    found = {}
    for planned in plan.cells:
        model, work = planned.cell.model, planned.cell.workload
        details = [work.engine] * (work.engine != "eager") + [work.attention] * (work.attention not in ("auto", "none"))
        found[planned.cell.cell_id] = " ".join([f"{model.name} n={model.shape.seq_len}", *(f"({detail})" for detail in details)])
    return found


def not_numbers(plan: Plan) -> set[str]:
    """The columns of its table that hold texts or flags."""
    return {*TEXTS, "quick", *(name for metric in plan.metrics for name in getattr(catalog.load("metrics", metric), "NOT_NUMBERS", ()))}


def control_of(run: StoredRun) -> dict[str, Any] | None:
    """The A/A control: the same cell timed under two names, as a ratio with its interval; None where it was not measured twice.

    Its level is 99.9 % where the two took turns, and 99 % in runs of versions that timed one cell after the other.
    """
    groups = {record.group for record in run.records if record.control}
    timings = timings_of([record for record in run.records if record.group in groups], with_control=True)
    for cell_id in (name.removesuffix(CONTROL_MARK) for name in timings if name.endswith(CONTROL_MARK)):
        pair = [cell_id + CONTROL_MARK, cell_id]
        level = INTERLEAVED_CONTROL_LEVEL if timings.are_interleaved(pair) else CONTROL_LEVEL
        if ratio := ratio_of(pair[0], pair[1], timings, level):
            models = (planned.cell.model for planned in run.plan.cells if planned.cell.cell_id == cell_id)
            return {
                "cell": next((f"{model.name}, n = {model.shape.seq_len}" for model in models), cell_id),
                "cell_id": cell_id,
                "ratio": ratio.estimate,
                "low": ratio.low,
                "high": ratio.high,
                "level": level,
                "num_rounds": ratio.num,
                "contains_one": ratio.contains(1.0),
                "interleaved": timings.are_interleaved(pair),
            }
    return None


def is_extended(run: StoredRun) -> bool:
    """Were rounds added to those planned? Data that choose their own number void the level of an interval."""
    return any(record.metric == "latency" and record.repeat >= run.plan.settings.rounds for record in run.records)


def times_of(run: StoredRun) -> Timings:
    """The times of every cell by round. Worked out once, as the rows are."""
    if TIMES not in run.derived:
        run.derived[TIMES] = timings_of(run.records)
    found: Timings = run.derived[TIMES]
    return found


def item_scores_of(run: StoredRun) -> dict[str, SeedScores]:
    """The test items' scores of every trained model, by cell id; cells that share a training share the array. Models without them are left out.

    Raises RequestError where the seeds of one model were scored on different numbers of items, or where the seeds of one model, or two models that
    read the same task at the same length, name different data.
    """
    # every cell looks through the records for its training: without the others that is quick
    run = dataclasses.replace(run, records=tuple(r for r in run.records if r.metric in ("accuracy", TUNING)))
    if not run.records:
        return {}
    by_training: dict[str, SeedScores] = {}
    data_by_reading: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    found = {}
    for planned in run.plan.cells:
        records = [record for record in training_records(run, planned) if _item_scores(record)]
        if records:
            model, task = planned.cell.model, planned.cell.workload.task
            # models of one length that pool differently read a different number of data tokens, so other data of a generated task
            pool = model.interface.pooling(str(dict(model.options).get("pool", "")))
            data = data_by_reading[task, model.shape.seq_len, pool]
            data |= {str(name) for record in records if (name := record.outcome.values.get("data_id"))}  # older records name none
            if len(data) > 1:
                raise RequestError(
                    f"the data of {task} changed between trainings: {', '.join(sorted(data))}", "measure again into another --out"
                )
            training = records[0].subject_id
            if training not in by_training:
                by_training[training] = _seed_scores(records)
            found[planned.cell.cell_id] = by_training[training]
    return found


def training_records(run: StoredRun, planned: PlannedCell) -> list[Record]:
    """The measured trainings of a cell's model that its accuracy stands on, by seed; empty where it was not trained."""
    recipe = recipe_of(planned.cell, run.plan, run.records)
    subject = training_id(planned.cell, recipe) if recipe else ""
    found = [r for r in run.records if r.subject_id == subject and r.metric == "accuracy" and r.outcome.status == MEASURED]
    return sorted(found, key=lambda record: record.repeat)


def num_missing(run: StoredRun) -> int:
    """Jobs without an outcome that could still be run; those that follow others as they are expected."""
    return len(expected_jobs(run.plan, run.records))


def write_table(rows: pd.DataFrame, folder: Path) -> None:
    """table.csv, table.json and table.parquet. Text that a spreadsheet would take for a formula is quoted with an apostrophe in the CSV."""
    safe = rows.copy()
    for column in (c for c in rows.columns if not pd.api.types.is_numeric_dtype(rows[c])):
        safe[column] = safe[column].map(_no_formula)
    write_atomically(folder / "table.csv", lambda path: safe.to_csv(path, index=False))
    lines = (
        json.dumps(row, allow_nan=False) for row in json_rows(rows)
    )  # the encoder of whole lines is many times as fast as the one that indents
    write_text(folder / "table.json", "[\n" + ",\n".join(lines) + "\n]\n")
    write_atomically(folder / "table.parquet", lambda path: rows.to_parquet(path, index=False))


def json_rows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON data: what is missing is null."""
    plain = rows.astype(object).where(rows.notna() & ~rows.isin((math.inf, -math.inf)), None)
    names = list(rows.columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*(plain[name].tolist() for name in names), strict=True)]


def _typed(rows: pd.DataFrame, others: Collection[str]) -> pd.DataFrame:
    """Keep whole numbers whole where some are missing; all-empty numeric columns become float64, and pandas infers the other types."""
    typed = rows.infer_objects()
    for column in rows.columns:
        present = rows[column].dropna()
        if present.empty and column not in others:
            typed[column] = rows[column].astype(float)
        elif len(present) and all(isinstance(v, int) and not isinstance(v, bool) for v in present):
            typed[column] = rows[column].astype("Int64")
    return typed


def _row(planned: PlannedCell, plan: Plan, by_subject: Mapping[str, Sequence[Record]]) -> dict[str, Any]:
    records = [record for subject in _subjects(planned.cell, plan, by_subject) for record in by_subject.get(subject, ())]
    row = _identity(planned, plan)
    in_order = sorted((r for r in records if r.outcome.status == MEASURED), key=lambda r: r.repeat)
    measured = {metric: [r for r in in_order if r.metric == metric] for metric in plan.metrics}
    for metric, found in measured.items():
        if found:
            row.update(_summary(metric, found))
    latency_ms, ceiling = row.get("latency_ms"), row.get("ceiling_flops_per_s")
    row[MFU] = None if latency_ms is None or ceiling is None else step_flops(planned) * MS_PER_S / latency_ms / ceiling
    if measured.keys() >= WITH_ROOFLINE:
        row.update(roofline_of(planned, measured["latency"], measured["ceiling"]))
    trained = is_trained(planned.cell, plan)
    wanted = [metric for metric in plan.metrics if trained or catalog.load("metrics", metric).REPEAT not in ("seed", "trial")]
    return {**row, **_status(records, wanted)}


def _subjects(cell: Cell, plan: Plan, by_subject: Mapping[str, Sequence[Record]]) -> tuple[str, ...]:
    """What the records of a cell belong to: itself, what it shares with others, its trials, and its training by the recipe that they chose."""
    shared = shared_ids(cell, plan)
    if not is_trained(cell, plan):
        return tuple(dict.fromkeys((cell.cell_id, *shared)))
    trials = trial_ids(cell, plan)
    recipe = recipe_of(cell, plan, [record for trial in trials for record in by_subject.get(trial, ())])
    return tuple(dict.fromkeys((cell.cell_id, *shared, *trials, *((training_id(cell, recipe),) if recipe else ()))))


def _summary(metric: str, records: Sequence[Record]) -> Mapping[str, Any]:
    try:
        summary: Mapping[str, Any] = catalog.load("metrics", metric).summarise(records)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise RequestError(f"the {metric} records of {records[0].subject_id} are corrupt ({reason})", "restore records.jsonl") from error
    return summary


def _identity(planned: PlannedCell, plan: Plan) -> dict[str, Any]:
    cell, sizing = planned.cell, planned.sizing
    model, work = cell.model, cell.workload
    return {
        "cell_id": cell.cell_id,
        "model": model.name,
        "family": model.family,
        "seq_len": model.shape.seq_len,
        **{name: getattr(work, name) for name in ("batch_size", "phase", "engine", "dtype", "device", "attention")},
        "task": work.task or None,
        "recipe": recipe_changes(work.recipe, plan.recipe) if work.recipe else None,
        "match": sizing.match,
        "sizing": sizing.rule if sizing.budget else None,
        "budget": sizing.budget,
        "budget_error": sizing.budget_error,
        "quick": plan.settings.quick,
        **{size: planned.size(size) for size in ("width", "depth", "heads", "ffn_width")},
        "ffn_moved": sizing.ffn_moved,
        "params": sizing.params,
        "params_seq": sizing.params_seq,
        "params_blocks": sizing.params_blocks,
    }


def _status(records: Sequence[Record], wanted: Sequence[str]) -> dict[str, Any]:
    """`measured` where every metric has an outcome and all were measured; otherwise the first thing that went wrong, named by its metric.

    Where one trial of several could be measured, those that could not are no fault of the cell.
    """
    tuned = any(record.metric == TUNING and record.outcome.status == MEASURED for record in records)
    for record in records:
        if record.outcome.status != MEASURED and not (tuned and record.metric == TUNING):
            return {"status": record.outcome.status, "reason": f"{record.metric}: {record.outcome.reason}"}
    absent = [metric for metric in wanted if metric not in {r.metric for r in records}]
    if absent:
        return {"status": UNMEASURED, "reason": f"{', '.join(absent)}: not run yet"}
    return {"status": MEASURED, "reason": None}


def _item_scores(record: Record) -> tuple[float, ...]:
    """One number per test item; older records hold them as `correct`."""
    return record.outcome.samples.get("item_scores") or record.outcome.samples.get("correct", ())


def _seed_scores(records: Sequence[Record]) -> SeedScores:
    training, scores = records[0].subject_id, [_item_scores(record) for record in records]
    lengths = sorted({len(items) for items in scores})
    if len(lengths) > 1:
        raise RequestError(
            f"the seeds of training {training} were scored on {lengths} test items, not on the same", "restore records.jsonl"
        )
    return SeedScores(training=training, seeds=tuple(record.repeat for record in records), scores=np.array(scores, dtype=np.float64))


FORMULA_SIGNS = ("=", "+", "-", "@")
IN_ONE_LINE = str.maketrans(dict.fromkeys("\t\r\n", " "))


def _no_formula(value: Any) -> Any:
    """Text in one line, for not every reader of CSV takes more."""
    if not isinstance(value, str):
        return value
    text = value.translate(IN_ONE_LINE)
    return f"'{text}" if text.lstrip()[:1] in FORMULA_SIGNS else text

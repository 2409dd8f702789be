"""Turn records into table rows, and read the A/A control.

A cell is one configuration: a model with its workload. Imports no torch.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench import catalog
from bench.files import write_atomically, write_text
from bench.intervals import CONTROL_LEVEL, joint_level
from bench.pooling import pool_of
from bench.reading.roofline import COLUMNS as ROOFLINE
from bench.reading.roofline import roofline_of, step_flops
from bench.reading.store import StoredRun, collector_off
from bench.reading.timings import CONTROL_MARK, home_groups, ratio_columns, ratio_of, timings_of
from bench.serialize import stored
from bench.spec import (
    ACCURACY,
    EXPLICIT,
    MEASURED,
    MS_PER_S,
    PILOT,
    TUNING,
    Cell,
    Plan,
    PlannedCell,
    Record,
    RequestError,
    is_trained,
    recipe_changes,
)
from bench.timing_groups import compared_cells, num_contrasts

IDENTITY = (
    "cell_id model family seq_len batch_size phase engine dtype device attention task recipe match sizing budget budget_error status reason quick "
    "width depth heads ffn_width ffn_moved params params_seq params_blocks state_bytes"
).split()
TEXTS = "cell_id model family phase engine dtype device attention task recipe match sizing status reason".split()
MFU = "mfu"
"""Model FLOPs utilisation, a fraction of the measured ceiling.

Source: Chowdhery et al., PaLM, 2022, appendix B.
"""
WITH_ROOFLINE = {"latency", "ceiling"}
"""The metrics needed for the roofline columns."""
UNMEASURED = "unmeasured"
ATTENTION = ("vit", "metaformer", "transformer")
"""Families whose fused attention others are compared with, best first."""
NOT_ATTENTION = len(ATTENTION)
ATTENTION_MIXER = "metaformer+mixer=attention"


@dataclass(frozen=True, kw_only=True)
class SeedScores:
    """The test scores of one trained model, per seed and item.

    `training`: id of the training.
    `scores`: shape `(seeds, items)`, items in stored order.
    """

    training: str
    seeds: tuple[int, ...]
    scores: NDArray[np.float64]


@collector_off()
def rows_of(run: StoredRun) -> pd.DataFrame:
    """Return one row per cell, in plan order.

    The columns are those of the plan's metrics. Values without a measurement are empty.
    """
    home = home_groups(run.records)
    by_cell = records_by_cell(r for r in run.records if not r.control and r.group in ("", home.get(r.subject_id, r.group)))
    columns = [*IDENTITY, *(c for metric in run.plan.metrics for c in catalog.load("metrics", metric).COLUMNS)]
    columns += [MFU] if "latency" in run.plan.metrics else []
    columns += ROOFLINE if set(run.plan.metrics) >= WITH_ROOFLINE else ()
    rows = [_row(planned, run.plan, by_cell.get(planned.cell.cell_id, ())) for planned in run.plan.cells]
    if "latency" in run.plan.metrics:
        ratios = _ratios(run)
        rows = [{**row, **ratios.get(row["cell_id"], {})} for row in rows]
    return _typed(pd.DataFrame(rows, columns=list(dict.fromkeys(columns)), dtype=object), not_numbers(run.plan))


def records_by_cell(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of each cell, in order.

    If a model was trained by several recipes, since its trials were repeated and another one won, the last counts.
    """
    found: dict[str, list[Record]] = defaultdict(list)
    trained: dict[str, str] = {}
    for record in records:
        for cell_id in record.cell_ids:
            found[cell_id].append(record)
            if record.metric == ACCURACY:
                trained[cell_id] = record.subject_id
    return {
        cell_id: [record for record in own if record.metric != ACCURACY or record.subject_id == trained[cell_id]]
        for cell_id, own in found.items()
    }


def trainings_of(plan: Plan, records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the measured trainings behind each cell's accuracy, by seed.

    The keys are cell ids. A cell that was not trained has none.
    """
    by_cell = records_by_cell(r for r in records if r.metric == ACCURACY and r.outcome.status == MEASURED)
    return {p.cell.cell_id: sorted(by_cell.get(p.cell.cell_id, ()), key=lambda record: record.repeat) for p in plan.cells}


def attention_rank(model: str, family: str, kernel: str) -> int:
    """Return how well a model serves as the attention that others are compared with: the lower, the better.

    ViT is preferred, then attention in a plain block, then the Transformer; explicit attention and models without attention come last.
    """
    is_attention = family in ATTENTION and (family != "metaformer" or model == ATTENTION_MIXER)
    return ATTENTION.index(family) if is_attention and kernel != EXPLICIT else NOT_ATTENTION


def references_of(plan: Plan, groups: Sequence[Sequence[Cell]] | None = None) -> dict[str, str]:
    """Map each cell id to its reference, the denominator of its `ratio`.

    Among the cells of equal budget that it is compared with, the reference is the part's baseline, else attention (`attention_rank`), else the
    first in the plan. References themselves are not in the map. `groups`: the compared cells, if known.
    """
    baselines = {cell_id for part in plan.parts for arm in part.arms if arm.name == part.baseline for cell_id in arm.cells}
    ranks = {p.cell.cell_id: attention_rank(p.cell.model.name, p.cell.model.family, p.cell.workload.attention) for p in plan.cells}
    budgets = {planned.cell.cell_id: planned.sizing.budget for planned in plan.cells}
    found: dict[str, str] = {}
    for cells in compared_cells(plan) if groups is None else groups:
        ids = sorted((cell.cell_id for cell in cells), key=lambda cell_id: (cell_id not in baselines, ranks[cell_id]))
        for cell_id in ids:
            reference = next(other for other in ids if budgets[other] == budgets[cell_id])  # itself if there is no other
            if reference != cell_id:
                found.setdefault(cell_id, reference)
    return found


def _ratios(run: StoredRun) -> dict[str, dict[str, Any]]:
    groups = compared_cells(run.plan)
    timings, labels, contrasts = run.times, _labels(run.plan), num_contrasts(run.plan, groups)
    return {
        cell_id: ratio_columns(cell_id, reference, labels[reference], timings, joint_level(contrasts.get(cell_id, 1)))
        for cell_id, reference in references_of(run.plan, groups).items()
    }


def _labels(plan: Plan) -> dict[str, str]:
    """Return a short label per cell: model, engine and kernel unless default."""
    found = {}
    for planned in plan.cells:
        model, work = planned.cell.model, planned.cell.workload
        details = [work.engine] * (work.engine != "eager") + [work.attention] * (work.attention not in ("auto", "none"))
        found[planned.cell.cell_id] = " ".join([f"{model.name} n={model.shape.seq_len}", *(f"({detail})" for detail in details)])
    return found


def not_numbers(plan: Plan) -> set[str]:
    """Return the columns of the plan's table that hold text or flags."""
    return {*TEXTS, "quick", *(name for metric in plan.metrics for name in getattr(catalog.load("metrics", metric), "NOT_NUMBERS", ()))}


def control_of(run: StoredRun) -> dict[str, Any] | None:
    """Return the A/A control: one cell timed in two processes.

    It is a ratio with its interval, at a confidence level of 99.9 %, or with the range over rounds that are too few for one (`is_range`). None if
    no cell was timed twice.
    """
    groups = {record.group for record in run.records if record.control}
    timings = timings_of([record for record in run.records if record.group in groups], with_control=True)
    for cell_id in (name.removesuffix(CONTROL_MARK) for name in timings if name.endswith(CONTROL_MARK)):
        pair = [cell_id + CONTROL_MARK, cell_id]
        if ratio := ratio_of(pair[0], pair[1], timings, CONTROL_LEVEL):
            models = (planned.cell.model for planned in run.plan.cells if planned.cell.cell_id == cell_id)
            return {
                "cell": next((f"{model.name}, n = {model.shape.seq_len}" for model in models), cell_id),
                "cell_id": cell_id,
                "ratio": ratio.estimate,
                "low": ratio.span[0] if ratio.span else ratio.low,
                "high": ratio.span[1] if ratio.span else ratio.high,
                "is_range": ratio.is_open,
                "level": CONTROL_LEVEL,
                "num_rounds": ratio.num,
                "contains_one": ratio.contains(1.0),
            }
    return None


def item_scores_of(run: StoredRun) -> dict[str, SeedScores]:
    """Return the test items' scores of every trained model, by cell id.

    Cells that share a training share the array; models without item scores are absent. Raises RequestError if the seeds of a model were
    scored on different numbers of items, or if trainings of one task and length used different data.
    """
    by_training: dict[str, SeedScores] = {}
    data_by_reading: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    found, trainings = {}, trainings_of(run.plan, run.records)
    for planned in run.plan.cells:
        records = [record for record in trainings[planned.cell.cell_id] if _item_scores(record)]
        if records:
            model, task = planned.cell.model, planned.cell.workload.task
            # pooling decides how many of the n tokens are data, and so which data a task generates
            pool = model.interface.pooling(pool_of(model))
            data = data_by_reading[task, model.shape.seq_len, pool]
            data |= {str(name) for record in records if (name := record.outcome.values.get("data_id"))}
            if len(data) > 1:
                raise RequestError(
                    f"the data of {task} changed between trainings: {', '.join(sorted(data))}", "measure again with another `out`"
                )
            training = records[0].subject_id
            if training not in by_training:
                by_training[training] = _seed_scores(records)
            found[planned.cell.cell_id] = by_training[training]
    return found


def write_table(rows: pd.DataFrame, folder: Path) -> None:
    """Write table.csv, table.json and table.parquet.

    In the CSV, text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    safe = rows.copy()
    for column in (c for c in rows.columns if not pd.api.types.is_numeric_dtype(rows[c])):
        safe[column] = safe[column].map(_no_formula)
    write_atomically(folder / "table.csv", lambda path: safe.to_csv(path, index=False, float_format=lambda value: repr(stored(value))))
    # encoding row by row is many times faster than json's indenting encoder
    lines = map(json.JSONEncoder(allow_nan=False).encode, json_rows(rows))
    write_text(folder / "table.json", "[\n" + ",\n".join(lines) + "\n]\n")
    write_atomically(folder / "table.parquet", lambda path: rows.to_parquet(path, index=False))


def json_rows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as JSON data; missing and infinite values are null."""
    return row_values(rows.astype(object).where(rows.notna() & ~rows.isin((math.inf, -math.inf)), None))


def row_values(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return each row as a dict by column.

    This equals `to_dict("records")`, which takes several times as long because it inspects every value.
    """
    names = list(frame.columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*(frame[name].tolist() for name in names), strict=True)]


def _typed(rows: pd.DataFrame, others: Collection[str]) -> pd.DataFrame:
    """Give each column its type.

    Columns of whole numbers become Int64, which keeps them whole when some are missing. All-empty numeric columns become float64;
    pandas infers the other types.
    """
    typed = rows.infer_objects()
    for column in rows.columns:
        present = rows[column].dropna()
        if present.empty and column not in others:
            typed[column] = rows[column].astype(float)
        elif len(present) and all(isinstance(v, int) and not isinstance(v, bool) for v in present):
            typed[column] = rows[column].astype("Int64")
    return typed


def _row(planned: PlannedCell, plan: Plan, records: Sequence[Record]) -> dict[str, Any]:
    row = _identity(planned, plan)
    measured: dict[str, list[Record]] = {metric: [] for metric in (*plan.metrics, PILOT)}
    for record in sorted((r for r in records if r.outcome.status == MEASURED), key=lambda r: r.repeat):
        if record.metric in measured:
            measured[record.metric].append(record)
    for metric, found in measured.items():
        if found:
            row.update(_summary(metric, found))
    latency_ms, ceiling = row.get("latency_ms"), row.get("ceiling_flops_per_s")
    row[MFU] = None
    if latency_ms is not None and ceiling is not None and (flops := step_flops(planned)) is not None:
        row[MFU] = flops * MS_PER_S / latency_ms / ceiling
    if measured.keys() >= WITH_ROOFLINE:
        row.update(roofline_of(planned, measured["latency"], measured["ceiling"]))
    trained = is_trained(planned.cell, plan)
    wanted = [
        metric for metric in plan.metrics_of(planned.cell) if trained or catalog.load("metrics", metric).REPEAT not in ("seed", "trial")
    ]
    return {**row, **_status(records, wanted)}


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
        "state_bytes": planned.state_bytes,
    }


def planned_rows(plan: Plan) -> pd.DataFrame:
    """Return one row per cell of a plan: what is known before it is measured."""
    unknown = ("status", "reason", "quick")
    rows = [
        _identity(planned, plan) | {"flops": planned.sizing.cost.flops().at(planned.cell.model.shape.seq_len)} for planned in plan.cells
    ]
    return pd.DataFrame(rows, columns=[*(name for name in IDENTITY if name not in unknown), "flops"])


def _status(records: Sequence[Record], wanted: Sequence[str]) -> dict[str, Any]:
    """Return status and reason: `measured`, or the first failure with its metric.

    Failed trials do not count if at least one trial succeeded.
    """
    tuned = any(record.metric == TUNING and record.outcome.status == MEASURED for record in records)
    for record in records:
        if record.outcome.status != MEASURED and not (tuned and record.metric == TUNING):
            return {"status": record.outcome.status, "reason": f"{record.metric}: {record.outcome.reason}"}
    known = {record.metric for record in records}
    absent = [metric for metric in wanted if metric not in known]
    if absent:
        return {"status": UNMEASURED, "reason": f"{', '.join(absent)}: not run yet"}
    return {"status": MEASURED, "reason": None}


def _item_scores(record: Record) -> tuple[float, ...]:
    """Return one number per test item; () if the items were not scored."""
    return record.outcome.samples.get("item_scores", ())


def _seed_scores(records: Sequence[Record]) -> SeedScores:
    training, scores = records[0].subject_id, [_item_scores(record) for record in records]
    lengths = sorted({len(items) for items in scores})
    if len(lengths) > 1:
        raise RequestError(
            f"the seeds of training {training} were scored on different numbers of test items: {lengths}", "restore records.jsonl"
        )
    return SeedScores(training=training, seeds=tuple(record.repeat for record in records), scores=np.array(scores, dtype=np.float64))


FORMULA_SIGNS = ("=", "+", "-", "@")
IN_ONE_LINE = str.maketrans(dict.fromkeys("\t\r\n", " "))


def _no_formula(value: Any) -> Any:
    """Put text in one line and disarm formulas, for CSV readers."""
    if not isinstance(value, str):
        return value
    text = value.translate(IN_ONE_LINE)
    return f"'{text}" if text.lstrip()[:1] in FORMULA_SIGNS else text

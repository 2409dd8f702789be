"""Merge several runs into one if their hosts, software and settings agree.

Rounds of different runs are never paired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas

from bench import catalog
from bench.measure.hosts import disagreements
from bench.needs import depends_on_host, trains
from bench.questions import Question
from bench.reading.store import StoredRun
from bench.reading.table import rows_of
from bench.spec import ACCURACY, MEASURED, TUNING, Cell, Part, Plan, PlannedCell, Recipe, Record, RequestError, base_recipe, is_trained

SAME_SETTINGS = ("quick", "seed")
"""Settings that merged runs must share."""
SAME_TRIALS = ("lr_trials", "decay_trials")
"""Settings that those of the merged runs that train must share."""


def merge_runs(runs: Sequence[StoredRun]) -> StoredRun:
    """Return one run with the cells and records of all runs.

    Runs are taken in the order in which they were planned, so the result does not depend on the order given. Its folder is the first
    run's, its recipe that of the first run that trains. A cell timed by several runs has the rounds of all of them. Raises RequestError
    naming the first key in which two runs differ.
    """
    if len(runs) == 1:
        return runs[0]
    runs = _in_order(runs)
    for first, second in pairwise(runs):
        _require_agreement(first, second)
    for first, second in pairwise(run for run in runs if _learns(run.plan)):
        _require_equal(first, second, _settings(first, second, SAME_TRIALS))
    runs = _with_one_recipe(runs)
    plan = _plan(runs)
    return dataclasses.replace(runs[0], plan=plan, records=tuple(_for_all_cells(list(_records(runs)), plan)))


def rows_of_runs(runs: Sequence[StoredRun]) -> pandas.DataFrame:
    """Return the rows of the merged run.

    Each cell keeps the status from its own runs. Metrics that its own runs did not request do not count as missing. A failure in
    any run stays visible.
    """
    runs = _in_order(runs)
    rows = rows_of(merge_runs(runs))
    if len(runs) > 1:
        own = pandas.concat([rows_of(run)[["cell_id", "status", "reason"]] for run in _with_one_recipe(runs)])
        own = (
            own.sort_values("status", key=lambda status: status == MEASURED, kind="stable").drop_duplicates("cell_id").set_index("cell_id")
        )
        rows = rows.assign(**{name: rows["cell_id"].map(own[name]) for name in own.columns})
    return rows


def _in_order(runs: Sequence[StoredRun]) -> list[StoredRun]:
    return sorted(runs, key=lambda run: run.plan.created)


def _require_agreement(first: StoredRun, second: StoredRun) -> None:
    trained = trains(first.plan) or trains(second.plan)
    timed = depends_on_host(first.plan) or depends_on_host(second.plan)
    found = disagreements(first.environment, second.environment, trained=trained, timed=timed)
    _require_equal(first, second, {**found, **_settings(first, second, SAME_SETTINGS)})


def _settings(first: StoredRun, second: StoredRun, keys: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    return {key: (getattr(first.plan.settings, key), getattr(second.plan.settings, key)) for key in keys}


def _require_equal(first: StoredRun, second: StoredRun, pairs: Mapping[str, tuple[Any, Any]]) -> None:
    for key, (before, after) in pairs.items():
        if before != after:
            raise RequestError(
                f"{first.folder} and {second.folder} differ in {key}: {before!r} and {after!r}",
                "read each run by itself",
            )


def _learns(plan: Plan) -> bool:
    return "accuracy" in plan.metrics


def _with_one_recipe(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Return the runs with the recipe of the first that trains; cells that another recipe trained carry their own."""
    base = next((run.plan.recipe for run in runs if _learns(run.plan)), None)
    return [run if base is None or not _learns(run.plan) or run.plan.recipe == base else _by_recipe(run, base) for run in runs]


def _by_recipe(run: StoredRun, base: Recipe) -> StoredRun:
    """Return the run as if it had been planned with another recipe as the default.

    Its recipes stay what they were, but the ids of its cells change, in plan and records alike.
    """
    cells = tuple(_carrying(planned, base_recipe(planned.cell, run.plan), base) for planned in run.plan.cells)
    renamed = {before.cell.cell_id: after.cell.cell_id for before, after in zip(run.plan.cells, cells, strict=True)}

    def ids(found: Iterable[str]) -> tuple[str, ...]:
        return tuple(renamed[cell_id] for cell_id in found)

    plan = dataclasses.replace(
        run.plan,
        recipe=base,
        cells=cells,
        parts=tuple(
            dataclasses.replace(
                part, cells=ids(part.cells), arms=tuple(dataclasses.replace(arm, cells=ids(arm.cells)) for arm in part.arms)
            )
            for part in run.plan.parts
        ),
    )
    records = tuple(dataclasses.replace(r, subject_id=renamed.get(r.subject_id, r.subject_id), cells=ids(r.cells)) for r in run.records)
    return dataclasses.replace(run, plan=plan, records=records)


def _carrying(planned: PlannedCell, recipe: Recipe, base: Recipe) -> PlannedCell:
    """Return the cell with its recipe, if it trains by another than the default."""
    cell = planned.cell
    own = recipe if cell.workload.task and recipe != base else None
    workload = dataclasses.replace(cell.workload, recipe=own)
    return dataclasses.replace(planned, cell=dataclasses.replace(cell, workload=workload))


def _plan(runs: Sequence[StoredRun]) -> Plan:
    plans = [run.plan for run in runs]
    trainers = [plan for plan in plans if _learns(plan)]
    lengths = [plan.accuracy_seq_lens for plan in trainers]
    seeds: dict[str, int] = {}
    for plan in trainers:
        for cell_id, num in plan.seeds_by_cell.items():
            seeds[cell_id] = max(num, seeds.get(cell_id, 0))
    cells = {
        planned.cell.cell_id: dataclasses.replace(planned, seeds=seeds.get(planned.cell.cell_id))
        for plan in reversed(plans)
        for planned in plan.cells
    }
    base = (trainers or plans)[0]  # trials are those of a run that trains
    return dataclasses.replace(
        base,
        command="\n".join(dict.fromkeys(plan.command for plan in plans)),
        created=", ".join(dict.fromkeys(plan.created for plan in plans)),
        metrics=_unique(metric for plan in plans for metric in plan.metrics),
        cells=tuple(cells[cell_id] for cell_id in _unique(p.cell.cell_id for plan in plans for p in plan.cells)),
        skipped=_unique(skipped for plan in plans for skipped in plan.skipped),
        settings=dataclasses.replace(base.settings, rounds=sum(run.plan.settings.rounds for run in runs)),
        # empty means all lengths, so if any is empty, the result is empty
        accuracy_seq_lens=_unique(n for found in lengths for n in found) if all(lengths) else (),
        parts=tuple(part for run in runs for part in _parts(run)),
        question=_question(base, plans),
    )


def _question(base: Plan, plans: Sequence[Plan]) -> Question | None:
    """Return the question of a plan, with the predictions of all plans that ask the same."""
    if base.question is None:
        return None
    same = [plan.question for plan in plans if plan.question and plan.question.text == base.question.text]
    return dataclasses.replace(base.question, predictions=_unique(prediction for question in same for prediction in question.predictions))


def _parts(run: StoredRun) -> tuple[Part, ...]:
    """Return a run's parts, by default one per matching policy."""
    if run.plan.parts:
        return run.plan.parts
    by_policy: dict[str, list[str]] = {}
    for planned in run.plan.cells:
        by_policy.setdefault(planned.sizing.match, []).append(planned.cell.cell_id)
    return tuple(Part(name=run.folder.name, match=match, batching="", cells=tuple(cells)) for match, cells in by_policy.items())


def _records(runs: Sequence[StoredRun]) -> Iterator[Record]:
    """Yield the records of all runs, with rounds numbered consecutively across runs.

    If several runs measured the same thing once, or with the same seed, the first record counts.
    """
    seen: set[Any] = set()
    offset = 0
    for run in runs:
        for record in run.records:
            renumbered = dataclasses.replace(record, repeat=record.repeat + offset) if _by_round(record.metric) else record
            if renumbered.key not in seen:
                seen.add(renumbered.key)
                yield renumbered
        offset += run.plan.settings.rounds


def _for_all_cells(records: Sequence[Record], plan: Plan) -> Iterator[Record]:
    """Yield the records with the cells of all runs that share them: a training belongs to every cell of its model, task and recipe."""
    cells = {planned.cell.cell_id: planned.cell for planned in plan.cells}
    same: dict[Any, list[str]] = {}
    for cell_id, cell in cells.items():
        if is_trained(cell, plan):
            same.setdefault(_training(cell), []).append(cell_id)
    for record in records:
        is_training = record.metric in (ACCURACY, TUNING) and record.cells
        yield dataclasses.replace(record, cells=tuple(same[_training(cells[record.cells[0]])])) if is_training else record


def _training(cell: Cell) -> tuple[str, str, Recipe | None]:
    return (cell.model.canonical, cell.workload.task, cell.workload.recipe)


def _by_round(metric: str) -> bool:
    return bool(catalog.load("metrics", metric).REPEAT == "round")


def _unique(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(items))

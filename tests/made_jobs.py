"""Jobs on small models, and records of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.spec import MEASURED, Cell, Job, ModelSpec, OptionValue, Outcome, Plan, Record, Workload, training_id
from models.layers.shape import Interface, Shape

SHAPE: dict[str, int] = {"seq_len": 17, "width": 16, "depth": 1, "heads": 1, "ffn_width": 32}


def small_model(
    family: str = "vit", *, interface: Interface = Interface(), options: Mapping[str, OptionValue] = {}, **sizes: int
) -> ModelSpec:
    """With `sizes` in place of those of SHAPE."""
    return ModelSpec(name=family, family=family, options=tuple(options.items()), shape=Shape(**{**SHAPE, **sizes}), interface=interface)


def small_job(metric: str, model: ModelSpec | None = None, *, work: Mapping[str, Any] = {}, repeat: int = 0, **fields: Any) -> Job:
    """`fields`: of the job, beside its cell."""
    return Job(cell=Cell(model=model or small_model(), workload=Workload(**work)), metric=metric, repeat=repeat, **fields)


def small_record(metric: str, values: Mapping[str, Any], repeat: int = 0, **fields: Any) -> Record:
    """What was measured, of the subject `s`; `fields`: of the record, in place of made ones."""
    known = {"subject_id": "s", "control": False, "environment_id": "e", "code_version": "v", **fields}
    return Record(metric=metric, repeat=repeat, outcome=Outcome(status=MEASURED, values=dict(values)), **known)


def training_record(plan: Plan, cell: Cell, outcome: Outcome, repeat: int = 0) -> Record:
    """Of a training by the plan's recipe, for all cells that share it."""
    own = training_id(cell, plan.recipe)
    cells = tuple(p.cell.cell_id for p in plan.cells if training_id(p.cell, plan.recipe) == own)
    made = small_record("accuracy", {}, repeat, subject_id=own, cells=cells)
    return dataclasses.replace(made, outcome=outcome)

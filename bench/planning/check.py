"""Check that this program can run a plan: one read from a file, a model on a task, a workload.

A plan that was built here holds only what passed; one from a file may hold anything.
"""

from __future__ import annotations

import os
import re

from bench import catalog
from bench.measure.engines import parse_engine, why_unsupported
from bench.measure.kernels import masks_attention
from bench.measure.model import (
    can_generate,
    config_of,
    cost_of,
    dropping_places_of,
    generating_models,
    has_stochastic_depth_of,
    is_counted,
)
from bench.peers import own_code
from bench.peers.names import OUTSIDE, parse_outside
from bench.planning.recipe import check_device, check_fits, check_recipe
from bench.planning.request import parse_task
from bench.planning.tuning import MAX_TRIALS, MIN_TRIALS
from bench.planning.values import MAX_COUNT, MAX_SIZE
from bench.spec import (
    ATTENTION_BACKENDS,
    DEVICES,
    DTYPES,
    NO_ATTENTION,
    PHASES,
    TUNING,
    ModelSpec,
    Plan,
    PlannedCell,
    Recipe,
    RequestError,
    Workload,
    base_recipe,
)
from bench.tasks._info import Images, choose, info_of
from models.layers.shape import require_one_of, require_positive

SAFE_NAME = r"\w[\w.+=-]{0,150}"
ALLOW_FACTORIES = "BENCH_ALLOW_FACTORIES"
"""Environment variable that lets plan files name functions of any package."""
OWN_FACTORIES = "bench.peers."
HALF_PRECISION_ATTENTION = ("flash", "cudnn")
"""Attention kernels that take only fp16 and bf16 on CUDA.

Source: torch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. On a CPU, flash attention takes fp32 too.
"""
WORKLOAD_WORDS = {
    "phase": PHASES,
    "dtype": DTYPES,
    "device": DEVICES,
    "attention": (*ATTENTION_BACKENDS, NO_ATTENTION),
}


def check_plan(plan: Plan, source: str, *, is_own_run: bool = False, with_outside: bool = True) -> None:
    """Raise RequestError if this program cannot run a plan from a file.

    Words must be known, models must build, and costs must equal the ones that this version computes.
    `is_own_run`: the plan comes from the folder of a run, so its request was typed here and may name functions of any package.
    `with_outside`: whether models from outside this repository are built too, which runs their code.
    """
    built = [planned for planned in plan.cells if with_outside or planned.cell.model.family not in OUTSIDE]
    for model in {planned.cell.model for planned in built}:
        _require_allowed_factory(model, source, is_own_run)
    try:
        _require_words(plan)
        _require_parts(plan)
        for planned in built:
            config_of(planned.cell.model)
            if task := planned.cell.workload.task:
                check_trainable(planned.cell.model, task, base_recipe(planned.cell, plan))
            if cost_of(planned.cell.model).terms != planned.sizing.terms:
                raise ValueError(f"the cost of {planned.cell.model.name} differs from the one that this version computes")
            if not _params_match_cost(planned):
                raise ValueError(f"the parameters of {planned.cell.model.name} differ from its cost")
    except (ValueError, TypeError) as error:
        raise RequestError(f"{source} cannot be run: {error}", "write a new one with: bench plan ... --out FILE") from error


def check_stored(plan: Plan, source: str) -> None:
    """Raise RequestError if this program would not measure the plan of a stored run. Runs none of its models' own code."""
    check_plan(plan, source, is_own_run=True, with_outside=False)


def _require_allowed_factory(model: ModelSpec, source: str, is_own_run: bool) -> None:
    """Raise RequestError if a plan file must not build this model.

    Building a model from outside this repository runs its function, so the function must belong to `bench.peers` or be allowed by the user.
    The model's options must equal the ones that a typed request gives.
    """
    if model.family not in OUTSIDE:
        return
    options = {key: str(value) for key, value in model.options}
    factory, arguments = options.get("factory", ""), options.get("arguments", "")
    pool = f"pool={options['pool']}" if "pool" in options else ""
    if model.digest:
        own_code.require_known(model.digest, model.name)
    else:
        entry = "+".join(filter(None, (f"{model.family}:{factory or options.get('model', '')}", pool, arguments)))
        _, _, typed = parse_outside(entry) or ("", "", ())
        if dict(typed) != dict(model.options):
            text = f"{source}: the options of {model.name} differ from {entry}"
            raise RequestError(text, "write a new one with: bench plan ... --out FILE")
    is_known = not model.digest and factory.startswith(OWN_FACTORIES) and not factory.endswith(":library")  # `library` imports any module
    if factory and not (is_known or is_own_run or os.environ.get(ALLOW_FACTORIES) == "1"):
        raise RequestError(
            f"{source} wants to import and call {factory}", f"if you trust it: {ALLOW_FACTORIES}=1 bench run --plan {source}"
        )
    if model.digest and is_own_run:
        own_code.require_unchanged(model.digest, model.name)


def check_trainable(model: ModelSpec, task: str, recipe: Recipe) -> None:
    """Raise RequestError if a model cannot learn a task with this recipe.

    Otherwise the mistake would show only after training, if at all.
    """
    if info_of(task).generation and not can_generate(model):
        blank = "write form=blank in `task`, or " if "form" in choose(task).options else ""
        raise RequestError(
            f"task {task} shows each answer one token later, and {model.name} reads ahead: it would copy the answers",
            f"{blank}try {', '.join(generating_models())}",
        )
    reads = info_of(task).reads
    if model.family in OUTSIDE and isinstance(reads, Images) and not reads.is_square:
        raise RequestError(
            f"{model.name} is from outside this repository, and reads square images; those of task {task} have {reads.size_text}",
            "try a family of: bench list families, or one side",
        )
    if recipe.dropout:
        _require_dropping_places(model, recipe)
    if recipe.stochastic_depth and not has_stochastic_depth_of(model):
        raise RequestError(
            f"`recipe=stochastic_depth={recipe.stochastic_depth:g}`: {model.name} has no blocks that add to a residual",
            "leave stochastic_depth out of `recipe`",
        )


def _require_dropping_places(model: ModelSpec, recipe: Recipe) -> None:
    places = dropping_places_of(model)
    if absent := [place for place in recipe.dropout_at if place not in places]:
        there = "+".join(places)
        raise RequestError(
            f"`recipe=dropout={recipe.dropout:g}` at {absent[0]}: {model.name} has {f'dropout only at {there}' if there else 'no dropout'}",
            f"try dropout_at={there} in `recipe`" if there else "leave dropout out of `recipe`",
        )


def _require_parts(plan: Plan) -> None:
    """Raise ValueError if a part or arm holds unknown cells."""
    known = {planned.cell.cell_id for planned in plan.cells}
    for part in plan.parts:
        if strays := [cell_id for cell_id in part.cells if cell_id not in known]:
            raise ValueError(f"its part {part.name!r} holds the cell {strays[0]!r}, which is not in the plan")
        if strays := [cell_id for arm in part.arms for cell_id in arm.cells if cell_id not in part.cells]:
            raise ValueError(f"an arm of its part {part.name!r} holds the cell {strays[0]!r}, which is not in the part")


def _require_range(name: str, value: int, high: int, low: int = 1) -> None:
    require_positive(name, value)
    if not low <= value <= high:
        raise ValueError(f"{name} {value:,} is {f'more than {high:,}' if value > high else f'less than {low:,}'}")


def _params_match_cost(planned: PlannedCell) -> bool:
    sizing, n = planned.sizing, planned.cell.model.shape.seq_len
    params_seq = None if sizing.is_counted else sizing.cost.params_seq().at(n)
    return (sizing.params, sizing.params_seq) == (sizing.cost.params().at(n), params_seq)


def _require_words(plan: Plan) -> None:
    """Raise ValueError for an unknown word or a number out of range."""
    if not plan.cells or not plan.metrics:
        raise ValueError("it holds no cells or no metrics")
    if not re.fullmatch(SAFE_NAME, plan.name):
        raise ValueError(f"its name {plan.name!r} is not a plain folder name")
    for metric in plan.metrics:
        catalog.plugin("metrics", metric)
    for work in {p.cell.workload for p in plan.cells}:
        for name, allowed in WORKLOAD_WORDS.items():
            require_one_of(name, getattr(work, name), allowed)
        parse_task(work.task)
        parse_engine(work.engine)
        if reason := why_unsupported_workload(work):
            raise ValueError(reason)
        if work.recipe:
            check_recipe(work.recipe)
        if work.task:
            check_fits(work.recipe or plan.recipe, work.task)
            check_device(work.recipe or plan.recipe, work.device)
        _require_range("batch_size", work.batch_size, MAX_SIZE)
    if len({p.cell.workload.device for p in plan.cells}) > 1:
        raise ValueError("its cells are for several devices")
    for shape in {p.cell.model.shape for p in plan.cells}:
        _require_range("seq_len", shape.seq_len, MAX_SIZE)
        _require_range("depth", shape.depth, MAX_COUNT)
        _require_range("width", max(shape.width, shape.ffn_width), MAX_SIZE)
    _require_settings(plan)


def _require_settings(plan: Plan) -> None:
    settings = plan.settings
    for name in ("rounds", "seeds", "threads", "train_threads"):
        _require_range(name, getattr(settings, name), MAX_COUNT)
    check_recipe(plan.recipe)
    if settings.seed < 0:
        raise ValueError("its seed is negative")
    for name in ("lr_trials", "decay_trials"):
        if getattr(settings, name):
            _require_range(name, getattr(settings, name), MAX_TRIALS, low=MIN_TRIALS)
    if (TUNING in plan.metrics) != bool(settings.lr_trials) or (settings.decay_trials and not settings.lr_trials):
        raise ValueError(f"its {settings.lr_trials} trials do not suit the metrics {', '.join(plan.metrics)}")
    if min(settings.limit_s, settings.sample_s, settings.train_limit_s) <= 0:
        raise ValueError("its time limits must be positive")
    if not 0 < settings.margin <= 1:
        raise ValueError(f"its margin is {settings.margin!r}, not a share between 0 and 1")


def why_unsupported_workload(workload: Workload) -> str:
    """Return why no model supports a workload, or ""."""
    if workload.dtype == "tf32" and workload.device != "cuda":
        return "--dtype tf32 needs a CUDA device, and the device is cpu"
    if workload.device == "cuda" and workload.attention in HALF_PRECISION_ATTENTION and workload.dtype in ("fp32", "tf32"):
        return f"--attention {workload.attention} takes no fp32 tensors on CUDA: use efficient or math, or --dtype bf16"
    found = why_unsupported(workload)
    return f"--engine {workload.engine}: {found}" if found else ""


def why_unsupported_mask(model: ModelSpec, workload: Workload) -> str:
    """Return why the attention kernel cannot apply the model's mask, or ""."""
    if workload.device != "cuda" or workload.attention != "flash" or is_counted(model) or not masks_attention(model):
        return ""
    return "--attention flash takes no mask on CUDA, and this model has one: use efficient or math"

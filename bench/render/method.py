"""How each number was made, on what, and how to make it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from bench.render import numbers
from bench.render.document import Block, Bullets, Code, Paragraph, TableBlock
from bench.render.report_data import ReportData
from bench.render.tables import Table
from bench.spec import NO_TEACHER, Plan, Recipe
from bench.tuning import LEARNING_RATE_SPREAD

UNKNOWN = "not known"


def how_numbers_were_made(plan: Plan, num_rounds: str) -> tuple[Block, ...]:
    """One line per kind of number that this run asked for; `num_rounds`: how many rounds its cells were timed in, as text."""
    lines = [
        "Sizes: the closed form of each model, checked against the parameters as built; matched by the policy in the matching table.",
        *(text for metric, text in _by_metric(plan, num_rounds).items() if metric in plan.metrics),
        "Empty means not measured; it never means zero. A cell that failed keeps its row, with its status and reason.",
        f"Order of jobs shuffled with seed {plan.settings.seed}; at most {plan.settings.limit_s:g} s per job.",
    ]
    return (Bullets(items=tuple(lines)),)


def _by_metric(plan: Plan, num_rounds: str) -> dict[str, str]:
    settings = plan.settings
    return {
        "flops": (
            "FLOPs: matrix products only, one multiply-add is two, forward pass of one sample; the closed form, torch's counter and "
            "fvcore's must agree exactly."
        ),
        "latency": (
            f"Latency: {num_rounds} rounds, every cell once per round in a fresh process (CPU threads: {settings.threads}; about "
            f"{settings.sample_s:g} s of samples after warm-up); the median over rounds, with the 95 % t-interval over rounds on the log scale."
        ),
        "ceiling": (
            "Ceilings: the best matrix product (the table's ceiling_kernel names whose, where several were tried), copy and chain of tiny operators "
            "of this device, measured in every round like a cell; MFU is model FLOPs per second over the first. A step is bound by whichever of the "
            "three takes it longest. What the device allows is the larger of two times, by its FLOPs and by the bytes that a step with a "
            "separate AdamW update moves at least."
        ),
        "memory": "Memory: the peak of live tensors in a pass of its own, split into weights, gradients, optimizer state and activations.",
        "energy": "Energy: the device's own total-energy counter over windows of seconds; empty where there is none.",
        "accuracy": (
            f"Accuracy: {settings.seeds} seeds, {_recipes(plan)}"
            f"{', but for the learning rate, which each chose by its trials' if settings.lr_trials else ''}; the weights of the epoch that is best "
            "on validation; the test split is scored once per seed; mean with a 95 % t-interval. Training times are wall times, one training after "
            "the other, with whatever else the machine had to do: take them as orders of magnitude, and FLOPs for comparisons."
        ),
        "tuning": (
            f"Tuning: {settings.lr_trials} learning rates per model, the same for all, log-uniform within a factor of {LEARNING_RATE_SPREAD:g} "
            "of the recipe's; the best on validation was trained afresh, with other seeds, for the reported figures."
        ),
        "training_speed": (
            "Training speed: the loop, the bare steps on batches that are ready, and the plain DataLoader loop take turns in one process; "
            "ratios paired by stretch, 95 % t-interval over rounds."
        ),
    }


def _recipes(plan: Plan) -> str:
    own = any(planned.cell.workload.recipe for planned in plan.cells)
    lead = "the recipe of each row's own, where the table names one, over this one" if own else "one recipe for all models"
    return f"{lead} ({recipe_text(plan.recipe)})"


def recipe_text(recipe: Recipe) -> str:
    """A recipe in words; what is off goes unsaid."""
    dropout = f"dropout {recipe.dropout:g} at {', '.join(recipe.dropout_at)}" if recipe.dropout else ""
    strength = f" (RandAugment at magnitude {recipe.magnitude})" if "randaugment" in recipe.augment else ""
    teacher = (
        f"a {recipe.teacher} teacher trained for {recipe.teacher_epochs} epochs, {recipe.distillation} distillation with "
        f"{recipe.distillation_weight:g} of the loss"
        if recipe.teacher != NO_TEACHER
        else ""
    )
    stop = f"stopped after {recipe.early_stop} epochs without a better one" if recipe.early_stop else ""
    parts = (
        f"AdamW, {recipe.epochs} epochs, batch {recipe.batch_size * recipe.accumulate}",
        f"peak learning rate {recipe.learning_rate:g} after a warm-up over {recipe.warmup:.0%} of the steps, then {recipe.schedule}",
        f"weight decay {recipe.weight_decay:g}, label smoothing {recipe.label_smoothing:g}, gradients clipped at {recipe.clip_norm:g}",
        f"augmentation: {', '.join(recipe.augment) or 'none'}{strength}",
        *(part for part in (dropout, stop, teacher) if part),
        f"{recipe.precision}{', compiled' if recipe.compile else ''}",
    )
    return "; ".join(parts)


def machine_and_software(environment: Mapping[str, Any]) -> tuple[Block, ...]:
    if not environment:
        return (Paragraph(text="The run recorded no facts about its machine."),)
    rows = tuple((name.replace("_", " ").removesuffix(" bytes"), _fact(name, value)) for name, value in environment.items())
    return (TableBlock(table=Table(headers=("fact", "value"), numeric=(False, False), rows=rows)),)


def how_to_make_it_again(data: ReportData) -> tuple[Block, ...]:
    folders = [shlex.quote(f"results/{name}") for name in data.folders or (data.name,)]
    out = f" --out {shlex.quote('reports/NAME')}" if len(folders) > 1 else ""
    again = "\n".join(f"bench run --plan {folder}/plan.json" for folder in folders)
    return (
        Paragraph(text=f"Made by this command, on {data.plan.created or 'a date that was not recorded'}:"),
        Code(text=data.plan.command),
        Paragraph(text="Rebuild this report from its records, or measure the same plan again on another machine:"),
        Code(text=f"bench report {' '.join(folders)}{out}\n{again}"),
    )


def _fact(name: str, value: Any) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_fact(str(key), item)}" for key, item in value.items()) or UNKNOWN
    if isinstance(value, (list, tuple)):
        return ", ".join(_fact("", item) for item in value) or UNKNOWN
    if name.endswith("_bytes") and isinstance(value, (int, float)):
        return numbers.bytes_text(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)

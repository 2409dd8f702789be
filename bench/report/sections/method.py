"""Say how a run's numbers were made, on which machine, and how to make them again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.study import Study
from bench.measure.hosts import shown
from bench.needs import trains
from bench.planning.tuning import STEPS, trial_epochs
from bench.reading.store import ENVIRONMENT
from bench.report.document import Block, Bullets, Code, Paragraph, TableBlock
from bench.report.tables import Table
from bench.spec import MEASURED, NO_TEACHER, OPTIMIZERS, WEIGHTS, Plan, Recipe, Settings

ALL_COUNTERS = "closed form, torch, fvcore"
UNKNOWN = "not known"
TOPICS = {
    "latency": ("latency", "latency_ms"),
    "memory": ("memory", "peak_memory_bytes"),
    "FLOPs": ("flops", "flops"),
    "energy": ("energy", "energy_j"),
    "accuracy": ("accuracy", "accuracy"),
}
"""Topics of a report, each with its metric and value column."""


def how_numbers_were_made(study: Study) -> tuple[Block, ...]:
    """Return one line per kind of number in the run, and name the kinds that it lacks."""
    plan = study.plan
    training_limit = f" (a training: {plan.settings.train_limit_s:g} s)" if trains(plan) else ""
    lines = [
        "Sizes: from each model's closed form, checked against the parameters of the built model; the table of matched sizes names the policy.",
        *(text for metric, text in _by_metric(study, _num_rounds(study), counters(study.frame)).items() if metric in plan.metrics),
        "An empty value was not measured; it never means zero. A failed configuration keeps its row, with status and reason.",
        f"Timed jobs ran in random order (seed {plan.settings.seed}), each job for at most {plan.settings.limit_s:g} s{training_limit}.",
    ]
    return (Bullets(items=(*lines, *absent(study.frame, plan.metrics))),)


def absent(frame: pandas.DataFrame, metrics: tuple[str, ...]) -> list[str]:
    """Return sentences on topics that were not requested, and on why rows have no energy."""
    not_requested = [topic for topic, (metric, column) in TOPICS.items() if metric not in metrics and frame[column].isna().all()]
    return [*([f"Not requested in this run: {', '.join(not_requested)}."] if not_requested else []), *no_energy(frame)]


def no_energy(frame: pandas.DataFrame) -> list[str]:
    """Return a sentence for each reason why rows have no energy."""
    return [f"No energy: {reason}." for reason in sorted({*frame["energy_reason"]} - {""})]


def counters(frame: pandas.DataFrame) -> str:
    """Return the FLOP counters that were compared, as text; all three unless a record names them."""
    found = sorted({names or ALL_COUNTERS for names in frame.loc[frame["flops"].notna(), "flops_counted_by"]})
    return "; ".join(found) or ALL_COUNTERS


def _num_rounds(study: Study) -> str:
    """Return the measured number of rounds, or its range.

    The cells of merged runs may differ.
    """
    counts = sorted(set(study.frame["num_rounds"].dropna()))
    return (
        " to ".join(dict.fromkeys(numbers.whole(count) for count in (counts[0], counts[-1]))) if counts else str(study.plan.settings.rounds)
    )


def _where_timed(study: Study) -> str:
    """Say on which processors the members of a group ran; "" if they were not pinned in turn to several, if no record says so, and on a GPU."""
    timed = [record.outcome.values for record in study.records if record.metric == "latency" and record.outcome.status == MEASURED]
    sets = {tuple(values["processors"]) for values in timed if "processors" in values}
    if len(sets) < 2 or study.plan.cells[0].cell.workload.device != "cpu":
        return ""
    places = " and ".join("+".join(map(str, processors)) for processors in sorted(sets))
    return f"All members of a group ran on the same processors, from round to round on {places}. "


def _by_metric(study: Study, num_rounds: str, counted_by: str) -> dict[str, str]:
    """Return a sentence on how each metric is measured, by metric."""
    plan, settings = study.plan, study.plan.settings
    return {
        "flops": (
            f"FLOPs: matrix products in the forward pass of one sample, two FLOPs per multiply-add; counted by {counted_by}. The counts of a "
            "configuration must agree exactly."
        ),
        "latency": (
            f"Latency: {num_rounds} rounds; each configuration runs once per round in a fresh process (CPU threads: {settings.threads}). Compared "
            "configurations are warm at the same time and take turns in short bursts, in random order within a block; where a cold cache matters "
            f"the first calls of a burst are discarded. {_where_timed(study)}A ratio is the median over blocks, then the Hodges-Lehmann "
            "estimate over rounds with its exact signed-rank interval, 95 % together for the models of one length. A time is the median over "
            "rounds, its 95 % interval two order statistics. Pilots set the calls per burst and the number of blocks (Kalibera and Jones 2013); "
            "their times are discarded."
        ),
        "ceiling": (
            "Ceilings: this device's best matrix product (torch.mm; on a CPU, runs of 2026-11-22 to 27 also tried another library's), copy and chain "
            "of tiny operators, measured in every fourth round (in every round until 2026-11-27). MFU is model FLOPs per second over the best "
            "matrix product. The ceiling that takes longest bounds the step. The device's limit is the larger of two times: for the step's "
            "FLOPs, and for the fewest bytes that a step with a separate AdamW update can move."
        ),
        "memory": "Memory: the peak of live tensors in a separate pass, split into weights, gradients, optimizer state and activations.",
        "energy": (
            "Energy: the rise of a counter over windows of seconds, idle power and other work included. The column energy_source names it: NVML's of "
            "the whole GPU, or RAPL's of all CPU packages of the machine and of DRAM where it has one."
        ),
        "accuracy": (
            f"Accuracy: {numbers.counted(settings.seeds, 'seed')}, {_recipes(plan)}"
            f"{_tuned(settings)}. The test split is scored once "
            "per seed, with the weights of the best epoch on validation; scores are means with 95 % t-intervals. Training times are wall times of "
            "training steps and include other load on the machine: take them as orders of magnitude, and compare FLOPs instead."
        ),
        "tuning": (
            f"Tuning: trials on validation data, as many for every model of one search, each with {trial_epochs(plan)}: first "
            f"{settings.lr_trials} learning rates, a factor of {STEPS['learning_rate']:g} apart"
            f"{f', then {settings.decay_trials} weight decays at the best rate' if settings.decay_trials else ''}. While any model's best value lay "
            "at an end of its range, every model made another trial, beyond the end or between its best values. The winner was trained afresh, with "
            "other seeds, for the reported figures."
        ),
    }


def _tuned(settings: Settings) -> str:
    if not settings.lr_trials:
        return ""
    both = " and the weight decay" if settings.decay_trials else ""
    return f", except the learning rate{both}, which each model chose by its trials"


def _recipes(plan: Plan) -> str:
    own = any(planned.cell.workload.recipe for planned in plan.cells)
    lead = "one recipe, with the changes that a row's recipe column names" if own else "one recipe for all models"
    return f"{lead} ({recipe_text(plan.recipe)})"


def recipe_text(recipe: Recipe) -> str:
    """Return a recipe in words; options that are off are omitted."""
    dropout = f"dropout {recipe.dropout:g} at {', '.join(recipe.dropout_at)}" if recipe.dropout else ""
    skipping = f"stochastic depth up to {recipe.stochastic_depth:g}" if recipe.stochastic_depth else ""
    strength = f" (RandAugment at magnitude {recipe.magnitude})" if "randaugment" in recipe.augment else ""
    teacher = (
        f"a {recipe.teacher} teacher trained for {recipe.teacher_epochs} epochs, {recipe.distillation} distillation with "
        f"{recipe.distillation_weight:g} of the loss"
        if recipe.teacher != NO_TEACHER
        else ""
    )
    warmup = (
        ", one-cycle"
        if recipe.schedule == "one-cycle"
        else f" after a warm-up over {recipe.warmup:.0%} of the steps, then {recipe.schedule}"
    )
    items = f" of {recipe.epoch_items:,} items each, drawn anew" if recipe.epoch_items else ""
    stop = f"stopped after {recipe.early_stop} epochs without improvement" if recipe.early_stop else ""
    solved = "stopped when the validation score solves the task" if recipe.until_solved else ""
    begun = f"begun with the weights of {recipe.init} (sha256 {recipe.init_sha256})" if recipe.init else ""
    averaged = f"scored by an exponential moving average of the weights, decay {recipe.ema:g} per step" if recipe.ema else ""
    parts = (
        f"{OPTIMIZERS[recipe.optimizer]}, {recipe.epochs} epochs{items}, batch {recipe.batch_size * recipe.accumulate}",
        f"peak learning rate {recipe.learning_rate:g}{warmup}",
        f"weight decay {recipe.weight_decay:g}, label smoothing {recipe.label_smoothing:g}, gradients clipped at {recipe.clip_norm:g}",
        f"augmentation: {', '.join(recipe.augment) or 'none'}{strength}",
        *(part for part in (begun, dropout, skipping, stop, solved, teacher, averaged) if part),
        f"{recipe.precision}{', compiled' if recipe.compile else ''}{f', engine {recipe.engine}' if recipe.engine != 'eager' else ''}",
    )
    return "; ".join(parts)


def machine_and_software(environment: Mapping[str, Any]) -> tuple[Block, ...]:
    """Return the table of recorded facts on machine and software, but for long ones."""
    if not environment:
        return (Paragraph(text="The run recorded no facts about its machine."),)
    facts = shown(environment, ENVIRONMENT).items()
    rows = tuple((name.replace("_", " ").removesuffix(" bytes"), _fact(name, value)) for name, value in facts)
    return (TableBlock(table=Table(headers=("fact", "value"), numeric=(False, False), rows=rows)),)


def reproduction(study: Study) -> tuple[Block, ...]:
    """Return the commands that made, report and repeat the run."""
    folders = [shlex.quote(f"results/{name}") for name in study.folders or (study.name,)]
    out = f" --out {shlex.quote('reports/NAME')}" if len(folders) > 1 else ""
    repeat = "\n".join(f"bench run --plan {folder}/plan.json" for folder in folders)
    return (
        Paragraph(text=f"Made by this command, on {study.plan.created or 'a date that was not recorded'}:"),
        Code(text=study.plan.command),
        Paragraph(text="Rebuild this report from its records, or measure the same plan again on another machine:"),
        Code(text=f"bench report {' '.join(folders)}{out}\n{repeat}"),
        *_weights(study, folders),
    )


def _weights(study: Study, folders: Sequence[str]) -> tuple[Block, ...]:
    """Say where the trained weights are, if they were kept."""
    num = sum("weights" in record.outcome.values for record in study.records)
    if not num:
        return ()
    where = ", ".join(f"{folder}/{WEIGHTS}" for folder in folders)
    return (Paragraph(text=f"weights: {where}, of {numbers.counted(num, 'training')}, at the scored epoch (bench predict RUN IMAGE)"),)


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

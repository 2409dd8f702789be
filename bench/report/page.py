"""Build the report of a run: its sections in reading order.

A cell is one configuration: a model and a workload. The page calls cells configurations.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import constant_work, incomplete, unstable, varying
from bench.analysis.study import Study
from bench.planning.tuning import LEARNING_RATE_SPREAD
from bench.report import tables
from bench.report.charts.figures import absent, draw_figures
from bench.report.charts.style import series_styles
from bench.report.document import CELLS_ANCHOR, Block, Bullets, Code, Document, ExplorerBlock, Paragraph, Section, TableBlock
from bench.report.explorer import explorer_data
from bench.report.sections.ablation import effect_blocks, question_blocks
from bench.report.sections.ablation_figures import draw_effects
from bench.report.sections.answer import answer
from bench.report.sections.curve_fits import fits_blocks
from bench.report.sections.growth import draw_exponents, growth_blocks
from bench.report.sections.peers import peer_blocks
from bench.report.sections.quadratic_terms import where_quadratic
from bench.report.sections.roofline import draw_limits, draw_rooflines, limit_blocks
from bench.report.sections.saturation import saturation_blocks
from bench.report.sections.trained import weights_blocks
from bench.report.sections.verdicts import sentence, verdict_table
from bench.report.tables import Table
from bench.spec import NO_TEACHER, Plan, Recipe

NO_CELLS = Paragraph(text="The plan holds no configurations.")
ALL_COUNTERS = "closed form, torch, fvcore"
UNKNOWN = "not known"


def build_document(study: Study, *, every_figure: bool = False) -> Document:
    """Build the page of a run, including its figures.

    `every_figure` adds the heatmap of every trained model. Call inside `style.figure_style`.
    """
    frame, cells = study.frame, study.cells
    styles = series_styles([*frame["label"], *frame["model"]])
    sections: dict[str, tuple[Block, ...]] = {
        **_answer(study),
        **_section("Comparison with peers", peer_blocks(study)),
        **_effects(study),
        **({} if study.plan.question and study.plan.question.predictions else {"Which is faster": answer(study)}),
        "Can this machine be trusted?": _trust(study),
        "Matched sizes": _matching(frame),
        "Cost": _cost(cells),
        "Figures": (
            *([ExplorerBlock(data=rows)] if (rows := explorer_data(frame)) else []),
            *(*draw_figures(study, styles), *draw_exponents(study.growth, styles)),
            *(*draw_rooflines(study, styles), *draw_limits(study, styles)),
            *(Paragraph(text=sentence) for sentence in absent(frame, study.plan.metrics)),
        ),
        **_section("Saturation", saturation_blocks(study, styles)),
        **_section("Distance from the device's limits", limit_blocks(study)),
        "How cost grows with n": growth_blocks(study),
        "Where the n^2 terms are": where_quadratic(study),
        "Accuracy": _accuracy(study),
        **_section("Fitted curves", fits_blocks(study.records, study.plan)),
        **_section("Learned weights", weights_blocks(study.records, study.plan, every_figure=every_figure)),
        "The same claims in other conditions": _other_conditions(study),
        "Skipped, failed and unstable": _problems(study),
        "How each number was made": how_numbers_were_made(study.plan, _num_rounds(study), _counters(study.frame)),
        "Machine and software": machine_and_software(study.environment),
        "Reproduce this run": reproduction(study),
    }
    return Document(
        title=study.name,
        subtitle=_subtitle(study),
        notice=_notice(study),
        sections=tuple(Section(title=title, blocks=blocks) for title, blocks in sections.items()),
    )


def _section(title: str, blocks: tuple[Block, ...]) -> dict[str, tuple[Block, ...]]:
    """Return the section, or nothing if it is empty."""
    return {title: blocks} if blocks else {}


def _answer(study: Study) -> dict[str, tuple[Block, ...]]:
    """Return the answer to the run's question.

    A run with its own predictions shows the claims on quadratic cost separately, and only if one of them is decided.
    """
    blocks = question_blocks(study)
    if not study.prediction_verdicts:
        return {"Answer": (*_verdicts(study), *blocks)}
    decided = any(verdict.decided for verdict in study.verdicts)
    return {"Answer": blocks, **({"Claims on quadratic cost": _verdicts(study)} if decided else {})}


def _effects(study: Study) -> dict[str, tuple[Block, ...]]:
    blocks = effect_blocks(study)
    return _section("Effects and their cost", (*draw_effects(study.plan.parts, study.effects), *blocks) if blocks else ())


def _verdicts(study: Study) -> tuple[Block, ...]:
    caption = (
        "Each claim was written before it was tested, with the results that would support or refute it (see verdicts.json). "
        "Undecided means that the data cannot say. Brackets name the attention kernel: auto is torch's choice, fused if possible; math is explicit "
        "attention, which stores the n x n scores. The last column links to the rows behind a verdict by cell_id."
    )
    return (Paragraph(text=sentence(study.verdicts, study.caveat)), TableBlock(table=verdict_table(study.verdicts), caption=caption))


def _other_conditions(study: Study) -> tuple[Block, ...]:
    others = [other for verdict in study.verdicts for other in verdict.others]
    if not others:
        return (
            Paragraph(text="This run has one phase, engine, batching and matching policy, so it tests the claims in one condition only."),
        )
    caption = (
        "Each verdict comes from one scope, chosen by rule and not by outcome: inference, eager, fixed batch. This table has the others."
    )
    return (TableBlock(table=verdict_table(others), caption=caption),)


def _counters(frame: pandas.DataFrame) -> str:
    """Return the FLOP counters that were compared, as text.

    Older records lack `flops_counted_by`; they compared all three.
    """
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


def _subtitle(study: Study) -> str:
    frame = study.cells
    num_models = frame["model"].nunique()
    lengths = ", ".join(numbers.whole(n) for n in sorted(frame["seq_len"].dropna().unique()))
    parts = (
        f"{_plural(num_models, 'model')}, {_plural(len(frame), 'configuration')}",
        f"n = {lengths}" if lengths else "",
        study.plan.created,
    )
    return "; ".join(part for part in parts if part)


def _notice(study: Study) -> str:
    settings = study.plan.settings
    quick = f"Quick run: {_plural(settings.rounds, 'round')} and short limits. Use it as a first impression; do not publish these numbers."
    superseded = f"{study.superseded[:1].upper()}{study.superseded[1:]}."
    return " ".join((*([superseded] if study.superseded else []), *([quick] if settings.quick else [])))


def _trust(study: Study) -> tuple[Block, ...]:
    advice = (Bullets(items=tuple(finding.sentence for finding in study.findings)),) if study.findings else ()
    return (Paragraph(text=_control_sentence(study.control)), *advice)


def _control_sentence(control: Mapping[str, Any] | None) -> str:
    if control is None:
        return "This run has no A/A control, so it cannot show how much two equal configurations differ on this machine."
    measured = numbers.ratio(control.get("ratio"), control.get("low"), control.get("high")) or "could not be computed"
    level = 100 * float(control.get("level", 0.99))
    cell = control.get("cell", "")
    lead = f"A/A control: {cell or 'one configuration'}, measured under two names; ratio {measured} ({level:g} % interval over rounds)."
    if numbers.is_empty(control.get("ratio")):
        return f"{lead} The noise of this machine is therefore unknown."
    if control.get("contains_one"):
        resolution = "" if control.get("interleaved") else "; differences between models below its width could not be detected"
        return f"{lead} It contains 1, as it should{resolution}."
    return f"{lead} It excludes 1: the machine was too noisy, or drifted. Differences of this size or smaller are meaningless here."


def _matching(frame: pandas.DataFrame) -> tuple[Block, ...]:
    if frame.empty:
        return (NO_CELLS,)
    caption = (
        "Resolved sizes. The signed error compares the matched quantity with its target: parameters with the budget, or FLOPs with the reference. "
        "With the same width at every n (policy shape), it shows how far the size drifts as n grows."
    )
    return (TableBlock(table=tables.matching_table(frame), caption=caption),)


def _cost(frame: pandas.DataFrame) -> tuple[Block, ...]:
    if frame.empty:
        return (NO_CELLS,)
    counted = frame.loc[frame["flops"].notna(), "flops_agree"]
    agreeing = f" The FLOP counts ({_counters(frame)}) agree in {sum(flag is True for flag in counted)} of {_plural(len(counted), 'configuration')}."
    caption = (
        f"Conditions: {constant_work(frame)}. Brackets hold 95 % intervals. FLOPs count the forward pass of one sample; latency is the time of "
        f"the whole batch.{agreeing if len(counted) else ''}"
    )
    return (TableBlock(table=tables.cost_table(frame), caption=caption, anchor=CELLS_ANCHOR),)


def _accuracy(study: Study) -> tuple[Block, ...]:
    frame = study.frame
    table = tables.accuracy_table(frame)
    if table.rows:
        caption = "Fractions on the test split: means over seeds with 95 % t-intervals. This table tests no differences: use bench compare."
        return (TableBlock(table=table, caption=caption), *_training_speed(frame))
    if len(speed := _training_speed(frame)):
        return speed
    if "accuracy" in study.plan.metrics:
        return (Paragraph(text="Accuracy was requested, but no training produced a value."),)
    return (Paragraph(text="Accuracy was not requested: this run measures cost only."),)


def _training_speed(frame: pandas.DataFrame) -> tuple[Block, ...]:
    table = tables.training_speed_table(frame)
    caption = (
        "The training loop, compared with bare steps on prepared batches and with the plain DataLoader loop. Brackets hold 95 % intervals."
    )
    return (TableBlock(table=table, caption=caption),) if table.rows else ()


def _problems(study: Study) -> tuple[Block, ...]:
    frame, skipped = study.cells, study.plan.skipped
    broken, shaky = incomplete(frame), unstable(frame)
    blocks: list[Block] = []
    if skipped:
        caption = f"Skipped: {_plural(len(skipped), 'combination')} that cannot be built or matched."
        blocks.append(TableBlock(table=tables.skipped_table(skipped), caption=caption))
    if len(broken):
        blocks.append(
            TableBlock(
                table=tables.failure_table(broken),
                caption=f"Not measured in full: {len(broken)} of {_plural(len(frame), 'configuration')}.",
            )
        )
    if len(shaky):
        caption = f"Unstable: {_plural(len(shaky), 'configuration')} with drifting rounds or an interval wider than 10 %."
        blocks.append(TableBlock(table=tables.unstable_table(shaky, varying(frame)), caption=caption))
    lead = [] if skipped or len(broken) else [Paragraph(text="Nothing was skipped and nothing failed.")]
    return (*lead, *blocks) if blocks else (Paragraph(text="None: every requested configuration was measured and stable."),)


def _plural(num: int, noun: str) -> str:
    return f"{num} {noun}" if num == 1 else f"{num} {noun}s"


def how_numbers_were_made(plan: Plan, num_rounds: str, counters: str) -> tuple[Block, ...]:
    """Return one line per kind of number in the run.

    `num_rounds`, `counters`: rounds per cell, and FLOP counters, as text.
    """
    lines = [
        "Sizes: from each model's closed form, checked against the parameters of the built model; the table of matched sizes names the policy.",
        *(text for metric, text in _by_metric(plan, num_rounds, counters).items() if metric in plan.metrics),
        "An empty value was not measured; it never means zero. A failed configuration keeps its row, with status and reason.",
        f"Jobs ran in random order (seed {plan.settings.seed}), each for at most {plan.settings.limit_s:g} s.",
    ]
    return (Bullets(items=tuple(lines)),)


def _by_metric(plan: Plan, num_rounds: str, counters: str) -> dict[str, str]:
    """Return a sentence on how each metric is measured, by metric."""
    settings = plan.settings
    return {
        "flops": (
            f"FLOPs: matrix products in the forward pass of one sample, two FLOPs per multiply-add; counted by {counters}. The counts of a "
            "configuration must agree exactly."
        ),
        "latency": (
            f"Latency: {num_rounds} rounds; each configuration runs once per round in a fresh process (CPU threads: {settings.threads}). Compared "
            "configurations are warm at the same time and take turns in short bursts, in random order within a block; the first call of a burst "
            "is discarded. A ratio is the median over blocks, then the geometric mean over rounds with its t-interval. A time is the median over "
            "rounds, with a 95 % t-interval on the log scale. Pilots set the calls per burst and the number of blocks; their times are discarded. "
            "(Runs before 2026-11-23 timed one configuration after the other.)"
        ),
        "ceiling": (
            "Ceilings: this device's best matrix product (ceiling_kernel names the kernel if several were tried), copy and chain of tiny operators, "
            "measured in every round. MFU is model FLOPs per second over the best matrix product. The ceiling that takes longest bounds the step. "
            "The device's limit is the larger of two times: for the step's FLOPs, and for the fewest bytes that a step with a separate AdamW "
            "update can move."
        ),
        "memory": "Memory: the peak of live tensors in a separate pass, split into weights, gradients, optimizer state and activations.",
        "energy": "Energy: the device's total-energy counter over windows of seconds; empty without a counter.",
        "accuracy": (
            f"Accuracy: {settings.seeds} seeds, {_recipes(plan)}"
            f"{', except the learning rate, which each model chose by its trials' if settings.lr_trials else ''}. The test split is scored once "
            "per seed, with the weights of the best epoch on validation; scores are means with 95 % t-intervals. Training times are wall times of "
            "consecutive trainings and include other load on the machine: take them as orders of magnitude, and compare FLOPs instead."
        ),
        "tuning": (
            f"Tuning: all models tried the same {settings.lr_trials} learning rates, log-uniform within a factor of {LEARNING_RATE_SPREAD:g} "
            "of the recipe's. The best rate on validation was trained again with other seeds for the reported figures."
        ),
        "training_speed": (
            "Training speed: the loop, bare steps on prepared batches and the plain DataLoader loop take turns in one process. A ratio "
            "is the median over pairs of neighbouring turns, then the geometric mean over rounds with its 95 % t-interval."
        ),
    }


def _recipes(plan: Plan) -> str:
    own = any(planned.cell.workload.recipe for planned in plan.cells)
    lead = "one recipe, with the changes that a row's recipe column names" if own else "one recipe for all models"
    return f"{lead} ({recipe_text(plan.recipe)})"


def recipe_text(recipe: Recipe) -> str:
    """Return a recipe in words; options that are off are omitted."""
    dropout = f"dropout {recipe.dropout:g} at {', '.join(recipe.dropout_at)}" if recipe.dropout else ""
    strength = f" (RandAugment at magnitude {recipe.magnitude})" if "randaugment" in recipe.augment else ""
    teacher = (
        f"a {recipe.teacher} teacher trained for {recipe.teacher_epochs} epochs, {recipe.distillation} distillation with "
        f"{recipe.distillation_weight:g} of the loss"
        if recipe.teacher != NO_TEACHER
        else ""
    )
    stop = f"stopped after {recipe.early_stop} epochs without improvement" if recipe.early_stop else ""
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
    """Return the table of recorded facts on machine and software."""
    if not environment:
        return (Paragraph(text="The run recorded no facts about its machine."),)
    rows = tuple((name.replace("_", " ").removesuffix(" bytes"), _fact(name, value)) for name, value in environment.items())
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

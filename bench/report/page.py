"""The sections of a report, in the order in which a reader needs them, down to how each number was made and how to make it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import constant_work, failed, unstable, varying
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
from bench.report.sections.peers import standing_blocks
from bench.report.sections.quadratic_terms import where_quadratic
from bench.report.sections.roofline import draw_limits, draw_rooflines, limit_blocks
from bench.report.sections.saturation import saturation_blocks
from bench.report.sections.trained import weights_blocks
from bench.report.sections.verdicts import sentence, verdict_table
from bench.report.tables import Table
from bench.spec import NO_TEACHER, Plan, Recipe

NO_CELLS = Paragraph(text="The plan holds no cell.")
ALL_COUNTERS = "closed form, torch, fvcore"


def build_document(study: Study, *, every_figure: bool = False) -> Document:
    """Build the page of a run, figures included; `every_figure`: with the heatmap of every trained model. Call inside `style.figure_style`."""
    frame, cells = study.frame, study.cells
    styles = series_styles([*frame["label"], *frame["model"]])
    sections: dict[str, tuple[Block, ...]] = {
        **_answer(study),
        **_section("Beside the peers", standing_blocks(study)),
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
        **_section("How far from what the device allows", limit_blocks(study)),
        "How cost grows with n": growth_blocks(study),
        "Where n^2 lives": where_quadratic(study),
        "Accuracy": _accuracy(study),
        **_section("What the fits look like", fits_blocks(study.records, study.plan)),
        **_section("What the weights look like", weights_blocks(study.records, study.plan, every_figure=every_figure)),
        "What the same claims come to elsewhere": _elsewhere(study),
        "Skipped, failed and unstable": _problems(study),
        "How each number was made": how_numbers_were_made(study.plan, _num_rounds(study), _counters(study.frame)),
        "Machine and software": machine_and_software(study.environment),
        "Make it again": how_to_make_it_again(study),
    }
    return Document(
        title=study.name,
        subtitle=_subtitle(study),
        notice=_notice(study),
        sections=tuple(Section(title=title, blocks=blocks) for title, blocks in sections.items()),
    )


def _section(title: str, blocks: tuple[Block, ...]) -> dict[str, tuple[Block, ...]]:
    """Leave an empty section out."""
    return {title: blocks} if blocks else {}


def _answer(study: Study) -> dict[str, tuple[Block, ...]]:
    """What was asked comes first; the claims on quadratic cost too, unless other predictions were made and none of the claims is decided."""
    asked = question_blocks(study)
    if not study.outcomes:
        return {"Answer": (*_verdicts(study), *asked)}
    decided = any(verdict.decided for verdict in study.verdicts)
    return {"Answer": asked, **({"The claims on quadratic cost": _verdicts(study)} if decided else {})}


def _effects(study: Study) -> dict[str, tuple[Block, ...]]:
    blocks = effect_blocks(study)
    return _section("Effects and their cost", (*draw_effects(study.plan.parts, study.effects), *blocks) if blocks else ())


def _verdicts(study: Study) -> tuple[Block, ...]:
    caption = (
        "Every claim was written down before it was tested, with what would support and what would refute it (verdicts.json has both). "
        "Undecided means that these data cannot say. In brackets stands the attention kernel: auto is what torch chooses, fused where it can, and "
        "math computes and stores the n x n scores. The last column leads to the rows behind a verdict, by their cell_id."
    )
    return (Paragraph(text=sentence(study.verdicts, study.doubt)), TableBlock(table=verdict_table(study.verdicts), caption=caption))


def _elsewhere(study: Study) -> tuple[Block, ...]:
    others = [other for verdict in study.verdicts for other in verdict.others]
    if not others:
        return (Paragraph(text="This run has one phase, engine, batching and policy of matching: there is no elsewhere."),)
    caption = "A verdict is taken from one scope, chosen by rule and not by outcome: inference, eager, fixed batch. These are the others."
    return (TableBlock(table=verdict_table(others), caption=caption),)


def _counters(frame: pandas.DataFrame) -> str:
    """Which FLOP counts were compared. Records from before `flops_counted_by` always compared all three."""
    found = sorted({names or ALL_COUNTERS for names in frame.loc[frame["flops"].notna(), "flops_counted_by"]})
    return "; ".join(found) or ALL_COUNTERS


def _num_rounds(study: Study) -> str:
    """As measured: cells of merged runs may have more or fewer."""
    counts = sorted(set(study.frame["num_rounds"].dropna()))
    return (
        " to ".join(dict.fromkeys(numbers.whole(count) for count in (counts[0], counts[-1]))) if counts else str(study.plan.settings.rounds)
    )


def _subtitle(study: Study) -> str:
    frame = study.cells
    num_models = frame["model"].nunique()
    lengths = ", ".join(numbers.whole(n) for n in sorted(frame["seq_len"].dropna().unique()))
    parts = (f"{_plural(num_models, 'model')}, {_plural(len(frame), 'cell')}", f"n = {lengths}" if lengths else "", study.plan.created)
    return "; ".join(part for part in parts if part)


def _notice(study: Study) -> str:
    settings = study.plan.settings
    quick = f"Quick run: {_plural(settings.rounds, 'round')} and short limits. It gives a first impression; do not publish these numbers."
    later = f"{study.superseded[:1].upper()}{study.superseded[1:]}."
    return " ".join((*([later] if study.superseded else []), *([quick] if settings.quick else [])))


def _trust(study: Study) -> tuple[Block, ...]:
    advice = (Bullets(items=tuple(finding.sentence for finding in study.findings)),) if study.findings else ()
    return (Paragraph(text=_control_sentence(study.control)), *advice)


def _control_sentence(control: Mapping[str, Any] | None) -> str:
    if control is None:
        return "There is no A/A control in this run, so nothing says how much two equal cells differ on this machine."
    measured = numbers.ratio(control.get("ratio"), control.get("low"), control.get("high")) or "could not be computed"
    level = 100 * float(control.get("level", 0.99))
    cell = control.get("cell", "")
    lead = f"A/A control: {cell or 'one cell'}, measured under two names; ratio {measured} ({level:g} % interval, over rounds)."
    if numbers.is_empty(control.get("ratio")):
        return f"{lead} No verdict."
    if control.get("contains_one"):
        seen = "" if control.get("interleaved") else "; differences between models that are smaller than its width could not be seen"
        return f"{lead} It contains 1, as it must{seen}."
    return f"{lead} It leaves out 1: the machine was too noisy, or drifted. Differences of this size and below mean nothing here."


def _matching(frame: pandas.DataFrame) -> tuple[Block, ...]:
    if frame.empty:
        return (NO_CELLS,)
    caption = (
        "Sizes as resolved. The error is signed and belongs to the matched quantity: parameters against the budget, or FLOPs against the reference. "
        "Under the policy shape it shows how far the size drifts as n grows."
    )
    return (TableBlock(table=tables.matching_table(frame), caption=caption),)


def _cost(frame: pandas.DataFrame) -> tuple[Block, ...]:
    if frame.empty:
        return (NO_CELLS,)
    counted = frame.loc[frame["flops"].notna(), "flops_agree"]
    agreeing = f" The FLOP counts ({_counters(frame)}) agree in {sum(flag is True for flag in counted)} of {_plural(len(counted), 'cell')}."
    caption = (
        f"Conditions: {constant_work(frame)}. Brackets hold 95 % intervals. FLOPs are forward, per sample; latency is of the whole "
        f"batch.{agreeing if len(counted) else ''}"
    )
    return (TableBlock(table=tables.cost_table(frame), caption=caption, anchor=CELLS_ANCHOR),)


def _accuracy(study: Study) -> tuple[Block, ...]:
    frame = study.frame
    table = tables.accuracy_table(frame)
    if table.rows:
        caption = (
            "Fractions, on the test split; means over seeds with 95 % t-intervals. Differences are not tested here: bench compare does."
        )
        return (TableBlock(table=table, caption=caption), *_training_speed(frame))
    if len(speed := _training_speed(frame)):
        return speed
    asked = "accuracy" in study.plan.metrics
    return (
        Paragraph(text="Asked for, but no training gave a value." if asked else "Not asked for in this run: these numbers are cost only."),
    )


def _training_speed(frame: pandas.DataFrame) -> tuple[Block, ...]:
    table = tables.training_speed_table(frame)
    caption = "The training loop beside the bare steps on batches that are ready, and beside the plain DataLoader loop; ratios with 95 % intervals."
    return (TableBlock(table=table, caption=caption),) if table.rows else ()


def _problems(study: Study) -> tuple[Block, ...]:
    frame, skipped = study.cells, study.plan.skipped
    broken, shaky = failed(frame), unstable(frame)
    blocks: list[Block] = []
    if skipped:
        caption = f"Skipped: {_plural(len(skipped), 'combination')} that cannot be built or matched."
        blocks.append(TableBlock(table=tables.skipped_table(skipped), caption=caption))
    if len(broken):
        blocks.append(
            TableBlock(table=tables.failure_table(broken), caption=f"Not measured in full: {len(broken)} of {_plural(len(frame), 'cell')}.")
        )
    if len(shaky):
        caption = f"Unstable: {_plural(len(shaky), 'cell')} whose rounds drift or whose interval is wider than 10 %."
        blocks.append(TableBlock(table=tables.unstable_table(shaky, varying(frame)), caption=caption))
    lead = [] if skipped or len(broken) else [Paragraph(text="Nothing was skipped and nothing failed.")]
    return (*lead, *blocks) if blocks else (Paragraph(text="None: every cell that was asked for was run, measured and stable."),)


def _plural(num: int, noun: str) -> str:
    return f"{num} {noun}" if num == 1 else f"{num} {noun}s"


UNKNOWN = "not known"


def how_numbers_were_made(plan: Plan, num_rounds: str, counters: str) -> tuple[Block, ...]:
    """One line per kind of number that this run asked for; `num_rounds`: how many rounds its cells were timed in, `counters`: what counted FLOPs."""
    lines = [
        "Sizes: the closed form of each model, checked against the parameters as built; matched by the policy in the matching table.",
        *(text for metric, text in _by_metric(plan, num_rounds, counters).items() if metric in plan.metrics),
        "Empty means not measured; it never means zero. A cell that failed keeps its row, with its status and reason.",
        f"Order of jobs shuffled with seed {plan.settings.seed}; at most {plan.settings.limit_s:g} s per job.",
    ]
    return (Bullets(items=tuple(lines)),)


def _by_metric(plan: Plan, num_rounds: str, counters: str) -> dict[str, str]:
    settings = plan.settings
    return {
        "flops": (
            f"FLOPs: matrix products only, one multiply-add is two, forward pass of one sample; counted by {counters}. Counts of one cell "
            "must agree exactly."
        ),
        "latency": (
            f"Latency: {num_rounds} rounds, every cell once per round in a fresh process (CPU threads: {settings.threads}). Cells that are compared "
            "are warm side by side and take turns in short bursts, in random order within a block; a burst leaves its first call out. A ratio is "
            "the median over blocks, then the geometric mean over rounds with its t-interval; a time is the median over rounds, with the 95 % "
            "t-interval on the log scale. Pilots, whose times are discarded, set the calls of a burst and the number of blocks. (Runs of before "
            "2026-11-23 timed one cell after the other.)"
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


def how_to_make_it_again(study: Study) -> tuple[Block, ...]:
    folders = [shlex.quote(f"results/{name}") for name in study.folders or (study.name,)]
    out = f" --out {shlex.quote('reports/NAME')}" if len(folders) > 1 else ""
    again = "\n".join(f"bench run --plan {folder}/plan.json" for folder in folders)
    return (
        Paragraph(text=f"Made by this command, on {study.plan.created or 'a date that was not recorded'}:"),
        Code(text=study.plan.command),
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

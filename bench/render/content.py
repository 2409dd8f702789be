"""The report's sections, in the order in which a reader needs them. Says nothing that the data do not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench.analysis.series import row_values
from bench.render import numbers, tables
from bench.render.answer import answer
from bench.render.document import CELLS_ANCHOR, Block, Bullets, Document, FigureBlock, Paragraph, Section, TableBlock
from bench.render.drawing import Drawing
from bench.render.effect_figures import EffectFigure
from bench.render.effects import effect_blocks, question_blocks
from bench.render.figures import absent
from bench.render.frame import cells as one_per_cell
from bench.render.frame import constant_work, failed, unstable, varying
from bench.render.growing import growth_blocks
from bench.render.judged import other_scopes_table, sentence, verdict_table
from bench.render.limit import limit_blocks
from bench.render.method import how_numbers_were_made, how_to_make_it_again, machine_and_software
from bench.render.quadratic import where_quadratic
from bench.render.report_data import ReportData
from bench.render.study import Study

NO_CELLS = Paragraph(text="The plan holds no cell.")


def build_document(
    frame: pandas.DataFrame,
    data: ReportData,
    study: Study,
    drawings: Sequence[Drawing],
    effects: Sequence[EffectFigure] = (),
    looks: Mapping[str, Sequence[Block]] | None = None,
    beside_peers: Sequence[Block] = (),
    saturation: Sequence[Block] = (),
) -> Document:
    """`frame` is prepared; `drawings` and `effects` are the figures that were written, `looks` what trained models look like, by section title,
    `beside_peers` the standing comparison, `saturation` what ladders came to."""
    cells = one_per_cell(frame)
    sections = {
        **_answer(data, study),
        **_section("Beside the peers", beside_peers),
        **_effects(data, study, cells, effects),
        **({} if data.plan.question and data.plan.question.predictions else {"Which is faster": answer(frame, data)}),
        "Can this machine be trusted?": _trust(data.control, data.findings),
        "Matched sizes": _matching(frame),
        "Cost": _cost(cells),
        "Figures": _figures(drawings, absent(frame, data.plan.metrics)),
        **_section("Saturation", saturation),
        **_section("How far from what the device allows", limit_blocks(cells)),
        "How cost grows with n": growth_blocks(study),
        "Where n^2 lives": where_quadratic(data.plan),
        "Accuracy": _accuracy(frame, data),
        **{title: tuple(blocks) for title, blocks in (looks or {}).items() if blocks},
        "What the same claims come to elsewhere": _elsewhere(study),
        "Skipped, failed and unstable": _problems(cells, data),
        "How each number was made": how_numbers_were_made(data.plan, _num_rounds(frame, data)),
        "Machine and software": machine_and_software(data.environment),
        "Make it again": how_to_make_it_again(data),
    }
    return Document(
        title=data.name,
        subtitle=_subtitle(cells, data),
        notice=_notice(data),
        sections=tuple(Section(title=title, blocks=blocks) for title, blocks in sections.items()),
    )


def _section(title: str, blocks: Sequence[Block]) -> dict[str, tuple[Block, ...]]:
    """Left out where there is nothing to say."""
    return {title: tuple(blocks)} if blocks else {}


def _answer(data: ReportData, study: Study) -> dict[str, tuple[Block, ...]]:
    """What was asked comes first; the claims on quadratic cost too, unless other predictions were made and none of the claims is decided."""
    asked = question_blocks(data, study)
    if not study.outcomes:
        return {"Answer": (*_verdicts(study), *asked)}
    decided = any(verdict.finding.decided for verdict in study.verdicts)
    return {"Answer": asked, **({"The claims on quadratic cost": _verdicts(study)} if decided else {})}


def _effects(data: ReportData, study: Study, cells: pandas.DataFrame, figures: Sequence[EffectFigure]) -> dict[str, tuple[Block, ...]]:
    shown = [FigureBlock(name=f.name, title=f.title, caption=f.caption, wide=f.wide) for f in figures]
    blocks = effect_blocks(data, study, {row["cell_id"]: row for row in row_values(cells)})
    return {"Effects and their cost": (*shown, *blocks)} if blocks else {}


def _verdicts(study: Study) -> tuple[Block, ...]:
    caption = (
        "Every claim was written down before it was tested, with what would support and what would refute it (verdicts.json has both). "
        "Undecided means that these data cannot say. In brackets stands the attention kernel: auto is what torch chooses, fused where it can, and "
        "math computes and stores the n x n scores. The last column leads to the rows behind a verdict, by their cell_id."
    )
    return (Paragraph(text=sentence(study.verdicts, study.doubt)), TableBlock(table=verdict_table(study.verdicts), caption=caption))


def _elsewhere(study: Study) -> tuple[Block, ...]:
    table = other_scopes_table(study.verdicts)
    if not table.rows:
        return (Paragraph(text="This run has one phase, engine, batching and policy of matching: there is no elsewhere."),)
    caption = "A verdict is taken from one scope, chosen by rule and not by outcome: inference, eager, fixed batch. These are the others."
    return (TableBlock(table=table, caption=caption),)


def _num_rounds(frame: pandas.DataFrame, data: ReportData) -> str:
    """As measured: cells of merged runs may have more or fewer."""
    counts = sorted(set(frame["num_rounds"].dropna()))
    return (
        " to ".join(dict.fromkeys(numbers.whole(count) for count in (counts[0], counts[-1]))) if counts else str(data.plan.settings.rounds)
    )


def _subtitle(frame: pandas.DataFrame, data: ReportData) -> str:
    num_models = frame["model"].nunique()
    lengths = ", ".join(numbers.whole(n) for n in sorted(frame["seq_len"].dropna().unique()))
    parts = (f"{_plural(num_models, 'model')}, {_plural(len(frame), 'cell')}", f"n = {lengths}" if lengths else "", data.plan.created)
    return "; ".join(part for part in parts if part)


def _notice(data: ReportData) -> str:
    settings = data.plan.settings
    if not settings.quick:
        return ""
    return f"Quick run: {_plural(settings.rounds, 'round')} and short limits. It gives a first impression; do not publish these numbers."


def _trust(control: Mapping[str, Any] | None, findings: Sequence[str]) -> tuple[Block, ...]:
    advice = (Bullets(items=tuple(findings)),) if findings else ()
    return (Paragraph(text=_control_sentence(control)), *advice)


def _control_sentence(control: Mapping[str, Any] | None) -> str:
    if control is None:
        return "There is no A/A control in this run, so nothing says how much two equal cells differ on this machine."
    measured = numbers.ratio(control.get("ratio"), control.get("low"), control.get("high")) or "could not be computed"
    level = 100 * float(control.get("level", 0.99))
    cell = control.get("cell", "")
    lead = f"A/A control: {cell or 'one cell'}, measured under two names; ratio {measured} ({level:g} % interval, paired by round)."
    if numbers.is_empty(control.get("ratio")):
        return f"{lead} No verdict."
    if control.get("contains_one"):
        return f"{lead} It contains 1, as it must; differences between models that are smaller than its width could not be seen."
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
    agreeing = f" The three FLOP counts agree in {sum(flag is True for flag in counted)} of {_plural(len(counted), 'cell')}."
    caption = (
        f"Conditions: {constant_work(frame)}. Brackets hold 95 % intervals. FLOPs are forward, per sample; latency is of the whole "
        f"batch.{agreeing if len(counted) else ''}"
    )
    return (TableBlock(table=tables.cost_table(frame), caption=caption, anchor=CELLS_ANCHOR),)


def _figures(drawings: Sequence[Drawing], not_shown: Sequence[str]) -> tuple[Block, ...]:
    blocks = [
        FigureBlock(name=d.name, title=d.title, caption=d.caption, missing=d.missing, wide=d.wide, chart=d.chart, table=d.table)
        for d in drawings
    ]
    return (*blocks, *(Paragraph(text=sentence) for sentence in not_shown))


def _accuracy(frame: pandas.DataFrame, data: ReportData) -> tuple[Block, ...]:
    table = tables.accuracy_table(frame)
    if table.rows:
        caption = (
            "Fractions, on the test split; means over seeds with 95 % t-intervals. Differences are not tested here: bench compare does."
        )
        return (TableBlock(table=table, caption=caption), *_training_speed(frame))
    if len(speed := _training_speed(frame)):
        return speed
    asked = "accuracy" in data.plan.metrics
    return (
        Paragraph(text="Asked for, but no training gave a value." if asked else "Not asked for in this run: these numbers are cost only."),
    )


def _training_speed(frame: pandas.DataFrame) -> tuple[Block, ...]:
    table = tables.training_speed_table(frame)
    caption = "The training loop beside the bare steps on batches that are ready, and beside the plain DataLoader loop; ratios with 95 % intervals."
    return (TableBlock(table=table, caption=caption),) if table.rows else ()


def _problems(frame: pandas.DataFrame, data: ReportData) -> tuple[Block, ...]:
    broken, shaky = failed(frame), unstable(frame)
    blocks: list[Block] = []
    if data.plan.skipped:
        caption = f"Skipped: {_plural(len(data.plan.skipped), 'combination')} that cannot be built or matched."
        blocks.append(TableBlock(table=tables.skipped_table(data.plan.skipped), caption=caption))
    if len(broken):
        blocks.append(
            TableBlock(table=tables.failure_table(broken), caption=f"Not measured in full: {len(broken)} of {_plural(len(frame), 'cell')}.")
        )
    if len(shaky):
        caption = f"Unstable: {_plural(len(shaky), 'cell')} whose rounds drift or whose interval is wider than 10 %."
        blocks.append(TableBlock(table=tables.unstable_table(shaky, varying(frame)), caption=caption))
    lead = [] if data.plan.skipped or len(broken) else [Paragraph(text="Nothing was skipped and nothing failed.")]
    return (*lead, *blocks) if blocks else (Paragraph(text="None: every cell that was asked for was run, measured and stable."),)


def _plural(num: int, noun: str) -> str:
    return f"{num} {noun}" if num == 1 else f"{num} {noun}s"

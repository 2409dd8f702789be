"""Build the report of a run: its sections in reading order.

A cell is one configuration: a model and a workload. The page calls cells configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import numbers
from bench.analysis.frame import constant_work, incomplete, unstable, varying
from bench.analysis.study import Study
from bench.analysis.trust import ALL
from bench.report import tables
from bench.report.charts.figures import draw_figures
from bench.report.document import (
    CELLS_ANCHOR,
    Block,
    Bullets,
    Claims,
    Document,
    ExplorerBlock,
    FigureBlock,
    Paragraph,
    Section,
    TableBlock,
)
from bench.report.explorer import explorer_data
from bench.report.sections import winners
from bench.report.sections.ablation import PREDICTIONS_CAPTION, effect_blocks
from bench.report.sections.answer import answer_sentences, question_of
from bench.report.sections.curve_fits import fits_blocks
from bench.report.sections.epochs import epochs_blocks
from bench.report.sections.growth import growth_blocks, where_quadratic
from bench.report.sections.image_tokens import image_blocks
from bench.report.sections.method import counters, how_numbers_were_made, machine_and_software, reproduction
from bench.report.sections.peers import peer_blocks
from bench.report.sections.trained import weights_blocks
from bench.report.sections.training import equal_budget_blocks, search_blocks
from bench.report.sections.verdicts import claim_lines
from bench.report.sections.winners import pair_blocks
from bench.report.sections.wording import join_names

MAX_FIGURES, MAX_CLAIMS = 3, 80
"""Figures and claims of report.md."""
MAX_WARNING = 140
VECTORS = {"avx512": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON"}
"""Vector instructions by flag, the widest first."""
CLAIMS_CAPTION = (
    "Each claim was written before it was tested, with the results that would support or refute it (see verdicts.json). Undecided means that the "
    "data cannot say. FLOPs, weights and bytes are exact. Explicit attention stores the n x n scores; fused attention is torch's choice of kernel. "
    "Each verdict comes from one condition, chosen by rule and not by outcome: inference, eager, fixed batch."
)
NO_CELLS = Paragraph(text="The plan holds no configurations.")


def build_document(study: Study) -> Document:
    """Build the page of a run, including its figures. Call inside `style.figure_style`."""
    return Document(
        title=question_of(study.plan),
        subtitle=status_line(study),
        notice=_warning(study),
        sections=_page(study),
    )


def _page(study: Study) -> tuple[Section, ...]:
    """Return the visible sections, then the folded ones that have anything to show."""
    rows, figures = explorer_data(study.frame), tuple(draw_figures(study))
    visible = {
        "Answer": (Bullets(items=answer_sentences(study)),),
        "Fastest at each n" if winners.axis_of(study) == "n" else "Fastest at each budget": ()
        if study.prediction_verdicts
        else winners.strip_blocks(study),
        "Figures": figures,
        "Explore": (ExplorerBlock(data=rows),) if rows else (),
    }
    folded = {
        "Claims": _claims(study),
        "All rows": _all_rows(study),
        "The question in full": _statement(study),
        "Effects and their cost": effect_blocks(study),
        "Comparison with peers": peer_blocks(study),
        "Pair by pair: who is faster": pair_blocks(study),
        "How cost grows with n": growth_blocks(study),
        "Where the n² terms are": where_quadratic(study),
        "Accuracy at equal epochs, training FLOPs and time": equal_budget_blocks(study, drawn={figure.name for figure in figures}),
        "How an image becomes tokens": image_blocks(study.records, study.plan),
        "Training and validation, epoch by epoch": epochs_blocks(study.records, study.plan),
        "Learning-rate search": search_blocks(study),
        "Fitted curves": fits_blocks(study.records, study.plan),
        "Learned weights": weights_blocks(study.records, study.plan),
        "Skipped, failed and unstable": _problems(study),
        "Can this machine be trusted?": _trust(study),
        "Method": how_numbers_were_made(study),
        "Machine and software": machine_and_software(study.environment),
        "Reproduce this run": reproduction(study),
    }
    return (
        *(Section(title=title, blocks=blocks) for title, blocks in visible.items() if blocks),
        *(Section(title=title, blocks=blocks, folded=True) for title, blocks in folded.items() if blocks),
    )


def brief(document: Document) -> Document:
    """Return what fits a screenful of Markdown: the visible part with a few figures, and the claims."""
    visible = [section for section in document.sections if not section.folded]
    claims = [section for section in document.sections if section.title == "Claims"]
    figures = [block for section in visible for block in section.blocks if isinstance(block, FigureBlock)][:MAX_FIGURES]
    sections = [
        Section(
            title=section.title, blocks=tuple(block for block in section.blocks if not isinstance(block, FigureBlock) or block in figures)
        )
        for section in visible
        if not any(isinstance(block, ExplorerBlock) for block in section.blocks)
    ]
    sections += [Section(title=section.title, blocks=blocks) for section in claims if (blocks := _first_claims(section.blocks))]
    pointer = "This page is the short form. bench report RUN builds report.html: all figures, every row to sort and filter, and the method."
    return Document(
        title=document.title,
        subtitle=document.subtitle,
        notice=document.notice,
        sections=(*sections, Section(title="The rest", blocks=(Paragraph(text=pointer),))),
    )


def _first_claims(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    lists = [block for block in blocks if isinstance(block, Claims) and not block.title]
    items = [item for block in lists for item in block.items]
    more = (Paragraph(text=f"{len(items) - MAX_CLAIMS} more claims are in the whole report."),) if len(items) > MAX_CLAIMS else ()
    return (Claims(items=tuple(items[:MAX_CLAIMS])), *more) if items else ()


def _claims(study: Study) -> tuple[Block, ...]:
    """Return the predictions, then the claims on quadratic cost.

    A run with its own predictions shows the latter only if one of them is decided.
    """
    blocks: list[Block] = []
    if study.prediction_verdicts:
        blocks += [Claims(items=claim_lines(study.prediction_verdicts)), Paragraph(text=PREDICTIONS_CAPTION)]
    if not study.prediction_verdicts or any(verdict.decided for verdict in study.verdicts):
        others = [other for verdict in study.verdicts for other in verdict.others]
        blocks += [Claims(items=claim_lines(study.verdicts)), Paragraph(text=CLAIMS_CAPTION)] if study.verdicts else []
        blocks += [Claims(items=claim_lines(others), title=f"The same claims in other conditions ({len(others)})")] if others else []
    return tuple(blocks)


def _statement(study: Study) -> tuple[Block, ...]:
    """Return what the question's author wrote before measuring."""
    statement = study.plan.question.statement.split("\n\n") if study.plan.question else []
    return tuple(Paragraph(text=" ".join(text.split())) for text in statement if text.strip())


def status_line(study: Study) -> str:
    """Say which run this is, and what measured it."""
    facts, settings = study.environment, study.plan.settings
    torch, num_incomplete = facts.get("torch_version"), len(incomplete(study.cells))
    parts = (
        study.name,
        "" if study.name.startswith(study.plan.created[:10]) else study.plan.created[:10],
        machine_name(facts),
        f"torch {torch}" if torch else "",
        f"{num_incomplete} of {numbers.counted(len(study.cells), 'configuration')} not fully measured" if num_incomplete else "",
        f"quick run ({numbers.counted(settings.rounds, 'round')}): a first impression, not for publication" if settings.quick else "",
    )
    return " · ".join(part for part in parts if part)


def machine_name(facts: Mapping[str, Any]) -> str:
    """Name the processor, its cores and widest vectors; the GPU if the run used it."""
    if facts.get("device") == "cuda" and facts.get("gpu"):
        return str(facts["gpu"])
    family, model, cores = (facts.get(name) for name in ("cpu_family", "cpu_model_number", "num_cores"))
    name = f"{facts.get('cpu_model') or 'unknown processor'}{f' (family {family}, model {model})' if family and model else ''}"
    flags = " ".join(facts.get("cpu_flags") or ())
    vectors = next((words for flag, words in VECTORS.items() if flag in flags), "")
    return ", ".join(filter(None, (name, numbers.counted(cores, "core") if cores else "", vectors)))


def _warning(study: Study) -> str:
    """Return the gravest reason to distrust the run, on one line; "" without one."""
    serious = [concern for concern in study.concerns if concern.serious]
    if not serious:
        return ""
    text = serious[0].text.partition(" (")[0] if len(serious[0].text) > MAX_WARNING else serious[0].text
    what = "" if ALL in serious[0].about else f" {join_names(serious[0].about)}"
    return f"Read{what} with care: {text} (see Can this machine be trusted?)."


def _trust(study: Study) -> tuple[Block, ...]:
    advice = (Bullets(items=tuple(concern.sentence for concern in study.concerns)),) if study.concerns else ()
    return (Paragraph(text=_control_sentence(study.control)), *advice)


def _control_sentence(control: Mapping[str, Any] | None) -> str:
    if control is None:
        return "This run has no A/A control, so it cannot show how much two equal configurations differ on this machine."
    is_range = bool(control["is_range"])
    measured = numbers.ratio(control["ratio"], control["low"], control["high"], is_range=is_range)
    level = 100 * float(control["level"])
    lead = f"A/A control: {control['cell']}, measured under two names; ratio {measured}"
    if is_range:
        return f"{lead}, the range over rounds; {control['num_rounds']} are too few for an interval at {level:g} %."
    lead += f" ({level:g} % interval over rounds)."
    if control["contains_one"]:
        return f"{lead} It contains 1, as it should."
    return f"{lead} It excludes 1: the machine was too noisy, or drifted. Differences of this size or smaller are meaningless here."


def _all_rows(study: Study) -> tuple[Block, ...]:
    frame = study.cells
    if frame.empty:
        return (NO_CELLS,)
    agree = frame.loc[frame["flops"].notna(), "flops_agree"]
    num_agreeing, compared = sum(flag is True for flag in agree), numbers.counted(len(agree), "configuration")
    agreeing = f" The FLOP counts ({counters(frame)}) agree in {num_agreeing} of {compared}."
    table, same = tables.without_constants(tables.rows_table(frame), keep=("model", "n", "status", "cell_id"))
    caption = (
        f"Conditions: {constant_work(frame)}{f'; in every row: {same}' if same else ''}. "
        "Brackets hold 95 % intervals, over rounds for times and over seeds for scores. FLOPs count the forward pass of one sample; latency is the "
        "time of the whole batch; size error compares the matched quantity with its target."
        f"{agreeing if len(agree) else ''} To test differences in quality, use bench compare."
    )
    return (TableBlock(table=table, caption=caption, anchor=CELLS_ANCHOR),)


def _problems(study: Study) -> tuple[Block, ...]:
    frame, skipped = study.cells, study.plan.skipped
    broken, shaky = incomplete(frame), unstable(frame)
    blocks: list[Block] = []
    if skipped:
        caption = f"Skipped: {numbers.counted(len(skipped), 'combination')} that cannot be built or matched."
        blocks.append(TableBlock(table=tables.skipped_table(skipped), caption=caption))
    if len(broken):
        blocks.append(
            TableBlock(
                table=tables.failure_table(broken),
                caption=f"Not measured in full: {len(broken)} of {numbers.counted(len(frame), 'configuration')}.",
            )
        )
    if len(shaky):
        caption = f"Unstable: {numbers.counted(len(shaky), 'configuration')} with drifting rounds or an interval wider than 10 %."
        blocks.append(TableBlock(table=tables.unstable_table(shaky, varying(frame)), caption=caption))
    lead = [] if skipped or len(broken) else [Paragraph(text="Nothing was skipped and nothing failed.")]
    return (*lead, *blocks) if blocks else (Paragraph(text="None: every requested configuration was measured and stable."),)

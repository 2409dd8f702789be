"""An ablation's answer: its predictions with their verdicts, and the effect of every arm with its cost beside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import numbers
from bench.analysis.effects import COSTS, QUALITIES, Effect
from bench.analysis.study import Study
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.arm_facts import known_blocks
from bench.report.sections.verdicts import answer_sentence, interval_json, interval_text, plain_value, verdict_table
from bench.report.tables import Table
from bench.spec import MEASURES, Measure, Part

CAPTION = (
    "The predictions are part of the plan, which is written before its first measurement, with the effect that would count. One is supported "
    "where the whole interval is on the side that was expected, refuted where it is wholly not, and undecided where the data cannot say. "
    "Intervals hold for all effects on one measure of this run together (Bonferroni, 95 %)."
)
TARGETS_CAPTION = (
    "Those against the fastest peer and on output errors are the project's targets; a plan that was stored before they were predictions is judged by "
    "the present ones. They stay undecided where cells or a peer as shipped are lost, and where the run has other places. Intervals in every cell "
    "hold for all cells together, that of a geometric mean for itself."
)
NO_EFFECT = "no difference shown"
Row = Mapping[str, Any]


def question_blocks(study: Study) -> tuple[Block, ...]:
    """The question, its predictions with their verdicts, and the reasons for them; nothing for a run that asks none."""
    question = study.plan.question
    if question is None:
        return ()
    statement = tuple(Paragraph(text=" ".join(text.split())) for text in question.statement.split("\n\n"))
    lead = Paragraph(text=f"{question.text} {answer_sentence(study.outcomes)}".strip())
    if not study.outcomes:
        return (lead, *statement)
    caption = f"{CAPTION} {TARGETS_CAPTION}" if any(prediction.is_target for prediction in study.predictions) else CAPTION
    return (lead, TableBlock(table=verdict_table(study.outcomes), caption=caption), *statement)


def effect_blocks(study: Study) -> tuple[Block, ...]:
    """Per part: the arms, their quality with its difference from the baseline, and what they cost."""
    blocks: list[Block] = []
    fixed = study.plan.question is not None and bool(study.plan.question.seed_spread)
    for part in (part for part in study.plan.parts if part.arms):
        effects = [effect for effect in study.effects if effect.contrast.part == part.name]
        table = effect_table(part, effects, study.row_by_cell, own=not fixed)
        blocks.append(TableBlock(table=table, caption=_caption(part, effects, fixed)))
    return (*blocks, *known_blocks(study))


def _caption(part: Part, effects: Sequence[Effect], fixed: bool) -> str:
    """How the intervals were made: over what, from which spread, corrected for how many comparisons."""
    estimated = [effect for effect in effects if effect.p_adjusted is not None]
    numbers_of = {effect.measure.title: effect.num_comparisons for effect in estimated}
    corrected = ", ".join(f"{num} of {title}" for title, num in numbers_of.items())
    spreads = ", ".join(dict.fromkeys(effect.spread for effect in estimated if effect.spread))
    doubts = "; ".join(dict.fromkeys(effect.doubt for effect in effects if effect.doubt))
    sentences = (
        f"{part.name}: every arm against {part.baseline}. Costs are ratios to it; intervals of qualities are 95 % t-intervals over seeds.",
        f"Intervals of differences and of ratios of times hold together for all comparisons of this run ({corrected})."
        if corrected
        else "",
        f"Spread over seeds: {spreads}." if spreads else "",
        "The plan does not fix that spreads are pooled; intervals from the arms' own spreads stand beside."
        if spreads and not fixed
        else "",
        "Shown: the interval excludes 0, or 1 for ratios.",
        f"Nothing is called shown where there is doubt: {doubts}." if doubts else "",
    )
    return " ".join(filter(None, sentences))


def effect_table(part: Part, effects: Sequence[Effect], rows: Mapping[str, Row], *, own: bool = False) -> Table:
    """One row per cell of an arm; columns that no cell has are left out. `own`: with the intervals that the arms' own spreads over seeds give."""
    by_cell = {(e.contrast.arm, e.contrast.first, e.measure.name): e for e in effects if e.contrast.against == part.baseline}
    cells = [(arm.name, rows[cell_id]) for arm in part.arms for cell_id in arm.cells if cell_id in rows]
    columns: list[tuple[str, Callable[[str, Row], tuple[str, float | None]]]] = [("arm", lambda arm, _: (arm, None))]
    columns += [(title, _place(key)) for key, title in PLACES.items() if any(key in e.contrast.place for e in effects)]
    for name in QUALITIES:
        measure = MEASURES[name]
        columns += [(measure.value or measure.title, _quality(name)), (f"{measure.title}, {_against(measure)}", _effect(name, by_cell))]
        columns += [(f"{measure.title}, by own spreads", _effect(name, by_cell, own=True))] if own else []
    columns += [(f"{MEASURES[name].title}, ratio", _effect(name, by_cell)) for name in COSTS]
    columns += [("width / ffn_width", lambda _, row: (f"{row['width']:.0f} / {row['ffn_width']:.0f}", row["width"]))]
    columns += [("training time", lambda _, row: (numbers.duration(1e3 * row["train_s"]), row["train_s"]))]
    columns += [("seeds", lambda _, row: (numbers.whole(row["num_seeds"]), row["num_seeds"]))]
    columns += [("status", lambda _, row: (str(row["status"]), None))]
    texts = [[form(arm, row) for _, form in columns] for arm, row in cells]
    kept = [i for i in range(len(columns)) if i == 0 or any(line[i][0] for line in texts)]
    return Table(
        headers=tuple(columns[i][0] for i in kept),
        numeric=tuple(columns[i][0] not in ("arm", "status", *PLACES.values()) for i in kept),
        rows=tuple(tuple(line[i][0] for i in kept) for line in texts),
        keys=tuple(tuple(_number(line[i][1]) for i in kept) for line in texts),
        badges=tuple(columns[i][0] == "status" for i in kept),
    )


PLACES = {
    **{key: key for key in ("model", "task", "budget")},
    "seq_len": "n",
    **{key: key for key in ("attention", "phase", "engine", "dtype", "recipe")},
    "batch_size": "batch",
}
"""Headers of what tells the cells of one arm apart (`bench.analysis.effects.PLACE_KEYS`)."""


def effects_json(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """Every effect, for `effects.json`."""
    return [
        {
            "part": effect.contrast.part,
            "arm": effect.contrast.arm,
            "against": effect.contrast.against,
            "place": {key: plain_value(value) for key, value in effect.contrast.place.items()},
            "measure": effect.measure.name,
            "is_ratio": effect.measure.is_ratio,
            **interval_json(effect.estimate),
            "p_adjusted": effect.p_adjusted,
            "num_comparisons": effect.num_comparisons,
            "spread": effect.spread,
            "own_low": effect.own and effect.own.low,
            "own_high": effect.own and effect.own.high,
            "shown": effect.shown,
            "doubt": effect.doubt,
            "cells": list(effect.contrast.cells),
        }
        for effect in effects
    ]


def _against(measure: Measure) -> str:
    return "ratio" if measure.is_ratio else "difference"


def _place(key: str) -> Callable[[str, Row], tuple[str, float | None]]:
    def form(_: str, row: Row) -> tuple[str, float | None]:
        value = row[key]
        is_number = isinstance(value, float) and not numbers.is_empty(value)
        return (numbers.whole(value), value) if is_number else ("" if numbers.is_empty(value) else str(value), None)

    return form


def _quality(name: str) -> Callable[[str, Row], tuple[str, float | None]]:
    def form(_: str, row: Row) -> tuple[str, float | None]:
        text: Callable[[Any], str] = numbers.significant if name == "perplexity" else numbers.fraction
        value, low, high = (row.get(column) for column in (name, f"{name}_low", f"{name}_high"))
        if numbers.is_empty(value):
            return "", None
        bounds = "" if numbers.is_empty(low) else f" [{text(low)}, {text(high)}]"
        return f"{text(value)}{bounds}", value

    return form


def _effect(
    name: str, by_cell: Mapping[tuple[str, str, str], Effect], *, own: bool = False
) -> Callable[[str, Row], tuple[str, float | None]]:
    def form(arm: str, row: Row) -> tuple[str, float | None]:
        effect = by_cell.get((arm, row["cell_id"], name))
        if own:
            effect = dataclasses.replace(effect, estimate=effect.own) if effect and effect.own else None
        if effect is None:
            return "", None
        mark = "" if effect.p_adjusted is None or name in COSTS or effect.doubt else (", shown" if effect.shown else f", {NO_EFFECT}")
        return f"{interval_text(effect.estimate, effect.measure.unit)}{mark}", effect.estimate.estimate

    return form


def _number(value: Any) -> float | None:
    return None if numbers.is_empty(value) else float(value)

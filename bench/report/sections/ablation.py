"""Show the effect and cost of an ablation's variants, and facts stated in advance about them beside the results.

In code a variant is an arm (`bench.spec.PlannedArm`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench import numbers
from bench.analysis.effects import COSTS, QUALITIES, Effect
from bench.analysis.frame import NUMBER_COLUMNS
from bench.analysis.growth import FLOPS, LATENCY, GrowthMeasure
from bench.analysis.study import Study
from bench.intervals import joint_level
from bench.questions import MEASURES, OWN_SPREADS
from bench.report.document import Block, TableBlock
from bench.report.sections.verdicts import interval_json, interval_text, plain_value
from bench.report.tables import Column, Table, number, plain, table
from bench.spec import Part, PlannedArm
from models.layers.cost import Cost, Polynomial

PREDICTIONS_CAPTION = (
    "The plan states each prediction, with the size of effect that counts, before the first measurement. A prediction is supported if its whole "
    "interval lies within the predicted range, refuted if the whole interval lies outside, and undecided otherwise. Intervals hold for all effects "
    "at one place of a part together (Bonferroni, 95 %)."
)
NO_EFFECT = "not significant"
Row = Mapping[str, Any]


def effect_blocks(study: Study) -> tuple[Block, ...]:
    """Return a table of variants per part: quality, effects, costs."""
    blocks: list[Block] = []
    planned = study.plan.question.seed_spread if study.plan.question else ""
    for part in (part for part in study.plan.parts if part.arms):
        effects = [effect for effect in study.effects if effect.contrast.part == part.name]
        shown = effect_table(part, effects, study)
        blocks.append(TableBlock(table=shown, caption=_caption(part, effects, shown, planned)))
    return (*blocks, *fact_blocks(study))


def _caption(part: Part, effects: Sequence[Effect], shown: Table, planned: str) -> str:
    """Describe the intervals, and say where the plan had another method; `planned`: how it meant to estimate spreads over seeds."""
    estimated = [effect for effect in effects if not effect.is_exact]
    caveats = "; ".join(dict.fromkeys(effect.caveat for effect in effects if effect.caveat))
    is_trained = any(effect.measure.name in QUALITIES for effect in estimated)
    sentences = (
        f"{part.name}: every variant against {part.baseline}. Costs are ratios to it; qualities have 95 % t-intervals over seeds.",
        "Intervals of differences and of time ratios: 95 %, together for the variants at one place." if estimated else "",
        "Each pair has its own variances over seeds, degrees of freedom by Satterthwaite." if is_trained else "",
        f"The plan, of before this method, says: {planned}." if is_trained and planned not in ("", OWN_SPREADS) else "",
        "Solved by: seeds that reach the score at which the task counts as solved, with the exact interval of their share (Clopper and Pearson "
        "1934), 95 % together for the variants; two shares are compared by Boschloo's exact test (1970)."
        if "solved by" in shown.headers
        else "",
        "An effect is significant if its interval excludes 0, or 1 for ratios.",
        f"Effects with a caveat are never called significant: {caveats}." if caveats else "",
    )
    return " ".join(filter(None, sentences))


def effect_table(part: Part, effects: Sequence[Effect], study: Study) -> Table:
    """Return one row per configuration of each variant, without empty columns."""
    against_baseline = {(e.contrast.arm, e.contrast.first, e.measure.name): e for e in effects if e.contrast.against == part.baseline}
    rows = [
        _with_effects(
            study.row_by_cell[cell_id], arm.name, {name: against_baseline.get((arm.name, cell_id, name)) for name in MEASURES}, study
        )
        for arm in part.arms
        for cell_id in arm.cells
        if cell_id in study.row_by_cell
    ]
    columns = (
        plain("variant"),
        *(_place(key) for key in PLACES if any(key in effect.contrast.place for effect in effects)),
        *(column for name in QUALITIES for column in (_quality(name), _effect(name))),
        Column(header="solved by", text=lambda row: row["solved_text"], key="solved"),
        Column(header="steps to solve it", text=lambda row: row["steps_text"], key="steps"),
        number("state_bytes", "state", numbers.bytes_text),
        *(_effect(name) for name in COSTS),
        Column(header="width / ffn_width", text=lambda row: f"{row['width']:.0f} / {row['ffn_width']:.0f}", key="width"),
        Column(header="training time", text=lambda row: numbers.duration(1e3 * row["train_s"]), key="train_s"),
        number("num_seeds", "seeds", numbers.whole),
        Column(header="status", text=lambda row: str(row["status"]), numeric=False, badge=True),
    )
    return table(rows, columns, keep=("variant",))


def _with_effects(row: Row, arm: str, effects: Mapping[str, Effect | None], study: Study) -> Row:
    """Return the row with its variant, its effects by measure, and how many seeds solve the task after how many steps."""
    solved_text, share = _solved(row, effects["accuracy"], study)
    steps_text, steps = _steps(row, study)
    return {
        **row,
        "variant": arm,
        "effects": effects,
        **{f"effect on {name}": effect.estimate.estimate if effect else None for name, effect in effects.items()},
        "solved_text": solved_text,
        "solved": share,
        "steps_text": steps_text,
        "steps": steps,
    }


PLACES = {
    **{key: key for key in ("model", "task", "budget")},
    "seq_len": "n",
    **{key: key for key in ("attention", "phase", "engine", "dtype", "recipe")},
    "batch_size": "batch",
}
"""Column headers of `bench.analysis.effects.PLACE_KEYS`.

One variant's configurations may differ in them.
"""


def effects_json(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """Return every effect for `effects.json`.

    `doubt`: why an effect is not claimed.
    """
    return [
        {
            "part": effect.contrast.part,
            "arm": effect.contrast.arm,
            "against": effect.contrast.against,
            "place": {key: plain_value(value) for key, value in effect.contrast.place.items()},
            "measure": effect.measure.name,
            "is_ratio": effect.measure.is_ratio,
            **interval_json(effect.estimate),
            "num_comparisons": effect.num_comparisons,
            "shown": effect.shown,
            "doubt": effect.caveat,
            "cells": list(effect.contrast.cells),
        }
        for effect in effects
    ]


def _place(key: str) -> Column:
    def text(row: Row) -> str:
        return "" if numbers.is_empty(row[key]) else numbers.whole(row[key]) if isinstance(row[key], float) else str(row[key])

    return Column(header=PLACES[key], text=text, numeric=False, key=key if key in NUMBER_COLUMNS else "")


def _quality(name: str) -> Column:
    form: Callable[[Any], str] = numbers.significant if name == "perplexity" else numbers.fraction
    return Column(
        header=MEASURES[name].value or MEASURES[name].title,
        text=lambda row: numbers.bounded(row.get(name), row.get(f"{name}_low"), row.get(f"{name}_high"), form),
        key=name,
    )


def _effect(name: str) -> Column:
    def text(row: Row) -> str:
        effect: Effect | None = row["effects"][name]
        if effect is None:
            return ""
        mark = "" if effect.is_exact or name in COSTS or effect.caveat else (", significant" if effect.shown else f", {NO_EFFECT}")
        return f"{interval_text(effect.estimate, effect.measure.unit)}{mark}"

    return Column(header=f"{MEASURES[name].title}, {MEASURES[name].unit}", text=text, key=f"effect on {name}")


def _solved(row: Row, effect: Effect | None, study: Study) -> tuple[str, float | None]:
    """Count the seeds that solve the task, and say whether their share differs from the baseline's; also return the share."""
    solved, mark = study.solved.get(row["cell_id"]), ""
    if solved is None:
        return "", None
    if effect and (other := study.solved.get(effect.contrast.second)):
        differs = solved.differs(other, joint_level(effect.num_comparisons))
        mark = ", significant" if differs else f", {NO_EFFECT}"
    share = solved.share()
    return f"{solved.num} of {solved.of} [{share.low:.2f}, {share.high:.2f}]{mark}", share.estimate


def _steps(row: Row, study: Study) -> tuple[str, float | None]:
    """Return the median of the optimizer steps and training FLOPs to the target; the steps given if most seeds do not reach it."""
    solved, steps = study.solved.get(row["cell_id"]), row.get("num_steps")
    has_target = any("solved_at" in record.outcome.values for record in study.trainings.get(row["cell_id"], ()))
    if solved is None or not has_target or numbers.is_empty(steps):
        return "", None
    if 2 * solved.num <= solved.of:
        return f"not in {numbers.whole(steps)}", None
    return f"{numbers.whole(steps)} ({numbers.count(row['train_flops'])} FLOPs)", steps


MIXER = "mixer"
"""Part of a cost term's dotted name that marks the token mixer."""
POWERS = {0: "", 1: " n", 2: " n^2"}
CAPTION = (
    "{part}: facts stated in advance, beside counts and measurements. FLOPs are closed forms per sample. Exponents are local, d log cost / d log n "
    "of the whole model, over the last step of the grid. Training FLOPs are for one seed."
)


def fact_blocks(study: Study) -> Iterator[TableBlock]:
    """Yield one table per part with facts.

    Of parts with the same kinds of facts, only those measured at several n are shown, if any.
    """
    parts = [
        (part, fact_keys(part), any(_exponent(arm, study, FLOPS) for arm in part.arms)) for part in study.plan.parts if fact_keys(part)
    ]
    with_exponents = {keys for _, keys, has_exponents in parts if has_exponents}
    for part, keys, has_exponents in parts:
        if has_exponents or keys not in with_exponents:
            yield TableBlock(table=fact_table(part, study), caption=CAPTION.format(part=part.name))


def fact_keys(part: Part) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for arm in part.arms for key in arm.facts))


def fact_table(part: Part, study: Study) -> Table:
    """Return one row per variant with facts, without empty columns."""
    arms = [arm for arm in part.arms if arm.facts]
    rows = [[study.row_by_cell[cell_id] for cell_id in arm.cells if cell_id in study.row_by_cell] for arm in arms]
    columns = {
        "variant": [arm.name for arm in arms],
        **{key: [arm.facts.get(key, "") for arm in arms] for key in fact_keys(part)},
        "FLOPs of the mixer": [_closed_form(arm, study, MIXER) for arm in arms],
        "FLOPs of the blocks": [_closed_form(arm, study) for arm in arms],
        "exponent of FLOPs": [_exponent(arm, study, FLOPS) for arm in arms],
        "exponent of time": [_exponent(arm, study, LATENCY) for arm in arms],
        "accuracy": [
            _join(numbers.fraction(row["accuracy"], row["accuracy_low"], row["accuracy_high"]) for row in found) for found in rows
        ],
        "training FLOPs": [_join(numbers.count(row["train_flops"]) for row in found) for found in rows],
    }
    kept = {header: texts for header, texts in columns.items() if any(texts)}
    return Table(headers=tuple(kept), numeric=(False,) * len(kept), rows=tuple(zip(*kept.values(), strict=True)))


def _join(texts: Iterable[str]) -> str:
    return "; ".join(filter(None, texts))


def _closed_form(arm: PlannedArm, study: Study, within: str = "") -> str:
    """Write block FLOPs of the arm's first cell as a polynomial.

    `within`: count only the terms with this component in their name.
    """
    planned = next((found for found in study.plan.cells if found.cell.cell_id in arm.cells[:1]), None)
    if planned is None:
        return ""
    terms = tuple(term for term in planned.sizing.cost.terms if not within or within in term.name.split("."))
    return polynomial_text(Cost(terms).flops("blocks")) if terms else ""


def polynomial_text(polynomial: Polynomial) -> str:
    """Write a polynomial as `288 n^2 + 184,320 n`."""
    found = [(degree, factor) for degree, factor in enumerate(polynomial.coefficients) if factor]
    texts = [f"{factor:,}{POWERS.get(degree, f' n^{degree}')}" for degree, factor in reversed(found)]
    return " + ".join(texts).replace("+ -", "- ") or "0"


def _exponent(arm: PlannedArm, study: Study, measure: GrowthMeasure) -> str:
    """Write the last exponent of each of the arm's series.

    Series of counts are found by model, series of times by cell.
    """
    models = {planned.cell.cell_id: planned.cell.model for planned in study.plan.cells}
    own = {cell_id if measure.per_workload else models[cell_id] for cell_id in arm.cells if cell_id in models}
    found = [
        growth.exponents.exponents[-1].exponent
        for growth in study.growth
        if growth.measure == measure
        and growth.exponents.exponents
        and own & {cell_id if measure.per_workload else models[cell_id] for cell_id in growth.series.cell_ids if cell_id in models}
    ]
    return "; ".join(dict.fromkeys(interval_text(exponent, "exponent") for exponent in found))

"""Tabulate facts stated in advance about an ablation's variants, beside measured results.

In code a variant is an arm (`bench.spec.PlannedArm`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bench import numbers
from bench.analysis.growth import FLOPS, LATENCY, GrowthMeasure
from bench.analysis.study import Study
from bench.report.document import TableBlock
from bench.report.sections.verdicts import interval_text
from bench.report.tables import Table
from bench.spec import Part, PlannedArm
from models.layers.cost import Cost, Polynomial

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

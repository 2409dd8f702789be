"""What is known of an ablation's arms beforehand, beside what was counted, measured and reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import numbers
from bench.analysis.growth import FLOPS, LATENCY, Growth
from bench.analysis.growth import Measure as GrowthMeasure
from bench.intervals import Interval
from bench.report.document import TableBlock
from bench.report.tables import Table
from bench.spec import Part, Plan, PlannedArm, PlannedCell
from models.layers.cost import Polynomial

MIXER = "mixer"
"""The part of a term's name that says that it belongs to what mixes tokens."""
POWERS = {0: "", 1: " n", 2: " n^2"}
CAPTION = (
    "{part}: what is known beforehand, beside what was counted, measured and reached. FLOPs are closed forms per sample; exponents are local, "
    "d log cost / d log n over the longest step of the grid, of the whole model; training FLOPs are those of one seed."
)
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Known:
    """A run as this table sees it: planned cells and prepared rows by cell id, and the growth of every series."""

    planned: Mapping[str, PlannedCell]
    rows: Mapping[str, Row]
    growth: Sequence[Growth]


def known_blocks(plan: Plan, growth: Sequence[Growth], rows: Mapping[str, Row]) -> Iterator[TableBlock]:
    """A table for each part that has facts; where parts with the same kinds of facts were followed along n, for those alone."""
    known = Known(planned={p.cell.cell_id: p for p in plan.cells}, rows=rows, growth=growth)
    followed = {fact_keys(part) for part in plan.parts if _is_followed(part, known)}
    for part in plan.parts:
        if fact_keys(part) and (_is_followed(part, known) or fact_keys(part) not in followed):
            yield TableBlock(table=known_table(part, known), caption=CAPTION.format(part=part.name))


def _is_followed(part: Part, known: Known) -> bool:
    """Does cost have an exponent in n for any of its arms?"""
    return any(_exponent(arm, known, FLOPS) for arm in part.arms)


def fact_keys(part: Part) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for arm in part.arms for key in arm.facts))


def known_table(part: Part, known: Known) -> Table:
    """The arms of which something is known beforehand; columns that no arm has are left out."""
    keys = fact_keys(part)
    headers = (
        "arm",
        *keys,
        "FLOPs of the mixer",
        "FLOPs of the blocks",
        "exponent of FLOPs",
        "exponent of time",
        "accuracy",
        "training FLOPs",
    )
    rows = [
        (
            arm.name,
            *(arm.facts.get(key, "") for key in keys),
            _closed_form(arm, known, MIXER),
            _closed_form(arm, known),
            _exponent(arm, known, FLOPS),
            _exponent(arm, known, LATENCY),
            _reached(arm, known),
            _spent(arm, known),
        )
        for arm in part.arms
        if arm.facts
    ]
    kept = [i for i in range(len(headers)) if any(row[i] for row in rows)]
    return Table(
        headers=tuple(headers[i] for i in kept),
        numeric=(False,) * len(kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
    )


def _closed_form(arm: PlannedArm, known: Known, within: str = "") -> str:
    """The FLOPs of the arm's first cell as a polynomial in n: those of the blocks, or of their terms with `within` in the name."""
    planned = next((known.planned[cell_id] for cell_id in arm.cells if cell_id in known.planned), None)
    if planned is None:
        return ""
    cost = planned.sizing.cost
    if not within:
        return polynomial_text(cost.flops("blocks"))
    if not any(within in term.name.split(".") for term in cost.terms):
        return ""
    return polynomial_text(type(cost)(tuple(term for term in cost.terms if within in term.name.split("."))).flops("blocks"))


def polynomial_text(polynomial: Polynomial) -> str:
    """`288 n^2 + 184,320 n`."""
    found = [(degree, factor) for degree, factor in enumerate(polynomial.coefficients) if factor]
    texts = [f"{factor:,}{POWERS.get(degree, f' n^{degree}')}" for degree, factor in reversed(found)]
    return " + ".join(texts).replace("+ -", "- ") or "0"


def _exponent(arm: PlannedArm, known: Known, measure: GrowthMeasure) -> str:
    """Over the longest step of the arm's series; for several series, one after the other."""

    def subjects(cell_ids: Iterable[str]) -> set[Any]:
        """What is followed once for all that share it."""
        return {c if measure.per_workload else known.planned[c].cell.model for c in cell_ids if c in known.planned}

    own = subjects(arm.cells)
    found = [g for g in known.growth if g.measure == measure and subjects(g.series.cell_ids) & own and g.exponents.exponents]
    return "; ".join(dict.fromkeys(_exponent_text(g.exponents.exponents[-1].exponent) for g in found))


def _exponent_text(exponent: Interval) -> str:
    if exponent.low == exponent.high:
        return f"{exponent.estimate:.2f}"
    return f"{exponent.estimate:.2f} [{exponent.low:.2f}, {exponent.high:.2f}]"


def _reached(arm: PlannedArm, known: Known) -> str:
    found = [known.rows[cell_id] for cell_id in arm.cells if cell_id in known.rows]
    return "; ".join(filter(None, (numbers.fraction(row["accuracy"], row["accuracy_low"], row["accuracy_high"]) for row in found)))


def _spent(arm: PlannedArm, known: Known) -> str:
    found = [known.rows[cell_id] for cell_id in arm.cells if cell_id in known.rows]
    return "; ".join(filter(None, (numbers.count(row["train_flops"]) for row in found)))

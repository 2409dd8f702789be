"""Show how cost grows with n: polynomials, local exponents and crossovers; and whether a model's n^2 terms are weights or activations.

The tables' captions describe the methods.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench import numbers
from bench.analysis.crossings import SCOPES, ClosedCrossing, Crossing, Crossovers, PairCrossing
from bench.analysis.frame import SCOPE_TEXTS, label_of, scope_value_text
from bench.analysis.growth import Growth
from bench.analysis.study import Study
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.verdicts import interval_text
from bench.report.tables import Column, Row, Table, number, plain, table


def polynomial_table(found: Sequence[Growth]) -> Table:
    """Return the polynomial of each series' counts, and the part of its n^2 term at the longest length."""
    rows = [
        {
            **_place(growth),
            "shortest": counted.lengths[0],
            "longest": counted.lengths[-1],
            "unit": growth.measure.unit,
            "a": counted.a,
            "b": counted.b,
            "c": counted.c,
            "share": counted.share(counted.lengths[-1]),
        }
        for growth in found
        if (counted := growth.counted)
    ]
    columns = (
        *_places(found),
        *(number("shortest", "n from", numbers.whole), number("longest", "to", numbers.whole)),
        *(_term("a", "a"), _term("b", "b (per n)"), _term("c", "c (per n^2)"), number("share", "share of c n^2", numbers.percent)),
    )
    return table(rows, columns)


def exponent_table(found: Sequence[Growth]) -> Table:
    """Return local exponents, one row per pair of neighbouring lengths.

    A local exponent is d log cost / d log n.
    """
    rows = [
        {**_place(growth), "shorter": step.shorter, "longer": step.longer, "exponent": step.exponent.estimate, "interval": step.exponent}
        for growth in found
        for step in growth.exponents.exponents
    ]
    ends = number("shorter", "from n", numbers.whole), number("longer", "to n", numbers.whole)
    exponent = Column(header="exponent", text=lambda row: interval_text(row["interval"], "exponent"), key="exponent")
    return table(rows, (*_places(found), *ends, exponent))


def refused_exponents(found: Sequence[Growth]) -> list[str]:
    """Write one sentence per reason why series have no exponents."""
    reasons: dict[str, list[str]] = {}
    for growth in found:
        if growth.exponents.refused:
            reasons.setdefault(growth.exponents.refused, []).append(f"{label_of(growth.series.keys)}, {growth.measure.name}")
    return [
        f"No local exponents for {len(series)} series ({'; '.join(series[:3])}{'; ...' if len(series) > 3 else ''}): {reason}"
        for reason, series in reasons.items()
    ]


def measured_crossing_table(found: Sequence[PairCrossing]) -> Table:
    """Return the n at which two measured series cost the same."""
    rows = [
        {
            **{key: pair.scope.get(key) for key in SCOPE_TEXTS},
            "quantity": pair.measure.name,
            "first": pair.first,
            "second": pair.second,
            **_crossings(pair.found),
            "cheaper": pair.found.none or "; ".join(f"{one.before} below, {one.after} above" for one in pair.found.crossings),
        }
        for pair in found
    ]
    scope = _scope_columns([pair.scope for pair in found])
    columns = (plain("quantity"), plain("first"), plain("second"), *scope, EQUAL_AT, plain("cheaper", "which is cheaper"))
    return table(rows, columns)


def closed_crossing_table(found: Sequence[ClosedCrossing]) -> Table:
    """Return the n at which two closed forms have equal FLOPs."""
    lengths = sorted({n for pair in found for n in pair.ratios["blocks"]})[-2:]
    rows = [
        {
            "budget": pair.first.budget,
            "scope": scope,
            **{place: f"{form.model} ({form.shape})" for place, form in (("first", pair.first), ("second", pair.second))},
            **_crossings(pair.flops[scope]),
            "otherwise": pair.flops[scope].none,
            **{f"ratio_{n}": pair.ratios[scope][n] for n in lengths},
        }
        for pair in found
        for scope in SCOPES
    ]
    columns = (
        *(plain("first"), plain("second"), number("budget", "budget", numbers.count), plain("scope", "of")),
        *(EQUAL_AT, plain("otherwise")),
        *(number(f"ratio_{n}", f"first / second at n = {n}", _fixed) for n in lengths),
    )
    return table(rows, columns)


def _place(growth: Growth) -> Row:
    keys = growth.series.keys
    series = label_of(keys) if growth.measure.per_workload else str(keys["model"])
    return {"quantity": growth.measure.name, "series": series, **{key: keys.get(key) for key in SCOPE_TEXTS}}


def _places(found: Sequence[Growth]) -> tuple[Column, ...]:
    return plain("quantity"), plain("series"), *_scope_columns([growth.series.keys for growth in found])


def _scope_columns(scopes: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return columns for the keys that vary between scopes."""
    return tuple(
        Column(header=key, text=functools.partial(scope_value_text, key=key), numeric=False, key="budget" if key == "budget" else "")
        for key in SCOPE_TEXTS
        if len({str(scope.get(key)) for scope in scopes}) > 1
    )


def _term(name: str, header: str) -> Column:
    return Column(header=header, text=lambda row: f"{row[name]:.3g} {row['unit']}", key=name)


def _crossings(found: Crossovers) -> Row:
    texts = "; ".join(_crossing(one) for one in found.crossings)
    return {"crossings": texts or "none", "first_crossing": found.crossings[0].n if found.crossings else None}


EQUAL_AT = Column(header="equal at n", text=lambda row: row["crossings"], key="first_crossing")


def _crossing(one: Crossing) -> str:
    if one.low == one.n == one.high:
        return _rounded(one.n)
    low, high = (None if bound is None else _rounded(bound) for bound in (one.low, one.high))
    point = f"(interpolated: {_rounded(one.n)})"
    if low and high:
        return f"between {low} and {high} {point}"
    where = f"above {low}" if low else f"below {high}" if high else "not bounded"
    return f"{where} {point}"


def _fixed(value: float) -> str:
    return f"{value:.2f}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


POLYNOMIALS = (
    "Counts as a + b n + c n^2, one shape per series: exact, from the first length after which they follow one polynomial within 0.5 %."
)
EXPONENTS = (
    "Local exponents between neighbouring lengths: d log cost / d log n, paired by round, with 95 % intervals. 1 is linear, 2 quadratic."
)
MEASURED_CROSSINGS = (
    "Between which measured n two series cost the same: the difference is significant on either side, by 95 % intervals paired by round. The point "
    "between them is interpolated in log n. Pairs: gMLP or a block with attention with every other model, and one model under two kernels."
)
CLOSED = (
    "The n at which two models have equal FLOPs by their closed forms, for the blocks alone and for the whole model. Each model keeps its shape, "
    "and mixers in chunks or blocks, which pad the last one, are left out."
)


def growth_blocks(study: Study) -> tuple[Block, ...]:
    """Return the tables that have rows."""
    return tuple(_blocks(study))


def _blocks(study: Study) -> Iterator[Block]:
    yield from _shown(polynomial_table(study.growth), POLYNOMIALS)
    yield from _shown(exponent_table(study.growth), EXPONENTS)
    yield from (Paragraph(text=sentence) for sentence in refused_exponents(study.growth))
    yield from _shown(measured_crossing_table(study.measured_crossovers), MEASURED_CROSSINGS)
    yield from _shown(closed_crossing_table(study.closed_crossovers), CLOSED)


def _shown(table: Table, caption: str) -> Iterator[Block]:
    if table.rows:
        yield TableBlock(table=table, caption=caption)


IDENTITY = ("model", "seq_len", "budget", "flops_coefficient", "params_seq")
"""Cells that agree in these share a row."""


def where_quadratic(study: Study) -> tuple[Block, ...]:
    """Return a table of every model's quadratic terms."""
    distinct: dict[tuple[Any, ...], Row] = {}
    for home in study.quadratic_home.values():
        distinct.setdefault(tuple(home[key] for key in IDENTITY), {**home, "home": _home(home)})
    homes = list(distinct.values())
    if not homes:
        return (Paragraph(text="The plan holds no configurations."),)
    caption = (
        "Coefficients from the closed forms, at each configuration's own width. FLOPs per n^2: forward FLOPs of one sample that multiply n^2. "
        "Weights per n^2: the same for parameters. Length-dependent parameters include learned positions and spatial biases. Weights: n x n of them "
        "in each layer, shared by all samples of a batch. Scores: n x n per head and sample, computed in every step; a fused kernel never writes "
        "them to memory."
    )
    return (TableBlock(table=_table(homes), caption=caption),)


def _home(row: Row) -> str:
    kinds = (("weights", row["weight_terms"]), ("scores", row["activation_terms"]))
    return "; ".join(f"{kind} ({', '.join(terms)})" for kind, terms in kinds if terms) or "nowhere: linear in n"


def _table(homes: Sequence[Row]) -> Table:
    columns = (
        plain("model"),
        number("seq_len", "n", numbers.whole),
        number("budget", "budget", numbers.count),
        number("flops_coefficient", "FLOPs per n^2", numbers.exact),
        number("flops_share", "of FLOPs at n", numbers.percent),
        number("weights_coefficient", "weights per n^2", numbers.exact),
        number("params_seq", "length-dependent params", numbers.exact),
        plain("home", "n^2 lives in"),
    )
    return table(homes, columns, keep=("model", "n"))

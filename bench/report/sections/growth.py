"""How cost grows with n, as a section: decompositions, local exponents, twins and crossovers, each with the rule by which it was made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.crossover import Crossing
from bench.analysis.evidence import label_of
from bench.analysis.frame import SCOPE_TEXTS, Cell, _scope_text
from bench.analysis.growth import ACTIVATIONS, LATENCY, Growth
from bench.analysis.run_crossovers import SCOPES, ClosedCrossing, EqualTerms, PairCrossing
from bench.analysis.series import row_values
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.report.charts.matplotlib import Quantity, draw_lines
from bench.report.charts.sheets import draw_sheets, sheets
from bench.report.charts.style import SeriesStyle
from bench.report.document import Block, FigureBlock, Paragraph, TableBlock
from bench.report.tables import Table


def decomposition_table(found: Sequence[Growth]) -> Table:
    """a + b n + c n^2 of every series and quantity, or why there is none."""
    scope = _scope_columns([growth.series.keys for growth in found])
    headers = (
        "quantity",
        "series",
        *scope,
        "n from",
        "to",
        "a",
        "b (per n)",
        "c (per n^2)",
        "share of c n^2",
        "b n = c n^2 at",
        "answer",
        "why",
    )
    numeric = (False, False, *(False for _ in scope), True, True, True, True, True, True, True, False, False)
    return _table(headers, numeric, [_decomposition_row(growth, scope) for growth in found], badge="answer")


def share_table(found: Sequence[Growth]) -> Table:
    """The share of each term of the fitted cost at each n that entered the fit, one row per series and length."""
    scope = _scope_columns([growth.series.keys for growth in found])
    rows = [
        [*_place(growth, scope), _whole(at.n), *(_interval(term, numbers.percent) for term in (at.constant, at.linear, at.quadratic))]
        for growth in found
        for at in growth.decomposition.shares
    ]
    headers = ("quantity", "series", *scope, "n", "a", "b n", "c n^2")
    return _table(headers, (False, False, *(False for _ in scope), True, True, True, True), rows)


def exponent_table(found: Sequence[Growth]) -> Table:
    """d log cost / d log n between neighbouring lengths, one row per step."""
    scope = _scope_columns([growth.series.keys for growth in found])
    rows = [
        [*_place(growth, scope), _whole(step.shorter), _whole(step.longer), _interval(step.exponent, _fixed)]
        for growth in found
        for step in growth.exponents.exponents
    ]
    return _table(
        ("quantity", "series", *scope, "from n", "to n", "exponent"), (False, False, *(False for _ in scope), True, True, True), rows
    )


def refused_exponents(found: Sequence[Growth]) -> list[str]:
    """One sentence per reason why series have no exponents."""
    reasons: dict[str, list[str]] = {}
    for growth in found:
        if growth.exponents.refused:
            reasons.setdefault(growth.exponents.refused, []).append(f"{label_of(growth.series.keys)}, {growth.measure.name}")
    return [
        f"No local exponents for {len(series)} series ({'; '.join(series[:3])}{'; ...' if len(series) > 3 else ''}): {reason}"
        for reason, series in reasons.items()
    ]


def twin_table(found: Sequence[Growth]) -> Table:
    """Cost per token at n beside n - 1."""
    scope = _scope_columns([growth.series.keys for growth in found])
    rows = [
        [*_place(growth, scope), _whole(twin.n), _interval(twin.ratio, _fixed) if twin.ratio else ("", None), (twin.refused, None)]
        for growth in found
        for twin in growth.twins
    ]
    return _table(
        ("quantity", "series", *scope, "n", "per token, n over n - 1", "why not"),
        (False, False, *(False for _ in scope), True, True, False),
        rows,
    )


def measured_crossing_table(found: Sequence[PairCrossing]) -> Table:
    """Where two series were measured to cost the same."""
    scope = _scope_columns([pair.scope for pair in found])
    rows = [
        [
            (pair.measure.name, None),
            (pair.first, None),
            (pair.second, None),
            *(_scope_text(pair.scope, key) for key in scope),
            _crossings(pair.found.crossings),
            (_crossing_words(pair), None),
        ]
        for pair in found
    ]
    headers = ("quantity", "first", "second", *scope, "equal at n", "which is cheaper")
    return _table(headers, (False, False, False, *(False for _ in scope), True, False), rows)


def closed_crossing_table(found: Sequence[ClosedCrossing]) -> Table:
    """The same from the closed forms, for the blocks and for the whole model."""
    lengths = sorted({n for pair in found for n in pair.ratios["blocks"]})[-2:]
    quantities: tuple[tuple[str, Callable[[ClosedCrossing], Mapping[str, Any]]], ...] = (
        ("FLOPs", lambda pair: pair.flops),
        ("parameters", lambda pair: pair.params),
    )
    rows = [
        [
            (name, None),
            (f"{pair.first} ({pair.first_shape})", None),
            (f"{pair.second} ({pair.second_shape})", None),
            (numbers.count(pair.budget), pair.budget),
            (scope, None),
            _crossings(values(pair)[scope].crossings),
            (values(pair)[scope].none, None),
            *(_ratio(pair, scope, n, name) for n in lengths),
        ]
        for pair in found
        for name, values in quantities
        for scope in SCOPES
    ]
    headers = ("quantity", "first", "second", "budget", "of", "equal at n", "otherwise", *(f"first / second at n = {n}" for n in lengths))
    return _table(headers, (False, False, False, True, False, True, False, *(True for _ in lengths)), rows)


def equal_terms_table(found: Sequence[EqualTerms]) -> Table:
    """The n from which on the quadratic part of the FLOPs is the larger one."""
    rows = [[(one.model, None), (one.shape, None), *(_length(one.at[scope]) for scope in SCOPES)] for one in found]
    return _table(("model", "depth x width", *(f"quadratic equals linear, {scope}" for scope in SCOPES)), (False, False, True, True), rows)


def _decomposition_row(growth: Growth, scope: Sequence[str]) -> list[Cell]:
    found, answer = growth.decomposition, growth.answer
    unit = growth.measure.unit
    spread = (_whole(found.lengths[0]), _whole(found.lengths[-1])) if found.lengths else (("", None), ("", None))
    terms = [_interval(term, lambda value: f"{value:.3g} {unit}") if term else ("", None) for term in (found.a, found.b, found.c)]
    share = _interval(answer.share, numbers.percent) if answer.share else ("", None)
    equal = _interval(found.quadratic_equals_linear, _rounded) if found.quadratic_equals_linear else ("", None)
    return [*_place(growth, scope), *spread, *terms, share, equal, (answer.answer, None), (answer.reason, None)]


def _place(growth: Growth, scope: Sequence[str]) -> list[Cell]:
    keys = growth.series.keys
    label = label_of(keys) if growth.measure.per_workload else str(keys["model"])
    return [(growth.measure.name, None), (label, None), *(_scope_text(keys, key) for key in scope)]


def _scope_columns(scopes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Those that are not the same everywhere."""
    return tuple(key for key in SCOPE_TEXTS if len({str(scope.get(key)) for scope in scopes}) > 1)


def _crossings(found: Iterable[Crossing]) -> Cell:
    listed = list(found)
    return "; ".join(_crossing(one) for one in listed) or "none", listed[0].n if listed else None


def _crossing(one: Crossing) -> str:
    if one.low == one.n == one.high:
        return _rounded(one.n)
    low, high = (_rounded(bound) if bound is not None else "not bounded" for bound in (one.low, one.high))
    return f"{_rounded(one.n)} [{low}, {high}]"


def _crossing_words(pair: PairCrossing) -> str:
    found = pair.found
    if found.refused or found.none:
        return found.refused or found.none
    return "; ".join(f"{one.before} below, {one.after} above" for one in found.crossings)


def _ratio(pair: ClosedCrossing, scope: str, n: int, quantity: str) -> Cell:
    value = pair.ratios[scope][n] if quantity == "FLOPs" else None
    return ("", None) if value is None else (_fixed(value), value)


def _length(n: float | None) -> Cell:
    return ("never", None) if n is None else (_rounded(n), n)


def _interval(interval: Interval, text: Callable[[float], str]) -> Cell:
    if interval.low == interval.high:
        return text(interval.estimate), interval.estimate
    return f"{text(interval.estimate)} [{text(interval.low)}, {text(interval.high)}]", interval.estimate


def _fixed(value: float) -> str:
    return f"{value:.2f}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _whole(value: int) -> Cell:
    return f"{value}", float(value)


def _table(headers: Sequence[str], numeric: Sequence[bool], rows: Sequence[Sequence[Cell]], badge: str = "") -> Table:
    """Columns without a single text are left out."""
    shown = [place for place in range(len(headers)) if any(row[place][0] for row in rows)]
    return Table(
        headers=tuple(headers[place] for place in shown),
        numeric=tuple(numeric[place] for place in shown),
        rows=tuple(tuple(row[place][0] for place in shown) for row in rows),
        keys=tuple(tuple(row[place][1] for place in shown) for row in rows),
        badges=tuple(headers[place] == badge for place in shown),
    )


DECOMPOSITION = (
    "Cost as a + b n + c n^2, one shape per series. Times: non-negative weighted least squares with relative weights, from cells that are stable "
    "and not launch-bound; 95 % t-intervals over rounds; no terms where a lack-of-fit test against the error between rounds rejects (p < 0.01) "
    "or the grid cannot identify c. Counts: exact, from the length on from which they follow one polynomial within 0.5 %."
)
SHARES = "The share of each term in the fitted cost, at every length that entered a fit that holds."
EXPONENTS = (
    "Local exponents between neighbouring lengths: d log cost / d log n, paired by round, with 95 % t-intervals. 1 is linear, 2 quadratic."
)
TWINS = (
    "What alignment does: cost per token at n (patches and a class token) over that at n - 1, paired by round. Above 1, the odd length costs "
    "more than its one token."
)
MEASURED = (
    "Where two series were measured to cost the same: the mean log ratio, paired by round, is interpolated linearly in log n; the interval is where "
    "the 95 % band crosses zero. Pairs with gMLP, and one model under two attention kernels."
)
CLOSED = "Where two models of one shape each cost the same by their closed forms, for the blocks alone and for the whole model."
EQUAL = "From which n on the quadratic part of the FLOPs is larger than the linear one, by closed form."


def growth_blocks(study: Study) -> tuple[Block, ...]:
    """Every table that has rows; a sentence where there is none."""
    return tuple(_blocks(study)) or (
        Paragraph(text="No series of one shape at three lengths or more: this run says nothing about growth."),
    )


def _blocks(study: Study) -> Iterator[Block]:
    yield from _shown(decomposition_table(study.growth), DECOMPOSITION)
    yield from _shown(share_table(study.growth), SHARES)
    yield from _shown(exponent_table(study.growth), EXPONENTS)
    yield from (Paragraph(text=sentence) for sentence in refused_exponents(study.growth))
    yield from _shown(twin_table(study.growth), TWINS)
    yield from _shown(measured_crossing_table(study.measured_crossovers), MEASURED)
    yield from _shown(closed_crossing_table(study.closed_crossovers), CLOSED)
    yield from _shown(equal_terms_table(study.equal_terms), EQUAL)


def _shown(table: Table, caption: str) -> Iterator[Block]:
    if table.rows:
        yield TableBlock(table=table, caption=caption)


VALUE, LOW, HIGH = "exponent", "exponent_low", "exponent_high"
TITLES = {LATENCY.name: "How fast time grows", ACTIVATIONS.name: "How fast activations grow"}
CAPTION = (
    "Local exponent of the {what} between each length and the one before it: 1 is linear, 2 quadratic. {how}A change of kernel shows as a kink, "
    "and an exponent belongs to a kernel on a device, not to an architecture. One shape per series, whatever the batch."
)
BARS = "Bars are 95 % t-intervals over rounds, paired within the round. "


def draw_exponents(found: Sequence[Growth], styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    """Draw one figure for time and one for activations, where there are exponents. Call inside `style.figure_style`."""
    for measure in (LATENCY, ACTIVATIONS):
        rows = pandas.DataFrame([row for growth in found if growth.measure is measure for row in _rows(growth)])
        if rows.empty:
            continue
        low, high = (LOW, HIGH) if measure.timed else ("", "")
        quantity = Quantity(value=VALUE, low=low, high=high, label="local exponent", text=lambda value: f"{value:g}", logarithmic=False)
        yield from draw_sheets(
            sheets(rows, "size", str),
            functools.partial(draw_lines, quantity=quantity, styles=styles),
            name=f"exponents-{measure.name.partition(' ')[0]}",
            title=TITLES[measure.name],
            caption=CAPTION.format(what=measure.name, how=BARS if measure.timed else ""),
        )


def _rows(growth: Growth) -> Iterator[dict[str, Any]]:
    """One per step, as the cell at its longer end with the exponent beside."""
    by_length = {int(row["seq_len"]): row for row in row_values(growth.series.rows)}
    for step in growth.exponents.exponents:
        bounds = {LOW: step.exponent.low, HIGH: step.exponent.high} if growth.measure.timed else {LOW: None, HIGH: None}
        yield {**by_length[step.longer], VALUE: step.exponent.estimate, **bounds}

"""Draw the argument: FLOPs, time and peak memory against n, side by side, beside guides that grow as n and n²."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas
from matplotlib.axes import Axes

from bench import numbers
from bench.analysis.frame import work_text
from bench.analysis.growth import FlopsGrowth, gate_and_attention
from bench.analysis.ratios import attentions, is_fused
from bench.analysis.study import Study
from bench.reading.table import row_values
from bench.report.charts.lines import WIDTH, Line, draw_guide, draw_series, label_ends, panels
from bench.report.charts.style import GREY, METAFORMER, SeriesStyle, display_name, role_of, series_styles
from bench.report.charts.ticks import bytes_axis, length_axis, log_value_axis
from bench.report.document import FigureBlock
from bench.report.sections.wording import LINEAR, POLICIES, QUADRATIC, join_names, times_text
from bench.spec import PREDICTED

NARROW, START = 2.4, 0.62
"""Inches of a panel beside others, and of the room for its ticks' labels."""
MAX_LINES = 6
"""Lines in colour; further ones are grey."""
MAX_NAMED = 3
CONTEXT = SeriesStyle(color=GREY, marker="", line="-")


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What one panel shows.

    `column`: of the frame.
    `set_axis`: sets scale and ticks of the y axis for positive values.
    """

    column: str
    title: str
    set_axis: Callable[[Axes, Sequence[float]], None]


FLOPS = Quantity(column="flops", title="FLOPs per sample", set_axis=lambda axis, values: log_value_axis(axis, values, numbers.count, ""))
TIME = Quantity(column="latency_ms", title="time", set_axis=lambda axis, values: log_value_axis(axis, values, numbers.duration, ""))
MEMORY = Quantity(column="peak_memory_bytes", title="peak memory", set_axis=bytes_axis)


def draw_growth(study: Study) -> FigureBlock | None:
    """Draw what was measured of FLOPs, time and memory; None without two lengths."""
    rows = study.growth_rows
    shown = [quantity for quantity in (FLOPS, TIME, MEMORY) if rows.loc[rows[quantity.column] > 0, "place"].nunique() > 1]
    if not shown:
        return None
    labels = _in_colour(rows)
    styles = series_styles(study.frame["label"])
    names = [display_name(label) for label in labels]
    figure, axes = panels(len(shown), names, width=NARROW if len(shown) > 1 else WIDTH, across=len(shown), start=START, names_at_end=True)
    for quantity, axis in zip(shown, axes, strict=True):
        lines = growth_lines(rows, quantity, styles, labels)
        fill_growth_panel(axis, lines, quantity)
        axis.set_title(quantity.title)
    label_ends(axes[-1], [line for line in lines if line.style is not CONTEXT])
    grey = [display_name(label) for label in dict.fromkeys(rows["label"]) if label not in labels]
    return FigureBlock(
        name="growth",
        title=growth_title(study.flops_growth),
        caption=_caption(rows, shown, grey),
        figure=figure,
    )


def fill_growth_panel(axis: Axes, lines: Sequence[Line], quantity: Quantity) -> None:
    """Draw values against n, with dotted guides that leave the lowest of the shortest length as n and n squared."""
    length_axis(axis, [n for line in lines for n in line.x])
    quantity.set_axis(axis, [value for line in lines for value in line.y])
    start = min(line.x[0] for line in lines)
    lowest = min(line.y[0] for line in lines if line.x[0] == start)
    draw_guide(axis, lambda n: lowest * (n / start), LINEAR, place=0.45)
    draw_guide(axis, lambda n: lowest * (n / start) ** 2, QUADRATIC, place=0.8)
    draw_series(axis, lines)


def growth_lines(rows: pandas.DataFrame, quantity: Quantity, styles: Mapping[str, SeriesStyle], named: Sequence[str]) -> list[Line]:
    """Return a line per model, grey ones first: those that are not to be `named`."""
    found = []
    for label, members in rows[rows[quantity.column] > 0].groupby("label", sort=False):
        hollow = list(members["memory_source"] == PREDICTED) if quantity is MEMORY else []
        is_named = label in named
        found.append(
            Line(
                label=display_name(str(label)),
                style=styles[str(label)] if is_named else CONTEXT,
                x=list(members["place"]),
                y=list(members[quantity.column]),
                hollow=hollow if is_named else [],
            )
        )
    return sorted(found, key=lambda line: line.style is not CONTEXT)


def growth_title(found: Sequence[FlopsGrowth]) -> str:
    """Say which share of the FLOPs at the longest n grows as n squared."""
    known = [growth for growth in found if growth.share is not None]
    if not known:
        return "FLOPs, time and memory against n"
    ordered = sorted(known, key=lambda growth: -(growth.share or 0.0))
    longest = ordered[0].longest
    if not ordered[0].share:
        return f"At n = {longest} no model's FLOPs grow as {QUADRATIC}"
    shown = [growth for growth in gate_and_attention(known) or known[:MAX_NAMED] if growth.longest == longest]
    shares = [numbers.percent(growth.share) for growth in shown]
    if len(shown) > 1 and len(set(shares)) == 1:
        return f"At n = {longest}, {QUADRATIC} is {shares[0]} of each model's FLOPs"
    names = [growth.model if growth.model.startswith(METAFORMER) else growth.model.partition("+")[0] for growth in shown]
    names = names if len(set(names)) == len(names) else [growth.model for growth in shown]
    texts = [f"{share} of {display_name(name)}'s FLOPs" for share, name in zip(shares, names, strict=True)]
    return f"At n = {longest}, {QUADRATIC} is {join_names(texts)}"


def memory_text(rows: pandas.DataFrame) -> str:
    """Compare memory at the longest shared length."""
    longest = max(rows["place"], key=lambda place: (rows.loc[rows["place"] == place, "label"].nunique(), place))  # shared by most models
    last = {str(row["label"]): float(row["peak_memory_bytes"]) for row in row_values(rows[rows["place"] == longest])}
    place = f"At n = {longest:.0f}"
    reference = next((label for label in attentions(rows).values() if label in last), "")
    ours = next((label for label in last if role_of(label) == "gmlp"), "")
    explicit = next((label for label in last if role_of(label) == "explicit"), "")
    others = [(name, label) for name, label in (("gMLP", ours), ("explicit", explicit)) if label]
    if reference and others:
        name = "fused attention" if is_fused(row_values(rows[rows["label"] == reference])) else "attention"
        (first, label), *rest = others if ours else [("explicit attention", explicit)]
        more = "".join(f", {other} {times_text(last[found] / last[reference])}" for other, found in rest)
        return f"{place} {first} takes {times_text(last[label] / last[reference])} {name}'s memory{more}"
    lowest, highest = (f(last, key=lambda label: last[label]) for f in (min, max))
    if lowest == highest:
        return f"{place} {display_name(lowest)} takes {numbers.bytes_text(last[lowest])}"
    return f"{place} {display_name(highest)} takes {times_text(last[highest] / last[lowest])} {display_name(lowest)}'s memory"


def _in_colour(rows: pandas.DataFrame) -> list[str]:
    """Return the labels that get a colour and a name: of many, first gMLP and attention."""
    labels = list(dict.fromkeys(map(str, rows["label"])))
    if len(labels) <= MAX_LINES:
        return labels
    return sorted(labels, key=lambda label: not role_of(label))[:MAX_LINES]


def _caption(rows: pandas.DataFrame, shown: Sequence[Quantity], grey: Sequence[str]) -> str:
    keys = row_values(rows)[0]
    work = ", ".join(work_text(key, keys[key]) for key in ("phase", "engine", "batching", "dtype") if keys[key])
    how = {
        FLOPS.column: "forward FLOPs of matrix products, exact",
        TIME.column: "median time of a step",
        MEMORY.column: "peak of live tensors" + ("; hollow points are predicted" if (rows["memory_source"] == PREDICTED).any() else ""),
    }
    texts = "; ".join(how[quantity.column] for quantity in shown)
    remembered = f"{memory_text(rows[rows['peak_memory_bytes'] > 0])}. " if MEMORY in shown else ""
    others = f" Grey: {join_names(grey)}." if grey else ""
    return f"{remembered}{texts[:1].upper()}{texts[1:]} ({work}; {_size(keys)}). Dotted lines grow as {LINEAR} and {QUADRATIC}.{others}"


def _size(keys: Mapping[str, Any]) -> str:
    match, budget = str(keys["match"]), numbers.count(keys["budget"])
    return POLICIES.get(match, match) + (f", {budget}" if budget else "")

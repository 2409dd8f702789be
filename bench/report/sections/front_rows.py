"""What a comparison of cost and quality shows: one row per trained model with both quantities, the front and the tests, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from bench import numbers
from bench.analysis.front import DIFFERENCE_UNITS, Axes
from bench.analysis.ranking import ON
from bench.analysis.significance import Comparison
from bench.report import tables
from bench.report.tables import Column, Table


def rows_table(rows: pandas.DataFrame, planned_seeds: int) -> Table:
    """`planned_seeds`: how many seeds each model was to be trained with."""
    task = (tables.plain("task"),) if rows["task"].nunique() > 1 else ()
    seeds = Column(header="seeds", text=lambda row: seeds_text(row["num_seeds"], planned_seeds))
    quality = (tables.ACCURACY, tables.TRAINING[2], tables.SCORE, seeds)
    time = Column(header="training time", text=lambda row: numbers.duration(1e3 * row["train_s"]))
    columns = (tables.MODEL, *task, tables.LENGTH, tables.BUDGET, tables.PARAMS, tables.FLOPS, tables.LATENCY, time, *quality)
    return tables.table(rows, (*columns, tables.plain("front")), keep=("model", "n"))


def front_table(front: pandas.DataFrame, axes: Axes) -> Table:
    task = (tables.plain("task"),) if front["task"].nunique() > 1 else ()
    x = Column(header=axes.x, text=lambda row: _x_text(row, axes))
    y = Column(header=axes.y, text=lambda row: _quality(row, axes))
    standing = Column(header="on the front", text=lambda row: "certain" if row["front"] == ON else "not certain", numeric=False)
    return tables.table(front, (tables.MODEL, *task, tables.LENGTH, tables.BUDGET, x, y, standing), keep=("model", "n"))


def comparison_table(comparisons: Sequence[Comparison], axes: Axes) -> Table:
    task = ("task",) if len({c.group["task"] for c in comparisons}) > 1 else ()
    difference = "difference [95 %]" if axes.y == "accuracy" else f"difference in {DIFFERENCE_UNITS[axes.y]} [95 %]"
    headers = (*task, "n", "budget", "higher", "lower", difference, "test", "seeds", "items", "p", "p (Holm)", "verdict")
    numeric = tuple(header not in ("task", "higher", "lower", "test", "verdict") for header in headers)
    texts = [(*(str(c.group[key]) for key in task), *_comparison_texts(c, axes)) for c in comparisons]
    return Table(headers=headers, numeric=numeric, rows=tuple(texts))


def seeds_text(num: float, planned: int) -> str:
    """3 of 5, where seeds were lost; else their number."""
    return f"{num:.0f} of {planned}" if num < planned else numbers.whole(num)


def _quality(row: tables.Row, axes: Axes) -> str:
    if axes.y == "accuracy":
        return numbers.fraction(row["y"], row["y_low"], row["y_high"])
    bounds = "" if numbers.is_empty(row["y_low"]) else f" [{row['y_low']:.3g}, {row['y_high']:.3g}]"
    return f"{row['y']:.3g}{bounds}"


def _comparison_texts(comparison: Comparison, axes: Axes) -> tuple[str, ...]:
    difference, group = comparison.difference, comparison.group
    # a test that does not speak of other seeds compares the first of each
    shown = comparison.seeds if difference.over_seeds or comparison.seeds_lost else (1,)
    seeds = " and ".join(dict.fromkeys(seeds_text(num, comparison.planned_seeds) for num in shown))
    return (
        *(numbers.whole(group["seq_len"]), numbers.count(group["budget"]), comparison.first, comparison.second),
        *(_difference_text(comparison, axes), difference.test, seeds, f"{difference.num_items:,}"),
        *(numbers.p_value(difference.p_value), numbers.p_value(comparison.p_adjusted), comparison.verdict),
    )


def _difference_text(comparison: Comparison, axes: Axes) -> str:
    found, (scale, unit) = comparison.difference, (100, " pp") if axes.y == "accuracy" else (1, "")
    values = [scale * value for value in (found.estimate, found.low, found.high)]
    if axes.y == "accuracy":
        return f"{values[0]:+.2f}{unit} [{values[1]:+.2f}, {values[2]:+.2f}]"
    return f"{values[0]:+.3g} [{values[1]:+.3g}, {values[2]:+.3g}]"


def _x_text(row: tables.Row, axes: Axes) -> str:
    if axes.x == "latency_ms":
        text = numbers.interval_ms(row["x"], row["x_low"], row["x_high"])
        return f"{text}, unstable" if row["latency_stable"] is False else text
    if axes.x == "train_s":
        return numbers.duration(1e3 * row["x"])
    return numbers.exact(row["params"]) if axes.x == "params" else numbers.count(row["x"])

"""Write `bench compare` as JSON, text and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas

from bench import numbers
from bench.analysis.accuracy import Comparison
from bench.analysis.frame import row_values
from bench.analysis.front import DIFFERENCE_UNITS, OPEN, Axes, CostAgainstQuality, Fronts, on_front, task_names, unmeasured
from bench.files import write_bytes, write_text
from bench.report import tables
from bench.report.charts.front import MAX_PANELS, draw_fronts, is_unstable
from bench.report.charts.style import figure_style, series_styles
from bench.report.document import Block, Bullets, Document, FigureBlock, Paragraph, Section, TableBlock
from bench.report.images import images_of, svg_file
from bench.report.markdown import to_markdown
from bench.report.sections.front_text import (
    ABOUT_FRONT,
    CORRECTION,
    METHOD,
    figure_caption,
    front_sentence,
    heading,
    quick_text,
    seeds_lost_text,
    seeds_text,
    unequal_text,
    unit_text,
    verdict_sentence,
    workload_text,
)
from bench.report.tables import Column, Table, plain


def name_of(fronts: Fronts) -> str:
    """Return the name of the page and its figure."""
    return "_".join(("compare", *(found.axes.x for found in fronts), fronts[0].axes.y))


def json_of(fronts: Fronts) -> dict[str, Any]:
    """Return each cost's front, and every comparison, as JSON; unknown values are null."""
    found = fronts[0]
    front = [_front_entry(row, one.axes) for one in fronts for row in on_front(one.rows).to_dict("records")]
    comparisons = [_comparison_entry(comparison, found.axes) for comparison in found.comparisons]
    quick = found.plan.settings.quick
    return {"runs": list(found.runs), "quick": quick, "x": _costs(fronts), "y": found.axes.y, "front": front, "comparisons": comparisons}


def _costs(fronts: Fronts) -> str:
    """Write the costs as --x takes them."""
    return ",".join(found.axes.x for found in fronts)


def text_tables(fronts: Fronts) -> list[tuple[str, Table]]:
    """Return titles and tables in reading order, without empty tables.

    Against several costs, the table of trained models says for each cost who is on its front.
    """
    found = fronts[0]
    front = (f"Pareto front: {found.axes.x} against {found.axes.y}", front_table(on_front(found.rows), found.axes))
    named = [
        ("Trained models", rows_table(fronts)),
        *([front] if len(fronts) == 1 else []),
        ("Comparisons", comparison_table(found.comparisons, found.axes)),
    ]
    return [(title, table) for title, table in named if table.rows]


def notes(fronts: Fronts) -> list[str]:
    """Sum up the tables in sentences; the page has the methods too."""
    found, front = fronts[0], _front_notes(fronts)
    is_open = "Open: off the front, but not significantly below a model that costs no more." if (found.rows["front"] == OPEN).any() else ""
    limits = (*unit_text(found.comparisons, found.axes), *_limits(found), *filter(None, [is_open]))
    return [*quick_text(found.plan), *front, *verdict_sentence(found.comparisons), *limits]


def _front_notes(fronts: Fronts) -> list[str]:
    return [text for one in fronts for text in front_sentence(one.rows, one.axes)]


def _limits(found: CostAgainstQuality) -> list[str]:
    """Say why some differences are not claimed or not tested."""
    lost = seeds_lost_text(found.rows, found.without_seeds, found.plan.settings.seeds)
    return [*lost, *unequal_text(found.unequal)]


def _method(found: CostAgainstQuality) -> list[str]:
    return [*unit_text(found.comparisons, found.axes), METHOD, CORRECTION]


def write_comparison(fronts: Fronts, folder: Path) -> Path:
    """Write page and figures into `folder`; return the page's path.

    The page is compare_<x>_<y>.md, with all costs in its name; the figure is SVG. `folder` is created if missing. Equal data give equal bytes.
    """
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    with figure_style():
        document = _document(fronts)
        for name, image in images_of(document.figures).items():
            write_bytes(folder / "figures" / f"{name}.svg", svg_file(image))
    page = folder / f"{name_of(fronts)}.md"
    write_text(page, to_markdown(document))
    return page


def figure(fronts: Fronts) -> FigureBlock:
    """Draw the front, or one beside the other for several costs. Call inside `style.figure_style`."""
    found = fronts[0]
    rows = found.rows[found.rows["x"].notna()]
    title, conditions = heading(rows, fronts)
    tasks = task_names(rows["task"])
    places = list(dict.fromkeys(zip(rows["task"], rows["seq_len"], strict=True)))
    left_out = [f"{tasks[task]}, n = {n:.0f}" for task, n in places[MAX_PANELS:]]
    drawn = [(one.rows[one.rows["x"].notna()], one.axes) for one in fronts]
    hollow = " Hollow: an unstable time." if any(is_unstable(row, axes) for rows, axes in drawn for row in row_values(rows)) else ""
    return FigureBlock(
        name=name_of(fronts),
        title=title,
        caption=f"{conditions} {figure_caption([one.axes for one in fronts], found.apart)}{hollow}",
        figure=draw_fronts(drawn, series_styles(list(rows["label"])), found.chance),
        missing=(*dict.fromkeys(text for one in fronts for text in unmeasured(one.rows)), *left_out),
    )


def _document(fronts: Fronts) -> Document:
    found = fronts[0]
    blocks = {title.partition(":")[0]: TableBlock(table=table) for title, table in text_tables(fronts)}
    conditions = [Paragraph(text=text) for one in fronts for text in workload_text(one.rows, one.axes)]
    front = (*_front_notes(fronts), ABOUT_FRONT)
    sections: dict[str, Sequence[Block]] = {
        "Which differences are significant": (
            Paragraph(text=" ".join((*verdict_sentence(found.comparisons), *_limits(found)))),
            *([blocks["Comparisons"]] if "Comparisons" in blocks else []),
            *([Bullets(items=tuple(_method(found)))] if found.comparisons else []),
        ),
        "Front": (Paragraph(text=" ".join(front)), *([blocks["Pareto front"]] if len(fronts) == 1 else []), figure(fronts)),
        "Trained models": (blocks["Trained models"], *conditions),
    }
    of, into = (found.runs[0], "") if len(found.runs) == 1 else (f"{len(found.runs)} runs", " --out FOLDER")
    return Document(
        title=f"{of}: {_costs(fronts).replace(',', ', ')} against {found.axes.y}",
        subtitle=f"Made by: bench compare {' '.join(found.runs)} --x {_costs(fronts)} --y {found.axes.y}{into}; run of {found.plan.created[:10]}",
        notice=" ".join(quick_text(found.plan)),
        sections=tuple(Section(title=title, blocks=tuple(parts)) for title, parts in sections.items()),
    )


def _front_entry(row: Mapping[str, Any], axes: Axes) -> dict[str, Any]:
    return {
        "cost": axes.x,
        "cell_id": row["cell_id"],
        "label": row["label"],
        **_group_entry(row),
        "x": float(row["x"]),
        **{name: _number(row[name]) for name in ("y", "y_low", "y_high", "x_low", "x_high")},
    }


def _comparison_entry(comparison: Comparison, axes: Axes) -> dict[str, Any]:
    difference = comparison.difference
    return {
        **_group_entry(comparison.group),
        "first": {"cell_id": comparison.first_id, "label": comparison.first, "seeds": comparison.seeds[0]},
        "second": {"cell_id": comparison.second_id, "label": comparison.second, "seeds": comparison.seeds[1]},
        "difference": difference.estimate,
        "unit": DIFFERENCE_UNITS[axes.y],
        "low": _number(difference.low),
        "high": _number(difference.high),
        "num_items": comparison.num_items,
        "significant": comparison.significant,
        "verdict": comparison.verdict,
        "remark": comparison.caveat,
    }


def _group_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "task": row["task"],
        "seq_len": int(row["seq_len"]),
        "budget": None if pandas.isna(row["budget"]) else int(row["budget"]),
        "match": row["match"],
    }


def _number(value: Any) -> float | None:
    return None if numbers.is_empty(value) or math.isinf(value) else float(value)


def rows_table(fronts: Fronts) -> Table:
    """Return one row per trained model; against several costs, each cost is followed by the membership of its front."""
    rows, planned_seeds = fronts[0].rows, fronts[0].plan.settings.seeds
    task = (plain("task"),) if rows["task"].nunique() > 1 else ()
    seeds = Column(header="seeds", text=lambda row: seeds_text(row["num_seeds"], planned_seeds))
    time = Column(header="training time", text=lambda row: numbers.duration(1e3 * row["train_s"]))
    costs = {
        "params": tables.PARAMS,
        "flops": tables.FLOPS,
        "latency_ms": tables.LATENCY,
        "peak_memory_bytes": tables.MEMORY,
        "train_s": time,
    }
    asked = [plain("front")]
    if len(fronts) > 1:
        members = {f"front by {one.axes.x}": one.rows.set_index("training")["front"] for one in fronts}
        rows = rows.assign(**{header: rows["training"].map(front).fillna("") for header, front in members.items()})
        asked = [column for one, header in zip(fronts, members, strict=True) for column in (costs.pop(one.axes.x), plain(header))]
    columns = (
        *(tables.MODEL, *task, tables.LENGTH, tables.BUDGET, tables.ACCURACY, tables.SCORE, *asked),
        *(*costs.values(), seeds, tables.TRAINING[2]),
    )
    return tables.table(row_values(rows), columns, keep=("model", "n"))


def front_table(front: pandas.DataFrame, axes: Axes) -> Table:
    task = (plain("task"),) if front["task"].nunique() > 1 else ()
    x = Column(header=axes.x, text=lambda row: _x_text(row, axes))
    y = Column(header=axes.y, text=lambda row: _quality(row, axes))
    return tables.table(row_values(front), (tables.MODEL, *task, tables.LENGTH, tables.BUDGET, x, y), keep=("model", "n"))


def comparison_table(comparisons: Sequence[Comparison], axes: Axes) -> Table:
    tasks = task_names(c.group["task"] for c in comparisons)
    task = ("task",) if len(tasks) > 1 else ()
    difference = "difference [95 %]" if axes.y == "accuracy" else f"difference in {DIFFERENCE_UNITS[axes.y]} [95 %]"
    headers = (*task, "n", "budget", "higher", "lower", "verdict", difference, "seeds", "items")
    numeric = tuple(header not in ("task", "higher", "lower", "verdict") for header in headers)
    texts = [(*(tasks[c.group[key]] for key in task), *_comparison_texts(c, axes)) for c in comparisons]
    return Table(headers=headers, numeric=numeric, rows=tuple(texts))


def _quality(row: tables.Row, axes: Axes) -> str:
    if axes.y == "accuracy":
        return numbers.fraction(row["y"], row["y_low"], row["y_high"])
    return numbers.bounded(row["y"], row["y_low"], row["y_high"], "{:.3g}".format)


def _comparison_texts(comparison: Comparison, axes: Axes) -> tuple[str, ...]:
    group = comparison.group
    seeds = " and ".join(dict.fromkeys(seeds_text(num, comparison.planned_seeds) for num in comparison.seeds))
    return (
        *(numbers.whole(group["seq_len"]), numbers.count(group["budget"]), comparison.first, comparison.second),
        *(comparison.verdict, _difference_text(comparison, axes)),
        *(seeds, f"{comparison.num_items:,}"),
    )


def _difference_text(comparison: Comparison, axes: Axes) -> str:
    found, (scale, form) = comparison.difference, (100, "{:+.2f}") if axes.y == "accuracy" else (1, "{:+.3g}")
    estimate, low, high = (form.format(scale * value) for value in (found.estimate, found.low, found.high))
    return f"{estimate}{' pp' if axes.y == 'accuracy' else ''}{'' if found.is_open else f' [{low}, {high}]'}"


def _x_text(row: tables.Row, axes: Axes) -> str:
    if axes.x == "latency_ms":
        is_range = numbers.is_empty(row["x_high"]) or math.isinf(row["x_high"])
        low, high = (row.get("latency_min_ms"), row.get("latency_max_ms")) if is_range else (row["x_low"], row["x_high"])
        text = numbers.interval_ms(row["x"], low, high, is_range=is_range)
        return f"{text}, unstable" if is_unstable(row, axes) else text
    if axes.x == "train_s":
        return numbers.duration(1e3 * row["x"])
    if axes.x == "peak_memory_bytes":
        return numbers.bytes_text(row["x"])
    return numbers.exact(row["params"]) if axes.x == "params" else numbers.count(row["x"])

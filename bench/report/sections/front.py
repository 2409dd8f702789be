"""`bench compare` as data, text and files: the rows, the front, and which differences are significant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas
from matplotlib.figure import Figure

from bench import numbers
from bench.analysis.front import DIFFERENCE_UNITS, Axes, CostAgainstQuality, on_front, unmeasured
from bench.analysis.ranking import ON
from bench.analysis.significance import ONE_SEED, Comparison
from bench.files import write_bytes, write_text
from bench.report.charts.sheets import Sheet, sheets
from bench.report.charts.style import figure_style, series_styles
from bench.report.document import Block, Bullets, Document, FigureBlock, Paragraph, Section, TableBlock
from bench.report.images import fix_layout, image_of
from bench.report.markdown import to_markdown
from bench.report.sections.front_figure import draw_comparison
from bench.report.sections.front_rows import comparison_table, front_table, rows_table
from bench.report.sections.front_text import (
    ABOUT_FRONT,
    doubt_text,
    figure_caption,
    front_sentence,
    heading,
    method_text,
    seeds_lost_text,
    unequal_text,
    unit_text,
    verdict_sentence,
    workload_text,
)
from bench.report.tables import Table

FORMS = ("png", "svg")


def json_of(found: CostAgainstQuality) -> dict[str, Any]:
    """One document: the front with its certainty, and every comparison; what is not known is null."""
    front = [_front_entry(row) for row in on_front(found.rows).to_dict("records")]
    comparisons = [_comparison_entry(comparison, found.axes) for comparison in found.comparisons]
    return {"run": found.run, "x": found.axes.x, "y": found.axes.y, "front": front, "comparisons": comparisons}


def text_tables(found: CostAgainstQuality) -> list[tuple[str, Table]]:
    """Title and table, in reading order, for a terminal as for the page; a table without rows is left out."""
    front = on_front(found.rows)
    named = [
        ("Trained models", rows_table(found.rows, found.plan.settings.seeds)),
        (f"Pareto front: {found.axes.x} against {found.axes.y}", front_table(front, found.axes)),
        ("Comparisons", comparison_table(found.comparisons, found.axes)),
    ]
    return [(title, table) for title, table in named if table.rows]


def notes(found: CostAgainstQuality) -> list[str]:
    """What the tables say, in sentences."""
    front = (*front_sentence(found.rows, found.axes), *doubt_text(found.rows, found.axes))
    return [*front, *verdict_sentence(found.comparisons), *_limits(found), *_method(found)]


def _limits(found: CostAgainstQuality) -> list[str]:
    """Why some differences are not claimed or not tested."""
    lost = seeds_lost_text(found.rows, found.without_seeds, found.plan.settings.seeds)
    return [*lost, *unequal_text(found.unequal)]


def _method(found: CostAgainstQuality) -> list[str]:
    return [*unit_text(found.comparisons, found.axes), *method_text(found.comparisons)]


def write_comparison(found: CostAgainstQuality, folder: Path) -> Path:
    """compare_<x>_<y>.md and figures/compare_<x>_<y>.svg and .png in `folder` (made if missing); the path of the first.

    Equal data give equal bytes.
    """
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    with figure_style():
        drawn = _figures(found)
        for name, (_, figure) in drawn.items():
            fix_layout(figure)
            for form in FORMS:
                write_bytes(folder / "figures" / f"{name}.{form}", image_of(figure, form))
    page = folder / f"{found.axes.name}.md"
    write_text(page, to_markdown(_document(found, {name: sheet for name, (sheet, _) in drawn.items()})))
    return page


def _figures(found: CostAgainstQuality) -> dict[str, tuple[Sheet, Figure]]:
    rows = found.rows[found.rows["x"].notna()]
    styles = series_styles(list(found.rows["label"]))
    drawn = {}
    for sheet in sheets(rows, "seq_len", lambda n: f"n = {n:.0f}", ("task",)):
        name = f"{found.axes.name}-{sheet.name}" if sheet.name else found.axes.name
        words = heading(sheet.rows, found.axes, found.plan, found.comparisons)
        plain = Sheet(title="", name=sheet.name, num_columns=sheet.num_columns, panels=sheet.panels)
        drawn[name] = (sheet, draw_comparison(plain, found.axes, styles, found.chance, words))
    return drawn


def _document(found: CostAgainstQuality, drawn: Mapping[str, Sheet]) -> Document:
    figures: Sequence[Block] = [
        FigureBlock(
            name=name,
            title=heading(sheet.rows, found.axes, found.plan, found.comparisons).title.replace("\n", " "),
            caption=figure_caption(found.axes),
            missing=unmeasured(found.rows),
        )
        for name, sheet in drawn.items()
    ]
    blocks = {title.partition(":")[0]: TableBlock(table=table) for title, table in text_tables(found)}
    conditions = [Paragraph(text=text) for text in workload_text(found.rows, found.axes)]
    front = (*front_sentence(found.rows, found.axes), *doubt_text(found.rows, found.axes), ABOUT_FRONT)
    sections: dict[str, Sequence[Block]] = {
        "Which differences are significant": (
            Paragraph(text=" ".join((*verdict_sentence(found.comparisons), *_limits(found)))),
            *([blocks["Comparisons"]] if "Comparisons" in blocks else []),
            *([Bullets(items=tuple(_method(found)))] if found.comparisons else []),
        ),
        "Front": (Paragraph(text=" ".join(front)), blocks["Pareto front"], *figures),
        "Trained models": (blocks["Trained models"], *conditions),
    }
    return Document(
        title=f"{found.run}: {found.axes.x} against {found.axes.y}",
        subtitle=f"Made by: bench compare {found.run} --x {found.axes.x} --y {found.axes.y}; run of {found.plan.created[:10]}",
        notice="",
        sections=tuple(Section(title=title, blocks=tuple(parts)) for title, parts in sections.items()),
    )


def _front_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    names = {"y": "y", "y_low": "y_low", "y_high": "y_high", "x_low": "x_low", "x_high": "x_high"}
    return {
        "cell_id": row["cell_id"],
        "label": row["label"],
        **_group_entry(row),
        "x": float(row["x"]),
        **{name: _number(row[source]) for name, source in names.items()},
        "certain": row["front"] == ON,
    }


def _comparison_entry(comparison: Comparison, axes: Axes) -> dict[str, Any]:
    difference = comparison.difference
    return {
        **_group_entry(comparison.group),
        "first": {"cell_id": comparison.first_id, "label": comparison.first, "seeds": comparison.seeds[0]},
        "second": {"cell_id": comparison.second_id, "label": comparison.second, "seeds": comparison.seeds[1]},
        "difference": difference.estimate,
        "unit": DIFFERENCE_UNITS[axes.y],
        "low": difference.low,
        "high": difference.high,
        "test": difference.test,
        "num_items": difference.num_items,
        "p_value": difference.p_value,
        "p_adjusted": comparison.p_adjusted,
        "correction": "Holm",
        "over_seeds": difference.over_seeds,
        "significant": comparison.significant,
        "verdict": comparison.verdict,
        "remark": "" if difference.over_seeds else ONE_SEED,
    }


def _group_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "task": row["task"],
        "seq_len": int(row["seq_len"]),
        "budget": None if pandas.isna(row["budget"]) else int(row["budget"]),
        "match": row["match"],
    }


def _number(value: Any) -> float | None:
    return None if numbers.is_empty(value) else float(value)

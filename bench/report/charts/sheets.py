"""Arrange rows as panels on sheets (small multiples).

A sheet becomes one figure. Workloads are split over several sheets if one would have too many panels.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas
from matplotlib.figure import Figure

from bench.analysis.frame import WORK_KEYS, constant_work, varying, work_text
from bench.report.charts.style import slug
from bench.report.document import FigureBlock
from bench.report.tables import Table

MAX_SHEETS = 12
MAX_NAMED = 20


def draw_sheets(
    found: Sequence[Sheet],
    draw: Callable[[Sheet], Figure],
    *,
    name: str,
    title: str,
    caption: str,
    conditions: bool = True,
    table: Callable[[pandas.DataFrame], Table] | None = None,
    missing: Callable[[pandas.DataFrame], Sequence[str]] | None = None,
) -> Iterator[FigureBlock]:
    """Yield a figure for each of the first `MAX_SHEETS` sheets.

    The last figure names the sheets that were not drawn. `missing` and `table` receive the rows of a sheet. `conditions`: append the
    workload values that these rows share to the caption.
    """
    for place, sheet in enumerate(found[:MAX_SHEETS]):
        shown, left_out = drawable(sheet)
        not_drawn = [other.title for other in found[MAX_SHEETS:]] if place == MAX_SHEETS - 1 else []
        shared = constant_work(sheet.rows) if conditions else ""
        without_value = missing(sheet.rows) if missing else ()
        yield FigureBlock(
            name=f"{name}-{sheet.name}" if sheet.name else name,
            title=f"{title}: {sheet.title}" if sheet.title else title,
            caption=f"{caption} Conditions: {shared}." if shared else caption,
            figure=draw(shown),
            table=table(sheet.rows) if table else None,
            missing=(*left_out, *_named(without_value, "configurations"), *_named(not_drawn, "figures of this kind")),
        )


def _named(texts: Sequence[str], noun: str) -> list[str]:
    """Return the first `MAX_NAMED` texts and the number of others."""
    more = [f"and {len(texts) - MAX_NAMED:,} more {noun}"] if len(texts) > MAX_NAMED else []
    return [*texts[:MAX_NAMED], *more]


MAX_PANELS = 12
MAX_COLUMNS = 4
MAX_SERIES = 20
MAX_LENGTHS = 24
WRAPPED_COLUMNS = 3
TITLE_CHARACTERS = 36


@dataclass(frozen=True, kw_only=True)
class Panel:
    title: str
    rows: pandas.DataFrame


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The panels of one figure.

    `title`, `name`: workload values that distinguish this sheet, as text and in a file name.
    `num_columns`: panels per row.
    `panels`: row by row; None for a combination without data.
    """

    title: str
    name: str
    num_columns: int
    panels: tuple[Panel | None, ...]

    @property
    def rows(self) -> pandas.DataFrame:
        return pandas.concat([panel.rows for panel in self.panels if panel])


def sheets(frame: pandas.DataFrame, column: str, text: Callable[[Any], str], row_keys: tuple[str, ...] = WORK_KEYS) -> list[Sheet]:
    """Arrange the frame as sheets that stay readable.

    A sheet has the values of `column` across and the varying workload values (of `row_keys`) down. Devices never share a sheet. `text` formats a
    value of `column`.
    """
    keys = varying(frame, row_keys)
    fixed = tuple(key for key in keys if key == "device")
    for key in (*(k for k in keys if k not in fixed), None):
        free = tuple(k for k in keys if k not in fixed)
        found = [_sheet(values, part, free, column, text) for values, part in _split(frame, fixed)]
        if key is None or all(len(sheet.panels) <= MAX_PANELS and sheet.num_columns <= MAX_COLUMNS for sheet in found):
            break
        fixed = (*fixed, key)
    return found


def drawable(sheet: Sheet) -> tuple[Sheet, tuple[str, ...]]:
    """Cut a sheet to the limits of an image.

    Returns the sheet and a phrase per cut. Most sheets need no cut.
    """
    panels = sheet.panels[:MAX_PANELS]
    rows = sheet.rows
    labels, lengths = list(dict.fromkeys(rows["label"])), sorted(rows["seq_len"].unique())
    kept_labels, kept_lengths = labels[:MAX_SERIES], _spread(lengths, MAX_LENGTHS)
    left_out = (
        _left_out("panels", len(sheet.panels), len(panels)),
        _left_out("series", len(labels), len(kept_labels)),
        _left_out("lengths", len(lengths), len(kept_lengths)),
    )
    if not any(left_out):
        return sheet, ()
    kept = tuple(panel and _restricted(panel, kept_labels, kept_lengths) for panel in panels)
    shown = Sheet(title=sheet.title, name=sheet.name, num_columns=min(sheet.num_columns, MAX_COLUMNS), panels=kept)
    return shown, tuple(phrase for phrase in left_out if phrase)


def _left_out(noun: str, num: int, num_kept: int) -> str:
    return f"{num - num_kept} of {num:,} {noun}, left out of the image" if num > num_kept else ""


def _spread(values: Sequence[float], num: int) -> list[float]:
    """Return at most `num` evenly spread values, including both ends."""
    if len(values) <= num:
        return list(values)
    return [values[round(i * (len(values) - 1) / (num - 1))] for i in range(num)]


def _restricted(panel: Panel, labels: Sequence[str], lengths: Sequence[float]) -> Panel | None:
    """Keep rows with these labels and lengths; None without any."""
    rows = panel.rows[panel.rows["label"].isin(labels) & panel.rows["seq_len"].isin(lengths)]
    return None if rows.empty else Panel(title=panel.title, rows=rows)


def _split(frame: pandas.DataFrame, fixed: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], pandas.DataFrame]]:
    """Yield each combination of `fixed` values with its rows."""
    if not fixed:
        yield {}, frame
        return
    for values, part in frame.groupby(list(fixed), sort=False):
        yield dict(zip(fixed, values, strict=True)), part


def _sheet(values: dict[str, Any], frame: pandas.DataFrame, keys: tuple[str, ...], column: str, text: Callable[[Any], str]) -> Sheet:
    """Arrange rows that share `values` as one sheet of any size."""
    combinations = list(_split(frame, varying(frame, keys)))
    across = list(dict.fromkeys(frame[column]))
    panels = [
        _panel(_phrase(combination), text(value) if len(across) > 1 else "", rows[rows[column] == value])
        for (combination, rows), value in itertools.product(combinations, across)
    ]
    title = _phrase(values)
    if len(panels) == 1:
        num_columns = 1
    elif len(combinations) > 1 and len(across) > 1:
        num_columns = len(across)
    else:
        num_columns = 2 if len(panels) == MAX_COLUMNS else min(len(panels), WRAPPED_COLUMNS)
    return Sheet(title=title, name=slug(title.lower().replace(", ", "-").replace(" ", "-")), num_columns=num_columns, panels=tuple(panels))


def _panel(combination: str, value: str, rows: pandas.DataFrame) -> Panel | None:
    title = textwrap.fill(", ".join(part for part in (combination, value) if part), TITLE_CHARACTERS)
    return None if rows.empty else Panel(title=title, rows=rows)


def _phrase(values: dict[str, Any]) -> str:
    return ", ".join(work_text(key, value) for key, value in values.items())

"""One figure from a sheet of panels: axes, titles and a legend below all of them, never over the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.render.layout import Sheet

ONE_PANEL = (6.0, 3.6)
MANY_PANELS = (3.3, 2.5)
MIN_WIDTH = 6.0
LEGEND_ROW = 0.24
TITLE_ROW = 0.35
CHARACTERS_PER_INCH = 11
LEGEND_HANDLE_CHARACTERS = 9

Handle = Line2D | Patch


def draw_panels(sheet: Sheet, draw: Callable[[Axes, pandas.DataFrame], None], handles: Sequence[Handle], share_y: bool) -> Figure:
    """`draw` fills one axis from the rows of one panel. Labels stay on the outer axes; a combination without data leaves its place empty."""
    columns = legend_columns(handles, sheet_width(sheet))
    legend_rows = -(-len(handles) // columns)
    figure = Figure(figsize=(sheet_width(sheet), _panel_height(sheet) + LEGEND_ROW * legend_rows), layout="constrained")
    axes = figure.subplots(sheet.num_rows, sheet.num_columns, squeeze=False, sharey=share_y)
    for place, axis in enumerate(axes.flat):
        panel = sheet.panels[place] if place < len(sheet.panels) else None
        if panel is None:
            axis.set_visible(False)
            continue
        draw(axis, panel.rows)
        axis.set_title(panel.title)
        _label_outer(axis, place, sheet, share_y)
    if sheet.title:
        figure.suptitle(sheet.title, fontsize=10, x=0.01, ha="left")
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)
    return figure


def sheet_width(sheet: Sheet) -> float:
    """In inches."""
    return ONE_PANEL[0] if len(sheet.panels) == 1 else max(MIN_WIDTH, MANY_PANELS[0] * sheet.num_columns)


def legend_columns(handles: Sequence[Handle], width: float) -> int:
    """As many as fit side by side in `width` inches, whatever the names' length; a legend fills its columns from top to bottom."""
    lengths = [len(str(handle.get_label())) + LEGEND_HANDLE_CHARACTERS for handle in handles]
    for columns in range(len(lengths), 1, -1):
        rows = -(-len(lengths) // columns)
        if sum(max(lengths[i : i + rows]) for i in range(0, len(lengths), rows)) <= width * CHARACTERS_PER_INCH:
            return columns
    return 1


def _panel_height(sheet: Sheet) -> float:
    height = ONE_PANEL[1] if len(sheet.panels) == 1 else MANY_PANELS[1] * sheet.num_rows
    return height + (TITLE_ROW if sheet.title else 0.0)


def _label_outer(axis: Axes, place: int, sheet: Sheet, share_y: bool) -> None:
    """Drop an axis label that the neighbour already shows; with a shared scale the tick labels go as well."""
    below = place + sheet.num_columns
    if place % sheet.num_columns and sheet.panels[place - 1] is not None:
        axis.set_ylabel("")
        axis.tick_params(labelleft=not share_y)
    if below < len(sheet.panels) and sheet.panels[below] is not None:
        axis.set_xlabel("")

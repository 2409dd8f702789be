"""Show results in a notebook: sentences, tables and figures as HTML."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas
from markupsafe import escape

from bench.report.charts.style import GRID, INK, PAPER, figure_style
from bench.report.document import FigureBlock
from bench.report.images import images_of, inline_svg
from bench.report.tables import Table

COLORS = f"--ink: {INK}; --line: {GRID}; --page: {PAPER}; background: {PAPER}"
"""The colours that a figure takes from its page."""


def svgs_of(draw: Callable[[], Iterable[FigureBlock]]) -> dict[str, str]:
    """Return the figures that `draw` draws, as SVG by name."""
    with figure_style():
        return {name: svg.decode() for name, svg in images_of(draw()).items()}


def html_of(sentences: Sequence[str], tables: Mapping[str, Table | pandas.DataFrame], svgs: Mapping[str, str]) -> str:
    """Return a cell's output: sentences, then tables under their titles, then figures."""
    parts = [f"<p>{escape(sentence)}</p>" for sentence in sentences]
    for title, table in tables.items():
        parts += [f"<p><b>{escape(title)}</b></p>"] if title else []
        parts.append(_table(table))
    parts += [_figure(name, svg) for name, svg in svgs.items()]
    return "\n".join(parts)


def _table(table: Table | pandas.DataFrame) -> str:
    frame = table if isinstance(table, pandas.DataFrame) else pandas.DataFrame(list(table.rows), columns=list(table.headers))
    html: str = frame.to_html(index=False, border=0, na_rep="")
    return html


def _figure(name: str, svg: str) -> str:
    """Return a figure that stays apart from equal ones in the same notebook."""
    own = f"{name}-{hashlib.sha256(svg.encode()).hexdigest()[:8]}"
    return f'<div style="{COLORS}">{inline_svg(svg.encode(), own, name)}</div>'

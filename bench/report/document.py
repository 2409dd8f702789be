"""A report as data: sections of blocks that Markdown and HTML each know how to write. All texts are plain: escaping is the writers' work."""

from __future__ import annotations

from dataclasses import dataclass

from bench.report.charts.chart import Chart
from bench.report.tables import Table


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    text: str


@dataclass(frozen=True, kw_only=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Code:
    text: str


CELLS_ANCHOR = "cells"
"""Where the table of all cells is in a page: what names cells by their ids links there."""


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """`anchor`: its name within the page, for links (empty: none)."""

    table: Table
    caption: str = ""
    anchor: str = ""


@dataclass(frozen=True, kw_only=True)
class FigureBlock:
    """`name` is the file name without its ending, below figures/. `wide`: too wide to be read when shrunk to a phone.

    `chart` is the interactive form, `table` the cells behind the figure.
    """

    name: str
    title: str
    caption: str
    missing: tuple[str, ...] = ()
    wide: bool = False
    chart: Chart | None = None
    table: Table | None = None


Block = Paragraph | Bullets | Code | TableBlock | FigureBlock


@dataclass(frozen=True, kw_only=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """`notice` stands above everything else (empty: none), `subtitle` below the title."""

    title: str
    subtitle: str
    notice: str
    sections: tuple[Section, ...]

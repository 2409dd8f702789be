"""A report as data: sections of blocks that Markdown and HTML each know how to write. All texts are plain: escaping is the writers' work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from bench.report.tables import Table

PHONE_INCHES = 6.5


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
    """`name` is the file name without its ending, below figures/. `missing` lists the cells without a point in the figure.

    `table` holds the numbers behind the figure where no other table of the page does.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    missing: tuple[str, ...] = ()
    table: Table | None = None

    @property
    def wide(self) -> bool:
        """Too wide to be read when shrunk to a phone."""
        return bool(self.figure.get_figwidth() > PHONE_INCHES)


@dataclass(frozen=True, kw_only=True)
class ExplorerBlock:
    """Rows to plot interactively; a page holds one at most, and Markdown none. `data` is ready to become JSON."""

    data: Mapping[str, Any]


Block = Paragraph | Bullets | Code | TableBlock | FigureBlock | ExplorerBlock


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

"""Represent a report as data: sections of blocks, independent of the format.

`markdown.py` and `html.py` write documents. All texts here are plain; the writers escape them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from bench.report.tables import Table

PHONE_INCHES = 6.5
"""Figures wider than this are unreadable when shrunk to a phone."""


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
"""Anchor of the table of all cells, which cell links lead to."""


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """A table with a caption.

    `anchor`: name within the page, for links; empty if nothing links here.
    """

    table: Table
    caption: str = ""
    anchor: str = ""


@dataclass(frozen=True, kw_only=True)
class FigureBlock:
    """A figure with a caption.

    `name`: file name below figures/, without the extension.
    `missing`: configurations without a point in the figure.
    `table`: numbers behind the figure, if no other table of the page holds them.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    missing: tuple[str, ...] = ()
    table: Table | None = None

    @property
    def wide(self) -> bool:
        """Whether the figure is too wide for a phone."""
        return bool(self.figure.get_figwidth() > PHONE_INCHES)


@dataclass(frozen=True, kw_only=True)
class ExplorerBlock:
    """Rows to plot interactively, at most one block per page.

    Markdown omits it. `data` must be serializable as JSON.
    """

    data: Mapping[str, Any]


Block = Paragraph | Bullets | Code | TableBlock | FigureBlock | ExplorerBlock


@dataclass(frozen=True, kw_only=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A page in reading order.

    `subtitle`: shown below the title.
    `notice`: warning shown above all sections; may be empty.
    """

    title: str
    subtitle: str
    notice: str
    sections: tuple[Section, ...]

"""Represent a report as data: sections of blocks, independent of the format.

`markdown.py` and `html.py` write documents. All texts here are plain; the writers escape them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

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
"""Anchor of the table of all cells, which cell links lead to."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a strip.

    `detail`: more text, shown on request.
    `muted`: whether it states that nothing was decided.
    `cells`: ids of the rows behind it.
    """

    text: str
    detail: str = ""
    muted: bool = False
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A small table for the top of a page; its fields link to the rows behind them.

    `headers`: one text per column; the first column names the rows.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Field, ...]], ...]
    caption: str


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """One judged claim on one line.

    `answer`: supported, refuted or undecided.
    `figure`: the estimates behind it, with intervals.
    `more`: why it was answered so, and where.
    `cells`: ids of the rows behind it.
    """

    answer: str
    text: str
    figure: str
    more: str
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Judged claims, one line each.

    `title`: of a list that is folded inside its section; empty for a list in the open.
    """

    items: tuple[Claimed, ...]
    title: str = ""


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


@dataclass(frozen=True, kw_only=True)
class ExplorerBlock:
    """Rows to plot interactively, at most one block per page.

    Markdown omits it. `data` must be serializable as JSON.
    """

    data: Mapping[str, Any]


Block = Paragraph | Bullets | Code | TableBlock | Strip | Claims | FigureBlock | ExplorerBlock


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled part of a page.

    `folded`: whether the page shows only its title until a reader opens it.
    """

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


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

    @property
    def figures(self) -> list[FigureBlock]:
        return [block for section in self.sections for block in section.blocks if isinstance(block, FigureBlock)]

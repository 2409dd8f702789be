"""One kind of figure for several sheets: image, interactive chart and table of each, and what no image has room for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas
from matplotlib.figure import Figure

from bench.render.chart import Chart
from bench.render.layout import Sheet, drawable
from bench.render.tables import Table

PHONE_INCHES = 6.5
MAX_SHEETS = 12
MAX_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with its words. `caption` says what to see and how it was measured; `missing` lists what has no point in it.

    `chart` and `table` hold all its cells, also those that the image has no room for.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    chart: Chart
    table: Table
    missing: tuple[str, ...] = ()

    @property
    def wide(self) -> bool:
        return self.figure.get_figwidth() > PHONE_INCHES


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is drawn from each sheet; `missing` names the cells of its rows that have no value."""

    name: str
    title: str
    caption: Callable[[pandas.DataFrame], str]
    figure: Callable[[Sheet], Figure]
    chart: Callable[[Sheet], Chart]
    table: Callable[[pandas.DataFrame], Table]
    missing: Callable[[pandas.DataFrame], Sequence[str]]


def draw_sheets(kind: Kind, found: Sequence[Sheet]) -> Iterator[Drawing]:
    """The first `MAX_SHEETS` of them; the last one drawn names those that are not."""
    for place, sheet in enumerate(found[:MAX_SHEETS]):
        held, left_out = drawable(sheet)
        not_drawn = [other.title for other in found[MAX_SHEETS:]] if place == MAX_SHEETS - 1 else []
        yield Drawing(
            name=f"{kind.name}-{sheet.name}" if sheet.name else kind.name,
            title=f"{kind.title}: {sheet.title}" if sheet.title else kind.title,
            caption=kind.caption(sheet.rows),
            figure=kind.figure(held),
            chart=kind.chart(sheet),
            table=kind.table(sheet.rows),
            missing=(*left_out, *_named(kind.missing(sheet.rows), "cells"), *_named(not_drawn, "figures of this kind")),
        )


def _named(texts: Sequence[str], what: str) -> list[str]:
    """All of them, or the first and how many more."""
    more = [f"and {len(texts) - MAX_NAMED:,} more {what}"] if len(texts) > MAX_NAMED else []
    return [*texts[:MAX_NAMED], *more]

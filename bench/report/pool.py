"""Show pooled runs as a table, page, CSV file and forest plot.

This module imports no torch.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench import console, numbers
from bench.analysis.pool import EQUAL_MARGIN, Pool, PooledPair
from bench.files import write_bytes, write_text_below
from bench.intervals import Interval
from bench.report.charts.forest import Row, draw_forest
from bench.report.charts.style import BLUE, VERMILLION, figure_style
from bench.report.document import Bullets, Document, FigureBlock, Section, TableBlock
from bench.report.images import images_of
from bench.report.markdown import to_markdown
from bench.report.tables import Table

PAGE, NUMBERS, FOREST = "pool.md", "pool.csv", "forest"
FORMS = ("svg", "png")
POOLED, PREDICTION = "pooled", "prediction"
TYPE = "type"
HEADERS = ("pair", "host type", "machines", "runs", "ratio of times [95 %]")
COLUMNS = ("pair", "row", "host_type", "num_machines", "num_runs", "ratio", "ratio_low", "ratio_high", "tau", "first", "second")
ALL_TYPES, NEW_TYPE = "all types, pooled", "a new type, predicted"
DIRECTIONS = "\N{LEFTWARDS ARROW} first faster     second faster \N{RIGHTWARDS ARROW}"
MAX_ROWS, MAX_LABEL, FIGURE_WIDTH = 40, 48, 8.6
"""Limits of a forest plot: rows, characters of a host type; its width in inches."""
BAND = f"Grey: equal within {EQUAL_MARGIN * 100:.0f} %."
ABOUT = (
    "A ratio is the time of the first over the time of the second: below 1, the first is faster. "
    "Brackets and bars are 95 % intervals of each ratio by itself."
)


def table_of(pool: Pool) -> Table:
    """Return a table with one row per pair and host type.

    The pooled ratio and the prediction interval follow if they exist.
    """
    return Table(headers=HEADERS, numeric=(False, False, True, True, True), rows=tuple(_texts(pool)))


def json_of(pool: Pool) -> dict[str, Any]:
    """Return the pool as one JSON document."""
    return {
        "runs": list(pool.runs),
        "hosts": [{"type": host.type, "boot": host.boot} for host in pool.hosts],
        "work_version": pool.work_version,
        "level": 0.95,
        "rows": list(_rows(pool)),
        "notes": list(pool.notes),
    }


def show(pool: Pool, as_json: bool) -> None:
    """Print the pool as text, or as one JSON document with `as_json`."""
    if as_json:
        console.print_json(json_of(pool))
        return
    table = table_of(pool)
    console.print_table(table.headers, table.rows, table.numeric)
    console.print_lines("", ABOUT, *pool.notes)


def write_pool(pool: Pool, folder: Path) -> Path:
    """Write page, CSV and figures into `folder`; return the page's path.

    Writes pool.md, pool.csv and figures/forest*, as SVG and PNG. Creates `folder` if missing.
    """
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    with figure_style():
        document = _document(pool)
        for (name, form), content in images_of(document, FORMS).items():
            write_bytes(figures / f"{name}.{form}", content)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(pool))
    write_text_below(folder, NUMBERS, text.getvalue())
    write_text_below(folder, PAGE, to_markdown(document))
    return folder / PAGE


def draw_forests(pairs: Sequence[PooledPair]) -> dict[str, Figure]:
    """Draw each pair's ratios by host type, on one axis in as many figures as MAX_ROWS asks for; return them by name."""
    pages: list[list[Row]] = [[]]
    for found in pairs:
        rows = list(_forest_rows(found))
        if pages[-1] and len(pages[-1]) + len(rows) > MAX_ROWS:
            pages.append([])
        pages[-1] += rows
    draw = functools.partial(
        draw_forest, neutral=1.0, band=EQUAL_MARGIN, axis_label=DIRECTIONS, tick_text="{:g}".format, width=FIGURE_WIDTH
    )
    scale = [row for page in pages for row in page]
    return {FOREST if number == 1 else f"{FOREST}_{number}": draw(page, scale=scale) for number, page in enumerate(pages, start=1)}


def _forest_rows(found: PooledPair) -> Iterator[Row]:
    """Yield a row per host type, then the pooled ratio and the prediction, where they exist."""

    def row(label: str, ratio: Interval, color: str) -> Row:
        text = numbers.ratio(ratio.estimate, ratio.low, ratio.high)
        return Row(label=label, interval=ratio, color=color, text=text, group=found.pair.name)

    for kind in found.types:
        machines = f", {kind.num_machines} machines" if kind.num_machines > 1 else ""
        yield row(_shortened(kind.host_type) + machines, kind.estimate.ratio, BLUE)
    if found.pooled:
        yield row(ALL_TYPES, found.pooled.ratio, VERMILLION)
        if found.pooled.prediction:
            yield row(NEW_TYPE, found.pooled.prediction, VERMILLION)


def _rows(pool: Pool) -> Iterator[dict[str, Any]]:
    for found in pool.pairs:
        ids = {"pair": found.pair.name, "first": found.pair.first, "second": found.pair.second}
        for kind in found.types:
            counts = {"host_type": kind.host_type, "num_machines": kind.num_machines, "num_runs": kind.num_runs}
            yield {**ids, "row": TYPE, **counts, **_ratio_values(kind.estimate.ratio), "tau": None}
        if found.pooled:
            counts = {
                "host_type": None,
                "num_machines": sum(kind.num_machines for kind in found.types),
                "num_runs": sum(kind.num_runs for kind in found.types),
            }
            yield {**ids, "row": POOLED, **counts, **_ratio_values(found.pooled.ratio), "tau": found.pooled.tau}
            if found.pooled.prediction:
                yield {**ids, "row": PREDICTION, **counts, **_ratio_values(found.pooled.prediction), "tau": found.pooled.tau}


def _ratio_values(ratio: Interval) -> dict[str, float]:
    return {"ratio": ratio.estimate, "ratio_low": ratio.low, "ratio_high": ratio.high}


def _texts(pool: Pool) -> Iterator[tuple[str, ...]]:
    previous = ""
    for row in _rows(pool):
        label = row["host_type"] or (ALL_TYPES if row["row"] == POOLED else NEW_TYPE)
        ratio = numbers.ratio(row["ratio"], row["ratio_low"], row["ratio_high"])
        counts = ("", "") if row["row"] == PREDICTION else (str(row["num_machines"]), str(row["num_runs"]))
        yield ("" if row["pair"] == previous else row["pair"], label, *counts, ratio)
        previous = row["pair"]


def _document(pool: Pool) -> Document:
    machines = len({host.boot for host in pool.hosts})
    types = len({host.type for host in pool.hosts})
    runs = [f"{name}: {host.type}, boot {host.boot}" for name, host in zip(pool.runs, pool.hosts, strict=True)]
    figures = draw_forests(pool.pairs).items()
    forests = [FigureBlock(name=name, title="By host type", caption=f"{ABOUT} {BAND}", figure=figure) for name, figure in figures]
    return Document(
        title=f"{pool.runs[0]}, pooled over hosts",
        subtitle=f"{_several(len(pool.runs), 'run')} on {_several(machines, 'machine')} of {_several(types, 'host type')}",
        notice="",
        sections=(
            Section(title="Ratios", blocks=(*forests, TableBlock(table=table_of(pool)))),
            Section(title="Scope and limits", blocks=(Bullets(items=pool.notes),)),
            Section(title="Runs", blocks=(Bullets(items=tuple(runs)),)),
        ),
    )


def _several(num: int, noun: str) -> str:
    return f"{num} {noun}{'' if num == 1 else 's'}"


def _shortened(text: str) -> str:
    """Return a host type short enough for a label.

    `family 6 model 85 stepping 7` becomes `6/85/7`. A long text loses its middle, because types often differ in their last words.
    """
    half = MAX_LABEL // 2 - 2
    text = re.sub(r"family (\S+) model (\S+) stepping (\S+)", r"\1/\2/\3", text)
    return text if len(text) <= MAX_LABEL else f"{text[:half].rstrip(' ,')} ... {text[-half:].lstrip(' ,')}"

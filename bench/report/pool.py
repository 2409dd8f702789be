"""Show pooled runs as a table, page, CSV file and forest plot.

This module imports no torch.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon

from bench import console, numbers
from bench.analysis.pool import EQUAL_MARGIN, Pool, PooledPair
from bench.files import write_bytes, write_text_below
from bench.intervals import Interval
from bench.report.charts.style import BLUE, GREY, INK, VERMILLION, figure_style
from bench.report.charts.ticks import round_ticks
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
ROW_HEIGHT, TITLE_HEIGHT, COLUMN_WIDTH = 0.24, 1.5, 7.6
MAX_ROWS, MAX_COLUMNS = 40, 2
"""Limits of a forest plot: rows per column, and columns per figure."""
MAX_LABEL = 48
EQUAL_COLOR = "#E8E8E8"
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
    """Draw forest plots of all pairs; return the figures by name.

    All figures share one axis of ratios. Each pair has a group of rows: squares for host types, a diamond for the pooled ratio, a bar for the
    prediction. The shaded zone marks equal times.
    """
    columns = _columns(pairs)
    pages = [columns[start : start + MAX_COLUMNS] for start in range(0, len(columns), MAX_COLUMNS)]
    limits = _limits(list(_intervals(pairs)))
    return {FOREST if place == 0 else f"{FOREST}_{place + 1}": _draw_page(page, limits) for place, page in enumerate(pages)}


def _draw_page(columns: Sequence[Sequence[PooledPair]], limits: tuple[float, float]) -> Figure:
    pairs = [found for column in columns for found in column]
    height = max(sum(map(_num_rows, column)) for column in columns)
    figure = Figure(figsize=(COLUMN_WIDTH * len(columns), TITLE_HEIGHT + ROW_HEIGHT * height), layout="constrained")
    for axis, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
        _draw_column(axis, column, height)
        _ratio_axis(axis, limits)
    figure.suptitle("Ratio of times, first over second, by host type", fontsize=10, x=0.01, ha="left")
    figure.legend(handles=_handles(pairs), loc="outside lower center", ncols=4, handlelength=1.6)
    return figure


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
        label = row["host_type"] or ("all types, pooled" if row["row"] == POOLED else "a new type, predicted")
        ratio = numbers.ratio(row["ratio"], row["ratio_low"], row["ratio_high"])
        counts = ("", "") if row["row"] == PREDICTION else (str(row["num_machines"]), str(row["num_runs"]))
        yield ("" if row["pair"] == previous else row["pair"], label, *counts, ratio)
        previous = row["pair"]


def _document(pool: Pool) -> Document:
    machines = len({host.boot for host in pool.hosts})
    types = len({host.type for host in pool.hosts})
    runs = [f"{name}: {host.type}, boot {host.boot}" for name, host in zip(pool.runs, pool.hosts, strict=True)]
    figures = draw_forests(pool.pairs).items()
    forests = [FigureBlock(name=name, title="By host type", caption=ABOUT, figure=figure) for name, figure in figures]
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


def _num_rows(found: PooledPair) -> int:
    """Return the number of rows: name, host types, pooled ratio, prediction."""
    return 1 + len(found.types) + (found.pooled is not None) + bool(found.pooled and found.pooled.prediction)


def _columns(pairs: Sequence[PooledPair]) -> list[list[PooledPair]]:
    """Split the pairs into columns of similar height, in their order."""
    num = math.ceil(sum(map(_num_rows, pairs)) / MAX_ROWS)
    share = sum(map(_num_rows, pairs)) / num
    columns: list[list[PooledPair]] = [[]]
    for found in pairs:
        if columns[-1] and len(columns) < num and sum(map(_num_rows, columns[-1])) >= share:
            columns.append([])
        columns[-1].append(found)
    return columns


def _draw_column(axis: Axes, column: Sequence[PooledPair], height: int) -> None:
    labels: list[tuple[float, str, bool]] = []
    values: list[tuple[float, Interval]] = []
    place = 0.0
    axis.axvspan(1 / (1 + EQUAL_MARGIN), 1 + EQUAL_MARGIN, color=EQUAL_COLOR, zorder=0)
    axis.axvline(1, color=INK, linewidth=0.8, zorder=1)
    for found in column:
        labels.append((place, found.pair.name, True))
        for kind in found.types:
            place += 1
            _draw_estimate(axis, place, kind.estimate.ratio)
            values.append((place, kind.estimate.ratio))
            machines = f", {kind.num_machines} machines" if kind.num_machines > 1 else ""
            labels.append((place, _shortened(kind.host_type) + machines, False))
        if found.pooled:
            place += 1
            _draw_diamond(axis, place, found.pooled.ratio)
            values.append((place, found.pooled.ratio))
            labels.append((place, "all types, pooled", False))
            if prediction := found.pooled.prediction:
                place += 1
                values.append((place, prediction))
                axis.plot(
                    [prediction.low, prediction.high], [place, place], color=VERMILLION, linewidth=4, alpha=0.45, solid_capstyle="butt"
                )
                labels.append((place, "a new type, predicted", False))
        place += 1
    axis.set_ylim(height - 0.3, -0.7)
    axis.set_yticks([label[0] for label in labels], [label[1] for label in labels])
    for text, (_, _, is_name) in zip(axis.get_yticklabels(), labels, strict=True):
        text.set_fontweight("bold" if is_name else "normal")
    for place, ratio in values:
        number = numbers.ratio(ratio.estimate, ratio.low, ratio.high)
        axis.text(1.02, place, number, transform=axis.get_yaxis_transform(), va="center", fontsize=8)
    axis.set_xlabel("\N{LEFTWARDS ARROW} first faster     second faster \N{RIGHTWARDS ARROW}")
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False, axis="y")
    axis.spines["left"].set_visible(False)


def _draw_estimate(axis: Axes, place: float, ratio: Interval) -> None:
    axis.plot([ratio.low, ratio.high], [place, place], color=BLUE, linewidth=1.2, zorder=2)
    axis.plot([ratio.estimate], [place], color=BLUE, marker="s", markersize=5, linestyle="none", zorder=3)


def _draw_diamond(axis: Axes, place: float, ratio: Interval) -> None:
    corners = [(ratio.low, place), (ratio.estimate, place - 0.32), (ratio.high, place), (ratio.estimate, place + 0.32)]
    axis.add_patch(Polygon(corners, closed=True, facecolor=VERMILLION, edgecolor=VERMILLION, zorder=3))


def _shortened(text: str) -> str:
    """Return a host type short enough for a label.

    `family 6 model 85 stepping 7` becomes `6/85/7`. A long text loses its middle, because types often differ in their last words.
    """
    half = MAX_LABEL // 2 - 2
    text = re.sub(r"family (\S+) model (\S+) stepping (\S+)", r"\1/\2/\3", text)
    return text if len(text) <= MAX_LABEL else f"{text[:half].rstrip(' ,')} ... {text[-half:].lstrip(' ,')}"


def _intervals(pairs: Sequence[PooledPair]) -> Iterator[Interval]:
    for found in pairs:
        yield from (kind.estimate.ratio for kind in found.types)
        if found.pooled:
            yield found.pooled.prediction or found.pooled.ratio


def _limits(ratios: Sequence[Interval]) -> tuple[float, float]:
    """Return a range that contains 1 and every estimate.

    Intervals are cut where they extend more than tenfold beyond the estimates.
    """
    middle = [1 / (1 + EQUAL_MARGIN), 1 + EQUAL_MARGIN, *(ratio.estimate for ratio in ratios)]
    low = max(min([*middle, *(ratio.low for ratio in ratios)]), min(middle) / 10)
    high = min(max([*middle, *(ratio.high for ratio in ratios)]), max(middle) * 10)
    return low / 1.08, high * 1.08


def _ratio_axis(axis: Axes, limits: tuple[float, float]) -> None:
    axis.set_xscale("log")
    axis.set_xlim(*limits)
    ticks = round_ticks(*limits)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)


def _handles(pairs: Sequence[PooledPair]) -> list[Any]:
    found: list[Any] = [Line2D([], [], color=BLUE, marker="s", markersize=5, label="one host type, 95 %")]
    if any(pair.pooled for pair in pairs):
        found.append(Line2D([], [], color=VERMILLION, marker="D", linestyle="none", label="pooled over types, 95 %"))
    if any(pair.pooled and pair.pooled.prediction for pair in pairs):
        found.append(Line2D([], [], color=VERMILLION, linewidth=4, alpha=0.45, label="a new type, 95 % prediction"))
    return [*found, Patch(facecolor=EQUAL_COLOR, edgecolor=GREY, linewidth=0.4, label=f"equal within {EQUAL_MARGIN * 100:.0f} %")]

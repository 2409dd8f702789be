"""Show how close each step comes to the roofline of the device.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench import numbers
from bench.analysis import frame as frames
from bench.analysis.regimes import LAUNCH, SHARE, furthest, typical_ceilings, typical_share
from bench.analysis.study import Study
from bench.report.charts.matplotlib import Quantity, draw_lines, draw_panels, is_unstable
from bench.report.charts.sheets import Sheet, draw_sheets, sheets
from bench.report.charts.style import PAPER, SeriesStyle, slug
from bench.report.charts.ticks import log_value_axis, round_ticks
from bench.report.document import Block, FigureBlock, Paragraph, TableBlock
from bench.report.sections.wording import spell_out_policy
from bench.report.tables import LATENCY, LENGTH, MODEL, Column, Row, Table, number, plain, table, work_columns

X, Y = "intensity", "achieved_flops_per_s"
X_LABEL, Y_LABEL = "FLOPs per byte moved", "FLOP/s reached"
ROOF_COLOR = "#555555"
ROOF_NAME = "ceilings of the device"
MARGIN = 2.0
PANEL_KEYS = ("device", "phase")
ROOFLINE_CAPTION = (
    "FLOP/s reached by each step against its FLOPs per byte that operators read and write. The slope is this device's best copy, the flat part its "
    "best matrix product, both measured in this run. Points far below the roof wait for something else. Hollow points are bound by launching "
    "operators, so scaling fits leave them out. Bytes are counted as if no cache existed, so a point may lie above the slope."
)


def draw_rooflines(study: Study, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    """Draw one figure per device with a panel per phase and dtype.

    Cells without a regime are listed as missing. Call inside `style.figure_style`.
    """
    rows = study.regimes
    drawn = rows[rows["regime"].notna() & (rows[X] > 0)]
    if len(drawn):
        yield from draw_sheets(
            sheets(drawn, "dtype", str, PANEL_KEYS),
            lambda sheet: draw_roofline(sheet, styles),
            name="roofline",
            title="Each step under the roofline",
            caption=ROOFLINE_CAPTION,
            table=regime_table,
            missing=lambda shown: _without_regime(rows[rows["device"].isin(shown["device"])]),
        )


def regime_table(rows: pandas.DataFrame) -> Table:
    """Return one row per cell; `rows` needs the columns of `regimes`."""
    size = (plain("size"),) if frames.varying(rows, ("size",)) else ()
    columns = (
        *(MODEL, LENGTH, *size, *work_columns(rows)),
        Column(header="bound by", text=lambda row: row["regime"] or "", numeric=False),
        *(number("explained", "of the latency", numbers.percent), LATENCY, number("mfu", "MFU", numbers.percent)),
        *(number(X, X_LABEL, _short), number(Y, "FLOP/s", numbers.count), number("achieved_bytes_per_s", "bytes/s", numbers.count)),
        *(number("num_operators", "operators", numbers.whole), number("moved_bytes", "moved", numbers.bytes_text)),
        Column(header="unknown because", text=lambda row: row["regime_reason"] or "", numeric=False),
    )
    return table(rows, columns, keep=("model", "n", "bound by"))


def draw_roofline(sheet: Sheet, styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw every cell under the roof of its panel, hollow if launch-bound."""
    rows = sheet.rows
    labels = [label for label in styles if label in set(rows["label"])]
    # the limits include every point, roof and ridge, where roof meets slope
    ridges = rows["ceiling_flops_per_s"] / rows["ceiling_bytes_per_s"]
    x_limits = (min(rows[X].min(), ridges.min()) / MARGIN, max(rows[X].max(), ridges.max()) * MARGIN)
    y_limits = (rows[Y].min() / MARGIN, max(rows[Y].max(), rows["ceiling_flops_per_s"].max()) * MARGIN)
    ticks = round_ticks(*x_limits)

    def draw(axis: Axes, panel: pandas.DataFrame) -> None:
        flops, moved = typical_ceilings(panel)
        places = pandas.Series([x_limits[0], flops / moved, x_limits[1]])
        axis.plot(places, (places * moved).clip(upper=flops), color=ROOF_COLOR, linewidth=1.2, zorder=1, gid="roof")
        for (label, hollow), points in panel.groupby(["label", panel["regime"] == LAUNCH], sort=False):
            style = styles[label]
            face = PAPER if hollow else style.color
            gid = f"series-{slug(label)}{'-launch' if hollow else ''}"
            axis.plot(points[X], points[Y], linestyle="", marker=style.marker, color=style.color, markerfacecolor=face, gid=gid)
        log_value_axis(axis, y_limits, numbers.count, Y_LABEL)
        axis.set_ylim(*y_limits)
        axis.set_xscale("log")
        axis.set_xlim(*x_limits)
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_xticks([], minor=True)
        axis.set_xlabel(X_LABEL)

    return draw_panels(sheet, draw, _handles(labels, styles, hollow=bool((rows["regime"] == LAUNCH).any())))


def _handles(labels: list[str], styles: Mapping[str, SeriesStyle], *, hollow: bool) -> list[Line2D]:
    handles = [Line2D([], [], color=styles[label].color, linestyle="", marker=styles[label].marker, label=label) for label in labels]
    if hollow:
        handles.append(Line2D([], [], color=ROOF_COLOR, linestyle="", marker="o", markerfacecolor=PAPER, label="bound by launching"))
    return [*handles, Line2D([], [], color=ROOF_COLOR, linewidth=1.2, label=ROOF_NAME)]


def _short(value: Any) -> str:
    return "" if numbers.is_empty(value) else numbers.significant(value)


def _without_regime(rows: pandas.DataFrame) -> tuple[str, ...]:
    keys = frames.varying(rows)
    return tuple(f"{frames.row_name(row, keys)}: {row['regime_reason']}" for row in rows[rows["regime"].isna()].to_dict("records"))


NUM_FURTHEST = 10


QUANTITY = Quantity(
    value=SHARE,
    low=f"{SHARE}_low",
    high=f"{SHARE}_high",
    label="share of the roofline",
    text=lambda share: f"{100 * share:g} %",
    limit=1.0,
    limit_label="roofline",
    hollow=is_unstable,
    hollow_label="unstable",
)
LIMIT_CAPTION = (
    "The least time that the device allows for a step, over the measured time. The least time is the longer of two: model FLOPs at the rate of the "
    "best matrix product, and compulsory bytes (weights, batch, answers; no intermediates) at the rate of the best copy. Both rates were measured in "
    "the same round as the step. Points are geometric means over rounds, bars 95 % intervals; hollow points are unstable. A point lies above the "
    "line only if weights stay in a cache or a product is faster than the ceiling."
)
FURTHEST_CAPTION = (
    "For each model and workload the configuration furthest from its roofline, furthest first. Limited by: the side of the roof above it. Launching "
    "and moving: shares of the measured time that launching the step's operators would take, and moving the bytes that they read and write without "
    "a cache. The rest: the most likely reason for the remaining distance."
)


def draw_limits(study: Study, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    """Draw the share of the roofline against n.

    Each size and workload has a panel. Call inside `style.figure_style`.
    """
    if (study.frame[SHARE] > 0).any():
        yield from draw_sheets(
            [sheet for sheet in sheets(study.frame, "size", str) if (sheet.rows[SHARE] > 0).any()],
            lambda sheet: draw_lines(sheet, QUANTITY, styles),
            name="limit",
            title="Distance to the roofline",
            caption=LIMIT_CAPTION,
            table=lambda rows: limit_table(study.limits.loc[rows.index.intersection(study.limits.index)]),
            missing=_without_share,
        )


def limit_blocks(study: Study) -> tuple[Block, ...]:
    """Return a summary and the furthest cells; () without ceilings."""
    rows = frames.cells(study.limits)
    if rows.empty:
        return ()
    return (
        Paragraph(text=_summary(rows)),
        TableBlock(
            table=limit_table(furthest(rows, ("label", *frames.WORK_KEYS), NUM_FURTHEST)),
            caption=f"{FURTHEST_CAPTION} Conditions: {frames.constant_work(rows)}.",
        ),
    )


def limit_table(rows: pandas.DataFrame) -> Table:
    """Return one row per cell; `rows` needs the columns of `limits`."""
    size = (plain("size"),) if frames.varying(rows, ("size",)) else ()
    columns = (
        *(MODEL, LENGTH, *size, *work_columns(rows)),
        Column(header="of the roofline", text=_share, key=SHARE),
        plain("limited_by", "limited by"),
        *(number("roofline_ms", "allowed", numbers.duration), LATENCY, number("mfu", "MFU", numbers.percent)),
        number("compulsory_bytes", "compulsory", numbers.bytes_text),
        *(number("launching", "launching", numbers.percent), number("moving", "moving", numbers.percent), plain("rest", "the rest")),
    )
    return table(rows, columns, keep=("model", "n", "of the roofline"))


def _share(row: Row) -> str:
    """Write `12.3 % [11.9, 12.7], unstable`."""
    value, low, high = (row[name] for name in (QUANTITY.value, QUANTITY.low, QUANTITY.high))
    if numbers.is_empty(value):
        return ""
    bounds = "" if numbers.is_empty(low) else f" [{numbers.significant(100 * low)}, {numbers.significant(100 * high)}]"
    return f"{numbers.percent(value)}{bounds}{', unstable' if row['latency_stable'] is False else ''}"


def _summary(rows: pandas.DataFrame) -> str:
    """Name the typical, nearest and furthest stable cell."""
    stable, keys = rows[~is_unstable(rows)], frames.varying(rows)
    if stable.empty:
        return f"All {len(rows)} configurations are unstable, so none is named nearest or furthest. {_ceilings(rows)}"
    nearest, last = stable.loc[stable[SHARE].idxmax()], stable.loc[stable[SHARE].idxmin()]
    num_unstable = len(rows) - len(stable)
    left_out = f" Unstable and left out: {num_unstable}." if num_unstable else ""
    return (
        f"Half of the {len(stable)} stable configurations reach {numbers.percent(typical_share(stable))} or more of their roofline. The nearest, "
        f"at {numbers.percent(nearest[SHARE])}, is {_name(nearest, keys)}; the furthest, at {numbers.percent(last[SHARE])}, is "
        f"{_name(last, keys)}.{left_out} {_ceilings(rows)}"
    )


def _name(row: pandas.Series, keys: tuple[str, ...]) -> str:
    return spell_out_policy(frames.row_name(row, keys))


def _ceilings(rows: pandas.DataFrame) -> str:
    """List the ceilings that this run measured, by device and dtype."""
    kernels = rows["ceiling_kernel"] if "ceiling_kernel" in rows else pandas.Series("", index=rows.index)
    texts = []
    for (device, dtype), found in rows.groupby(["device", "dtype"], sort=False):
        kernel = next((str(name) for name in kernels[found.index] if isinstance(name, str) and name), "")
        flops, moved = typical_ceilings(found)
        product = f"{numbers.count(flops)}FLOP/s{f' by {kernel}' if kernel else ''}"
        texts.append(f"{device} in {dtype} {product}, copies {numbers.count(moved)}B/s")
    return f"Ceilings: {'; '.join(texts)}."


def _without_share(rows: pandas.DataFrame) -> tuple[str, ...]:
    """List cells without a share and name the missing quantity."""
    keys = frames.varying(rows)
    empty = rows[~(rows[SHARE] > 0)].to_dict("records")
    return tuple(f"{frames.row_name(row, keys)}: {_missing(row)}" for row in empty)


def _missing(row: Row) -> str:
    if numbers.is_empty(row["latency_ms"]):
        return str(row["status"])
    return "compulsory bytes unknown" if numbers.is_empty(row["compulsory_bytes"]) else "no ceiling measured in the same round"

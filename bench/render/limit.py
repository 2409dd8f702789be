"""How far each cell is from the roofline of its device: a figure against n, the table behind it, and the cells that are furthest away.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas

from bench.analysis.limit import SHARE, furthest, limits
from bench.render import frame as frames
from bench.render import numbers
from bench.render.chart_lines import chart_lines
from bench.render.document import Block, Paragraph, TableBlock
from bench.render.drawing import Drawing, Kind, draw_sheets
from bench.render.layout import sheets
from bench.render.lines import Quantity, draw_lines
from bench.render.style import SeriesStyle
from bench.render.tables import LATENCY, LENGTH, MODEL, Column, Row, Table, number, plain, table, work_columns

NUM_FURTHEST = 10


def is_unstable(rows: pandas.DataFrame) -> pandas.Series:
    """Whether a cell's latency is marked unstable; not so where nothing says."""
    return pandas.Series([flag is False for flag in rows["latency_stable"]], index=rows.index, dtype=bool)


QUANTITY = Quantity(
    value=SHARE,
    low=f"{SHARE}_low",
    high=f"{SHARE}_high",
    label="share of the roofline",
    text=lambda share: f"{100 * share:g} %",
    limit=1.0,
    limit_label="what the device allows",
    hollow=is_unstable,
    hollow_label="unstable",
)
CAPTION = (
    "The time that the device allows a step, over the time that it took. Allowed is the longer of two times: model FLOPs by the best matrix product, "
    "and compulsory bytes (weights, batch, answers; no intermediate) by the best copy, both measured in the round of the step. Points are geometric "
    "means over rounds; bars are 95 % intervals; hollow points are unstable. A point is above the line only where "
    "weights stay in a cache, or a product beats the ceiling."
)
FURTHEST_CAPTION = (
    "Of each model and workload the cell that is furthest from what the device allows, the furthest first. Limited by: the side of the roof above "
    "it. Launching and moving: what the step's operators, and the bytes that they read and write if nothing stays in a cache, would take of its "
    "time. The rest: what keeps it from the roofline, as far as these can tell."
)


def draw_limits(frame: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> Iterator[Drawing]:
    """Figures of the share against n, a panel per size and workload; nothing where no cell has a share. Call inside `style.figure_style`."""
    kind = Kind(
        name="limit",
        title="Distance to what the device allows",
        caption=lambda rows: f"{CAPTION} Conditions: {frames.constant_work(rows)}.",
        figure=lambda sheet: draw_lines(sheet, QUANTITY, dict(styles)),
        chart=lambda sheet: chart_lines(sheet, QUANTITY, styles),
        table=lambda rows: limit_table(limits(rows)),
        missing=_without_share,
    )
    if (frame[SHARE] > 0).any():
        yield from draw_sheets(kind, [sheet for sheet in sheets(frame, "size", str) if (sheet.rows[SHARE] > 0).any()])


def limit_blocks(frame: pandas.DataFrame) -> tuple[Block, ...]:
    """What the cells come to, and those that are furthest away; nothing without ceilings. `frame` has one row per cell."""
    rows = limits(frame)
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
    """Needs the columns of `limits`."""
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
    """12.3 % [11.9, 12.7], and whether it is unstable."""
    value, low, high = (row[name] for name in (QUANTITY.value, QUANTITY.low, QUANTITY.high))
    if numbers.is_empty(value):
        return ""
    bounds = "" if numbers.is_empty(low) else f" [{numbers.significant(100 * low)}, {numbers.significant(100 * high)}]"
    return f"{numbers.percent(value)}{bounds}{', unstable' if row['latency_stable'] is False else ''}"


def _summary(rows: pandas.DataFrame) -> str:
    """Of the stable cells, and how many others there are."""
    stable, keys = rows[~is_unstable(rows)], frames.varying(rows)
    if stable.empty:
        return f"All {len(rows)} cells are unstable: no nearest and no furthest is named. {_ceilings(rows)}"
    nearest, last = stable.loc[stable[SHARE].idxmax()], stable.loc[stable[SHARE].idxmin()]
    num_unstable = len(rows) - len(stable)
    left_out = f" Unstable and left out: {num_unstable}." if num_unstable else ""
    return (
        f"Of what the device allows, half of the {len(stable)} cells reach {numbers.percent(stable[SHARE].median())} or more; the nearest is "
        f"{frames.row_name(nearest, keys)} at {numbers.percent(nearest[SHARE])}, the furthest {frames.row_name(last, keys)} at "
        f"{numbers.percent(last[SHARE])}.{left_out} {_ceilings(rows)}"
    )


def _ceilings(rows: pandas.DataFrame) -> str:
    """What this run measured, by device and dtype."""
    kernels = rows["ceiling_kernel"] if "ceiling_kernel" in rows else pandas.Series("", index=rows.index)
    texts = []
    for (device, dtype), found in rows.groupby(["device", "dtype"], sort=False):
        kernel = next((str(name) for name in kernels[found.index] if isinstance(name, str) and name), "")
        product = f"{numbers.count(found['ceiling_flops_per_s'].median())}FLOP/s{f' by {kernel}' if kernel else ''}"
        texts.append(f"{device} in {dtype} {product}, copies {numbers.count(found['ceiling_bytes_per_s'].median())}B/s")
    return f"Ceilings: {'; '.join(texts)}."


def _without_share(rows: pandas.DataFrame) -> tuple[str, ...]:
    """Cells without a share, and whether their latency, their bytes or the ceilings are what is missing."""
    keys = frames.varying(rows)
    empty = rows[~(rows[SHARE] > 0)].to_dict("records")
    return tuple(f"{frames.row_name(row, keys)}: {_missing(row)}" for row in empty)


def _missing(row: Row) -> str:
    if numbers.is_empty(row["latency_ms"]):
        return str(row["status"])
    return "its compulsory bytes are not known" if numbers.is_empty(row["compulsory_bytes"]) else "no ceiling of the same round"

"""Show how close each step comes to the roofline of the device."""

from __future__ import annotations

import pandas

from bench import numbers
from bench.analysis import frame as frames
from bench.analysis.roofline import SHARE, furthest, typical_ceilings, typical_share
from bench.analysis.study import Study
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.wording import spell_out_policy
from bench.report.tables import LATENCY, LENGTH, MODEL, Column, Row, Table, number, plain, table, work_columns

NUM_FURTHEST = 10
FURTHEST_CAPTION = (
    "For each model and workload the configuration furthest from its roofline, furthest first. Limited by: the side of the roof above it. Launching "
    "and moving: shares of the measured time that launching the step's operators would take, and moving the bytes that they read and write without "
    "a cache. The rest: the most likely reason for the remaining distance."
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
    value, low, high = (row[name] for name in (SHARE, f"{SHARE}_low", f"{SHARE}_high"))
    if numbers.is_empty(value):
        return ""
    bounds = "" if numbers.is_empty(low) else f" [{numbers.significant(100 * low)}, {numbers.significant(100 * high)}]"
    return f"{numbers.percent(value)}{bounds}{', unstable' if row['latency_stable'] is False else ''}"


def _summary(rows: pandas.DataFrame) -> str:
    """Name the typical, nearest and furthest stable cell."""
    stable, keys = rows.drop(frames.unstable(rows).index), frames.varying(rows)
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
    texts = []
    for (device, dtype), found in rows.groupby(["device", "dtype"], sort=False):
        flops, moved = typical_ceilings(found)
        texts.append(f"{device} in {dtype} {numbers.count(flops)}FLOP/s, copies {numbers.count(moved)}B/s")
    return f"Ceilings: {'; '.join(texts)}."

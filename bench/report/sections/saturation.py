"""Sweeps of batch size and length, as a section: what fits, where throughput saturates, and throughput against batch size as a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench import numbers
from bench.analysis.frame import WORK_KEYS, constant_work, row_name, varying
from bench.analysis.saturation import NEAR, Saturation
from bench.analysis.study import Study
from bench.report.charts.chart import Chart, ChartAxis, ChartPanel, Trace, tick_format
from bench.report.charts.matplotlib import draw_panels
from bench.report.charts.plotly import (
    MARKER_PIXELS,
    amount,
    dash,
    error_bars,
    hover_text,
    panel_title,
    panels_of,
    plain_values,
    plotly_text,
    symbols,
)
from bench.report.charts.sheets import Drawing, Kind, Sheet, draw_sheets, sheets
from bench.report.charts.style import HOLLOW, SeriesStyle, slug
from bench.report.charts.ticks import length_axis, log_value_axis
from bench.report.document import Block, FigureBlock, TableBlock
from bench.report.tables import LATENCY, LENGTH, MEMORY, MODEL, STATUS, Column, Row, Table, number, plain, table, work_columns
from bench.spec import NO_ATTENTION, PREDICTED, Plan, Sweep

NEAR_TEXT = f"{100 * NEAR:.0f} %"
MEMORY_DIGITS = 6
"""Of an amount of memory that stands beside its limit."""
EAGER_TEXT = "What fits is predicted for an eager step: engines with packed weights, graphs and compile need more."
BATCH_CAPTION = (
    "Throughput against batch. A sweep ends at the largest batch whose step fits the memory by prediction; one more is predicted not to. "
    f"{EAGER_TEXT} Peak throughput is the best of the batches tried, so a little too high; {NEAR_TEXT} of it is reached from the smallest batch "
    "that does, its share paired by round. Brackets hold 95 % intervals over rounds."
)
SEQ_CAPTION = (
    "The longest found whose step fits the memory by prediction, at the model's size there: at a matched budget width and ffn_width shrink as n "
    f"grows, until no size is left. {EAGER_TEXT}"
)
LATENCY_COLUMNS = ("latency_ms", "latency_low_ms", "latency_high_ms", "latency_stable")
TOP_COLUMNS = (*LATENCY_COLUMNS, "peak_memory_bytes", "memory_source", "tokens_per_s", "width")
"""Columns of the largest step alone."""


@dataclass(frozen=True, kw_only=True)
class SaturationSection:
    """Its blocks, and the figures that they name; both empty where the run holds no sweep."""

    blocks: tuple[Block, ...]
    figures: Mapping[str, Figure]


def saturation_section(study: Study, styles: Mapping[str, SeriesStyle]) -> SaturationSection:
    """Call inside `style.figure_style`."""
    found = study.saturations
    drawings = list(draw_saturation(found, styles))
    figures = [
        FigureBlock(name=d.name, title=d.title, caption=d.caption, missing=d.missing, wide=d.wide, chart=d.chart, table=d.table)
        for d in drawings
    ]
    tables = ((batch_table(found), BATCH_CAPTION), (length_table(found), SEQ_CAPTION))
    shown = [TableBlock(table=table, caption=caption) for table, caption in tables if table.rows]
    return SaturationSection(blocks=(*figures, *shown), figures={d.name: d.figure for d in drawings})


def batch_table(found: Sequence[Saturation]) -> Table:
    rows = _rows(found, "batch")
    columns = (
        *_places(rows, LENGTH),
        number("largest", "largest batch that fits", numbers.exact),
        *MEMORY_COLUMNS,
        Column(header="one more needs", text=lambda row: _bytes(row["beyond_bytes"]), key="beyond_bytes"),
        *(Column(header="peak samples/s", text=_throughput, key="best_per_s"), number("best_size", "at batch", numbers.exact)),
        number("near_size", f"{NEAR_TEXT} of it from batch", numbers.exact),
        Column(header="share there", text=_share, key="near_share"),
        Column(header="largest one", text=lambda row: row["top"], numeric=False, badge=True),
    )
    return table(rows, columns, keep=("model", "n"))


def length_table(found: Sequence[Saturation]) -> Table:
    rows = _rows(found, "seq")
    columns = (
        *_places(rows, number("batch_size", "batch", numbers.exact)),
        number("largest", "longest n that fits", numbers.exact),
        *MEMORY_COLUMNS,
        Column(header="longer", text=_longer, numeric=False),
        *(number("width", "width there", numbers.whole), LATENCY, number("tokens_per_s", "tokens/s there", numbers.count)),
        Column(header="longest one", text=lambda row: row["top"], numeric=False, badge=True),
    )
    return table(rows, columns, keep=("model",))


def sweep_table(plan: Plan) -> Table:
    """The size that each of a plan's sweeps reaches, before anything is measured."""
    by_id = {planned.cell.cell_id: planned.cell for planned in plan.cells}
    rows = []
    for sweep in plan.ladders:
        cell = by_id[sweep.cells[0]]
        work = cell.workload
        kernel = () if work.attention == NO_ATTENTION else (f"attention {work.attention}",)
        size = f"batch at n = {cell.model.shape.seq_len}" if sweep.axis == "batch" else f"n at batch {work.batch_size}"
        words = ", ".join((work.phase, work.engine, work.dtype, *kernel))
        rows.append({"model": cell.model.name, "size": size, "work": words, **_sweep_row(sweep)})
    columns = (
        *(plain("model"), plain("size", "sweep"), plain("work", "workload"), number("largest", "largest", numbers.exact)),
        *(number("peak_bytes", "peak", _bytes), plain("memory"), Column(header="next", text=_longer, numeric=False)),
    )
    return table(pandas.DataFrame(rows), columns, keep=("model",))


def _sweep_row(sweep: Sweep) -> Row:
    return {
        "largest": sweep.largest,
        "peak_bytes": sweep.peak_bytes,
        "memory": f"{numbers.bytes_text(sweep.memory_bytes)}, {sweep.memory_source}",
        "beyond": sweep.beyond,
        "beyond_bytes": sweep.beyond_bytes,
        "ends_because": sweep.ends_because,
    }


def _rows(found: Sequence[Saturation], axis: str) -> pandas.DataFrame:
    rows = [_row(each) for each in found if each.sweep.axis == axis]
    return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=["label", "seq_len", "size", *WORK_KEYS])


def _row(found: Saturation) -> Row:
    """The largest step's row, or without one that of the last below, less its own values; and the sweep's results."""
    last, best, near, share = found.steps.iloc[-1].to_dict(), found.best or {}, found.near or {}, found.near_share
    shared = {name: last[name] for name in ("label", "seq_len", "size", "batch_size", *WORK_KEYS)}
    own = {name: (found.top or {}).get(name) for name in TOP_COLUMNS}
    values = {
        **{f"best_{name}": best.get(f"throughput_{name}") for name in ("per_s", "low_per_s", "high_per_s")},
        "best_is_stable": best.get("latency_stable"),
        "best_size": best.get("batch_size"),
        "near_size": near.get("batch_size"),
        **{f"near_{name}": getattr(share, place, None) for name, place in (("share", "estimate"), ("low", "low"), ("high", "high"))},
    }
    top = str(found.top["status"]) if found.top else "not run: too slow"
    return {**shared, **own, **_sweep_row(found.sweep), **values, "top": top}


def _places(rows: pandas.DataFrame, *others: Column) -> tuple[Column, ...]:
    size = (plain("size"),) if varying(rows, ("size",)) else ()
    work = work_columns(rows.assign(batching="")) if len(rows) else ()
    return (MODEL, *others, *size, *work)


def _bytes(value: Any) -> str:
    return numbers.bytes_text(value, MEMORY_DIGITS)


def _measured(row: Row) -> str:
    return "" if row["memory_source"] == PREDICTED else _bytes(row["peak_memory_bytes"])


MEMORY_COLUMNS = (
    number("peak_bytes", "predicted peak", _bytes),
    Column(header="measured peak", text=_measured, key="peak_memory_bytes"),
    plain("memory"),
)


def _throughput(row: Row) -> str:
    text = _bounded(row["best_per_s"], row["best_low_per_s"], row["best_high_per_s"], numbers.count)
    return f"{text}, unstable" if row["best_is_stable"] is False else text


def _share(row: Row) -> str:
    return _bounded(row["near_share"], row["near_low"], row["near_high"], lambda value: f"{value:.3f}")


def _bounded(value: Any, low: Any, high: Any, text: Callable[[float], str]) -> str:
    if numbers.is_empty(value):
        return ""
    return text(value) if numbers.is_empty(low) else f"{text(value)} [{text(low)}, {text(high)}]"


def _longer(row: Mapping[str, Any]) -> str:
    """The size above the largest, and why it is not in the sweep."""
    if numbers.is_empty(row["beyond_bytes"]):
        return f"{numbers.exact(row['beyond'])}: {row['ends_because']}"
    return f"{numbers.exact(row['beyond'])} needs {_bytes(row['beyond_bytes'])}"


X, Y, LOW, HIGH = "batch_size", "throughput_per_s", "throughput_low_per_s", "throughput_high_per_s"
X_LABEL, Y_LABEL = "batch size", "samples/s"
ROW_KEYS = ("size", "device", "phase", "engine", "dtype", "task", "recipe")
CAPTION = (
    "Samples per second against the batch, each line up to the largest batch that fits the memory. Points are medians over rounds, bars 95 % "
    "intervals; hollow ones are unstable. Where a line is flat the device is saturated: a larger batch costs memory and latency and gains nothing."
)


def draw_saturation(found: Sequence[Saturation], styles: Mapping[str, SeriesStyle]) -> Iterator[Drawing]:
    """Figures of all sweeps of batch sizes with a panel per length; nothing where none was timed. Call inside `style.figure_style`."""
    sweeps = [each.steps for each in found if each.sweep.axis == "batch"]
    kind = Kind(
        name="saturation",
        title="Throughput against batch",
        caption=lambda rows: f"{CAPTION} Conditions: {constant_work(rows)}.",
        figure=lambda sheet: _figure(sheet, styles),
        chart=lambda sheet: _chart(sheet, styles),
        table=_table,
        missing=_untimed,
    )
    rows = pandas.concat(sweeps).drop_duplicates("cell_id") if sweeps else pandas.DataFrame(columns=[Y])
    if (rows[Y] > 0).any():
        yield from draw_sheets(kind, [sheet for sheet in sheets(rows, "seq_len", lambda n: f"n = {n:.0f}", ROW_KEYS) if _is_timed(sheet)])


def _is_timed(sheet: Sheet) -> bool:
    return bool((sheet.rows[Y] > 0).any())


def _untimed(rows: pandas.DataFrame) -> tuple[str, ...]:
    keys = varying(rows)
    return tuple(f"{row_name(row, keys)}: {row['status'] or 'no value'}" for row in rows[rows[Y].isna()].to_dict("records"))


def _table(rows: pandas.DataFrame) -> Table:
    size = (plain("size"),) if varying(rows, ("size",)) else ()
    through = Column(header=Y_LABEL, text=lambda row: amount(row[Y], row[LOW], row[HIGH]), key=Y)
    columns = (MODEL, LENGTH, *size, *work_columns(rows.assign(batching="")), number(X, "batch", numbers.exact))
    return table(rows, (*columns, through, LATENCY, MEMORY, STATUS), keep=("model", "n", "batch"))


def _figure(sheet: Sheet, styles: Mapping[str, SeriesStyle]) -> Figure:
    timed = sheet.rows[sheet.rows[Y] > 0]
    labels = [label for label in styles if label in set(timed["label"])]
    batches = sorted(set(timed[X]))
    extent = [value for value in pandas.concat([timed[Y], timed[LOW], timed[HIGH]]) if value > 0]

    def draw(axis: Axes, panel: pandas.DataFrame) -> None:
        for label, series in panel[panel[Y] > 0].groupby("label", sort=False):
            _draw_series(axis, series.sort_values(X), styles[label], f"series-{slug(label)}")
        length_axis(axis, batches)
        axis.set_xlabel(X_LABEL)
        log_value_axis(axis, extent, numbers.count, Y_LABEL)

    return draw_panels(sheet, draw, _handles(labels, styles, hollow=bool(_unstable(timed).any())), share_y=True)


def _draw_series(axis: Axes, series: pandas.DataFrame, style: SeriesStyle, gid: str) -> None:
    value, chosen = series[Y], _unstable(series)
    errors = [(value - series[LOW]).clip(lower=0).fillna(0), (series[HIGH] - value).clip(lower=0).fillna(0)]
    axis.plot(series[X], value, color=style.color, linestyle=style.line, marker=style.marker, gid=gid)
    axis.errorbar(series[X], value, yerr=errors, fmt="none", ecolor=style.color, elinewidth=1.2, capsize=3)
    axis.plot(series[X][chosen], value[chosen], linestyle="", marker=style.marker, color=style.color, markerfacecolor=HOLLOW, zorder=3)


def _handles(labels: Sequence[str], styles: Mapping[str, SeriesStyle], *, hollow: bool) -> list[Line2D]:
    handles = [Line2D([], [], color=styles[n].color, linestyle=styles[n].line, marker=styles[n].marker, label=n) for n in labels]
    unstable = Line2D([], [], color="#555555", linestyle="", marker="o", markerfacecolor=HOLLOW, label="unstable")
    return [*handles, unstable] if hollow else handles


def _unstable(rows: pandas.DataFrame) -> pandas.Series:
    return pandas.Series([flag is False for flag in rows["latency_stable"]], index=rows.index, dtype=bool)


def _chart(sheet: Sheet, styles: Mapping[str, SeriesStyle]) -> Chart:
    timed = sheet.rows[sheet.rows[Y] > 0]
    panels = [ChartPanel(title=panel_title(panel), traces=_traces(panel.rows, styles)) for panel in panels_of(sheet)]
    return Chart(
        x=ChartAxis(title=X_LABEL, scale="log", ticks=tuple(sorted(set(timed[X])))),
        y=ChartAxis(title=Y_LABEL, scale="log", tick_format=tick_format(timed[Y])),
        panels=tuple(panels),
    )


def _traces(rows: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> tuple[Trace, ...]:
    return tuple(_series(str(label), series.sort_values(X), styles[label]) for label, series in rows.groupby("label", sort=False))


def _series(name: str, series: pandas.DataFrame, style: SeriesStyle) -> Trace:
    values, bounds = plain_values(series[Y]), (plain_values(series[LOW]), plain_values(series[HIGH]))
    marker = {"color": style.color, "size": MARKER_PIXELS, "symbol": symbols(style, list(_unstable(series)))}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plotly_text(name),
        "uid": name,
        "x": plain_values(series[X]),
        "y": values,
        "error_y": error_bars(values, *bounds, style.color),
        "hoverinfo": "text",
        "hovertext": [_hover(row) for row in series.to_dict("records")],
        "line": {"color": style.color, "dash": dash(style.line), "width": 2},
        "marker": {**marker, "line": {"color": style.color, "width": 1.5}},
    }


def _hover(row: Mapping[str, Any]) -> str:
    return hover_text((row_name(row, ("batching",)), f"{Y_LABEL}: {amount(row[Y], row[LOW], row[HIGH])}", str(row["status"])))

"""Show the results of `bench kernels` as a table and figure.

The figure plots each kernel's rate against the sequence length n. This module imports no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench import console, numbers
from bench.files import write_atomically
from bench.operators import KERNELS
from bench.report.charts.style import BLUE, GREEN, OCHRE, PINK, PURPLE, TEAL, VERMILLION, SeriesStyle, figure_style
from bench.report.charts.ticks import LENGTH_LABEL, length_axis, log_value_axis
from bench.spec import MEASURED

FIGURE = "tflops.png"
PANEL = (3.5, 2.4)
LEGEND_WIDTH = 1.5
TITLE_HEIGHT = 0.7
LINE_WIDTH = 1.2
COLORS = (VERMILLION, BLUE, GREEN, PURPLE, OCHRE, PINK, TEAL)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Colours and markers by a kernel's index within its operator."""
RATE_COLUMNS = {"rate": "ms", "rate_low": "ms_high", "rate_high": "ms_low"}
CEILING_COLOR = "#555555"
CEILING_LABEL = "best matrix product here"
RATES = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"))
"""Units of a rate, largest first; chosen by the fastest kernel."""
HEADERS = ("operator", "phase", "dtype", "batch x n", "channels", "kernel", "time", "ratio")
NUM_TEXTS = 6


def show(rows: pandas.DataFrame) -> None:
    """Print one row per timed kernel, then the reasons for the others.

    Ratios compare a kernel with the first kernel of the same case, paired by block.
    """
    unit = _unit(rows)
    headers = (*HEADERS, unit[1], "of ceiling", "GB/s")
    timed, others = rows[rows["status"] == MEASURED], rows[rows["status"] != MEASURED]
    if len(timed):
        texts = [_texts(row, unit[0]) for row in timed.to_dict("records")]
        console.print_table(headers, texts, numeric=[place >= NUM_TEXTS for place in range(len(headers))])
    for (operator, kernel, phase, status, reason), found in others.groupby(["operator", "kernel", "phase", "status", "reason"], sort=False):
        lengths = ", ".join(map(str, dict.fromkeys(found["n"])))
        console.print_lines(f"{operator}, {kernel}, {phase}, n = {lengths}: {status}: {reason}")


def _unit(rows: pandas.DataFrame) -> tuple[float, str]:
    """Return size and name of the unit that suits the fastest kernel."""
    highest = float(pandas.to_numeric(rows["tflops_per_s"]).max()) * 1e12
    return next((unit for unit in RATES if highest >= unit[0]), RATES[-1])


def write_figure(rows: pandas.DataFrame, folder: Path) -> Path | None:
    """Write the figure into `folder`; return its path.

    Returns None if no kernel was measured.
    """
    measured = rows[(rows["status"] == MEASURED) & ~rows["control"].astype(bool)]
    if measured.empty:
        return None
    with figure_style():
        figure = _draw(measured)
        write_atomically(folder / FIGURE, lambda path: figure.savefig(path, format="png"))
    return folder / FIGURE


def _texts(row: dict[str, Any], divisor: float) -> tuple[str, ...]:
    is_first = row["kernel"] == row["ratio_to"] and not row["control"]
    return (
        row["operator"],
        row["phase"],
        row["dtype"],
        f"{row['batch']} x {row['n']}",
        _channels(row),
        f"{row['kernel']} (A/A)" if row["control"] else row["kernel"],
        numbers.interval_ms(row["ms"], row["ms_low"], row["ms_high"]),
        "1" if is_first else numbers.ratio(row["ratio"], row["ratio_low"], row["ratio_high"]),
        numbers.significant(row["tflops_per_s"] * 1e12 / divisor),
        numbers.percent(row["ceiling_share"]),
        numbers.significant(row["gbytes_per_s"]),
    )


def _channels(row: dict[str, Any]) -> str:
    return str(row["channels"]) if numbers.is_empty(row["head_width"]) else f"{row['heads']:.0f} x {row['head_width']:.0f}"


def _draw(rows: pandas.DataFrame) -> Figure:
    """Draw panels by operator and channels (down), dtype and phase (across).

    Each row has a legend beside it with the fastest kernel first.
    """
    rows = rows.assign(width=[_channels(row) for row in rows.to_dict("records")])
    panel_rows = list(rows.groupby(["operator", "width"], sort=False))
    columns = list(dict.fromkeys(zip(rows["dtype"], rows["phase"], strict=True)))
    divisor, unit = _unit(rows)
    rates = rows.assign(**{name: rows["flops"] / rows[source] * 1e3 / divisor for name, source in RATE_COLUMNS.items()})
    limits = [*rates[list(RATE_COLUMNS)].stack().dropna(), *(rates["ceiling_flops_per_s"].dropna() / divisor)]
    size = PANEL[0] * len(columns) + LEGEND_WIDTH, PANEL[1] * len(panel_rows) + TITLE_HEIGHT
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(panel_rows), len(columns), squeeze=False, sharey=True)
    for line, (operator, channels) in enumerate(key for key, _ in panel_rows):
        operator_rates = rates[(rates["operator"] == operator) & (rates["width"] == channels)]
        for column, (dtype, phase) in enumerate(columns):
            axis = axes[line, column]
            panel = operator_rates[(operator_rates["dtype"] == dtype) & (operator_rates["phase"] == phase)]
            axis.set_title(f"{operator} ({channels}), {phase}, {dtype}")
            _draw_panel(axis, panel, divisor)
            length_axis(axis, sorted(set(rows["n"])))
            log_value_axis(axis, limits, lambda tick: f"{tick:g}", "" if column else unit)
            axis.set_xlabel(LENGTH_LABEL if line == len(panel_rows) - 1 else "")
        # the legend follows the order of the line ends beside it
        ordered = pandas.concat([part.sort_values(["n", "rate"], ascending=False) for part in (panel, operator_rates)])
        axes[line, -1].legend(handles=_handles(ordered), loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(_title(rows), fontsize=10, x=0.01, ha="left")
    return figure


def _draw_panel(axis: Axes, panel: pandas.DataFrame, divisor: float) -> None:
    for kernel, series in panel.sort_values("n").groupby("kernel", sort=False):
        style = _style(series["operator"].iloc[0], kernel)
        rate = series["rate"]
        errors = [(rate - series["rate_low"]).clip(lower=0).fillna(0), (series["rate_high"] - rate).clip(lower=0).fillna(0)]
        axis.errorbar(series["n"], rate, yerr=errors, fmt="none", ecolor=style.color, elinewidth=LINE_WIDTH, capsize=2)
        axis.plot(series["n"], rate, color=style.color, linestyle=style.line, marker=style.marker)
    for ceiling in panel["ceiling_flops_per_s"].dropna().unique()[:1]:
        axis.axhline(ceiling / divisor, color=CEILING_COLOR, linewidth=LINE_WIDTH, zorder=1)


def _handles(rows: pandas.DataFrame) -> list[Line2D]:
    """Return legend entries: the ceiling, then kernels in row order."""
    styles = {kernel: _style(operator, kernel) for operator, kernel in zip(rows["operator"], rows["kernel"], strict=True)}
    found = [Line2D([], [], color=style.color, linestyle=style.line, marker=style.marker, label=name) for name, style in styles.items()]
    ceiling = Line2D([], [], color=CEILING_COLOR, linewidth=LINE_WIDTH, label=CEILING_LABEL)
    return [ceiling, *found] if rows["ceiling_flops_per_s"].notna().any() else found


def _style(operator: str, kernel: str) -> SeriesStyle:
    """Return a kernel's style, equal in every figure.

    `onednn` has one style for all operators.
    """
    place = KERNELS[operator].index(kernel)
    return SeriesStyle(color=COLORS[place], marker=MARKERS[place], line="-")


def _title(rows: pandas.DataFrame) -> str:
    clock, device = rows["clock"].iloc[0], rows["device"].iloc[0]
    return f"Rate of each kernel against n, higher is faster\n{device}, {clock} time, equal tokens per call, bars: 95 % intervals"

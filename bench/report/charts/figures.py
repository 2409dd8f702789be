"""Choose a report's figures from the measured metrics, with captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pandas

from bench import numbers
from bench.analysis import frame as frames
from bench.analysis.front import Axes, with_front
from bench.analysis.study import Study
from bench.report.charts.front import draw_front
from bench.report.charts.matplotlib import Quantity, draw_lines, draw_shares, is_unstable
from bench.report.charts.sheets import draw_sheets, sheets
from bench.report.charts.style import SeriesStyle
from bench.report.document import FigureBlock
from bench.report.tables import LENGTH, MODEL, Column, Row, Table, number, plain, table, work_columns
from bench.spec import MEASURED, PREDICTED

MIB = 1024.0**2
DEGREE_NAMES = ("constant", "linear in n", "quadratic in n", "cubic in n")
MEMORY_PARTS = {
    "weight_bytes": "weights",
    "gradient_bytes": "gradients",
    "optimizer_bytes": "optimizer state",
    "activation_bytes": "activations",
    "other_bytes": "not attributed",
}
TOPICS = {
    "latency": ("latency", "latency_ms"),
    "memory": ("memory", "peak_memory_bytes"),
    "FLOPs": ("flops", "flops"),
    "energy": ("energy", "energy_j"),
    "accuracy": ("accuracy", "accuracy"),
}
"""Topics of a report, each with its metric and value column."""


def draw_figures(study: Study, styles: Mapping[str, SeriesStyle]) -> list[FigureBlock]:
    """Draw every figure that the data allow, in reading order.

    Call inside `style.figure_style`.
    """
    frame = study.frame
    found = [*_latency(frame, styles), *_memory(frame, styles), *_flops(frame, styles), *_degrees(study)]
    return [*found, *_length_params(frame, styles), *_memory_parts(frame), *_accuracy(frame, styles)]


def absent(frame: pandas.DataFrame, metrics: tuple[str, ...]) -> list[str]:
    """Return sentences on topics without values, by reason."""
    missing = {topic: metric for topic, (metric, column) in TOPICS.items() if frame[column].isna().all()}
    not_requested = [topic for topic, metric in missing.items() if metric not in metrics]
    not_measured = [topic for topic, metric in missing.items() if metric in metrics]
    sentences = [f"Not requested in this run: {', '.join(not_requested)}."] if not_requested else []
    return sentences + ([f"Requested, but without any value: {', '.join(not_measured)}."] if not_measured else [])


def _latency(frame: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    quantity = Quantity(
        value="latency_ms",
        low="latency_low_ms",
        high="latency_high_ms",
        label="latency (ms)",
        text=_plain,
        hollow=is_unstable,
        hollow_label="unstable",
    )
    caption = (
        "Time of one step on the whole batch. Points are medians over rounds, each in a fresh process; bars are 95 % intervals over rounds. "
        "Both axes are logarithmic: compare slopes within a panel only, because a slope depends on kernel and device."
    )
    yield from _line_figures(frame, quantity, styles, "latency", "Latency against sequence length", caption)


def _memory(frame: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    def is_predicted(rows: pandas.DataFrame) -> pandas.Series:
        return rows["memory_source"] == PREDICTED

    quantity = Quantity(
        value="peak_memory_bytes",
        divisor=MIB,
        label="peak memory (MiB)",
        text=_plain,
        hollow=is_predicted,
        hollow_label="predicted, not measured",
    )
    caption = (
        "Peak memory of tensors during one step: weights, gradients, optimizer state and activations, measured in a separate pass. "
        "Faster growth comes from activations or from n x n weights; the memory split shows which."
    )
    yield from _line_figures(frame, quantity, styles, "memory", "Peak memory against sequence length", caption)


def _flops(frame: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    quantity = Quantity(value="flops", label="FLOPs per sample", text=numbers.count)
    caption = (
        "Forward FLOPs of matrix products for one sample, two per multiply-add. Counts are exact, so they have no interval. "
        "With matched parameters the width changes with n, so a curve does not show how one fixed shape scales."
    )
    yield from _line_figures(_per_model(frame), quantity, styles, "flops", "FLOPs against sequence length", caption, per_workload=False)


def _line_figures(
    frame: pandas.DataFrame,
    quantity: Quantity,
    styles: Mapping[str, SeriesStyle],
    name: str,
    title: str,
    caption: str,
    *,
    per_workload: bool = True,
) -> Iterator[FigureBlock]:
    """Draw a quantity against n, if it has values."""
    row_keys = frames.WORK_KEYS if per_workload else ()
    if (frame[quantity.value] > 0).any():
        yield from draw_sheets(
            [sheet for sheet in sheets(frame, "size", str, row_keys) if (sheet.rows[quantity.value] > 0).any()],
            lambda sheet: draw_lines(sheet, quantity, styles),
            name=name,
            title=title,
            caption=caption,
            conditions=per_workload,
            missing=lambda rows: _missing(rows, quantity.value, row_keys),
        )


def _degrees(study: Study) -> Iterator[FigureBlock]:
    """Draw the share of each power of n in the FLOPs.

    The split comes from the plan's closed form. Draws nothing without measured FLOPs.
    """
    frame, by_degree = study.frame, study.flops_by_degree
    if frame["flops"].isna().all() or by_degree.empty:
        return
    wide = by_degree.pivot_table(index="cell_id", columns="degree", values="flops", aggfunc="first").fillna(0.0)
    parts = {f"degree_{degree}": _degree_name(degree) for degree in wide.columns}
    wide.columns = pandas.Index(parts)
    rows = _per_model(frame).merge(wide, left_on="cell_id", right_index=True, how="inner")
    rows = rows.assign(total=rows[list(parts)].sum(axis=1))
    rows = rows.assign(written=rows["total"])
    caption = (
        "Share of each power of n in the forward FLOPs of one sample, from the closed form, with the total above each bar. "
        "Every model has a quadratic part: compare the lengths at which it dominates."
    )
    yield from _share_figures(rows, parts, numbers.count, "share of FLOPs", "flops-by-degree", "FLOPs by power of n", caption)


def _length_params(frame: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    rows = _per_model(frame)
    rows = rows.assign(share=100 * rows["params_seq"] / rows["params"])
    quantity = Quantity(value="share", label="share of parameters", text=lambda share: f"{share:g} %", logarithmic=False)
    caption = (
        "Parameters that depend on seq_len, as a share of all parameters: gMLP's n x n spatial matrices, and learned positions in other models. "
        "At a fixed budget, a larger share leaves less for the width. Models without such parameters have no line."
    )
    if (rows["share"] > 0).any():
        yield from draw_sheets(
            [sheet for sheet in sheets(rows, "size", str, ()) if (sheet.rows["share"] > 0).any()],
            lambda sheet: draw_lines(sheet, quantity, styles),
            name="length-parameters",
            title="Parameters that depend on the length",
            caption=caption,
            conditions=False,
        )


def _memory_parts(frame: pandas.DataFrame) -> Iterator[FigureBlock]:
    parts = [part for part in MEMORY_PARTS if part in frame]
    rows = frame[(frame["peak_memory_bytes"] > 0) & frame[parts].notna().any(axis=1)]
    rows = rows.assign(other_bytes=(rows["peak_memory_bytes"] - rows[parts].sum(axis=1)).clip(lower=0))
    rows = rows.assign(total=rows[list(MEMORY_PARTS)].sum(axis=1), written=rows["peak_memory_bytes"])
    caption = (
        "Each part at its own peak, as a share of the sum of these peaks. The number above a bar is the peak of all parts together, which is "
        "smaller than the sum if parts peak at different times. Gradients and optimizer state exist only in training. Attention's n^2 terms are "
        "activations, if the kernel writes them at all; gMLP's are weights, shared by the whole batch."
    )
    yield from _share_figures(rows, MEMORY_PARTS, numbers.bytes_text, "share of memory", "memory-parts", "Memory by part", caption)


def _share_figures(
    rows: pandas.DataFrame, parts: Mapping[str, str], text: Callable[[float], str], label: str, name: str, title: str, caption: str
) -> Iterator[FigureBlock]:
    """Draw stacked shares; needs the columns of `draw_shares`."""
    rows = rows[rows["total"] > 0]
    row_keys = ("size",) if name == "flops-by-degree" else ("size", *frames.WORK_KEYS)
    if len(rows):
        yield from draw_sheets(
            sheets(rows, "label", str, row_keys),
            lambda sheet: draw_shares(sheet, parts, text, label),
            name=name,
            title=title,
            caption=caption,
            conditions=False,
            table=lambda shown: shares_table(shown, parts, text),
        )


def shares_table(rows: pandas.DataFrame, parts: Mapping[str, str], text: Callable[[float], str]) -> Table:
    """Return a table of each part's share and amount, and the total."""

    def share(part: str) -> Callable[[Row], str]:
        return lambda row: (
            "" if numbers.is_empty(row[part]) or not row[part] else f"{numbers.percent(row[f'{part}_share'])} ({text(row[part])})"
        )

    rows = rows.assign(**{f"{part}_share": rows[part] / rows["total"] for part in parts})
    size = (plain("size"),) if frames.varying(rows, ("size",)) else ()
    shares = (Column(header=name, text=share(part), key=f"{part}_share") for part, name in parts.items())
    columns = (MODEL, LENGTH, *size, *work_columns(rows), *shares, number("total", "sum", text))
    return table(rows, columns, keep=("model", "n"))


def _accuracy(frame: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    rows = frame[frame["accuracy"].notna() & (frame["params"] > 0)].drop_duplicates(frames.TRAINING_KEYS)
    rows = rows.assign(label=rows["model"])
    if rows.empty:
        return
    matched = (rows["match"] == "params") & rows["budget"].notna()
    empty = {"x_low": float("nan"), "x_high": float("nan")}
    y = {"y": rows["accuracy"], "y_low": rows["accuracy_low"], "y_high": rows["accuracy_high"]}
    rows = with_front(rows.assign(x=rows["budget"].where(matched, rows["params"]), **empty, **y), ())
    caption = (
        "Accuracy on the test split: means over seeds with 95 % t-intervals, one panel per n. Points of one size are drawn side by side. "
        "The line is the best mean up to each size. Rings mark the models on the line; they are dotted if the intervals leave membership open."
    )

    def untrained(shown: pandas.DataFrame) -> tuple[str, ...]:
        return _missing(frame[frame["task"].isin(shown["task"]) & (frame["task"] != "")], "accuracy", ())

    yield from draw_sheets(
        sheets(rows, "seq_len", lambda n: f"n = {n:.0f}", ("task",)),
        lambda sheet: draw_front(sheet, Axes(x="params", y="accuracy"), styles, {}),
        name="accuracy",
        title="Parameters against accuracy",
        caption=caption,
        conditions=False,
        missing=untrained,
    )


def _per_model(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Keep one row per model, length and size.

    Use it for values that do not depend on the workload.
    """
    rows = frame.sort_values("flops", na_position="last", kind="stable").drop_duplicates(["model", "seq_len", "size"]).sort_index()
    return rows.assign(label=rows["model"])


def _missing(rows: pandas.DataFrame, value: str, row_keys: tuple[str, ...]) -> tuple[str, ...]:
    """Name each row that lacks a requested value, with its status.

    A measured row without the value did not request it.
    """
    keys = frames.varying(rows, row_keys)
    empty = rows[rows[value].isna() & (rows["status"] != MEASURED)].to_dict("records")
    return tuple(f"{frames.row_name(row, keys)}: {row['status'] or 'no value'}" for row in empty)


def _degree_name(degree: int) -> str:
    return DEGREE_NAMES[degree] if degree < len(DEGREE_NAMES) else f"n^{degree}"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 and float(value).is_integer() else f"{value:g}"

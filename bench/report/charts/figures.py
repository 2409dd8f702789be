"""The figures of a report, from the metrics that were measured, each with its caption."""

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
"""What a report can show: the metric that asks for it and the column that says whether it was measured."""


def draw_figures(study: Study, styles: Mapping[str, SeriesStyle]) -> list[FigureBlock]:
    """Draw every figure that the data allow, in reading order. Call inside `style.figure_style`."""
    frame = study.frame
    found = [*_latency(frame, styles), *_memory(frame, styles), *_flops(frame, styles), *_degrees(study)]
    return [*found, *_length_params(frame, styles), *_memory_parts(frame), *_accuracy(frame, styles)]


def absent(frame: pandas.DataFrame, metrics: tuple[str, ...]) -> list[str]:
    """One sentence per metric without values: not asked for, or asked for and not measured."""
    missing = {topic: metric for topic, (metric, column) in TOPICS.items() if frame[column].isna().all()}
    not_asked = [topic for topic, metric in missing.items() if metric not in metrics]
    not_measured = [topic for topic, metric in missing.items() if metric in metrics]
    sentences = [f"Not asked for in this run: {', '.join(not_asked)}."] if not_asked else []
    return sentences + ([f"Asked for, without a single value: {', '.join(not_measured)}."] if not_measured else [])


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
        "Time of one step on the whole batch. Points are medians over rounds, each round a fresh process; bars are 95 % intervals over rounds. "
        "Where both axes are logarithmic, compare slopes within a panel, and remember that a slope belongs to a kernel on a device."
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
        "Peak of the memory that tensors held during one step: weights, gradients, optimizer state and activations, measured in a pass of its own. "
        "What grows faster than the line beside it is paid in activations or in n x n weights: the memory split tells which."
    )
    yield from _line_figures(frame, quantity, styles, "memory", "Peak memory against sequence length", caption)


def _flops(frame: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    quantity = Quantity(value="flops", label="FLOPs per sample", text=numbers.count)
    caption = (
        "Forward FLOPs of matrix products for one sample, two per multiply-add: exact counts, no measurement, so no interval. "
        "At matched parameters the width changes with n, so that a curve here is not the scaling of one fixed shape."
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
    """Drawn where FLOPs were measured; the split itself is the plan's closed form."""
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
        "Look for the length at which the quadratic part takes over, and compare it between models: each of them has one."
    )
    yield from _share_figures(rows, parts, numbers.count, "share of FLOPs", "flops-by-degree", "Where the FLOPs are", caption)


def _length_params(frame: pandas.DataFrame, styles: Mapping[str, SeriesStyle]) -> Iterator[FigureBlock]:
    rows = _per_model(frame)
    rows = rows.assign(share=100 * rows["params_seq"] / rows["params"])
    quantity = Quantity(value="share", label="share of parameters", text=lambda share: f"{share:g} %", logarithmic=False)
    caption = (
        "Parameters that depend on seq_len, as a share of all parameters: gMLP's n x n spatial matrices, and learned positions elsewhere. "
        "At a fixed budget this share is taken from the width. Models without such parameters have no line."
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
        "What holds the memory: each part at its own peak, as shares of their sum. Above each bar the peak of all together, smaller than the sum "
        "where parts peak at different moments. Gradients and optimizer state exist only while training. Attention's n^2 is in the activations, "
        "if the kernel writes it at all; gMLP's is in the weights, once for the whole batch."
    )
    yield from _share_figures(rows, MEMORY_PARTS, numbers.bytes_text, "share of memory", "memory-parts", "What holds the memory", caption)


def _share_figures(
    rows: pandas.DataFrame, parts: Mapping[str, str], text: Callable[[float], str], label: str, name: str, title: str, caption: str
) -> Iterator[FigureBlock]:
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
    """List each part as a share and as an amount, then the column `total` that they are shares of."""

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
        "Accuracy on the test split, the mean over seeds with its 95 % t-interval; one panel per n. Points of one size are drawn side by side. "
        "The line is the best mean up to each size; rings mark the models on it, dotted where the intervals leave this open."
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
    """One row per model, length and size: what does not depend on the workload."""
    known = frame.sort_values("flops", na_position="last", kind="stable").drop_duplicates(["model", "seq_len", "size"]).sort_index()
    return known.assign(label=known["model"])


def _missing(rows: pandas.DataFrame, value: str, row_keys: tuple[str, ...]) -> tuple[str, ...]:
    """What was asked for and has no value; a cell that was measured without it was not asked for it."""
    keys = frames.varying(rows, row_keys)
    empty = rows[rows[value].isna() & (rows["status"] != MEASURED)].to_dict("records")
    return tuple(f"{frames.row_name(row, keys)}: {row['status'] or 'no value'}" for row in empty)


def _degree_name(degree: int) -> str:
    return DEGREE_NAMES[degree] if degree < len(DEGREE_NAMES) else f"n^{degree}"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 and float(value).is_integer() else f"{value:g}"

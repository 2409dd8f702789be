"""Draw throughput against the size of a sweep: batch or length, up to what fits."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from bench import numbers
from bench.analysis.frame import WORK_KEYS
from bench.analysis.saturation import NEAR, Saturation
from bench.analysis.study import Study
from bench.measure.engines import EAGER
from bench.report.charts.lines import LABEL_POINTS, Line, draw_series, label_ends, panels
from bench.report.charts.style import INK, PAPER, SeriesStyle, display_name, series_styles, slug
from bench.report.charts.ticks import length_axis, log_value_axis
from bench.report.document import FigureBlock
from bench.report.sections.wording import join_names

MAX_LINES = 6
FEW = 3
"""So many models are named in the title."""
SIZES = {"batch": "batch_size", "seq": "seq_len"}
SCOPE = ("size", *(key for key in WORK_KEYS if key != "batching"))


def draw_saturation(study: Study) -> FigureBlock | None:
    """Draw the sweeps of one scope; None without a timed sweep."""
    found = shown_sweeps(study.saturations)
    if not found:
        return None
    axis_name = found[0].sweep.axis
    styles = series_styles(study.frame["label"])
    lines = [_line(each, styles[_label(each)]) for each in found]
    figure, (axis,) = panels(1, [line.label for line in lines])
    length_axis(axis, [size for line in lines for size in line.x])
    axis.set_xlabel("batch size" if axis_name == "batch" else "sequence length n (tokens)")
    log_value_axis(axis, [bound for line in lines for bound in (*line.low, *line.high)], _tick, f"throughput ({_unit(axis_name)})")
    draw_series(axis, lines)
    for each, line in zip(found, lines, strict=True):
        _mark_near(axis, each, line)
    label_ends(axis, lines)
    return FigureBlock(name="saturation", title=saturation_title(found), caption=_caption(found[0]), figure=figure)


def shown_sweeps(found: Sequence[Saturation]) -> list[Saturation]:
    """Choose the timed sweeps of one scope by rule.

    Batches come before lengths, inference before training, eager before other engines; then the scope with most sweeps, then the longest n.
    """
    scopes: dict[tuple[str, ...], list[Saturation]] = {}
    for each in found:
        if each.best is not None:
            row = each.steps.iloc[0]
            fixed = ("seq_len",) if each.sweep.axis == "batch" else ("batch_size",)
            scopes.setdefault(tuple(str(row[key]) for key in (*SCOPE, *fixed)), []).append(each)
    return min(scopes.values(), key=_preference, default=[])[:MAX_LINES]


def _preference(members: Sequence[Saturation]) -> tuple[bool, bool, bool, int, float]:
    row = members[0].steps.iloc[0]
    return members[0].sweep.axis != "batch", row["phase"] != "infer", row["engine"] != EAGER, -len(members), -float(row["seq_len"])


def saturation_title(found: Sequence[Saturation]) -> str:
    """State where throughput saturates, or how long an input fits."""
    names = [display_name(_label(each)) for each in found]
    if found[0].sweep.axis == "seq":
        ends = [each.sweep.largest for each in found]
        if len(found) > FEW:
            return f"{len(found)} models fit up to n = {min(ends):,} to {max(ends):,}"
        return join_names([f"{name} fits up to n = {end:,}" for name, end in zip(names, ends, strict=True)])
    sizes = [int(each.near["batch_size"]) for each in found if each.near is not None]
    share = f"{100 * NEAR:.0f} %"
    if len(found) > FEW or len(set(sizes)) == 1:
        batches = " to ".join(dict.fromkeys((str(min(sizes)), str(max(sizes)))))
        return f"Batch {batches} reaches {share} of the best throughput"
    first, *others = zip(names, sizes, strict=True)
    return f"{first[0]} reaches {share} of its best throughput at batch {first[1]}, {join_names([f'{name} at {size}' for name, size in others])}"


def _line(each: Saturation, style: SeriesStyle) -> Line:
    timed = each.steps[each.steps["throughput_per_s"].notna()]
    tokens = timed["seq_len"] if each.sweep.axis == "seq" else 1.0
    rates = [(tokens * timed[f"throughput_{bound}per_s"]).tolist() for bound in ("", "low_", "high_")]
    return Line(
        label=display_name(_label(each)), style=style, x=timed[SIZES[each.sweep.axis]].tolist(), y=rates[0], low=rates[1], high=rates[2]
    )


def _mark_near(axis: Axes, each: Saturation, line: Line) -> None:
    """Ring and name the smallest batch with nearly the best throughput."""
    if each.sweep.axis == "batch" and each.near is not None:
        x, y = float(each.near["batch_size"]), float(each.near["throughput_per_s"])
        axis.plot(
            [x], [y], marker="o", markersize=9, color=line.style.color, markerfacecolor=PAPER, zorder=1, gid=f"near-{slug(line.label)}"
        )
        axis.annotate(f"{x:.0f}", (x, y), (0, 7), textcoords="offset points", ha="center", color=INK, fontsize=LABEL_POINTS)


def _caption(each: Saturation) -> str:
    row, fits = each.steps.iloc[0], "Lines end where memory does"
    bands = "bands hold 95 % intervals over rounds"
    if each.sweep.axis == "seq":
        return f"Batch {row['batch_size']:.0f}, {row['phase']}, {row['engine']}. {fits}, or the budget allows no size; {bands}."
    return f"n = {row['seq_len']:.0f}, {row['phase']}, {row['engine']}. {fits}; rings mark {100 * NEAR:.0f} % of the best; {bands}."


def _label(each: Saturation) -> str:
    return str(each.steps.iloc[0]["label"])


def _tick(value: float) -> str:
    digits, _, unit = numbers.count(value).partition(" ")
    return f"{float(digits):g} {unit}".strip()


def _unit(axis: str) -> str:
    return "samples/s" if axis == "batch" else "tokens/s"

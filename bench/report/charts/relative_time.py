"""Draw time relative to fused attention against n, in the run's primary scopes."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from bench import numbers
from bench.analysis.frame import work_text
from bench.analysis.ratios import RelativeLine, RelativePoint, RelativeTimes
from bench.analysis.study import Study
from bench.report.charts.lines import Line, draw_series, label_ends, panels
from bench.report.charts.style import SeriesStyle, display_name, series_styles
from bench.report.charts.ticks import length_axis, ratio_axis
from bench.report.document import FigureBlock
from bench.report.sections.findings import paying_from
from bench.report.sections.wording import POLICIES, SIZES, join_names, times_text

MAX_LINES = 6


def draw_relative_time(study: Study) -> FigureBlock | None:
    """Draw time over fused attention's; None if nothing was timed beside attention.

    The other matching is left out if it was timed at less than half as many lengths: it would say little of growth.
    """
    found = [times for times in study.relative_times if 2 * len(times.lengths) >= len(study.relative_times[0].lengths)]
    if not found:
        return None
    styles, paying = series_styles(study.frame["label"]), paying_from(study)
    shown = [relative_lines(times, styles, paying) for times in found]
    figure, axes = panels(len(found), [line.label for lines in shown for line in lines])
    values = [value for lines in shown for line in lines for value in (*line.y, *line.low, *line.high)]
    bounds = [value for value in values if math.isfinite(value)]  # one scale for both panels
    for times, lines, axis in zip(found, shown, axes, strict=True):
        fill_relative_panel(axis, lines, bounds, reference_name(found))
        axis.set_title(_place(times.scope.keys))
    return FigureBlock(
        name="relative-time",
        title=relative_title(found, study.caveat, paying),
        caption=f"Time over {reference_name(found)}'s ({_work(found[0].scope.keys)}). {_how(found)}; above 1 is slower.",
        figure=figure,
        missing=_left_out([line.label for times in found for line in times.lines if line not in _shown(times, paying)]),
    )


def _shown(times: RelativeTimes, asked: Collection[str]) -> Sequence[RelativeLine]:
    """Return the lines that a figure has room for: those of the labels `asked` about, then the first, and the slowest of the others."""
    if len(times.lines) <= MAX_LINES:
        return times.lines
    *first, slowest = sorted(times.lines, key=lambda line: line.label not in asked)
    return (*first[: MAX_LINES - 1], slowest)


def _how(found: Sequence[RelativeTimes]) -> str:
    """Say how the intervals of the ratios were made."""
    points = [point for times in found for line in times.lines for point in line.points]
    num_unpaired, num_open = sum(not point.is_paired for point in points), sum(point.ratio.is_open for point in points)
    if num_unpaired == len(points):
        return "Ratios of medians, since no rounds could be paired"
    others = f"; {num_unpaired} without a band divide medians" if num_unpaired else ""
    too_few = f"; {num_open} without a band have too few rounds for one" if num_open else ""
    return f"Bands: 95 %, together for the models of one length{others}{too_few}"


def fill_relative_panel(axis: Axes, lines: Sequence[Line], bounds: Sequence[float], reference: str) -> None:
    """Draw ratios of times to those of `reference`; `bounds` lie within the y axis."""
    length_axis(axis, [n for line in lines for n in line.x])
    ratio_axis(axis, bounds)
    axis.set_ylabel(f"time over {reference}'s")
    draw_series(axis, lines)
    label_ends(axis, lines)


def relative_lines(times: RelativeTimes, styles: Mapping[str, SeriesStyle], asked: Collection[str] = ()) -> list[Line]:
    """Return a line per model, those of the labels `asked` about first, and attention itself at 1.

    Models shown to equal attention everywhere share its line.
    """
    equal = [line.label for line in times.lines if line.is_equal]
    ones = [1.0] * len(times.lengths)
    plain = dataclasses.replace(styles[times.reference], marker="")
    own = Line(label=_joined([times.reference, *equal]), style=plain, x=times.lengths, y=ones, low=ones, high=ones)
    others = [line for line in _shown(times, asked) if line.label not in equal]
    return [own, *(_relative_line(line, styles[line.label]) for line in others)]


def _relative_line(line: RelativeLine, style: SeriesStyle) -> Line:
    ratios = [point.ratio for point in line.points]
    return Line(
        label=display_name(line.label),
        style=style,
        x=[point.n for point in line.points],
        y=[ratio.estimate for ratio in ratios],
        low=[math.nan if ratio.is_open else ratio.low for ratio in ratios],
        high=[math.nan if ratio.is_open else ratio.high for ratio in ratios],
    )


def relative_title(found: Sequence[RelativeTimes], caveat: str, paying: Mapping[str, int] = {}) -> str:
    """Compare gMLP's time with attention's at the longest n, by matching; without gMLP say from which length on others pay.

    `paying`: by label, the length from which on a model is faster than attention.
    """
    reference = reference_name(found)
    if caveat or not any(point.is_paired for times in found for line in times.lines for point in line.points):
        return f"Time relative to {reference} (differences are not decided)"
    ends: dict[str, tuple[str, RelativePoint]] = {}
    for times in found:
        for line in times.lines:
            if line.is_gmlp:
                ends.setdefault(times.scope.keys["match"], (line.label, line.points[-1]))
    if not ends:
        return _paying_title(paying, reference) if paying else _lowest_title(found[0], reference)
    labels = list(dict.fromkeys(label for label, _ in ends.values()))
    name = "gMLP" if len(labels) > 1 else display_name(labels[0])
    places = {match: f"n = {point.n}{f' ({SIZES[match]})' if len(ends) > 1 else ''}" for match, (_, point) in ends.items()}
    if all(point.ratio.is_open for _, point in ends.values()):
        (ratio, place), *rest = [(times_text(point.ratio.estimate), places[key]) for key, (_, point) in ends.items()]
        more = "".join(f", {other} at {where.removeprefix('n = ')}" for other, where in rest)
        return f"{name} ~{ratio} {reference}'s time at {place}{more}, undecided"  # too few rounds
    decided = [(times_text(point.ratio.estimate), places[key]) for key, (_, point) in ends.items() if point.faster or point.slower]
    equal_at = [places[key] for key, (_, point) in ends.items() if point.equal]
    open_at = [places[key] for key, (_, point) in ends.items() if not (point.faster or point.slower or point.equal)]
    margin = 100 * max(point.margin for _, point in ends.values())
    alike = f"equal within {margin:g} % at {join_names(equal_at)}" if equal_at else ""
    unknown = f"no difference is significant at {join_names(open_at)}" if open_at else ""
    if not decided:
        if not alike:
            return f"No difference in time between {name} and {reference} is significant at {join_names(open_at)}"
        return "; ".join(filter(None, [f"The times of {name} and {reference} are {alike}", unknown]))
    (ratio, place), *rest = decided
    more = "".join(f", {other} at {where.removeprefix('n = ')}" for other, where in rest)
    return "; ".join(filter(None, [f"{name} takes {ratio} {reference}'s time at {place}{more}", alike, unknown]))


def _paying_title(paying: Mapping[str, int], reference: str) -> str:
    """Name the first model, and of the others the one that pays last."""
    (first, n), *others = paying.items()
    latest = max(others, key=operator.itemgetter(1), default=None)
    more = f", {display_name(latest[0])} from {latest[1]}" if latest else ""
    name = display_name(first)
    return f"{name[:1].upper()}{name[1:]} takes less time than {reference} from n = {n} on{more}"


def _lowest_title(times: RelativeTimes, reference: str) -> str:
    """Name the fastest of the models that are shown to be faster at the longest n; those that do not mix all tokens are references."""
    longest = max(point.n for line in times.lines for point in line.points)
    points = [(point, line.label) for line in times.lines for point in line.points if point.n == longest and line.mixes_all]
    faster = [(point.ratio.estimate, label) for point, label in points if point.faster]
    if not faster:
        return f"At n = {longest} no model is significantly faster than {reference}"
    ratio, label = min(faster)
    return f"At n = {longest} {display_name(label)} takes {times_text(ratio)} {reference}'s time"


def reference_name(found: Sequence[RelativeTimes]) -> str:
    """Name the attention at 1, without its size: others beside it may be faster."""
    return join_names(list(dict.fromkeys(display_name(times.reference).partition("-")[0] for times in found)), "or")


def _joined(labels: Sequence[str]) -> str:
    return " = ".join(display_name(label) for label in labels)


def _place(keys: Mapping[str, Any]) -> str:
    """Name the matching of a panel: `One shape at every n (252 k), batch 4`."""
    text = f"{_size(keys)}, {keys['batching']}"
    return text[:1].upper() + text[1:]


def _size(keys: Mapping[str, Any]) -> str:
    match, budget = str(keys["match"]), numbers.count(keys["budget"])
    return POLICIES.get(match, match) + (f" ({budget})" if budget else "")


def _work(keys: Mapping[str, Any]) -> str:
    return ", ".join(work_text(key, keys[key]) for key in ("phase", "engine", "dtype") if keys[key])


def _left_out(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(display_name(label) for label in dict.fromkeys(labels))

"""Draw how close steps come to the roofline of the device.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

import pandas
from matplotlib.axes import Axes

from bench import numbers
from bench.analysis.regimes import LAUNCH, typical_ceilings
from bench.analysis.relative import main_rows
from bench.analysis.scope import scopes_of
from bench.analysis.study import Study
from bench.report.charts.lines import LABEL_POINTS, Line, draw_series, label_ends, panels
from bench.report.charts.style import INK, display_name, series_styles
from bench.report.charts.ticks import log_value_axis, powers_of_two
from bench.report.document import FigureBlock
from bench.timing_groups import compared_lengths

X, Y = "intensity", "achieved_flops_per_s"
MAX_LINES = 6
MARGIN = 1.4
ROOM = 0.24, 0.07
"""Width and height of the text of a length, as shares of the axes."""
LIFT = 0.03
"""Its distance from its point, as a share of the axes."""
SAME = 3
"""The same length needs this many times the room to be written again."""
HOLLOW = "; hollow: bound by launching operators"


def draw_roofline(study: Study) -> FigureBlock | None:
    """Draw the steps of the primary scope; None without ceilings or counted bytes."""
    scopes = scopes_of(study.regimes[study.regimes["regime"].notna()], X, compared_lengths(study.plan))
    if not scopes:
        return None
    shown = main_rows(scopes[0].rows)
    rows = shown[shown["label"].isin(list(dict.fromkeys(shown["label"]))[:MAX_LINES])]
    styles = series_styles(study.frame["label"])
    lines = [
        Line(label=display_name(str(label)), style=styles[str(label)], x=list(of[X]), y=list(of[Y]), hollow=list(of["regime"] == LAUNCH))
        for label, of in rows.groupby("label", sort=False)
    ]
    figure, (axis,) = panels(1, [line.label for line in lines])
    _draw_roof(axis, rows)
    draw_series(axis, lines)
    _name_lengths(axis, rows)
    label_ends(axis, lines)
    caption = (
        f"One point per length{HOLLOW if any(any(line.hollow) for line in lines) else ''}. The slope is the best copy, "
        f"{numbers.count(typical_ceilings(rows)[1])}B/s; bytes are those that operators read and write without a cache."
    )
    return FigureBlock(name="roofline", title=roofline_title(rows), caption=caption, figure=figure)


def roofline_title(rows: pandas.DataFrame) -> str:
    """State which share of the best FLOP/s the steps reach."""
    shares = rows[Y] / rows["ceiling_flops_per_s"]
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (shares.min(), shares.max()))
    return f"Steps reach {' to '.join(ends)} % of the device's best FLOP/s"


def _draw_roof(axis: Axes, rows: pandas.DataFrame) -> None:
    """Draw the ceilings, and set axes that hold all points and the ridge."""
    flops, moved = typical_ceilings(rows)
    left, right = min(rows[X].min(), flops / moved) / MARGIN, max(rows[X].max(), flops / moved) * MARGIN
    log_value_axis(axis, [*(rows[Y] / MARGIN), flops], numbers.count, "FLOP/s reached")
    axis.set_xscale("log", base=2)
    axis.set_xlim(left, right)
    ticks = powers_of_two(left, right)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel("FLOPs per byte moved")
    places = [left, flops / moved, right]
    axis.plot(places, [min(place * moved, flops) for place in places], color=INK, linewidth=1.2, zorder=1, gid="roof", scaley=False)
    text = f"best matrix product: {numbers.count(flops)}FLOP/s"
    axis.annotate(text, (right, flops), (0, 3), textcoords="offset points", ha="right", va="bottom", color=INK, fontsize=LABEL_POINTS - 1)


def _name_lengths(axis: Axes, rows: pandas.DataFrame) -> None:
    """Write n at the shortest and longest length of each model, unless it would cover another n or stands near the same one."""
    written: list[tuple[float, float, float]] = []
    for _, members in rows.groupby("label", sort=False):
        for row in (members.iloc[0], members.iloc[-1]):
            is_upper = row[Y] >= rows.loc[rows["place"] == row["place"], Y].median()
            across, up = axis.transAxes.inverted().transform(axis.transData.transform((row[X], row[Y])))
            up += LIFT if is_upper else -2 * LIFT
            scales = [(SAME if n == row["place"] else 1, abs(across - x), abs(up - y)) for n, x, y in written]
            if all(aside > scale * ROOM[0] or above > scale * ROOM[1] for scale, aside, above in scales):
                written.append((row["place"], across, up))
                text = f"n = {row['place']:.0f}"
                axis.annotate(text, (across, up), xycoords="axes fraction", ha="center", color=INK, fontsize=LABEL_POINTS - 1)

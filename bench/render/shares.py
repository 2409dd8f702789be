"""What a total consists of: one stacked bar per length, each as shares of its total, with the total written above it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.render.layout import Sheet
from bench.render.panels import draw_panels
from bench.render.style import PartStyle, part_styles
from bench.render.ticks import LENGTH_LABEL

EDGE = "#444444"
BAR_WIDTH = 0.72
FEW_BARS = 4
SHARE_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def draw_shares(sheet: Sheet, parts: Mapping[str, str], total: str, written: str, text: Callable[[float], str], label: str) -> Figure:
    """`parts` maps a column to its name in the legend, `total` is the column that they are shares of, `written` the one shown above the bar.

    A negative part is drawn below zero, so that the bar still sums to one.
    """
    styles = part_styles(list(parts))
    lengths = sorted(set(sheet.rows["seq_len"]))
    shares = sheet.rows[list(parts)].div(sheet.rows[total], axis=0)
    lowest = float(shares.clip(upper=0).sum(axis=1).min())

    def draw(axis: Axes, panel: pandas.DataFrame) -> None:
        for row in panel.drop_duplicates("seq_len").to_dict("records"):
            place, bar = lengths.index(row["seq_len"]), {part: row[part] / row[total] for part in parts}
            top = _draw_bar(axis, place, bar, styles)
            _write_total(axis, place, top, text(row[written]), few=len(lengths) <= FEW_BARS)
        _set_axes(axis, lengths, lowest, label)

    handles = [_patch(name, styles[part]) for part, name in parts.items() if (sheet.rows[part].fillna(0) != 0).any()]
    return draw_panels(sheet, draw, handles, share_y=True)


def _draw_bar(axis: Axes, place: int, shares: Mapping[str, float], styles: Mapping[str, PartStyle]) -> float:
    """Returns where the bar ends."""
    above, below = 0.0, 0.0
    for part, share in shares.items():
        if pandas.isna(share) or not share:
            continue
        bottom = above if share > 0 else below
        style = styles[part]
        axis.bar(
            place, share, BAR_WIDTH, bottom=bottom, color=style.color, hatch=style.hatch, edgecolor=EDGE, linewidth=0.5, gid=f"part-{part}"
        )
        above, below = above + max(share, 0.0), below + min(share, 0.0)
    return above


def _write_total(axis: Axes, place: int, top: float, text: str, *, few: bool) -> None:
    axis.text(place, top + 0.04, text, ha="center", va="bottom", fontsize=7.5, rotation=0 if few else 90)


def _set_axes(axis: Axes, lengths: list[float], lowest: float, label: str) -> None:
    few = len(lengths) <= FEW_BARS
    axis.set_xlim(-0.6, len(lengths) - 0.4)
    axis.set_ylim(lowest if lowest < -0.01 else 0, 1.17 if few else 1.5)
    axis.set_xticks(range(len(lengths)), [f"{n:.0f}" for n in lengths], rotation=0 if few else 45)
    axis.set_yticks(SHARE_TICKS, [f"{100 * share:.0f} %" for share in SHARE_TICKS])
    axis.grid(visible=False, axis="x")
    axis.set_xlabel(LENGTH_LABEL)
    axis.set_ylabel(label)


def _patch(name: str, style: PartStyle) -> Patch:
    return Patch(facecolor=style.color, hatch=style.hatch, edgecolor=EDGE, linewidth=0.5, label=name)

"""Draws README's two pictures as SVG without fonts, since GitHub shows them as images; they are dark where the reader's browser is.

python -m tests.docs.hero
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import numbers
from bench.analysis.frame import scopes_of
from bench.analysis.ratios import RelativeTimes, main_rows
from bench.analysis.study import study
from bench.reading.store import read_run
from bench.report.charts.growth import MEMORY, fill_growth_panel, growth_lines, memory_text
from bench.report.charts.lines import Line, label_ends, panels
from bench.report.charts.relative_time import fill_relative_panel, reference_name, relative_lines, relative_title
from bench.report.charts.style import SeriesStyle, display_name, figure_style, series_styles
from bench.report.images import image_of, svg_file
from tests.docs.fill import ROOT, SEQ

PICTURES = ROOT / "docs" / "figures"
WIDTH, HEIGHT, TOP = 4.3, 3.3, 0.68
"""In inches; two stand side by side in a README, and one fits a phone."""
TITLE_CHARACTERS = 46


def draw_heroes() -> dict[str, Figure]:
    """Time over fused attention's, gMLP at equal parameters and all models with one shape at every n; and memory of that shape, against n."""
    known = study(read_run(ROOT / "results" / SEQ))
    styles = series_styles(known.frame["label"])
    shape, equal = known.relative_times
    ratios = [*(line for line in _sized_lines(equal, styles) if line.label.startswith("gMLP")), *_sized_lines(shape, styles)]
    ratios[1:] = [dataclasses.replace(line, style=dataclasses.replace(line.style, line="--")) for line in ratios[1:]]
    rows = main_rows(scopes_of(known.frame, "peak_memory_bytes", {})[0].rows)
    memory = growth_lines(rows, MEMORY, styles, list(rows["label"]))
    (time, (left,)), (space, (right,)) = (_panel(lines) for lines in (ratios, memory))
    bounds = [bound for line in ratios for bound in (*line.y, *line.low, *line.high) if math.isfinite(bound)]
    fill_relative_panel(left, ratios, bounds, reference_name([equal, shape]))
    fill_growth_panel(right, memory, MEMORY)
    label_ends(right, memory)
    for axis, title in ((left, relative_title([equal, shape], known.caveat)), (right, memory_text(rows))):
        axis.set_title(textwrap.fill(title, TITLE_CHARACTERS), pad=8)
    return {"hero-time.svg": time, "hero-memory.svg": space}


def _panel(lines: Sequence[Line]) -> tuple[Figure, list[Axes]]:
    return panels(1, [line.label for line in lines], width=WIDTH, height=HEIGHT, top=TOP)


def _sized_lines(times: RelativeTimes, styles: Mapping[str, SeriesStyle]) -> list[Line]:
    """The lines of one matching, named with the parameters of their models, at the ends if they grow with n."""
    params: dict[str, list[float]] = {}
    for row in times.scope.rows.to_dict("records"):
        params.setdefault(display_name(row["label"]), []).append(row["params"])
    found = []
    for line in relative_lines(times, styles):
        sizes = [float(f"{num:.2g}") for num in sorted(params.get(line.label, []))]
        ends = dict.fromkeys(map(numbers.count, (*sizes[:1], *sizes[-1:])))
        found.append(dataclasses.replace(line, label=f"{line.label}, {' to '.join(ends)}" if ends else line.label))
    return found


def drawn() -> dict[str, bytes]:
    """The pictures' files, by name."""
    with figure_style(), matplotlib.rc_context({"svg.fonttype": "path"}):
        return {name: svg_file(image_of(figure)) for name, figure in draw_heroes().items()}


if __name__ == "__main__":
    for name, picture in drawn().items():
        (PICTURES / name).write_bytes(picture)

"""Draws the pictures of README and docs as SVG without fonts, since GitHub shows them as images; each is dark where the reader's browser is."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from bench.analysis.crossover import closed_pairs
from bench.analysis.relative import RelativeTimes, main_rows
from bench.analysis.scope import scopes_of
from bench.planning.build import build_plan
from bench.report.charts.against_length import (
    fill_memory_panel,
    fill_relative_panel,
    memory_lines,
    memory_title,
    relative_lines,
    relative_title,
)
from bench.report.charts.crossing import crossing_figure, crossing_title, pairs_of
from bench.report.charts.lines import Line, panels
from bench.report.charts.style import DARK, SeriesStyle, display_name, figure_style, series_styles
from bench.report.images import image_of
from bench.spec import Recipe, Settings
from tests.docs.reading import run
from tests.requested import parse_request

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
HERO = "2026-11-23_cpu_sequence_length"
PUBLISHED = "gmlp-ti,gmlp-s,gmlp-b,deit-ti,deit-s,deit-b"
PANEL = 4.7, 3.3
"""Width and height in inches; README shows two beside each other."""
TITLE_CHARACTERS = 50
COORDINATES, DECIMALS = re.compile(r' (?:d|x|y)="[^"]*"|translate\([^)]*\)'), re.compile(r"(?<=\.\d)\d+")
"""Points and offsets: a tenth is finer than any screen, and shrinks a file by a third."""
STYLE_ENDS = "</style>"
COMMENTS = re.compile(r"\n *<!--.*?-->", re.DOTALL)


def draw_hero() -> Figure:
    """Time and memory against n, side by side: the run's primary scope, and gMLP's time at equal parameters."""
    study = run(HERO)
    styles = series_styles(study.frame["label"])
    ratios = [*_hero_lines(study.relative_times[0], styles), *(_only_gmlp(study.relative_times[1], styles))]
    rows = main_rows(scopes_of(study.frame, "peak_memory_bytes", {})[0].rows)
    memory = memory_lines(rows, styles, study.plan.settings.margin)
    width, height = PANEL
    figure, (left, right) = panels(2, [line.label for line in (*ratios, *memory)], width=width, height=height, across=2, top=0.68)
    fill_relative_panel(left, ratios, [bound for line in ratios for bound in (*line.low, *line.high)])
    fill_memory_panel(right, memory)
    for axis, title in ((left, relative_title(study.relative_times, study.caveat)), (right, memory_title(rows))):
        axis.set_title(textwrap.fill(title, TITLE_CHARACTERS), pad=8)
    return figure


def _hero_lines(times: RelativeTimes, styles: Mapping[str, SeriesStyle]) -> list[Line]:
    """The lines of one matching; gMLP's says which."""
    named = {display_name(line.label) for line in times.lines if line.is_gmlp}
    lines = relative_lines(times, styles)
    return [dataclasses.replace(line, label=f"{line.label}, {times.matching}") if line.label in named else line for line in lines]


def _only_gmlp(times: RelativeTimes, styles: Mapping[str, SeriesStyle]) -> list[Line]:
    """gMLP's line of the other matching, dashed."""
    return [
        dataclasses.replace(line, style=dataclasses.replace(line.style, line="--"))
        for line in _hero_lines(times, styles)
        if line.label.endswith(times.matching)
    ]


def draw_flops_crossing() -> Figure:
    """FLOPs of the published gMLPs over those of DeiT against n, from closed forms alone."""
    request = parse_request(models=PUBLISHED, seq="197,1025", metrics="params,flops")
    pairs = pairs_of(closed_pairs(build_plan(request, settings=Settings(), recipe=Recipe(), device="cpu")))
    figure = crossing_figure(pairs)
    figure.axes[0].set_title(textwrap.fill(crossing_title(pairs), TITLE_CHARACTERS), pad=2)
    return figure


PICTURES: Mapping[str, Callable[[], Figure]] = {"hero": draw_hero, "flops-crossing": draw_flops_crossing}


def drawn(name: str) -> dict[Path, bytes]:
    """The files of one picture."""
    with figure_style(), matplotlib.rc_context({"svg.fonttype": "path"}):
        light = COORDINATES.sub(lambda found: DECIMALS.sub("", found[0]), COMMENTS.sub("", image_of(PICTURES[name](), "svg").decode()))
    dark = "".join(
        f'[style*="{part}: {color}"] {{{part}: {replacement} !important}}\n'
        for color, replacement in DARK.items()
        for part in ("fill", "stroke")
        if f"{part}: {color}" in light
    )
    return {
        FOLDER / f"{name}.svg": light.replace(STYLE_ENDS, f"\n@media (prefers-color-scheme: dark) {{\n{dark}}}{STYLE_ENDS}", 1).encode()
    }

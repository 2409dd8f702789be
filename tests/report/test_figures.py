"""The golden page of each kind of report; at most six figures, the most important first, all in one style."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from matplotlib.text import Text

from bench.analysis.study import study
from bench.reading.store import read_run
from bench.report.charts.style import figure_style
from bench.report.document import FigureBlock
from bench.report.markdown import to_markdown
from bench.report.page import brief, build_document

RESULTS = Path(__file__).parents[2] / "results"
REPORTS = Path(__file__).parents[2] / "reports"
PEERS = "2026-12-01_cpu_peers"
EXPECTED = {
    "2026-11-27_cpu_sequence_length": ["growth", "relative-time", "flops-crossing", "quality", "training-curves", "effects"],
    "2026-11-27_cpu_three_families": ["growth", "relative-time", "quality", "training-curves"],
    "2026-11-25_cpu_spatial_gating": ["effects"],
    "2026-11-20_cpu_published_pairs": ["growth", "flops-crossing"],
    PEERS: ["growth", "peers", "flops-crossing"],
}
"""Of each kind of report one: growth, families with trainings, a question of variants, counts alone, peers."""
MAX_TITLE_WORDS = 17


@pytest.mark.parametrize("run", [pytest.param(run, marks=pytest.mark.slow) if run == PEERS else run for run in EXPECTED])
def test_a_report_is_the_stored_page_with_the_figures_that_its_data_allow_in_order(run: str) -> None:
    """After a change on purpose: bench report results/RUN."""
    with figure_style():
        document = build_document(study(read_run(RESULTS / run)))
    assert to_markdown(brief(document)) == (REPORTS / run / "report.md").read_text()
    (found,) = [section.blocks for section in document.sections if section.title == "Figures"]
    figures = [block for block in found if isinstance(block, FigureBlock)]
    assert [figure.name for figure in figures] == EXPECTED[run]
    for figure in figures:
        assert len(figure.title.split()) <= MAX_TITLE_WORDS, figure.title
        assert figure.figure.get_figwidth() <= (9 if figure.name == "growth" else 6.5)  # readable on a phone, where three panels scroll
        assert not figure.figure.legends
        assert not any(axis.get_legend() for axis in figure.figure.axes)
        _assert_names_apart(figure)


def _assert_names_apart(figure: FigureBlock) -> None:
    """Names at line ends do not overlap."""
    figure.figure.draw_without_rendering()
    for axis in figure.figure.axes:
        names = [text for text in axis.texts if str(text.get_gid()).startswith("label-")]
        boxes = sorted((_box(text) for text in names), key=lambda box: box[0])
        assert all(above[0] >= below[1] - 0.5 for below, above in itertools.pairwise(boxes)), figure.name


def _box(text: Text) -> tuple[float, float]:
    box = text.get_window_extent()
    return float(box.y0), float(box.y1)

"""The reports of stored runs stay light and short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.analysis.study import study
from bench.reading.store import holds_records, is_stored, read_run
from bench.report.charts.figures import MAX_FIGURES
from bench.report.charts.style import figure_style
from bench.report.document import FigureBlock
from bench.report.markdown import to_markdown
from bench.report.page import brief, build_document
from bench.report.write import write_report
from bench.spec import PLAN

pytestmark = pytest.mark.slow
RESULTS = Path(__file__).parents[2] / "results"
RUNS = sorted(path.name for path in RESULTS.iterdir() if path.is_dir() and is_stored(path / PLAN) and holds_records(path))
LARGEST = ("2026-11-27_cpu_sequence_length", "2026-12-01_cpu_peers")
MAX_BYTES = 1_000_000
MAX_LINES = 150


@pytest.mark.parametrize("name", RUNS)
def test_markdown_is_two_screens_with_three_figures_and_one_table(name: str) -> None:
    with figure_style():
        document = build_document(study(read_run(RESULTS / name)))
    shown = [block for section in document.sections if not section.folded for block in section.blocks]
    assert sum(isinstance(block, FigureBlock) for block in shown) <= MAX_FIGURES
    text = to_markdown(brief(document))
    assert len(text.splitlines()) <= MAX_LINES
    assert text.count("](figures/") <= 3
    assert len(re.findall(r"^\| --- ", text, re.MULTILINE)) <= 1


@pytest.mark.parametrize("name", LARGEST)
def test_a_page_is_at_most_a_megabyte(name: str, tmp_path: Path) -> None:
    write_report(study(read_run(RESULTS / name)), tmp_path)
    assert (tmp_path / "report.html").stat().st_size <= MAX_BYTES

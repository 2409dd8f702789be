"""The report of every stored run stays light and short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.analysis.study import study
from bench.report.charts.figures import MAX_FIGURES
from bench.report.write import write_report
from bench.running.store import read_run
from tests.report.test_answer import RESULTS, RUNS

pytestmark = pytest.mark.slow
MAX_BYTES = 1_000_000
MAX_LINES = 150


@pytest.mark.parametrize("name", RUNS)
def test_a_page_is_at_most_a_megabyte_and_its_markdown_two_screens(name: str, tmp_path: Path) -> None:
    write_report(study(read_run(RESULTS / name)), tmp_path)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert len(page.encode()) <= MAX_BYTES
    assert len(text.splitlines()) <= MAX_LINES
    assert text.count("](figures/") <= 3
    assert len(re.findall(r"^\| --- ", text, re.MULTILINE)) <= 1
    assert page.partition('<details class="section">')[0].count("<figure ") <= MAX_FIGURES

"""A report of 10,000 rows is built whole: every row is in it, and figures stay few."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.report.charts.figures import MAX_FIGURES
from bench.report.write import write_report
from tests.report.conftest import MakeData

pytestmark = pytest.mark.slow
MODELS = ("gmlp", "vit", "transformer")
LENGTHS = tuple(range(17, 17 + 2 * 834, 2))
BUDGETS = (250_000, 1_000_000, 4_000_000, 16_000_000)


@pytest.fixture(scope="module")
def report(make_data: MakeData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    data = make_data(models=MODELS, lengths=LENGTHS, budgets=BUDGETS, metrics=("params", "flops", "latency"))
    assert len(data.rows) == len(MODELS) * len(LENGTHS) * len(BUDGETS) >= 10_000
    write_report(data, folder)
    return folder


def test_every_row_is_in_the_page(report: Path) -> None:
    page = (report / "report.html").read_text()
    block = page[page.index('id="cells"') :]
    shown = len(re.findall(r"<tr>", block[: block.index("</tbody>")]))
    rest = re.search(r'<script type="application/json" class="rest">(.*?)</script>', block, re.DOTALL)
    assert rest is not None
    assert shown - 1 + len(json.loads(rest[1])["rows"]) == len(MODELS) * len(LENGTHS) * len(BUDGETS)


def test_markdown_says_what_it_leaves_out(report: Path) -> None:
    text = (report / "report.md").read_text()
    assert len(text.splitlines()) <= 150
    (pointer,) = [line for line in text.splitlines() if "builds the whole report, report.html" in line]
    assert all(words in pointer for words in ("every row", "All rows", "Machine and software"))


def test_the_figures_are_few(report: Path) -> None:
    assert 0 < len(list((report / "figures").iterdir())) <= MAX_FIGURES

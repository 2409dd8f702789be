from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas
import pytest
from PIL import Image, ImageColor

from bench.analysis.study import Study
from bench.analysis.trust import Finding
from bench.report.charts.style import ROLES
from bench.report.write import write_report

MakeData = Callable[..., Study]
ATTACK = "<script>alert(1)</script>"
SECTIONS = [
    "Answer",
    "Which is faster",
    "Can this machine be trusted?",
    "Matched sizes",
    "Cost",
    "Figures",
    "How cost grows with n",
    "Where the n^2 terms are",
    "Accuracy",
    "The same claims in other conditions",
    "Skipped, failed and unstable",
    "How each number was made",
    "Machine and software",
    "Reproduce this run",
]


class Page(HTMLParser):
    """Tags and texts of a page, as a browser would find them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def ids(path: Path) -> list[str]:
    return [element.get("id", "") for element in ElementTree.parse(path).iter()]


def series(path: Path) -> list[str]:
    return [name for name in ids(path) if name.startswith("series-")]


def fail_all(rows: pandas.DataFrame) -> None:
    rows[["status", "reason"]] = ["failed", f"no compiler {ATTACK}"]
    rows[["latency_ms", "peak_memory_bytes", "flops", "accuracy"]] = None


@pytest.fixture(scope="module")
def report(make_data: MakeData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full report's folder: one cell out of memory, one unstable."""

    def change(rows: pandas.DataFrame) -> None:
        rows.loc[8, ["status", "reason", "latency_ms", "peak_memory_bytes"]] = ["out_of_memory", "12 GiB", None, None]
        rows["latency_stable"] = [False, *[True] * 8]

    folder = tmp_path_factory.mktemp("report")
    written = write_report(make_data(works=[{"task": "digits"}], change=change), folder, every_figure=True)
    assert [path.name for path in written[:2]] == ["report.md", "report.html"]
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == sorted(written)
    return folder


def test_every_figure_is_there_with_every_series(report: Path) -> None:
    figures = report / "figures"
    names = {"latency", "memory", "flops", "flops-by-degree", "length-parameters", "memory-parts", "accuracy"}
    assert {path.name for path in figures.iterdir()} == {f"{name}.{kind}" for name in names for kind in ("pdf", "png", "svg")}
    assert all(path.stat().st_size > 1000 for path in figures.iterdir())
    for name in ("latency", "memory", "flops"):
        assert len(series(figures / f"{name}.svg")) == 3
    assert len(series(figures / "accuracy.svg")) == 9
    assert ids(figures / "accuracy.svg").count("front") == 3
    assert ids(figures / "flops-by-degree.svg").count("part-degree_2") == 9


def test_by_default_each_figure_is_written_once(make_data: MakeData, tmp_path: Path) -> None:
    """As the same PNG as among all forms; the page holds the same figures."""
    write_report(make_data(models=["gmlp", "vit"], lengths=[17, 65], metrics=["params", "latency"]), tmp_path)
    images = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert set(images) == {"latency.png", "length-parameters.png"}
    write_report(make_data(models=["gmlp", "vit"], lengths=[17, 65], metrics=["params", "latency"]), tmp_path / "all", every_figure=True)
    assert images == {path.name: path.read_bytes() for path in (tmp_path / "all" / "figures").glob("*.png")}
    for name in ("report.md", "report.html", "verdicts.json"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "all" / name).read_bytes()


def test_a_stored_figure_keeps_its_colours(report: Path) -> None:
    """Though a palette holds few: each family's own colour is in it."""
    with Image.open(report / "figures" / "latency.png") as image:
        assert image.mode == "P"
        found: set[Any] = {color for _, color in image.convert("RGB").getcolors(1000) or ()}
    for color in (ROLES["gmlp"], ROLES["fused"], ROLES["transformer"]):
        wanted = ImageColor.getrgb(color)
        assert min(max(abs(a - b) for a, b in zip(wanted, other, strict=True)) for other in found) <= 6


def test_sections_in_the_order_of_reading(report: Path) -> None:
    titles = re.findall(r"^## (.+)$", (report / "report.md").read_text(), re.MULTILINE)
    assert titles == SECTIONS
    assert [title for title in Page((report / "report.html").read_text()).texts if title in SECTIONS][-len(SECTIONS) :] == SECTIONS


def test_the_text_says_what_the_data_hold(report: Path) -> None:
    text = (report / "report.md").read_text()
    assert "Not in this figure: transformer, n = 257, budget 250 k: out_of_memory." in text
    assert "gmlp, vit and transformer are all quadratic in n." in text
    assert re.search(r"gmlp \(in blocks\.gating\.spatial_projection\): n x n weights", text)
    assert re.search(r"vit, transformer \(in blocks\.attention\.scores, .*\): n x n activations", text)
    assert "no difference shown: an unstable configuration" in text
    assert "Requested, but without any value: energy." in text
    assert "Quick run" not in text


def test_the_page_needs_nothing_else(report: Path) -> None:
    page = Page((report / "report.html").read_text())
    assert not {"link", "iframe", "object"} & set(page.tags)
    assert any(
        (value or "").startswith("default-src 'none'; script-src 'unsafe-inline';") for name, value in page.attributes if name == "content"
    )
    sources = [value or "" for name, value in page.attributes if name == "src"]
    assert len(sources) == 7
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert base64.b64decode(sources[0].partition(",")[2]) == (report / "figures" / "latency.svg").read_bytes()
    assert not [value for name, value in page.attributes if name == "href" and not (value or "").startswith("#")]


def test_text_from_records_stays_text(make_data: MakeData, tmp_path: Path) -> None:
    data = make_data(
        models=["gmlp", ATTACK],
        lengths=[17],
        change=fail_all,
        name=ATTACK,
        findings=[Finding(text=ATTACK, advice=ATTACK, serious=True)],
        environment={ATTACK: ATTACK},
    )
    write_report(data, tmp_path)
    markdown, page = (tmp_path / "report.md").read_text(), Page((tmp_path / "report.html").read_text())
    assert "<script" not in re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in markdown
    harmless = write_report(make_data(models=["gmlp", "other"], lengths=[17], change=fail_all), tmp_path / "harmless")[1]
    assert page.tags.count("script") == Page(harmless.read_text()).tags.count("script") > 0
    assert "img" not in [tag for tag in page.tags if tag not in Page(harmless.read_text()).tags]
    assert ATTACK in page.texts


def test_every_cell_failed(make_data: MakeData, tmp_path: Path) -> None:
    written = write_report(make_data(change=fail_all), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "No latency was measured" in text
    assert "9 of 9 configurations (9 failed)" in text
    assert "Requested, but without any value: latency, memory, FLOPs, energy, accuracy." in text
    assert {path.stem for path in written if path.parent.name == "figures"} == {"length-parameters"}


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (["closed form, torch"] * 4, "closed form, torch"),
        (["closed form, torch", "torch"] * 2, "closed form, torch; torch"),
        ([None] * 4, "closed form, torch, fvcore"),  # as in runs from before the column
    ],
)
def test_the_counts_that_were_compared_are_named(make_data: MakeData, tmp_path: Path, named: list[str | None], told: str) -> None:
    def change(rows: pandas.DataFrame) -> None:
        rows["flops_counted_by"] = named

    write_report(make_data(models=["gmlp", "vit"], lengths=[17, 65], metrics=["params", "flops"], change=change), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert f"The FLOP counts ({told}) agree in 4 of 4 configurations." in text
    assert f"counted by {told}. The counts of a configuration must agree exactly." in text


def test_one_cell_of_a_quick_run(make_data: MakeData, tmp_path: Path) -> None:
    metrics = ["params", "latency"]
    written = write_report(make_data(models=["vit"], lengths=[17], metrics=metrics, quick=True, control=None), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert text.splitlines()[4].startswith("> **Quick run: 3 rounds")
    assert "compares nothing" in text
    assert "This run has no A/A control" in text
    assert "Not requested in this run: memory, FLOPs, energy, accuracy." in text
    assert {path.stem for path in written if path.parent.name == "figures"} == {"latency", "length-parameters"}


def test_nothing_at_all(make_data: MakeData, tmp_path: Path) -> None:
    data = make_data(models=[], metrics=[], environment={}, findings=[])
    written = write_report(data, tmp_path)
    assert [path.name for path in written] == ["report.md", "report.html", "verdicts.json"]
    assert "The plan holds no configurations." in (tmp_path / "report.md").read_text()


def test_equal_data_give_equal_bytes(make_data: MakeData, tmp_path: Path) -> None:
    data = make_data(models=["gmlp", "vit"], lengths=[17, 65], metrics=["params", "latency"])
    first = {path.name: path.read_bytes() for path in write_report(data, tmp_path / "a")}
    again = {path.name: path.read_bytes() for path in write_report(data, tmp_path / "b")}
    assert first == again


def test_what_cannot_be_written_leaves_no_half_file(make_data: MakeData, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OSError, match=r"report\.html"):
        write_report(make_data(models=["vit"], lengths=[17], metrics=[]), tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".json", ".md", ".pdf", ".png", ".svg")]


def test_no_torch() -> None:
    code = "import sys, bench.report.write; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

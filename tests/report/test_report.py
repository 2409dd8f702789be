from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pandas
import pytest

from bench.analysis.study import Study
from bench.analysis.trust import Concern
from bench.report.charts.figures import MAX_FIGURES
from bench.report.charts.style import DARK, GRID, INK, PAPER, ROLES, figure_style
from bench.report.document import Claims, TableBlock
from bench.report.images import svg_file
from bench.report.page import build_document
from bench.report.sections.method import machine_and_software
from bench.report.write import write_report
from tests.report.conftest import MakeData, page_text

ATTACK = "<script>alert(1)</script>"
VISIBLE = ["Answer", "Fastest at each n", "Figures", "Explore"]
FOLDED = [
    "Claims",
    "All rows",
    "Pair by pair: who is faster",
    "How cost grows with n",
    "Where the n² terms are",
    "Skipped, failed and unstable",
    "Can this machine be trusted?",
    "Method",
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


def fail_all(rows: pandas.DataFrame) -> None:
    rows[["status", "reason"]] = ["failed", f"no compiler {ATTACK}"]
    rows[["latency_ms", "peak_memory_bytes", "flops", "accuracy"]] = None


@pytest.fixture(scope="module")
def study(make_data: MakeData) -> Study:
    """One cell ran out of memory, one is unstable."""

    def change(rows: pandas.DataFrame) -> None:
        rows.loc[8, ["status", "reason", "latency_ms", "peak_memory_bytes"]] = ["out_of_memory", "12 GiB", None, None]
        rows["latency_stable"] = [False, *[True] * 8]

    return make_data(works=[{"task": "digits"}], change=change)


@pytest.fixture(scope="module")
def report(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full report's folder."""
    folder = tmp_path_factory.mktemp("report")
    write_report(study, folder)
    return folder


def test_every_figure_of_the_page_is_a_file(report: Path) -> None:
    names = re.findall(r'<figure id="([^"]+)"', (report / "report.html").read_text())
    assert 0 < len(names) <= MAX_FIGURES
    assert {path.name for path in (report / "figures").iterdir()} == {f"{name}.svg" for name in names}
    assert all(path.stat().st_size > 1000 for path in (report / "figures").iterdir())


def test_equal_data_give_equal_bytes(make_data: MakeData, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        write_report(make_data(models=["gmlp", "vit"], lengths=[17, 65], metrics=["params", "latency"]), folder)
    names = {path.relative_to(first) for path in first.rglob("*.*")}
    assert names == {path.relative_to(second) for path in second.rglob("*.*")}
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_a_figure_beside_the_page_is_dark_where_its_readers_browser_is(report: Path) -> None:
    files = [path.read_text() for path in (report / "figures").iterdir()]
    for file in files:
        light, dark = re.findall(r"<style>(.*?)@media\(prefers-color-scheme:dark\)\{(.*?)\}</style>", file, re.DOTALL)[0]
        for color in (INK, GRID, PAPER):
            assert color in light
            assert color not in dark
            assert DARK[color] in dark
        shown = ElementTree.fromstring(file).iter()
        assert {element.get("class") for element in shown} - {None} == set(re.findall(r"\.(\w+)\{", light))
        assert "style=" not in file
    assert all(any(color in file for file in files) for color in (ROLES["gmlp"], ROLES["fused"], ROLES["transformer"]))


def test_the_letters_of_a_figure_keep_their_size() -> None:
    drawn = b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M 1.23456 2" transform="scale(0.015625)" style="fill: red"/></svg>'
    assert b'd="M1.23 2" transform="scale(0.015625)" class="s0"' in svg_file(drawn)


def test_sections_in_the_order_of_reading(report: Path, study: Study) -> None:
    text = (report / "report.html").read_text()
    assert [title for title in Page(text).texts if title in [*VISIBLE, *FOLDED]] == [*VISIBLE, *FOLDED]
    assert text.count('<details class="section">') == len(FOLDED)
    assert re.findall(r"^## (.+)$", page_text(study), re.MULTILINE) == [*VISIBLE, *FOLDED]


def test_markdown_has_the_visible_part_the_claims_and_where_the_rest_is(report: Path) -> None:
    text = (report / "report.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [*VISIBLE[:-1], "Claims", "The rest"]
    assert "bench report RUN builds report.html" in text.rpartition("## The rest")[2]


def test_the_text_says_what_the_data_hold(study: Study) -> None:
    text = page_text(study)
    assert "transformer | 257 | 250 k | out_of_memory | 12 GiB" in re.sub(" +", " ", text)
    assert "weights (blocks.gating.spatial_projection)" in text
    assert "No energy: RAPL shows no CPU package." in text


def test_the_page_needs_nothing_else(report: Path) -> None:
    page = Page((report / "report.html").read_text())
    assert not {"link", "iframe", "object"} & set(page.tags)
    assert any(
        (value or "").startswith("default-src 'none'; script-src 'unsafe-inline';") for name, value in page.attributes if name == "content"
    )
    assert not [value for name, value in page.attributes if name == "src"]
    assert not [value for name, value in page.attributes if name == "href" and not (value or "").startswith("#")]


def test_ids_of_a_page_are_unique_and_its_references_lead_somewhere(report: Path) -> None:
    text = (report / "report.html").read_text()
    found = re.findall(r'\bid="([^"]+)"', text)
    assert len(found) == len(set(found))
    assert set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text)) <= {pair for name in found for pair in ((name, ""), ("", name))}


def test_a_figure_inside_the_page_follows_its_theme_and_holds_no_script(make_data: MakeData, tmp_path: Path) -> None:
    data = make_data(models=["gmlp", ATTACK], lengths=[17, 65], metrics=["params", "latency"])
    write_report(data, tmp_path)
    figures = re.findall(r"<svg.*?</svg>", (tmp_path / "report.html").read_text(), re.DOTALL)
    assert figures
    assert any(html.escape(ATTACK, quote=False) in figure for figure in figures)
    for figure in figures:
        assert not {"script", "style", "foreignObject"} & set(Page(figure).tags)
        assert 'role="img" aria-label="' in figure
        assert "var(--ink)" in figure
        assert not [color for color in (INK, GRID, PAPER) if color in figure]


def test_text_from_records_stays_text(make_data: MakeData, tmp_path: Path) -> None:
    data = make_data(
        models=["gmlp", ATTACK],
        lengths=[17],
        change=fail_all,
        name=ATTACK,
        concerns=[Concern(text=ATTACK, advice=ATTACK, serious=True)],
        environment={ATTACK: ATTACK},
    )
    write_report(data, tmp_path)
    markdown, page = (tmp_path / "report.md").read_text(), Page((tmp_path / "report.html").read_text())
    assert "<script" not in re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in markdown
    write_report(make_data(models=["gmlp", "other"], lengths=[17], change=fail_all), tmp_path / "harmless")
    harmless = Page((tmp_path / "harmless" / "report.html").read_text())
    assert page.tags.count("script") == harmless.tags.count("script") > 0
    assert "img" not in [tag for tag in page.tags if tag not in harmless.tags]
    assert ATTACK in page.texts


@pytest.mark.usefixtures("without_figures")
def test_every_cell_failed(make_data: MakeData, tmp_path: Path) -> None:
    data = make_data(change=fail_all)
    write_report(data, tmp_path)
    assert "Not measured: 9 of 9 configurations (9 failed)." in (tmp_path / "report.md").read_text()


@pytest.mark.usefixtures("without_figures")
def test_the_counts_that_were_compared_are_named_in_runs_from_before_the_column_too(make_data: MakeData) -> None:
    text = page_text(make_data(models=["gmlp", "vit"], lengths=[17, 65], metrics=["params", "flops"]))
    assert "The FLOP counts (closed form, torch, fvcore) agree in 4 of 4 configurations." in text


@pytest.mark.usefixtures("without_figures")
def test_a_control_of_few_rounds_has_their_range(make_data: MakeData) -> None:
    known = {"cell": "gmlp, n = 17", "ratio": 1.002, "low": 0.99, "high": 1.014, "contains_one": True, "level": 0.999, "is_range": False}
    text = page_text(make_data(control={**known, "is_range": True, "num_rounds": 7}))
    assert "ratio 1.002 (0.990 to 1.014), the range over rounds; 7 are too few for an interval at 99.9 %." in text


@pytest.mark.usefixtures("without_figures")
def test_one_cell_of_a_quick_run(make_data: MakeData) -> None:
    text = page_text(make_data(models=["vit"], lengths=[17], metrics=["params", "latency"], quick=True, control=None))
    assert "quick run (3 rounds): a first impression, not for publication" in text.splitlines()[2]
    assert "This run measured nothing that can be compared." in text
    assert "Not requested in this run: memory, FLOPs, energy, accuracy." in text


def test_nothing_at_all(make_data: MakeData, tmp_path: Path) -> None:
    data = make_data(models=[], metrics=[], environment={}, concerns=[])
    write_report(data, tmp_path)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"report.md", "report.html", "verdicts.json"}
    assert "The plan holds no configurations." in page_text(data)


def test_what_cannot_be_written_leaves_no_half_file(make_data: MakeData, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OSError, match=r"report\.html"):
        write_report(make_data(models=["vit"], lengths=[17], metrics=[]), tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".json", ".md", ".svg")]


@pytest.mark.usefixtures("without_figures")
def test_a_claim_about_what_was_not_measured_is_not_made(make_data: MakeData) -> None:
    """Closed forms are known all the same."""
    with figure_style():
        document = build_document(make_data(metrics=("params",)))
    (claims,) = [section for section in document.sections if section.title == "Claims"]
    texts = [item.text for block in claims.blocks if isinstance(block, Claims) for item in block.items]
    assert any("gMLP's FLOPs are quadratic" in text for text in texts)
    assert not any(word in text for text in texts for word in ("time", "memory", "activations", "faster", "accuracy"))


def test_the_machines_table_counts_packages_and_names_older_runs_few() -> None:
    def row(packages: dict[str, str | None]) -> tuple[str, ...]:
        (table,) = machine_and_software({"packages": packages})
        assert isinstance(table, TableBlock)
        return table.table.rows[0]

    assert row({f"p{number}": "1" for number in range(87)}) == ("packages", "87, in environment.json")
    assert row({"numpy": "2.5.2", "timm": None}) == ("packages", "numpy: 2.5.2, timm: not known")

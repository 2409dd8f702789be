from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import pytest

from bench.report.document import Document, ExplorerBlock, Section, TableBlock
from bench.report.html import PAGE_ROWS, TEMPLATES, safe_json, to_html, tone
from bench.report.tables import Table
from tests.report.conftest import contrast

TEXT_CONTRAST = 4.5
PAIRS = (
    *(("ink", "page"), ("ink", "shade"), ("ink", "wash"), ("soft", "page"), ("soft", "shade"), ("mark", "page")),
    *(("good", "good-wash"), ("bad", "bad-wash"), ("open", "open-wash")),
)


def page(table: Table) -> str:
    document = Document(title="t", subtitle="s", notice="", sections=(Section(title="S", blocks=(TableBlock(table=table),)),))
    return to_html(document, {})


def themes() -> dict[str, dict[str, str]]:
    found = re.findall(r":root \{(.*?)\}", (TEMPLATES / "page.css").read_text(), re.DOTALL)
    return {
        name: dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", body)) for name, body in zip(("light", "dark", "print"), found, strict=True)
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "paper"), PAIRS)
def test_text_stands_out(theme: str, ink: str, paper: str) -> None:
    colors = themes()[theme]
    assert contrast(colors[ink], colors[paper]) >= TEXT_CONTRAST


def test_the_contrast_test_can_fail() -> None:
    assert round(contrast("#000000", "#ffffff"), 2) == 21
    assert contrast("#999999", "#ffffff") < TEXT_CONTRAST


def test_json_cannot_leave_its_script() -> None:
    data: Any = {"a": "</script><!--&\u2028'\""}
    text = str(safe_json(data))
    assert json.loads(text) == data
    assert not set("<>&\u2028") & set(text)
    with pytest.raises(ValueError, match="Out of range"):
        safe_json([float("nan")])


def test_a_long_table_keeps_its_first_rows_as_html_and_says_so() -> None:
    rows = tuple((f"row {i}", "</script>") for i in range(PAGE_ROWS + 7))
    long, short = (
        page(Table(headers=("a", "b"), numeric=(False, False), rows=rows)),
        page(Table(headers=("a", "b"), numeric=(False, False), rows=rows[:PAGE_ROWS])),
    )
    assert long.count('<th scope="row"') == short.count('<th scope="row"') == PAGE_ROWS
    assert f"7 of {PAGE_ROWS + 7} rows are not in this table; the run's table.csv" in long
    assert "rows are not in this table" not in short
    (rest,) = re.findall(r'<script type="application/json" class="rest">(.*?)</script>', long)
    assert json.loads(rest)["rows"] == [list(row) for row in rows[PAGE_ROWS:]]


def test_states_are_badges_and_numbers_carry_their_keys() -> None:
    table = Table(
        headers=("claim", "ms", "verdict"),
        numeric=(False, True, False),
        rows=(("a", "2.0 ms", "supported"), ("b", "", "refuted"), ("c", "", "else")),
        keys=((None, 2.04, None), (None, None, None), (None, None, None)),
        badges=(False, False, True),
    )
    text = page(table)
    assert '<td data-key="2.04">2.0 ms</td>' in text
    assert '<span class="badge good">supported</span>' in text
    assert '<span class="badge bad">refuted</span>' in text
    assert tone("undecided") == "open"
    assert tone("else") == "plain"


def test_only_a_page_with_an_explorer_carries_its_library() -> None:
    explorer = ExplorerBlock(data={"notes": ["</script><b>"]})
    text = to_html(Document(title="t", subtitle="s", notice="", sections=(Section(title="S", blocks=(explorer,)),)), {})
    plain = page(Table(headers=("a",), numeric=(False,), rows=(("b",),)))
    for sign in ("var uPlot=", "Permission is hereby granted", 'class="explorer"', "<noscript>", ".u-wrap"):
        assert sign in text
        assert sign not in plain
    assert "</script><b>" not in text
    (data,) = re.findall(r'<script type="application/gzip">(.*?)</script>', text)
    assert json.loads(gzip.decompress(base64.b64decode(data))) == explorer.data


def test_the_vendored_library_is_the_version_that_its_note_names() -> None:
    (version,) = re.findall(r"uPlot (\S+)", (TEMPLATES / "vendor" / "README.md").read_text())[:1]
    assert f"(v{version})" in (TEMPLATES / "vendor" / "uPlot.iife.min.js").read_text()
    assert f"uPlot {version}" in (TEMPLATES / "explorer.html.j2").read_text()

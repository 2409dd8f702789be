from __future__ import annotations

import pytest

from bench.report.document import Bullets, Code, Document, Paragraph, Section, TableBlock
from bench.report.markdown import MAX_ROWS, escape, to_markdown
from bench.report.tables import Table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a | b", r"a \| b"),
        ("[x](javascript:y)", r"\[x\](javascript:y)"),
        ("4.2 ms [4.1, 4.3]", "4.2 ms [4.1, 4.3]"),
        ("[1](javascript:y)", r"\[1\](javascript:y)"),
        ("[1]: http://x", r"\[1\]: http://x"),
        ("peak_memory _x_ *y* `z`", r"peak_memory \_x\_ \*y\* \`z\`"),
        ("# not a title\n- not a list", r"\# not a title - not a list"),
        ("1. not a list", r"1\. not a list"),
        ("1.36 M and +0.12 %", "1.36 M and +0.12 %"),
        ("+0.12 %", "+0.12 %"),
        ("a & b &lt;", "a &amp; b &amp;lt;"),
    ],
)
def test_escape(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_a_table_cell_cannot_leave_its_cell() -> None:
    table = Table(headers=("a", "b"), numeric=(False, True), rows=(("x | y\nz", "1"),))
    document = Document(title="t", subtitle="s", notice="", sections=(Section(title="S", blocks=(TableBlock(table=table),)),))
    assert "| x \\| y z | 1 |" in to_markdown(document).splitlines()


def test_a_fence_is_longer_than_any_in_the_code() -> None:
    blocks = (Code(text="```\n<b>"), Paragraph(text="p"), Bullets(items=("one",)))
    text = to_markdown(Document(title="t", subtitle="s", notice="now", sections=(Section(title="S", blocks=blocks),)))
    assert "````sh\n```\n<b>\n````" in text
    assert "> **now**" in text


@pytest.mark.parametrize("num_more", [0, 3])
def test_a_long_table_says_what_it_leaves_out(num_more: int) -> None:
    rows = tuple((f"row {i}",) for i in range(MAX_ROWS + num_more))
    blocks = (TableBlock(table=Table(headers=("name",), numeric=(False,), rows=rows)),)
    text = to_markdown(Document(title="t", subtitle="s", notice="", sections=(Section(title="S", blocks=blocks),)))
    assert text.count("| row ") == MAX_ROWS
    assert ("3 more rows are left out." in text) == bool(num_more)

"""Write a document as GitHub-flavoured Markdown.

Texts from records are escaped, so HTML, links and tables inside them have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.report.document import Block, Bullets, Claimed, Claims, Code, Document, ExplorerBlock, FigureBlock, Paragraph, Section, Strip
from bench.report.tables import Table

INTERVAL = re.compile(r"\[[-+0-9., ]+\](?![(\[:])")
SPECIAL = re.compile(r"[\\`*~|\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^(?:>|[#+=-](?=[\s#+=-]|$)|\d+[.)](?=\s|$))")
MAX_ROWS = 500
HTML_SPECIAL = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def to_markdown(document: Document) -> str:
    """Return the document as Markdown; figures link to figures/NAME.svg."""
    head = [f"# {escape(document.title)}", escape(document.subtitle)]
    notice = [f"> **{escape(document.notice)}**"] if document.notice else []
    return "\n\n".join(part for part in (*head, *notice, *map(_section, document.sections)) if part) + "\n"


def escape(text: str) -> str:
    """Return a text on one line with Markdown and HTML escaped.

    Intervals such as [4.1, 4.3] keep their brackets.
    """
    line = " ".join(text.split())
    parts, last = [], 0
    for match in INTERVAL.finditer(line):
        parts += [_escaped(line[last : match.start()], at_start=last == 0), match.group()]
        last = match.end()
    return "".join([*parts, _escaped(line[last:], at_start=last == 0)])


def _escaped(text: str, at_start: bool) -> str:
    """Escape a text; list and heading marks only at the start."""

    def replaced(match: re.Match[str]) -> str:
        found = match.group()
        if match.start() == 0 and not at_start and found[0] in "#+=-0123456789":
            return found
        return found[:-1] + "\\" + found[-1]

    safe = SPECIAL.sub(replaced, text.replace(">", "\0"))
    return "".join(HTML_SPECIAL.get(character, character) for character in safe.replace("\0", ">"))


def _section(section: Section) -> str:
    return "\n\n".join([f"## {escape(section.title)}", *filter(None, map(_block, section.blocks))])


def _block(block: Block) -> str:
    if isinstance(block, ExplorerBlock):
        return ""
    if isinstance(block, Paragraph):
        return escape(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {escape(item)}" for item in block.items)
    if isinstance(block, Code):
        return _fenced(block.text)
    if isinstance(block, FigureBlock):
        return _figure(block)
    if isinstance(block, Strip):
        return _strip(block)
    if isinstance(block, Claims):
        return "\n".join(f"- **{item.answer}** {escape(_claim(item))}" for item in block.items)
    return _table(block.table) + (f"\n\n{escape(block.caption)}" if block.caption else "")


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def _figure(block: FigureBlock) -> str:
    table = _folded(block.table) if block.table else ""
    missing = f"\n\nNot in this figure: {escape('; '.join(block.missing))}." if block.missing else ""
    return f"### {escape(block.title)}\n\n![{escape(block.title)}](figures/{block.name}.svg)\n\n{escape(block.caption)}{missing}{table}"


def _claim(item: Claimed) -> str:
    return f"{item.text}: {item.figure}" if item.figure else item.text


def _strip(strip: Strip) -> str:
    rows = tuple((name, *(field.text for field in fields)) for name, fields in strip.rows)
    table = Table(headers=strip.headers, numeric=(False,) * len(strip.headers), rows=rows)
    return f"{_table(table)}\n\n{escape(strip.caption)}"


def _folded(table: Table) -> str:
    """Return a folded table, so that readers see the figure first."""
    return f"\n\n<details><summary>Table behind this figure ({len(table.rows):,} rows)</summary>\n\n{_table(table)}\n\n</details>"


def _table(table: Table) -> str:
    rule = ["---:" if numeric else "---" for numeric in table.numeric]
    shown, left_out = table.rows[:MAX_ROWS], len(table.rows) - MAX_ROWS
    lines = [[escape(text) for text in table.headers], rule, *([escape(text) for text in row] for row in shown)]
    note = f"\n\n{left_out:,} more rows are left out." if left_out > 0 else ""
    return "\n".join(map(_line, lines)) + note


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"

"""Show the ratios of one request by host, as a table, page and CSV file.

This module imports no torch.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import console, numbers
from bench.analysis.pool import HostRatio, Pool
from bench.files import write_text_below
from bench.intervals import LEVEL
from bench.report.document import Bullets, Document, Section, TableBlock
from bench.report.markdown import to_markdown
from bench.report.tables import Table

PAGE, NUMBERS = "pool.md", "pool.csv"
HEADERS = ("comparison", "host type", "runs", "ratio of times")
COLUMNS = (
    *("comparison", "host_type", "work_version", "num_runs", "ratio"),
    *("interval_low", "interval_high", "lowest", "highest", "first", "second"),
)
VERSION_DIGITS = 6
ABOUT = (
    "A ratio is the time of the first over the time of the second: below 1, the first is faster.",
    "One run: its 95 % interval in brackets. In an ablation it is that of the variant's effect, which holds for all comparisons of the run together.",
    "Rounds that are too few for an interval have their range in parentheses.",
    "Several runs of a host type: their median, with the lowest and the highest in parentheses.",
    "Unlike host types stand side by side and are not joined; what they say of other types is not known.",
)


def table_of(pool: Pool) -> Table:
    """Return a table with one row per comparison and host."""
    return Table(headers=HEADERS, numeric=(False, False, True, True), rows=tuple(_texts(pool)))


def ratio_text(row: HostRatio) -> str:
    """Format as 1.24 [1.20, 1.28] for one run, 1.24 (1.22 to 1.27) for several."""
    if row.extremes:
        return f"{numbers.significant(row.median)} ({' to '.join(map(numbers.significant, row.extremes))})"
    return numbers.ratio_interval(row.ratios[0])


def json_of(pool: Pool) -> dict[str, Any]:
    """Return the pool as one JSON document."""
    named = zip(pool.runs, pool.hosts, pool.boots, strict=True)
    runs = [{"run": name, "host_type": host.type, "work_version": host.work_version, "boot": boot} for name, host, boot in named]
    return {"runs": runs, "level": LEVEL, "rows": list(map(_values, pool.rows)), "notes": list(pool.notes)}


def show(pool: Pool, as_json: bool) -> None:
    """Print the pool as text, or as one JSON document with `as_json`."""
    if as_json:
        console.print_json(json_of(pool))
        return
    table = table_of(pool)
    console.print_table(table.headers, table.rows, table.numeric)
    console.print_lines("", *ABOUT, *pool.notes)


def write_pool(pool: Pool, folder: Path) -> Path:
    """Write pool.md and pool.csv into `folder`, which may be missing; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_values, pool.rows))
    write_text_below(folder, NUMBERS, text.getvalue())
    write_text_below(folder, PAGE, to_markdown(_document(pool)))
    return folder / PAGE


def _values(row: HostRatio) -> dict[str, Any]:
    interval = (row.interval.low, row.interval.high) if row.interval and not row.interval.is_open else (None, None)
    host = (row.host.type, row.host.work_version)
    values = (row.comparison, *host, len(row.ratios), row.median, *interval, *(row.extremes or (None, None)), *row.cells)
    return dict(zip(COLUMNS, values, strict=True))


def _texts(pool: Pool) -> Iterator[tuple[str, ...]]:
    several_versions = len({host.work_version for host in pool.hosts}) > 1
    previous = ""
    for row in pool.rows:
        code = f", code {row.host.work_version[:VERSION_DIGITS]}" if several_versions else ""
        yield "" if row.comparison == previous else row.comparison, row.host.type + code, str(len(row.ratios)), ratio_text(row)
        previous = row.comparison


def _document(pool: Pool) -> Document:
    types = len({host.type for host in pool.hosts})
    named = zip(pool.runs, pool.hosts, pool.boots, strict=True)
    runs = [f"{name}: {host.type}, boot {boot or 'unknown'}, timed code {host.work_version}" for name, host, boot in named]
    return Document(
        title=f"{pool.runs[0]}, by host type",
        subtitle=f"{len(pool.runs)} runs on {types} host type{'' if types == 1 else 's'}",
        notice="",
        sections=(
            Section(title="Ratios", blocks=(TableBlock(table=table_of(pool)),)),
            Section(title="Scope and limits", blocks=(Bullets(items=(*ABOUT, *pool.notes)),)),
            Section(title="Runs", blocks=(Bullets(items=tuple(runs)),)),
        ),
    )

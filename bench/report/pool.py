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
from bench.spec import RequestError

PAGE, NUMBERS = "pool.md", "pool.csv"
HEADERS = ("comparison", "host type", "ratio of times")
COLUMNS = (
    *("comparison", "host_type", "work_version", "run", "ratio", "interval_low", "interval_high"),
    *("num_occasions", "lowest", "highest", "first", "second"),
)
VERSION_DIGITS = 6
ABOUT = (
    "A ratio is the time of the first over the time of the second: below 1, the first is faster.",
    "In brackets each run's 95 % interval, as in its report; rounds that are too few for one have their range in parentheses.",
    "Several runs of a host type are occasions. The range over them shows what a single run's interval lacks; it is no interval.",
    "Unlike host types stand side by side and are not joined; what they say of other types is not known.",
)


def table_of(pool: Pool) -> Table:
    """Return a table with one row per comparison and host."""
    return Table(headers=HEADERS, numeric=(False, False, False), rows=tuple(_texts(pool)))


def ratio_text(row: HostRatio) -> str:
    """Format as 1.29 [1.27, 1.31] for one run; several are followed by `; over 3 occasions 1.26 to 1.33`."""
    over = f"; over {len(row.ratios)} occasions {numbers.span(row.extremes)}" if row.extremes else ""
    return ", ".join(numbers.ratio_interval(ratio) for _, ratio in row.ratios) + over


def json_of(pool: Pool) -> dict[str, Any]:
    """Return the pool as one JSON document."""
    named = zip(pool.runs, pool.hosts, pool.boots, strict=True)
    runs = [{"run": name, "host_type": host.type, "work_version": host.work_version, "boot": boot} for name, host, boot in named]
    return {"runs": runs, "level": LEVEL, "rows": list(_values(pool)), "notes": list(pool.notes)}


def show(pool: Pool, as_json: bool) -> None:
    """Print the pool as text, or as one JSON document with `as_json`."""
    if as_json:
        console.print_json(json_of(pool))
        return
    table = table_of(pool)
    console.print_table(table.headers, table.rows, table.numeric)
    console.print_lines("", *ABOUT, *pool.notes)


def require_same_runs(pool: Pool, folder: Path) -> None:
    """Raise RequestError if `folder` holds a page of other runs, which would be lost."""
    try:
        with (folder / NUMBERS).open(encoding="utf-8", newline="") as file:
            others = {row["run"] for row in csv.DictReader(file)} - set(pool.runs)
    except (OSError, KeyError):
        return
    if others:
        raise RequestError(f"{folder} has a page of other runs, such as {min(others)}", "add `out`, with another folder")


def write_pool(pool: Pool, folder: Path) -> None:
    """Write pool.md and pool.csv into `folder`, which may be missing."""
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_values(pool))
    write_text_below(folder, NUMBERS, text.getvalue())
    write_text_below(folder, PAGE, to_markdown(_document(pool)))


def _values(pool: Pool) -> Iterator[dict[str, Any]]:
    for row in pool.rows:
        for run, ratio in row.ratios:
            values = (row.comparison, row.host.type, row.host.work_version, run, ratio.estimate, *ratio.bounds)
            occasions = (len(row.ratios), *(row.extremes or (None, None)), *row.cells)
            yield dict(zip(COLUMNS, (*values, *occasions), strict=True))


def _texts(pool: Pool) -> Iterator[tuple[str, ...]]:
    several_versions = len({host.work_version for host in pool.hosts}) > 1
    previous = ""
    for row in pool.rows:
        code = f", code {row.host.work_version[:VERSION_DIGITS]}" if several_versions else ""
        yield "" if row.comparison == previous else row.comparison, row.host.type + code, ratio_text(row)
        previous = row.comparison


def _document(pool: Pool) -> Document:
    types = len({host.type for host in pool.hosts})
    named = zip(pool.runs, pool.hosts, pool.boots, strict=True)
    runs = [f"{name}: {host.type}, boot {boot or 'unknown'}, timed code {host.work_version}" for name, host, boot in named]
    return Document(
        title=f"{pool.runs[0]}, by host type",
        subtitle=f"{len(pool.runs)} runs on {numbers.counted(types, 'host type')}",
        notice="",
        sections=(
            Section(title="Ratios", blocks=(TableBlock(table=table_of(pool)),)),
            Section(title="Scope and limits", blocks=(Bullets(items=(*ABOUT, *pool.notes)),)),
            Section(title="Runs", blocks=(Bullets(items=tuple(runs)),)),
        ),
    )

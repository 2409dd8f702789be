"""Print tables, texts and one-line errors to the terminal.

Data goes to stdout, everything else to stderr. Functions that need rich import it themselves, since its import would slow every
start of the program.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

PIPED_WIDTH = 100
"""Columns of a table if stdout is not a terminal and COLUMNS is not set."""
GAP, MIN_TEXT = 2, 20
"""Columns between two columns of a table, and the width below which long words of a text are not broken."""
MINUTE_S = 60.0

PLAIN_LETTERS = "bench.plain_letters"
"""Name of the rule for characters that a stream cannot encode."""
PLAIN = {"×": "x", "²": "2", "·": "*", "…": "..."}
CONTROL_CHARACTERS = {code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"}


def without_control_characters(text: str) -> str:
    """Remove control characters, so that text cannot control the terminal."""
    return text.translate(CONTROL_CHARACTERS)


def plain_where_needed() -> None:
    """Let stdout and stderr write characters that their encoding lacks in plain letters: `1.2x` for `1.2×`."""
    codecs.register_error(PLAIN_LETTERS, _in_plain_letters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors=PLAIN_LETTERS)


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(PLAIN.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters), error.end


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=1, allow_nan=False) + "\n")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool] | None = None, title: str = "") -> None:
    """Print a plain table with its title to stdout, as wide as the window or PIPED_WIDTH.

    Of a table that is too wide, columns with one value in all rows move into a line below, and empty ones vanish. Then texts of more than
    MIN_TEXT characters wrap. If it is still too wide, columns are left out from the right and named below; so the most important columns
    come first. Empty headers are not shown.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    window = window_width(sys.stdout)
    is_number = numeric or (False,) * len(headers)
    columns = [
        _Column(header=header, texts=tuple(map(without_control_characters, texts)), is_number=right)
        for header, right, texts in zip(headers, is_number, zip(*rows, strict=True) if rows else ((),) * len(headers), strict=True)
    ]
    is_wide = _total(column.width for column in columns) > window
    constant = [column for column in columns[1:] if column.is_constant] if is_wide else []
    columns = [column for column in columns if column not in constant]
    widths = _fitting_widths(columns, window)
    table = RichTable(box=None, pad_edge=False, header_style="bold", show_header=any(headers))
    for column, width in zip(columns, widths, strict=False):
        table.add_column(escape(column.header), justify="right" if column.is_number else "left", overflow="fold", width=width)
    for texts in zip(*(column.texts for column in columns[: len(widths)]), strict=True):
        table.add_row(*map(escape, texts))
    console = Console(width=window, highlight=False)
    with console.capture() as captured:
        console.print(table)
    lines = [*title.split("\n")] if title else []
    lines += [line.rstrip() for line in captured.get().splitlines()]
    if shared := [f"{column.header}: {column.texts[0]}" for column in constant if column.texts[0]]:
        lines += [wrapped(f"in every row: {'; '.join(shared)}", window)]
    if left_out := columns[len(widths) :]:
        lines += [wrapped(f"left out for lack of width: {'; '.join(column.header for column in left_out)}", window)]
    sys.stdout.write("\n".join(lines) + "\n")


@dataclass(frozen=True, kw_only=True)
class _Column:
    header: str
    texts: tuple[str, ...]
    is_number: bool

    @property
    def width(self) -> int:
        return max(map(len, (self.header, *self.texts)))

    @property
    def least_width(self) -> int:
        """The width of the longest number, or of a text up to MIN_TEXT; headers wrap."""
        longest = max(map(len, self.texts), default=0)
        return max(longest if self.is_number else min(longest, MIN_TEXT), *map(len, self.header.split()), 0)

    @property
    def is_constant(self) -> bool:
        return len(self.texts) > 1 and len(set(self.texts)) == 1 and bool(self.header)


def _total(widths: Iterable[int]) -> int:
    """Return the width of a table with columns of these widths."""
    found = list(widths)
    return sum(found) + GAP * (len(found) - 1)


def _fitting_widths(columns: Sequence[_Column], window: int) -> list[int]:
    """Return the widths of as many columns, from the left, as fit the window."""
    least = [column.least_width for column in columns]
    while len(least) > 1 and _total(least) > window:
        least.pop()
    widths = [column.width for column in columns[: len(least)]]
    while _total(widths) > max(window, _total(least)):  # shrink the widest column that can shrink
        widths[max((i for i in range(len(widths)) if widths[i] > least[i]), key=lambda i: widths[i])] -= 1
    return widths


def window_width(stream: TextIO) -> int:
    """Return the columns of the stream's window; without one, COLUMNS or PIPED_WIDTH."""
    if stream.isatty():
        return shutil.get_terminal_size().columns
    wanted = os.environ.get("COLUMNS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else PIPED_WIDTH


def print_lines(*texts: str) -> None:
    """Print texts to stdout, each on lines of its own that fit the window."""
    for text in texts:
        print_line(wrapped(text, window_width(sys.stdout)))


def print_line(text: str) -> None:
    """Print a text to stdout as it is, for programs that read lines."""
    sys.stdout.write(without_control_characters(text) + "\n")


def wrapped(text: str, width: int) -> str:
    """Break a text between words into lines of at most this width, all with its indent."""
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def say(text: str) -> None:
    """Print a remark to stderr: a path, a warning, a finding.

    The text is dropped if the terminal has been closed.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(without_control_characters(text) + "\n")


def say_wrapped(text: str) -> None:
    """Print a remark to stderr, in lines that fit the window."""
    say(wrapped(text, window_width(sys.stderr)))


def notice(text: str) -> None:
    """Print a remark from a signal handler, bypassing all buffers."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def error(message: str, hint: str = "") -> None:
    """Print an error as one line, and a hint as another."""
    one_line = without_control_characters(" ".join(message.split()))
    sys.stderr.write(f"error: {one_line}\n")
    if hint:
        sys.stderr.write(f"hint: {without_control_characters(' '.join(hint.split()))}\n")


def duration_text(seconds: float) -> str:
    """Write a duration as `95 s`, `12 min` or `1.5 h`; at least a second."""
    if seconds < 2 * MINUTE_S:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 60 * MINUTE_S else f"{seconds / 3600:.1f} h"

"""The terminal: texts that steer nothing, tables that fit, durations that promise nothing."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import pytest

from bench import console

STEERING = "\x1b[2J\x1b]0;title\x07gone\x9b31m"
SHOWN = "[2J]0;titlegone31m"
LONG = "a text of many words that has to go on in further lines " * 4
MODELS = ("metaformer+mixer=attention+residual=pre", "vit")


def test_text_from_records_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(("[red]cell",), [("[bold]a[/bold]",)])
    assert "[bold]a[/bold]" in capsys.readouterr().out  # markup is shown as typed
    console.print_table(("cell", "reason"), [("a", STEERING)])
    console.print_lines(STEERING)
    console.say(STEERING)
    console.error(STEERING, hint=STEERING)
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert out.count(SHOWN) == 2
    assert err.count(SHOWN) == 3


def printed(
    capsys: pytest.CaptureFixture[str], headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], numeric: tuple[bool, ...]
) -> list[str]:
    console.print_table(headers, rows, numeric)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= console.PIPED_WIDTH
    return lines


def test_long_texts_wrap_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, ("model", "n", "reason"), [(name, "17", f"{name[0]} {LONG}") for name in MODELS], (False, True, False))
    assert sum(line.count("words") for line in lines) == len(MODELS) * LONG.count("words")


def test_what_all_rows_of_a_wide_table_share_becomes_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    headers, same = ("model", "n", "task", "engine"), ("a task of a long name, " * 3, "eager, " * 8)
    lines = printed(capsys, headers, [("gmlp", "17", *same), ("vit", "65", *same)], (False, True, False, False))
    assert lines[0].split() == ["model", "n"]
    assert " ".join(lines[3:]).startswith("in every row: task: a task of a long name, ")
    assert "; engine: eager, " in " ".join(lines[3:])


def test_a_table_too_wide_for_its_numbers_names_the_columns_that_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    headers = ("model", *(f"latency{place}" for place in range(6)))
    rows = [(name, *(f"{place}{name[0]} ms [0.9876, 1.2345]" for place in range(6))) for name in ("gmlp", "vit")]
    lines = printed(capsys, headers, rows, (False, *[True] * 6))
    assert lines[0].split() == ["model", "latency0", "latency1", "latency2"]
    assert lines[-1] == "left out for lack of width: latency3; latency4; latency5"
    assert "0g ms [0.9876, 1.2345]" in lines[1]


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("0", console.PIPED_WIDTH), ("wide", console.PIPED_WIDTH)])
def test_piped_text_obeys_columns(columns: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    console.print_lines(LONG)
    longest = max(map(len, capsys.readouterr().out.splitlines()))
    assert width - 10 < longest <= width
    assert all(line.startswith("  ") for line in console.wrapped(f"  {LONG}", 40).splitlines())  # wrapped lines keep the indent


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1 s"), (119.4, "119 s"), (121, "2 min"), (5400, "1.5 h")])
def test_a_duration_is_never_nothing(seconds: float, text: str) -> None:
    assert console.duration_text(seconds) == text


def test_letters_that_an_encoding_lacks_are_written_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    console.plain_where_needed()
    console.print_lines("gMLP takes 1.2× as long, n² is 27 %; modèle.py")
    sys.stdout.flush()
    assert written.getvalue() == b"gMLP takes 1.2x as long, n2 is 27 %; mod\\xe8le.py\n"

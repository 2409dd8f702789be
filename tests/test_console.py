"""What the terminal shows of other people's text is text."""

from __future__ import annotations

import pytest

from bench import console

STEERING = "\x1b[2J\x1b]0;title\x07gone\x9b31m"
SHOWN = "[2J]0;titlegone31m"


def test_text_from_records_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(("cell", "reason"), [("a", STEERING)])
    console.print_text(STEERING)
    console.say(STEERING)
    console.error(STEERING, hint=STEERING)
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert out.count(SHOWN) == 2
    assert err.count(SHOWN) == 3


def test_markup_is_shown_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(("[red]cell",), [("[bold]a[/bold]",)])
    assert "[bold]a[/bold]" in capsys.readouterr().out

"""What is told reaches the listener of the context, and nobody elsewhere."""

from __future__ import annotations

import pytest

from bench.progress import listening, tell


def test_what_is_told_reaches_the_innermost_listener_alone() -> None:
    outer: list[str] = []
    inner: list[str] = []
    tell("nobody listens")
    with listening(outer.append):
        tell("first")
        with listening(inner.append):
            tell("second")
        tell("third")
    tell("nobody listens again")
    assert (outer, inner) == (["first", "third"], ["second"])


def test_an_error_ends_the_listening() -> None:
    heard: list[str] = []
    with pytest.raises(ValueError, match="planted"), listening(heard.append):
        raise ValueError("planted")
    tell("too late")
    assert heard == []

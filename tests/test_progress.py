"""What is told reaches the listener of the context, and nobody elsewhere."""

from __future__ import annotations

import pytest

from bench.progress import listening, speaker, speaking, tell
from tests.made_jobs import small_job


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


def test_a_listener_knows_which_job_speaks() -> None:
    one, other = small_job("accuracy"), small_job("tuning")
    heard: list[tuple[str, object]] = []
    with listening(lambda text: heard.append((text, speaker()))):
        with speaking(one):
            tell("a")
            with speaking(other):
                tell("b")
        tell("c")
    assert heard == [("a", one), ("b", other), ("c", None)]


def test_an_error_ends_the_listening() -> None:
    heard: list[str] = []
    with pytest.raises(ValueError, match="planted"), listening(heard.append):
        raise ValueError("planted")
    tell("too late")
    assert heard == []

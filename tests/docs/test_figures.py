"""Measured figures of README and docs are those of results/, and stand in marked places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.figures import FIGURES, PLACE, filled, pages
from tests.docs.pictures import PICTURES, drawn
from tests.docs.reading import effect, ratio_of_cells, run, superseded

MAX_BYTES = 160_000
INTERVAL = re.compile(r"\[[-+]?\d[\d.]*, [-+]?\d[\d.]*\]")
"""As in `1.23 [1.20, 1.25]`: what an interval looks like."""
OPENING = re.compile(r"<!--=([a-z0-9_]+)-->")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_says_what_results_say(page: Path) -> None:
    text = page.read_text()
    assert filled(text) == text, f"{page.name} differs from results/: make docs"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_no_interval_stands_outside_a_marked_place(page: Path) -> None:
    prose = PLACE.sub("", page.read_text())
    assert INTERVAL.findall(prose) == []
    assert OPENING.findall(prose) == []  # a place that is not closed


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_place_stands_within_prose_or_alone(page: Path) -> None:
    """In a code block its name would be shown; at the start of a line of prose Markdown would not read the rest of the line."""
    assert re.findall(r"^(?: {4}.*|> |)<!--=\w+-->.+", page.read_text(), re.MULTILINE) == []


def test_every_figure_stands_somewhere() -> None:
    named = {name for page in pages() for name in OPENING.findall(page.read_text())}
    assert named == set(FIGURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_results_say(name: str) -> None:
    for path, content in drawn(name).items():
        assert path.read_bytes() == content, f"{path.name} differs from results/: make docs"
        assert len(content) < MAX_BYTES
        assert b"<text" not in content  # an image has no fonts of its own


def test_an_unknown_place_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        filled("It took <!--=nothing-->1.2<!--/--> s.")


def test_a_place_keeps_its_name_and_loses_its_text() -> None:
    assert filled("over <!--=share_vit-->9<!--/-->!") == f"over <!--=share_vit-->{FIGURES['share_vit']()}<!--/-->!"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_no_page_rests_on_a_superseded_run(page: Path) -> None:
    text = page.read_text()
    assert [name for name, part in superseded().items() if part == "all" and name in text] == []


def test_a_superseded_run_has_no_figures() -> None:
    before, times_before = "2026-11-20_cpu_main_job", "2026-11-20_cpu_digits"
    assert (superseded()[before], superseded()[times_before]) == ("all", "times")
    for read in (
        lambda: run(before),
        lambda: ratio_of_cells(times_before, "a", "b"),
        lambda: effect(times_before, "cost against n", "attention, explicit", "attention, fused", "latency_ms", 1024),
    ):
        with pytest.raises(LookupError, match="superseded"):
            read()

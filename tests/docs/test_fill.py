"""The marked places of README and docs say what the stored tables say."""

from __future__ import annotations

import re

import pytest

from tests.docs.fill import PLACES, filled, pages, place

OPENING = re.compile(r"<!--=(\w+)-->")


@pytest.mark.slow
def test_pages_say_what_their_tables_say() -> None:
    for page in pages():
        text = page.read_text()
        assert filled(text) == text, f"{page.name} differs from results/: make docs"
        assert len(OPENING.findall(text)) == text.count("<!--/-->")


def test_every_place_stands_on_a_page() -> None:
    assert {name for page in pages() for name in OPENING.findall(page.read_text())} == set(PLACES)


def test_an_unknown_place_and_an_unclear_row_are_errors() -> None:
    with pytest.raises(KeyError, match="nothing"):
        filled("It took <!--=nothing-->1.2<!--/--> s.")
    with pytest.raises(LookupError, match="3 rows with"):
        place("2026-11-30_cpu_digits", "{accuracy:fraction}", model="vit").filled()

"""The page of budgets that have a canonical size says what the search finds now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planning.canonical_sizes import page, sized_lengths

PAGE = Path(__file__).parents[2] / "docs" / "canonical-sizes.md"


def test_the_budgets_of_the_demo_and_of_the_command_line_have_sizes() -> None:
    assert sized_lengths(300_000, 2) == [17, 65, 257]
    assert sized_lengths(1_000_000, 6) == [17, 65, 257]


@pytest.mark.slow
def test_the_page_is_what_the_search_finds() -> None:
    assert PAGE.read_text() == f"{page()}\n"

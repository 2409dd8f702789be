"""The page of budgets that have a canonical size says what the search finds now."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.planning.sizing import has_sizes
from tests.requested import parse_request

PAGE = Path(__file__).parents[2] / "docs" / "canonical-sizes.md"
DEPTHS, LENGTHS = (2, 3, 4, 6, 8, 12), (17, 65, 257, 1025, 4097)
BUDGETS = {"k": 1_000, "M": 1_000_000}


def sized_lengths(budget: int, depth: int) -> list[int]:
    """The lengths at which every family has a size."""
    lengths = ",".join(map(str, LENGTHS))
    request = parse_request(models="gmlp,vit,transformer", seq=lengths, params=str(budget), depth=str(depth))
    return [n for n in LENGTHS if has_sizes(request, n, budget)]


def shown(lengths: list[int]) -> str:
    """`to 257`: this length and all below; others by comma."""
    is_all_up_to = lengths == list(LENGTHS[: len(lengths)])
    return f"to {lengths[-1]}" if is_all_up_to and len(lengths) > 1 else ", ".join(map(str, lengths))


def test_the_budgets_of_the_demo_and_of_the_command_line_have_sizes() -> None:
    assert sized_lengths(300_000, 2) == [17, 65, 257]
    assert sized_lengths(1_000_000, 6) == [17, 65, 257]


@pytest.mark.slow
def test_the_page_is_what_the_search_finds() -> None:
    lines = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    for budget, *cells in ([cell.strip() for cell in line] for line in lines[2:]):
        found = [shown(sized_lengths(round(float(budget[:-1]) * BUDGETS[budget[-1]]), depth)) for depth in DEPTHS]
        assert cells == found, f"{budget}: {' | '.join(found)}"

"""Writes docs/canonical-sizes.md: which budgets have a canonical size for all three families, by depth and length.

python -m tests.planning.canonical_sizes > docs/canonical-sizes.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.planning.sizing import has_sizes
from bench.planning.values import params_text
from bench.spec import CANONICAL
from tests.requested import parse_request

FAMILIES = "gmlp,vit,transformer"
BUDGETS = tuple(round(step * 10**exponent) for exponent in (5, 6, 7) for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))
DEPTHS = (2, 3, 4, 6, 8, 12)
LENGTHS = (17, 65, 257, 1025, 4097)
PROSE = """# Budgets that have a canonical size

Of each budget (rows) and depth (columns), the lengths among {lengths} at which gMLP, ViT and the Transformer encoder all have a
shape of canonical sizing: attention of two heads or more with 32 to 64 channels each, ffn_width within a quarter of 4 widths (6 for gMLP), parameters
within 0.5 % of the budget, synthetic patches; `to 257`: 17, 65 and 257. In closed form; nothing is measured. Long lengths are bounded by gMLP's n^2
weights in each block, small budgets by the least width of attention, 64.

    python -m tests.planning.canonical_sizes > docs/canonical-sizes.md
"""


def main() -> None:
    sys.stdout.write(f"{page()}\n")


def page() -> str:
    """The whole page, without a line feed at its end."""
    return "\n".join([PROSE.format(lengths=", ".join(map(str, LENGTHS))), *_table()])


def _table() -> Iterator[str]:
    yield "| parameters | " + " | ".join(f"depth {depth}" for depth in DEPTHS) + " |"
    yield "|---:|" + "---|" * len(DEPTHS)
    for budget in BUDGETS:
        found = (_text(sized_lengths(budget, depth)) for depth in DEPTHS)
        yield f"| {params_text(budget)} | " + " | ".join(found) + " |"


def _text(lengths: list[int]) -> str:
    is_all_up_to = lengths and lengths == list(LENGTHS[: len(lengths)])
    return f"to {lengths[-1]}" if is_all_up_to and len(lengths) > 1 else ", ".join(map(str, lengths))


def sized_lengths(budget: int, depth: int) -> list[int]:
    """The lengths at which every family has a size."""
    request = parse_request(models=FAMILIES, seq=",".join(map(str, LENGTHS)), params=str(budget), depth=str(depth), sizing=CANONICAL)
    return [n for n in LENGTHS if has_sizes(request, n, budget)]


if __name__ == "__main__":
    main()

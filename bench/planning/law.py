"""How a model's parameters or FLOPs follow from its sizes, at every width and length.

A closed-form cost is affine in ffn_width and a polynomial in n. So two costs per width give the counts of every ffn_width at every length; a search
is arithmetic on them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bench.measure.model import cost_of
from bench.spec import ModelSpec
from models.layers.cost import Cost, Polynomial

Numbers = NDArray[np.float64]
"""Whole numbers: exact below 2^53, and without the overflow of integers."""
MAX_KEYS = 512
"""Keys whose laws are kept; a request has one per model and depth."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The counts of a model at one length, by width.

    A shape whose ffn_width is f units has `base + slope * f` parameters or FLOPs.

    `widths`, `heads`, `base`, `slope`: one entry per width that can be built, ascending.
    """

    widths: Numbers
    heads: Numbers
    base: Numbers
    slope: Numbers


@dataclass(kw_only=True)
class Law:
    """The counts of one model at one depth; widths are added as searches need them.

    `model`: at the length where costs are taken; its widths are ignored.
    `quantity`: from a cost to the polynomial that is counted.
    `heads_of`: from a width to the number of heads; None where no number is allowed.
    `grain`: every width is a multiple of it.
    `ffn_unit`: every ffn_width is a multiple of it, for half of it may be odd.
    `problems`: reasons of widths that cannot be built.
    """

    model: ModelSpec
    quantity: Callable[[Cost], Polynomial]
    heads_of: Callable[[int], int | None]
    grain: int
    ffn_unit: int
    problems: dict[int, str] = field(default_factory=dict)
    _rows: list[tuple[int, int, Polynomial, Polynomial]] = field(default_factory=list)
    _widest: int = 0
    _at: dict[int, Counts] = field(default_factory=dict)
    _holds: dict[int, bool] = field(default_factory=dict)

    def up_to(self, width: int) -> None:
        """Add every width up to this one."""
        for next_width in range(self._widest + self.grain, width + 1, self.grain):
            self._add(next_width)
            self._widest = next_width
            self._at.clear()

    def at(self, n: int) -> Counts:
        """Return the counts at length n, of the widths so far."""
        if n not in self._at:
            rows = [(width, heads, small.at(n), large.at(n)) for width, heads, small, large in self._rows]
            widths, heads, small, large = np.array(rows, np.float64).reshape(-1, 4).T
            self._at[n] = Counts(widths=widths, heads=heads, base=2 * small - large, slope=large - small)
        return self._at[n]

    def holds_at(self, n: int) -> bool:
        """Return whether the law's polynomials are those of the model at length n.

        They are not where a cost depends on n in pieces: a window, a chunk or an even length that n does not fill. Such a piece has its own law.
        """
        if n not in self._holds:
            self._holds[n] = n == self.model.shape.seq_len or (bool(self._rows) and self._is_same(n))
        return self._holds[n]

    def _is_same(self, n: int) -> bool:
        width, heads, small, _ = self._rows[0]
        try:
            return self._polynomial(n, width, heads, self.ffn_unit) == small
        except ValueError:
            return False

    def _add(self, width: int) -> None:
        heads, n = self.heads_of(width), self.model.shape.seq_len
        if heads is None:
            return
        try:
            small, large = (self._polynomial(n, width, heads, times * self.ffn_unit) for times in (1, 2))
        except ValueError as error:
            self.problems[width] = str(error)
        else:
            self._rows.append((width, heads, small, large))

    def _polynomial(self, n: int, width: int, heads: int, ffn_width: int) -> Polynomial:
        shape = replace(self.model.shape, seq_len=n, width=width, heads=heads, ffn_width=ffn_width)
        return self.quantity(cost_of(replace(self.model, shape=shape)))


_LAWS: dict[Hashable, list[Law]] = {}


def law_of(key: Hashable, n: int, make: Callable[[], Law]) -> Law:
    """Return the kept law of a key that holds at length n, or a new one."""
    laws = _LAWS.setdefault(key, [])
    found = next((law for law in laws if law.holds_at(n)), None)
    if found is None:
        found = make()
        laws.append(found)
        while len(_LAWS) > MAX_KEYS:
            _LAWS.pop(next(iter(_LAWS)))
    return found

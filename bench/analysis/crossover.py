"""The n at which two costs are equal, from closed forms: exact integer polynomials in n."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from models.layers.cost import Polynomial

SHORTEST = 2
SAME_ROOT = 1e-9


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The two costs are equal at `n`; `before` is cheaper below it and `after` above it. `low` and `high` bound n; None: not bounded by this grid."""

    n: float
    low: float | None
    high: float | None
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Crossovers:
    """All crossings by rising n. Without any, `none` is the sentence that says who is cheaper."""

    crossings: tuple[Crossing, ...] = ()
    none: str = ""


def cost_crossovers(first: Polynomial, second: Polynomial, names: tuple[str, str]) -> Crossovers:
    """Every real n >= 2 at which first - second changes its sign; a touch without change is none.

    Roots are the eigenvalues of the companion matrix (numpy.roots) of the integer difference; the signs between them are exact, in fractions.
    """
    difference = first + second * -1
    roots = _positive_roots(difference)
    signs = [_sign(difference, probe) for probe in _probes(roots)]
    crossings = tuple(
        Crossing(n=root, low=root, high=root, before=_cheaper(before, names), after=_cheaper(after, names))
        for root, before, after in zip(roots, signs[:-1], signs[1:], strict=True)
        if before * after < 0 and root >= SHORTEST
    )
    return Crossovers(crossings=crossings, none="" if crossings else _throughout(signs[-1], names))


def cost_ratio(first: Polynomial, second: Polynomial, n: int) -> float:
    """Cost of the first over that of the second at n."""
    return float(Fraction(first.at(n), second.at(n)))


def equal_terms_at(cost: Polynomial) -> float | None:
    """The n at which the n^2 term equals the linear one; None where one of the two is absent or negative."""
    if cost.degree(1) <= 0 or cost.degree(2) <= 0:
        return None
    return float(Fraction(cost.degree(1), cost.degree(2)))


def _positive_roots(difference: Polynomial) -> list[float]:
    """Real roots above 0, rising, each once; a whole number where the difference is exactly 0 there."""
    found: list[float] = []
    roots = np.roots([float(c) for c in reversed(difference.coefficients)])
    for root in sorted(float(r.real) for r in roots if abs(r.imag) <= SAME_ROOT * abs(r) and r.real > 0):
        polished = float(round(root)) if difference.at(round(root)) == 0 else root
        if not found or polished > found[-1] * (1 + SAME_ROOT):
            found.append(polished)
    return found


def _probes(roots: list[float]) -> list[Fraction]:
    """One place below, between and above the roots."""
    places = [Fraction(0), *map(Fraction, roots)]
    return [(low + high) / 2 for low, high in pairwise(places)] + [2 * places[-1] + SHORTEST]


def _sign(difference: Polynomial, n: Fraction) -> int:
    value = sum((c * n**power for power, c in enumerate(difference.coefficients)), Fraction(0))
    return (value > 0) - (value < 0)


def _cheaper(sign: int, names: tuple[str, str]) -> str:
    return names[0] if sign < 0 else names[1]


def _throughout(sign: int, names: tuple[str, str]) -> str:
    if sign == 0:
        return f"{names[0]} and {names[1]} cost the same at every n"
    return f"none: {_cheaper(sign, names)} is cheaper at every n from {SHORTEST}"

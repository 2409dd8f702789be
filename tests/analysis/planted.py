"""Series with planted costs: what the tests of scaling, exponents and crossovers measure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.analysis.growth import Samples

LENGTHS = (17, 33, 65, 129, 257, 513, 1025, 2049, 4097)
ROUNDS = 7
NOISE = 0.01

Array = NDArray[np.float64]


def samples_of_rounds(values: Array, lengths: tuple[int, ...] = LENGTHS) -> Samples:
    """`(rounds, lengths)` as samples by length and round."""
    return {n: dict(enumerate(column)) for n, column in zip(lengths, values.T.tolist(), strict=True)}


def curve(a: float, b: float, c: float, lengths: tuple[int, ...] = LENGTHS) -> Array:
    n = np.asarray(lengths, dtype=np.float64)
    return a + b * n + c * n**2


def noisy(rng: np.random.Generator, costs: Array, *, rounds: int = ROUNDS, common: float = 0.0, noise: float = NOISE) -> Array:
    """Independent relative noise for each length and round, and a factor that slows a whole round."""
    slow = 1 + common * rng.standard_normal((rounds, 1))
    return costs * slow * (1 + noise * rng.standard_normal((rounds, len(costs))))

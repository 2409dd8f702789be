"""Points of a curve: half observed with noise, half asked for.

Source: Dive into Deep Learning, Sec. 11.2. Imports no torch before data are drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bench.tasks.readers.generate import Draw

Array = NDArray[Any]
END = 5.0
"""Points lie in [0, END)."""


def curve(x: Array) -> Array:
    return np.asarray(2 * np.sin(x) + x**0.8)


def noisy_points(*, num_tokens: int, noise: float) -> Draw:
    """Return a function that draws items of points.

    Each item has `num_tokens` vectors (x, y or 0, 1 if y is asked for).

    `noise`: standard deviation of the noise.
    """
    from bench.tasks.readers.generate import Drawn

    half = num_tokens // 2

    def draw(generator: np.random.Generator, num_items: int) -> Drawn:
        x = generator.random((num_items, num_tokens)) * END
        y = curve(x)
        inputs = np.zeros((num_items, num_tokens, 3), dtype=np.float32)
        inputs[..., 0] = x
        inputs[:, :half, 1] = y[:, :half] + noise * generator.standard_normal((num_items, half))
        inputs[:, half:, 2] = 1
        targets = np.full((num_items, num_tokens), np.nan, dtype=np.float32)
        targets[:, half:] = y[:, half:]
        return Drawn(inputs=inputs, targets=targets)

    return draw

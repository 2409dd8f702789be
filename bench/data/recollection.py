"""Items whose first half is shown and whose blank second half asks for it: every answer lies elsewhere, so tokens must move."""

from __future__ import annotations

import numpy as np

from bench.data.generate import Draw, Drawn, smallest_id_type
from bench.tasks import IGNORED


def recollection(*, num_tokens: int, symbols: int, backwards: bool) -> Draw:
    """Items of random symbols, ids 0 to `symbols` - 1, and blanks, id `symbols`; the answers run in the order shown, or backwards."""
    half = num_tokens // 2

    def draw(generator: np.random.Generator, num_items: int) -> Drawn:
        shown = generator.integers(symbols, size=(num_items, half))
        inputs = np.full((num_items, num_tokens), symbols, dtype=smallest_id_type(symbols + 1))
        inputs[:, :half] = shown
        targets = np.full((num_items, num_tokens), IGNORED, dtype=np.int64)
        targets[:, half:] = shown[:, ::-1] if backwards else shown
        return Drawn(inputs=inputs, targets=targets)

    return draw

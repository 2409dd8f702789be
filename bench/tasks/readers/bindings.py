"""Items that bind keys to values, then ask for the values.

Source: arXiv 2312.04927, Sec. 3. The first half shows the pairs, the second half the queries.
"""

from __future__ import annotations

import numpy as np

from bench.tasks import IGNORED
from bench.tasks.readers.generate import Array, Draw, Drawn, smallest_id_type

QUERIES_PER_KEY = 2


def bindings(*, num_tokens: int, keys: int, values: int) -> Draw:
    """Return a function that draws items of pairs and queries.

    Items have `num_tokens` / 4 pairs and twice as many queries. Ids: values from 0, then keys.
    """
    pairs = num_tokens // 4

    def draw(generator: np.random.Generator, num_items: int) -> Drawn:
        bound_keys = _distinct(generator, num_items, keys, pairs) + values
        bound_values = generator.integers(values, size=(num_items, pairs))
        asked = generator.permuted(np.tile(np.arange(pairs), (num_items, QUERIES_PER_KEY)), axis=1)
        inputs = np.empty((num_items, num_tokens), dtype=smallest_id_type(keys + values))
        inputs[:, 0 : 2 * pairs : 2] = bound_keys
        inputs[:, 1 : 2 * pairs : 2] = bound_values
        inputs[:, 2 * pairs :] = np.take_along_axis(bound_keys, asked, axis=1)
        targets = np.full((num_items, num_tokens), IGNORED, dtype=np.int64)
        targets[:, 2 * pairs :] = np.take_along_axis(bound_values, asked, axis=1)
        return Drawn(inputs=inputs, targets=targets)

    return draw


def _distinct(generator: np.random.Generator, num_items: int, below: int, count: int) -> Array:
    """Draw distinct numbers below `below`, `(num_items, count)`, every ordered choice equally likely."""
    shuffled = generator.permuted(np.tile(np.arange(below, dtype=np.int16), (num_items, 1)), axis=1)
    return shuffled[:, :count]

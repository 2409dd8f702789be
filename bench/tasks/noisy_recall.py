"""Noisy recall: associative recall with meaningless tokens between pairs and between queries.

Source: Poli et al., "Mechanistic Design and Scaling of Hybrid Architectures" (MAD; arXiv 2403.17844), Sec. 3.1. One item of n = 12 data tokens, two
pairs (A to D: keys; digits: values; x, y: noise; .: no question):

    tokens    C  5  x  A  2  y  A  y  C  C  x  A
    answers   .  .  .  .  .  .  2  .  5  5  .  2

The first half shows pairs, the second half asks for every key twice, as in `associative_recall`. `noise_percent` of each half are tokens of a
vocabulary of their own, in random places, never inside a pair; 0 gives that task. Every item has the same number of pairs; in MAD it varies, and
noise comes two tokens at a time. Each answer is given at its query, so that a causal model can solve the task.

Values are uniform and independent of all other tokens. A model without token mixing therefore scores exactly chance, 1 / `values`.

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the draw; `keys` and `values`, numbers of different keys and
values; `noise_percent`; `noise_symbols`, number of different noise tokens. Ids: values from 0, then keys, then noise. Test items never occur in
training.
"""

from __future__ import annotations

import numpy as np

from bench.tasks import Place, Split, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import ITEMS_OPTIONS, draw_distinct, fewest_tokens, generate_splits, generated_info, smallest_id_type
from bench.tasks.readers.recall import KEYS, MAX_SYMBOLS, VALUES, bind_and_ask, num_bindings
from models.layers.options import Option

OPTIONS = (
    *ITEMS_OPTIONS,
    KEYS,
    VALUES,
    Option("noise_percent", 20, low=0, high=95),
    Option("noise_symbols", 16, low=1, high=MAX_SYMBOLS),
)


def info(choice: TaskChoice) -> TaskInfo:
    keys, values, percent = (choice.options[name] for name in ("keys", "values", "noise_percent"))
    # one token less than the fewest that need a pair beyond the keys
    longest = (400 * (keys + 1) - 1) // (100 - percent) // 4 * 4

    def num_different(num_tokens: int) -> int:
        return num_bindings(_num_pairs(choice, num_tokens), keys=keys, values=values)

    return generated_info(
        choice,
        summary="key and value pairs among noise, then keys among noise, each answered with its value",
        after="Poli et al., arXiv 2403.17844",
        reads=Sequences(
            vocab_size=keys + values + choice.options["noise_symbols"],
            multiple=4,
            min_tokens=fewest_tokens(choice, num_different, multiple=4, at_most=longest, raise_option="keys"),
            max_tokens=longest,
            longer_with="higher options keys or noise_percent",
        ),
        num_classes=values,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers at the queries of the second half."""
    keys, values, noise_symbols = (choice.options[name] for name in ("keys", "values", "noise_symbols"))
    pairs, half, vocab_size = _num_pairs(choice, num_tokens), num_tokens // 2, keys + values + noise_symbols

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        bound_keys = values + draw_distinct(generator, num_items, pairs, below=keys)
        bound_values = generator.integers(values, size=(num_items, pairs))
        # places among pairs and noise tokens; each earlier pair takes one token more
        pairs_at = np.sort(draw_distinct(generator, num_items, pairs, below=half - pairs), axis=1) + np.arange(pairs)
        noise = generator.integers(keys + values, vocab_size, size=(num_items, num_tokens), dtype=smallest_id_type(vocab_size))
        return bind_and_ask(
            noise,
            keys=bound_keys[..., None],
            values=bound_values[..., None],
            pairs_at=pairs_at,
            asked=draw_distinct(generator, num_items, 2 * pairs, below=2 * pairs) % pairs,
            queries_at=half + draw_distinct(generator, num_items, 2 * pairs, below=half),
        )

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)


def _num_pairs(choice: TaskChoice, num_tokens: int) -> int:
    num_pairs: int = num_tokens * (100 - choice.options["noise_percent"]) // 400
    return num_pairs

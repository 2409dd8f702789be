"""Compression: read a sequence whole, then name the symbol at each position, asked for in random order.

After Poli et al., MAD (arXiv 2403.17844), Sec. 3.1. One item of n = 8 data tokens (p0 to p3: positions; .: no question):

    tokens    3  0  7  5  p2 p0 p3 p1
    answers   .  .  .  .  7  3  5  0

In MAD a decoder reads the state of one last token and a position, and nothing else. Here the model itself answers at a token that names the position.
A model whose state has a fixed size, such as a recurrent one, meets the same demand: after the first half its state must hold every symbol, for it
cannot know which one is asked for next. A model that reads earlier tokens again, such as attention, looks the symbol up and compresses nothing: its
score says only that it can address a position. Each answer lies before its question, so that a causal model can solve the task.

Symbols are uniform and independent, so a model without token mixing scores exactly chance, 1 / `symbols`. In random order, no fixed matrix over
positions solves the task.

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the draw; `symbols`, number of different symbols; `positions`,
number of position tokens, at least n / 2. Ids: symbols from 0, then positions. Test items never occur in training.
"""

from __future__ import annotations

import numpy as np

from bench.tasks import Place, Split, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import (
    ITEMS_OPTIONS,
    draw_distinct,
    fewest_tokens,
    generate_splits,
    generated_info,
    smallest_id_type,
    with_answers,
)
from bench.tasks.readers.recall import MAX_SYMBOLS, SYMBOLS
from models.layers.options import Option

OPTIONS = (*ITEMS_OPTIONS, SYMBOLS, Option("positions", 256, low=1, high=MAX_SYMBOLS))


def info(choice: TaskChoice) -> TaskInfo:
    symbols, positions = choice.options["symbols"], choice.options["positions"]
    longest = 2 * positions
    return generated_info(
        choice,
        summary="a sequence, then its positions in random order, each answered with its symbol",
        after="Poli et al., arXiv 2403.17844",
        reads=Sequences(
            vocab_size=symbols + positions,
            multiple=2,
            min_tokens=fewest_tokens(
                choice, lambda n: symbols ** (n // 2), multiple=2, at_most=min(longest, 128), raise_option="symbols or positions"
            ),
            max_tokens=longest,
            longer_with="a higher option positions, at least half of the tokens",
        ),
        num_classes=symbols,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers of the second half."""
    symbols, half = choice.options["symbols"], num_tokens // 2

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        shown = generator.integers(symbols, size=(num_items, half))
        asked = draw_distinct(generator, num_items, half, below=half)
        inputs = np.concatenate((shown, symbols + asked), axis=1).astype(smallest_id_type(symbols + choice.options["positions"]))
        return with_answers(inputs, slice(half, None), np.take_along_axis(shown, asked, axis=1))

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)

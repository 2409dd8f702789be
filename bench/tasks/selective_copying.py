"""Selective copying: find a few symbols among blanks and write them in order at the end.

Source: Gu and Dao, "Mamba" (arXiv 2312.00752), Sec. 4.1.1; Poli et al., MAD (arXiv 2403.17844), Sec. 3.1. One item of n = 12 data tokens with
`copied` = 3 (b: blank; w: write; .: no question):

    tokens    b  3  b  b  0  b  b  7  b  w  w  w
    answers   .  .  .  .  .  .  .  .  .  3  0  7

The places of the symbols are random, all sets of places equally likely, so no shift and no fixed matrix over positions solves the task. All
symbols stand before the first answer, so that a causal model can solve the task. Symbols are uniform and independent, so a model without token mixing
scores exactly chance, 1 / `symbols`.

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the draw; `symbols`, number of different symbols; `copied`, number
of symbols to copy, at most n / 2. Ids: symbols from 0, then the blank, then write. Test items never occur in training.
"""

from __future__ import annotations

import math

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

OPTIONS = (*ITEMS_OPTIONS, SYMBOLS, Option("copied", 16, low=1, high=MAX_SYMBOLS))


def info(choice: TaskChoice) -> TaskInfo:
    symbols, copied = choice.options["symbols"], choice.options["copied"]
    num_texts: int = symbols**copied

    def num_different(num_tokens: int) -> int:
        return num_texts * math.comb(max(0, num_tokens - copied), copied)

    return generated_info(
        choice,
        summary="symbols among blanks, written in order at the end",
        after="Gu and Dao, arXiv 2312.00752, and Poli et al., arXiv 2403.17844",
        reads=Sequences(
            vocab_size=symbols + 2,
            min_tokens=fewest_tokens(choice, num_different, multiple=1, at_most=2 * copied + 128, raise_option="symbols or copied"),
        ),
        num_classes=symbols,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers of the last `copied` tokens."""
    symbols, copied = choice.options["symbols"], choice.options["copied"]

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        shown = generator.integers(symbols, size=(num_items, copied))
        places = np.sort(draw_distinct(generator, num_items, copied, below=num_tokens - copied), axis=1)
        inputs = np.full((num_items, num_tokens), symbols, dtype=smallest_id_type(symbols + 2))
        np.put_along_axis(inputs, places, shown, axis=1)
        inputs[:, -copied:] = symbols + 1
        return with_answers(inputs, slice(-copied, None), shown)

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)

"""Items whose first half is shown and whose blank second half asks for it: every answer lies elsewhere, so tokens must move.

Imports no torch before data are drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.data.options import fewest_tokens, whole_option
from bench.spec import OptionValue
from bench.task_info import TOKEN_CLASS, Sequences, TaskChoice, TaskInfo

if TYPE_CHECKING:
    from bench.data.generate import Draw
    from bench.tasks import Splits

RECOLLECTION_OPTIONS: dict[str, OptionValue] = {"items": 20_000, "test_items": 2_000, "seed": 0, "symbols": 16}


def recollection_info(choice: TaskChoice, *, summary: str) -> TaskInfo:
    """The facts of a task of this kind. Raises RequestError where there are too few different items."""
    symbols = whole_option(choice, "symbols", at_least=2, at_most=4096)
    shortest = fewest_tokens(choice, lambda n: symbols ** (n // 2), multiple=2, at_most=128, raise_option="symbols")
    return TaskInfo(
        name=choice.name,
        summary=summary,
        source="generated, the same at every call",
        reads=Sequences(vocab_size=symbols + 1, multiple=2, min_tokens=shortest),
        answers=TOKEN_CLASS,
        num_classes=symbols,
        chance=1 / symbols,
        num_train=whole_option(choice, "items"),
        num_test=whole_option(choice, "test_items"),
    )


def recollection_splits(choice: TaskChoice, *, num_tokens: int, backwards: bool) -> Splits:
    """Ids `(items, num_tokens)` and, in the second half, the symbols asked for: in the order shown, or backwards."""
    from bench.data.generate import generate_splits

    draw = recollection(num_tokens=num_tokens, symbols=whole_option(choice, "symbols"), backwards=backwards)
    return generate_splits(choice, num_tokens=num_tokens, draw=draw)


def recollection(*, num_tokens: int, symbols: int, backwards: bool) -> Draw:
    """Items of random symbols, ids 0 to `symbols` - 1, and blanks, id `symbols`."""
    import numpy as np

    from bench.data.generate import Drawn, smallest_id_type
    from bench.tasks import IGNORED

    half = num_tokens // 2

    def draw(generator: np.random.Generator, num_items: int) -> Drawn:
        shown = generator.integers(symbols, size=(num_items, half))
        inputs = np.full((num_items, num_tokens), symbols, dtype=smallest_id_type(symbols + 1))
        inputs[:, :half] = shown
        targets = np.full((num_items, num_tokens), IGNORED, dtype=np.int64)
        targets[:, half:] = shown[:, ::-1] if backwards else shown
        return Drawn(inputs=inputs, targets=targets)

    return draw

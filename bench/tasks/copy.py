"""The first half of the tokens, to be repeated in the blank second half: each answer lies n / 2 tokens back.

One item of n = 8 data tokens (b: blank, .: nothing is asked for):

    tokens    3  0  7  7  b  b  b  b
    answers   .  .  .  .  3  0  7  7

The symbols are uniform and independent, so a model whose tokens do not mix answers at chance, 1 / `symbols`, exactly. Every item moves its
tokens by the same distance: a fixed matrix over positions solves it, as does attention to positions.

Options: `items` and `test_items`, how many are drawn; `symbols`, how many there are to choose from; `seed`, another draw. No test item is
learned from.
"""

from __future__ import annotations

from bench.data.options import fewest_tokens, whole_option
from bench.spec import OptionValue
from bench.task_info import TOKEN_CLASS, Sequences, TaskChoice, TaskInfo
from bench.tasks import Place, Splits

OPTIONS: dict[str, OptionValue] = {"items": 20_000, "test_items": 2_000, "seed": 0, "symbols": 16}


def info(choice: TaskChoice) -> TaskInfo:
    symbols = whole_option(choice, "symbols", at_least=2, at_most=4096)
    shortest = fewest_tokens(choice, lambda n: symbols ** (n // 2), multiple=2, at_most=128, raise_option="symbols")
    return TaskInfo(
        name="copy",
        summary="the first half of the tokens, repeated in the blank second half",
        source="generated, the same at every call",
        reads=Sequences(vocab_size=symbols + 1, multiple=2, min_tokens=shortest),
        answers=TOKEN_CLASS,
        num_classes=symbols,
        chance=1 / symbols,
        num_train=whole_option(choice, "items"),
        num_test=whole_option(choice, "test_items"),
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Ids `(items, num_tokens)` and, in the second half, the symbols asked for."""
    from bench.data.generate import generate_splits
    from bench.data.recollection import recollection

    draw = recollection(num_tokens=num_tokens, symbols=whole_option(choice, "symbols"), backwards=False)
    return generate_splits(choice, num_tokens=num_tokens, draw=draw)

"""Items whose first half is shown and whose second half asks for it: every answer lies elsewhere, so tokens must move.

Imports no torch before data are drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.data.options import fewest_tokens, named_option, whole_option
from bench.spec import OptionValue, RequestError
from bench.task_info import TOKEN_CLASS, Generation, Sequences, TaskChoice, TaskInfo

if TYPE_CHECKING:
    from bench.data.generate import Array, Draw
    from bench.tasks import Splits

BLANK, SHIFTED = FORMS = ("blank", "shifted")
"""What the second half reads: nothing, or the answers one token late, after a start symbol."""
RECOLLECTION_OPTIONS: dict[str, OptionValue] = {
    "items": 20_000,
    "test_items": 2_000,
    "seed": 0,
    "symbols": 16,
    "form": BLANK,
    "learn_up_to": 0,
}


def recollection_info(choice: TaskChoice, *, what: str) -> TaskInfo:
    """The facts of a task of this kind. Raises RequestError where there are too few different items, or options exclude each other."""
    symbols = whole_option(choice, "symbols", at_least=2, at_most=4096)
    shortest = fewest_tokens(choice, lambda n: symbols ** (n // 2), multiple=2, at_most=128, raise_option="symbols")
    is_shifted = _is_shifted(choice)
    return TaskInfo(
        name=choice.name,
        summary=f"{what} in the second half, token by token" if is_shifted else f"{what} in the blank second half",
        source="generated, the same at every call",
        # no item to learn from is longer than those to be tested on
        reads=Sequences(vocab_size=_vocab_size(symbols, is_shifted), multiple=2, min_tokens=max(shortest, 2 * _learn_up_to(choice))),
        answers=TOKEN_CLASS,
        num_classes=symbols,
        chance=1 / symbols,
        num_train=whole_option(choice, "items"),
        num_test=whole_option(choice, "test_items"),
        generation=Generation(start=symbols + 1, blank=symbols) if is_shifted else None,
    )


def recollection_splits(choice: TaskChoice, *, num_tokens: int, backwards: bool) -> Splits:
    """Ids `(items, num_tokens)` and, in the second half, the symbols asked for: in the order shown, or backwards."""
    from bench.data.generate import generate_splits

    symbols, is_shifted = whole_option(choice, "symbols"), _is_shifted(choice)

    def drawn(longest: int) -> Draw:
        return recollection(num_tokens=num_tokens, symbols=symbols, backwards=backwards, shifted=is_shifted, up_to=longest)

    learn_up_to = _learn_up_to(choice)
    return generate_splits(choice, num_tokens=num_tokens, draw=drawn(0), draw_learned=drawn(learn_up_to) if learn_up_to else None)


def recollection(*, num_tokens: int, symbols: int, backwards: bool, shifted: bool = False, up_to: int = 0) -> Draw:
    """Items of random symbols, ids 0 to `symbols` - 1, and blanks, id `symbols`; where they are `shifted`, with the start symbol, `symbols` + 1.

    `up_to`: items show 1 to so many symbols, each number as likely, then blanks; 0: all show half of `num_tokens`.
    """
    import numpy as np

    from bench.data.generate import Drawn, smallest_id_type
    from bench.tasks import IGNORED

    half = num_tokens // 2
    place = np.arange(half)

    def draw(generator: np.random.Generator, num_items: int) -> Drawn:
        shown = generator.integers(symbols, size=(num_items, half))
        lengths = generator.integers(1, up_to + 1, size=(num_items, 1)) if up_to else np.full((num_items, 1), half)
        answers = np.take_along_axis(shown, np.maximum(lengths - 1 - place, 0), axis=1) if backwards else shown
        inputs = np.full((num_items, num_tokens), symbols, dtype=smallest_id_type(_vocab_size(symbols, shifted)))
        inputs[:, :half] = np.where(place < lengths, shown, symbols)
        if shifted:
            inputs[:, half:] = _shifted(np.where(place < lengths, answers, symbols), start=symbols + 1)
        targets = np.full((num_items, num_tokens), IGNORED, dtype=np.int64)
        targets[:, half:] = np.where(place < lengths, answers, IGNORED)
        return Drawn(inputs=inputs, targets=targets)

    return draw


def _shifted(answers: Array, *, start: int) -> Array:
    """`(items, tokens)`: the start symbol, then all answers but the last."""
    import numpy as np

    return np.insert(answers[:, :-1], 0, start, axis=1)


def _vocab_size(symbols: int, is_shifted: bool) -> int:
    """With the blank and, where there is one, the start symbol."""
    return symbols + 1 + is_shifted


def _is_shifted(choice: TaskChoice) -> bool:
    return named_option(choice, "form", FORMS) == SHIFTED


def _learn_up_to(choice: TaskChoice) -> int:
    """The most symbols that an item to learn from shows; 0: half of its tokens. Raises RequestError where the form has no room for fewer."""
    longest = whole_option(choice, "learn_up_to", at_least=0)
    if longest and not _is_shifted(choice):
        needed = f"form={SHIFTED}"
        raise RequestError(
            f"option learn_up_to of task {choice.name} needs {needed}", f"write {choice.name}+{needed}+learn_up_to={longest}"
        )
    return longest

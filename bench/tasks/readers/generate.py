"""Generate splits reproducibly, without test items in training.

Also holds the shared parts of the tasks copy and reverse, whose second half asks for the symbols of the first. Imports no torch before data are
drawn.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.spec import RequestError
from bench.tasks import IGNORED, Split, Splits
from bench.tasks._info import TOKEN_CLASS, Generation, Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.options import ITEMS_OPTIONS, fewest_tokens
from models.layers.options import Option

Array = NDArray[Any]
MAX_DRAWS = 100
"""Maximum number of draws until no training item is a test item."""
TEST_STREAM, TRAIN_STREAM = 0, 1


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Drawn items as arrays, shaped as in a `Split`."""

    inputs: Array
    targets: Array
    lengths: Array | None = None


Draw = Callable[[np.random.Generator, int], Drawn]
"""(generator, number of items) -> items, drawn from that generator alone."""


def generate_splits(choice: TaskChoice, *, num_tokens: int, draw: Draw, draw_learned: Draw | None = None) -> Splits:
    """Generate a task's splits; the options `items` and `test_items` set their sizes.

    The result depends only on the task's name, the number of tokens and the option `seed`. Test items are drawn first, so they do not depend on the
    number of training items.

    `draw_learned`: draws training items; by default `draw`.

    Raises RequestError if there are too few different items.
    """
    test = draw(_generator(choice, num_tokens, TEST_STREAM), choice.options["test_items"])
    test_items = {item.tobytes() for item in test.inputs}
    train = _draw_train(choice, draw_learned or draw, _generator(choice, num_tokens, TRAIN_STREAM), test_items)
    return Splits(train=_split(train), test=_split(test))


def smallest_id_type(vocab_size: int) -> type[np.uint8] | type[np.int16] | type[np.int32]:
    """Return the smallest integer type for ids below `vocab_size`.

    Only types that all torch operations accept are considered.
    """
    if vocab_size <= 2**8:
        return np.uint8
    return np.int16 if vocab_size <= 2**15 else np.int32


def _generator(choice: TaskChoice, num_tokens: int, stream: int) -> np.random.Generator:
    seed = choice.options["seed"]
    return np.random.default_rng((zlib.crc32(choice.name.encode()), num_tokens, stream, *((seed,) if seed else ())))


def _draw_train(choice: TaskChoice, draw: Draw, generator: np.random.Generator, test_items: set[bytes]) -> Drawn:
    """Draw training items; replace those that are also test items."""
    missing, parts = choice.options["items"], []
    for _ in range(MAX_DRAWS):
        part = draw(generator, missing)
        is_new = np.array([item.tobytes() not in test_items for item in part.inputs])
        parts.append(_select(part, is_new))
        missing -= int(is_new.sum())
        if not missing:
            return _concatenate(parts)
    raise RequestError(f"task {choice.text} has too few different items to keep test items out of training", "raise `seq`, or lower items")


def _select(items: Drawn, mask: Array) -> Drawn:
    lengths = None if items.lengths is None else items.lengths[mask]
    return Drawn(inputs=items.inputs[mask], targets=items.targets[mask], lengths=lengths)


def _concatenate(parts: list[Drawn]) -> Drawn:
    lengths = [part.lengths for part in parts if part.lengths is not None]
    return Drawn(
        inputs=np.concatenate([part.inputs for part in parts]),
        targets=np.concatenate([part.targets for part in parts]),
        lengths=np.concatenate(lengths) if lengths else None,
    )


def _split(items: Drawn) -> Split:
    import torch

    lengths = None if items.lengths is None else torch.from_numpy(items.lengths)
    return Split(inputs=torch.from_numpy(items.inputs), targets=torch.from_numpy(items.targets), lengths=lengths)


BLANK, SHIFTED = FORMS = ("blank", "shifted")
"""Input of the second half.

Either blanks, or the answers one token late, after a start symbol.
"""
RECOLLECTION_OPTIONS = (*ITEMS_OPTIONS, Option("symbols", 16, low=2, high=4096), Option("form", BLANK, FORMS), Option("learn_up_to", 0))


def recollection_info(choice: TaskChoice, *, description: str) -> TaskInfo:
    """Return the facts of the task copy or reverse.

    Raises RequestError if there are too few different items, or if options exclude each other.
    """
    symbols = choice.options["symbols"]
    shortest = fewest_tokens(choice, lambda n: symbols ** (n // 2), multiple=2, at_most=128, raise_option="symbols")
    is_shifted = _is_shifted(choice)
    return TaskInfo(
        name=choice.name,
        summary=f"{description} in the second half, token by token" if is_shifted else f"{description} in the blank second half",
        source="generated, the same at every call",
        # training items must not be longer than test items
        reads=Sequences(vocab_size=_vocab_size(symbols, is_shifted), multiple=2, min_tokens=max(shortest, 2 * _learn_up_to(choice))),
        answers=TOKEN_CLASS,
        num_classes=symbols,
        chance=1 / symbols,
        num_train=choice.options["items"],
        num_test=choice.options["test_items"],
        generation=Generation(start=symbols + 1, blank=symbols) if is_shifted else None,
    )


def recollection_splits(choice: TaskChoice, *, num_tokens: int, backwards: bool) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers of the second half."""
    symbols, is_shifted = choice.options["symbols"], _is_shifted(choice)

    def drawn(longest: int) -> Draw:
        return recollection(num_tokens=num_tokens, symbols=symbols, backwards=backwards, shifted=is_shifted, up_to=longest)

    learn_up_to = _learn_up_to(choice)
    return generate_splits(choice, num_tokens=num_tokens, draw=drawn(0), draw_learned=drawn(learn_up_to) if learn_up_to else None)


def recollection(*, num_tokens: int, symbols: int, backwards: bool, shifted: bool = False, up_to: int = 0) -> Draw:
    """Return a function that draws items of random symbols and their answers.

    The first half shows the symbols; the second half has the answers. Ids: symbols 0 to `symbols` - 1, blank `symbols`, start symbol `symbols` + 1
    (only if `shifted`).

    `up_to`: items show 1 to `up_to` symbols, each number equally likely, then blanks; 0: all show `num_tokens` / 2.
    """
    half = num_tokens // 2
    place = np.arange(half)

    def draw(generator: np.random.Generator, num_items: int) -> Drawn:
        shown = generator.integers(symbols, size=(num_items, half))
        lengths = generator.integers(1, up_to + 1, size=(num_items, 1)) if up_to else np.full((num_items, 1), half)
        answers = np.take_along_axis(shown, np.maximum(lengths - 1 - place, 0), axis=1) if backwards else shown
        inputs = np.full((num_items, num_tokens), symbols, dtype=smallest_id_type(_vocab_size(symbols, shifted)))
        inputs[:, :half] = np.where(place < lengths, shown, symbols)
        if shifted:
            read = np.where(place < lengths, answers, symbols)
            inputs[:, half:] = np.insert(read[:, :-1], 0, symbols + 1, axis=1)  # one token late, after the start symbol
        targets = np.full((num_items, num_tokens), IGNORED, dtype=np.int64)
        targets[:, half:] = np.where(place < lengths, answers, IGNORED)
        return Drawn(inputs=inputs, targets=targets)

    return draw


def _vocab_size(symbols: int, is_shifted: bool) -> int:
    """Count the symbols, the blank and, if shifted, the start symbol."""
    return symbols + 1 + is_shifted


def _is_shifted(choice: TaskChoice) -> bool:
    return bool(choice.options["form"] == SHIFTED)


def _learn_up_to(choice: TaskChoice) -> int:
    """Return the largest number of symbols that a training item shows.

    0 means half of the tokens. Raises RequestError if the form does not support fewer.
    """
    longest: int = choice.options["learn_up_to"]
    if longest and not _is_shifted(choice):
        needed = f"form={SHIFTED}"
        raise RequestError(
            f"option learn_up_to of task {choice.name} needs {needed}", f"write {choice.name}+{needed}+learn_up_to={longest}"
        )
    return longest

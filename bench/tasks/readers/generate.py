"""Generate splits reproducibly, without test items in training.

Also holds the options of generated tasks, and the shared parts of the tasks copy and reverse, whose second half asks for the symbols of the first.
Imports no torch before data are drawn.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.spec import RequestError
from bench.tasks import IGNORED, Split, Splits
from bench.tasks._info import TOKEN_CLASS, Generation, Sequences, TaskChoice, TaskInfo
from models.layers.options import Option

Array = NDArray[Any]
ITEMS_OPTIONS = (Option("items", 20_000, low=1), Option("test_items", 2_000, low=1), Option("seed", 0))
SOLVED_AT = 0.99
"""The share of right answers from which a training has solved a generated task."""
MIN_VARIETY = 2
"""Minimum ratio of different items to drawn items.

Enough must differ to keep test items out of training.
"""
MAX_DRAWS = 100
"""Maximum number of draws until no training item is a test item."""
TEST_STREAM, TRAIN_STREAM = 0, 1


Draw = Callable[[np.random.Generator, int], Split]
"""(generator, number of items) -> items, drawn from that generator alone."""


def drawn(inputs: Array, targets: Array, lengths: Array | None = None) -> Split:
    """Return drawn items as tensors on the same memory."""
    import torch

    return Split(
        inputs=torch.from_numpy(inputs),
        targets=torch.from_numpy(targets),
        lengths=None if lengths is None else torch.from_numpy(lengths),
    )


def with_answers(inputs: Array, asked: slice, answers: Array) -> Split:
    """Return drawn items whose tokens `asked` have the classes `answers`, `(items, asked tokens)`; the rest ask nothing."""
    targets = np.full(inputs.shape, IGNORED, dtype=np.int64)
    targets[:, asked] = answers
    return drawn(inputs, targets)


def generated_info(
    choice: TaskChoice, *, summary: str, reads: Sequences, num_classes: int, after: str = "", generation: Generation | None = None
) -> TaskInfo:
    """Return the facts of a generated task with equally likely classes at some tokens.

    `after`: the paper that describes the task.
    """
    return TaskInfo(
        name=choice.name,
        summary=summary,
        source=f"generated, the same at every call{f'; after {after}' if after else ''}",
        reads=reads,
        answers=TOKEN_CLASS,
        num_classes=num_classes,
        chance=1 / num_classes,
        num_train=choice.options["items"],
        num_test=choice.options["test_items"],
        solved_at=SOLVED_AT,
        generation=generation,
    )


def fewest_tokens(choice: TaskChoice, num_different: Callable[[int], int], *, multiple: int, at_most: int, raise_option: str) -> int:
    """Return the fewest tokens with enough different items for disjoint splits.

    `num_different`: number of different items at a number of tokens. Raises RequestError, naming the option to raise, if no number of tokens up to
    `at_most` suffices.
    """
    num_drawn = choice.options["items"] + choice.options["test_items"]
    for num_tokens in range(multiple, at_most + 1, multiple):
        if num_different(num_tokens) >= MIN_VARIETY * num_drawn:
            return num_tokens
    raise RequestError(
        f"task {choice.text} has too few different items to draw {num_drawn} and keep test items out of training",
        f"raise the option {raise_option} of task {choice.name}, or lower items",
    )


def generate_splits(choice: TaskChoice, *, num_tokens: int, draw: Draw, draw_learned: Draw | None = None) -> Splits:
    """Generate a task's splits; the options `items` and `test_items` set their sizes.

    The result depends only on the task's name, the number of tokens and the option `seed`. Test items are drawn first, so they do not depend on the
    number of training items.

    `draw_learned`: draws training items; by default `draw`.

    Raises RequestError if there are too few different items.
    """
    test = draw(stream_of(choice, num_tokens, TEST_STREAM), choice.options["test_items"])
    test_items = {item.tobytes() for item in test.inputs.numpy()}
    train = _draw_train(choice, draw_learned or draw, stream_of(choice, num_tokens, TRAIN_STREAM), test_items)
    return Splits(train=train, test=test)


def smallest_id_type(vocab_size: int) -> type[np.uint8] | type[np.int16] | type[np.int32]:
    """Return the smallest integer type for ids below `vocab_size`.

    Only types that all torch operations accept are considered.
    """
    if vocab_size <= 2**8:
        return np.uint8
    return np.int16 if vocab_size <= 2**15 else np.int32


def draw_distinct(generator: np.random.Generator, num_items: int, num: int, *, below: int) -> Array:
    """Draw `num` different numbers below `below` for each item, in random order: `(num_items, num)` int64."""
    numbers = np.arange(below, dtype=smallest_id_type(below))
    return generator.permuted(np.tile(numbers, (num_items, 1)), axis=1)[:, :num].astype(np.int64)


def stream_of(choice: TaskChoice, num_tokens: int, stream: int) -> np.random.Generator:
    """Return a generator that depends only on the task's name, the number of tokens, the stream and the option `seed`."""
    seed = choice.options["seed"]
    return np.random.default_rng((zlib.crc32(choice.name.encode()), num_tokens, stream, *((seed,) if seed else ())))


def _draw_train(choice: TaskChoice, draw: Draw, generator: np.random.Generator, test_items: set[bytes]) -> Split:
    """Draw training items; replace those that are also test items."""
    import torch

    missing, parts = choice.options["items"], []
    for _ in range(MAX_DRAWS):
        part = draw(generator, missing)
        is_new = torch.tensor([item.tobytes() not in test_items for item in part.inputs.numpy()])
        parts.append(part.select(is_new))
        missing -= int(is_new.sum())
        if not missing:
            lengths = [part.lengths for part in parts if part.lengths is not None]
            return Split(
                inputs=torch.cat([part.inputs for part in parts]),
                targets=torch.cat([part.targets for part in parts]),
                lengths=torch.cat(lengths) if lengths else None,
            )
    raise RequestError(f"task {choice.text} has too few different items to keep test items out of training", "raise `seq`, or lower items")


BLANK, SHIFTED = FORMS = ("blank", "shifted")
"""Input of the second half.

Either blanks, or the answers one token late, after a start symbol.
"""
RECOLLECTION_OPTIONS = (*ITEMS_OPTIONS, Option("symbols", 16, low=2, high=4096), Option("form", BLANK, FORMS), Option("learn_up_to", 0))


def recollection_info(choice: TaskChoice, *, description: str) -> TaskInfo:
    """Return the facts of the task copy or reverse.

    Raises RequestError if there are too few different items, or if options exclude each other.
    """
    symbols, learn_up_to, is_shifted = choice.options["symbols"], choice.options["learn_up_to"], _is_shifted(choice)
    if learn_up_to and not is_shifted:
        needed = f"form={SHIFTED}"
        raise RequestError(
            f"option learn_up_to of task {choice.name} needs {needed}", f"write {choice.name}+{needed}+learn_up_to={learn_up_to}"
        )
    shortest = fewest_tokens(choice, lambda n: symbols ** (n // 2), multiple=2, at_most=128, raise_option="symbols")
    return generated_info(
        choice,
        summary=f"{description} in the second half, token by token" if is_shifted else f"{description} in the blank second half",
        # training items must not be longer than test items
        reads=Sequences(vocab_size=_vocab_size(choice), multiple=2, min_tokens=max(shortest, 2 * learn_up_to)),
        num_classes=symbols,
        generation=Generation(start=symbols + 1, blank=symbols) if is_shifted else None,
    )


def recollection_splits(choice: TaskChoice, *, num_tokens: int, backwards: bool) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers of the second half.

    The first half shows random symbols. Ids: symbols 0 to `symbols` - 1, blank `symbols`, start symbol `symbols` + 1 (only if shifted). Training
    items show 1 to `learn_up_to` symbols, each number equally likely, then blanks; with 0 all show `num_tokens` / 2, as test items do.
    """
    symbols, half = choice.options["symbols"], num_tokens // 2
    place = np.arange(half)

    def draw(generator: np.random.Generator, num_items: int, up_to: int = 0) -> Split:
        shown = generator.integers(symbols, size=(num_items, half))
        lengths = generator.integers(1, up_to + 1, size=(num_items, 1)) if up_to else np.full((num_items, 1), half)
        answers = np.take_along_axis(shown, np.maximum(lengths - 1 - place, 0), axis=1) if backwards else shown
        inputs = np.full((num_items, num_tokens), symbols, dtype=smallest_id_type(_vocab_size(choice)))
        inputs[:, :half] = np.where(place < lengths, shown, symbols)
        if _is_shifted(choice):
            read = np.where(place < lengths, answers, symbols)
            inputs[:, half:] = np.insert(read[:, :-1], 0, symbols + 1, axis=1)  # one token late, after the start symbol
        return with_answers(inputs, slice(half, None), np.where(place < lengths, answers, IGNORED))

    draw_learned = functools.partial(draw, up_to=choice.options["learn_up_to"])
    return generate_splits(choice, num_tokens=num_tokens, draw=draw, draw_learned=draw_learned)


def _vocab_size(choice: TaskChoice) -> int:
    """Count the symbols, the blank and, if shifted, the start symbol."""
    size: int = choice.options["symbols"] + 1 + _is_shifted(choice)
    return size


def _is_shifted(choice: TaskChoice) -> bool:
    return bool(choice.options["form"] == SHIFTED)

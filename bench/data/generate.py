"""Generated splits: the same bits at every call, and no test item among the training ones."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.data.options import whole_option
from bench.spec import RequestError
from bench.task_info import TaskChoice
from bench.tasks import Split, Splits

Array = NDArray[Any]
MAX_DRAWS = 100
"""How often items are drawn again for those that the test split already holds."""
TEST_STREAM, TRAIN_STREAM = 0, 1


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Items as arrays, shaped as in a `Split`."""

    inputs: Array
    targets: Array
    lengths: Array | None = None


Draw = Callable[[np.random.Generator, int], Drawn]
"""(generator, number of items) -> items, drawn from that generator only."""


def generate_splits(choice: TaskChoice, *, num_tokens: int, draw: Draw, draw_learned: Draw | None = None) -> Splits:
    """The splits of a generated task, sized by its options `items` and `test_items`.

    `draw_learned`: how the items to learn from are drawn, where they are not drawn as the test items are.

    What is drawn depends on the task's name, the number of tokens and the option `seed` alone. Test items are drawn first: they do not depend on
    how many are learned from.
    Raises RequestError where there are too few different items.
    """
    test = draw(_generator(choice, num_tokens, TEST_STREAM), whole_option(choice, "test_items"))
    kept_out = {item.tobytes() for item in test.inputs}
    train = _draw_others(choice, draw_learned or draw, _generator(choice, num_tokens, TRAIN_STREAM), kept_out)
    return Splits(train=_split(train), test=_split(test))


def smallest_id_type(vocab_size: int) -> type[np.uint8] | type[np.int16] | type[np.int32]:
    """The most compact integers, of those that every operation of torch takes, for ids below `vocab_size`."""
    if vocab_size <= 2**8:
        return np.uint8
    return np.int16 if vocab_size <= 2**15 else np.int32


def _generator(choice: TaskChoice, num_tokens: int, stream: int) -> np.random.Generator:
    seed = whole_option(choice, "seed", at_least=0)
    return np.random.default_rng((zlib.crc32(choice.name.encode()), num_tokens, stream, *((seed,) if seed else ())))


def _draw_others(choice: TaskChoice, draw: Draw, generator: np.random.Generator, kept_out: set[bytes]) -> Drawn:
    """Training items, drawn again in place of each that is kept out."""
    missing, parts = whole_option(choice, "items"), []
    for _ in range(MAX_DRAWS):
        part = draw(generator, missing)
        is_new = np.array([item.tobytes() not in kept_out for item in part.inputs])
        parts.append(_chosen(part, is_new))
        missing -= int(is_new.sum())
        if not missing:
            return _joined(parts)
    raise RequestError(f"task {choice.text} has too few different items to keep test items out of training", "raise --seq, or lower items")


def _chosen(items: Drawn, mask: Array) -> Drawn:
    lengths = None if items.lengths is None else items.lengths[mask]
    return Drawn(inputs=items.inputs[mask], targets=items.targets[mask], lengths=lengths)


def _joined(parts: list[Drawn]) -> Drawn:
    lengths = [part.lengths for part in parts if part.lengths is not None]
    return Drawn(
        inputs=np.concatenate([part.inputs for part in parts]),
        targets=np.concatenate([part.targets for part in parts]),
        lengths=np.concatenate(lengths) if lengths else None,
    )


def _split(items: Drawn) -> Split:
    lengths = None if items.lengths is None else torch.from_numpy(items.lengths)
    return Split(inputs=torch.from_numpy(items.inputs), targets=torch.from_numpy(items.targets), lengths=lengths)

"""Task facts that need no data; parsing of task names.

Imports no torch.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench import catalog
from bench.spec import RequestError
from models.layers.options import Option, read_options
from models.layers.shape import Interface, num_data_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASS, TOKEN_CLASS, TOKEN_VALUE = "class", "token_class", "token_value"
"""Kinds of answer.

One class per item, a class at some tokens, or a number at some tokens.
"""
NAME_PATTERN = r"(?P<name>[a-z0-9_]+)(?::(?P<argument>.*?))?(?P<options>(?:\+[a-z_]+=[^+]*)*)"


class MissingDataError(RequestError):
    """A file of a data set is not there; a download may bring it."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images, which seq_len cuts into square patches.

    `height`, `width`: in pixels.
    `are_bytes`: pixels are stored as 0..255, as some augmentations require.
    """

    channels: int
    height: int
    width: int
    are_bytes: bool = True

    @property
    def is_square(self) -> bool:
        return self.height == self.width

    @property
    def size_text(self) -> str:
        return f"{self.height} px" if self.is_square else f"{self.height} x {self.width} px"

    def patch_side(self, seq_len: int, pool: str) -> int | None:
        """Return the patch side, in pixels, that gives `seq_len` tokens.

        None if no grid of square patches gives that number.
        """
        return self._patch_sides(pool).get(seq_len)

    def seq_lens(self, pool: str) -> tuple[int, ...]:
        """Return the valid sequence lengths, shortest first."""
        return tuple(n for n in self._patch_sides(pool) if n >= 2)

    def _patch_sides(self, pool: str) -> dict[int, int]:
        """Return the patch side by sequence length, shortest first."""
        extra, largest = 1 - num_data_tokens(1, pool), math.gcd(self.height, self.width)
        sides = (side for side in range(largest, 0, -1) if largest % side == 0)
        return {self.height * self.width // side**2 + extra: side for side in sides}


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Sequences of token ids or of vectors.

    `vocab_size`: ids are below it; 0 for vectors.
    `vector_width`: numbers per vector; 0 for ids.
    `multiple`: the number of data tokens must be a multiple of it.
    `min_tokens`, `max_tokens`: allowed numbers of data tokens; `max_tokens` 0 means no limit.
    `longer_with`: the change that raises `max_tokens`, for messages.
    """

    vocab_size: int = 0
    vector_width: int = 0
    multiple: int = 1
    min_tokens: int = 2
    max_tokens: int = 0
    longer_with: str = ""

    def fits(self, num_tokens: int) -> bool:
        return self.nearest(num_tokens) == num_tokens

    def nearest(self, num_tokens: int) -> int:
        """Return the valid number of data tokens nearest to `num_tokens`."""
        shortest, longest = -(-self.min_tokens // self.multiple), self.max_tokens // self.multiple
        nearest = max(shortest, round(num_tokens / self.multiple))
        return self.multiple * (min(nearest, longest) if longest else nearest)

    @property
    def rule(self) -> str:
        multiple = f", a multiple of {self.multiple}" if self.multiple > 1 else ""
        if not self.max_tokens:
            return f"{self.min_tokens} data tokens or more{multiple}"
        longer = f" (longer with {self.longer_with})" if self.longer_with else ""
        return f"{self.min_tokens} to {self.max_tokens} data tokens{multiple}{longer}"


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Token-by-token generation of the second half of an id sequence.

    Each answer is the next input token, so class ids equal token ids.

    `start`: id of the start symbol, the first token of the second half.
    `blank`: id that stands for tokens not generated yet.
    """

    start: int
    blank: int


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """Facts of a task.

    `answers`: CLASS, TOKEN_CLASS or TOKEN_VALUE.
    `num_classes`: number of outputs; 1 for a value.
    `chance`: score of guessing: of a uniform guess, or of the most frequent class; 0 for values, which is what their mean scores.
    `num_validation`: 0 if validation items are drawn from the training split.
    `score_name`: name of the score if it is not an accuracy.
    `solved_at`: the accuracy from which a training has solved the task; None where trainings do not split into solving it and not.
    `generation`: set if the model learns with answers shown one token late and is scored on sequences that it generates.
    `curve`: function from an array of x to y without noise, if a token's vector begins with x and the observed y; its fit can be drawn.
    """

    name: str
    summary: str
    source: str
    reads: Images | Sequences
    answers: str = CLASS
    num_classes: int
    chance: float
    num_train: int
    num_validation: int = 0
    num_test: int
    score_name: str = ""
    solved_at: float | None = None
    generation: Generation | None = None
    curve: Callable[[NDArray[Any]], NDArray[Any]] | None = None

    def interface(self, seq_len: int, pool: str) -> Interface:
        """Return the inputs and outputs of a model with that length.

        Raises RequestError, naming the lengths that fit, if `seq_len` does not fit the task.
        """
        output = "class" if self.answers == CLASS else "tokens"
        reads, problem = self.reads, f"seq_len {seq_len} does not fit task {self.name}"
        if isinstance(reads, Images):
            patch = reads.patch_side(seq_len, pool)
            if patch is None:
                lengths = [str(n) for n in reads.seq_lens(pool)]
                raise RequestError(
                    f"{problem} ({reads.size_text}, pool {pool}); lengths that fit: {', '.join(lengths)}",
                    f"try `seq={','.join(lengths[1:4])}`",
                )
            rows = 0 if reads.is_square else reads.height // patch
            return Interface(patch_dim=reads.channels * patch * patch, num_classes=self.num_classes, output=output, rows=rows)
        pool = pool if output == "class" else "none"
        tokens = num_data_tokens(seq_len, pool)
        if not reads.fits(tokens):
            raise RequestError(
                f"{problem} ({tokens} data tokens, pool {pool}); lengths that fit: {reads.rule}",
                f"try `seq={reads.nearest(tokens) + seq_len - tokens}`",
            )
        if reads.vocab_size:
            return Interface(input="tokens", vocab_size=reads.vocab_size, num_classes=self.num_classes, output=output)
        return Interface(patch_dim=reads.vector_width, num_classes=self.num_classes, output=output)


@dataclass(frozen=True, kw_only=True)
class TaskChoice:
    """A task as requested: `name`, `name:argument` or `name+option=value`.

    `text`: the request as written.
    `options`: every option of the task, given or default.
    """

    text: str
    name: str
    argument: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def choose(text: str) -> TaskChoice:
    """Parse a task's name, argument and options.

    Raises RequestError, naming the allowed values, for an unknown task, an unknown option or a missing argument.
    """
    found = re.fullmatch(NAME_PATTERN, text)
    if not found:
        raise RequestError(f"`task` {text!r} must be written name, name:argument or name+option=value", "see: bench list tasks")
    name, argument = found["name"], found["argument"] or ""
    catalog.plugin("tasks", name)
    module = catalog.load("tasks", name)
    wanted: str = getattr(module, "ARGUMENT", "")
    if bool(argument) != bool(wanted):
        problem = f"task {name} needs a {wanted}" if wanted else f"task {name} takes no argument, found {argument!r}"
        raise RequestError(problem, f"write {name}:{wanted}" if wanted else f"try `task={name}`")
    known: tuple[Option, ...] = getattr(module, "OPTIONS", ())
    given = read_options(f"task {name}", found["options"].split("+")[1:], known)
    return TaskChoice(text=text, name=name, argument=argument, options={**{option.name: option.default for option in known}, **given})


@functools.lru_cache(maxsize=64)
def info_of(text: str) -> TaskInfo:
    """Return the facts of a requested task.

    Raises RequestError if they cannot be determined.
    """
    choice = choose(text)
    try:
        info: TaskInfo = catalog.load("tasks", choice.name).info(choice)
    except ValueError as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"`task={text}`: {error}", "see: bench list tasks") from error
    return info

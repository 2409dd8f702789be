"""What is known of a task without loading its data, and how a task is named in a request. Imports no torch."""

from __future__ import annotations

import functools
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
"""What a task asks for: one class per item, a class at some tokens, a number at some tokens."""
NAME_PATTERN = r"(?P<name>[a-z0-9_]+)(?::(?P<argument>.*?))?(?P<options>(?:\+[a-z_]+=[^+]*)*)"


@dataclass(frozen=True, kw_only=True)
class Images:
    """Square images; seq_len decides the side of the patches. `are_bytes`: stored as 0..255, as some augmentations need them."""

    channels: int
    side: int
    are_bytes: bool = True

    def patch_side(self, seq_len: int, pool: str) -> int | None:
        """Pixels per patch side for which the image gives `seq_len` tokens; None where no square grid does."""
        data_tokens = num_data_tokens(seq_len, pool)
        for grid in range(1, self.side + 1):
            if grid * grid == data_tokens and self.side % grid == 0:
                return self.side // grid
        return None

    def seq_lens(self, pool: str) -> tuple[int, ...]:
        """The lengths that fit, shortest first."""
        extra = 1 - num_data_tokens(1, pool)
        lengths = (grid * grid + extra for grid in range(1, self.side + 1) if self.side % grid == 0)
        return tuple(n for n in lengths if n >= 2)


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Sequences of any number of data tokens from `min_tokens` up to `max_tokens` (0: no limit) that is a multiple of `multiple`.

    Token ids below `vocab_size`, or, where that is 0, vectors of `vector_width` numbers. `longer_with`: what would lift the limit.
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
        """The number of data tokens nearest to `num_tokens` that fits."""
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
    """How a sequence is generated, token by token, in the second part of a sequence of ids that begins with `start`.

    Each answer is the next token read, so the ids of the classes are those of their tokens; what is not generated yet reads as `blank`.
    """

    start: int
    blank: int


@dataclass(frozen=True, kw_only=True)
class Regression:
    """Where a token's vector holds a point of a curve: the indices of `x` and of the observed `y`. `curve`: from arrays of x to y, without noise."""

    x: int
    y: int
    curve: Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """Facts of a task. `chance`: the score of guessing; `answers`: CLASS, TOKEN_CLASS or TOKEN_VALUE; `num_classes`: outputs (1 for a value).

    `num_validation` is 0 where validation items are drawn from the training split. `score_name`: of a task whose score is no accuracy.
    `generation`: of a task of token classes that is learned with its answers shown one token late and scored on sequences that the model generates.
    `regression`: of a task of values that are those of a curve, so that a fit can be drawn.
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
    generation: Generation | None = None
    regression: Regression | None = None

    def interface(self, seq_len: int, pool: str) -> Interface:
        """What a model of that length reads and answers. Raises RequestError, naming what fits, for a length that does not."""
        output = "class" if self.answers == CLASS else "tokens"
        if isinstance(self.reads, Images):
            return Interface(patch_dim=self._patch_dim(self.reads, seq_len, pool), num_classes=self.num_classes, output=output)
        self._require_fitting(self.reads, seq_len, pool if output == "class" else "none")
        if self.reads.vocab_size:
            return Interface(input="tokens", vocab_size=self.reads.vocab_size, num_classes=self.num_classes, output=output)
        return Interface(patch_dim=self.reads.vector_width, num_classes=self.num_classes, output=output)

    def _patch_dim(self, images: Images, seq_len: int, pool: str) -> int:
        patch = images.patch_side(seq_len, pool)
        if patch is None:
            lengths = images.seq_lens(pool)
            fitting = ", ".join(str(n) for n in lengths)
            raise RequestError(
                f"seq_len {seq_len} does not fit task {self.name} ({images.side} px, pool {pool}); lengths that fit: {fitting}",
                f"try --seq {','.join(str(n) for n in lengths[1:4])}",
            )
        return images.channels * patch * patch

    def _require_fitting(self, sequences: Sequences, seq_len: int, pool: str) -> None:
        tokens = num_data_tokens(seq_len, pool)
        if not sequences.fits(tokens):
            raise RequestError(
                f"seq_len {seq_len} does not fit task {self.name} ({tokens} data tokens, pool {pool}); what fits: {sequences.rule}",
                f"try --seq {sequences.nearest(tokens) + seq_len - tokens}",
            )


@dataclass(frozen=True, kw_only=True)
class TaskChoice:
    """A task as asked for: `name`, `name:argument` or `name+option=value`. `options` holds every option of the task, as given or at its default."""

    text: str
    name: str
    argument: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def choose(text: str) -> TaskChoice:
    """The choice that a text names. Raises RequestError, saying what is allowed, for an unknown task, option or a missing argument."""
    found = re.fullmatch(NAME_PATTERN, text)
    if not found:
        raise RequestError(f"--task {text!r} is not written name, name:argument or name+option=value", "see: bench list tasks")
    name, argument = found["name"], found["argument"] or ""
    catalog.require("tasks", name)
    module = catalog.load("tasks", name)
    wanted: str = getattr(module, "ARGUMENT", "")
    if bool(argument) != bool(wanted):
        problem = f"task {name} needs a {wanted}" if wanted else f"task {name} takes no argument, found {argument!r}"
        raise RequestError(problem, f"write {name}:{wanted}" if wanted else f"try --task {name}")
    known: tuple[Option, ...] = getattr(module, "OPTIONS", ())
    given = read_options(f"task {name}", found["options"].split("+")[1:], known)
    return TaskChoice(text=text, name=name, argument=argument, options={**{option.name: option.default for option in known}, **given})


@functools.lru_cache(maxsize=64)
def info_of(text: str) -> TaskInfo:
    """The facts of a task as asked for. Raises RequestError where they cannot be known."""
    choice = choose(text)
    try:
        info: TaskInfo = catalog.load("tasks", choice.name).info(choice)
    except ValueError as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"--task {text}: {error}", "see: bench list tasks") from error
    return info

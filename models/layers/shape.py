"""Sizes of a model and of what it reads and answers. Imports no torch: planning needs these before any tensor exists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

INPUTS = ("patches", "tokens", "images")
OUTPUTS = ("class", "tokens")
POOLS = ("cls", "mean")
NO_POOL = "none"
COLOURS = (3, 1)
"""Channels that an image may have: a patch of p x p pixels holds 3 p^2 numbers or, where there is no such p, p^2."""
ADDED_LATER = {"added_later": True}
"""Metadata of a field that older plans do not have: at its default it is left out of JSON, so that their ids stand."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of an encoder.

    `seq_len` counts the tokens that the blocks see, the class token included; `ffn_width` is the hidden width of the channel
    projection; `heads` is unused by families without attention.
    """

    seq_len: int
    width: int
    depth: int
    heads: int
    ffn_width: int

    def __post_init__(self) -> None:
        for size in fields(self):
            require_positive(size.name, getattr(self, size.name))
        if self.seq_len < 2:
            raise ValueError(f"seq_len must be at least 2, not {self.seq_len}: mixing needs two tokens")


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What goes in and what comes out.

    In: `(batch, data tokens, patch_dim)` floats, `(batch, data tokens)` ids, or `(batch, channels, height, width)` images of patches of `patch_dim`
    numbers (`image_sides`). Out: `(batch, num_classes)` for `class`; for `tokens`, an answer at
    every token, `(batch, data tokens, num_classes)`, without pooling or class token.
    """

    input: str = "patches"
    patch_dim: int = 192
    vocab_size: int = 256
    num_classes: int = 10
    output: str = field(default="class", metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        require_one_of("input", self.input, INPUTS)
        require_one_of("output", self.output, OUTPUTS)
        for name in ("patch_dim", "vocab_size", "num_classes"):
            require_positive(name, getattr(self, name))
        if self.input == "images":
            patch_of(self.patch_dim)

    def pooling(self, pool: str) -> str:
        """The pooling that a family's option `pool` comes to: none where every token answers for itself."""
        return NO_POOL if self.output == "tokens" else pool


def patch_of(patch_dim: int) -> tuple[int, int]:
    """(channels, side in pixels) of a square patch of `patch_dim` numbers. Raises ValueError where there is none."""
    for channels in COLOURS:
        side = math.isqrt(patch_dim // channels)
        if channels * side * side == patch_dim:
            return channels, side
    raise ValueError(f"patch_dim must be a square, or three times one, to be a patch of an image, not {patch_dim}")


def image_grid(data_tokens: int) -> tuple[int, int]:
    """(rows, columns) of the patches of an image: a square where one holds them, otherwise one row."""
    rows = math.isqrt(data_tokens)
    return (rows, rows) if rows * rows == data_tokens else (1, data_tokens)


def image_sides(data_tokens: int, patch_dim: int) -> tuple[int, int, int]:
    """(channels, height, width) in pixels of the image whose patches are the data tokens."""
    (rows, columns), (channels, side) = image_grid(data_tokens), patch_of(patch_dim)
    return channels, rows * side, columns * side


def num_data_tokens(seq_len: int, pool: str) -> int:
    """Tokens that come from the data: all but the class token with `cls`, otherwise all of them."""
    return seq_len - 1 if pool == "cls" else seq_len


def require_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, not {value!r}")


def require_non_negative(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be zero or a positive whole number, not {value!r}")


def require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def require_divisible(name: str, value: int, divisor_name: str, divisor: int) -> None:
    if value % divisor:
        raise ValueError(f"{name} must be a multiple of {divisor_name}: {value} is not a multiple of {divisor}")

"""Model sizes, and the shapes of inputs and outputs.

Imports no torch, because planning needs these before any tensor exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

INPUTS = ("patches", "tokens", "images")
OUTPUTS = ("class", "tokens")
POOLS = ("cls", "mean")
NO_POOL = "none"
COLOURS = (3, 1)
"""Channels that an image may have, the preferred number first.

A patch of p x p pixels holds 3 p^2 numbers, or p^2 if no such p exists.
"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of an encoder.

    `seq_len`: tokens that the blocks see, class token included; at least 2.
    `width`: channels of a token.
    `depth`: number of blocks.
    `heads`: attention heads; unused by families without attention.
    `ffn_width`: hidden width of the channel projection.

    Raises ValueError if a size is not a positive integer or `seq_len` is below 2.
    """

    seq_len: int
    width: int
    depth: int
    heads: int
    ffn_width: int

    def __post_init__(self) -> None:
        require_sizes(self, *(size.name for size in fields(self)))
        if self.seq_len < 2:
            raise ValueError(f"seq_len must be at least 2, not {self.seq_len}: mixing needs two tokens")


@dataclass(frozen=True, kw_only=True)
class Interface:
    """The inputs and outputs of a model.

    `input`: `patches`, `(batch, data tokens, patch_dim)` floats; `tokens`, `(batch, data tokens)` ids; or `images`,
        `(batch, channels, height, width)` (`image_sides`).
    `patch_dim`: numbers in a patch.
    `vocab_size`: number of token ids.
    `num_classes`: number of logits per answer.
    `rows`: rows of patches in an image (0: as many as columns, or a single row).
    `output`: `class`, `(batch, num_classes)`; or `tokens`, an answer at every token, `(batch, data tokens, num_classes)`, without pooling
        or class token.

    Raises ValueError for an unknown value, a size that is not a positive integer, or images without square patches.
    """

    input: str = "patches"
    patch_dim: int = 192
    vocab_size: int = 256
    num_classes: int = 10
    output: str = "class"
    rows: int = 0

    def __post_init__(self) -> None:
        require_choices(self, input=INPUTS, output=OUTPUTS)
        require_sizes(self, "patch_dim", "vocab_size", "num_classes")
        require_non_negative("rows", self.rows)
        if self.input == "images":
            patch_of(self.patch_dim)

    def pooling(self, pool: str) -> str:
        """Return the pooling in effect: `none` if every token answers, else `pool`."""
        return NO_POOL if self.output == "tokens" else pool


def patch_of(patch_dim: int) -> tuple[int, int]:
    """Return (channels, side in pixels) of a square patch.

    Raises ValueError if `patch_dim` is neither a square nor three times a square.
    """
    for channels in COLOURS:
        side = math.isqrt(patch_dim // channels)
        if channels * side * side == patch_dim:
            return channels, side
    raise ValueError(f"patch_dim must be a square or three times a square, not {patch_dim}: images have square patches")


def image_grid(data_tokens: int, rows: int = 0) -> tuple[int, int]:
    """Return (rows, columns) of an image's patches.

    Without `rows` the grid is a square if `data_tokens` is a perfect square, otherwise a single row.
    """
    if rows:
        return rows, data_tokens // rows
    side = math.isqrt(data_tokens)
    return (side, side) if side * side == data_tokens else (1, data_tokens)


def image_sides(data_tokens: int, patch_dim: int, rows: int = 0) -> tuple[int, int, int]:
    """Return (channels, height, width) of an image with `data_tokens` patches, in so many `rows` (0: `image_grid`).

    Height and width are in pixels.
    """
    (rows, columns), (channels, side) = image_grid(data_tokens, rows), patch_of(patch_dim)
    return channels, rows * side, columns * side


def num_data_tokens(seq_len: int, pool: str) -> int:
    """Return the number of data tokens: all but the class token."""
    return seq_len - 1 if pool == "cls" else seq_len


def require_positive(name: str, value: int) -> None:
    """Raise ValueError unless `value` is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, not {value!r}")


def require_non_negative(name: str, value: int) -> None:
    """Raise ValueError unless `value` is zero or a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be zero or a positive whole number, not {value!r}")


def require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def require_sizes(config: object, *names: str) -> None:
    """Raise ValueError unless these fields are positive integers."""
    for name in names:
        require_positive(name, getattr(config, name))


def require_choices(config: object, **allowed: Iterable[str]) -> None:
    """Raise ValueError unless each of these fields is one of its allowed words."""
    for name, words in allowed.items():
        require_one_of(name, getattr(config, name), tuple(words))


def require_heads(config: Any, *names: str) -> None:
    """Raise ValueError unless `seq_len`, `width`, `heads` and these fields are positive integers, and the heads divide the width."""
    require_sizes(config, "seq_len", "width", "heads", *names)
    require_divisible("width", config.width, "heads", config.heads)


def require_divisible(name: str, value: int, divisor_name: str, divisor: int) -> None:
    """Raise ValueError unless `value` is a multiple of `divisor`."""
    if value % divisor:
        raise ValueError(f"{name} must be a multiple of {divisor_name}: {value} is not a multiple of {divisor}")

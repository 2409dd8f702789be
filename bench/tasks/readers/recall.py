"""Key-value pairs and queries: the shared parts of the recall tasks.

A key or a value is one token or several. A query repeats a key; its answers are the value's tokens, the first one at the query's last token. Ids:
values from 0, as classes, then keys.
"""

from __future__ import annotations

import math

import numpy as np

from bench.spec import RequestError
from bench.tasks import IGNORED, Split
from bench.tasks._info import TaskChoice
from bench.tasks.readers.generate import Array, drawn
from models.layers.options import Option

MAX_SYMBOLS = 4096
"""Largest number of keys or values.

With more, the shuffled keys of all items would not fit in memory.
"""
KEYS, VALUES = Option("keys", 64, low=1, high=MAX_SYMBOLS), Option("values", 16, low=2, high=MAX_SYMBOLS)
SYMBOLS, KEY_TOKENS = Option("symbols", 16, low=2, high=MAX_SYMBOLS), Option("key_tokens", 2, low=1, high=12)


def num_bindings(pairs: int, *, keys: int, values: int) -> int:
    """Count the lists of `pairs` pairs with different keys and any values."""
    num_values: int = values**pairs
    return math.perm(keys, pairs) * num_values if pairs else 0


def num_long_keys(choice: TaskChoice) -> int:
    """Count the keys of `key_tokens` tokens, each one of `symbols`. Raises RequestError if there are more than MAX_SYMBOLS."""
    symbols, key_tokens = choice.options["symbols"], choice.options["key_tokens"]
    num_keys: int = symbols**key_tokens
    if num_keys > MAX_SYMBOLS:
        raise RequestError(
            f"task {choice.text} has symbols^key_tokens = {symbols}^{key_tokens} different keys; allowed: up to {MAX_SYMBOLS:,}",
            "lower the option symbols or key_tokens",
        )
    return num_keys


def spell_keys(numbers: Array, choice: TaskChoice, *, first_id: int) -> Array:
    """Write key numbers `(...)` as ids `(..., key_tokens)`, the digits to base `symbols`."""
    powers = choice.options["symbols"] ** np.arange(choice.options["key_tokens"])[::-1]
    return np.asarray(numbers[..., None] // powers % choice.options["symbols"] + first_id)


def bind_and_ask(inputs: Array, *, keys: Array, values: Array, pairs_at: Array, asked: Array, queries_at: Array) -> Split:
    """Write pairs and queries over `inputs`; return the items with their answers.

    `inputs`: ids of all tokens before that, `(items, tokens)`.
    `keys`, `values`: ids, `(items, pairs, tokens of one)`.
    `pairs_at`, `queries_at`: first token of each, `(items, pairs)` and `(items, queries)`, or one row for all items.
    `asked`: number of the pair that each query asks for, `(items, queries)`.
    """
    targets = np.full(inputs.shape, IGNORED, dtype=np.int64)
    key_tokens = keys.shape[-1]
    _write(inputs, pairs_at, keys)
    _write(inputs, pairs_at + key_tokens, values)
    _write(inputs, queries_at, np.take_along_axis(keys, asked[..., None], axis=1))
    _write(targets, queries_at + key_tokens - 1, np.take_along_axis(values, asked[..., None], axis=1))
    return drawn(inputs, targets)


def _write(rows: Array, starts: Array, tokens: Array) -> None:
    places = np.broadcast_to(starts[..., None] + np.arange(tokens.shape[-1]), tokens.shape)
    np.put_along_axis(rows, places.reshape(len(rows), -1), tokens.reshape(len(rows), -1), axis=1)

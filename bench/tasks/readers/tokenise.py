"""Convert texts to token ids, cut and padded to one length.

Ids start at 1; 0 is padding. `bytes`: byte + 1 for every byte of the UTF-8 text. `bpe`: byte pairs learned from the training texts, see `byte_pairs`.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.spec import RequestError
from bench.tasks.readers import byte_pairs
from models.layers.options import Option

PADDING = 0
TOKENIZERS = ("bytes", "bpe")
DEFAULT_VOCAB_SIZE = 4096
TOKEN_OPTIONS = (Option("tokenizer", "bytes", TOKENIZERS), Option("vocab_size", DEFAULT_VOCAB_SIZE))
"""Options of a tokenizer; `vocab_size` is for `bpe` only."""
LABELLED_OPTIONS = (*TOKEN_OPTIONS, Option("spare_ids", 0, high=1000))
"""Options of every text task.

`spare_ids`: ids beyond those of the texts, which no text holds. With as many as a pre-training on the same texts added (`masked_token` 1,
`span_corruption` 101) a model's embedding has the shape of the pre-trained one.
"""
BYTE_VOCAB_SIZE = 257
EMPTY_TEXT = " "
"""Replaces an empty text, because an item has at least one token."""

Ids = NDArray[Any]
Tokenise = Callable[[Sequence[str]], tuple[Ids, NDArray[np.int64]]]


def require_tokens(options: Mapping[str, Any]) -> int:
    """Return the requested vocabulary size, padding included. Raises RequestError for contradictory options."""
    size: int = options["vocab_size"]
    if options["tokenizer"] == "bpe":
        if size < BYTE_VOCAB_SIZE:
            raise RequestError(
                f"vocab_size {size} is too small for bpe; at least {BYTE_VOCAB_SIZE}: padding and the 256 bytes", "write +vocab_size=4096"
            )
        return size
    if size != DEFAULT_VOCAB_SIZE:
        raise RequestError(
            f"vocab_size {size} needs tokenizer bpe; tokenizer bytes has {BYTE_VOCAB_SIZE}", "add +tokenizer=bpe, or leave out vocab_size"
        )
    return BYTE_VOCAB_SIZE


def learn_tokens(texts: Sequence[str], *, options: Mapping[str, Any], num_tokens: int) -> Tokenise:
    """Return a tokenising function, learned from the training texts.

    The function returns ids `(texts, num_tokens)`, int16 or int32, and the number of real tokens per text, `(texts,)`.
    """
    vocab_size = require_tokens(options)
    learned = byte_pairs.learn(texts, vocab_size=vocab_size - 1) if options["tokenizer"] == "bpe" else None

    def tokenise(texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        if learned is None:
            items: Iterable[Ids] = map(byte_ids, texts)
        else:
            pieces = byte_pairs.encode(learned, [text or EMPTY_TEXT for text in texts], num_tokens)
            items = (np.asarray(piece) + 1 for piece in pieces)
        return pad(items, num_items=len(texts), num_tokens=num_tokens, vocab_size=vocab_size)

    return tokenise


def byte_ids(text: str) -> Ids:
    """Return byte + 1 for every UTF-8 byte, int16.

    Invalid characters become a question mark.
    """
    stored = (text or EMPTY_TEXT).encode("utf-8", errors="replace")
    return np.frombuffer(stored, dtype=np.uint8).astype(np.int16) + np.int16(1)


def pad(items: Iterable[Ids], *, num_items: int, num_tokens: int, vocab_size: int) -> tuple[Ids, NDArray[np.int64]]:
    """Cut and pad items to `num_tokens` ids.

    Also returns the number of real ids of each item.
    """
    dtype = np.int16 if vocab_size <= np.iinfo(np.int16).max else np.int32
    ids = np.full((num_items, num_tokens), PADDING, dtype=dtype)
    lengths = np.zeros(num_items, dtype=np.int64)
    for row, item in enumerate(items):
        lengths[row] = min(len(item), num_tokens)
        ids[row, : lengths[row]] = item[:num_tokens]
    return ids, lengths

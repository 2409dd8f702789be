"""Chunks of tokens, for recurrences that are computed as products within chunks and a state between them.

A sequence is filled up with zeros to whole chunks; products with these zeros count, as in kernels and counters. A sequence shorter than a
chunk is one chunk of its own length.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from models.layers.cost import N, Polynomial, constant


def split_chunks(tokens: Tensor, chunk: int) -> Tensor:
    """Split tokens into chunks, the last one filled up with zeros.

    `(..., n, channels)` -> `(..., chunks, size, channels)`, with size = min(chunk, n).
    """
    n = tokens.shape[-2]
    size = min(chunk, n)
    if n % size:
        tokens = F.pad(tokens, (0, 0, 0, -n % size))
    return tokens.unflatten(-2, (-1, size))


def join_chunks(chunks: Tensor, n: int) -> Tensor:
    """Undo `split_chunks`: `(..., chunks, size, channels)` -> `(..., n, channels)`."""
    return chunks.flatten(-3, -2)[..., :n, :]


def tokens_in_chunks(seq_len: int, chunk: int) -> Polynomial:
    """Return the number of tokens in all chunks, zeros included.

    The polynomial holds for every n that leaves as many tokens over, if n is at least `chunk`.
    """
    return N + constant(-seq_len % min(chunk, seq_len))


def pairs_in_chunks(seq_len: int, chunk: int) -> Polynomial:
    """Return the number of token pairs within chunks, zeros included: n x chunk, or n^2 below one chunk."""
    return N * N if seq_len <= chunk else tokens_in_chunks(seq_len, chunk) * chunk

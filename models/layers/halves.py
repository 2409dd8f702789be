"""Encoder-decoders read one sequence as two halves: source, then target.

Of n tokens, ceil(n / 2) are the source and floor(n / 2) the target. The target is shifted right: its first token is a start symbol, and the
answer at token t predicts the target's token t + 1 (arXiv 1706.03762, Sec. 3). The input and output shapes thus match an encoder's:
`(batch, n)` in one tensor.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from models.layers.cost import ZERO, Cost, N, Polynomial, Term, constant
from models.layers.embedding import Embedding, embedding_cost
from models.layers.padding import readable, zero_padding
from models.layers.shape import NO_POOL, Interface, Shape, require_divisible

POOLS = ("mean",)
"""Poolings over both halves.

The mean includes valid source tokens, because a short item may have no target.
"""
GRAIN = 4
"""Widths must be multiples of this.

Costs of m^2 pairs, with n = 2 m or 2 m + 1, then have integer coefficients in n.
"""


def num_source_tokens(num_tokens: int) -> int:
    """Return the number of source tokens, ceil(num_tokens / 2)."""
    return num_tokens - num_tokens // 2


def split(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Split tokens into source and target.

    `(batch, n, ...)` -> `(batch, ceil(n / 2), ...)` and `(batch, floor(n / 2), ...)`.
    """
    middle = num_source_tokens(tokens.shape[1])
    return tokens[:, :middle], tokens[:, middle:]


def split_valid(valid: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Split `valid`, `(batch, n)` bool or None, like the tokens."""
    return (None, None) if valid is None else split(valid)


def masked_half(tokens: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Zero one half's padding, and return the mask of readable tokens.

    `(batch, tokens, width)` -> the same. An item may end within its source or have an empty half; a half that consists of padding only is
    read as zeros, so that no softmax is empty.
    """
    return zero_padding(tokens, valid), None if valid is None else readable(valid)


class HalvesEmbedding(nn.Module):
    """Separate embeddings for source and target.

    Each half has its own table (or projection of patches) and its own positions, counted from its first token.

    `source`: `(batch, source tokens)` ids, or patches -> `(batch, source tokens, width)`.
    `target`: likewise, for the target tokens.
    """

    def __init__(self, shape: Shape, interface: Interface, *, positions: str) -> None:
        super().__init__()
        length = num_source_tokens(shape.seq_len)
        self.source = Embedding(shape, interface, pool=NO_POOL, positions=positions, num_tokens=length)
        self.target = Embedding(shape, interface, pool=NO_POOL, positions=positions, num_tokens=shape.seq_len - length)


def require_halves(shape: Shape, interface: Interface) -> None:
    """Raise ValueError for images, or a width that is not a multiple of `GRAIN`."""
    if interface.input == "images":
        raise ValueError("input must be patches or tokens for an encoder-decoder, not 'images'")
    require_divisible("width", shape.width, f"{GRAIN} in an encoder-decoder", GRAIN)


def halves_embedding_cost(shape: Shape, interface: Interface, *, positions: str) -> Cost:
    """Return the embeddings' cost in terms of target tokens (see `in_tokens`)."""
    half = embedding_cost(shape, interface, pool=NO_POOL, positions=positions)
    return of_source(half, shape.seq_len).within("source") + half.within("target")


def num_source(seq_len: int) -> Polynomial:
    """Return the number of source tokens in terms of m target tokens.

    It is m if n is even and m + 1 if n is odd.
    """
    return N + constant(seq_len % 2)


def of_source(cost: Cost, seq_len: int) -> Cost:
    """Convert a cost in source tokens to one in target tokens.

    The source is read as a whole. Of its encoder nothing is kept but what the decoder counts as its own.
    """
    kept = Cost(tuple(replace(term, state=ZERO) for term in cost.terms))
    return _substituted(kept, offset=seq_len % 2, divisor=1)


def in_tokens(cost: Cost, seq_len: int) -> Cost:
    """Convert a cost in target tokens to one in all n tokens.

    The number of target tokens is n / 2 if n is even and (n - 1) / 2 if n is odd, so the polynomials hold for every n of the same parity.

    Raises ValueError if a coefficient would not be an integer.
    """
    return _substituted(cost, offset=-(seq_len % 2), divisor=2)


def _substituted(cost: Cost, *, offset: int, divisor: int) -> Cost:
    def term(old: Term) -> Term:
        params, macs, recompute, state = (_compose(p, offset, divisor) for p in (old.params, old.macs, old.recompute_macs, old.state))
        return replace(old, params=params, macs=macs, recompute_macs=recompute, state=state)

    return Cost(tuple(term(old) for old in cost.terms))


def _compose(outer: Polynomial, offset: int, divisor: int) -> Polynomial:
    """Return outer((n + offset) / divisor), exactly."""
    total, scale = ZERO, 1  # Horner's rule; what is returned is total / scale
    for place, coefficient in enumerate(reversed(outer.coefficients)):
        scale = divisor**place
        total = total * (N + constant(offset)) + constant(coefficient * scale)
    if any(coefficient % scale for coefficient in total.coefficients):
        raise ValueError(f"cost must have integer coefficients in n: {outer.coefficients} in m = (n {offset:+d}) / {divisor} does not")
    return Polynomial(tuple(coefficient // scale for coefficient in total.coefficients))

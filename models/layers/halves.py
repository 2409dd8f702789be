"""One sequence as two: the first half of its tokens is a source, the second half the target as a decoder reads it.

Of n tokens, ceil(n / 2) are the source and floor(n / 2) the target, shifted right: its first token is a start symbol, and the answer at token t is
the target's token t + 1 (arXiv 1706.03762, Sec. 3). So an encoder-decoder reads and answers what an encoder does, `(batch, n)` in one piece.
"""

from __future__ import annotations

from dataclasses import replace
from math import comb

from torch import Tensor, nn

from models.layers.cost import Cost, N, Polynomial, Term, constant
from models.layers.embedding import Embedding, embedding_cost
from models.layers.padding import readable, zero_padding
from models.layers.shape import NO_POOL, Interface, Shape, require_non_negative

POOLS = ("mean",)
"""How one answer comes about: the mean over all valid tokens, those of the source too, since a short item may be nothing else."""
GRAIN = 4
"""What widths are a multiple of: with n = 2 m or 2 m + 1, products of m^2 pairs are then whole multiples of n^2, n and 1."""


def num_source_tokens(num_tokens: int) -> int:
    return num_tokens - num_tokens // 2


def split(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """`(batch, n, ...)` -> the source `(batch, ceil(n / 2), ...)` and the target `(batch, floor(n / 2), ...)`."""
    middle = num_source_tokens(tokens.shape[1])
    return tokens[:, :middle], tokens[:, middle:]


def split_valid(valid: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """`(batch, n)` bool, split like the tokens; None where all are valid."""
    return (None, None) if valid is None else split(valid)


def masked_half(tokens: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """`(batch, tokens, width)` without what padded ones hold, and which to read: of a half that is all padding, zeros, since there is nothing else.

    An item may be shorter than its source, or have none.
    """
    return (tokens, None) if valid is None else (zero_padding(tokens, valid), readable(valid))


class HalvesEmbedding(nn.Module):
    """Both halves have a table (or a projection of patches) and positions of their own, the positions of either counted from its first token.

    `source`: `(batch, source tokens)` ids, or patches, -> `(batch, source tokens, width)`; `target` likewise.
    """

    def __init__(self, shape: Shape, interface: Interface, *, positions: str, target_vocab: int = 0) -> None:
        super().__init__()
        length = num_source_tokens(shape.seq_len)
        reads = target_interface(interface, target_vocab)
        self.source = Embedding(shape, interface, pool=NO_POOL, positions=positions, num_tokens=length)
        self.target = Embedding(shape, reads, pool=NO_POOL, positions=positions, num_tokens=shape.seq_len - length)


def target_interface(interface: Interface, target_vocab: int) -> Interface:
    """What the target half reads: ids of its own vocabulary (0: that of the source).

    Raises ValueError for images, which have no halves, for a vocabulary of patches, and for one that lacks ids which the data may hold.
    """
    if interface.input == "images":
        raise ValueError("input must be patches or tokens where the data have a source and a target, not 'images'")
    require_non_negative("target_vocab", target_vocab)
    if target_vocab and interface.input != "tokens":
        raise ValueError(f"target_vocab must be 0 with input={interface.input}, which has no vocabulary, not {target_vocab}")
    if 0 < target_vocab < interface.vocab_size:
        raise ValueError(f"target_vocab must be 0 or at least the {interface.vocab_size} ids that data may hold, not {target_vocab}")
    return replace(interface, vocab_size=target_vocab) if target_vocab else interface


def halves_embedding_cost(shape: Shape, interface: Interface, *, positions: str, target_vocab: int = 0) -> Cost:
    """In the number of target tokens; see `in_tokens`."""
    source = embedding_cost(shape, interface, pool=NO_POOL, positions=positions)
    target = embedding_cost(shape, target_interface(interface, target_vocab), pool=NO_POOL, positions=positions)
    return of_source(source, shape.seq_len).within("source") + target.within("target")


def num_source(seq_len: int) -> Polynomial:
    """The number of source tokens as a polynomial in the number m of target tokens: m, or m + 1 where n is odd."""
    return N + constant(seq_len % 2)


def of_source(cost: Cost, seq_len: int) -> Cost:
    """A cost in the number of source tokens, as one in the number of target tokens."""
    return _substituted(cost, slope=1, offset=seq_len % 2, divisor=1)


def in_tokens(cost: Cost, seq_len: int) -> Cost:
    """A cost in the number m of target tokens, as one in all n tokens: m = n / 2, or (n - 1) / 2 where n is odd.

    So the polynomials hold for every n of the same parity. Raises ValueError where a coefficient would not be a whole number.
    """
    return _substituted(cost, slope=1, offset=-(seq_len % 2), divisor=2)


def _substituted(cost: Cost, *, slope: int, offset: int, divisor: int) -> Cost:
    def term(old: Term) -> Term:
        params, macs, recompute = (_compose(p, slope, offset, divisor) for p in (old.params, old.macs, old.recompute_macs))
        return replace(old, params=params, macs=macs, recompute_macs=recompute)

    return Cost(tuple(term(old) for old in cost.terms))


def _compose(outer: Polynomial, slope: int, offset: int, divisor: int) -> Polynomial:
    """outer((slope n + offset) / divisor), exactly."""
    highest = max(len(outer.coefficients) - 1, 0)
    sums = [0] * (highest + 1)
    for power, coefficient in enumerate(outer.coefficients):
        for i in range(power + 1):
            sums[i] += coefficient * comb(power, i) * slope**i * offset ** (power - i) * divisor ** (highest - power)
    if any(total % divisor**highest for total in sums):
        raise ValueError(f"cost must have whole coefficients in n: {outer.coefficients} of m = (n {offset:+d}) / {divisor} has not")
    return Polynomial(tuple(total // divisor**highest for total in sums))

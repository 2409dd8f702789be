"""The closed-form cost of a model is a sum of named terms.

Each term is a polynomial in the sequence length n with exact integer coefficients. Imports no torch.

Multiply-adds count matrix products only (one multiply-add is two FLOPs). Normalisation, activations, softmax and other element-wise work
are not counted, neither here nor by the counters that must agree with these terms. FFTs are no matrix products: they are counted apart, at
the length of the config, because n log n is no polynomial.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

FLOPS_PER_MAC = 2


class Polynomial:
    """An immutable polynomial in n with integer coefficients.

    `coefficients`: `coefficients[i]` multiplies n**i; trailing zeros are removed.
    """

    __slots__ = ("coefficients",)
    coefficients: tuple[int, ...]

    def __init__(self, coefficients: tuple[int, ...] = ()) -> None:
        while coefficients and coefficients[-1] == 0:
            coefficients = coefficients[:-1]
        self.coefficients = coefficients

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.coefficients == other.coefficients

    def __hash__(self) -> int:
        return hash(self.coefficients)

    def __repr__(self) -> str:
        return f"Polynomial(coefficients={self.coefficients})"

    def __add__(self, other: Polynomial) -> Polynomial:
        return _sum((self, other))

    def __mul__(self, factor: int | Polynomial) -> Polynomial:
        if isinstance(factor, int):
            return Polynomial(tuple(factor * c for c in self.coefficients))
        product = [0] * (len(self.coefficients) + len(factor.coefficients))
        for i, left in enumerate(self.coefficients):
            for j, right in enumerate(factor.coefficients):
                product[i + j] += left * right
        return Polynomial(tuple(product))

    __rmul__ = __mul__

    def degree(self, i: int) -> int:
        """Return the coefficient of n**i."""
        return self.coefficients[i] if i < len(self.coefficients) else 0

    def at(self, n: int) -> int:
        """Return the value at sequence length `n`."""
        return sum(c * n**i for i, c in enumerate(self.coefficients))

    def varying(self) -> Polynomial:
        """Return the part that depends on n."""
        return Polynomial((0, *self.coefficients[1:]))


ZERO = Polynomial()
ONE = Polynomial((1,))
N = Polynomial((0, 1))


def constant(value: int) -> Polynomial:
    return Polynomial((value,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One named part of a model's cost.

    `scope`: part of the model: `embedding`, `blocks` or `head`.
    `params`: number of parameters.
    `macs`: forward multiply-adds of one sample.
    `backward_products`: products of the same size in the backward: 2 (input and weight gradients), 1 if the input needs no gradient, 0 if
        neither does.
    `recompute_macs`: multiply-adds that a fused kernel repeats in its backward. They count as hardware FLOPs, not as model FLOPs.
    `ffts`: number of real FFTs in one sample's forward; the backward takes as many (`models.layers.fft_convolution`).
    `fft_length`: real numbers in each of them, at the config's own seq_len.
    `state`: numbers that a model which reads one token after another holds after n tokens, so that it computes nothing twice. It has a meaning only
        where no token reads a later one. Not compared, because a plan holds the sum alone (`bench.spec.Sizing`).
    """

    name: str
    scope: str = "blocks"
    params: Polynomial = ZERO
    macs: Polynomial = ZERO
    backward_products: int = 2
    recompute_macs: Polynomial = ZERO
    ffts: int = 0
    fft_length: int = 0
    state: Polynomial = field(default=ZERO, compare=False)

    def times(self, factor: int) -> Term:
        return replace(
            self,
            params=self.params * factor,
            macs=self.macs * factor,
            recompute_macs=self.recompute_macs * factor,
            ffts=self.ffts * factor,
            state=self.state * factor,
        )

    def within(self, prefix: str) -> Term:
        return replace(self, name=f"{prefix}.{self.name}")


@dataclass(frozen=True)
class Cost:
    """All cost terms of a module."""

    terms: tuple[Term, ...]

    def params(self, scope: str | None = None) -> Polynomial:
        """Return the number of parameters, in one scope or in all."""
        return self._all_params if scope is None else _sum(t.params for t in self.terms if t.scope == scope)

    @functools.cached_property
    def _all_params(self) -> Polynomial:
        return _sum(t.params for t in self.terms)

    def params_seq(self, scope: str | None = None) -> Polynomial:
        """Return the parameters of all terms that grow with n.

        A term counts in full, with its constant part, such as the -1 of 2 n - 1.
        """
        return _sum(t.params for t in self.terms if scope in (None, t.scope) and t.params.varying() != ZERO)

    def macs(self, scope: str | None = None) -> Polynomial:
        """Return one sample's forward multiply-adds, in one scope or in all."""
        return self._all_macs if scope is None else _sum(t.macs for t in self.terms if t.scope == scope)

    @functools.cached_property
    def _all_macs(self) -> Polynomial:
        return _sum(t.macs for t in self.terms)

    def flops(self, scope: str | None = None) -> Polynomial:
        """Return one sample's forward FLOPs, in one scope or in all."""
        return self._all_flops if scope is None else self.macs(scope) * FLOPS_PER_MAC

    @functools.cached_property
    def _all_flops(self) -> Polynomial:
        return self._all_macs * FLOPS_PER_MAC

    def train_flops(self) -> Polynomial:
        """Return the model FLOPs of one sample's forward and backward.

        They exclude the products that a fused kernel recomputes.
        """
        return _sum(t.macs * (1 + t.backward_products) for t in self.terms) * FLOPS_PER_MAC

    def recompute_flops(self) -> Polynomial:
        """Return the FLOPs that fused attention recomputes in its backward.

        These are the hardware FLOPs beyond the model FLOPs.
        """
        return _sum(t.recompute_macs for t in self.terms) * FLOPS_PER_MAC

    def fft_flops(self) -> int:
        """Return the FLOPs of one sample's forward FFTs, at the config's own seq_len (`real_fft_flops`)."""
        return sum(t.ffts * real_fft_flops(t.fft_length) for t in self.terms)

    def train_fft_flops(self) -> int:
        """Return the FLOPs of the FFTs in one sample's forward and backward."""
        return 2 * self.fft_flops()

    def state(self) -> Polynomial:
        """Return the numbers held after n tokens, read one after another (`Term.state`)."""
        return _sum(t.state for t in self.terms)

    def repeated(self, times: int) -> Cost:
        """Return the cost of `times` copies."""
        return Cost(tuple(t.times(times) for t in self.terms))

    def within(self, prefix: str) -> Cost:
        """Prefix the name of each term with `prefix` and a dot."""
        return Cost(tuple(t.within(prefix) for t in self.terms))

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.terms + other.terms)


def linear(
    name: str, inputs: int, outputs: int, *, scope: str = "blocks", tokens: Polynomial = N, backward_products: int = 2, bias: bool = True
) -> Term:
    """Return the cost of a linear layer.

    It has inputs x outputs weights and takes one multiply-add per weight and row; `tokens` is the number of rows.
    """
    return Term(
        name=name,
        scope=scope,
        params=constant((inputs + bias) * outputs),
        macs=tokens * (inputs * outputs),
        backward_products=backward_products,
    )


def layer_norm(name: str, width: int, *, scope: str = "blocks") -> Term:
    """Return the cost of a LayerNorm: scale and shift, no matrix product."""
    return Term(name=name, scope=scope, params=constant(2 * width))


def fused_attention(pairs: Polynomial, *, params: Polynomial = ZERO, state: Polynomial = ZERO) -> tuple[Term, Term]:
    """Return the cost of scores and weighted sum, each of `pairs` multiply-adds; a fused kernel recomputes the scores in its backward.

    `state`: numbers in the kept keys and values.
    """
    return Term(name="scores", params=params, macs=pairs, recompute_macs=pairs, state=state), Term(name="weighted_sum", macs=pairs)


def real_fft_flops(length: int) -> int:
    """Return the FLOPs of a transform between `length` real numbers and their spectrum, by convention.

    They are 2.5 L log2 L, rounded: half of the 5 L log2 L of a complex transform, which counts as two real ones. Every length and algorithm
    is counted alike, whatever a library executes. Source: the benchmarks of FFTW, https://www.fftw.org/speed/.
    """
    return round(2.5 * length * math.log2(length)) if length else 0


def _sum(polynomials: Iterable[Polynomial]) -> Polynomial:
    total: list[int] = []
    for polynomial in polynomials:
        total += [0] * (len(polynomial.coefficients) - len(total))
        for i, coefficient in enumerate(polynomial.coefficients):
            total[i] += coefficient
    return Polynomial(tuple(total))

"""Find the n^2 terms of a model, and the bytes that they hold.

FLOPs come from closed forms, bytes from polynomials of counts. Builds no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.growth import ACTIVATIONS, WEIGHTS, Counted, polynomial_of
from bench.analysis.series import Series, counted_samples
from bench.spec import NO_ATTENTION, Plan, PlannedCell
from models.layers.cost import ZERO

QUADRATIC = 2
IDENTITY = ("cell_id", "model", "seq_len", "budget")


def quadratic_home(plan: Plan) -> pandas.DataFrame:
    """Return, per cell, which terms hold the n^2.

    Columns: FLOPs per n^2 and their share of all FLOPs at n, weights per n^2, and the names of the terms.

    `weight_terms`: terms that multiply by an n x n matrix of weights. A Toeplitz matrix has fewer weights, each used several times.
    `activation_terms`: terms that compute n x n numbers for every sample.
    """
    found = []
    for planned in _in_closed_form(plan):
        cost, n = planned.sizing.cost, planned.cell.model.shape.seq_len
        flops, quadratic = cost.flops(), cost.flops().degree(QUADRATIC)
        homes: dict[bool, list[str]] = {True: [], False: []}
        for term in cost.terms:
            if term.macs.degree(QUADRATIC):
                homes[term.params.varying() != ZERO].append(term.name)
        share = quadratic * n**QUADRATIC / flops.at(n) if flops.at(n) else None
        weights = cost.params().degree(QUADRATIC)
        found.append((*_identity(planned), quadratic, share, weights, planned.sizing.params_seq, tuple(homes[True]), tuple(homes[False])))
    columns = ("flops_coefficient", "flops_share", "weights_coefficient", "params_seq", "weight_terms", "activation_terms")
    return pandas.DataFrame(found, columns=[*IDENTITY, *columns])


@dataclass(frozen=True, kw_only=True)
class FlopsGrowth:
    """How one model's FLOPs per sample grow over its lengths.

    `shortest`, `longest`: its lengths.
    `times`: FLOPs at the longest over those at the shortest.
    `share`: of the FLOPs at the longest, those that grow as n^2; None if they were counted at one length.
    `has_weights`, `has_scores`: whether it multiplies by n x n weights, and whether it computes n x n numbers for every sample.
    `attention`: the kernels of its attention, those that ran where that is known; empty without attention.
    `widths`: at the shortest and the longest.
    """

    model: str
    shortest: int
    longest: int
    times: float
    share: float | None
    has_weights: bool
    has_scores: bool
    attention: frozenset[str]
    widths: tuple[int, int] = (0, 0)


def gate_and_attention(found: Sequence[FlopsGrowth]) -> list[FlopsGrowth]:
    """Return the first model of which n^2 is in its weights, and the first with attention; empty without both."""
    gates = [growth for growth in found if growth.has_weights and not growth.has_scores]
    attention = [growth for growth in found if growth.attention]
    return [gates[0], attention[0]] if gates and attention else []


def flops_growth(rows: pandas.DataFrame, homes: pandas.DataFrame) -> list[FlopsGrowth]:
    """Return the growth of every model with FLOPs at two lengths.

    `rows`: comparable ones (`bench.analysis.scope.Scope`), `homes`: of `quadratic_home`.
    """
    home_of = {home["cell_id"]: home for home in homes.to_dict("records")}
    found = []
    for model, members in rows[rows["flops"] > 0].groupby("model", sort=False):
        first, last = members.iloc[members["place"].argmin()], members.iloc[members["place"].argmax()]
        if first["place"] == last["place"]:
            continue
        home = home_of.get(last["cell_id"])
        found.append(
            FlopsGrowth(
                model=str(model),
                shortest=int(first["place"]),
                longest=int(last["place"]),
                times=float(last["flops"] / first["flops"]),
                share=None if home is None else float(home["flops_share"]),
                has_weights=bool(home is not None and home["weight_terms"]),
                has_scores=bool(home is not None and home["activation_terms"]),
                attention=frozenset(ran or asked for ran, asked in zip(members["attention_effective"], members["attention"], strict=True))
                - {"", NO_ATTENTION},
                widths=(int(first["width"]), int(last["width"])),
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class HeldBytes:
    """The bytes of one series by power of n.

    `keys`: the shared values (`bench.analysis.series.SERIES_KEYS`).
    `lengths`: the lengths of both polynomials.
    `weights`, `activations`: of the counted bytes, activations per sample.
    """

    keys: Mapping[str, Any]
    lengths: tuple[int, ...]
    weights: Counted
    activations: Counted

    def parts(self, n: int, batch: int) -> dict[str, float]:
        """Return the bytes at `n` tokens of each part.

        The parts are `weights`, `weights_n2`, `activations` and `activations_n2`. Activations grow with the batch, weights do not.
        """
        (weights, weights_n2), (activations, activations_n2) = _by_power(self.weights, n), _by_power(self.activations, n)
        return {
            "weights": weights,
            "weights_n2": weights_n2,
            "activations": batch * activations,
            "activations_n2": batch * activations_n2,
        }


def held_bytes(shaped: Sequence[Series]) -> list[HeldBytes]:
    """Split the counted bytes of every series whose counts follow a polynomial.

    `shaped`: series of one shape.
    """
    found = []
    for series in shaped:
        weights, activations = (polynomial_of(counted_samples(series, of.column, of.divisor)) for of in (WEIGHTS, ACTIVATIONS))
        if weights and activations:
            lengths = tuple(n for n in activations.lengths if n in weights.lengths)
            found.append(HeldBytes(keys=series.keys, lengths=lengths, weights=weights, activations=activations))
    return found


def _by_power(counted: Counted, n: int) -> tuple[float, float]:
    """Return the value of a + b n, and that of c n^2."""
    return counted.a + counted.b * n, counted.c * n**QUADRATIC


def _in_closed_form(plan: Plan) -> list[PlannedCell]:
    """Leave out cells counted at one length: a count has no degrees."""
    return [planned for planned in plan.cells if not planned.sizing.is_counted]


def _identity(planned: PlannedCell) -> tuple[str, str, int, int | None]:
    model = planned.cell.model
    return planned.cell.cell_id, model.name, model.shape.seq_len, planned.sizing.budget

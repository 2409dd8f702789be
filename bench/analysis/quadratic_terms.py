"""Find the n^2 terms of a model, and the bytes that they hold.

FLOPs come from closed forms, bytes from exact fits to counts. Builds no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.growth import ACTIVATIONS, WEIGHTS, Fits
from bench.analysis.scaling import Decomposition
from bench.analysis.series import Series
from bench.spec import Plan, PlannedCell
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
class HeldBytes:
    """The bytes of one series by power of n.

    `keys`: the shared values (`bench.analysis.series.SERIES_KEYS`).
    `lengths`: the lengths that both polynomials were fitted to.
    `weights`, `activations`: fits to the counted bytes, activations per sample.
    """

    keys: Mapping[str, Any]
    lengths: tuple[int, ...]
    weights: Decomposition
    activations: Decomposition

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


def held_bytes(shaped: Sequence[Series], fits: Fits) -> list[HeldBytes]:
    """Split the counted bytes of every series whose counts a polynomial fits.

    `shaped`: series of one shape.
    """
    found = []
    for series in shaped:
        weights, activations = fits.of_counts(series, WEIGHTS), fits.of_counts(series, ACTIVATIONS)
        if weights.fits and activations.fits:
            lengths = tuple(n for n in activations.lengths if n in weights.lengths)
            found.append(HeldBytes(keys=series.keys, lengths=lengths, weights=weights, activations=activations))
    return found


def _by_power(fit: Decomposition, n: int) -> tuple[float, float]:
    """Return the value of a + b n, and that of c n^2."""
    assert fit.a is not None
    assert fit.b is not None
    assert fit.c is not None
    return fit.a.estimate + fit.b.estimate * n, fit.c.estimate * n**QUADRATIC


def _in_closed_form(plan: Plan) -> list[PlannedCell]:
    """Leave out cells counted at one length: a count has no degrees."""
    return [planned for planned in plan.cells if not planned.sizing.is_counted]


def _identity(planned: PlannedCell) -> tuple[str, str, int, int | None]:
    model = planned.cell.model
    return planned.cell.cell_id, model.name, model.shape.seq_len, planned.sizing.budget

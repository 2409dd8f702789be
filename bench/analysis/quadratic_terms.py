"""What a plan's closed forms say about n: FLOPs by degree, and where the quadratic part lives. Reads polynomials, builds no model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas

from bench.spec import Plan, PlannedCell
from models.layers.cost import ZERO, Term

QUADRATIC = 2
IDENTITY = ("cell_id", "model", "seq_len", "budget")
DEGREE_COLUMNS = (*IDENTITY, "degree", "coefficient", "flops")
HOME_COLUMNS = (*IDENTITY, "flops_coefficient", "flops_share", "weights_coefficient", "params_seq", "weight_terms", "activation_terms")


def flops_by_degree(plan: Plan) -> pandas.DataFrame:
    """One row per cell and power of n: the coefficient and the FLOPs (forward, one sample) at the cell's n, which sum to its FLOPs.

    Degrees 0 to 2 are always there. The constant part may be negative: n - 1 patches, not n, pass the patch projection beside a class token.
    """
    found = [row for planned in _in_closed_form(plan) for row in _degrees(planned)]
    return pandas.DataFrame(found, columns=list(DEGREE_COLUMNS))


def quadratic_home(plan: Plan) -> pandas.DataFrame:
    """One row per cell: FLOPs per n^2 and their share of all FLOPs at n, weights per n^2, and the names of the terms that hold it.

    `weight_terms` multiply by an n x n matrix of weights, `activation_terms` compute n x n numbers for every sample.
    """
    return pandas.DataFrame([_home(planned) for planned in _in_closed_form(plan)], columns=list(HOME_COLUMNS))


def _in_closed_form(plan: Plan) -> list[PlannedCell]:
    """A count at one length says nothing of degrees."""
    return [planned for planned in plan.cells if not planned.sizing.is_counted]


def _identity(planned: PlannedCell) -> dict[str, Any]:
    model = planned.cell.model
    values = (planned.cell.cell_id, model.name, model.shape.seq_len, planned.sizing.budget)
    return dict(zip(IDENTITY, values, strict=True))


def _degrees(planned: PlannedCell) -> Iterator[dict[str, Any]]:
    flops, n = planned.sizing.cost.flops(), planned.cell.model.shape.seq_len
    for degree in range(max(len(flops.coefficients), QUADRATIC + 1)):
        coefficient = flops.degree(degree)
        yield {**_identity(planned), "degree": degree, "coefficient": coefficient, "flops": coefficient * n**degree}


def _home(planned: PlannedCell) -> dict[str, Any]:
    cost, n = planned.sizing.cost, planned.cell.model.shape.seq_len
    flops, quadratic = cost.flops(), cost.flops().degree(QUADRATIC)
    holding = [term for term in cost.terms if term.macs.degree(QUADRATIC)]
    return {
        **_identity(planned),
        "flops_coefficient": quadratic,
        "flops_share": quadratic * n**QUADRATIC / flops.at(n) if flops.at(n) else None,
        "weights_coefficient": cost.params().degree(QUADRATIC),
        "params_seq": planned.sizing.params_seq,
        "weight_terms": tuple(term.name for term in holding if _holds_weights(term)),
        "activation_terms": tuple(term.name for term in holding if not _holds_weights(term)),
    }


def _holds_weights(term: Term) -> bool:
    """Whether the n x n matrix is made of weights: of n^2 of them, or of fewer that stand in it more than once, as in a Toeplitz matrix."""
    return term.params.varying() != ZERO

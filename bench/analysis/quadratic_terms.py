"""What a plan's closed forms say about n: FLOPs by degree, and where the quadratic part lives. Reads polynomials, builds no model."""

from __future__ import annotations

import pandas

from bench.spec import Plan, PlannedCell
from models.layers.cost import ZERO

QUADRATIC = 2
IDENTITY = ("cell_id", "model", "seq_len", "budget")


def flops_by_degree(plan: Plan) -> pandas.DataFrame:
    """One row per cell and power of n: the coefficient and the FLOPs (forward, one sample) at the cell's n, which sum to its FLOPs.

    Degrees 0 to 2 are always there. The constant part may be negative: n - 1 patches, not n, pass the patch projection beside a class token.
    """
    found = []
    for planned in _in_closed_form(plan):
        flops, n = planned.sizing.cost.flops(), planned.cell.model.shape.seq_len
        for degree in range(max(len(flops.coefficients), QUADRATIC + 1)):
            coefficient = flops.degree(degree)
            found.append((*_identity(planned), degree, coefficient, coefficient * n**degree))
    return pandas.DataFrame(found, columns=[*IDENTITY, "degree", "coefficient", "flops"])


def quadratic_home(plan: Plan) -> pandas.DataFrame:
    """One row per cell: FLOPs per n^2 and their share of all FLOPs at n, weights per n^2, and the names of the terms that hold it.

    `weight_terms` multiply by an n x n matrix of weights: n^2 of them, or fewer that stand in it more than once, as in a Toeplitz matrix.
    `activation_terms` compute n x n numbers for every sample.
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


def _in_closed_form(plan: Plan) -> list[PlannedCell]:
    """A count at one length says nothing of degrees."""
    return [planned for planned in plan.cells if not planned.sizing.is_counted]


def _identity(planned: PlannedCell) -> tuple[str, str, int, int | None]:
    model = planned.cell.model
    return planned.cell.cell_id, model.name, model.shape.seq_len, planned.sizing.budget

from __future__ import annotations

import dataclasses

from bench.analysis.quadratic_terms import quadratic_home
from bench.spec import Cell, ModelSpec, Plan, PlannedCell, Sizing, Workload
from models.layers.cost import N, Term, constant
from models.layers.shape import Shape


def plan_of(*terms: Term, n: int = 10) -> Plan:
    model = ModelSpec(name="m", family="m", shape=Shape(seq_len=n, width=8, depth=1, heads=1, ffn_width=8))
    sizing = Sizing(match="none", budget=None, budget_error=None, params=0, params_seq=7, params_blocks=0, heads=None, terms=terms)
    cells = (PlannedCell(cell=Cell(model=model, workload=Workload()), sizing=sizing),)
    return Plan(name="", command="", created="", metrics=(), cells=cells)


MIXED = (
    Term(name="spatial", params=N * N, macs=N * N * 3),
    Term(name="scores", macs=N * N * 2),
    Term(name="linear", params=constant(5), macs=N * 4 + constant(-1)),
)


def test_where_quadratic_lives() -> None:
    (home,) = quadratic_home(plan_of(*MIXED)).to_dict("records")
    assert (home["weight_terms"], home["activation_terms"]) == (("spatial",), ("scores",))
    assert (home["flops_coefficient"], home["weights_coefficient"], home["params_seq"]) == (10, 1, 7)
    assert home["flops_share"] == 1000 / 1078


def test_a_matrix_made_of_fewer_weights_is_one_of_weights() -> None:
    """A Toeplitz matrix has 2 n - 1 of them, shared by the batch as any."""
    (home,) = quadratic_home(plan_of(Term(name="toeplitz", params=N * 2 + constant(-1), macs=N * N * 3))).to_dict("records")
    assert (home["weight_terms"], home["activation_terms"], home["weights_coefficient"]) == (("toeplitz",), (), 0)


def test_an_empty_plan_gives_empty_tables() -> None:
    empty = dataclasses.replace(plan_of(), cells=())
    assert quadratic_home(empty).empty

"""Exponents find the power that was planted and show a switch where it is; each quantity is followed by its rule; where n^2 lives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bench.analysis.growth import ACTIVATIONS, FLOPS, LATENCY, WEIGHTS, Samples, local_exponents, quadratic_home
from bench.spec import Cell, ModelSpec, Plan, PlannedCell, Sizing, Workload
from models.layers.cost import N, Term, constant
from models.layers.shape import Shape
from tests.analysis.made_runs import Made, grown, linear, quadratic
from tests.analysis.planted import LENGTHS, Array, noisy, samples_of_rounds

SLOW = np.array([[1.0], [1.5], [0.7], [2.0], [0.9], [1.2]])
"""What each of six rounds does to all lengths."""


def power(exponent: float, lengths: tuple[int, ...] = LENGTHS) -> Array:
    return np.asarray(lengths, dtype=np.float64) ** exponent


def timed(costs: Array, lengths: tuple[int, ...] = LENGTHS, *, seed: int = 15, rounds: int = 7) -> Samples:
    return samples_of_rounds(noisy(np.random.default_rng(seed), costs, rounds=rounds, common=0.1), lengths)


@pytest.mark.parametrize("exponent", [0.0, 1.5])
def test_exact_powers_have_their_exponent_everywhere(exponent: float) -> None:
    found = local_exponents(samples_of_rounds(power(exponent)[None, :]), exact=True)
    assert [(e.shorter, e.longer) for e in found.exponents] == list(pairwise(LENGTHS))
    assert [e.exponent.estimate for e in found.exponents] == pytest.approx([exponent] * 8)
    assert all(e.exponent.low == e.exponent.high for e in found.exponents)


def test_intervals_cover_the_planted_exponent() -> None:
    inside = [
        abs(e.exponent.estimate - 1.5) / (e.exponent.high - e.exponent.estimate)
        for seed in range(100)
        for e in local_exponents(timed(power(1.5), seed=seed)).exponents
    ]
    assert 0.92 <= np.mean(np.array(inside) <= 1) <= 0.98
    assert np.mean(np.array(inside) <= 0.5) < 0.92, "intervals of half the width would pass as well"


def test_a_slow_round_cancels() -> None:
    found = local_exponents(samples_of_rounds(SLOW * power(2.0)))
    assert all(e.exponent.high - e.exponent.low < 1e-12 for e in found.exponents)


def test_a_kernel_switch_shows_where_it_is() -> None:
    costs = np.where(np.asarray(LENGTHS) >= 513, 0.7, 1.0) * power(1.0)
    found = {e.longer: e.exponent for e in local_exponents(timed(costs)).exponents}
    assert found[513].high < 0.6
    assert all(0.9 < interval.estimate < 1.1 for n, interval in found.items() if n != 513)


@pytest.mark.parametrize(
    ("lengths", "rounds", "said"),
    [
        ((17, 65, 256, 257), 7, "3 lengths (17, 65, 257); at least 4"),
        ((17, 33, 65, 129), 7, "Add n = 272 or longer"),
        ((17, 65, 257, 1025), 5, "5 complete rounds; at least 6"),
        ((17, 65, 257, 272), 6, ""),
    ],
)
def test_short_grids_are_refused_but_the_smallest_that_is_not(lengths: tuple[int, ...], rounds: int, said: str) -> None:
    found = local_exponents(timed(power(1.0, lengths), lengths, rounds=rounds))
    assert said in found.refused
    assert [e.exponent.num for e in found.exponents] == ([] if said else [6, 6, 6])


def test_times_and_counts_are_followed_each_by_its_rule() -> None:
    costs = {"flops": quadratic, "activation_bytes": linear, "weight_bytes": quadratic}
    by_measure = {growth.measure: growth for growth in grown(Made(model="gmlp", costs=costs))}
    terms = {measure: growth.counted and growth.counted.c for measure, growth in by_measure.items()}
    assert terms == {LATENCY: None, ACTIVATIONS: 0.0, WEIGHTS: pytest.approx(0.1), FLOPS: pytest.approx(0.1)}
    steps = by_measure[LATENCY].exponents.exponents
    assert len(steps) == len(LENGTHS) - 1
    assert steps[-1].exponent.low > 1.5


def test_what_the_workload_does_not_change_is_followed_once() -> None:
    costs = {"flops": quadratic, "activation_bytes": linear}
    found = [
        growth.measure for growth in grown(Made(model="gmlp", costs=costs), Made(model="gmlp", costs=costs, others={"phase": "train"}))
    ]
    assert (found.count(FLOPS), found.count(ACTIVATIONS)) == (1, 2)


def test_counts_are_fitted_from_where_they_follow_one_polynomial() -> None:
    """A peak is the largest of several sums: at short lengths another one leads."""
    peak = Made(model="vit", attention="math", costs={"activation_bytes": lambda n: max(quadratic(n), 1500.0)})
    (growth,) = [growth for growth in grown(peak) if growth.measure is ACTIVATIONS]
    assert growth.counted is not None
    assert growth.counted.lengths[0] == 129
    broken = Made(model="vit", attention="math", costs={"activation_bytes": lambda n: quadratic(n) * (1.3 if n > 1024 else 1.0)})
    (growth,) = [growth for growth in grown(broken) if growth.measure is ACTIVATIONS]
    assert growth.counted is None


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
    (home,) = quadratic_home(plan_of(*MIXED)).values()
    assert (home["weight_terms"], home["activation_terms"]) == (("spatial",), ("scores",))
    assert (home["flops_coefficient"], home["weights_coefficient"], home["params_seq"]) == (10, 1, 7)
    assert home["flops_share"] == 1000 / 1078


def test_a_matrix_made_of_fewer_weights_is_one_of_weights() -> None:
    """A Toeplitz matrix has 2 n - 1 of them, shared by the batch as any."""
    (home,) = quadratic_home(plan_of(Term(name="toeplitz", params=N * 2 + constant(-1), macs=N * N * 3))).values()
    assert (home["weight_terms"], home["activation_terms"], home["weights_coefficient"]) == (("toeplitz",), (), 0)

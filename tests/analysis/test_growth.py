"""Every series of one shape is followed in every quantity that it has."""

from __future__ import annotations

import pytest

from bench.analysis.growth import ACTIVATIONS, ENERGY, FLOPS, LATENCY, WEIGHTS, Growth, growth_of
from tests.analysis.made_runs import LENGTHS, Made, evidence, linear, quadratic


def grown(*made: Made, rounds: int = 7) -> list[Growth]:
    found = evidence(*made, rounds=rounds)
    return growth_of(found.shaped, found.timings)


def test_times_and_counts_are_followed_each_by_its_rule() -> None:
    costs = {"flops": quadratic, "activation_bytes": linear, "weight_bytes": quadratic}
    by_measure = {growth.measure: growth for growth in grown(Made(model="gmlp", costs=costs))}
    assert set(by_measure) == {LATENCY, ACTIVATIONS, WEIGHTS, FLOPS}
    terms = {measure.name: growth.counted and growth.counted.c for measure, growth in by_measure.items()}
    assert terms == {
        "time per sample": None,
        "activations per sample": 0.0,
        "weights": pytest.approx(0.1),
        "FLOPs per sample": pytest.approx(0.1),
    }
    steps = by_measure[LATENCY].exponents.exponents
    assert len(steps) == len(LENGTHS) - 1
    assert steps[-1].exponent.low > 1.5


def test_energy_without_rounds_is_refused() -> None:
    """One window per cell gives no error to test a fit against."""
    by_measure = {growth.measure: growth for growth in grown(Made(model="gmlp", costs={"energy_j": quadratic}))}
    assert "round" in by_measure[ENERGY].exponents.refused


def test_what_the_workload_does_not_change_is_followed_once() -> None:
    costs = {"flops": quadratic, "activation_bytes": linear}
    found = grown(Made(model="gmlp", costs=costs), Made(model="gmlp", costs=costs, others={"phase": "train"}))
    assert [growth.measure.name for growth in found].count("FLOPs per sample") == 1
    assert [growth.measure.name for growth in found].count("activations per sample") == 2


def test_counts_are_fitted_from_where_they_follow_one_polynomial() -> None:
    """A peak is the largest of several sums: at short lengths another one leads."""
    peak = Made(model="vit", attention="math", costs={"activation_bytes": lambda n: max(quadratic(n), 1500.0)})
    (growth,) = [growth for growth in grown(peak) if growth.measure is ACTIVATIONS]
    assert growth.counted is not None
    assert growth.counted.lengths[0] == 129
    broken = Made(model="vit", attention="math", costs={"activation_bytes": lambda n: quadratic(n) * (1.3 if n > 1024 else 1.0)})
    (growth,) = [growth for growth in grown(broken) if growth.measure is ACTIVATIONS]
    assert growth.counted is None


def test_twins_are_compared_and_kept_out_of_the_fit() -> None:
    aligned = Made(model="gmlp", lengths=(17, 33, 65, 129, 256, 257, 513, 1025), latency=lambda n: linear(n) * (0.8 if n == 256 else 1.0))
    (growth,) = grown(aligned)
    assert 256 not in [step.shorter for step in growth.exponents.exponents]
    (twin,) = growth.twins
    assert twin.ratio is not None
    assert twin.ratio.low > 1.15

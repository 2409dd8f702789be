"""Pooling over hosts: published and hand-computed examples, coverage where truth is planted, grouping by boot and type, and pairs."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from bench.analysis.pool import (
    CellPair,
    MeanLogRatio,
    RandomEffects,
    average,
    estimate_of,
    host_of,
    paule_mandel,
    pool_runs,
    random_effects,
)
from bench.running.store import read_run
from bench.running.table import rows_of
from bench.running.timings import Timings
from bench.spec import PlannedArm, RequestError
from tests.planted_runs import HOSTS, planned, stored

KACKER = {
    "means": [61.00, 61.40, 62.21, 62.30, 62.34, 62.60, 62.70, 62.84, 65.90],
    "variances": [0.2025, 1.2100, 0.0900, 0.2025, 0.3844, 0.5625, 0.0676, 0.0225, 1.8225],
}
"""Nine laboratories (Kacker 2004, Metrologia 41); R's metafor, method PM: mean 62.4076199, error 0.3380306, tau^2 0.7053953."""


def estimates(means: Sequence[float], variances: Sequence[float]) -> list[MeanLogRatio]:
    return [MeanLogRatio(mean=mean, variance=variance, freedom=6) for mean, variance in zip(means, variances, strict=True)]


def parts(found: MeanLogRatio | None) -> tuple[float, float, float]:
    assert found is not None
    return found.mean, found.variance, found.freedom


def pooled(found: Sequence[MeanLogRatio]) -> RandomEffects:
    model = random_effects(found)
    assert model is not None
    return model


def test_a_published_example() -> None:
    found = pooled(estimates(**KACKER))
    assert found.mean == pytest.approx(62.4076199113286, abs=1e-8)
    assert found.standard_error == pytest.approx(0.338030602684471, abs=1e-8)
    assert found.tau**2 == pytest.approx(0.705395309224248, abs=1e-8)


def test_intervals_of_the_published_example_by_hand() -> None:
    """Points of Student's t from tables: 2.3060 for 8 degrees of freedom, 2.3646 for 7."""
    found = pooled(estimates(**KACKER))
    assert found.prediction is not None
    assert math.log(found.ratio.high) == pytest.approx(62.40762 + 2.3060 * 0.3380306, abs=1e-4)
    assert math.log(found.ratio.low) == pytest.approx(62.40762 - 2.3060 * 0.3380306, abs=1e-4)
    spread = math.sqrt(0.7053953 + 0.3380306**2)
    assert math.log(found.prediction.high) == pytest.approx(62.40762 + 2.3646 * spread, abs=1e-4)


def test_equal_variances_give_the_plain_t_interval() -> None:
    """With equal variances Paule and Mandel's tau^2 is s^2 - v, and the pooled interval that of a mean of k values."""
    means = [0.10, 0.30, -0.05, 0.22]
    found = pooled(estimates(means, [0.001] * 4))
    assert found.tau**2 == pytest.approx(statistics.variance(means) - 0.001)
    low, high = stats.t.interval(0.95, 3, statistics.fmean(means), statistics.stdev(means) / 2)
    assert (math.log(found.ratio.low), math.log(found.ratio.high)) == pytest.approx((low, high))


def test_types_that_agree_by_chance_do_not_narrow_the_interval() -> None:
    found = pooled(estimates([0.2, 0.2, 0.2], [0.03, 0.03, 0.03]))
    assert found.tau == 0
    assert found.standard_error == pytest.approx(0.1)


def test_paule_and_mandel_solve_their_equation() -> None:
    means, variances = [0.0, 0.5, 1.1, -0.2], [0.01, 0.2, 0.05, 0.02]
    tau_squared = paule_mandel(means, variances)
    weights = [1 / (variance + tau_squared) for variance in variances]
    centre = sum(m * w for m, w in zip(means, weights, strict=True)) / sum(weights)
    assert sum(w * (m - centre) ** 2 for m, w in zip(means, weights, strict=True)) == pytest.approx(3)


@pytest.mark.parametrize("num", [3, 4, 5, 6, 8])
@pytest.mark.parametrize("tau", [0.0, 0.02, 0.1])
def test_coverage(num: int, tau: float) -> None:
    """The planted mean, and one more type, lie inside 95 % intervals; seven rounds a type, with up to eight times as much noise in some as in others.

    Noise as large as tau costs a few points of coverage; without tau the interval is wider than needed.
    """
    draw, hits, predicted = random.Random(f"{num}/{tau}"), 0, 0
    for _ in range(400):
        found = pooled([_simulated(draw, draw.gauss(0.3, tau)) for _ in range(num)])
        hits += found.ratio.contains(math.exp(0.3))
        predicted += found.prediction is not None and found.prediction.contains(math.exp(draw.gauss(0.3, tau)))
    assert hits / 400 >= 0.87
    assert tau < 0.1 or hits / 400 <= 0.98
    assert num < 5 or predicted / 400 >= 0.87


def _simulated(draw: random.Random, truth: float) -> MeanLogRatio:
    noise = draw.choice((0.01, 0.03, 0.08))
    logs = [draw.gauss(truth, noise) for _ in range(7)]
    return MeanLogRatio(mean=statistics.fmean(logs), variance=statistics.variance(logs) / 7, freedom=6)


def test_the_intervals_would_miss_without_the_spread_between_types() -> None:
    """The same simulation, each type's rounds taken as if they told of all types: its coverage shows that the test above can fail."""
    draw, hits = random.Random(0), 0
    for _ in range(200):
        found = [_simulated(draw, draw.gauss(0.3, 0.1)) for _ in range(5)]
        error = math.sqrt(1 / sum(1 / estimate.variance for estimate in found))
        mean = sum(estimate.mean / estimate.variance for estimate in found) * error**2
        hits += abs(mean - 0.3) <= float(stats.t.ppf(0.975, 4)) * error
    assert hits / 200 < 0.6


def test_fewer_than_three_types_are_not_pooled_and_five_are_predicted() -> None:
    assert random_effects(estimates([0.0, 0.1], [0.01, 0.01])) is None
    four, five = (pooled(estimates([0.01 * i for i in range(num)], [0.01] * num)) for num in (4, 5))
    assert four.prediction is None
    assert five.prediction is not None


def test_the_estimate_of_a_run() -> None:
    timings = Timings({"a": {0: 2.0, 1: 2.2, 2: 1.8, 3: 5.0}, "b": {0: 1.0, 1: 1.0, 2: 1.0}})
    found = estimate_of(CellPair(name="a / b", first="a", second="b"), timings)
    logs = [math.log(2.0), math.log(2.2), math.log(1.8)]
    assert found is not None
    assert parts(found) == pytest.approx((statistics.fmean(logs), statistics.variance(logs) / 3, 2))
    assert found.ratio.low == pytest.approx(math.exp(found.mean - 4.302653 * math.sqrt(found.variance)), rel=1e-5)
    assert estimate_of(CellPair(name="", first="a", second="b"), Timings({"a": {0: 1.0}, "b": {0: 1.0}})) is None


def test_times_of_unlike_batches_are_compared_per_item() -> None:
    timings = Timings({"a": {0: 2.0, 1: 2.0}, "b": {0: 1.0, 1: 1.0}})
    found = estimate_of(CellPair(name="", first="a", second="b", batch_ratio=0.5), timings)
    assert parts(found)[0] == pytest.approx(0.0)


def test_the_spread_between_machines_is_in_the_variance() -> None:
    apart = average(estimates([0.0, 0.2], [1e-6, 1e-6]))
    assert parts(apart) == pytest.approx((0.1, 0.02 / 2, 1))


def test_machines_that_agree_by_chance_keep_the_variance_of_their_rounds() -> None:
    alike = average(estimates([0.1, 0.1], [0.04, 0.04]))
    assert parts(alike) == pytest.approx((0.1, 0.02, 12))


def test_one_estimate_is_its_own_average() -> None:
    (only,) = estimates([0.3], [0.04])
    assert parts(average([only])) == pytest.approx((0.3, 0.04, 6))


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"device": "cpu", "cpu_type": "zen4", "gpu": "H100", "boot": "b"}, "zen4"),
        ({"device": "cuda", "cpu_type": "zen4", "gpu": "H100", "gpu_memory_bytes": 80 * 2**30, "boot": "b"}, "H100, 80 GiB"),
        ({"device": "cpu", "cpu_type": None, "boot": "b"}, None),
        ({"device": "cpu", "cpu_type": "zen4"}, None),
        ({"device": "cuda", "cpu_type": "zen4", "gpu": None, "boot": "b"}, None),
    ],
)
def test_the_type_of_a_host(facts: dict[str, Any], kind: str | None) -> None:
    host = host_of(facts)
    assert (host.type if host else None) == kind


def test_runs_are_grouped_by_boot_then_type(tmp_path: Path) -> None:
    """Three runs of one boot weigh as much as one run of another boot of that type."""
    plan = planned(seq="17", rounds=3)
    hosts = [("x", "1", 1.0), ("x", "1", 1.0), ("x", "1", 1.0), ("x", "2", 4.0), ("y", "3", 1.0)]
    runs = [
        read_run(stored(tmp_path / str(i), plan, i, slower={"vit": slower}, cpu_type=kind, boot=boot))
        for i, (kind, boot, slower) in enumerate(hosts)
    ]
    (pair,) = pool_runs(runs).pairs
    assert [(kind.host_type, kind.num_machines, kind.num_runs) for kind in pair.types] == [("x", 2, 4), ("y", 1, 1)]
    assert pair.types[0].estimate.ratio.estimate == pytest.approx(2.0, rel=0.02)
    assert pair.types[0].estimate.freedom == 1
    assert pair.pooled is None


def test_the_planted_ratio_is_found_over_five_types(tmp_path: Path) -> None:
    plan = planned(seq="17,65")
    runs = [read_run(stored(tmp_path / kind, plan, i, slower={"vit": 1.5}, cpu_type=kind, boot=kind)) for i, kind in enumerate(HOSTS)]
    found = pool_runs(runs)
    assert [pair.pair.name for pair in found.pairs] == ["vit / gmlp, n = 17", "vit / gmlp, n = 65"]
    for pair in found.pairs:
        assert len(pair.types) == 5
        assert pair.pooled is not None
        assert pair.pooled.ratio.estimate == pytest.approx(1.5, rel=0.02)
        assert pair.pooled.prediction is not None
        assert pair.pooled.prediction.contains(1.5)
    assert sum("convenience sample" in note for note in found.notes) == 1


def test_a_pair_that_a_run_did_not_time_is_named(tmp_path: Path) -> None:
    plan = planned(seq="17,65")
    lacking = plan.cells[-1].cell.cell_id
    runs = [
        read_run(stored(tmp_path / name, plan, i, without=(lacking,) if name == "b" else (), cpu_type=name, boot=name))
        for i, name in enumerate("abcd")
    ]
    found = pool_runs(runs)
    assert [len(pair.types) for pair in found.pairs] == [4, 3]
    assert "vit / gmlp, n = 65 has fewer than two rounds in b." in found.notes


def test_the_reference_is_the_first_cell_of_equal_workload(tmp_path: Path) -> None:
    plan = planned(seq="17", batch="1,4", attention="auto,math")
    runs = [read_run(stored(tmp_path / name, plan, i, boot=name)) for i, name in enumerate("ab")]
    assert [pair.pair.name for pair in pool_runs(runs).pairs] == [
        f"vit ({kernel}) / gmlp, n = 17, batch {batch}" for batch in (1, 4) for kernel in ("auto", "math")
    ]


def test_cells_with_other_answers_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(seq="17", models="gmlp,vit,transformer")
    runs = [read_run(stored(tmp_path / name, plan, i, boot=name)) for i, name in enumerate("ab")]
    monkeypatch.setattr("bench.analysis.pool.rows_of", lambda run: rows_of(run).assign(equal=[None, False, True]))
    assert [pair.pair.name for pair in pool_runs(runs).pairs] == ["transformer / gmlp, n = 17"]


def test_names_tell_what_differs_once(tmp_path: Path) -> None:
    """The engine is told of both cells where they differ in it, the budget of the pair where they share it."""
    plan = planned(seq="17", models="gmlp", params="300k,600k", engine="eager,compile")
    runs = [read_run(stored(tmp_path / name, plan, i, boot=name)) for i, name in enumerate("ab")]
    names = [pair.pair.name for pair in pool_runs(runs).pairs]
    assert "gmlp, compile / gmlp, eager, n = 17, budget 300 k" in names
    assert len(set(names)) == 2


def test_arms_are_compared_with_the_baseline_at_the_same_place(tmp_path: Path) -> None:
    """The baseline is not the plan's first cell, and lengths need not be equal where each arm has one of its own."""
    plan = planned(seq="17,65", models="gmlp,vit")
    cells = {name: tuple(p.cell.cell_id for p in plan.cells if p.cell.model.name == name) for name in ("gmlp", "vit")}
    arms = tuple(PlannedArm(name=f"arm {name}", cells=found) for name, found in cells.items())
    plan = planned(seq="17,65", models="gmlp,vit", arms=arms, baseline="arm vit")
    runs = [read_run(stored(tmp_path / name, plan, i, slower={"vit": 2.0}, boot=name)) for i, name in enumerate("ab")]
    found = pool_runs(runs).pairs
    assert [pair.pair.name for pair in found] == ["arm gmlp / arm vit, n = 17", "arm gmlp / arm vit, n = 65"]
    assert all(pair.types[0].estimate.ratio.estimate == pytest.approx(0.5, rel=0.02) for pair in found)


def test_a_capped_host_is_no_other_host(tmp_path: Path) -> None:
    plan = planned(seq="17,65", models="gmlp,vit")
    types = {"a": "zen4", "b": "zen4, ONEDNN_MAX_CPU_ISA=AVX2"}
    runs = [read_run(stored(tmp_path / name, plan, i, cpu_type=kind, boot=name)) for i, (name, kind) in enumerate(types.items())]
    with pytest.raises(RequestError, match="b was measured with a cap on vector instructions"):
        pool_runs(runs)


def test_a_run_without_pairs_is_refused(tmp_path: Path) -> None:
    plan = planned(models="gmlp", seq="17")
    runs = [read_run(stored(tmp_path / name, plan, i, boot=name)) for i, name in enumerate("ab")]
    with pytest.raises(RequestError, match="no two timed configurations of equal length"):
        pool_runs(runs)

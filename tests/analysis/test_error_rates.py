"""The procedures err at most as often as they say, all contrasts of a family together, and find what a power formula says they find.

Equal models: 2, 5 and 12 of them, with one slow process in thirty, with spreads over seeds in ratios of 1 to 10, and with the rounds of a committed
run. Two shares of seeds are in test_accuracy.py, two runs in test_diff.py.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import pytest
from numpy.typing import NDArray
from scipy import stats

from bench.analysis.accuracy import compare_groups
from bench.analysis.ratios import rank_latency
from bench.intervals import joint_level, ratio_over_rounds
from bench.reading.store import read_run
from bench.reading.timings import Timings

pytestmark = pytest.mark.slow
RUN = Path(__file__).parents[2] / "results" / "2026-11-27_cpu_three_families"
ROUNDS, REPEATS, SPREAD = 20, 1000, 0.02
MODELS = (2, 5, 12)
ERROR = 2.6 * math.sqrt(0.05 * 0.95 / REPEATS)
"""Of a rate of 5 % in so many repeats, in one of a hundred cases."""
Logs = NDArray[np.float64]


def made_logs(rng: np.random.Generator, num_models: int) -> Logs:
    """Log times `(models, rounds)`: what a round does to all, what a process draws, and one process in thirty 1.3 to 1.6 times as slow."""
    slow = rng.random((num_models, ROUNDS)) < 1 / 30
    own = rng.normal(0, SPREAD, (num_models, ROUNDS)) + slow * np.log(rng.uniform(1.3, 1.6, (num_models, ROUNDS)))
    return own + rng.normal(0, 0.1, ROUNDS)


@functools.cache
def residuals() -> Logs:
    """Log times of a committed run's processes over the median of their configuration."""
    found = [np.log(list(times.values())) for times in read_run(RUN).times.values()]
    return np.concatenate([logs - np.median(logs) for logs in found])


def drawn_logs(rng: np.random.Generator, num_models: int) -> Logs:
    return rng.choice(residuals(), (num_models, ROUNDS))


def family_errs(logs: Logs) -> bool:
    level = joint_level(math.comb(len(logs), 2))
    intervals = (ratio_over_rounds((first - second).tolist(), level) for first, second in itertools.combinations(logs, 2))
    return any(found is not None and not found.contains(1.0) for found in intervals)


@pytest.mark.parametrize("num_models", MODELS)
@pytest.mark.parametrize("draw", [made_logs, drawn_logs])
def test_equal_models_are_called_unequal_in_at_most_one_family_of_twenty(draw: Callable[..., Logs], num_models: int) -> None:
    rng = np.random.default_rng(num_models)
    assert sum(family_errs(draw(rng, num_models)) for _ in range(REPEATS)) / REPEATS <= 0.05 + ERROR


@pytest.mark.parametrize("num_models", MODELS)
def test_no_equal_model_is_called_slower_than_the_one_that_happens_to_be_first(num_models: int) -> None:
    rng, wrong, num_pairs = np.random.default_rng(num_models), 0, math.comb(num_models, 2)
    names = [f"m{place}" for place in range(num_models)]
    for _ in range(REPEATS // 2):
        times = {name: dict(enumerate(np.exp(logs).tolist())) for name, logs in zip(names, made_logs(rng, num_models), strict=True)}
        rows = [
            {"cell_id": name, "label": name, "n": 17, "latency_ms": float(np.median(list(found.values())))} for name, found in times.items()
        ]
        timings = Timings(times)
        (ranking,) = rank_latency(rows, ["n"], timings, dict.fromkeys(names, num_pairs))
        wrong += any(pair.differs for pair in ranking.others)
    assert wrong / (REPEATS // 2) <= 0.05 + ERROR * math.sqrt(2)


@pytest.mark.parametrize("spread", [0.02, 0.03, 0.04])
def test_two_percent_are_found_as_often_as_the_power_formula_says(spread: float) -> None:
    """Of three models; the efficiency of signed ranks is 3 / pi (Hodges and Lehmann 1956)."""
    rng, level, found = np.random.default_rng(1), joint_level(3), 0
    for _ in range(REPEATS):
        ratio = ratio_over_rounds(rng.normal(math.log(1.02), spread, ROUNDS).tolist(), level)
        found += ratio is not None and ratio.low > 1
    error = spread / math.sqrt(ROUNDS * 3 / math.pi)
    power = stats.nct.sf(stats.t.ppf(0.5 + level / 2, ROUNDS - 1), ROUNDS - 1, math.log(1.02) / error)
    assert found / REPEATS == pytest.approx(power, abs=0.08)


SEEDS, ITEMS = 5, 400


def made_scores(rng: np.random.Generator, num_models: int, spreads: float, gain: float = 0.0) -> dict[str, Logs]:
    """Scores `(seeds, items)` of models whose means are the same but that the first gains; the first spreads over seeds so many times as far."""
    hardness = rng.normal(0.5, 0.1, ITEMS)
    found = {}
    for place in range(num_models):
        seeds = rng.normal(0, 0.01 * (spreads if place == 0 else 1.0), (SEEDS, 1))
        found[f"m{place}"] = hardness + seeds + rng.normal(0, 0.05, (SEEDS, ITEMS)) + (gain if place == 0 else 0.0)
    return found


def rows_of(names: list[str]) -> pandas.DataFrame:
    return pandas.DataFrame({"cell_id": names, "label": names, "task": "t"})


@pytest.mark.parametrize("num_models", MODELS)
@pytest.mark.parametrize("spreads", [1.0, 4.0, 10.0])
def test_equal_accuracies_are_called_unequal_in_at_most_one_family_of_twenty(spreads: float, num_models: int) -> None:
    rng, wrong, repeats = np.random.default_rng(num_models), 0, REPEATS // 2
    for _ in range(repeats):
        scores = made_scores(rng, num_models, spreads)
        wrong += any(found.significant for found in compare_groups(rows_of(list(scores)), scores, ["task"]))
    assert wrong / repeats <= 0.05 + ERROR * math.sqrt(2)


@pytest.mark.parametrize("spreads", [1.0, 3.0])
def test_three_points_are_found_as_often_as_the_power_formula_says(spreads: float) -> None:
    """By the noncentral t: seeds with spreads of one and `spreads` points, items of the difference with what each training adds."""
    rng, found = np.random.default_rng(2), 0
    for _ in range(REPEATS):
        (pair,) = compare_groups(rows_of(["m0", "m1"]), made_scores(rng, 2, spreads, gain=0.03), ["task"])
        found += pair.significant and pair.first == "m0"
    parts = [(0.01 * spreads) ** 2 / SEEDS, 0.01**2 / SEEDS, 2 * 0.05**2 / SEEDS / ITEMS]
    degrees = (SEEDS - 1, SEEDS - 1, ITEMS - 1)
    variance = sum(parts)
    freedom = variance**2 / sum(part**2 / of for part, of in zip(parts, degrees, strict=True))
    power = stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, 0.03 / math.sqrt(variance))
    assert found / REPEATS == pytest.approx(power, abs=0.08)

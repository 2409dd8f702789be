"""The learning rate against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from bench.spec import Recipe
from bench.training.optimizer import learning_rate_at, learning_rate_factor


def test_warm_up_rises_linearly_to_the_peak() -> None:
    assert [learning_rate_factor(step, num_steps=10, warmup_steps=4) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_decay_is_a_half_cosine_that_ends_at_zero() -> None:
    """Five steps without warm-up sit at one to five sixths of the way: cos 30, 60, 90, 120, 150 degrees."""
    half_root = math.sqrt(3) / 2
    expected = [(1 + half_root) / 2, 0.75, 0.5, 0.25, (1 - half_root) / 2]
    assert [learning_rate_factor(step, num_steps=5, warmup_steps=0) for step in range(5)] == pytest.approx(expected)
    assert learning_rate_factor(5, num_steps=5, warmup_steps=0) == pytest.approx(0.0, abs=1e-15)


def test_decay_follows_the_warm_up() -> None:
    """After two steps of warm-up, three are at one to three quarters of the way: cos 45, 90, 135 degrees."""
    half_root = math.sqrt(2) / 2
    expected = [0.5, 1.0, (1 + half_root) / 2, 0.5, (1 - half_root) / 2]
    assert [learning_rate_factor(step, num_steps=5, warmup_steps=2) for step in range(5)] == pytest.approx(expected)


def test_a_run_that_is_all_warm_up_ends_at_the_peak() -> None:
    assert [learning_rate_factor(step, num_steps=2, warmup_steps=2) for step in range(2)] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", [0.2, 0.4, 0.3, 0.1]),  # after the warm-up, a third and two thirds of the way: cos 60 and 120 degrees
        ("constant", [0.2, 0.4, 0.4, 0.4]),
        ("plateau", [0.2, 0.4, 0.4, None]),  # at the peak once; then it is the plateau's to change
    ],
)
def test_each_schedule_follows_the_warm_up(schedule: str, expected: list[float | None]) -> None:
    recipe = Recipe(learning_rate=0.4, warmup=0.5, schedule=schedule)
    found = [learning_rate_at(step, recipe, 4) for step in range(4)]
    assert [None if rate is None else round(rate, 12) for rate in found] == expected


def test_without_warm_up_a_plateau_starts_at_the_peak() -> None:
    recipe = Recipe(learning_rate=0.4, warmup=0.0, schedule="plateau")
    assert [learning_rate_at(step, recipe, 3) for step in range(3)] == [0.4, None, None]

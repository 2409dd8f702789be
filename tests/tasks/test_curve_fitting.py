"""Curve fitting: the answers lie on the curve, what is observed lies about it, and Nadaraya-Watson regression fits it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bench.tasks import Split, load_splits
from bench.tasks._info import info_of

SMALL = "curve_fitting+items=300+test_items=200"
HALF = 32


@pytest.fixture(scope="module")
def split() -> Split:
    return load_splits(SMALL, num_tokens=2 * HALF).test


def r2_of(predicted: Tensor, asked: Tensor) -> float:
    return 1 - float((predicted - asked).square().mean() / asked.var(correction=0))


def test_the_answers_lie_on_the_curve(split: Split) -> None:
    x = split.inputs[:, HALF:, 0]
    torch.testing.assert_close(split.targets[:, HALF:], 2 * x.sin() + x**0.8)
    assert split.targets[:, :HALF].isnan().all()


def test_what_is_asked_for_is_not_shown(split: Split) -> None:
    assert (split.inputs[:, HALF:, 1] == 0).all()
    assert split.inputs[..., 2].tolist() == [[0.0] * HALF + [1.0] * HALF] * 200


def test_observations_differ_from_the_curve_by_noise_of_the_stated_spread(split: Split) -> None:
    x, y = split.inputs[:, :HALF, 0], split.inputs[:, :HALF, 1]
    noise = y - (2 * x.sin() + x**0.8)
    # 6,400 draws: standard errors of 0.006 and 0.0044
    assert float(noise.mean()) == pytest.approx(0, abs=0.025)
    assert float(noise.std()) == pytest.approx(0.5, abs=0.018)
    assert 0 <= float(x.min()) < 0.01
    assert 4.99 < float(x.max()) < 5


def test_regression_on_the_observed_points_fits_and_the_mean_does_not(split: Split) -> None:
    """Nadaraya and Watson's estimate, with a Gaussian kernel of width 0.25."""
    x, y, asked_x = split.inputs[:, :HALF, 0], split.inputs[:, :HALF, 1], split.inputs[:, HALF:, 0]
    weights = (-((asked_x[:, :, None] - x[:, None]) ** 2) / (2 * 0.25**2)).softmax(dim=2)
    asked = split.targets[:, HALF:]
    assert r2_of((weights @ y[:, :, None])[..., 0], asked) > 0.85
    assert r2_of(asked.mean().expand_as(asked), asked) == pytest.approx(info_of(SMALL).chance, abs=1e-6)

"""A moving average of the weights, against one that is worked out step by step."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bench.training.loop import Training, _average
from tests.training.small_trainings import SEED, build, changed, made_data, run, same_bits


def test_a_moving_average_of_the_weights_is_scored_and_kept() -> None:
    """It begins as the weights after the first step; each step then moves it a tenth of the way."""
    recipe = changed(ema=0.9, epochs=1)
    training = Training(build(), made_data(), recipe, seed=SEED, device="cpu")
    expected: dict[str, Tensor] = {}
    for chosen in training._order():
        training.learn(chosen)
        now = {name: value.detach().clone() for name, value in training.model.named_parameters()}
        expected = {name: 0.9 * expected[name] + 0.1 * value if expected else value for name, value in now.items()}
    found = dict(training.kept.named_parameters())
    for name, value in expected.items():
        torch.testing.assert_close(found[name].detach(), value)
    assert not torch.equal(found["blocks.0.expand.weight"], dict(training.model.named_parameters())["blocks.0.expand.weight"])
    model, result = run(recipe)
    assert same_bits(model, training.kept)
    assert result.epochs[0].validation == training.score(training.data.held_out).value


class Indexed(nn.Module):
    """A model with buffers that are no averages: indices, and a mask of minus infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("index", torch.arange(-50, 50))
        self.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))


@pytest.mark.parametrize("decay", [0.9, 0.9999])
def test_indices_and_masks_are_kept_as_they_are(decay: float) -> None:
    model = Indexed()
    averaged = AveragedModel(model, multi_avg_fn=functools.partial(_average, decay=decay), use_buffers=True)
    for _ in range(3):
        averaged.update_parameters(model)
    assert all(torch.equal(found, model.get_buffer(name)) for name, found in averaged.module.named_buffers())

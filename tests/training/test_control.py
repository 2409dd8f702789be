"""The control of every claim about mixing: a model whose tokens never meet must fail where tokens have to move, or the task or the code is wrong."""

from __future__ import annotations

import math

import pytest
import torch

from bench.measure.model import build_model
from bench.spec import OptionValue, Recipe
from bench.tasks._info import info_of
from bench.training.data import load_training_data
from bench.training.loop import TrainResult, train
from tests.made_jobs import small_model

NEVER_MIXES: dict[str, OptionValue] = {"gating": "identity"}
RECIPE = Recipe(epochs=4, batch_size=32, learning_rate=5e-3, label_smoothing=0.0)


def trained(task: str, num_tokens: int, options: dict[str, OptionValue]) -> TrainResult:
    options, interface = {"pool": "mean", **options}, info_of(task).interface(num_tokens, "mean")
    model = small_model("gmlp", options=options, interface=interface, seq_len=num_tokens, width=32, depth=2, ffn_width=96)
    data = load_training_data(model, task, RECIPE, seed=0)
    torch.manual_seed(0)
    return train(build_model(model), data, RECIPE, seed=0)


@pytest.mark.parametrize(
    "task", ["copy+items=2000+symbols=8", pytest.param("associative_recall+items=2000+keys=8+values=8", marks=pytest.mark.slow)]
)
def test_without_mixing_every_answer_is_a_guess(task: str) -> None:
    """Within five standard deviations of guessing, all answers of one item counted as one."""
    result = trained(task, 16, NEVER_MIXES)
    assert result.test is not None
    chance = 1 / 8
    assert abs(result.test.value - chance) < 5 * math.sqrt(chance * (1 - chance) / len(result.test.items))


def test_with_mixing_the_same_model_copies() -> None:
    result = trained("copy+items=2000+symbols=8", 16, {})
    assert result.test is not None
    assert result.test.value > 0.99

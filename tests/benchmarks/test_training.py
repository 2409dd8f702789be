"""One epoch of the training loop beside a plain loop around the same model and items. Compare the two only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bench.measure.model import build_model
from bench.spec import ModelSpec, Recipe
from bench.training.data import TrainingData, load_training_data
from bench.training.loop import Training
from models.layers.shape import Interface, Shape

SPEC = ModelSpec(
    name="gmlp",
    family="gmlp",
    shape=Shape(seq_len=17, width=64, depth=2, heads=1, ffn_width=384),
    interface=Interface(patch_dim=64, num_classes=10),
)
RECIPE = Recipe(epochs=1, batch_size=32)
Epoch = Callable[[], int]
"""Trains on every item once and returns the number of steps."""


def projects_loop(model: nn.Module, data: TrainingData) -> Epoch:
    training = Training(model, data, RECIPE, seed=0, device="cpu")

    def epoch() -> int:
        training.run_epoch(None)
        return training.step

    return epoch


def plain_loop(model: nn.Module, data: TrainingData) -> Epoch:
    """What it has to do: forward, loss, backward, clipping and AdamW, batch by batch, then the score of the items held out."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RECIPE.learning_rate, weight_decay=RECIPE.weight_decay)

    def epoch() -> int:
        batches = torch.randperm(len(data.learned)).split(RECIPE.batch_size)
        model.train()
        for chosen in batches:
            optimizer.zero_grad()
            outputs = model(data.learned.inputs[chosen], None)
            nn.functional.cross_entropy(outputs, data.learned.targets[chosen], label_smoothing=RECIPE.label_smoothing).backward()
            nn.utils.clip_grad_norm_(model.parameters(), RECIPE.clip_norm)
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            model(data.held_out.inputs, None).argmax(dim=-1)
        return len(batches)

    return epoch


@pytest.mark.parametrize("loop", [projects_loop, plain_loop])
def test_epoch(benchmark: Any, loop: Callable[[nn.Module, TrainingData], Epoch]) -> None:
    benchmark.group = "one epoch of gMLP on digits"
    data = load_training_data(SPEC, "digits", RECIPE, seed=0)
    models: list[nn.Module] = []

    def prepare() -> tuple[tuple[Epoch], dict[str, Any]]:
        torch.manual_seed(0)
        models.append(build_model(SPEC))
        return (loop(models[-1], data),), {}

    num_steps = benchmark.pedantic(lambda epoch: epoch(), setup=prepare, rounds=10)
    assert num_steps == -(-len(data.learned) // RECIPE.batch_size)
    outputs = models[-1].eval()(data.test.inputs, None)
    assert (outputs.argmax(dim=-1) == data.test.targets).float().mean() > 0.2  # it learned: one in ten is chance

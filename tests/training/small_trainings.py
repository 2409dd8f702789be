"""Small trainings on made images, and one that is cut off at a step."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from bench.spec import Recipe
from bench.training.checkpoint import Checkpoint
from bench.training.distillation import train_with_teacher
from bench.training.loop import Training, TrainResult
from tests.training.resumable import SEED, build, made_data

RECIPE = Recipe(epochs=2, batch_size=8, learning_rate=1e-2)


def changed(**changes: object) -> Recipe:
    return dataclasses.replace(RECIPE, **changes)  # type: ignore[arg-type]


def run(recipe: Recipe, family: str = "gmlp", checkpoint: Checkpoint | None = None) -> tuple[nn.Module, TrainResult]:
    model = build(family)
    return model, train_with_teacher(model, made_data(recipe.augment), recipe, seed=SEED, checkpoint=checkpoint)


def losses(result: TrainResult) -> list[float]:
    return [epoch.loss for epoch in result.epochs]


def same_bits(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


class CutOffError(Exception):
    pass


def run_until_cut_off(monkeypatch: pytest.MonkeyPatch, recipe: Recipe, checkpoint: Checkpoint, step: int) -> None:
    learn = Training.learn

    def learn_or_end(training: Training, chosen: Tensor) -> None:
        if training.step == step and training.epochs:
            raise CutOffError
        learn(training, chosen)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "learn", learn_or_end)
        with pytest.raises(CutOffError):
            run(recipe, checkpoint=checkpoint)

"""Small trainings on made images, and one that is cut off at a step."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from bench.measure.model import build_model
from bench.spec import ModelSpec, Recipe
from bench.training.augment import Augmentation
from bench.training.checkpoint import Checkpoint
from bench.training.data import TrainingData
from bench.training.distillation import train_with_teacher
from bench.training.loop import Training, TrainResult
from bench.training.reading import Reader
from models.layers.shape import Interface, Shape
from tests.training.resumable import NUM_CLASSES, PATCH_SIDE, SEED, made_images

RECIPE = Recipe(epochs=2, batch_size=8, learning_rate=1e-2)
NUM_LEARNED = 36
"""The last batch of an epoch has 4 items."""


def changed(**changes: object) -> Recipe:
    return dataclasses.replace(RECIPE, **changes)  # type: ignore[arg-type]


def images(augment: tuple[str, ...] = ()) -> TrainingData:
    augmentation = Augmentation(augment, num_classes=NUM_CLASSES) if augment else None
    reader = Reader(patch_side=PATCH_SIDE, mean=torch.full((3,), 0.5), spread=torch.full((3,), 0.3), augmentation=augmentation)
    parts = [made_images(num, seed) for seed, num in enumerate((NUM_LEARNED, 12, 15))]
    return TrainingData(learned=parts[0], held_out=parts[1], test=parts[2], reader=reader, answers="class", num_classes=NUM_CLASSES)


def build(family: str = "gmlp", interface: Interface | None = None) -> nn.Module:
    shape = Shape(seq_len=5, width=8, depth=1, heads=2, ffn_width=16)
    spec = ModelSpec(name=family, family=family, shape=shape, interface=interface or Interface(patch_dim=48, num_classes=NUM_CLASSES))
    torch.manual_seed(SEED)
    return build_model(spec)


def run(recipe: Recipe, family: str = "gmlp", checkpoint: Checkpoint | None = None) -> tuple[nn.Module, TrainResult]:
    model = build(family)
    return model, train_with_teacher(model, images(recipe.augment), recipe, seed=SEED, checkpoint=checkpoint)


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

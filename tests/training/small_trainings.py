"""Small trainings on made images, one that is cut off at a step, and what two of them do not have in common."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.measure.model import build_model
from bench.spec import Recipe
from bench.tasks import Split
from bench.tasks._info import CLASS
from bench.training.augment import Augmentation
from bench.training.checkpoint import Checkpoint
from bench.training.data import TrainingData
from bench.training.distillation import train_with_teacher
from bench.training.loop import Training, TrainResult
from bench.training.reading import Reader
from models.layers.shape import Interface
from tests.made_jobs import small_model

NUM_CLASSES, SIDE, PATCH_SIDE = 3, 8, 4
INTERFACE = Interface(patch_dim=3 * PATCH_SIDE**2, num_classes=NUM_CLASSES)
NUM_LEARNED, NUM_HELD_OUT, NUM_TEST = 36, 12, 15
SEED = 5
RECIPE = Recipe(epochs=2, batch_size=8, learning_rate=1e-2)
"""The last batch of an epoch has 4 items."""
IDENTITY: dict[str, str | int] = {"subject": "a training", "threads": 1}


def made_images(num_items: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (num_items, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    return Split(inputs=images, targets=torch.arange(num_items) % NUM_CLASSES)


def made_data(augment: tuple[str, ...] = ()) -> TrainingData:
    augmentation = Augmentation(augment, num_classes=NUM_CLASSES) if augment else None
    reader = Reader(patch_side=PATCH_SIDE, mean=torch.full((3,), 0.5), spread=torch.full((3,), 0.3), augmentation=augmentation)
    parts = [made_images(num, seed) for seed, num in enumerate((NUM_LEARNED, NUM_HELD_OUT, NUM_TEST))]
    return TrainingData(learned=parts[0], held_out=parts[1], test=parts[2], reader=reader, answers=CLASS, num_classes=NUM_CLASSES)


def build(family: str = "gmlp", interface: Interface = INTERFACE) -> nn.Module:
    torch.manual_seed(SEED)
    return build_model(small_model(family, interface=interface, seq_len=5, width=8, heads=2, ffn_width=16))


def changed(**changes: Any) -> Recipe:
    return dataclasses.replace(RECIPE, **changes)


def saved_at(path: Any) -> Checkpoint:
    """Of every step."""
    return Checkpoint(path=path, identity=IDENTITY, every_s=0.0, hosts=["here"])


def run(
    recipe: Recipe, family: str = "gmlp", checkpoint: Checkpoint | None = None, *, device: str = "cpu"
) -> tuple[nn.Module, TrainResult]:
    """From the start, or from where the checkpoint left it."""
    model = build(family)
    return model, train_with_teacher(model, made_data(recipe.augment), recipe, seed=SEED, device=device, checkpoint=checkpoint)


class CutOffError(Exception):
    pass


def run_until_cut_off(recipe: Recipe, family: str, checkpoint: Checkpoint, step: int, *, who: str = "", device: str = "cpu") -> None:
    """Until the step begins; `who`: the prefix of what the training tells, as a teacher has one."""
    learn = Training.learn

    def learn_or_end(training: Training, chosen: Tensor) -> None:
        if (training.message_prefix, training.step) == (who, step):
            raise CutOffError
        learn(training, chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "learn", learn_or_end)
        with pytest.raises(CutOffError):
            run(recipe, family, checkpoint, device=device)


def losses(result: TrainResult) -> list[float]:
    return [epoch.loss for epoch in result.epochs]


def same_bits(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def differences(one: tuple[nn.Module, TrainResult], other: tuple[nn.Module, TrainResult]) -> list[str]:
    """What does not agree to the bit. Seconds do not count."""

    def facts(result: TrainResult) -> dict[str, Any]:
        validation = [(epoch.validation, epoch.validation_loss, epoch.train_accuracy) for epoch in result.epochs]
        scores = [scores.items.tolist() for scores in (result.train, result.test) if scores]
        return {"losses": losses(result), "validation": validation, "best epoch": result.best_epoch, "scores": scores}

    first, second = facts(one[1]), facts(other[1])
    return [name for name in first if first[name] != second[name]] + ["weights"] * (not same_bits(one[0], other[0]))

"""The strongest recipe of `vision_recipe`, all at once: it trains, in the steps and at the places that it says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench import catalog
from bench.measure.model import build_model
from bench.planning.recipe import parse_recipe
from bench.spec import Recipe
from bench.tasks import Split
from bench.training.augment import Augmentation
from bench.training.data import TrainingData
from bench.training.loop import Training
from tests.made_jobs import small_model
from tests.training.small_trainings import INTERFACE, NUM_CLASSES, made_data

STEP = 2048
PER_BATCH = 128


def coloured(num_items: int, seed: int) -> Split:
    """The class of an image is its colour."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 100, (num_items, NUM_CLASSES, 8, 8), dtype=torch.uint8, generator=generator)
    targets = torch.arange(num_items) % NUM_CLASSES
    images[torch.arange(num_items), targets] += 70
    return Split(inputs=images, targets=targets)


def data_for(recipe: Recipe) -> TrainingData:
    data = made_data()
    reader = dataclasses.replace(data.reader, augmentation=Augmentation(recipe.augment, num_classes=NUM_CLASSES))
    learned, held_out, test = (coloured(num, seed) for seed, num in enumerate((2 * STEP, 90, 300)))
    return dataclasses.replace(data, learned=learned, held_out=held_out, test=test, reader=reader)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["vit", "gmlp"])
def test_all_together_trains(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = catalog.load("ablations", "vision_recipe").TOGETHER
    asked = f"{together.flags['recipe']},batch_size={PER_BATCH},epochs=15,learning_rate=1e-2"
    recipe = Recipe(**dict[str, Any](parse_recipe(asked)))
    assert {"randaugment", "mixup", "cutmix", "erasing"} == {*recipe.augment}
    spec = small_model(family, interface=INTERFACE, seq_len=5, width=8, heads=2, ffn_width=16)
    model = build_model(dataclasses.replace(spec, options=(*spec.options, ("head_hidden", 1024))))
    dropped: list[tuple[tuple[int, ...], float]] = []
    drop = F.dropout

    def noted(tokens: Tensor, p: float, training: bool) -> Tensor:
        if training:
            dropped.append((tuple(tokens.shape), p))
        return drop(tokens, p, training)

    monkeypatch.setattr(F, "dropout", noted)
    training = Training(model, data_for(recipe), recipe, seed=0, device="cpu")
    assert (training.steps_per_epoch, training.full_step) == (2, STEP)
    training.run(None)
    assert training.step == 2 * recipe.epochs
    assert set(dropped) == {((PER_BATCH, 1024), 0.25)}
    assert len(dropped) == 2 * recipe.epochs * STEP // PER_BATCH
    assert training.score(training.data.test).value > 0.8

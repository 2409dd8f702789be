"""The one training loop: the same data order, optimizer, schedule and choice of weights for every family."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.spec import Recipe
from bench.training.examples import Examples, split_validation
from bench.training.optimizer import build_optimizer, build_scheduler
from bench.training.scoring import Scores, score


class DivergedError(RuntimeError):
    """The loss or the logits stopped being numbers; the message names the epoch."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One finished epoch, counted from 1. `loss`: mean over the items; `steps_s`: seconds spent in training steps, validation left out."""

    number: int
    loss: float
    validation_accuracy: float
    steps_s: float


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What training gave. All scores are those of the weights kept: the best epoch's on validation (of equals, the later).

    `train` and `validation` are the two parts of the data to learn from; `train_s` is the time of all epochs, validation included;
    `images_per_s` the items learned from per second of training steps, in the median epoch.
    """

    epochs: tuple[Epoch, ...]
    best_epoch: int
    train: Scores
    validation: Scores
    test: Scores
    train_s: float
    images_per_s: float


def train(
    model: nn.Module,
    examples: Examples,
    test: Examples,
    recipe: Recipe,
    *,
    seed: int,
    device: str = "cpu",
    progress: Callable[[Epoch], None] | None = None,
) -> TrainResult:
    """Train `model` in place on `examples`, keep its best weights, score `test` once with them.

    `seed` decides the validation split and the order of items: on a CPU with a fixed number of threads, the same seed and the same initial weights
    give the same bits. Raises DivergedError naming the epoch, ValueError for a recipe without an epoch or an item per batch.
    """
    _require_steps(recipe)
    generator = torch.Generator().manual_seed(seed)
    learned, held_out = split_validation(examples, recipe.validation_fraction, generator)
    learned, held_out, test = learned.to(device), held_out.to(device), test.to(device)
    model.to(device)
    started = time.perf_counter()
    epochs, best_epoch = _keep_best(model, _epoch_runner(model, learned, recipe, generator), held_out, recipe.epochs, progress)
    train_s = time.perf_counter() - started
    return TrainResult(
        epochs=epochs,
        best_epoch=best_epoch,
        train=score(model, learned),
        validation=score(model, held_out),
        test=score(model, test),
        train_s=train_s,
        images_per_s=len(learned) / statistics.median(epoch.steps_s for epoch in epochs),
    )


def _keep_best(
    model: nn.Module, run_epoch: Callable[[], float], held_out: Examples, num_epochs: int, progress: Callable[[Epoch], None] | None
) -> tuple[tuple[Epoch, ...], int]:
    """Run all epochs, leave `model` with the weights of the best; (every epoch, the best one's number)."""
    epochs: list[Epoch] = []
    best_accuracy, best_epoch, best_weights = -1.0, 0, model.state_dict()
    for number in range(1, num_epochs + 1):
        epoch = _finish_epoch(number, run_epoch, model, held_out)
        if epoch.validation_accuracy >= best_accuracy:
            best_accuracy, best_epoch = epoch.validation_accuracy, number
            best_weights = copy.deepcopy(model.state_dict())
        epochs.append(epoch)
        if progress:
            progress(epoch)
    model.load_state_dict(best_weights)
    return tuple(epochs), best_epoch


def _require_steps(recipe: Recipe) -> None:
    for name in ("epochs", "batch_size"):
        if getattr(recipe, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(recipe, name)}")


def _epoch_runner(model: nn.Module, learned: Examples, recipe: Recipe, generator: torch.Generator) -> Callable[[], float]:
    """A function that learns once from every item, in a fresh order, and returns the mean loss."""
    optimizer = build_optimizer(model, recipe)
    scheduler = build_scheduler(optimizer, recipe, recipe.epochs * math.ceil(len(learned) / recipe.batch_size))

    def step(batch: Examples) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(batch.data), batch.labels, label_smoothing=recipe.label_smoothing)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
        scheduler.step()
        return loss.detach() * len(batch)

    def run_epoch() -> float:
        model.train()
        order = torch.randperm(len(learned), generator=generator).to(learned.labels.device)
        # Losses stay tensors until the epoch ends: reading one waits for the device.
        losses = [step(learned.select(chosen)) for chosen in order.split(recipe.batch_size)]
        return float(torch.stack(losses).sum()) / len(learned)

    return run_epoch


def _finish_epoch(number: int, run_epoch: Callable[[], float], model: nn.Module, held_out: Examples) -> Epoch:
    started = time.perf_counter()
    loss = run_epoch()
    steps_s = time.perf_counter() - started
    scores = score(model, held_out)
    if not math.isfinite(loss) or not scores.finite:
        raise DivergedError(
            f"training diverged in epoch {number}: the loss is {loss}; a lower learning rate or a longer warm-up may hold it"
        )
    return Epoch(number=number, loss=loss, validation_accuracy=scores.accuracy, steps_s=steps_s)

"""The one training loop: the same data order, optimizer, schedule and choice of weights for every family and task."""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench.progress import tell
from bench.spec import DIVERGED, NO_TEACHER, Recipe
from bench.training.checkpoint import Checkpoint, random_state, restore_random_state
from bench.training.data import TrainingData
from bench.training.decoding import decoded_sample, score
from bench.training.objective import Scores, loss, num_asked
from bench.training.optimizer import build_optimizer, build_plateau, learning_rate_at, set_learning_rate
from bench.training.teacher import TrainedTeacher, taught_loss
from models.layers.dropout import set_dropout

EXPLODED = 10.0
"""An epoch whose mean loss is this many times that of the first step, before anything was learned, has exploded."""
TELL_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One finished epoch, counted from 1. `loss`: mean over the items; `steps_s`: seconds spent in training steps, validation left out."""

    number: int
    loss: float
    validation: float
    steps_s: float


class DivergedError(RuntimeError):
    """The loss exploded, or it or the answers stopped being numbers; the message names the epoch. An outcome of its own, with the epochs before."""

    outcome_status = DIVERGED

    def __init__(self, message: str, epochs: Sequence[Epoch]) -> None:
        super().__init__(message)
        self.outcome_samples = {"loss": [epoch.loss for epoch in epochs], "validation": [epoch.validation for epoch in epochs]}


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What training gave. All scores are those of the weights kept: the best epoch's on validation (of equals, the later).

    `train` and `validation` are the two parts of the data to learn from; `test` is None where it was left alone. `train_s` is the time of all
    epochs, validation included; `images_per_s` the items learned from per second of training steps, in the median epoch.
    Where answers are generated, `train` and `validation` are of `bench.training.decoding.MAX_SAMPLED` items at most. `teacher`: what was trained
    before, in time that `train_s` does not count.
    """

    epochs: tuple[Epoch, ...]
    best_epoch: int
    data_id: str
    num_learned: int
    train: Scores
    validation: Scores
    test: Scores | None
    train_s: float
    images_per_s: float
    teacher: TrainedTeacher | None = None


def train(
    model: nn.Module,
    data: TrainingData,
    recipe: Recipe,
    *,
    seed: int,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    scores_test: bool = True,
    teacher: TrainedTeacher | None = None,
) -> TrainResult:
    """Train `model` in place, keep its best weights, and (with `scores_test`) score the test items once with them.

    `seed` decides the order of items, dropout and augmentation: on a CPU with a fixed number of threads, the same seed and the same initial weights
    give the same bits, whether or not the run was interrupted and continued from its `checkpoint`. `teacher`: what it also
    learns from, where the recipe asks for that (`bench.training.distillation` trains it). Raises DivergedError naming the epoch, ValueError for a
    recipe without an epoch or an item per batch, or with a teacher that is not there.
    """
    for name in ("epochs", "batch_size", "accumulate"):
        if getattr(recipe, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(recipe, name)}")
    if (recipe.teacher != NO_TEACHER) != (teacher is not None):
        raise ValueError(f"teacher must be given where the recipe has one and only there; this recipe's is {recipe.teacher!r}")
    torch.manual_seed(seed)
    model.to(device)
    data = data.to(device)
    training = Training(model, data, recipe, seed=seed, device=device, teacher=teacher)
    if checkpoint and (state := checkpoint.read()):
        training.restore(state)
    training.run(checkpoint)
    return TrainResult(
        epochs=tuple(training.epochs),
        best_epoch=training.best_epoch,
        data_id=data.data_id,
        num_learned=len(data.learned),
        train=training.score(decoded_sample(data.learned, data.generation)),
        validation=training.score(decoded_sample(data.held_out, data.generation)),
        test=training.score(data.test) if scores_test else None,
        train_s=training.elapsed_s,
        images_per_s=len(data.learned) / statistics.median(epoch.steps_s for epoch in training.epochs),
        teacher=teacher,
    )


class Training:
    """One training in progress. `step` counts optimizer steps; all that decides what follows is in `state`, but for the teacher, which is finished.

    `told_as`: what its messages begin with.
    """

    def __init__(
        self,
        model: nn.Module,
        data: TrainingData,
        recipe: Recipe,
        *,
        seed: int,
        device: str,
        teacher: TrainedTeacher | None = None,
        told_as: str = "",
    ) -> None:
        self.model, self.data, self.recipe, self.seed, self.device = model, data, recipe, seed, device
        self.teacher, self.told_as = teacher, told_as
        set_dropout(model, recipe.dropout, recipe.dropout_at)
        self.forward: Callable[..., Tensor] = torch.compile(model) if recipe.compile else model
        self.optimizer = build_optimizer(model, recipe)
        self.plateau = build_plateau(self.optimizer, recipe)
        self.items_per_step = recipe.batch_size * recipe.accumulate
        self.steps_per_epoch = math.ceil(len(data.learned) / self.items_per_step)
        self.step, self.epochs = 0, list[Epoch]()
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.first_loss = torch.zeros((), device=device)
        self.best_epoch, self.best_weights = 0, dict[str, Tensor]()
        self.elapsed_s, self.steps_s = 0.0, 0.0
        self._told_at = time.monotonic()

    def run(self, checkpoint: Checkpoint | None) -> None:
        """Run the epochs that are left; the model ends with the weights of the best. The clock stops while a checkpoint is written."""
        while not self._is_over():
            started = time.perf_counter()
            self.model.train()
            for chosen in self._order()[self.step % self.steps_per_epoch :]:
                self.learn(chosen)
                self._tell_progress(time.perf_counter() - started)
                if checkpoint and self.step % self.steps_per_epoch:
                    started += self._save(checkpoint, time.perf_counter() - started)
            if self.device != "cpu":
                torch.cuda.synchronize()
            self.steps_s += time.perf_counter() - started
            self._finish_epoch()
            self.elapsed_s += time.perf_counter() - started
            if checkpoint:
                checkpoint.save_if_due(self.state)
        self.model.load_state_dict(self.best_weights)

    def learn(self, chosen: Tensor) -> None:
        """One optimizer step on the items at `chosen`, in batches whose gradients add up to that of the mean loss over all of them."""
        learning_rate = learning_rate_at(self.step, self.recipe, self.recipe.epochs * self.steps_per_epoch)
        if learning_rate is not None:
            set_learning_rate(self.optimizer, learning_rate)
        self.optimizer.zero_grad(set_to_none=True)
        mean_loss = torch.zeros((), device=self.device)
        for part, share in self._shares(chosen):
            batch_loss = self._batch_loss(part) * share
            if batch_loss.requires_grad:  # a model without parameters is only watched
                batch_loss.backward()
            mean_loss += batch_loss.detach()
        nn.utils.clip_grad_norm_(list(self.model.parameters()), self.recipe.clip_norm)
        self.optimizer.step()
        # Losses stay on the device until the epoch ends: reading one waits for it.
        self.loss_sum += mean_loss.double() * len(chosen)
        if self.step == 0:
            self.first_loss = mean_loss
        self.step += 1

    def score(self, examples: Any) -> Scores:
        with self._autocast():
            return score(self.model, examples, self.data.reader, self.data.answers, self.forward, self.data.generation)

    def state(self) -> dict[str, Any]:
        """Everything that decides the bits of what follows, as tensors and plain data."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "plateau": self.plateau.state_dict() if self.plateau else {},
            "random": random_state(),
            "best_weights": self.best_weights,
            "best_epoch": self.best_epoch,
            "step": self.step,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "loss_sum": self.loss_sum,
            "first_loss": self.first_loss,
            "elapsed_s": self.elapsed_s,
            "steps_s": self.steps_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.plateau:
            self.plateau.load_state_dict(state["plateau"])
        restore_random_state(state["random"])
        self.best_weights = {name: value.to(self.device) for name, value in state["best_weights"].items()}
        self.best_epoch, self.step = state["best_epoch"], state["step"]
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self.loss_sum, self.first_loss = state["loss_sum"].to(self.device), state["first_loss"].to(self.device)
        self.elapsed_s, self.steps_s = state["elapsed_s"], state["steps_s"]

    def _is_over(self) -> bool:
        scores = [epoch.validation for epoch in self.epochs]
        # an equal score is none better, although the weights kept are the later ones
        since_better = len(scores) - 1 - scores.index(max(scores)) if scores else 0
        stopped = bool(self.recipe.early_stop) and since_better >= self.recipe.early_stop
        return len(self.epochs) >= self.recipe.epochs or stopped

    def _order(self) -> tuple[Tensor, ...]:
        """The items of this epoch, step by step; drawn from the seed and the number of the epoch alone, so that an epoch can be entered anywhere."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + len(self.epochs))
        order = torch.randperm(len(self.data.learned), generator=generator).to(self.device)
        steps: tuple[Tensor, ...] = order.split(self.items_per_step)
        return steps

    def _shares(self, chosen: Tensor) -> list[tuple[Tensor, Tensor | float]]:
        """The batches of a step, each with its share of all that is asked in it."""
        parts = chosen.split(self.recipe.batch_size)
        if len(parts) == 1:
            return [(chosen, 1.0)]
        asked = [num_asked(self.data.answers, self.data.learned.targets[part]) for part in parts]
        return [(part, num / sum(asked)) for part, num in zip(parts, asked, strict=True)]

    def _batch_loss(self, part: Tensor) -> Tensor:
        batch = self.data.reader.learn(self.data.learned.select(part))
        with self._autocast():
            outputs = self.forward(batch.data, batch.valid)
            answers = self.teacher.answer(batch.data) if self.teacher else None
        own_loss = loss(self.data.answers, outputs.float(), batch.targets, label_smoothing=self.recipe.label_smoothing)
        return own_loss if answers is None else taught_loss(own_loss, outputs.float(), answers.float(), self.recipe)

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        if self.recipe.precision != "bf16-autocast":
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=torch.bfloat16)

    def _finish_epoch(self) -> None:
        number, mean_loss = len(self.epochs) + 1, float(self.loss_sum) / len(self.data.learned)
        scores = self.score(decoded_sample(self.data.held_out, self.data.generation))
        self._require_sound(number, mean_loss, scores)
        if not self.best_epoch or scores.value >= self.epochs[self.best_epoch - 1].validation:
            self.best_epoch, self.best_weights = number, copy.deepcopy(self.model.state_dict())
        self.epochs.append(Epoch(number=number, loss=mean_loss, validation=scores.value, steps_s=self.steps_s))
        self.loss_sum, self.steps_s = torch.zeros_like(self.loss_sum), 0.0
        if self.plateau:
            self.plateau.step(scores.value)

    def _require_sound(self, number: int, mean_loss: float, scores: Scores) -> None:
        if not math.isfinite(mean_loss) or not scores.finite:
            problem = f"the loss is {mean_loss}" if not math.isfinite(mean_loss) else "the answers are no numbers"
        elif mean_loss > EXPLODED * float(self.first_loss):
            problem = f"the loss is {mean_loss:.4g}, where it was {float(self.first_loss):.4g} before anything was learned"
        else:
            return
        advice = "a lower learning rate or a longer warm-up may hold it"
        raise DivergedError(f"{self.told_as}training diverged in epoch {number}: {problem}; {advice}", self.epochs)

    def _save(self, checkpoint: Checkpoint, running_s: float) -> float:
        """Save where it is due; the seconds that took, which belong to no epoch. In the state, the epoch's time so far counts."""
        before = time.perf_counter()

        def state() -> dict[str, Any]:
            return {**self.state(), "steps_s": self.steps_s + running_s, "elapsed_s": self.elapsed_s + running_s}

        return time.perf_counter() - before if checkpoint.save_if_due(state) else 0.0

    def _tell_progress(self, running_s: float) -> None:
        """Once a second: reading the loss waits for the device."""
        now = time.monotonic()
        if now - self._told_at < TELL_EVERY_S:
            return
        self._told_at = now
        done = self.step % self.steps_per_epoch or self.steps_per_epoch
        mean_loss = float(self.loss_sum) / (done * self.items_per_step)
        best = f", validation {self.epochs[-1].validation:.3f}" if self.epochs else ""
        left_s = (self.elapsed_s + running_s) / self.step * (self.recipe.epochs * self.steps_per_epoch - self.step)
        tell(f"{self.told_as}epoch {len(self.epochs) + 1} of {self.recipe.epochs}, loss {mean_loss:.3f}{best}, {left_s:.0f} s left")

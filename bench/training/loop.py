"""The training loop, equal for every family and task.

All share the order of items, the optimizer, the schedule and the choice of weights.
"""

from __future__ import annotations

import copy
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bench.measure.step import autocast_of, run_backward
from bench.progress import end_turn_if_over, tell
from bench.spec import DIVERGED, GRAPH, NO_TEACHER, Recipe
from bench.tasks._info import TOKEN_VALUE
from bench.training.checkpoint import Checkpoint, random_state, restore_random_state
from bench.training.data import TrainingData
from bench.training.decoding import decoded_sample, score
from bench.training.objective import Scores, loss, num_asked, num_right
from bench.training.optimizer import build_optimizer, build_plateau, learning_rate_at, set_learning_rate
from bench.training.reading import Batch
from bench.training.recorded_step import Portion, RecordedStep
from bench.training.teacher import TrainedTeacher, distillation_loss
from models.layers.dropout import set_dropout, set_stochastic_depth

EXPLODED = 10.0
"""Divergence limit: an epoch's mean loss over the first step's."""
LEARNED_LOSS = 1.0
"""The least loss by which a training that begins with learned weights is judged: its own first one may be next to nothing."""
MESSAGE_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One finished epoch.

    `number`: counted from 1.
    `loss`: mean over the training items.
    `validation`: validation score.
    `steps_s`: seconds of training steps, without validation.
    `train_accuracy`: share of right answers in the epoch's batches, each as the model was when it learned the batch, with dropout and augmentation;
        None for values. An image mixed of two counts by the larger.
    `validation_loss`: on the validation items, without label smoothing; None if their answers are generated.
    """

    number: int
    loss: float
    validation: float
    steps_s: float
    train_accuracy: float | None = None
    validation_loss: float | None = None


class DivergedError(RuntimeError):
    """The loss exploded, or the loss or the answers became non-finite.

    The message names the epoch. The job's status is `diverged`; its samples hold the earlier epochs.
    """

    outcome_status = DIVERGED

    def __init__(self, message: str, epochs: Sequence[Epoch]) -> None:
        super().__init__(message)
        self.outcome_samples = {"loss": [epoch.loss for epoch in epochs], "validation": [epoch.validation for epoch in epochs]}


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """Result of a training run, with scores of the kept weights.

    The weights come from the epoch with the best validation score, the last of equal ones.

    `data_id`: digest of the task's data.
    `num_learned`: number of training items in an epoch.
    `num_steps`: optimizer steps.
    `train`, `validation`: scores on training items, as many as an epoch has, and on validation items; of each at most
        `bench.training.decoding.MAX_SAMPLED` if answers are generated.
    `test`: None if test items were not scored.
    `train_s`: seconds of all epochs, validation included.
    `images_per_s`: items per second of training steps, in the median epoch.
    `teacher`: the teacher trained beforehand, not included in `train_s`.
    `hosts`: the machines that trained, in order; empty without a checkpoint.
    """

    epochs: tuple[Epoch, ...]
    best_epoch: int
    data_id: str
    num_learned: int
    num_steps: int
    train: Scores
    validation: Scores
    test: Scores | None
    train_s: float
    images_per_s: float
    teacher: TrainedTeacher | None = None
    hosts: tuple[str, ...] = ()


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
    """Train `model` in place, keep its best weights, and score it.

    `seed`: determines the order of items, dropout and augmentation. On a CPU with a fixed number of threads, the same seed and initial weights give
    the same bits, even if the run is interrupted and resumes from its `checkpoint`. Engine graph rounds the learning rate to float32, so its losses
    are close to those of eager.
    `scores_test`: whether to score the test items, once, with the best weights.
    `teacher`: required if the recipe has a teacher (`bench.training.distillation` trains it).

    Raises DivergedError naming the epoch, ValueError if teacher and recipe do not match.
    """
    if (recipe.teacher != NO_TEACHER) != (teacher is not None):
        raise ValueError(f"teacher must be given if and only if the recipe has one; recipe.teacher is {recipe.teacher!r}")
    torch.manual_seed(seed)
    model.to(device)
    data = data.to(device)
    training = Training(model, data, recipe, seed=seed, device=device, teacher=teacher)
    if checkpoint and (state := checkpoint.read()):
        training.restore(state)
    training.run(checkpoint)
    seen = data.learned
    if training.epoch_items < len(seen):
        chosen = torch.randperm(len(seen), generator=torch.Generator().manual_seed(seed))  # items may be stored by class
        seen = seen.select(chosen[: training.epoch_items].to(device))
    return TrainResult(
        epochs=tuple(training.epochs),
        best_epoch=training.best_epoch,
        data_id=data.data_id,
        num_learned=training.epoch_items,
        num_steps=training.step,
        train=training.score(decoded_sample(seen, data.generation)),
        validation=training.score(decoded_sample(data.held_out, data.generation)),
        test=training.score(data.test) if scores_test else None,
        train_s=training.elapsed_s,
        images_per_s=training.epoch_items / statistics.median(epoch.steps_s for epoch in training.epochs),
        teacher=teacher,
        hosts=tuple(checkpoint.hosts) if checkpoint else (),
    )


def _split(chosen: Tensor, size: int) -> tuple[Tensor, ...]:
    """Split indices into parts of `size`; a last one of a single item, which batch normalisation refuses, joins the part before."""
    parts: tuple[Tensor, ...] = chosen.split(size)
    return (*parts[:-2], torch.cat(parts[-2:])) if len(parts) > 1 and len(parts[-1]) == 1 < size else parts


@torch.no_grad()
def _average(averages: list[Tensor], current: list[Tensor], _: Tensor | int, *, decay: float) -> None:
    """Move averages towards the current tensors, all of one dtype; take whole numbers, such as indices, as they are."""
    if averages[0].is_floating_point() or averages[0].is_complex():
        torch._foreach_mul_(averages, decay)
        torch._foreach_add_(averages, current, alpha=1 - decay)
    else:
        torch._foreach_copy_(averages, current)


class Training:
    """One training run in progress.

    `state` holds everything needed to continue, except the teacher, which is already trained.

    `step`: number of optimizer steps so far.
    `epoch_items`: number of training items in an epoch.
    `recorded`: the step as a CUDA graph; None unless that is the engine.
    `averaged`: the moving average of the weights; None unless the recipe has one.
    `message_prefix`: first words of each progress message.
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
        message_prefix: str = "",
    ) -> None:
        self.model, self.data, self.recipe, self.seed, self.device = model, data, recipe, seed, device
        self.teacher, self.message_prefix = teacher, message_prefix
        set_dropout(model, recipe.dropout, recipe.dropout_at)
        set_stochastic_depth(model, recipe.stochastic_depth)
        self.forward: Callable[..., Tensor] = torch.compile(model) if recipe.compile else model
        self.optimizer = build_optimizer(model, recipe)
        average = functools.partial(_average, decay=recipe.ema)
        self.averaged = AveragedModel(model, multi_avg_fn=average, use_buffers=True) if recipe.ema else None
        self.plateau = build_plateau(self.optimizer, recipe)
        self.items_per_step = recipe.batch_size * recipe.accumulate
        self.epoch_items = min(recipe.epoch_items or len(data.learned), len(data.learned))
        steps = _split(torch.arange(self.epoch_items), self.items_per_step)
        self.steps_per_epoch, self.full_step = len(steps), len(steps[0])
        self.step, self.epochs = 0, list[Epoch]()
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)  # of losses and of right answers, over the items of the epoch
        self.first_loss = torch.zeros((), device=device)
        self.recorded = self._unrecorded()
        self.best_epoch, self.best_weights = 0, dict[str, Tensor]()
        self.elapsed_s, self.steps_s = 0.0, 0.0
        self._last_message_at = time.monotonic()

    @property
    def kept(self) -> nn.Module:
        """The model whose weights are scored and kept: the average, if there is one."""
        return self.averaged.module if self.averaged else self.model

    def run(self, checkpoint: Checkpoint | None) -> None:
        """Run the remaining epochs, then load the best weights.

        Time spent writing checkpoints does not count.
        """
        while not self._is_finished():
            self.run_epoch(checkpoint)
            if checkpoint:
                checkpoint.save_if_due(self.state)
        self.model.load_state_dict(self.best_weights)
        self.averaged = None

    def run_epoch(self, checkpoint: Checkpoint | None) -> None:
        """Run the rest of the current epoch, and validate.

        Time spent waiting for a turn does not count.
        """
        end_turn_if_over()
        started = time.perf_counter()
        self.model.train()
        for chosen in self._order()[self.step % self.steps_per_epoch :]:
            self.learn(chosen)
            started += end_turn_if_over()
            self._tell_progress(time.perf_counter() - started)
            if checkpoint and self.step % self.steps_per_epoch:
                started += self._save(checkpoint, time.perf_counter() - started)
        self._wait()
        self.steps_s += time.perf_counter() - started
        self._finish_epoch()
        self.elapsed_s += time.perf_counter() - started

    def learn(self, chosen: Tensor) -> None:
        """Make one optimizer step on the items at `chosen`.

        A step may consist of several batches. The gradients of the batches add up to the gradient of the mean loss over all items.
        """
        learning_rate = learning_rate_at(self.step, self.recipe, self.recipe.epochs * self.steps_per_epoch)
        if learning_rate is not None:
            set_learning_rate(self.optimizer, learning_rate)
        mean_loss = self._take_step(chosen)
        if self.step == 0:
            self.first_loss = mean_loss.clone()  # a recorded step writes each loss to the same place
        if self.averaged:
            self.averaged.update_parameters(self.model)
        self.step += 1

    def score(self, examples: Any) -> Scores:
        model = self.kept
        forward = self.forward if model is self.model else model
        with autocast_of(self.recipe.precision, self.device):
            return score(model, examples, self.data.reader, self.data.answers, forward, self.data.generation)

    def state(self) -> dict[str, Any]:
        """Return everything needed to continue exactly, as tensors and plain data."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "plateau": self.plateau.state_dict() if self.plateau else {},
            "averaged": self.averaged.state_dict() if self.averaged else {},
            "random": random_state(),
            "best_weights": self.best_weights,
            "best_epoch": self.best_epoch,
            "step": self.step,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "sums": self.sums,
            "first_loss": self.first_loss,
            "elapsed_s": self.elapsed_s,
            "steps_s": self.steps_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.plateau:
            self.plateau.load_state_dict(state["plateau"])
        if self.averaged:
            self.averaged.load_state_dict(state["averaged"])
        restore_random_state(state["random"])
        self.best_weights = {name: value.to(self.device) for name, value in state["best_weights"].items()}
        self.best_epoch, self.step = state["best_epoch"], state["step"]
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self.sums, self.first_loss = state["sums"].to(self.device), state["first_loss"].to(self.device)
        self.elapsed_s, self.steps_s = state["elapsed_s"], state["steps_s"]
        self.recorded = self._unrecorded()  # what was loaded lies elsewhere

    def _unrecorded(self) -> RecordedStep | None:
        return RecordedStep(self.model, self.optimizer, self.sums) if self.recipe.engine == GRAPH else None

    def _wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def _is_finished(self) -> bool:
        scores = [epoch.validation for epoch in self.epochs]
        # an equal score does not count as better here, although the later of two equal epochs gives the weights
        since_better = len(scores) - 1 - scores.index(max(scores)) if scores else 0
        stopped = bool(self.recipe.early_stop) and since_better >= self.recipe.early_stop
        return len(self.epochs) >= self.recipe.epochs or stopped or self._is_solved()

    def _is_solved(self) -> bool:
        target = self.data.solved_at if self.recipe.until_solved else None
        return target is not None and bool(self.epochs) and self.epochs[-1].validation >= target

    def _order(self) -> tuple[Tensor, ...]:
        """Return the items of this epoch, step by step.

        The order depends on seed and epoch alone, so that training can resume at any step.
        """
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + len(self.epochs))
        order = torch.randperm(len(self.data.learned), generator=generator)[: self.epoch_items].to(self.device)
        return _split(order, self.items_per_step)

    def _shares(self, chosen: Tensor) -> list[tuple[Tensor, Tensor | float]]:
        """Split a step into batches with their shares of the answers."""
        parts = _split(chosen, self.recipe.batch_size)
        if len(parts) == 1:
            return [(chosen, 1.0)]
        asked = [num_asked(self.data.answers, self.data.learned.targets[part]) for part in parts]
        return [(part, num / sum(asked)) for part, num in zip(parts, asked, strict=True)]

    def _take_step(self, chosen: Tensor) -> Tensor:
        """Make an optimizer step; return its mean loss, `()`.

        Whether it is replayed depends on its size alone, so that a resumed training computes each step as it would have been.
        """
        step, portions = functools.partial(self._optimize, num_items=len(chosen)), self._read(chosen)
        if self.recorded is None:
            return step(portions)
        return (self.recorded.take if len(chosen) == self.full_step else self.recorded.take_unrecorded)(step, list(portions))

    def _read(self, chosen: Tensor) -> Iterator[Portion]:
        for part, share in self._shares(chosen):
            yield Portion(batch=self.data.reader.learn(self.data.learned.select(part)), share=share)

    def _optimize(self, portions: Iterable[Portion], num_items: int) -> Tensor:
        """Make an optimizer step on batches that were read; return its mean loss, `()`.

        Nothing in it may wait for the device, because it may be recorded. So losses stay on the device until the epoch ends.
        """
        self.optimizer.zero_grad(set_to_none=True)
        mean_loss = torch.zeros((), device=self.device)
        for portion in portions:
            mean_loss += self._add_gradients(portion)
        nn.utils.clip_grad_norm_(list(self.model.parameters()), self.recipe.clip_norm)
        self.optimizer.step()
        self.sums[0].add_(mean_loss.double() * num_items)
        return mean_loss

    def _add_gradients(self, portion: Portion) -> Tensor:
        """Add a batch's gradients to the weights'; return its share of the mean loss, `()`.

        When it returns, nothing refers to the graph of its operators any more, which a recording must not meet (`graph.beside`).
        """
        batch_loss = self._batch_loss(portion.batch) * portion.share
        run_backward(batch_loss, self.model.parameters())
        return batch_loss.detach()

    def _batch_loss(self, batch: Batch) -> Tensor:
        with autocast_of(self.recipe.precision, self.device):
            outputs = self.forward(batch.data, batch.valid)
            answers = self.teacher.answer(batch.data) if self.teacher else None
        self.sums[1].add_(num_right(self.data.answers, outputs, batch.targets))
        own_loss = loss(self.data.answers, outputs.float(), batch.targets, label_smoothing=self.recipe.label_smoothing)
        return own_loss if answers is None else distillation_loss(own_loss, outputs.float(), answers.float(), self.recipe)

    def _finish_epoch(self) -> None:
        number, (mean_loss, accuracy) = len(self.epochs) + 1, (self.sums / self.epoch_items).tolist()
        scores = self.score(decoded_sample(self.data.held_out, self.data.generation))
        self._raise_if_diverged(number, mean_loss, scores)
        if not self.best_epoch or scores.value >= self.epochs[self.best_epoch - 1].validation:
            self.best_epoch, self.best_weights = number, copy.deepcopy(self.kept.state_dict())
        epoch = Epoch(
            number=number,
            loss=mean_loss,
            validation=scores.value,
            steps_s=self.steps_s,
            train_accuracy=None if self.data.answers == TOKEN_VALUE else accuracy,
            validation_loss=None if self.data.generation else scores.loss,
        )
        self.epochs.append(epoch)
        self.sums.zero_()  # in place, for a recorded step adds to it where it lies
        self.steps_s = 0.0
        if self.plateau:
            self.plateau.step(scores.value)

    def _raise_if_diverged(self, number: int, mean_loss: float, scores: Scores) -> None:
        if not math.isfinite(mean_loss) or not scores.finite:
            problem = f"the loss is {mean_loss}" if not math.isfinite(mean_loss) else "the answers are not finite"
        elif mean_loss > EXPLODED * max(float(self.first_loss), LEARNED_LOSS if self.recipe.init else 0.0):
            problem = f"the loss is {mean_loss:.4g}, after {float(self.first_loss):.4g} in the first step"
        else:
            return
        advice = "try a lower learning rate or a longer warm-up"
        raise DivergedError(f"{self.message_prefix}training diverged in epoch {number}: {problem}; {advice}", self.epochs)

    def _save(self, checkpoint: Checkpoint, running_s: float) -> float:
        """Save if due; return the seconds taken, which belong to no epoch.

        The saved state includes the current epoch's time so far.
        """
        before = time.perf_counter()

        def state() -> dict[str, Any]:
            return {**self.state(), "steps_s": self.steps_s + running_s, "elapsed_s": self.elapsed_s + running_s}

        return time.perf_counter() - before if checkpoint.save_if_due(state) else 0.0

    def _tell_progress(self, running_s: float) -> None:
        """Report progress at most once a second.

        Reading the loss more often would wait for the device.
        """
        now = time.monotonic()
        if now - self._last_message_at < MESSAGE_EVERY_S:
            return
        self._last_message_at = now
        done = self.step % self.steps_per_epoch or self.steps_per_epoch
        mean_loss = float(self.sums[0]) / (done * self.items_per_step)
        best = f", validation {self.epochs[-1].validation:.3f}" if self.epochs else ""
        left_s = (self.elapsed_s + running_s) / self.step * (self.recipe.epochs * self.steps_per_epoch - self.step)
        left = f", about {left_s:.0f} s left" if left_s >= 1 else ""
        tell(f"{self.message_prefix}epoch {len(self.epochs) + 1} of {self.recipe.epochs}, loss {mean_loss:.3f}{best}{left}")

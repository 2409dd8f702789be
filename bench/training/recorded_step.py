"""Record a training step as a CUDA graph, and replay it.

A step of a short sequence is hundreds of small kernels, and starting them takes longer than running them. A replay starts them all at once.

A replay repeats the recorded kernels on the recorded places in memory; no Python runs. So whatever differs between steps lies in tensors that stay
where they are: the batches and the learning rate are copied in, and weights, optimizer state and sums change in place.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bench.errors import is_out_of_memory, one_line
from bench.measure.engines import graph
from bench.measure.step import UNRECORDED_STEP
from bench.training.checkpoint import random_state, restore_random_state
from bench.training.reading import Batch

Replay = Callable[[], Tensor]


@dataclass(frozen=True, kw_only=True)
class Portion:
    """One of the batches of a step.

    `share`: its share of the step's answers, a number or a tensor `()`.
    """

    batch: Batch
    share: Tensor | float


TakeStep = Callable[[Sequence[Portion]], Tensor]
"""Makes one optimizer step on some portions and returns its mean loss, `()`."""


class RecordedStep:
    """A training step that is recorded when it is first taken.

    Recording leaves weights, optimizer state, sums and random state as they are, to the bit.

    Once the optimizer has loaded a state, its tensors lie elsewhere: that needs a new instance. The step itself is given each time and not
    kept, because a training and its recording that hold each other would hold the device's memory, too.

    `sums`: what the step adds its loss and its right answers to, in place.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, sums: Tensor) -> None:
        self.model, self.optimizer, self.sums = model, optimizer, sums
        self.learning_rate = torch.zeros((), device=sums.device)  # the fused kernel reads float32
        self._portions: Sequence[Portion] = ()
        self._replay: Replay | None = None

    def take(self, step: TakeStep, portions: Sequence[Portion]) -> Tensor:
        """Take a step on portions of the recorded shapes.

        The first ones stay the place in memory that all steps read; they must share it with nothing else, as copies that were read do.
        Returns its mean loss, `()`, in memory that the next step overwrites. Raises RuntimeError if the step cannot be recorded.
        """
        self._copy_learning_rate()
        if self._replay is None:
            self._portions, self._replay = portions, self._record(step, portions)
        else:
            for place, tensor in zip(_tensors(self._portions), _tensors(portions), strict=True):
                place.copy_(tensor)
        return self._replay()

    def take_unrecorded(self, step: TakeStep, portions: Sequence[Portion]) -> Tensor:
        """Take a step of another size, kernel by kernel."""
        self._copy_learning_rate()
        with self._on_device(capturable=False):
            mean_loss = step(portions)
        self.optimizer.zero_grad(set_to_none=True)  # a replay has gradients of its own, and would leave these in memory
        return mean_loss

    def _record(self, step: TakeStep, portions: Sequence[Portion]) -> Replay:
        # detached: a copy that is part of a graph would keep the accumulators of its stream alive (`graph.beside`)
        before, random = {id(tensor): tensor.detach().clone() for tensor in self._changed()}, random_state()
        weights = self._weights()
        with self._on_device(capturable=True), graph.beside(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=UNRECORDED_STEP)  # the steps before the recording
            step(portions)  # makes the optimizer's state; what fails here would fail by every engine
            replay = _record_or_explain(lambda: step(portions))
        if any(now is not then for now, then in zip(self._weights(), weights, strict=True)):
            raise _refusal("the model replaces a parameter or buffer by another tensor, which a replay would not do")
        self._put_back(before)
        restore_random_state(random)
        return replay

    def _weights(self) -> list[Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]

    def _changed(self) -> list[Tensor]:
        states = (value for state in self.optimizer.state.values() for value in state.values())
        return [*self._weights(), self.sums, *states]

    @torch.no_grad()
    def _put_back(self, before: Mapping[int, Tensor]) -> None:
        for tensor in self._changed():
            if id(tensor) in before:
                tensor.copy_(before[id(tensor)])
            else:
                tensor.zero_()  # made by the first step; AdamW's moments and its count of steps start at zero

    def _copy_learning_rate(self) -> None:
        """Copy the rate that a schedule left as a number; equal in all groups."""
        self.learning_rate.fill_(self.optimizer.param_groups[0]["lr"])

    @contextlib.contextmanager
    def _on_device(self, *, capturable: bool) -> Iterator[None]:
        """Let the optimizer read the rate from the device.

        Outside, rates stay numbers, so that schedules and checkpoints are those of every engine.
        """
        groups = self.optimizer.param_groups
        kept = [{name: group[name] for name in ("lr", "capturable")} for group in groups]
        for group in groups:
            group.update(lr=self.learning_rate, capturable=capturable)
        try:
            yield
        finally:
            for group, numbers in zip(groups, kept, strict=True):
                group.update(numbers)


def _record_or_explain(call: Replay) -> Replay:
    """Record a call; raise RuntimeError with the first reason and what to type instead.

    Memory that runs out is told as it is.
    """
    failures: list[RuntimeError] = []

    def noting() -> Tensor:
        try:
            return call()
        except RuntimeError as error:
            failures.append(error)
            raise

    try:
        return graph.record(noting)
    except RuntimeError as error:
        first = [*failures, error][0]  # a recording that failed fails again when it ends
    if is_out_of_memory(first):
        raise first
    raise _refusal(one_line(first)) from first


def _refusal(reason: str) -> RuntimeError:
    return RuntimeError(f"engine=graph cannot record this training step: {reason}; try --recipe engine=eager")


def _tensors(portions: Sequence[Portion]) -> list[Tensor]:
    found = [value for each in portions for value in (each.batch.data, each.batch.valid, each.batch.targets, each.share)]
    return [value for value in found if isinstance(value, Tensor)]

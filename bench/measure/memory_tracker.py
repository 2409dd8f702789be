"""Track live tensor bytes by purpose, of one step.

The tracker watches every operation that reaches torch's dispatcher, in forward, backward and optimizer, on real or fake tensors
of any device. A storage counts once, however many views share it, from the operation that returns it until it is freed; tracking
keeps nothing alive. Two things are invisible: memory that a kernel allocates and frees within one operation (workspaces, repacked
operands), and an allocator's rounding. The resident set size or the allocator's own peak includes both.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.measure.model import build_model, is_counted
from bench.measure.step import Step, build_step
from bench.spec import Cell

WEIGHT = "weight"
GRADIENT = "gradient"
OPTIMIZER = "optimizer"
ACTIVATION = "activation"
CATEGORIES = (WEIGHT, GRADIENT, OPTIMIZER, ACTIVATION)


@dataclass(frozen=True, kw_only=True)
class LiveBytes:
    """Bytes of live storages, by category and in total.

    In a peak each figure is its own largest value, so the four categories need not add up to `total`.
    """

    weight: int = 0
    gradient: int = 0
    optimizer: int = 0
    activation: int = 0
    total: int = 0


@dataclass(frozen=True, kw_only=True)
class StepCounts:
    """Peak memory of a steady step.

    `building`: peak of live bytes before the first step, when half-precision weights are still in fp32; 0 unless predicted.
    """

    live: LiveBytes
    building: int = 0

    @property
    def needed_bytes(self) -> int:
        return max(self.live.total, self.building)


@dataclass(kw_only=True)
class _LiveStorage:
    category: str
    num_bytes: int
    finalizer: weakref.finalize[Any, Any]


class Ledger:
    """Keeps the live storages, their categories and the peaks."""

    def __init__(self) -> None:
        self._live: dict[int, _LiveStorage] = {}
        self._now = dict.fromkeys((*CATEGORIES, "total"), 0)
        self._peak = dict(self._now)

    @property
    def now(self) -> LiveBytes:
        return LiveBytes(**self._now)

    @property
    def peak(self) -> LiveBytes:
        return LiveBytes(**self._peak)

    def label(self, tensors: Iterable[Tensor], category: str) -> None:
        """Assign the storages of these tensors to `category`.

        Storages that were counted under another category move to this one.
        """
        for tensor in tensors:
            entry = self._see(tensor, category)
            if entry.category != category:
                self._add(entry.category, -entry.num_bytes)
                entry.category = category
                self._add(category, entry.num_bytes)
        self._mark_peak()

    def see(self, tensors: Iterable[Tensor]) -> None:
        """Record the tensors that an operation returned.

        New storages count as activations. Known storages may have been resized.
        """
        for tensor in tensors:
            self._see(tensor, ACTIVATION)
        self._mark_peak()

    def close(self) -> None:
        """Stop counting, and forget the storages that are still live."""
        for entry in self._live.values():
            entry.finalizer.detach()
        self._live.clear()

    def _see(self, tensor: Tensor, category: str) -> _LiveStorage:
        storage = tensor.untyped_storage()
        key, num_bytes = storage._cdata, storage.nbytes()
        entry = self._live.get(key)
        if entry is None:
            finalizer = weakref.finalize(storage, self._drop, key)
            finalizer.atexit = False
            entry = self._live[key] = _LiveStorage(category=category, num_bytes=0, finalizer=finalizer)
        self._add(entry.category, num_bytes - entry.num_bytes)
        entry.num_bytes = num_bytes
        return entry

    def _drop(self, key: int) -> None:
        entry = self._live.pop(key)
        self._add(entry.category, -entry.num_bytes)

    def _add(self, category: str, num_bytes: int) -> None:
        self._now[category] += num_bytes
        self._now["total"] += num_bytes

    def _mark_peak(self) -> None:
        for name, num_bytes in self._now.items():
            self._peak[name] = max(self._peak[name], num_bytes)


class Watch(TorchDispatchMode):
    """Reports each operation's results to the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.ledger.see(_tensors(out))
        return out


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


@contextmanager
def watch(step: Step) -> Iterator[Watch]:
    """Track a step's memory within the block.

    The ledger starts with the storages that are already live: weights, gradients, optimizer state and the batch. A gradient counts as
    an activation until it is accumulated into its parameter.
    """
    ledger = _ledger_of(step)

    def accumulated(parameter: Tensor) -> None:
        if parameter.grad is not None:
            ledger.label((parameter.grad,), GRADIENT)

    hooks = [p.register_post_accumulate_grad_hook(accumulated) for p in step.model.parameters()]
    try:
        with Watch(ledger) as watching:
            yield watching
    finally:
        for hook in hooks:
            hook.remove()
        ledger.close()


def counts_of_step(step: Step) -> StepCounts:
    """Return the peaks of one steady step.

    A first step is not counted: it creates the optimizer's state.
    """
    step.call()
    with watch(step) as watching:
        step.call()
        return StepCounts(live=watching.ledger.peak)


def predicted_counts(cell: Cell) -> StepCounts:
    """Return the same counts from fake tensors, which compute and allocate nothing.

    Exception: the weights of an outside model are allocated once, and then copied as fakes.
    """
    fakes = FakeTensorMode()
    built = _fake_copy(cell, fakes) if is_counted(cell.model) else None
    with fakes:
        ledger = Ledger()
        ledger.label((*built.parameters(), *built.buffers()) if built else (), WEIGHT)
        with Watch(ledger):
            step = build_step(cell, built=built)
        ledger.close()
        return replace(counts_of_step(step), building=ledger.peak.total)


def _fake_copy(cell: Cell, fakes: FakeTensorMode) -> nn.Module:
    """Build a model with real tensors and copy it as fakes.

    Outside models read values in their constructors, which fake tensors do not have.
    """
    with torch.device(cell.workload.device):
        model = build_model(cell.model)
    with FakeCopyMode(fakes):
        return copy.deepcopy(model)


def resident_bytes(step: Step) -> LiveBytes:
    """Return the bytes that live between two steps.

    They are the weights, the optimizer state, the gradients of the last step and the batch.
    """
    ledger = _ledger_of(step)
    ledger.close()
    return ledger.now


def _ledger_of(step: Step) -> Ledger:
    ledger = Ledger()
    parameters = list(step.model.parameters())
    ledger.label((step.data, step.labels), ACTIVATION)
    ledger.label((*parameters, *step.model.buffers()), WEIGHT)
    ledger.label((p.grad for p in parameters if p.grad is not None), GRADIENT)
    ledger.label(optimizer_tensors(step.optimizer), OPTIMIZER)
    return ledger


def optimizer_tensors(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    """Return all tensors of an optimizer's state; none before its first step."""
    if optimizer is None:
        return []
    return _tensors([dict(state) for state in optimizer.state.values()])


def give_back_gpu_memory() -> None:
    """Free cached GPU memory that nothing refers to any more.

    It consists of cuBLAS's workspaces, one for each stream in use, and of the free blocks of torch's allocator.
    """
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()

"""Bytes of live tensors by what they are for: weights, gradients, optimizer state, activations; on any device, real or fake.

Every operation that reaches the dispatcher is watched, forward, backward and optimizer alike. A storage counts once, however many views
share it, from the operation that returns it until it is freed; nothing is kept alive by watching. What a kernel allocates and frees inside
one operation (workspaces, repacked operands) and what an allocator adds by rounding is not seen: the resident set size or the allocator's
own peak tell that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.step import Step

WEIGHT = "weight"
GRADIENT = "gradient"
OPTIMIZER = "optimizer"
ACTIVATION = "activation"
CATEGORIES = (WEIGHT, GRADIENT, OPTIMIZER, ACTIVATION)


@dataclass(frozen=True, kw_only=True)
class LiveBytes:
    """Bytes of live storages: per category and in all. In a peak, each figure is its own
    largest, so the four need not add up to `total`."""

    weight: int = 0
    gradient: int = 0
    optimizer: int = 0
    activation: int = 0
    total: int = 0


@dataclass(kw_only=True)
class _Held:
    category: str
    num_bytes: int
    death: weakref.finalize[Any, Any]


class Ledger:
    """Which storages live now, what for, and the most there has been at once."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._now = dict.fromkeys((*CATEGORIES, "total"), 0)
        self._peak = dict(self._now)

    @property
    def now(self) -> LiveBytes:
        return LiveBytes(**self._now)

    @property
    def peak(self) -> LiveBytes:
        return LiveBytes(**self._peak)

    def label(self, tensors: Iterable[Tensor], category: str) -> None:
        """Count the storages of these tensors under `category`, moving those that were counted under another one."""
        for tensor in tensors:
            held = self._see(tensor, category)
            if held.category != category:
                self._add(held.category, -held.num_bytes)
                held.category = category
                self._add(category, held.num_bytes)
        self._mark_peak()

    def see(self, tensors: Iterable[Tensor]) -> None:
        """What one operation returned: new storages are activations, known ones may have been resized."""
        for tensor in tensors:
            self._see(tensor, ACTIVATION)
        self._mark_peak()

    def close(self) -> None:
        """Stop counting: forget the storages that still live."""
        for held in self._held.values():
            held.death.detach()
        self._held.clear()

    def _see(self, tensor: Tensor, category: str) -> _Held:
        storage = tensor.untyped_storage()
        key, num_bytes = storage._cdata, storage.nbytes()
        held = self._held.get(key)
        if held is None:
            death = weakref.finalize(storage, self._drop, key)
            death.atexit = False
            held = self._held[key] = _Held(category=category, num_bytes=0, death=death)
        self._add(held.category, num_bytes - held.num_bytes)
        held.num_bytes = num_bytes
        return held

    def _drop(self, key: int) -> None:
        held = self._held.pop(key)
        self._add(held.category, -held.num_bytes)

    def _add(self, category: str, num_bytes: int) -> None:
        self._now[category] += num_bytes
        self._now["total"] += num_bytes

    def _mark_peak(self) -> None:
        for name, num_bytes in self._now.items():
            self._peak[name] = max(self._peak[name], num_bytes)


class _Watch(TorchDispatchMode):
    """Shows the ledger what each operation returns."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.ledger.see(leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        return out


@contextmanager
def watch(step: Step) -> Iterator[Ledger]:
    """Count what lives already (weights, gradients, optimizer state, the batch) and everything that operations return inside the block.

    A gradient counts as an activation until it is accumulated into its parameter.
    """
    ledger = _opened(step)

    def accumulated(parameter: Tensor) -> None:
        if parameter.grad is not None:
            ledger.label((parameter.grad,), GRADIENT)

    hooks = [p.register_post_accumulate_grad_hook(accumulated) for p in step.model.parameters()]
    try:
        with _Watch(ledger):
            yield ledger
    finally:
        for hook in hooks:
            hook.remove()
        ledger.close()


def live_bytes_of_step(step: Step) -> LiveBytes:
    """The peaks of one steady step: a first, uncounted one gives the optimizer its state."""
    step.call()
    with watch(step) as ledger:
        step.call()
        return ledger.peak


def resident_bytes(step: Step) -> LiveBytes:
    """What lives between two steps: weights, optimizer state, the gradients of the step before, and the batch."""
    ledger = _opened(step)
    ledger.close()
    return ledger.now


def _opened(step: Step) -> Ledger:
    ledger = Ledger()
    parameters = list(step.model.parameters())
    ledger.label((step.data, step.labels), ACTIVATION)
    ledger.label((*parameters, *step.model.buffers()), WEIGHT)
    ledger.label((p.grad for p in parameters if p.grad is not None), GRADIENT)
    ledger.label(optimizer_tensors(step.optimizer), OPTIMIZER)
    return ledger


def optimizer_tensors(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    """All tensors of an optimizer's state; none before its first step."""
    if optimizer is None:
        return []
    return [leaf for leaf in tree_leaves([dict(state) for state in optimizer.state.values()]) if isinstance(leaf, Tensor)]

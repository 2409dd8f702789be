"""Bytes of live tensors by what they are for (weights, gradients, optimizer state, activations), and what a step moves and launches; on any
device, real or fake.

Every operation that reaches the dispatcher is watched, forward, backward and optimizer alike. A storage counts once, however many views
share it, from the operation that returns it until it is freed; nothing is kept alive by watching. What a kernel allocates and frees inside
one operation (workspaces, repacked operands) and what an allocator adds by rounding is not seen: the resident set size or the allocator's
own peak tell that.

The traffic of a step is what its operators read and write if nothing stays in a cache between or within them: an upper bound on what the
memory moves.
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

ALLOCATES = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
"""Operators that return memory without writing it."""
OVERWRITES = ("copy_", "fill_", "zero_")
"""Operators that change their first argument without reading it."""


@dataclass(frozen=True, kw_only=True)
class LiveBytes:
    """Bytes of live storages: per category and in all. In a peak, each figure is its own
    largest, so the four need not add up to `total`."""

    weight: int = 0
    gradient: int = 0
    optimizer: int = 0
    activation: int = 0
    total: int = 0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one step asks of the memory and of the launcher.

    `moved_bytes`: over all operators, the bytes of each distinct storage that it reads, and of each that it writes. `num_operators`: operators
    that compute; views, allocations and questions about a tensor are none.
    """

    moved_bytes: int = 0
    num_operators: int = 0


@dataclass(frozen=True, kw_only=True)
class StepCounts:
    """Of a steady step; `building`, where it is predicted: the most bytes live at once before the first one, when weights of half precision are
    still in fp32."""

    live: LiveBytes
    traffic: Traffic
    building: int = 0

    @property
    def needed_bytes(self) -> int:
        return max(self.live.total, self.building)


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


class Watch(TorchDispatchMode):
    """Shows the ledger what each operation returns, and counts what it reads and writes."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.traffic = Traffic()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.ledger.see(_tensors(out))
        moved = _moved_bytes(func, args, kwargs or {}, out)
        if moved is not None:
            self.traffic = Traffic(moved_bytes=self.traffic.moved_bytes + moved, num_operators=self.traffic.num_operators + 1)
        return out


def _moved_bytes(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> int | None:
    """Bytes that one operator reads and writes; None where it computes nothing: it returns views or bare memory, or answers a question."""
    name = func.overloadpacket.__name__
    read = _tensors((args, kwargs))
    changed = _changed(func, args, kwargs)
    known = {tensor.untyped_storage()._cdata for tensor in read}
    written = [*changed, *(tensor for tensor in _tensors(out) if tensor.untyped_storage()._cdata not in known)]
    if not written or name in ALLOCATES or torch.Tag.inplace_view in func.tags:
        return None
    if name in OVERWRITES:
        read = _tensors((args[1:], kwargs))
    return _storage_bytes(read) + _storage_bytes(written)


def _changed(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The arguments that the operator's schema says it writes to."""
    schema = func._schema
    given = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
    return _tensors([given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write])


def _storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes that these tensors cover, each view once and no storage more than whole."""
    views: dict[int, dict[Any, int]] = {}
    whole: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        whole[storage._cdata] = storage.nbytes()
        place = (tensor.storage_offset(), tensor.shape, tensor.stride())
        views.setdefault(storage._cdata, {})[place] = tensor.numel() * tensor.element_size()
    return sum(min(whole[key], sum(found.values())) for key, found in views.items())


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


@contextmanager
def watch(step: Step) -> Iterator[Watch]:
    """Count what lives already (weights, gradients, optimizer state, the batch) and everything that operations return inside the block.

    A gradient counts as an activation until it is accumulated into its parameter.
    """
    ledger = _opened(step)

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
    """The peaks and the traffic of one steady step: a first, uncounted one gives the optimizer its state."""
    step.call()
    with watch(step) as watching:
        step.call()
        return StepCounts(live=watching.ledger.peak, traffic=watching.traffic)


def predicted_counts(cell: Cell) -> StepCounts:
    """The same on fake tensors: nothing is computed, and nothing allocated but the weights of a model that is not ours, once, to be copied."""
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
    """Of a model built for real: other people's constructors read values, which fakes do not have."""
    with torch.device(cell.workload.device):
        model = build_model(cell.model)
    with FakeCopyMode(fakes):
        return copy.deepcopy(model)


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
    return _tensors([dict(state) for state in optimizer.state.values()])


def give_back_gpu_memory() -> None:
    """What nothing refers to any more: cuBLAS's workspaces, one for each stream that it was called on, and the blocks of torch's allocator."""
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()

"""A stand-in for a CUDA graph on a CPU: it keeps a call's operators with the tensors they touched, and repeats them on those tensors.

As with a real graph, a replay runs no Python: it reads and writes the memory of the recording, whatever the objects hold by then. What would make
a device wait, or give a result of unknown size, cannot be recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NUM_WARM_UPS = 3
REFUSED = "operation not permitted when stream is capturing"


class Tape(TorchDispatchMode):
    """Keeps the operators that run while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[tuple[Any, tuple[Any, ...], Mapping[str, Any], list[tuple[int, Tensor]]]] = []

    def __torch_dispatch__(self, operator: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = kwargs or {}
        if _waits(operator, args):
            raise RuntimeError(f"CUDA error: {REFUSED}\nby {operator}")
        result = operator(*args, **given)
        known = {_memory(tensor) for tensor in _tensors((args, given))}
        new = [(place, tensor) for place, tensor in enumerate(_tensors(result)) if _memory(tensor) not in known]
        self.entries.append((operator, args, given, new))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for operator, args, kwargs, new in self.entries:
            found = list(_tensors(operator(*args, **kwargs)))
            for place, tensor in new:
                tensor.copy_(found[place])


def record(call: Callable[[], Any], num_calls: int = 1) -> Callable[[], Any]:
    """Warm up and record, as `bench.measure.engines.graph.record` does; the recorded call, too, leaves its effects here."""
    assert num_calls == 1
    for _ in range(NUM_WARM_UPS):
        call()
    tape = Tape()
    with tape:
        result = call()

    def replay() -> Any:
        tape.replay()
        return result

    return replay


def _waits(operator: Any, args: tuple[Any, ...]) -> bool:
    if operator in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default):
        return any(index.dtype == torch.bool for index in _tensors(args[1]))
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(operator.tags))


def _tensors(values: Any) -> Iterator[Tensor]:
    return (value for value in tree_leaves(values) if isinstance(value, Tensor))


def _memory(tensor: Tensor) -> int:
    found: int = tensor.untyped_storage()._cdata
    return found

"""Call a traced graph directly, without torch.compile's guards.

torch.compile checks at every call that the model is unchanged, which costs a small model noticeable time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bench.measure.onednn.site import is_close

Run = Callable[..., Any]
Forward = Callable[[Tensor], Tensor]


class Direct:
    """Runs `compiled` once per kind of data, and then its traced graph.

    A kind is a shape, a dtype, the model's mode and whether gradients are taken. The graph is called directly if it is the only
    one traced and maps one tensor to one tensor. Weights may change in place, but the model must not: this is meant for steps
    that repeat. A model stays with `compiled` if a second call answers differently (dropout), or if it keeps statistics of
    batches in training.
    """

    def __init__(self, compiled: Forward, model: nn.Module, *, keeps_statistics: bool) -> None:
        self.compiled, self.model, self.keeps_statistics = compiled, model, keeps_statistics
        self.known: dict[tuple[object, ...], Forward] = {}
        self.traced: list[tuple[Run, list[Any]]] = []

    def note(self, run: Run, inputs: Sequence[Any]) -> None:
        """Record a graph that torch.compile's backend receives, with its inputs."""
        self.traced.append((run, list(inputs)))

    def __call__(self, data: Tensor) -> Tensor:
        kind = (data.shape, data.dtype, self.model.training, torch.is_grad_enabled())
        found = self.known.get(kind)
        if found is not None:
            return found(data)
        self.traced = []
        out = self.compiled(data)
        self.known[kind] = self._direct(data, out) or self.compiled
        return out

    def _direct(self, data: Tensor, out: Tensor) -> Forward | None:
        if len(self.traced) != 1 or (self.model.training and self.keeps_statistics):
            return None
        run, inputs = self.traced[0]
        places = [number for number, value in enumerate(inputs) if value is data]
        if len(places) != 1:
            return None

        def forward(data: Tensor) -> Tensor:
            inputs[places[0]] = data
            found: Tensor = run(*inputs)[0]
            return found

        with torch.no_grad():
            again = run(*inputs)
        is_same = len(again) == 1 and isinstance(again[0], Tensor) and is_close(again[0], out)
        return forward if is_same else None

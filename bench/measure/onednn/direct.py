"""A traced graph called by itself: torch.compile checks at every call that a model is still as it was, which a small model feels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bench.measure.onednn.site import is_close

Run = Callable[..., Any]
Forward = Callable[[Tensor], Tensor]


class Direct:
    """`compiled`, but from the second call on data of a kind the graph that it traced, where that is one graph from one tensor to one tensor.

    A kind is a shape, a dtype, the model's mode and whether gradients are taken. Weights may change in place, the model itself must not: this is for
    steps that repeat. A model that answers otherwise when called again (dropout) stays with `compiled`, and so does one that keeps statistics.
    """

    def __init__(self, compiled: Forward, model: nn.Module, *, keeps_statistics: bool) -> None:
        self.compiled, self.model, self.keeps_statistics = compiled, model, keeps_statistics
        self.known: dict[tuple[object, ...], Forward] = {}
        self.traced: list[tuple[Run, list[Any]]] = []

    def note(self, run: Run, inputs: Sequence[Any]) -> None:
        """Of torch.compile's backend: a graph of the call that is being traced, and what goes into it."""
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

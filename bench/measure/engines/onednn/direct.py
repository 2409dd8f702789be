"""Call a traced graph directly, without torch.compile's checks.

torch.compile checks at every call that the model is unchanged, which costs a small model noticeable time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

Forward = Callable[[Tensor], Tensor]


class Direct:
    """Runs the model by torch.compile once per kind of data, and then its traced graph.

    A kind is a shape, the model's mode and whether gradients are taken. Weights may change in place, but the model must not: this is
    meant for steps that repeat. A model stays with torch.compile if its graph is not the only one, or has more than one result.

    `rewrite`: changes a graph before it is used.
    """

    def __init__(self, model: nn.Module, rewrite: Callable[[fx.GraphModule], None]) -> None:
        self.model, self.rewrite = model, rewrite
        self.compiled: Forward = torch.compile(model, backend=self._trace, dynamic=False)
        self.known: dict[object, Forward] = {}
        self.traced: list[tuple[fx.GraphModule, list[Any]]] = []

    def __call__(self, data: Tensor) -> Tensor:
        kind = (data.shape, self.model.training, torch.is_grad_enabled())
        if kind in self.known:
            return self.known[kind](data)
        self.traced.clear()
        out = self.compiled(data)
        self.known[kind] = self._direct(data)
        return out

    def _trace(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self.rewrite(graph)
        self.traced.append((graph, list(inputs)))
        return graph.forward

    def _direct(self, data: Tensor) -> Forward:
        graph, inputs = self.traced[0] if len(self.traced) == 1 else (None, [])
        places = [number for number, value in enumerate(inputs) if value is data]
        if graph is None or len(places) != 1 or len(graph.graph.output_node().args[0]) != 1:  # type: ignore[arg-type]
            return self.compiled

        def forward(data: Tensor) -> Tensor:
            inputs[places[0]] = data
            found: Tensor = graph.forward(*inputs)[0]
            return found

        return forward

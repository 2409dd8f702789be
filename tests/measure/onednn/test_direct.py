"""A traced graph called by itself answers for new data, new weights and other kinds of calls; what it cannot stand for stays compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from bench.measure.onednn.direct import Direct


class Broken(nn.Module):
    """Two graphs, as torch.compile cannot look into the print between."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, data: Tensor) -> Tensor:
        data = self.layer(data)
        torch._dynamo.graph_break()
        out: Tensor = self.layer(data)
        return out


def made(model: nn.Module, *, keeps_statistics: bool = False) -> tuple[Direct, list[int]]:
    """And a list that grows with every call that goes through torch.compile."""
    torch._dynamo.reset()
    calls: list[int] = []

    def backend(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        direct.note(graph.forward, inputs)
        return graph.forward

    compiled = torch.compile(model, backend=backend, dynamic=False)

    def counted(data: Tensor) -> Tensor:
        calls.append(1)
        out: Tensor = compiled(data)
        return out

    direct = Direct(counted, model, keeps_statistics=keeps_statistics)
    return direct, calls


def test_later_calls_go_straight_to_the_graph_with_new_data_and_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    direct, calls = made(model)
    for _ in range(3):
        data = torch.randn(5, 4)
        out = direct(data)
        torch.testing.assert_close(out, model(data))
        out.sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
    assert len(calls) == 1


def test_gradients_are_those_of_the_model() -> None:
    model, data = nn.Linear(4, 2), torch.randn(5, 4)
    direct, _ = made(model)
    direct(data)
    direct(data).square().sum().backward()
    found = model.weight.grad
    model.weight.grad = None
    model(data).square().sum().backward()
    assert found is not None
    torch.testing.assert_close(found, model.weight.grad)


def test_another_kind_of_call_is_traced_anew() -> None:
    model = nn.Linear(4, 2)
    direct, calls = made(model)
    direct(torch.randn(5, 4))
    direct(torch.randn(3, 4))
    with torch.no_grad():
        direct(torch.randn(3, 4))
    assert len(calls) == 3


@torch.no_grad()
@pytest.mark.parametrize("model", [Broken(), nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))], ids=["broken", "dropout"])
def test_what_one_graph_does_not_hold_stays_compiled(model: nn.Module) -> None:
    direct, calls = made(model)
    for _ in range(3):
        direct(torch.randn(5, 4))
    assert len(calls) == 3


def test_what_keeps_statistics_stays_compiled_in_training() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    direct, calls = made(model, keeps_statistics=True)
    for _ in range(2):
        direct(torch.randn(5, 4))
    assert len(calls) == 2
    assert model.state_dict()["1.num_batches_tracked"].item() == 2

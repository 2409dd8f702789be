"""A traced graph called by itself answers for new data, new weights and other kinds of calls; what it cannot stand for stays compiled."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from bench.measure.engines.onednn.direct import Direct


class Broken(nn.Module):
    """Two graphs, as torch.compile cannot look into the break between."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, data: Tensor) -> Tensor:
        data = self.layer(data)
        torch._dynamo.graph_break()
        out: Tensor = self.layer(data)
        return out


def made(model: nn.Module) -> Direct:
    torch._dynamo.reset()

    def leave(graph: fx.GraphModule) -> None:
        assert graph.graph.nodes

    return Direct(model, leave)


def test_later_calls_go_straight_to_the_graph_with_new_data_and_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    direct = made(model)
    for _ in range(3):
        data = torch.randn(5, 4)
        found, right = (torch.autograd.grad(run(data).square().sum(), list(model.parameters())) for run in (direct, model))
        torch.testing.assert_close(found, right)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
    (forward,) = direct.known.values()
    assert forward is not direct.compiled


def test_another_kind_of_call_is_traced_anew() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Dropout(1.0))
    direct = made(model)
    assert direct(torch.randn(5, 4)).count_nonzero() == 0
    assert direct(torch.randn(3, 4)).requires_grad
    with torch.no_grad():
        assert not direct(torch.randn(3, 4)).requires_grad
        model.eval()
        assert direct(torch.randn(3, 4)).count_nonzero() == 6
    assert len(direct.known) == 4


@torch.no_grad()
def test_dropout_is_drawn_in_every_call() -> None:
    direct = made(nn.Dropout(0.5))
    first, second, third = (direct(torch.ones(100)) for _ in range(3))
    assert not torch.equal(second, first)
    assert not torch.equal(second, third)


def test_statistics_of_batches_are_kept() -> None:
    models = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    direct = made(models[1])
    for _ in range(3):
        data = torch.randn(5, 4)
        torch.testing.assert_close(direct(data), models[0](data))
    torch.testing.assert_close(models[1].state_dict(), models[0].state_dict())


@torch.no_grad()
def test_what_one_graph_does_not_hold_stays_compiled() -> None:
    direct = made(Broken())
    for _ in range(3):
        data = torch.randn(5, 4)
        torch.testing.assert_close(direct(data), direct.model(data))
    assert list(direct.known.values()) == [direct.compiled]


def test_two_models_of_one_class_do_not_share_a_graph() -> None:
    torch._dynamo.reset()
    models = [nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth))) for depth in (1, 2)]
    both = [Direct(model, lambda _: None) for model in models]
    for _ in range(2):
        for direct, model in zip(both, models, strict=True):
            data = torch.randn(5, 4)
            torch.testing.assert_close(direct(data), model(data))

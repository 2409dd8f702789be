"""Weight decay falls on matrices; the learning rate follows the schedule, against values worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bench.measure.model import build_model
from bench.spec import Recipe
from bench.training.optimizer import build_optimizer, build_plateau, decay_groups, learning_rate_at
from models.layers.shape import Interface
from tests.made_jobs import small_model


def decayed_names(family: str, interface: Interface) -> set[str]:
    model = build_model(small_model(family, interface=interface))
    decayed, free = decay_groups(model)
    assert len(decayed) + len(free) == len(list(model.parameters()))
    ids = {id(parameter) for parameter in decayed}
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


def test_projections_and_spatial_matrices_decay() -> None:
    """Not the class token, positions or embeddings, nor norms, biases, spatial biases."""
    ends = {"embedding.project.weight", "head.classify.weight"}
    blocks = {
        "gmlp": {"expand.weight", "gating.weights.0", "contract.weight"},
        "vit": {"attention.qkv.weight", "attention.project.weight", "feed_forward.expand.weight", "feed_forward.contract.weight"},
    }
    for family, names in blocks.items():
        assert decayed_names(family, Interface()) == ends | {f"blocks.0.{name}" for name in names}
    assert "embedding.project.weight" not in decayed_names("vit", Interface(input="tokens"))


def test_decay_shrinks_the_matrix_alone_where_there_is_no_gradient() -> None:
    layer = nn.Linear(3, 3)
    nn.init.ones_(layer.weight)
    nn.init.ones_(layer.bias)
    optimizer = build_optimizer(layer, Recipe(learning_rate=0.1, weight_decay=0.5))
    layer.weight.grad, layer.bias.grad = torch.zeros_like(layer.weight), torch.zeros_like(layer.bias)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.full((3, 3), 0.95))
    torch.testing.assert_close(layer.bias.detach(), torch.ones(3))


@pytest.mark.parametrize(
    ("scores", "patience", "rates"),
    [
        ([0.5, 0.5, 0.4], 0, [0.8, 0.4, 0.2]),
        ([0.5, 0.5, 0.5, 0.5], 1, [0.8, 0.8, 0.4, 0.4]),
        # a little better is better, and of scores below zero a little worse is not
        ([0.5, 0.50001, 0.50002], 0, [0.8, 0.8, 0.8]),
        ([-0.5, -0.50001], 0, [0.8, 0.4]),
    ],
)
def test_a_plateau_halves_the_rate_once_no_epoch_was_better_for_longer_than_its_patience(
    scores: list[float], patience: int, rates: list[float]
) -> None:
    recipe = Recipe(learning_rate=0.8, schedule="plateau", patience=patience)
    optimizer = build_optimizer(nn.Linear(2, 2), recipe)
    plateau = build_plateau(optimizer, recipe)
    assert plateau is not None
    found = []
    for score in scores:
        plateau.step(score)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == rates


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", [0.2, 0.4, 0.3, 0.1]),  # after the warm-up, a third and two thirds of the way: cos 60 and 120 degrees
        ("constant", [0.2, 0.4, 0.4, 0.4]),
        ("plateau", [0.2, 0.4, 0.4, None]),  # at the peak once; then it is the plateau's to change
    ],
)
def test_each_schedule_follows_the_warm_up(schedule: str, expected: list[float | None]) -> None:
    recipe = Recipe(learning_rate=0.4, warmup=0.5, schedule=schedule)
    found = [learning_rate_at(step, recipe, 4) for step in range(4)]
    assert [None if rate is None else round(rate, 12) for rate in found] == expected
    assert (build_plateau(build_optimizer(nn.Linear(2, 2), recipe), recipe) is None) is (schedule != "plateau")

"""Weight decay falls on matrices; the learning rate follows the schedule, against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bench.measure.model import build_model
from bench.spec import ModelSpec, OptionValue, Recipe
from bench.training.optimizer import build_optimizer, build_plateau, decay_groups, learning_rate_at, learning_rate_factor, set_learning_rate
from models.layers.shape import Interface, Shape

SHAPE = Shape(seq_len=5, width=8, depth=1, heads=2, ffn_width=16)


def decayed_names(family: str, interface: Interface, **options: OptionValue) -> set[str]:
    model = build_model(ModelSpec(name=family, family=family, shape=SHAPE, interface=interface, options=tuple(options.items())))
    decayed, free = decay_groups(model)
    assert len(decayed) + len(free) == len(list(model.parameters()))
    ids = {id(parameter) for parameter in decayed}
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


def test_gmlp_decays_projections_and_spatial_matrices() -> None:
    """Not the class token, nor norms, biases, spatial biases."""
    assert decayed_names("gmlp", Interface()) == {
        "embedding.project.weight",
        "blocks.0.expand.weight",
        "blocks.0.gating.weights.0",
        "blocks.0.contract.weight",
        "head.classify.weight",
    }


def test_vit_decays_no_positions() -> None:
    assert decayed_names("vit", Interface()) == {
        "embedding.project.weight",
        "blocks.0.attention.qkv.weight",
        "blocks.0.attention.project.weight",
        "blocks.0.feed_forward.expand.weight",
        "blocks.0.feed_forward.contract.weight",
        "head.classify.weight",
    }
    assert "embedding.project.weight" not in decayed_names("vit", Interface(input="tokens"))  # a table of embeddings


def test_decay_shrinks_the_matrix_alone_where_there_is_no_gradient() -> None:
    layer = nn.Linear(3, 3)
    nn.init.ones_(layer.weight)
    nn.init.ones_(layer.bias)
    optimizer = build_optimizer(layer, Recipe(learning_rate=0.1, weight_decay=0.5))
    layer.weight.grad, layer.bias.grad = torch.zeros_like(layer.weight), torch.zeros_like(layer.bias)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.full((3, 3), 0.95))
    torch.testing.assert_close(layer.bias.detach(), torch.ones(3))


def plateau_rates(scores: list[float], patience: int) -> list[float]:
    recipe = Recipe(learning_rate=0.8, schedule="plateau", patience=patience)
    optimizer = build_optimizer(nn.Linear(2, 2), recipe)
    plateau = build_plateau(optimizer, recipe)
    assert plateau is not None
    rates = []
    for score in scores:
        plateau.step(score)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize(
    ("scores", "patience", "rates"),
    [
        ([0.5, 0.6, 0.7], 0, [0.8, 0.8, 0.8]),
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
    assert plateau_rates(scores, patience) == rates


def test_decay_follows_the_warm_up() -> None:
    """The warm-up rises linearly to the peak. After two steps of warm-up, three are at one to three quarters of the way: cos 45, 90, 135 degrees."""
    half_root = math.sqrt(2) / 2
    expected = [0.5, 1.0, (1 + half_root) / 2, 0.5, (1 - half_root) / 2]
    assert [learning_rate_factor(step, num_steps=5, warmup_steps=2) for step in range(5)] == pytest.approx(expected)
    assert learning_rate_factor(5, num_steps=5, warmup_steps=2) == pytest.approx(0.0, abs=1e-15)


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
    optimizer = build_optimizer(nn.Linear(2, 2), recipe)
    assert (build_plateau(optimizer, recipe) is None) is (schedule != "plateau")
    set_learning_rate(optimizer, 0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]

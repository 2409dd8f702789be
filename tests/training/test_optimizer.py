"""Weight decay falls on matrices; the learning rate follows the schedule, against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bench.measure.model import build_model
from bench.spec import OPTIMIZERS, Recipe
from bench.training.optimizer import MuonAndAdamW, build_optimizer, build_plateau, decay_groups, learning_rate_at
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


@pytest.mark.parametrize("mixer", ["state_space", "delta_rule"])
def test_rates_biases_and_skips_of_recurrent_mixers_do_not_decay(mixer: str) -> None:
    model = build_model(small_model("metaformer", options={"mixer": mixer}, width=32, heads=2))
    decayed = {id(parameter) for parameter in decay_groups(model)[0]}
    spared = [name for name, parameter in model.named_parameters() if id(parameter) not in decayed]
    assert {name.rpartition(".")[2] for name in spared} >= {"log_rate", "step_bias"}
    assert ("blocks.0.mixer.skip" in spared) == (mixer == "state_space")


@pytest.mark.parametrize(
    ("family", "interface"), [("vit", Interface()), ("vit", Interface(input="tokens")), ("encoder_decoder", Interface())]
)
def test_muon_leaves_embeddings_and_the_head_to_adamw_and_turns_every_matrix_between(family: str, interface: Interface) -> None:
    model = build_model(small_model(family, interface=interface))
    built = build_optimizer(model, Recipe(optimizer="muon"))
    assert isinstance(built, MuonAndAdamW)
    turned = {id(parameter) for group in built.parts[0].param_groups for parameter in group["params"]}
    matrices = {name for name, parameter in model.named_parameters() if parameter.ndim == 2}
    left = {name for name, parameter in model.named_parameters() if name in matrices and id(parameter) not in turned}
    assert left
    assert all("embed" in name or name == "head.classify.weight" for name in left)


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
        ("step", [0.2, 0.4, 0.4, 0.04]),  # a tenth from half of the way on
        ("exponential", [0.2, 0.4, 0.4, 0.04]),  # half of the way to a hundredth
    ],
)
def test_each_schedule_follows_the_warm_up(schedule: str, expected: list[float | None]) -> None:
    recipe = Recipe(learning_rate=0.4, warmup=0.5, schedule=schedule)
    found = [learning_rate_at(step, recipe, 4) for step in range(4)]
    assert [None if rate is None else round(rate, 12) for rate in found] == expected
    assert (build_plateau(build_optimizer(nn.Linear(2, 2), recipe), recipe) is None) is (schedule != "plateau")


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 10, 97])
def test_one_cycle_is_that_of_torch(num_steps: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=num_steps) if num_steps > 3 else None
    for step in range(num_steps):
        found = learning_rate_at(step, Recipe(learning_rate=0.3, schedule="one-cycle"), num_steps)
        assert found is not None
        assert 0 < found <= 0.3
        if schedule:
            assert found == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
            optimizer.step()
            if step < num_steps - 1:
                schedule.step()


@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "muon"])
def test_each_optimizer_steps_as_written_down(optimizer: str) -> None:
    """Two steps of one matrix, in plain arithmetic."""
    rate, decay, gradients = 0.1, 0.5, (2.0, -1.0)
    weight, moment, square = 1.0, 0.0, 0.0
    for step, raw in enumerate(gradients, start=1):
        gradient = raw if optimizer == "adamw" else raw + decay * weight
        if optimizer == "sgd":
            moment = 0.9 * moment + gradient if step > 1 else gradient
            weight -= rate * (gradient + 0.9 * moment)
            continue
        if optimizer == "adamw":
            weight -= rate * decay * weight
        moment, square = 0.9 * moment + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        weight -= rate * (moment / (1 - 0.9**step)) / (math.sqrt(square / (1 - 0.999**step)) + 1e-8)
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    built = build_optimizer(layer, Recipe(learning_rate=rate, weight_decay=decay, optimizer=optimizer))
    for raw in gradients:
        layer.weight.grad = torch.full((1, 1), raw)
        built.step()
    assert layer.weight.item() == pytest.approx(weight, rel=1e-5)


def three_matrices() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(4, 3))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def test_muon_turns_hidden_matrices_by_the_nearest_orthogonal_one_and_leaves_the_rest_to_adamw() -> None:
    recipe = Recipe(learning_rate=0.01, weight_decay=0.5, optimizer="muon")
    turned, plain = three_matrices(), three_matrices()
    weight = turned.get_parameter("1.weight")
    before = weight.detach().clone()
    step(turned, build_optimizer(turned, recipe), 1)
    step(plain, build_optimizer(plain, Recipe(learning_rate=0.01, weight_decay=0.5)), 1)
    for name, parameter in turned.named_parameters():
        # close, not equal: the fused kernel rounds otherwise where a parameter lies elsewhere in memory (AMD EPYC family 26)
        assert torch.allclose(parameter, plain.get_parameter(name), rtol=0, atol=1e-6) is (name != "1.weight")
    left, _, right = torch.linalg.svd(weight.grad, full_matrices=False)
    turn = (before * (1 - 0.01 * 0.5) - weight.detach()) / (0.01 * 0.2 * math.sqrt(6))
    assert torch.linalg.svdvals(turn).sub(1).abs().max() < 0.5  # its iteration brings singular values near 1, not to it
    assert torch.cosine_similarity(turn.flatten(), (left @ right).flatten(), dim=0) > 0.97


def test_muon_goes_on_from_its_state() -> None:
    recipe = Recipe(optimizer="muon")
    whole, first, second = three_matrices(), three_matrices(), three_matrices()
    optimizer, begun, resumed = (build_optimizer(model, recipe) for model in (whole, first, second))
    step(whole, optimizer, 1)
    step(whole, optimizer, 2)
    step(first, begun, 1)
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(begun.state_dict())
    step(second, resumed, 2)
    assert all(map(torch.equal, whole.parameters(), second.parameters()))


def test_muon_without_hidden_matrices_is_adamw() -> None:
    for model in (nn.Linear(2, 2), nn.Identity()):
        assert isinstance(build_optimizer(model, Recipe(optimizer="muon")), torch.optim.AdamW)

"""Kernel regression: Nadaraya's and Watson's formula, its learned bandwidth, and a model without parameters in training."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.measure.model import build_model
from bench.measure.step import build_step
from bench.planning.budget import Match, NoMatch, Target, match
from bench.planning.sizing import SizedModel, resolve_models
from bench.spec import Cell, ModelSpec, Recipe, RequestError, Workload
from bench.training.data import TrainingData, load_training_data
from bench.training.loop import train
from bench.training.optimizer import build_optimizer
from models.kernel_regression import Config, KernelRegression, KernelSmoothing, build
from models.layers.shape import Interface, Shape
from tests.requested import parse_request

SEQ_LEN = 12
SHAPE = Shape(seq_len=SEQ_LEN, width=8, depth=1, heads=1, ffn_width=32)
POINTS = Interface(patch_dim=3, num_classes=1, output="tokens")
TASK = "curve_fitting+items=400+test_items=50"


def config(**options: Any) -> Config:
    return Config(shape=SHAPE, interface=POINTS, **options)


def spec(**options: Any) -> ModelSpec:
    return ModelSpec(name="kernel_regression", family="kernel_regression", options=tuple(options.items()), shape=SHAPE, interface=POINTS)


def points(batch: int = 2) -> Tensor:
    """Observed and asked ones in turn, on [0, 5)."""
    x, y = 5 * torch.rand(2, batch, SEQ_LEN, generator=torch.Generator().manual_seed(0))
    asked = (torch.arange(SEQ_LEN) % 2.0).expand(batch, -1)
    return torch.stack((x, y * (1 - asked), asked), dim=-1)


def smoothing(model: KernelRegression) -> KernelSmoothing:
    (block,) = model.blocks
    assert isinstance(block, KernelSmoothing)
    return block


def test_far_from_every_point_the_nearest_counts() -> None:
    data = points(batch=1)
    data[0, :, 0] = torch.arange(SEQ_LEN) * 1e3
    data[0, :, 2] = (torch.arange(SEQ_LEN) != 4).float()
    data[0, 4, 1] = 3.0
    assert torch.equal(build(config(bandwidth_percent=10))(data), torch.full((1, SEQ_LEN, 1), 3.0))


def test_where_nothing_is_observed_the_answer_is_zero_with_a_finite_gradient() -> None:
    model, data = build(config(bandwidth="learned")), points()
    data[0, :, 1], data[0, :, 2] = 5.0, 1.0
    found = model(data)
    assert not found[0].any()
    assert found[1].all()
    found.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any() for parameter in model.parameters())


def test_the_weights_are_what_is_summed() -> None:
    model, data = build(config(bandwidth_percent=50)), points(batch=1)
    weights = smoothing(model).token_weights(data)
    assert weights.shape == (1, SEQ_LEN, SEQ_LEN)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(1, SEQ_LEN))
    by_x = data[0][data[0, :, 0].argsort()]
    assert not weights[0][:, by_x[:, 2] == 1].any()
    answers = model(by_x[None])[0]
    assert torch.allclose(weights[0] @ by_x[:, 1:2], answers, atol=1e-6)
    assert not torch.allclose(weights[0].T @ by_x[:, 1:2], answers, atol=1e-2)


def test_weights_of_tokens_in_the_order_of_x_are_a_band() -> None:
    """Each row is the Gaussian of the distances of sorted x, so it falls to both sides of its own point."""
    data = points(batch=1)
    data[..., 2] = 0.0
    weights = smoothing(build(config(bandwidth_percent=50))).token_weights(data)[0]
    x = sorted(data[0, :, 0].tolist())
    kernel = torch.tensor([[math.exp(-((one - other) ** 2) / (2 * 0.5**2)) for other in x] for one in x])
    assert torch.allclose(weights, kernel / kernel.sum(dim=1, keepdim=True), atol=1e-6)
    for row, entries in enumerate(weights):
        assert (entries[: row + 1].diff() >= 0).all()
        assert (entries[row:].diff() <= 0).all()


@pytest.mark.parametrize(
    ("interface", "rule"),
    [
        (dataclasses.replace(POINTS, input="tokens"), "input must be patches, not 'tokens'"),
        (dataclasses.replace(POINTS, output="class"), "output must be tokens, not 'class'"),
        (dataclasses.replace(POINTS, num_classes=2), "num_classes must be 1, not 2"),
        (dataclasses.replace(POINTS, patch_dim=2), "patch_dim must be at least 3, not 2"),
    ],
)
def test_what_are_no_points_is_refused(interface: Interface, rule: str) -> None:
    Config(shape=SHAPE, interface=dataclasses.replace(POINTS, patch_dim=4))
    with pytest.raises(ValueError, match=rule):
        Config(shape=SHAPE, interface=interface)


def curve(num_epochs: int = 1) -> tuple[TrainingData, Recipe]:
    recipe = Recipe(epochs=num_epochs, learning_rate=0.05)
    return load_training_data(spec(), TASK, recipe, seed=0), recipe


def test_a_learned_bandwidth_lowers_the_training_error() -> None:
    data, recipe = curve(num_epochs=3)
    fixed, learned = (train(build_model(spec(bandwidth=name)), data, recipe, seed=0) for name in ("fixed", "learned"))
    assert learned.epochs[-1].loss < learned.epochs[0].loss
    assert learned.train.value > fixed.train.value + 0.05


def test_a_model_without_parameters_is_trained_to_what_it_was() -> None:
    data, recipe = curve(num_epochs=2)
    model = build_model(spec())
    result = train(model, data, recipe, seed=0)
    assert [epoch.loss for epoch in result.epochs] == pytest.approx([result.epochs[0].loss] * 2, rel=1e-6)
    assert 0.0 < result.train.value < 1.0
    assert list(model.state_dict()) == []
    assert sum(len(group["params"]) for group in build_optimizer(model, recipe).param_groups) == 0


def test_a_model_without_parameters_has_a_training_step() -> None:
    step = build_step(Cell(model=spec(), workload=Workload(batch_size=2, phase="train")))
    assert step.call().isfinite()


def test_no_width_makes_it_larger() -> None:
    found = match(spec(bandwidth="learned"), Target(measure="params", value=50_000, tolerance=0.005))
    assert isinstance(found, NoMatch)
    assert found.reason == "has 1 parameters at every width, not 50,000"
    assert isinstance(match(spec(bandwidth="learned"), Target(measure="params", value=1, tolerance=0.005)), Match)


def test_a_request_with_its_task_is_planned_and_one_without_is_refused_by_the_rule() -> None:
    wanted = {"models": "kernel_regression", "seq": "12", "width": "8", "depth": "1"}
    (sized,) = resolve_models(parse_request(**wanted, task="curve_fitting"))
    assert isinstance(sized, SizedModel)
    assert sized.model.interface == POINTS
    with pytest.raises(RequestError, match="output must be tokens, not 'class'"):
        list(resolve_models(parse_request(**wanted)))

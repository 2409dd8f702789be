"""From a model's spec to its module, its config and its closed-form cost."""

from __future__ import annotations

from typing import Any

from torch import nn

from bench import catalog
from bench.spec import ModelSpec
from models.layers.cost import Cost
from models.layers.shape import num_data_tokens


def config_of(model: ModelSpec, **overrides: Any) -> Any:
    """The family's frozen config. Raises ValueError, naming the rule, for sizes that cannot be built."""
    family = catalog.load("families", model.family)
    return family.Config(shape=model.shape, interface=model.interface, **{**dict(model.options), **overrides})


def build_model(model: ModelSpec) -> nn.Module:
    module: nn.Module = catalog.load("families", model.family).build(config_of(model))
    return module


def build_reference(model: ModelSpec) -> nn.Module:
    """The formulation that the FLOP counters can see whole; faster kernels are tied to it by equal outputs."""
    family = catalog.load("families", model.family)
    module: nn.Module = family.build(config_of(model, **family.REFERENCE_OPTIONS))
    return module


def is_stepwise(model: ModelSpec) -> bool:
    """Whether the reference takes one token after another, so that it is counted at small lengths; a family that has none does not say."""
    family = catalog.load("families", model.family)
    return hasattr(family, "is_stepwise") and bool(family.is_stepwise(config_of(model)))


def cost_of(model: ModelSpec) -> Cost:
    cost: Cost = catalog.load("families", model.family).cost(config_of(model))
    return cost


def num_data_tokens_of(model: ModelSpec) -> int:
    """How many of the model's tokens come from the data."""
    return num_data_tokens(model.shape.seq_len, model.interface.pooling(config_of(model).pool))


def uses_attention(model: ModelSpec) -> bool:
    return bool(catalog.load("families", model.family).uses_attention(config_of(model)))

"""From a model's spec to its module, its config and its closed-form cost."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch import nn

from bench import catalog
from bench.spec import ModelSpec
from models.layers.cost import Cost
from models.layers.dropout import dropping_places
from models.layers.shape import num_data_tokens
from models.metaformer import mixer_names


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


def can_generate(model: ModelSpec) -> bool:
    """Whether no answer depends on a later token of what is generated: that of a decoder, of a causal model, or of a block with a causal mixer."""
    family, config = catalog.load("families", model.family), config_of(model)
    return _is_generating(family) or any(getattr(part, "causal", False) for part in (config, getattr(config, "mixing", None)))


def generating_models() -> tuple[str, ...]:
    """What can generate, as `--models` takes it: families that read a source and a target, and mixers that are causal or have that option."""
    families = [name for name in catalog.names("families") if _is_generating(catalog.load("families", name))]
    mixers = [name for name in mixer_names() if hasattr(catalog.load("mixers", name).Config, "causal")]
    has_choice = {name: any(option.name == "causal" for option in catalog.options(name, "mixers")) for name in mixers}
    return (*families, *(f"metaformer+mixer={name}{':causal=true' if has_choice[name] else ''}" for name in mixers))


def _is_generating(family: ModuleType) -> bool:
    return getattr(family, "SOURCE_AND_TARGET", False)


@functools.lru_cache(maxsize=256)
def dropping_places_of(model: ModelSpec) -> tuple[str, ...]:
    """The places at which a recipe's dropout can act; no weight is made."""
    with torch.device("meta"):
        return dropping_places(build_model(model))


def cost_of(model: ModelSpec) -> Cost:
    cost: Cost = catalog.load("families", model.family).cost(config_of(model))
    return cost


def num_data_tokens_of(model: ModelSpec) -> int:
    """How many of the model's tokens come from the data."""
    return num_data_tokens(model.shape.seq_len, model.interface.pooling(config_of(model).pool))


def uses_attention(model: ModelSpec) -> bool:
    return bool(catalog.load("families", model.family).uses_attention(config_of(model)))

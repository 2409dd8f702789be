"""From a model's spec to its module, its config and its closed-form cost."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch import nn

from bench import catalog
from bench.peers import families as outside
from bench.spec import ModelSpec
from models.layers.cost import Cost
from models.layers.dropout import dropping_places
from models.layers.shape import num_data_tokens
from models.metaformer import mixer_names


def family_of(name: str) -> ModuleType:
    """The module of a family: ours from the catalog, or that of a prefix such as `timm`, whose models are other people's."""
    return outside.load(name) if outside.is_outside(name) else catalog.load("families", name)


def is_counted(model: ModelSpec) -> bool:
    """Whether there is no closed form: the cost is counted, at the model's own length."""
    return bool(getattr(family_of(model.family), "COUNTED", False))


def config_of(model: ModelSpec, **overrides: Any) -> Any:
    """The family's frozen config. Raises ValueError, naming the rule, for sizes that cannot be built."""
    family = family_of(model.family)
    return family.Config(shape=model.shape, interface=model.interface, **{**dict(model.options), **overrides})


def build_model(model: ModelSpec) -> nn.Module:
    module: nn.Module = family_of(model.family).build(config_of(model))
    return module


def build_reference(model: ModelSpec) -> nn.Module:
    """The formulation that the FLOP counters can see whole; faster kernels are tied to it by equal outputs."""
    family = family_of(model.family)
    module: nn.Module = family.build(config_of(model, **family.REFERENCE_OPTIONS))
    return module


def is_stepwise(model: ModelSpec) -> bool:
    """Whether the reference takes one token after another, so that it is counted at small lengths; a family that has none does not say."""
    family = family_of(model.family)
    return hasattr(family, "is_stepwise") and bool(family.is_stepwise(config_of(model)))


def can_generate(model: ModelSpec) -> bool:
    """Whether no answer depends on a later token of what is generated: that of a decoder, of a causal model, or of a block with a causal mixer."""
    family, config = family_of(model.family), config_of(model)
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
    cost: Cost = family_of(model.family).cost(config_of(model))
    return cost


def num_data_tokens_of(model: ModelSpec) -> int:
    """How many of the model's tokens come from the data. An outside model may have several that do not."""
    config = config_of(model)
    if is_counted(model):
        return int(config.data_tokens)
    return num_data_tokens(model.shape.seq_len, model.interface.pooling(config.pool))


def uses_attention(model: ModelSpec) -> bool:
    return bool(family_of(model.family).uses_attention(config_of(model)))

"""Turn a model's spec into its module, config and closed-form cost."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from bench import catalog
from bench.peers import own_import
from bench.peers.names import OUTSIDE
from bench.spec import ModelSpec
from models.layers.cost import Cost, Polynomial
from models.layers.dropout import dropping_places, has_stochastic_depth
from models.layers.options import reference_config
from models.layers.shape import num_data_tokens
from models.metaformer import mixer_names

if TYPE_CHECKING:
    from bench.peers.counted import Counted


def family_of(name: str) -> ModuleType:
    """Return the module of a family.

    Our families come from the catalog. A prefix such as `timm` stands for models of another library.
    """
    return importlib.import_module(f"bench.peers.{name}") if name in OUTSIDE else catalog.load("families", name)


def is_counted(model: ModelSpec) -> bool:
    """Return whether the cost is counted for lack of a closed form.

    It is then known at the model's own length only.
    """
    return bool(getattr(family_of(model.family), "COUNTED", False))


def config_of(model: ModelSpec) -> Any:
    """Return the family's frozen config.

    Raises ValueError, naming the rule, for sizes that cannot be built.
    """
    family = family_of(model.family)
    return family.Config(shape=model.shape, interface=model.interface, **dict(model.options))


def build_model(model: ModelSpec) -> nn.Module:
    """Build the model's module on the current default device."""
    module: nn.Module = family_of(model.family).build(config_of(model))
    return module


def build_reference(model: ModelSpec) -> nn.Module:
    """Build the formulation that the FLOP counters can count.

    Tests check that faster kernels give equal outputs.
    """
    family = family_of(model.family)
    module: nn.Module = family.build(reference_config(family, config_of(model)))
    return module


def is_stepwise(model: ModelSpec) -> bool:
    """Return whether the reference processes one token after another.

    Such a reference is counted at small lengths. A family that does not define `is_stepwise` has no such reference.
    """
    family = family_of(model.family)
    return hasattr(family, "is_stepwise") and bool(family.is_stepwise(config_of(model)))


def can_generate(model: ModelSpec) -> bool:
    """Return whether the model can generate token by token.

    No output may then depend on a later generated token. This holds for a family with source and target, for a causal model and
    for a block with a causal mixer.
    """
    family, config = family_of(model.family), config_of(model)
    is_generating = getattr(family, "SOURCE_AND_TARGET", False)
    return is_generating or any(getattr(part, "causal", False) for part in (config, getattr(config, "mixing", None)))


def generating_models() -> tuple[str, ...]:
    """Return the models that can generate, as `--models` takes them.

    They are families that read a source and a target, families and mixers that are causal or can be.
    """
    has_option = [f"{name}+causal=true" for name in catalog.names("families") if _has_causal(name, "families")]
    generating = [name for name, family in catalog.found("families").plugins.items() if family.says("SOURCE_AND_TARGET", False)]
    families = [*generating, *has_option]
    mixers = [name for name in mixer_names() if catalog.plugin("mixers", name).can_be_causal]
    has_choice = {name: _has_causal(name, "mixers") for name in mixers}
    return (*families, *(f"metaformer+mixer={name}{':causal=true' if has_choice[name] else ''}" for name in mixers))


def _has_causal(name: str, kind: str) -> bool:
    return any(option.name == "causal" for option in catalog.options(name, kind))


@functools.lru_cache(maxsize=256)
def dropping_places_of(model: ModelSpec) -> tuple[str, ...]:
    """Return the places where dropout can act, without making weights."""
    return own_import.ask(model.digest, _dropping_places, model)


def _dropping_places(model: ModelSpec) -> tuple[str, ...]:
    with torch.device("meta"):
        return dropping_places(build_model(model))


@functools.lru_cache(maxsize=256)
def has_stochastic_depth_of(model: ModelSpec) -> bool:
    """Return whether blocks of the model can be skipped, without making weights."""
    return own_import.ask(model.digest, _has_stochastic_depth, model)


def _has_stochastic_depth(model: ModelSpec) -> bool:
    with torch.device("meta"):
        return has_stochastic_depth(build_model(model))


def cost_of(model: ModelSpec) -> Cost:
    """Return the closed-form cost, or the counted cost of an outside model."""
    cost: Cost = family_of(model.family).cost(config_of(model))
    return cost


def state_of(model: ModelSpec) -> Polynomial | None:
    """Return the numbers that the model holds after n tokens, read or written one after another.

    None where a token reads later ones, and for models from outside.
    """
    return cost_of(model).state() if not is_counted(model) and can_generate(model) else None


def counted_of(model: ModelSpec) -> Counted | None:
    """Return what counting an outside model showed; None for a model with a closed form."""
    if not is_counted(model):
        return None
    from bench.peers.counted import counted

    return counted(config_of(model))


def num_data_tokens_of(model: ModelSpec) -> int:
    """Return how many of the model's tokens come from the data.

    An outside model may add several tokens of its own.
    """
    config = config_of(model)
    if is_counted(model):
        return int(config.data_tokens)
    return num_data_tokens(model.shape.seq_len, model.interface.pooling(config.pool))


def uses_attention(model: ModelSpec) -> bool:
    return bool(family_of(model.family).uses_attention(config_of(model)))

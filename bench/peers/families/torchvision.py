"""`torchvision:NAME`: a published vision transformer of torchvision, without its weights."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bench.peers import counted
from bench.peers.adapter import adapted
from bench.peers.counterpart import Counterpart
from bench.peers.libraries import library
from bench.peers.published import Facts, PublishedConfig, image_arguments, published_spec, require_images, unknown_model
from bench.peers.torchvision import PUBLISHED
from bench.spec import ModelSpec, OptionValue, RequestError
from models.layers.cost import Cost

COUNTED = True
USES_HEADS = True
REFERENCE_OPTIONS: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Config(PublishedConfig):
    """Config of a torchvision model, by torchvision's name; images are square."""

    def __post_init__(self) -> None:
        require_images(f"torchvision:{self.model}", self.interface)
        image = image_arguments(self.interface, self.data_tokens)
        if image["sides"][0] != image["sides"][1] or image["channels"] != 3:
            raise ValueError(
                f"torchvision:{self.model} reads square images of three channels, not {self.data_tokens} patches of {image['channels']} channels"
            )

    @property
    def facts(self) -> Facts:
        return facts_of(self.model)


def spec_of(
    name: str, options: tuple[tuple[str, OptionValue], ...], *, seq_len: int | None, sizes: dict[str, int | None], input: str, task: str
) -> ModelSpec:
    """Return the published model's spec; `sizes` is ignored.

    Raises RequestError if it cannot be built.
    """
    facts = facts_of(str(dict(options)["model"]))
    return published_spec(name, "torchvision", options, facts, seq_len=seq_len, input=input, task=task)


def build(config: Config) -> nn.Module:
    return adapted(counted.build_on_device(lambda: _create(config)), config.interface, reads_images=True)


def cost(config: Config) -> Cost:
    return counted.count_once(build, config).cost


def uses_attention(config: Config) -> bool:
    return counted.count_once(build, config).uses_attention


def unknown_sizes(config: Config) -> tuple[str, ...]:
    return config.facts.unknown_sizes


def counterpart_of(config: Config) -> Counterpart | None:
    return PUBLISHED.get(config.model)


@functools.lru_cache(maxsize=64)
def facts_of(model: str) -> Facts:
    """Read facts from the model, built on `meta`.

    Raises RequestError for an unknown name, or a model that is not a vision transformer.
    """
    built = _published(model)
    if not isinstance(built, library("torchvision").models.VisionTransformer):
        raise RequestError(f"torchvision:{model} does not cut images into patches, so it has no seq_len", "try torchvision:vit_b_16")
    found: Any = built
    sizes = {
        "width": found.hidden_dim,
        "depth": len(found.encoder.layers),
        "heads": found.encoder.layers[0].num_heads,
        "ffn_width": found.mlp_dim,
    }
    return Facts(seq_len=found.seq_length, num_extra=1, patch_side=found.patch_size, num_classes=found.num_classes, sizes=sizes)


def _published(model: str) -> nn.Module:
    models = library("torchvision").models
    if model not in (known := models.list_models(module=models)):
        raise unknown_model("torchvision", model, known, "try torchvision:vit_b_16")
    with torch.device("meta"):
        return counted.build_on_device(lambda: models.get_model(model, weights=None))


def _create(config: Config) -> nn.Module:
    """Build the model by name, or by class for other patches.

    torchvision's names fix the side of the patches, so the class gets the sizes read from the published model.
    """
    models, facts = library("torchvision").models, config.facts
    image = image_arguments(config.interface, config.data_tokens)
    side, num_classes = image["sides"][0], config.interface.num_classes
    if image["patch_side"] == facts.patch_side:
        by_name: nn.Module = models.get_model(config.model, weights=None, image_size=side, num_classes=num_classes)
        return by_name
    sizes = facts.sizes
    by_class: nn.Module = models.VisionTransformer(
        image_size=side,
        patch_size=image["patch_side"],
        num_layers=sizes["depth"],
        num_heads=sizes["heads"],
        hidden_dim=sizes["width"],
        mlp_dim=sizes["ffn_width"],
        num_classes=num_classes,
    )
    return by_class

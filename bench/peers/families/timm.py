"""`timm:NAME`: a published model of timm, without its weights.

Source: Wightman, github.com/huggingface/pytorch-image-models.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bench.errors import one_line
from bench.peers import counted
from bench.peers.adapter import adapted
from bench.peers.counterpart import Counterpart
from bench.peers.libraries import library
from bench.peers.published import Facts, PublishedConfig, image_arguments, published_spec, require_images, unknown_model
from bench.peers.timm import PUBLISHED
from bench.spec import ModelSpec, OptionValue, RequestError
from models.layers.cost import Cost

COUNTED = True
USES_HEADS = True
REFERENCE_OPTIONS: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Config(PublishedConfig):
    """Config of a timm model, by timm's name."""

    def __post_init__(self) -> None:
        require_images(f"timm:{self.model}", self.interface)

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
    return published_spec(name, "timm", options, facts, seq_len=seq_len, input=input, task=task)


def build(config: Config) -> nn.Module:
    return adapted(counted.build_on_device(lambda: _create(config)), config.interface, reads_images=True)


def cost(config: Config) -> Cost:
    return counted.count_once(build, config).cost


def uses_attention(config: Config) -> bool:
    return counted.count_once(build, config).uses_attention


def unknown_sizes(config: Config) -> tuple[str, ...]:
    return config.facts.unknown_sizes


def counterpart_of(config: Config) -> Counterpart | None:
    return PUBLISHED.get(config.model.partition(".")[0])


@functools.lru_cache(maxsize=64)
def facts_of(model: str) -> Facts:
    """Read facts from the model, built on `meta`.

    Raises RequestError for an unknown name, or a model that does not cut images into patches.
    """
    timm = library("timm")
    if not timm.is_model(model):
        raise unknown_model("timm", model, timm.list_models(), "see: python -c 'import timm; print(timm.list_models())'")
    with torch.device("meta"):
        built = counted.build_on_device(lambda: timm.create_model(model))
    embedding = getattr(built, "patch_embed", getattr(built, "stem", None))
    patches, side = getattr(embedding, "num_patches", None), getattr(embedding, "patch_size", None)
    if not isinstance(patches, int) or not isinstance(side, (int, tuple)):
        raise RequestError(
            f"timm:{model} does not cut images into patches, so it has no seq_len", "name a model that does, such as timm:gmlp_s16_224"
        )
    num_extra = int(getattr(built, "num_prefix_tokens", 0))
    return Facts(
        seq_len=patches + num_extra,
        num_extra=num_extra,
        patch_side=side if isinstance(side, int) else int(side[0]),
        num_classes=int(getattr(built, "num_classes", 0)),
        sizes=_sizes(built),
    )


def _sizes(model: nn.Module) -> dict[str, int]:
    """Return the sizes of a model with one list of blocks.

    Empty for any other model.
    """
    blocks = getattr(model, "blocks", None)
    width = getattr(model, "embed_dim", None)
    if not isinstance(blocks, (nn.Sequential, nn.ModuleList)) or not len(blocks) or not isinstance(width, int):
        return {}
    block = blocks[0]
    heads = _attribute(block, "attn.num_heads")
    ffn_width = _attribute(block, "mlp.fc1.out_features") or _attribute(block, "mlp_channels.fc1.out_features")
    found = {"width": width, "depth": len(blocks), "heads": heads, "ffn_width": ffn_width}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _attribute(owner: Any, path: str) -> Any:
    return functools.reduce(lambda found, name: getattr(found, name, None), path.split("."), owner)


def _create(config: Config) -> nn.Module:
    """Build the model, passing only arguments that differ from the published ones.

    Not every timm model accepts every argument.
    """
    facts, image = config.facts, image_arguments(config.interface, config.data_tokens)
    changes: dict[str, Any] = {}
    if config.interface.num_classes != facts.num_classes:
        changes["num_classes"] = config.interface.num_classes
    if image["channels"] != 3:
        changes["in_chans"] = image["channels"]
    if image["patch_side"] != facts.patch_side:
        changes["patch_size"] = image["patch_side"]
    if changes.get("patch_size") or config.shape.seq_len != facts.seq_len:
        changes["img_size"] = image["sides"]
    try:
        model: nn.Module = library("timm").create_model(config.model, **changes)
    except (TypeError, AssertionError) as error:
        arguments = ", ".join(f"{name}={value}" for name, value in changes.items())
        raise ValueError(f"timm:{config.model} does not accept {arguments} ({one_line(error)})") from error
    return model

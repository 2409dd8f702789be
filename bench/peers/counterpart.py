"""Map a peer to our model that computes the same; copy weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

PROJECTION = "embedding.project.weight"
GATE_STD = 0.05


@dataclass(frozen=True, kw_only=True)
class Counterpart:
    """One of our families, with options that make it equal a peer.

    `pairs`: our parameters -> the peer's. `*` stands for the place of a block, a layer for its weight and bias. An empty name marks what the peer
    lacks: ours is zero in the comparison. Shapes match except for dimensions of size one and flattening.
    `removed`: modules of the peer that our model lacks; the identity replaces them in the comparison, but not when timed.
    `pixels_first`: whether the peer's patches run over pixels first, then channels.
    `differences`: the remaining differences in words, for readers of the timings.
    """

    family: str
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    pairs: Mapping[str, str]
    removed: tuple[str, ...] = ()
    pixels_first: bool = False
    differences: str = ""

    def theirs(self, name: str) -> str:
        """Return the peer's name of our parameter; empty if the peer lacks it. Raises ValueError if `pairs` does not say."""
        place = re.match(r"blocks\.(\d+)", name)
        general = name.replace(place[0], "blocks.*", 1) if place else name
        layer, _, part = general.rpartition(".")
        if general not in self.pairs and layer not in self.pairs:
            raise ValueError(f"weights cannot be copied: {name} has no counterpart")
        found = self.pairs[general] if general in self.pairs else f"{self.pairs[layer]}.{part}"
        return found.replace("*", place[1]) if place else found

    def as_theirs(self, tensor: Tensor, name: str, channels: int) -> Tensor:
        """Convert our parameter or its gradient to the peer's order of pixels and channels."""
        if not (self.pixels_first and name == PROJECTION):
            return tensor
        columns: Tensor = tensor.unflatten(1, (channels, -1))
        return columns.transpose(1, 2).flatten(1)


def copy_weights(model: nn.Module, peer: nn.Module, counterpart: Counterpart, channels: int) -> None:
    """Copy our weights to the peer, after taking over its epsilons and leaving out what only one side has.

    Raises ValueError if a parameter of either model has no counterpart: equal outputs would then be a coincidence.
    """
    for path in counterpart.removed:
        owner, _, name = path.rpartition(".")
        setattr(peer.get_submodule(owner), name, nn.Identity())
    ours, others = dict(model.named_parameters()), dict(peer.named_parameters())
    pairs = {name: counterpart.theirs(name) for name in ours}
    if unpaired := set(filter(None, pairs.values())) ^ set(others):
        raise ValueError(f"weights cannot be copied: {min(unpaired)} has no counterpart")
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm):
            norm: Any = peer.get_submodule(pairs[f"{name}.weight"].removesuffix(".weight"))
            module.eps = norm.eps
    with torch.no_grad():
        for name, other in pairs.items():
            if other:
                others[other].copy_(counterpart.as_theirs(ours[name], name, channels).reshape(others[other].shape))
            else:
                ours[name].zero_()


def redraw(model: nn.Module) -> None:
    """Redraw every parameter at random, so that no output is trivially equal.

    Fresh models often answer zero, because their heads start at zero, or barely mix tokens. Norms are drawn around one; spatial weights and head are
    small, so that the signal neither vanishes nor explodes over the depth.
    """
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.normal_(mean=1.0, std=0.1)
            elif "gating.weights" in name:
                parameter.normal_(std=min(GATE_STD, parameter.shape[-1] ** -0.5))
            elif "gating.biases" in name:
                parameter.normal_(mean=1.0, std=0.1)
            elif name.endswith("bias") or name.startswith("head"):
                parameter.normal_(std=0.02)
            else:
                parameter.normal_(std=parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 0.5)

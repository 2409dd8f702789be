"""Map a peer to our model that computes the same; copy weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

TORCH_EPSILON, VISION_EPSILON = 1e-5, 1e-6
"""LayerNorm epsilons of torch and of most vision libraries.

Our families use torch's default.
"""
PROJECTION = "embedding.project.weight"
GATE_STD = 0.05


@dataclass(frozen=True, kw_only=True)
class Counterpart:
    """One of our families, with options that make it equal a peer.

    `pairs`: function of the depth: our parameter names -> the peer's. Shapes match except for dimensions of size one and flattening.
    `epsilon`: epsilon of our LayerNorms in the comparison, except those with `epsilon_except` in their name.
    `absent`: endings of our parameters that the peer lacks; they are zero in the comparison.
    `removed`: modules of the peer that our model lacks; the identity replaces them in the comparison, but not when timed.
    `pixels_first`: whether the peer's patches run over pixels first, then channels.
    `differences`: the remaining differences in words, for readers of the timings.
    """

    family: str
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    pairs: Callable[[int], Mapping[str, str]]
    epsilon: float = TORCH_EPSILON
    epsilon_except: str = ""
    absent: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    pixels_first: bool = False
    differences: str = ""


def prepare_ours(model: nn.Module, counterpart: Counterpart) -> None:
    """Set the peer's epsilon; zero parameters that the peer lacks."""
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm) and not (counterpart.epsilon_except and counterpart.epsilon_except in name):
            module.eps = counterpart.epsilon
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(counterpart.absent):
                parameter.zero_()


def prepare_peer(peer: nn.Module, counterpart: Counterpart) -> None:
    for path in counterpart.removed:
        owner, _, name = path.rpartition(".")
        setattr(peer.get_submodule(owner), name, nn.Identity())


def copy_weights(model: nn.Module, peer: nn.Module, counterpart: Counterpart, depth: int, channels: int) -> None:
    """Copy our weights to the peer.

    Raises ValueError if a parameter of either model has no counterpart: equal outputs would then be a coincidence.
    """
    ours, theirs = dict(model.named_parameters()), dict(peer.named_parameters())
    pairs = counterpart.pairs(depth)
    kept = {name for name in ours if not name.endswith(counterpart.absent)}
    if kept != set(pairs) or sorted(theirs) != sorted(pairs.values()):
        unpaired = sorted((kept ^ set(pairs)) | (set(theirs) ^ set(pairs.values())))
        raise ValueError(f"weights cannot be copied: {unpaired[0]} has no counterpart")
    with torch.no_grad():
        for name, other in pairs.items():
            theirs[other].copy_(as_theirs(ours[name], name, counterpart, channels).reshape(theirs[other].shape))


def as_theirs(tensor: Tensor, name: str, counterpart: Counterpart, channels: int) -> Tensor:
    """Convert our parameter to the peer's order of pixels and channels.

    Gradients are converted the same way.
    """
    if not (counterpart.pixels_first and name == PROJECTION):
        return tensor
    columns: Tensor = tensor.unflatten(1, (channels, -1))
    return columns.transpose(1, 2).flatten(1)


def redraw(model: nn.Module, seed: int = 0) -> None:
    """Redraw every parameter at random, so that no output is trivially equal.

    Fresh models often answer zero, because their heads start at zero, or barely mix tokens. Norms are drawn around one; spatial weights and head are
    small, so that the signal neither vanishes nor explodes over the depth.
    """
    torch.manual_seed(seed)
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

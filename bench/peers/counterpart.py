"""Which of our models computes what another person's computes, and how weights go over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

TORCH_EPSILON, VISION_EPSILON = 1e-5, 1e-6
"""Added to the variance in a LayerNorm: torch's default, which the families have, and that of most vision libraries."""
PROJECTION = "embedding.project.weight"
GATE_STD = 0.05


@dataclass(frozen=True, kw_only=True)
class Counterpart:
    """One of our families, with the options that make it the peer.

    pairs: from the depth, our parameters -> the peer's; of equal shape but for dimensions of size one and flattening. `absent`: endings of our
    parameters that the peer does not have, which are zero in the comparison. `left_out`: modules of the peer that ours does not have, replaced by
    identity in the comparison alone. `epsilon`: of our LayerNorms, all but those with `epsilon_but` in their name. `pixels_first`: whether a patch of
    the peer's runs over pixels first, then channels. `differences`: the same in words, for what is measured beside each other all the same.
    """

    family: str
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    pairs: Callable[[int], Mapping[str, str]]
    epsilon: float = TORCH_EPSILON
    epsilon_but: str = ""
    absent: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    pixels_first: bool = False
    differences: str = ""


def prepare_ours(model: nn.Module, counterpart: Counterpart) -> None:
    """Bring our model to what the peer can compute: its epsilon, and zero where it has no parameter."""
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm) and not (counterpart.epsilon_but and counterpart.epsilon_but in name):
            module.eps = counterpart.epsilon
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(counterpart.absent):
                parameter.zero_()


def prepare_peer(peer: nn.Module, counterpart: Counterpart) -> None:
    for path in counterpart.left_out:
        owner, _, name = path.rpartition(".")
        setattr(peer.get_submodule(owner), name, nn.Identity())


def copy_weights(model: nn.Module, peer: nn.Module, counterpart: Counterpart, depth: int, channels: int) -> None:
    """Ours to the peer. Raises ValueError where a parameter of either is left over: equal answers would then be luck."""
    ours, theirs = dict(model.named_parameters()), dict(peer.named_parameters())
    pairs = counterpart.pairs(depth)
    kept = {name for name in ours if not name.endswith(counterpart.absent)}
    if kept != set(pairs) or sorted(theirs) != sorted(pairs.values()):
        strays = sorted((kept ^ set(pairs)) | (set(theirs) ^ set(pairs.values())))
        raise ValueError(f"weights cannot be copied: {strays[0]} has no counterpart")
    with torch.no_grad():
        for name, other in pairs.items():
            theirs[other].copy_(as_theirs(ours[name], name, counterpart, channels).reshape(theirs[other].shape))


def as_theirs(tensor: Tensor, name: str, counterpart: Counterpart, channels: int) -> Tensor:
    """Our parameter, or its gradient, in the peer's order of pixels and channels."""
    if not (counterpart.pixels_first and name == PROJECTION):
        return tensor
    columns: Tensor = tensor.unflatten(1, (channels, -1))
    return columns.transpose(1, 2).flatten(1)


def redraw(model: nn.Module, seed: int = 0) -> None:
    """Every parameter anew: norms around one, spatial weights and head small, so that the signal neither dies nor explodes over the depth.

    Fresh models often answer zero (their heads start there) or barely mix tokens, and would agree for that reason alone.
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

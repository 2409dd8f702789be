"""One model against another person's implementation of it: the same weights and images in, the same logits and gradients out.

Fresh peers often answer zero (their heads start at zero) or barely mix tokens: every parameter is drawn anew first, and the logits are checked
to vary and to depend on every token, so that zeros are never compared with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from bench.peers.counterpart import redraw
from tests.contracts.checks import assert_close_to_largest

OUTPUT_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Logits and gradients of our model and of its peer on the same images; gradients by our names, in our shapes."""

    logits: Tensor
    peer_logits: Tensor
    patch_gradient: Tensor
    gradients: dict[str, Tensor]
    peer_gradients: dict[str, Tensor]


def cut(images: Tensor, side: int) -> Tensor:
    """`(batch, channels, height, width)` -> `(batch, patches, channels x side x side)`, in the order of a convolution's weight."""
    return rearrange(images, "b c (h p) (w q) -> b (h w) (c p q)", p=side, q=side)


def use_epsilon(model: nn.Module, value: float, *, but: str = "never") -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm) and but not in name:
            module.eps = value


def copy_weights(model: nn.Module, peer: nn.Module, pairs: dict[str, str]) -> None:
    """`pairs`: our name -> the peer's. Every parameter of both is named once; shapes may differ by dimensions of size one or by flattening."""
    ours, theirs = dict(model.named_parameters()), dict(peer.named_parameters())
    assert set(pairs) == set(ours)
    assert sorted(pairs.values()) == sorted(theirs)
    with torch.no_grad():
        for name, peer_name in pairs.items():
            theirs[peer_name].copy_(ours[name].reshape(theirs[peer_name].shape))


def compare(model: nn.Module, peer: nn.Module, pairs: dict[str, str], data: Tensor, peer_data: Tensor) -> Comparison:
    """Copies the weights to the peer, runs both forward and backward from the same upstream gradient."""
    redraw(model)
    copy_weights(model, peer, pairs)
    model.eval(), peer.eval()
    data.requires_grad_()
    logits, peer_logits = model(data), peer(peer_data)
    upstream = torch.randn_like(logits)
    logits.backward(upstream)
    peer_logits.backward(upstream)
    theirs = dict(peer.named_parameters())
    assert data.grad is not None
    return Comparison(
        logits=logits.detach(),
        peer_logits=peer_logits.detach(),
        patch_gradient=data.grad,
        gradients={name: gradient(parameter) for name, parameter in model.named_parameters()},
        peer_gradients={name: gradient(theirs[pairs[name]]).reshape(parameter.shape) for name, parameter in model.named_parameters()},
    )


def gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def assert_equal(found: Comparison) -> None:
    assert found.logits.std(dim=1).min() > 0.01, "the logits are constant over classes"
    assert (found.logits[0] - found.logits[1]).abs().max() > 0.01, "the logits are constant over images"
    assert found.patch_gradient.abs().amax(dim=-1).min() > 0, "the logits do not depend on every patch"
    assert_close_to_largest(found.logits, found.peer_logits, OUTPUT_TOLERANCE, "logits")
    for name, expected in found.peer_gradients.items():
        assert_close_to_largest(found.gradients[name], expected, GRADIENT_TOLERANCE, name)

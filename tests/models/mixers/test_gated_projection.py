"""Gated projection: the block of gMLP without norm and residual, as a mixer that keeps the width."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import gmlp
from models.layers.shape import Shape
from models.mixers import spatial_gating
from models.mixers.gated_projection import Config, GatedProjection, build, cost
from models.mixers.spatial_gating import KERNELS
from tests.contracts.checks import assert_close_to_largest, randomise

N, WIDTH = 9, 8


def mixer(**options: Any) -> GatedProjection:
    module = build(Config(seq_len=N, width=WIDTH, **options)).double()
    torch.manual_seed(0)
    randomise(module, std=0.5)
    return module


def drawn() -> Tensor:
    return torch.randn(3, N, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("heads", [1, 4])
@torch.no_grad()
def test_it_is_its_formula(heads: int) -> None:
    module, tokens = mixer(spatial_heads=heads), drawn()
    hidden = tokens @ module.expand.weight.T + module.expand.bias
    u, v = (0.5 * hidden * (1 + torch.erf(hidden / 2**0.5))).chunk(2, dim=-1)
    norm = module.gating.norm
    assert isinstance(norm, nn.LayerNorm)
    v = F.layer_norm(v, (WIDTH,), norm.weight, norm.bias)
    mixed = [
        torch.einsum("ij,bjc->bic", weight, part) + bias[:, None]
        for weight, bias, part in zip(module.gating.weights, module.gating.biases, v.chunk(heads, dim=-1), strict=True)
    ]
    expected = (u * torch.cat(mixed, dim=-1)) @ module.contract.weight.T + module.contract.bias
    assert_close_to_largest(module(tokens), expected, 1e-12)


@torch.no_grad()
def test_between_norm_and_residual_it_is_a_block_of_gmlp() -> None:
    shape = Shape(seq_len=N, width=WIDTH, depth=1, heads=1, ffn_width=2 * WIDTH)
    block = gmlp.GatedBlock(gmlp.Config(shape=shape)).double()
    module, tokens = mixer(), drawn()
    norm = {f"norm.{name}": value for name, value in block.norm.state_dict().items()}
    block.load_state_dict(module.state_dict() | norm)
    assert_close_to_largest(module(block.norm(tokens)), block(tokens) - tokens, 1e-12)


@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
@torch.no_grad()
def test_every_kernel_answers_the_same(kernel: str) -> None:
    assert_close_to_largest(mixer(kernel=kernel, spatial_heads=2)(drawn()), mixer(kernel="linear", spatial_heads=2)(drawn()), 1e-12)


def test_cost_by_hand() -> None:
    closed = cost(Config(seq_len=N, width=WIDTH, spatial_heads=2))
    assert closed.macs().coefficients == (0, 3 * WIDTH**2, WIDTH)
    assert closed.params_seq().at(N) == 2 * (N * N + N)
    assert closed.params().at(0) == (2 * WIDTH**2 + 2 * WIDTH) + 2 * WIDTH + (WIDTH**2 + WIDTH)


@pytest.mark.parametrize("options", [{"toeplitz": True}, {"toeplitz": True, "kernel": "fft"}, {"rank": 3}, {"rank": 3, "kernel": "matmul"}])
@torch.no_grad()
def test_the_form_of_its_matrices_is_that_of_the_gate(options: dict[str, Any]) -> None:
    module, tokens, heads = mixer(spatial_heads=2, **options), drawn(), 2
    gate = spatial_gating.build(spatial_gating.Config(seq_len=N, width=2 * WIDTH, heads=heads, **options)).double()
    gate.load_state_dict(module.gating.state_dict())
    assert_close_to_largest(module(tokens), module.contract(gate(F.gelu(module.expand(tokens)))), 1e-12)
    assert cost(Config(seq_len=N, width=WIDTH, spatial_heads=heads, **options)).macs().degree(2) == (
        0 if options.get("rank") or options.get("kernel") == "fft" else WIDTH
    )


def test_one_module_says_how_tokens_are_weighed() -> None:
    module = mixer(spatial_heads=2)
    (weighing,) = [part for part in module.modules() if hasattr(part, "token_weights")]
    assert weighing is module.gating
    assert torch.equal(weighing.token_weights(drawn()), torch.stack(list(module.gating.weights)))


def test_a_fresh_one_mixes_next_to_nothing() -> None:
    module, tokens = build(Config(seq_len=N, width=WIDTH)), torch.randn(1, N, WIDTH)
    other = tokens.clone()
    other[:, 0] += 1.0
    change = (module(other) - module(tokens)).abs()
    assert change[:, 0].max() > 0.01
    assert change[:, 1:].max() < 1e-4


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"spatial_heads": 3}, "width must be a multiple of spatial_heads: 8"),
        ({"spatial_heads": 0}, "spatial_heads must be a positive whole number"),
        ({"kernel": "fft"}, "kernel=fft needs toeplitz=true"),
        ({"rank": 2, "toeplitz": True}, "rank must be 0 with toeplitz=true"),
        ({"kernel": "slow"}, "kernel must be one of auto, linear"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(seq_len=N, width=WIDTH, **options)

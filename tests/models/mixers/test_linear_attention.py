"""Linear attention where numbers are hard: long sequences, features that underflow, and sums of states in half precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.contracts.architectures import assert_close_to_largest, randomise
from models.mixers.linear_attention import FLOOR, Config, LinearAttention, build

WIDTH, HEADS, BATCH = 8, 2, 3
over_directions = pytest.mark.parametrize("causal", [False, True])


def mixer(*, n: int = 11, std: float = 0.5, **options: Any) -> LinearAttention:
    """In float64, with weights that all matter."""
    module = build(Config(seq_len=n, width=WIDTH, heads=HEADS, **options)).double()
    torch.manual_seed(0)
    randomise(module, std=std)
    return module


def drawn_tokens(n: int = 11, *, batch: int = BATCH) -> Tensor:
    return torch.randn(batch, n, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@over_directions
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_long_sequences_and_large_values_answer_as_in_64_bits(causal: bool, scale: float) -> None:
    """Compared where a query has a positive channel: elu(x) + 1 of x < -17 is zero in 32 bits. The other answers are finite."""
    n = 2053
    module, tokens = mixer(n=n, std=0.2, causal=causal, chunk=4), drawn_tokens(n, batch=1) * scale
    with torch.no_grad():
        expected = module(tokens)
        compared = (module.qkv(tokens)[..., :WIDTH].unflatten(-1, (HEADS, -1)).amax(dim=-1) > 0).all(dim=-1)
        found = module.float()(tokens.float())
    assert compared.float().mean() > 0.8
    assert found.isfinite().all()
    assert_close_to_largest(found[compared].double(), expected[compared], 1e-4)


@over_directions
def test_features_that_underflow_answer_nothing_and_leave_gradients_finite(causal: bool) -> None:
    module, tokens = mixer(causal=causal, chunk=4).float(), drawn_tokens().float().requires_grad_()
    with torch.no_grad():
        module.qkv.bias[: 2 * WIDTH] = -200.0
    found = module(tokens)
    assert torch.equal(found, module.project.bias.expand_as(found))
    found.square().sum().backward()
    assert tokens.grad is not None
    assert tokens.grad.isfinite().all()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in module.parameters())


@over_directions
def test_weights_are_divided_by_their_sum_down_to_the_floor(causal: bool) -> None:
    """With features of exp(-7) in each of 4 channels, one pair weighs 4 exp(-14), just above the floor; of exp(-8), below it."""
    module, tokens = mixer(n=1, causal=causal), drawn_tokens(1)
    with torch.no_grad():
        module.qkv.weight[: 2 * WIDTH] = 0.0
        value = module.qkv(tokens)[..., 2 * WIDTH :]
        for exponent, share in ((-7.0, 1.0), (-8.0, 4 * torch.tensor(-16.0).double().exp().item() / FLOOR)):
            module.qkv.bias[: 2 * WIDTH] = exponent
            assert share <= 1
            assert_close_to_largest(module(tokens), module.project(share * value), 1e-10)


@pytest.mark.parametrize(
    ("dtype", "sums"), [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)]
)
def test_states_are_summed_in_at_least_32_bits(dtype: torch.dtype, sums: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CPU torch sums bf16 in 32 bits by itself, so that answers would not tell."""
    add, found = torch.Tensor.cumsum, []

    def watched(states: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        found.append(dtype)
        return add(states, dim, dtype=dtype)

    monkeypatch.setattr(torch.Tensor, "cumsum", watched)
    assert mixer(causal=True, chunk=4).to(dtype)(drawn_tokens().to(dtype)).dtype == dtype
    assert found == [sums, sums]

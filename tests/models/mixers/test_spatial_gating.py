"""Spatial gating: what fresh weights are, which kernel `auto` takes, and what cannot be built."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from models.mixers import gated_projection, spatial_gating
from models.mixers.spatial_gating import WEIGHT_STDS, Config, build, fastest_kernel

N, WIDTH = 7, 16


@pytest.mark.parametrize(
    ("dtype", "trains", "n", "chosen"),
    [
        (torch.float32, False, 99, "baddbmm"),
        (torch.float32, True, 8, "baddbmm"),
        (torch.float32, True, 9, "conv1d"),
        (torch.bfloat16, False, 8, "baddbmm"),
        (torch.bfloat16, False, 9, "einsum"),
        (torch.bfloat16, True, 9, "einsum"),
    ],
)
def test_on_a_cpu_auto_takes_the_batched_product_unless_it_would_hold_a_matrix_per_sample(
    dtype: torch.dtype, trains: bool, n: int, chosen: str
) -> None:
    module, tokens = build(Config(seq_len=n, width=16)), torch.randn(3, n, 16)
    with torch.set_grad_enabled(trains):
        assert module.to(dtype).effective_kernel(tokens.to(dtype)) == chosen
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            assert module.float().effective_kernel(tokens) == chosen


@pytest.mark.parametrize("training", [False, True])
def test_on_a_gpu_the_gate_is_one_batched_product(training: bool) -> None:
    assert fastest_kernel(device_type="cuda", fp32=False, training=training, n=4097, channels=1152) == "baddbmm"


@pytest.mark.parametrize(("name", "std"), [*WEIGHT_STDS.items(), ("uniform", 0.05 / 3**0.5), ("default", (3 * 512) ** -0.5)])
@pytest.mark.parametrize("options", [{}, {"rank": 64}])
def test_entries_of_a_fresh_matrix_have_the_deviation_asked_for(name: str, std: float, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = build(Config(seq_len=512, width=2, weight_init=name, **options))
    weights = module.token_weights(torch.empty(1, 512, 2))
    assert weights.std().item() == pytest.approx(std, rel=0.15 if options else 0.02)
    assert weights.mean().abs().item() < 0.06 * std
    if options:
        assert module.inner_weights[0].std().item() == pytest.approx(512**-0.5, rel=0.1)


@pytest.mark.parametrize(
    "options", [{}, {"heads": 2}, {"heads": 3, "head_mix": "mean"}, {"toeplitz": True}, {"toeplitz": True, "kernel": "fft"}], ids=str
)
def test_a_causal_gate_adds_up_what_came_before(options: dict[str, Any]) -> None:
    """Token by token, from the matrices of the same gate without `causal`."""
    torch.manual_seed(1)
    whole, module = (build(Config(seq_len=N, width=WIDTH, weight_init="0.05", causal=causal, **options)) for causal in (False, True))
    module.load_state_dict(whole.state_dict())
    v, matrices = torch.randn(2, N, module.channels), whole.token_weights(torch.empty(1, N, WIDTH))
    expected = torch.zeros_like(v)
    for channels, weights in zip(torch.arange(module.channels).chunk(len(matrices)), matrices, strict=True):
        for row in range(N):
            for column in range(row + 1):
                expected[:, row, channels] += weights[row, column] * v[:, column, channels]
    assert torch.allclose(module.mix_tokens(v), expected + 1, atol=1e-6)
    assert torch.equal(module.token_weights(v), matrices.tril())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [7, 8, 9])
def test_aligned_rows_change_no_product(dtype: torch.dtype, n: int) -> None:
    torch.manual_seed(2)
    v, weight, bias = torch.randn(2, n, 16, dtype=dtype), torch.randn(n, n, dtype=dtype), torch.randn(n, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        product = Mock(wraps=spatial_gating.KERNELS["baddbmm"])
        patch.setattr(spatial_gating, "_baddbmm", product)
        found = spatial_gating.KERNELS["aligned"](v, weight, bias)
    assert torch.equal(found, spatial_gating.KERNELS["baddbmm"](v, weight, bias))
    assert product.call_args.args[1].stride(0) * dtype.itemsize % 16 == 0


def test_under_autocast_aligned_rows_are_of_the_narrow_dtype() -> None:
    v, weight = torch.randn(2, 9, 16), torch.randn(9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = (spatial_gating.KERNELS[name](v, weight, torch.zeros(9)) for name in ("aligned", "baddbmm"))
    assert found.dtype == expected.dtype == torch.bfloat16
    assert torch.equal(found, expected)


def test_default_weights_are_those_of_a_fresh_linear_layer() -> None:
    torch.manual_seed(3)
    module = build(Config(seq_len=N, width=WIDTH, weight_init="default", bias_init=0))
    torch.manual_seed(3)
    assert torch.allclose(module.weights[0], nn.Linear(N, N).weight, rtol=1e-6)
    assert not module.biases[0].any()
    diagonals = build(Config(seq_len=1024, width=2, weight_init="default", toeplitz=True)).weights[0]
    assert 0.99 / 32 < diagonals.abs().max().item() <= 1 / 32


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"bias_init": 2}, "bias_init must be 0 or 1"),
        ({"bias_init": True}, "bias_init must be 0 or 1"),
        ({"kernel": "fft"}, "needs toeplitz=true"),
        ({"rank": 2, "toeplitz": True}, "rank must be 0 with toeplitz=true"),
        ({"rank": 2, "causal": True}, "rank must be 0 with causal=true"),
        ({"rank": N + 1}, "rank must be at most seq_len"),
        ({"heads": 3}, "ffn_width must be a multiple of 2 x spatial_heads"),
        ({"width": 15, "heads": 3, "head_mix": "mean"}, "ffn_width must be a multiple of 2"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(**{"seq_len": N, "width": WIDTH, **options})
    if "kernel" in options or "rank" in options:
        with pytest.raises(ValueError, match=rule):
            gated_projection.Config(**{"seq_len": N, "width": WIDTH, **options})


def test_heads_that_act_on_every_channel_need_not_divide_them() -> None:
    assert Config(seq_len=N, width=WIDTH, heads=3, head_mix="mean").channels == WIDTH // 2

"""Predicted times, by hand."""

from __future__ import annotations

import pytest
import torch

from models.kernels.predicted_time import predicted_seconds

BATCH, N, CHANNELS = 2, 4, 8
TOKENS_BYTES = 2 * 4 * 8 * 2
"""One bf16 tensor of all tokens and channels: 128 bytes."""


def seconds(*, fused: bool, flops_per_s: float = 1e30, bytes_per_s: float = 1e30) -> float:
    return predicted_seconds(BATCH, N, CHANNELS, torch.bfloat16, flops_per_s, bytes_per_s, fused=fused)


@pytest.mark.parametrize(
    ("fused", "num_bytes"),
    [
        # 128 for each pass over the tokens; W 16, b 4, scale and shift 8 entries each, of 2 bytes: 72; statistics of 8 tokens, 64 bytes a time
        (True, 4 * 128 + 72 + 2 * 64),
        (False, 7 * 128 + 72 + 64),
    ],
)
def test_where_memory_limits_it_is_the_bytes(fused: bool, num_bytes: int) -> None:
    assert TOKENS_BYTES == 128
    assert seconds(fused=fused, bytes_per_s=1.0) == pytest.approx(num_bytes)


@pytest.mark.parametrize("fused", [True, False])
def test_where_arithmetic_limits_it_is_the_product(fused: bool) -> None:
    assert seconds(fused=fused, flops_per_s=1.0) == pytest.approx(2 * 2 * 4 * 4 * 8)


def test_each_kernel_has_the_longer_of_the_two() -> None:
    """Statistics: 192 bytes. Product: 520 bytes, 512 FLOPs at 0.5 per second."""
    assert seconds(fused=True, bytes_per_s=1.0, flops_per_s=0.5) == pytest.approx(192 + 1024)


def test_fp32_moves_twice_the_entries() -> None:
    found = predicted_seconds(BATCH, N, CHANNELS, torch.float32, 1e30, 1.0)
    assert found == pytest.approx(2 * (4 * 128 + 72) + 2 * 64)

"""Long convolution: the scale of fresh filters, and filters in fp32 where the rest is narrower."""

from __future__ import annotations

import pytest
import torch

from bench.contracts.architectures import assert_close_to_largest
from models.mixers.long_convolution import KERNELS, Config, build


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [17, 257, 4097])
def test_fresh_filters_keep_the_scale_of_tokens_at_any_length(causal: bool, n: int) -> None:
    torch.manual_seed(0)
    taps = build(Config(seq_len=n, width=64, causal=causal)).filter()
    taps[:, 0 if causal else n - 1] -= 1  # the skip
    energy = taps.square().sum(dim=1)
    assert 0.1 < energy.mean().item() < 2
    assert energy.min().item() > 0.01


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("autocast", [False, True])
def test_filters_are_computed_in_fp32_where_the_rest_is_in_bf16(kernel: str, autocast: bool) -> None:
    torch.manual_seed(0)
    module = build(Config(seq_len=257, width=16, kernel=kernel))
    reference = module.filter()
    if not autocast:
        module = module.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        taps = module.filter()
    assert taps.dtype == torch.float32
    assert_close_to_largest(taps, reference, 1e-6 if autocast else 0.1)  # of weights in bf16

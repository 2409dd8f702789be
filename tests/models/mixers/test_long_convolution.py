"""Long convolution: what fresh filters are, filters of fewer tokens, and filters in fp32 where the rest is narrower."""

from __future__ import annotations

import pytest
import torch

from models.mixers.long_convolution import KERNELS, Config, build
from tests.contracts.checks import assert_close_to_largest

over_directions = pytest.mark.parametrize("causal", [False, True])


def test_fewer_tokens_take_the_inner_taps_with_the_stored_period() -> None:
    module, short, fresh = (build(Config(seq_len=n, width=6)) for n in (9, 5, 5))
    short.load_state_dict(module.state_dict())
    assert_close_to_largest(short.filter(), module.filter()[:, 4:13], 1e-6)
    assert not torch.allclose(fresh.filter(), short.filter())


@over_directions
@pytest.mark.parametrize("n", [17, 257, 4097])
def test_fresh_filters_keep_the_scale_of_tokens_at_any_length(causal: bool, n: int) -> None:
    torch.manual_seed(0)
    taps = build(Config(seq_len=n, width=64, causal=causal)).filter()
    taps[:, 0 if causal else n - 1] -= 1  # the skip
    energy = taps.square().sum(dim=1)
    assert 0.1 < energy.mean().item() < 2
    assert energy.min().item() > 0.01


@pytest.mark.parametrize("n", [65, 4097])
def test_a_fresh_mixer_answers_at_the_scale_of_its_input(n: int) -> None:
    torch.manual_seed(0)
    for scale in (1.0, 0.1):
        std = build(Config(seq_len=n, width=32))(scale * torch.randn(2, n, 32)).std().item()
        assert 0.01 * scale**3 < std < 10 * scale**3  # three factors are multiplied


@over_directions
def test_both_kernels_agree_where_numbers_are_large_and_sequences_long(causal: bool) -> None:
    torch.manual_seed(0)
    fft, dense = (build(Config(seq_len=1025, width=4, kernel=kernel, causal=causal)) for kernel in ("fft", "products"))
    dense.load_state_dict(fft.state_dict())
    tokens = 1e3 * torch.randn(1, 1025, 4)
    tokens[:, 300:600] = tokens[:, :1]
    assert_close_to_largest(fft(tokens), dense(tokens), 1e-4)


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

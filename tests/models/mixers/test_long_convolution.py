"""Long convolution: the operator tap by tap and token by token, in both directions and formulations, and what fresh filters are."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from models.layers.cost import N as TOKENS
from models.layers.cost import real_fft_flops
from models.layers.fft_convolution import fft_length
from models.mixers.long_convolution import FASTEST, KERNELS, NUM_FEATURES, SLOWEST, Config, ImplicitFilter, LongConvolution, build, cost
from tests.contracts.checks import assert_close_to_largest, randomise

N, WIDTH, HIDDEN = 9, 6, 5
over_directions = pytest.mark.parametrize("causal", [False, True])
over_kernels = pytest.mark.parametrize("kernel", KERNELS)


def mixer(*, n: int = N, **options: Any) -> LongConvolution:
    """In float64, all weights redrawn."""
    module = build(Config(seq_len=n, width=WIDTH, filter_width=HIDDEN, **options)).double()
    torch.manual_seed(0)
    randomise(module, std=0.3)
    return module


def drawn(n: int = N, batch: int = 2) -> Tensor:
    return torch.randn(batch, n, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def tap(net: ImplicitFilter, distance: int, n: int) -> Tensor:
    """`(width,)`: window x network of the features of one distance, plus the skip at zero (arXiv 2302.10866, Sec. 3.3)."""
    t = torch.tensor(distance / n, dtype=torch.float64)
    hidden = torch.stack([t, *((2 * math.pi * k * t).cos() for k in range(1, 17)), *((2 * math.pi * k * t).sin() for k in range(1, 17))])
    for layer in (net.expand, net.inner):
        hidden = torch.sin(10 * (layer.weight @ hidden + layer.bias))
    found = net.contract.weight @ hidden
    windows = []
    for channel in range(WIDTH):
        reach = FASTEST + (SLOWEST - FASTEST) * channel / (WIDTH - 1)
        decay = math.log(100) / reach / n
        squares = [math.exp(-2 * decay * place) for place in range(100 * n)]
        energy = sum(squares) if net.causal else 2 * sum(squares) - 1
        windows.append(math.exp(-decay * abs(distance)) / energy**0.5)
    return found * torch.tensor(windows, dtype=torch.float64) + (net.skip if distance == 0 else 0)


def neighbours(tokens: Tensor, module: LongConvolution, *, causal: bool) -> Tensor:
    """The short convolution, token by token, of `(n, channels)`."""
    first = -2 if causal else -1
    rows = []
    for i in range(len(tokens)):
        read = [(k, i + first + k) for k in range(3) if 0 <= i + first + k < len(tokens)]
        rows.append(module.short.bias + torch.stack([module.short.weight[:, k] * tokens[place] for k, place in read]).sum(dim=0))
    return torch.stack(rows)


def by_formula(module: LongConvolution, tokens: Tensor, *, period: int | None = None) -> Tensor:
    """`(n, width)`, one item."""
    n, causal = len(tokens), module.filter.causal
    projected = tokens @ module.expand.weight.T + module.expand.bias
    x1, x2, v = neighbours(projected, module, causal=causal).chunk(3, dim=-1)
    v = x1 * v
    taps = {distance: tap(module.filter, distance, period or n) for distance in range(1 - n, n)}
    mixed = [torch.stack([taps[i - j] * v[j] for j in range(n) if j <= i or not causal]).sum(dim=0) for i in range(n)]
    return (x2 * torch.stack(mixed)) @ module.contract.weight.T + module.contract.bias


@over_directions
@over_kernels
@pytest.mark.parametrize("convolution", ["native", "products"])
@pytest.mark.parametrize("n", [1, 2, N, 17])
def test_it_is_its_formula_in_outputs_and_gradients(causal: bool, kernel: str, convolution: str, n: int) -> None:
    module, tokens = mixer(n=n, causal=causal, kernel=kernel, convolution=convolution), drawn(n).requires_grad_()
    found, expected = module(tokens), torch.stack([by_formula(module, item) for item in tokens])
    assert_close_to_largest(found, expected, 1e-11)
    inputs = [tokens, *(parameter for name, parameter in module.named_parameters())]
    upstream = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(answer, inputs, upstream, allow_unused=True) for answer in (found, expected))
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one is not None
        assert other is not None
        if n > 1:  # a single token leaves some weights without effect
            assert_close_to_largest(one, other, 1e-9, str(place))


@over_directions
@over_kernels
def test_padding_anywhere_is_as_zeros_between_the_projections_and_the_convolutions(causal: bool, kernel: str) -> None:
    module, tokens = mixer(causal=causal, kernel=kernel), drawn()
    valid = torch.ones(2, N, dtype=torch.bool)
    valid[0, 3], valid[0, 7:] = False, False
    junk = tokens.masked_fill(~valid[..., None], float("nan"))
    found = module(junk, valid)
    projected = (tokens @ module.expand.weight.T + module.expand.bias).masked_fill(~valid[..., None], 0)
    x1, x2, v = torch.stack([neighbours(item, module, causal=causal) for item in projected]).chunk(3, dim=-1)
    v = (x1 * v).masked_fill(~valid[..., None], 0)
    taps = {distance: tap(module.filter, distance, N) for distance in range(1 - N, N)}
    mixed = [torch.stack([taps[i - j] * v[:, j] for j in range(N) if j <= i or not causal]).sum(dim=0) for i in range(N)]
    expected = (x2 * torch.stack(mixed, dim=1)) @ module.contract.weight.T + module.contract.bias
    assert_close_to_largest(found[valid], expected[valid], 1e-11)
    parameters = list(module.parameters())
    for ours, theirs in zip(*(torch.autograd.grad(answer[valid].sum(), parameters) for answer in (found, expected)), strict=True):
        assert_close_to_largest(ours, theirs, 1e-10)


@over_directions
@torch.no_grad()
def test_an_item_padded_at_its_end_answers_as_it_does_alone(causal: bool) -> None:
    module, tokens = mixer(causal=causal), drawn(batch=1)
    valid = torch.arange(N)[None] < 5
    assert_close_to_largest(module(tokens, valid)[0, :5], by_formula(module, tokens[0, :5], period=N), 1e-11)


@over_kernels
@pytest.mark.parametrize("place", [1, 4, N - 1])
@torch.no_grad()
def test_a_later_token_reaches_an_earlier_one_unless_causal(kernel: str, place: int) -> None:
    tokens = drawn(batch=1)
    other = tokens.clone()
    other[:, place] += 1
    for causal in (False, True):
        module = mixer(causal=causal, kernel=kernel)
        answers = module(tokens)
        changed = ((module(other) - answers).abs() > 1e-13 * answers.abs().max()).any(dim=-1)[0]
        assert changed[place:].all()
        assert bool(changed[:place].any()) is not causal


def test_fewer_tokens_take_the_inner_taps_with_the_stored_period() -> None:
    module, short = mixer(), mixer(n=5)
    short.load_state_dict(module.state_dict())
    assert_close_to_largest(short.filter(), module.filter()[:, N - 5 : N + 4], 1e-12)
    fresh = mixer(n=5)
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


@over_kernels
@pytest.mark.parametrize("autocast", [False, True])
def test_filters_are_computed_in_fp32_where_the_rest_is_in_bf16(kernel: str, autocast: bool) -> None:
    torch.manual_seed(0)
    module = build(Config(seq_len=257, width=16, kernel=kernel))
    reference, expected = module.filter(), module(tokens := torch.randn(2, 257, 16))
    if not autocast:
        module = module.bfloat16()
        assert module.filter().dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        taps, found = module.filter(), module(tokens if autocast else tokens.bfloat16())
    assert_close_to_largest(taps, reference, 1e-6 if autocast else 0.1)  # of weights in bf16
    assert_close_to_largest(found.float(), expected, 0.1)


def test_cost_by_hand() -> None:
    d, w, n = 8, 5, 257
    both, causal, dense = (
        cost(Config(seq_len=n, width=d, filter_width=w, **options)) for options in ({}, {"causal": True}, {"kernel": "products"})
    )
    per_tap, per_token = NUM_FEATURES * w + w * w + w * d, 3 * d * d + 3 * 3 * d + d * d
    assert both.macs().at(n) == n * per_token + (2 * n - 1) * per_tap
    assert causal.macs().at(n) == n * per_token + n * per_tap
    assert dense.macs() + TOKENS * TOKENS * (-d) == both.macs()
    ffts = 3 * d * real_fft_flops(540)
    assert fft_length(n) == 540
    assert (both.fft_flops(), causal.fft_flops(), dense.fft_flops()) == (ffts, ffts, 0)
    assert both.params() == causal.params() == dense.params()
    network = NUM_FEATURES * w + w + w * w + w + w * d + d
    assert both.params().at(n) == (3 * d * d + 3 * d) + (3 * 3 * d + 3 * d) + network + (d * d + d)
    assert both.macs().degree(2) == 0


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"filter_width": 0}, "filter_width must be a positive whole number"),
        ({"kernel": "direct"}, "kernel must be one of fft, products"),
        ({"convolution": "fast"}, "convolution must be one of native, products"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(seq_len=N, width=WIDTH, **options)

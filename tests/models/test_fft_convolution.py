"""Convolution by FFT: the sum of its definition, a backward in real FFTs, half types, and lengths that libraries take in few steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bench.contracts.architectures import assert_close_to_largest
from bench.flop_counter import count_train_with_torch
from models.layers.cost import real_fft_flops
from models.layers.fft_convolution import convolve_by_fft, convolve_by_products, fft_length
from tests.contracts import references


def by_definition(signals: Tensor, taps: Tensor) -> Tensor:
    """y_i = the sum over j of taps[i - j] signals_j, token by token; the references count taps from the earliest token on."""
    earliest_first, bias = taps.flip(-1), taps.new_zeros(len(taps))
    return torch.stack([references.taps(item.T, earliest_first, bias, 1 - signals.shape[-1]).T for item in signals])


@pytest.mark.parametrize("convolve", [convolve_by_fft, convolve_by_products])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 16, 33])
def test_it_is_the_sum_over_all_tokens_in_outputs_and_gradients(convolve: Callable[[Tensor, Tensor], Tensor], causal: bool, n: int) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(*sizes).double().requires_grad_() for sizes in ((2, 3, n), (3, n if causal else 2 * n - 1))]
    upstream = torch.randn(2, 3, n).double()
    found, expected = (function(*inputs) for function in (convolve, by_definition))
    assert_close_to_largest(found, expected, 1e-12)
    for ours, theirs in zip(torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream), strict=True):
        assert_close_to_largest(ours, theirs, 1e-12)


class Convolving(nn.Module):
    """`(batch, channels, n)` -> `(batch, channels)`, with fixed taps or with taps to learn."""

    def __init__(self, *, learns: bool) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.randn(3, 17), requires_grad=learns)

    def forward(self, signals: Tensor) -> Tensor:
        return convolve_by_fft(signals, self.taps).sum(dim=-1)


@pytest.mark.parametrize(("needed", "rows"), [((True, False), 2 * 3), ((False, True), 3), ((True, True), 2 * 3 + 3)])
def test_the_backward_takes_real_ffts_and_only_those_of_gradients_asked_for(needed: tuple[bool, bool], rows: int) -> None:
    signals = torch.randn(2, 3, 9, requires_grad=needed[0])
    forward = 2 * 3 + 3 + 2 * 3
    assert count_train_with_torch(Convolving(learns=needed[1]), signals).ffts == {18: forward + 2 * 3 + rows}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_convolved_in_fp32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    signals, taps = torch.randn(2, 3, 1025).to(dtype).requires_grad_(), torch.randn(3, 2049).to(dtype).requires_grad_()
    found, expected = convolve_by_fft(signals, taps), convolve_by_fft(signals.float(), taps.float())
    assert torch.equal(found, expected.to(dtype))
    found.sum().backward()
    assert signals.grad is not None
    assert signals.grad.dtype == dtype


def test_large_values_and_long_sequences_stay_as_exact_as_fp32_is() -> None:
    torch.manual_seed(0)
    signals, taps = torch.randn(1, 2, 16_385) * 1e6, torch.randn(2, 2 * 16_385 - 1)
    assert_close_to_largest(convolve_by_fft(signals, taps).double(), convolve_by_fft(signals.double(), taps.double()), 1e-5)


def test_a_length_is_the_next_even_one_of_small_factors_that_holds_both_sides() -> None:
    for n in (*range(1, 200), 257, 1025, 4097, 65_537):
        fitting = [other for other in range(2 * n - 1, fft_length(n) + 1) if other % 2 == 0 and 30 ** other.bit_length() % other == 0]
        assert fitting == [fft_length(n)]
    assert [fft_length(2**k + 1) for k in (6, 8, 10, 12, 16)] == [144, 540, 2160, 8640, 131_220]  # never near to doubling


@pytest.mark.parametrize(("length", "flops"), [(0, 0), (1, 0), (2, 5), (8, 60), (36, 465), (1024, 25_600)])
def test_flops_of_a_real_fft_by_hand(length: int, flops: int) -> None:
    assert real_fft_flops(length) == flops
    assert length < 2 or flops == round(2.5 * length * math.log2(length))

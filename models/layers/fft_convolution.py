"""Convolve channels with filters as long as the sequence, by FFT, in n log n.

A dense product with the same Toeplitz matrices is the plain form. Fu et al., arXiv 2212.14052 (H3); Poli et al., arXiv 2302.10866 (Hyena),
Sec. 2.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

FACTORS = (2, 3, 5)
"""Prime factors of a length that FFT libraries take in few steps."""


def fft_length(seq_len: int) -> int:
    """Return the length of the transforms for `seq_len` tokens.

    A circular convolution of 2 n - 1 or more numbers wraps around onto none of the n outputs that are kept, whether its filter reads one side
    or both. The next even length with small factors costs a few per cent more; the next power of two doubles the work at n = 2^k + 1.
    """
    return next(length for length in count(2 * seq_len - 1) if length % 2 == 0 and _has_small_factors(length))


def _has_small_factors(length: int) -> bool:
    for factor in FACTORS:
        while length % factor == 0:
            length //= factor
    return length == 1


def convolve_by_fft(signals: Tensor, taps: Tensor) -> Tensor:
    """Compute y_i = the sum over j of taps[i - j] x signals_j.

    `signals`: `(..., n)`. `taps`: `(..., n)` for the distances i - j from 0 to n - 1, or `(..., 2 n - 1)` for those from -(n - 1) to n - 1;
    its leading dimensions are those of `signals`, or are broadcast to them. Half types are convolved in fp32, as FFTs are not accurate in them.

    It takes one FFT per row of `signals`, one per row of `taps`, and one per row of the result; the backward takes as many.
    """
    wide = torch.promote_types(torch.promote_types(signals.dtype, taps.dtype), torch.float32)
    operands = signals.to(wide), taps.to(wide)
    needs_gradient = torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)
    convolved: Tensor = _Convolution.apply(*operands) if needs_gradient else _convolve(*operands)[0]
    return convolved.to(signals.dtype)


def _convolve(signals: Tensor, taps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the result and the spectra of both operands."""
    n, num_taps = int(signals.shape[-1]), int(taps.shape[-1])  # tracing makes them tensors
    length = fft_length(n)
    spectrum, response = torch.fft.rfft(signals, length), torch.fft.rfft(taps, length)
    return torch.fft.irfft(spectrum * response, length)[..., num_taps - n : num_taps], spectrum, response


class _Convolution(torch.autograd.Function):
    """`_convolve` with a backward in real FFTs.

    The backward that torch derives takes a complex FFT, twice the work, for each FFT of real numbers.
    """

    @staticmethod
    def forward(ctx: Any, signals: Tensor, taps: Tensor) -> Tensor:
        convolved, *spectra = _convolve(signals, taps)
        ctx.save_for_backward(*spectra)
        ctx.sizes = signals.shape[-1], taps.shape[-1]
        return convolved

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        spectrum, response = ctx.saved_tensors
        n, num_taps = ctx.sizes
        length = fft_length(n)
        found = torch.fft.rfft(F.pad(upstream, (num_taps - n, length - num_taps)), length)
        of_signals = of_taps = None
        if ctx.needs_input_grad[0]:
            of_signals = torch.fft.irfft(found * response.conj(), length)[..., :n]
        if ctx.needs_input_grad[1]:
            of_taps = torch.fft.irfft((found * spectrum.conj()).sum_to_size(response.shape), length)[..., :num_taps]
        return of_signals, of_taps


def convolve_by_products(signals: Tensor, taps: Tensor) -> Tensor:
    """Compute the same as a product with `toeplitz_matrices`: n^2 multiply-adds for each row of `signals`.

    `signals`: `(batch, channels, n)`. `taps`: `(channels, n)` or `(channels, 2 n - 1)`; they are converted to the type of `signals`.
    """
    n, num_taps = signals.shape[-1], taps.shape[-1]
    matrices = toeplitz_matrices(F.pad(taps.to(signals.dtype), (2 * n - 1 - num_taps, 0)))
    return torch.einsum("cij,bcj->bci", matrices, signals)


def toeplitz_matrices(taps: Tensor) -> Tensor:
    """Build matrices that are constant along their diagonals, without an index per entry.

    `(..., 2 n - 1)`, by row minus column -> `(..., n, n)`.
    """
    # sorted by column minus row, row i is the slice of length n that starts at n - 1 - i
    return taps.flip(-1).unfold(-1, (taps.shape[-1] + 1) // 2, 1).flip(-2)

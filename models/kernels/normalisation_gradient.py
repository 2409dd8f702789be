"""The backward of the normalisation of v, computed in place.

It needs sums over whole rows of d norm(v), which a tile of a matrix product does not cover.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from models.kernels.normalised_tile import load_channels, standardised, without_padding

TOKENS_PER_PROGRAM, CHANNELS_AT_A_TIME = 32, 128
"""Large enough that no entry belongs to two threads.

Otherwise one thread might overwrite an entry before the other reads it.
"""


@triton.jit
def _normalisation_gradient(
    v,
    means,
    inverses,
    norm_weight,
    valid,
    grad_v,
    partial_weight,
    partial_bias,
    num_tokens,
    n,
    channels,
    batch_stride,
    row_stride,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Turn d norm(v) into dv in place, for one program's tokens.

    Also store these tokens' part of the gradients of scale and shift.
    """
    tokens = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    within = tokens < num_tokens
    row = v + (tokens // n).to(tl.int64) * batch_stride + (tokens % n) * row_stride
    place = grad_v + tokens.to(tl.int64) * (2 * channels)
    along, across = tl.zeros((block_tokens,), tl.float32), tl.zeros((block_tokens,), tl.float32)
    for start in range(0, channels, block_channels):
        columns = start + tl.arange(0, block_channels)
        inside = within[:, None] & (columns < channels)[None, :]
        unit = standardised(tl.load(row[:, None] + columns[None, :], mask=inside, other=0.0), means, inverses, tokens, within)
        grad = tl.load(place[:, None] + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        scaled = grad * load_channels(norm_weight, columns, channels)[None, :]
        along += tl.sum(scaled * without_padding(unit, valid, tokens, within), axis=1)
        across += tl.sum(scaled, axis=1)
    inverse = tl.load(inverses + tokens, mask=within, other=0.0)
    for start in range(0, channels, block_channels):
        columns = start + tl.arange(0, block_channels)
        inside = within[:, None] & (columns < channels)[None, :]
        unit = standardised(tl.load(row[:, None] + columns[None, :], mask=inside, other=0.0), means, inverses, tokens, within)
        unit = without_padding(unit, valid, tokens, within)
        grad = tl.load(place[:, None] + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        scaled = grad * load_channels(norm_weight, columns, channels)[None, :]
        centred = (scaled - (across / channels)[:, None] - unit * (along / channels)[:, None]) * inverse[:, None]
        tl.store(
            place[:, None] + columns[None, :], without_padding(centred, valid, tokens, within).to(grad_v.dtype.element_ty), mask=inside
        )
        partial = tl.program_id(0).to(tl.int64) * channels + columns
        tl.store(partial_weight + partial, tl.sum(grad * unit, axis=0), mask=columns < channels)
        tl.store(partial_bias + partial, tl.sum(grad, axis=0), mask=columns < channels)


def normalisation_gradient(
    z: Tensor, norm_weight: Tensor, statistics: Tensor, valid: Tensor | None, grad_z: Tensor
) -> tuple[Tensor, Tensor]:
    """Turn the gradient of norm(v) in `grad_z` into the gradient of v.

    `z`, `grad_z`: `(batch, n, 2 channels)`; only the second halves are used, and `grad_z` changes in place.

    Returns the gradients of scale and shift, `(channels,)` each, in fp32.
    """
    batch, n, width = z.shape
    channels = width // 2
    programs = triton.cdiv(batch * n, TOKENS_PER_PROGRAM)
    partial_weight, partial_bias = (torch.empty(programs, channels, dtype=torch.float32, device=z.device) for _ in range(2))
    _normalisation_gradient[(programs,)](
        z[..., channels:],
        *statistics,
        norm_weight,
        valid,
        grad_z[..., channels:],
        partial_weight,
        partial_bias,
        batch * n,
        n,
        channels,
        *z.stride()[:2],
        block_tokens=TOKENS_PER_PROGRAM,
        block_channels=CHANNELS_AT_A_TIME,
    )
    return partial_weight.sum(dim=0), partial_bias.sum(dim=0)

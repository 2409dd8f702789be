"""Spatial gating forward in two kernels.

The first computes the statistics of every token, the second the product, bias and gate. Importing this module needs Triton. It runs on
CUDA, or on CPU under Triton's interpreter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from models.kernels.availability import IS_INTERPRETED
from models.kernels.normalised_tile import as_operand, load_normalised
from models.kernels.tiling import Tiles, tiles_of_product

TOKENS_PER_PROGRAM, CHANNELS_AT_A_TIME = 16, 128


@triton.jit
def _token_statistics(
    v,
    means,
    inverses,
    num_tokens,
    n,
    channels,
    epsilon,
    batch_stride,
    row_stride,
    block_tokens: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Compute mean and inverse deviation over the channels of each token.

    Two passes, because the one-pass sum of squares suffers from cancellation; the second pass hits the cache.
    """
    tokens = tl.program_id(0) * block_tokens + tl.arange(0, block_tokens)
    within = tokens < num_tokens
    row = v + (tokens // n).to(tl.int64) * batch_stride + (tokens % n) * row_stride
    total = tl.zeros((block_tokens,), tl.float32)
    for start in range(0, channels, block_channels):
        columns = start + tl.arange(0, block_channels)
        inside = within[:, None] & (columns < channels)[None, :]
        total += tl.sum(tl.load(row[:, None] + columns[None, :], mask=inside, other=0.0).to(tl.float32), axis=1)
    mean = total / channels
    squares = tl.zeros((block_tokens,), tl.float32)
    for start in range(0, channels, block_channels):
        columns = start + tl.arange(0, block_channels)
        inside = within[:, None] & (columns < channels)[None, :]
        centred = tl.load(row[:, None] + columns[None, :], mask=inside, other=0.0).to(tl.float32) - mean[:, None]
        squares += tl.sum(tl.where(inside, centred * centred, 0.0), axis=1)
    tl.store(means + tokens, mean, mask=within)
    tl.store(inverses + tokens, 1.0 / tl.sqrt(squares / channels + epsilon), mask=within)


@triton.jit
def _mix_and_gate(
    z,
    weight,
    bias,
    norm_weight,
    norm_bias,
    means,
    inverses,
    valid,
    extra,
    out,
    gate,
    n,
    channels,
    batch_stride,
    row_stride,
    extra_batch_stride,
    extra_row_stride,
    precision: tl.constexpr,
    in_fp32: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_inner: tl.constexpr,
):
    """Compute one tile of u * (W norm(v) + b [+ extra]).

    Neighbouring programs differ in their rows, so they share the tile of v in the cache.
    """
    row_blocks, column_blocks = tl.cdiv(n, block_rows), tl.cdiv(channels, block_columns)
    rows = tl.program_id(0) % row_blocks * block_rows + tl.arange(0, block_rows)
    columns = tl.program_id(0) // row_blocks % column_blocks * block_columns + tl.arange(0, block_columns)
    item = (tl.program_id(0) // row_blocks // column_blocks).to(tl.int64)
    u = z + item * batch_stride
    v = u + channels
    total = tl.zeros((block_rows, block_columns), tl.float32)
    for start in range(0, n, block_inner):
        tokens = start + tl.arange(0, block_inner)
        known = (rows < n)[:, None] & (tokens < n)[None, :]
        w = tl.load(weight + rows[:, None].to(tl.int64) * n + tokens[None, :], mask=known, other=0.0)
        normed = load_normalised(v, means, inverses, norm_weight, norm_bias, valid, item * n, tokens, columns, n, channels, row_stride)
        w, normed = as_operand(w, z.dtype.element_ty, in_fp32), as_operand(normed, z.dtype.element_ty, in_fp32)
        total = tl.dot(w, normed, total, input_precision=precision)
    inside = (rows < n)[:, None] & (columns < channels)[None, :]
    total += tl.load(bias + rows, mask=rows < n, other=0.0).to(tl.float32)[:, None]
    if extra is not None:
        places = item * extra_batch_stride + rows[:, None] * extra_row_stride + columns[None, :]
        total += tl.load(extra + places, mask=inside, other=0.0).to(tl.float32)
    written = (item * n + rows[:, None]) * channels + columns[None, :]
    if gate is not None:
        tl.store(gate + written, total.to(gate.dtype.element_ty), mask=inside)
    gated = total * tl.load(u + rows[:, None] * row_stride + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(out + written, gated.to(out.dtype.element_ty), mask=inside)


def product_options(tiles: Tiles) -> dict[str, Any]:
    """Return the precision and tile sizes of a kernel's product.

    fp32 operands are multiplied exactly, unless torch allows TF32 for its own products.
    """
    return {
        "precision": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
        "in_fp32": IS_INTERPRETED,
        "block_rows": tiles.rows,
        "block_columns": tiles.columns,
        "block_inner": tiles.inner,
        "num_warps": tiles.num_warps,
        "num_stages": tiles.num_stages,
    }


def rows_in_memory(tensor: Tensor) -> Tensor:
    """Return `tensor` with contiguous rows, copied only if they are not.

    Rows and items themselves may lie anywhere.
    """
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def token_statistics(z: Tensor, epsilon: float) -> Tensor:
    """Return mean and inverse deviation of each token's second half.

    `(batch, n, 2 channels)` -> `(2, batch, n)` in fp32.
    """
    batch, n, width = z.shape
    v = z[..., width // 2 :]
    statistics = torch.empty(2, batch, n, dtype=torch.float32, device=z.device)
    _token_statistics[(triton.cdiv(batch * n, TOKENS_PER_PROGRAM),)](
        v,
        *statistics,
        batch * n,
        n,
        width // 2,
        epsilon,
        *z.stride()[:2],
        block_tokens=TOKENS_PER_PROGRAM,
        block_channels=CHANNELS_AT_A_TIME,
    )
    return statistics


def mix_and_gate(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: tuple[Tensor, Tensor, Tensor] | None,
    extra: Tensor | None,
    valid: Tensor | None,
    keep_gate: bool,
) -> tuple[Tensor, Tensor]:
    """Return u * (W norm(v) + b [+ extra]) and the gate.

    Each is `(batch, n, channels)`; the gate is empty without `keep_gate`.

    `norm`: scale and shift over channels, and the statistics; None uses v unnormalised.
    """
    batch, n, width = z.shape
    channels = width // 2
    out = torch.empty(batch, n, channels, dtype=z.dtype, device=z.device)
    gate = torch.empty_like(out) if keep_gate else None
    scale, shift, means, inverses = (*norm[:2], *norm[2]) if norm else (None,) * 4
    tiles = tiles_of_product(n, channels, z.element_size())
    _mix_and_gate[(triton.cdiv(n, tiles.rows) * triton.cdiv(channels, tiles.columns) * batch,)](
        z,
        weight,
        bias,
        scale,
        shift,
        means,
        inverses,
        valid,
        extra,
        out,
        gate,
        n,
        channels,
        *z.stride()[:2],
        *(extra.stride()[:2] if extra is not None else (0, 0)),
        **product_options(tiles),
    )
    return out, gate if gate is not None else out.new_empty(0)

"""Spatial gating backward: gradients of z, W, b and the gate's addend.

One kernel handles the halves of z, another W and b. Sums run in a fixed order, without atomics.

With dg = dout * u: du = dout * gate, d norm(v) = W^T dg, dW = sum over items of dg norm(v)^T, db = sum of dg, dextra = dg. Both kernels
compute dg, and the second also norm(v), while loading, without writing them. d norm(v) is written in place of dv, and
`normalisation_gradient` turns it into dv.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from models.kernels.normalised_tile import as_operand, load_normalised, without_padding
from models.kernels.spatial_gating_forward import product_options
from models.kernels.tiling import PROCESSORS_WITHOUT_DEVICE, num_slices, tiles_of_product


@triton.jit
def _gradients_of_halves(
    upstream,
    z,
    weight,
    gate,
    valid,
    grad_z,
    grad_extra,
    n,
    channels,
    batch_stride,
    row_stride,
    upstream_batch_stride,
    upstream_row_stride,
    precision: tl.constexpr,
    in_fp32: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_inner: tl.constexpr,
):
    """Compute one tile of du, d norm(v) and, if requested, dextra.

    d norm(v) goes into the second half of `grad_z`.
    """
    row_blocks, column_blocks = tl.cdiv(n, block_rows), tl.cdiv(channels, block_columns)
    rows = tl.program_id(0) % row_blocks * block_rows + tl.arange(0, block_rows)
    columns = tl.program_id(0) // row_blocks % column_blocks * block_columns + tl.arange(0, block_columns)
    item = (tl.program_id(0) // row_blocks // column_blocks).to(tl.int64)
    u, upstream = z + item * batch_stride, upstream + item * upstream_batch_stride
    known, within = columns < channels, rows < n
    total = tl.zeros((block_rows, block_columns), tl.float32)
    for start in range(0, n, block_inner):
        tokens = start + tl.arange(0, block_inner)
        w = tl.load(weight + tokens[:, None].to(tl.int64) * n + rows[None, :], mask=(tokens < n)[:, None] & within[None, :], other=0.0)
        inside = (tokens < n)[:, None] & known[None, :]
        grad = tl.load(upstream + tokens[:, None] * upstream_row_stride + columns[None, :], mask=inside, other=0.0)
        grad = grad.to(tl.float32) * tl.load(u + tokens[:, None] * row_stride + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        w, grad = as_operand(w, z.dtype.element_ty, in_fp32), as_operand(grad, z.dtype.element_ty, in_fp32)
        total = tl.dot(tl.trans(w), grad, total, input_precision=precision)
    inside = within[:, None] & known[None, :]
    own = (item * n + rows[:, None]) * channels + columns[None, :]
    halves = grad_z + (item * n + rows[:, None]) * (2 * channels) + columns[None, :]
    grad = tl.load(upstream + rows[:, None] * upstream_row_stride + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    grad_u = grad * tl.load(gate + own, mask=inside, other=0.0).to(tl.float32)
    tl.store(halves, grad_u.to(z.dtype.element_ty), mask=inside)
    tl.store(halves + channels, without_padding(total, valid, item * n + rows, within).to(z.dtype.element_ty), mask=inside)
    if grad_extra is not None:
        grad_gate = grad * tl.load(u + rows[:, None] * row_stride + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        tl.store(grad_extra + own, grad_gate.to(grad_extra.dtype.element_ty), mask=inside)


@triton.jit
def _weight_gradient(
    upstream,
    z,
    norm_weight,
    norm_bias,
    means,
    inverses,
    valid,
    partial_weight,
    partial_bias,
    batch,
    items_per_slice,
    n,
    channels,
    batch_stride,
    row_stride,
    upstream_batch_stride,
    upstream_row_stride,
    precision: tl.constexpr,
    in_fp32: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_inner: tl.constexpr,
):
    """Sum one tile of dW over a slice of the batch.

    Also sum the slice's db for the rows of the tile.
    """
    row_blocks, column_blocks = tl.cdiv(n, block_rows), tl.cdiv(n, block_columns)
    rows = tl.program_id(0) % row_blocks * block_rows + tl.arange(0, block_rows)
    column_block = tl.program_id(0) // row_blocks % column_blocks
    columns = column_block * block_columns + tl.arange(0, block_columns)
    part = (tl.program_id(0) // row_blocks // column_blocks).to(tl.int64)
    first_item = part * items_per_slice
    total, total_bias = tl.zeros((block_rows, block_columns), tl.float32), tl.zeros((block_rows,), tl.float32)
    for position in range(tl.minimum(items_per_slice, batch - first_item)):
        item = first_item + position
        u = z + item * batch_stride
        for start in range(0, channels, block_inner):
            inner = start + tl.arange(0, block_inner)
            inside = (rows < n)[:, None] & (inner < channels)[None, :]
            at = upstream + item * upstream_batch_stride + rows[:, None] * upstream_row_stride + inner[None, :]
            grad = tl.load(at, mask=inside, other=0.0).to(tl.float32)
            grad = grad * tl.load(u + rows[:, None] * row_stride + inner[None, :], mask=inside, other=0.0).to(tl.float32)
            total_bias += tl.sum(grad, axis=1)
            normed = load_normalised(
                u + channels, means, inverses, norm_weight, norm_bias, valid, item * n, columns, inner, n, channels, row_stride
            )
            grad, normed = as_operand(grad, z.dtype.element_ty, in_fp32), as_operand(normed, z.dtype.element_ty, in_fp32)
            total = tl.dot(grad, tl.trans(normed), total, input_precision=precision)
    places = part * n + rows
    inside = (rows < n)[:, None] & (columns < n)[None, :]
    tl.store(partial_weight + places[:, None] * n + columns[None, :], total.to(partial_weight.dtype.element_ty), mask=inside)
    tl.store(partial_bias + places, total_bias.to(partial_bias.dtype.element_ty), mask=(rows < n) & (column_block == 0))


def gradients_of_halves(
    upstream: Tensor, z: Tensor, weight: Tensor, gate: Tensor, extra_type: torch.dtype | None, valid: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of z and of the gate's addend.

    The second half of z's gradient holds d norm(v) instead of dv. The addend's gradient is None if `extra_type` is None.
    """
    batch, n, channels = gate.shape
    grad_z = torch.empty(z.shape, dtype=z.dtype, device=z.device)
    grad_extra = torch.empty_like(gate, dtype=extra_type) if extra_type is not None else None
    tiles = tiles_of_product(n, channels, z.element_size())
    _gradients_of_halves[(triton.cdiv(n, tiles.rows) * triton.cdiv(channels, tiles.columns) * batch,)](
        upstream,
        z,
        weight,
        gate,
        valid,
        grad_z,
        grad_extra,
        n,
        channels,
        *z.stride()[:2],
        *upstream.stride()[:2],
        **product_options(tiles),
    )
    return grad_z, grad_extra


def weight_gradient(
    upstream: Tensor,
    z: Tensor,
    norm: tuple[Tensor, Tensor, Tensor] | None,
    valid: Tensor | None,
    types: tuple[torch.dtype, torch.dtype],
) -> tuple[Tensor, Tensor]:
    """Return the gradients of W and b, in their `types`.

    Their shapes are `(n, n)` and `(n,)`.

    `norm`: as in the forward kernel (`mix_and_gate`).

    Several slices of the batch are written in fp32 and summed. A single slice is the result and is written in the final types.
    """
    batch, n, width = z.shape
    tiles = tiles_of_product(n, n, z.element_size())
    num_tiles = triton.cdiv(n, tiles.rows) * triton.cdiv(n, tiles.columns)
    items = max(1, triton.cdiv(batch, num_slices(num_tiles, batch, _num_processors(z.device))))
    slices = max(1, triton.cdiv(batch, items))  # no slice is empty, unless the batch is
    written = types if slices == 1 else (torch.float32, torch.float32)
    partial_weight = torch.empty(slices, n, n, dtype=written[0], device=z.device)
    partial_bias = torch.empty(slices, n, dtype=written[1], device=z.device)
    _weight_gradient[(num_tiles * slices,)](
        upstream,
        z,
        *((*norm[:2], *norm[2]) if norm else (None,) * 4),
        valid,
        partial_weight,
        partial_bias,
        batch,
        items,
        n,
        width // 2,
        *z.stride()[:2],
        *upstream.stride()[:2],
        **product_options(tiles),
    )
    if slices == 1:
        return partial_weight[0], partial_bias[0]
    return partial_weight.sum(dim=0).to(types[0]), partial_bias.sum(dim=0).to(types[1])


def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else PROCESSORS_WITHOUT_DEVICE

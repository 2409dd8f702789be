"""Predict the best possible times of the fused and plain gates.

The prediction uses bytes moved and FLOPs of the product; nothing is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from models.layers.cost import FLOPS_PER_MAC

STATISTICS_BYTES = 8
"""Mean and inverse deviation of one token in fp32."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One kernel, bound by its bytes and by its FLOPs.

    `num_bytes`: bytes read and written.
    `flops`: FLOPs of the matrix product (0: none).
    """

    num_bytes: int
    flops: int = 0


def predicted_seconds(
    batch: int, n: int, channels: int, dtype: torch.dtype, flops_per_s: float, bytes_per_s: float, *, fused: bool = True
) -> float:
    """Return the predicted seconds of one forward of the gate.

    Kernels run one after another. Each takes the longer of its FLOPs at `flops_per_s` and its bytes at `bytes_per_s`. With t = batch n
    tokens and e bytes per entry of `dtype`, each operand read once, and LayerNorm before the product, the bytes are:

    - fused: 4 t c e + n^2 e + n e + 2 c e + 16 t: v twice (once for its statistics, once for the product), u, and the result.
    - plain: 7 t c e + n^2 e + n e + 2 c e + 8 t: v once, and norm(v) and the gate are also written and read again.

    Both take 2 batch n^2 c FLOPs; element-wise work is not counted. If v stays in the cache between the two fused kernels, the 4 becomes 3.
    In training, the fused kernel also writes the gate, t c e bytes.
    """
    passes = _fused_passes if fused else _plain_passes
    return sum(max(one.flops / flops_per_s, one.num_bytes / bytes_per_s) for one in passes(batch, n, channels, dtype.itemsize))


def _fused_passes(batch: int, n: int, channels: int, entry: int) -> tuple[Pass, ...]:
    """Return two kernels: statistics, then product, bias and gating."""
    tokens = batch * n
    return (
        Pass(num_bytes=tokens * channels * entry + STATISTICS_BYTES * tokens),
        Pass(
            num_bytes=3 * tokens * channels * entry + (n * n + n + 2 * channels) * entry + STATISTICS_BYTES * tokens,
            flops=_product_flops(batch, n, channels),
        ),
    )


def _plain_passes(batch: int, n: int, channels: int, entry: int) -> tuple[Pass, ...]:
    """Return three kernels: normalisation, product with bias, and gating."""
    tokens = batch * n
    return (
        Pass(num_bytes=2 * tokens * channels * entry + 2 * channels * entry + STATISTICS_BYTES * tokens),
        Pass(num_bytes=2 * tokens * channels * entry + (n * n + n) * entry, flops=_product_flops(batch, n, channels)),
        Pass(num_bytes=3 * tokens * channels * entry),
    )


def _product_flops(batch: int, n: int, channels: int) -> int:
    return FLOPS_PER_MAC * batch * n * n * channels

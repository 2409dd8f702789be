"""What the fused gate and the plain one could take at best, from their bytes and the FLOPs of their product: a prediction, no measurement."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from models.layers.cost import FLOPS_PER_MAC

STATISTICS_BYTES = 8
"""Mean and inverse deviation of a token, fp32."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One kernel: it takes no less than its bytes and no less than its FLOPs."""

    num_bytes: int
    flops: int = 0


def predicted_seconds(
    batch: int, n: int, channels: int, dtype: torch.dtype, flops_per_s: float, bytes_per_s: float, *, fused: bool = True
) -> float:
    """Seconds of one forward of the gate: for each kernel the longer of its FLOPs at `flops_per_s` and its bytes at `bytes_per_s`, one after another.

    With t = batch n tokens and e bytes per entry of `dtype`, all operands read once, and LayerNorm in front of the product:

    fused: 4 t c e + n^2 e + n e + 2 c e + 16 t bytes: v twice (for its statistics, and to be normalised while it is loaded), u, and what comes out.
    plain: 7 t c e + n^2 e + n e + 2 c e + 8 t bytes: norm(v) and the gate are written and read again besides, v is read once.

    Both take 2 batch n^2 c FLOPs; element-wise work counts nothing. Where v stays in the cache between the two fused kernels, its 4 is a 3. In
    training the fused kernel also writes the gate, t c e.
    """
    passes = _fused_passes if fused else _plain_passes
    return sum(max(one.flops / flops_per_s, one.num_bytes / bytes_per_s) for one in passes(batch, n, channels, dtype.itemsize))


def _fused_passes(batch: int, n: int, channels: int, entry: int) -> tuple[Pass, ...]:
    tokens = batch * n
    return (
        Pass(num_bytes=tokens * channels * entry + STATISTICS_BYTES * tokens),
        Pass(
            num_bytes=3 * tokens * channels * entry + (n * n + n + 2 * channels) * entry + STATISTICS_BYTES * tokens,
            flops=_product_flops(batch, n, channels),
        ),
    )


def _plain_passes(batch: int, n: int, channels: int, entry: int) -> tuple[Pass, ...]:
    """Normalisation, product with bias, and the gate's multiplication."""
    tokens = batch * n
    return (
        Pass(num_bytes=2 * tokens * channels * entry + 2 * channels * entry + STATISTICS_BYTES * tokens),
        Pass(num_bytes=2 * tokens * channels * entry + (n * n + n) * entry, flops=_product_flops(batch, n, channels)),
        Pass(num_bytes=3 * tokens * channels * entry),
    )


def _product_flops(batch: int, n: int, channels: int) -> int:
    return FLOPS_PER_MAC * batch * n * n * channels

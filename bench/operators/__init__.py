"""Single operators, each computed by several kernels.

A kernel's answer is checked against float64; kernels with right answers are then timed in turn.

    operator     answer                                                    multiply-adds, forward, per sample
    gate         u * (W norm(v) + b), the gate of gMLP                     n^2 channels
    projection   W v + b over tokens, the product inside that gate         n^2 channels
    attention    softmax(Q K^T / sqrt(head width)) V, no projections       2 n^2 channels, for any number of heads

This module imports no torch, because requests, tables and figures work without it; `kernel`, `gate`, `attention` and `compare` do.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

FORWARD, BACKWARD = "forward", "forward+backward"
PHASES = (FORWARD, BACKWARD)
GATE, PROJECTION, ATTENTION = "gate", "projection", "attention"
_PRODUCTS_OVER_TOKENS = ("linear", "matmul", "baddbmm", "einsum", "conv1d", "onednn")
KERNELS = {
    GATE: (*_PRODUCTS_OVER_TOKENS, "fused"),
    PROJECTION: _PRODUCTS_OVER_TOKENS,
    ATTENTION: ("math", "flash", "efficient", "cudnn", "flex", "onednn"),
}
"""Kernels of each operator; the others are compared with the first."""
ITEM_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}
DEFAULT_OPERATORS = (GATE, ATTENTION)
UNSUPPORTED, WRONG, KILLED = "unsupported", "wrong", "killed"
"""Further statuses: cannot run here, wrong answer, process died.

The others are `measured`, `out_of_memory` and `failed`.
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator at one size.

    `n`: sequence length.
    `channels`: over all heads.
    `head_width`: 0 for operators without heads.
    """

    operator: str
    phase: str
    n: int
    batch: int
    channels: int
    head_width: int = 0
    dtype: str = "fp32"
    device: str = "cpu"

    @property
    def heads(self) -> int | None:
        return self.channels // self.head_width if self.head_width else None

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the input shapes.

        gate: z, W, b, LayerNorm's scale and shift. projection: v, W, b. attention: queries, keys, values, tokens before heads.
        """
        batch, n, channels = self.batch, self.n, self.channels
        if self.operator == GATE:
            return (batch, n, 2 * channels), (n, n), (n,), (channels,), (channels,)
        if self.operator == PROJECTION:
            return (batch, n, channels), (n, n), (n,)
        return ((batch, n, channels // self.head_width, self.head_width),) * 3

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.shapes[0] if self.operator == ATTENTION else (self.batch, self.n, self.channels)

    def flops(self) -> int:
        """Return model FLOPs of one call: matrix products alone, two per multiply-add.

        Backward takes twice the forward.
        """
        return self._product_flops() * (2 if self.operator == ATTENTION else 1) * (3 if self.phase == BACKWARD else 1)

    def executed_flops(self, *, recomputes_scores: bool) -> int:
        """Return the FLOPs that a kernel really runs.

        Attention without stored scores recomputes them, so its backward takes 2.5 times the forward.
        """
        return self.flops() + (self._product_flops() if recomputes_scores and self.phase == BACKWARD else 0)

    def num_bytes(self) -> int:
        """Return the fewest bytes that one call must move.

        Every input is read once and the output written once. Backward also reads the output's gradient and writes the inputs' gradients.
        """
        values = sum(math.prod(shape) for shape in (*self.shapes, self.output_shape))
        return values * ITEM_BYTES[self.dtype] * (2 if self.phase == BACKWARD else 1)

    def _product_flops(self) -> int:
        return 2 * self.batch * self.n**2 * self.channels


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kernel at one case: a row of the table.

    The fields are the columns (docs/columns.md), None if not measured. `seconds` (per call, one per block) is only in samples.jsonl.
    """

    operator: str
    kernel: str
    control: bool
    phase: str
    n: int
    batch: int
    heads: int | None
    head_width: int | None
    channels: int
    dtype: str
    device: str
    status: str
    reason: str = ""
    flops: int
    executed_flops: int
    bytes: int
    ms: float | None = None
    ms_low: float | None = None
    ms_high: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    ratio_to: str | None = None
    tflops_per_s: float | None = None
    gbytes_per_s: float | None = None
    ceiling_flops_per_s: float | None = None
    ceiling_share: float | None = None
    error: float | None = None
    blocks: int = 0
    clock: str = ""
    seconds: tuple[float, ...] = dataclasses.field(default=(), repr=False)


COLUMNS = tuple(field.name for field in dataclasses.fields(Row) if field.name != "seconds")


def row_of(case: Case, kernel: str, status: str, reason: str = "", *, recomputes_scores: bool = False, control: bool = False) -> Row:
    """Return a row with the facts known before timing."""
    return Row(
        operator=case.operator,
        kernel=kernel,
        control=control,
        phase=case.phase,
        n=case.n,
        batch=case.batch,
        heads=case.heads,
        head_width=case.head_width or None,
        channels=case.channels,
        dtype=case.dtype,
        device=case.device,
        status=status,
        reason=reason,
        flops=case.flops(),
        executed_flops=case.executed_flops(recomputes_scores=recomputes_scores),
        bytes=case.num_bytes(),
    )

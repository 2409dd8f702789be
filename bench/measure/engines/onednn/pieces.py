"""Run a large batch in pieces that fit a cache.

The activations of a piece stay in a cache between operators, whereas a whole batch's activations go through memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.measure.engines.onednn.site import is_close

PIECE_ROWS = 2048
"""Largest number of rows in a piece's largest product.

That is a few megabytes at the widths of these models.
"""
REPEATS = 2
ENOUGH_S = 0.5
"""Seconds of timing after which no further repeat starts."""
HANDICAP = 0.97
"""Pieces are used up to this share of the whole batch's time."""

Forward = Callable[[Tensor], Tensor]


class Pieces:
    """Runs `forward` on the whole batch or on equal pieces.

    The first call times both and keeps the faster one. Shapes: `(batch, ...)` -> `(batch, ...)`. A sample's result must not
    depend on the rest of the batch. Gradients equal the whole batch's: autograd sums over the pieces.

    `rows_of`: returns the rows of the largest product in the last call.
    `running`: size of the piece that runs, or ran last.
    """

    def __init__(self, forward: Forward, model: nn.Module, rows_of: Callable[[], int], *, may_split: bool) -> None:
        self.forward, self.model, self.rows_of, self.may_split = forward, model, rows_of, may_split
        self.size = self.running = 0

    def __call__(self, data: Tensor) -> Tensor:
        self.size = self.size or self._fastest_size(data)
        return self._in_pieces(data, self.size)

    def _in_pieces(self, data: Tensor, size: int) -> Tensor:
        self.running = size
        if size >= data.shape[0]:
            return self.forward(data)
        return torch.cat([self.forward(piece) for piece in data.split(size)])

    def _fastest_size(self, data: Tensor) -> int:
        whole = data.shape[0]
        if not self.may_split:
            return whole
        answer = self._in_pieces(data, whole)
        size = piece_size(whole, self.rows_of())
        if size == whole or not is_close(self._in_pieces(data, size), answer):  # this call compiles the model for a piece
            return whole
        best = dict.fromkeys((size, whole), float("inf"))
        start = time.perf_counter()
        for repeat in range(REPEATS):
            if repeat and time.perf_counter() - start > ENOUGH_S:
                break
            best = {each: min(known, self._seconds(data, each)) for each, known in best.items()}
        return size if best[size] <= HANDICAP * best[whole] else whole

    def _seconds(self, data: Tensor, size: int) -> float:
        start = time.perf_counter()
        out = self._in_pieces(data, size)
        if out.requires_grad:
            weights = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            torch.autograd.grad(out.sum(), weights, allow_unused=True)
        return time.perf_counter() - start


def joins_samples(model: nn.Module) -> bool:
    """Return whether a sample's result depends on its batch in training.

    Batch normalisation does so, and keeps statistics; a piece would have its own statistics.
    """
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def piece_size(batch_size: int, num_rows: int) -> int:
    """Return the largest divisor of the batch within `PIECE_ROWS` rows.

    1 if a single sample has more rows.
    """
    divisors = (size for size in range(batch_size, 0, -1) if batch_size % size == 0)
    return next((size for size in divisors if size * num_rows <= PIECE_ROWS * batch_size), 1)

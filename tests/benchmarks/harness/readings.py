"""What a measuring process says of one cell, and the names of cells and protocols. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from bench.spec import Cell

BENCH, TIMM, TIMM_SCRIPT, TORCH = "bench", "timm protocol", "timm script", "torch Timer"
DESCRIPTIONS = {
    BENCH: "`bench run`: one fresh process per cell and round, rounds shuffled",
    TIMM: "a loop by the protocol of timm's benchmark.py (10 warm-up calls, mean of 40, one process), not timm's code",
    TIMM_SCRIPT: "timm's benchmark.py as it is (one process per model, with its FLOP count), its models being the modules of bench",
    TORCH: "torch.utils.benchmark.Timer.blocked_autorange, one process",
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One cell timed in one process. `low_ms`, `high_ms`: the 95 % interval that the process gives itself (None: it gives none).
    `timed_s`: seconds that warm-up and timing took."""

    cell: str
    latency_ms: float
    low_ms: float | None
    high_ms: float | None
    num_samples: int
    timed_s: float


def label(cell: Cell) -> str:
    return f"{cell.model.name} n={cell.model.shape.seq_len}"

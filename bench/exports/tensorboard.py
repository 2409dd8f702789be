"""Training curves as TensorBoard's event files, one log per training."""

from __future__ import annotations

from pathlib import Path

from bench.record import StoredRun
from bench.training_curves import curves_of


def export(stored: StoredRun, target: str) -> str:
    """Loss and validation by epoch, and what a training came to, below `target` (default: `tensorboard` in the run's folder)."""
    from torch.utils.tensorboard import SummaryWriter

    folder = Path(target) if target else stored.folder / "tensorboard"
    for curve in curves_of(stored):
        with SummaryWriter(str(folder / curve.name)) as writer:
            for name, values in curve.series.items():
                for epoch, value in enumerate(values, start=1):
                    writer.add_scalar(name, value, epoch)
            for name, value in curve.totals.items():
                writer.add_scalar(f"final/{name}", value, 0)
    return f"tensorboard --logdir {folder}"

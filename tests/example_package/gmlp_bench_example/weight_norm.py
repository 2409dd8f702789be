"""Euclidean norm of all weights before training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.metrics import Measurement, last_values
from bench.spec import Job, Record

REPEAT = "once"
COLUMNS = ("weight_norm",)


def measure(job: Job) -> Measurement:
    import torch

    from bench.measure.model import build_model

    torch.manual_seed(job.settings.seed)
    squares = (parameter.detach().square().sum().item() for parameter in build_model(job.cell.model).parameters())
    return Measurement(values={"weight_norm": sum(squares) ** 0.5})


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    return last_values(records, COLUMNS)

"""Trained parameters of the built model, compared with the closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.metrics import Measurement, Repeat, last_values
from bench.spec import Job, Record

REPEAT: Repeat = "once"
COLUMNS = ("params", "params_seq", "params_blocks")


def measure(job: Job) -> Measurement:
    """Count the trained parameters; take their split from the closed form.

    The split is None for a model without a closed form. Raises CountError if the two totals differ.
    """
    import torch

    from bench.flop_counter import CountError
    from bench.measure.model import build_model, cost_of, is_counted

    spec = job.cell.model
    with torch.device("meta"):
        model = build_model(spec)
    counted = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if is_counted(spec):
        return Measurement(values={"params": counted, "params_seq": None, "params_blocks": None})
    n, cost = spec.shape.seq_len, cost_of(spec)
    if counted != cost.params().at(n):
        raise CountError(f"parameters of {spec.name} at seq_len {n} disagree: closed form {cost.params().at(n)}, counted {counted}")
    return Measurement(values={"params": counted, "params_seq": cost.params_seq().at(n), "params_blocks": cost.params("blocks").at(n)})


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the counts, equal in every record of a cell."""
    return last_values(records, COLUMNS)

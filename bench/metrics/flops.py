"""FLOPs of one sample, counted three ways that must agree exactly.

The counts are the closed form, torch's FLOP counter and fvcore (if installed). A model without a closed form may have torch's count alone, where
fvcore cannot follow it; `flops_counted_by` says so. FFTs are no matrix products and are in columns of their own:
the closed form and the FFTs that ran must agree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.metrics import Measurement, Repeat, last_values
from bench.spec import EXPLICIT, NO_ATTENTION, Cell, Job, Record

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.flop_counter import TorchCount
    from models.layers.cost import Cost

REPEAT: Repeat = "once"
COLUMNS = (
    "flops",
    "flops_quadratic_share",
    "flops_fvcore",
    "flops_torch",
    "flops_agree",
    "flops_counted_by",
    "flops_train",
    "flops_recompute",
    "fft_flops",
    "fft_flops_train",
)
NOT_NUMBERS = ("flops_agree", "flops_counted_by")


def measure(job: Job) -> Measurement:
    """Count the reference formulation's FLOPs at batch 1.

    Runs on `meta`, or on the CPU where fvcore cannot follow a model from outside there. Such a model uses torch's count from planning.
    `flops_counted_by` names the compared counts; `flops_agree` is None for a single count. fvcore may count less of a model from outside, for its
    trace leaves out what no answer depends on: then `flops_agree` is False. Raises CountError if two counts differ otherwise, or a counter would miss
    matrix work.
    """
    from bench.measure.model import cost_of

    cell = job.cell
    cost = cost_of(cell.model)
    values = _forward_counts(cell, cost)
    if cell.workload.phase == "train":
        values |= _train_counts(cell, cost)
    return Measurement(values=values)


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the counts, equal in every record of a cell.

    `flops_train`, `flops_recompute` and `fft_flops_train` are None outside the train phase, FFTs if none were counted.
    """
    return last_values(records, COLUMNS)


def _forward_counts(cell: Cell, cost: Cost) -> dict[str, Any]:
    from bench.flop_counter import HAS_FVCORE, CountError, count_with_torch
    from bench.measure.model import is_counted

    n = cell.model.shape.seq_len
    closed = cost.flops().at(n)
    has_no_closed_form = is_counted(cell.model)  # then the cost consists of torch's count
    counts = {} if has_no_closed_form else {"closed form": closed}
    if has_no_closed_form:
        counts["torch"] = closed
    else:
        counts["torch"], fft_flops = _counted_with_torch(cell, count_with_torch)
        _require_equal("FLOPs of FFTs", cell, {"closed form": cost.fft_flops(), "those that ran": fft_flops})
    if HAS_FVCORE:
        try:
            counts["fvcore"] = _counted_with_fvcore(cell, ("meta", "cpu") if has_no_closed_form else ("meta",))
        except CountError:
            if not has_no_closed_form:
                raise
    named = ", ".join(counts)
    agree = True if len(counts) > 1 else None
    if has_no_closed_form and counts.get("fvcore", closed) < closed:
        agree, named = False, f"torch; fvcore counts {100 * (1 - counts['fvcore'] / closed):.2g} % less"
    else:
        _require_equal("FLOPs", cell, counts)
    return {
        "flops": closed,
        "flops_quadratic_share": cost.flops().degree(2) * n**2 / closed if closed and not has_no_closed_form else None,
        "flops_fvcore": counts.get("fvcore"),
        "flops_torch": counts["torch"],
        "flops_agree": agree,
        "flops_counted_by": named,
        "fft_flops": cost.fft_flops(),
    }


def _train_counts(cell: Cell, cost: Cost) -> dict[str, Any]:
    """Count the FLOPs of forward and backward, and of recomputed attention.

    Fused attention recomputes its scores in the backward pass. Attention is fused unless `math` was requested or no fused kernel supports the shape;
    the column `attention_effective` shows which kernel ran.
    """
    from bench.flop_counter import count_train_with_torch
    from bench.measure.model import counted_of

    explicit = cell.workload.attention in (EXPLICIT, NO_ATTENTION)  # keeps the scores for backward, so recomputes none
    n = cell.model.shape.seq_len
    closed = cost.train_flops().at(n)
    if found := counted_of(cell.model):
        is_known = found.has_backward
        return {
            "flops_train": closed if is_known else None,
            "flops_recompute": found.recomputed if is_known and explicit else None,
            "fft_flops_train": None,
        }
    by_torch, fft_flops = _counted_with_torch(cell, lambda reference, data: count_train_with_torch(reference.train(), data))
    _require_equal("train FLOPs", cell, {"closed form": closed, "torch": by_torch})
    _require_equal("FLOPs of FFTs", cell, {"closed form": cost.train_fft_flops(), "those that ran": fft_flops})
    return {
        "flops_train": closed,
        "flops_recompute": 0 if explicit else cost.recompute_flops().at(n),
        "fft_flops_train": cost.train_fft_flops(),
    }


def _require_equal(what: str, cell: Cell, counts: Mapping[str, int]) -> None:
    from bench.flop_counter import CountError

    if len(set(counts.values())) > 1:
        differing = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise CountError(f"{what} of {cell.model.name} at seq_len {cell.model.shape.seq_len} disagree: {differing}")


def _counted_with_torch(cell: Cell, count: Callable[[nn.Module, Tensor], TorchCount]) -> tuple[int, int]:
    """Return the FLOPs of products and of FFTs."""
    found = functools.cache(lambda length: count(*_reference_on(cell, length, "meta")))
    return _counted(cell, lambda length: found(length).flops), _counted(cell, lambda length: found(length).fft_flops)


def _counted_with_fvcore(cell: Cell, devices: Sequence[str]) -> int:
    """Count on the first device on which fvcore can follow: on `meta` it cannot trace convolutions (torch 2.14)."""
    from bench.flop_counter import TraceError, count_with_fvcore

    def count(device: str) -> int:
        return _counted(cell, lambda length: count_with_fvcore(*_reference_on(cell, length, device)))

    for device in devices[:-1]:
        with contextlib.suppress(TraceError):
            return count(device)
    return count(devices[-1])


def _counted(cell: Cell, count: Callable[[int], int]) -> int:
    """Count at the cell's own length; for a stepwise model, extrapolate from small lengths."""
    from bench.flop_counter import count_at
    from bench.measure.model import is_stepwise

    return count_at(cell.model.shape.seq_len, count, stepwise=is_stepwise(cell.model))


def _reference_on(cell: Cell, length: int, device: str) -> tuple[nn.Module, Tensor]:
    import torch

    from bench.measure.model import build_reference
    from bench.measure.step import synthetic_batch

    model = dataclasses.replace(cell.model, shape=dataclasses.replace(cell.model.shape, seq_len=length))
    single = Cell(model=model, workload=dataclasses.replace(cell.workload, batch_size=1, dtype="fp32"))
    with torch.device(device):
        return build_reference(model).eval(), synthetic_batch(single)[0]

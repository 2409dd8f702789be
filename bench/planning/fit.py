"""Find the largest batch and the longest input that fit a memory.

A size fits if the predicted peak of building the model and of one step does. The prediction uses fake tensors and runs nothing
(`bench.measure.memory_tracker`). It counts the live tensors of an eager step, and leaves out what no tensor holds: workspaces of kernels,
fragmentation and rounding of the allocator, pools of CUDA graphs and compiled steps, and the memory of the program itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.errors import one_line
from bench.measure.engines import EAGER
from bench.measure.memory_tracker import predicted_counts
from bench.measure.model import config_of, is_counted, is_stepwise
from bench.measure.step import attention_backend
from bench.peers import own_import
from bench.planning.values import MAX_SIZE
from bench.spec import EXPLICIT, Cell, ModelSpec, Plan, RequestError


@dataclass(frozen=True, kw_only=True)
class LargestSizes:
    """The largest sizes of one configuration that are predicted to fit; 0 if none does. The search ends at MAX_SIZE.

    `largest_batch`: at the configuration's n; None for a model that takes one token after another, because predicting it takes too long.
    `largest_seq_len`: in the configuration's shape, at the smallest batch size of the plan; None also on a task or without a closed form.
    """

    largest_batch: int | None
    largest_seq_len: int | None


def smallest_batch(plan: Plan) -> int:
    """Return the batch size at which the largest n is searched."""
    return min(planned.cell.workload.batch_size for planned in plan.cells)


def largest_sizes(plan: Plan, memory_bytes: int) -> dict[str, LargestSizes]:
    """Return what fits the memory, by cell id.

    Raises RequestError if torch cannot run a step on the device that predicts.
    """
    batch_size = smallest_batch(plan)
    return {
        planned.cell.cell_id: _largest_sizes(_with(planned.cell, batch_size=batch_size, engine=EAGER), memory_bytes)
        for planned in plan.cells
    }


def largest_fitting(peak: Callable[[int], int], memory_bytes: int, *, start: int, least: int = 1) -> int:
    """Return the largest size whose peak fits the memory, from `least` to MAX_SIZE; 0 if none does.

    Grows fourfold from `start`, then narrows the gap: by turns to where a line between both ends meets the memory, and by half. Peaks are affine
    in the batch size, so the first such line is right.
    """
    low, high = least - 1, start
    while high <= MAX_SIZE and peak(high) <= memory_bytes:
        low, high = high, 4 * high
    high, halve = min(high, MAX_SIZE + 1), False
    while high - low > 1:
        middle = (low + high) // 2
        if not halve and low >= least and high <= MAX_SIZE:
            share = (memory_bytes - peak(low)) / (peak(high) - peak(low))
            middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
        low, high = (middle, high) if peak(middle) <= memory_bytes else (low, middle)
        halve = not halve
    return low if low >= least else 0


@functools.lru_cache(maxsize=4096)
def peak_bytes(cell: Cell) -> int:
    """Predict the peak bytes of building a model and of a step.

    Models are built in fp32 whatever their dtype. Without a GPU, a GPU's step is predicted on the CPU: with attention `math` if requested, else with
    the kernel that the CPU chooses. Raises RequestError if torch cannot run the step there.
    """
    work = cell.workload
    device = work.device if torch.cuda.is_available() else "cpu"
    attention = work.attention if device == work.device or work.attention == EXPLICIT else "auto"
    try:
        with attention_backend(attention):
            found = own_import.ask(cell.model.digest, predicted_counts, _with(cell, device=device))
            return found.needed_bytes
    except RequestError:
        raise
    except (RuntimeError, ValueError) as error:  # a ValueError stands for any error of a user's own model
        raise RequestError(
            f"`memory`: a step of {cell.model.name} cannot be predicted: {one_line(error)}", "try `attention=auto`, or leave `memory` out"
        ) from error


def _largest_sizes(cell: Cell, memory_bytes: int) -> LargestSizes:
    def at_batch(size: int) -> int:
        return peak_bytes(_with(cell, batch_size=size))

    def at_length(n: int) -> int:
        model = replace(cell.model, shape=replace(cell.model.shape, seq_len=n))
        return peak_bytes(replace(cell, model=model)) if _can_be_built(model) else 0

    def longest() -> int:
        found = largest_fitting(at_length, memory_bytes, start=cell.model.shape.seq_len, least=2)
        return found if found and at_length(found) else 0  # lengths at which the model cannot be built are too short

    if not is_counted(cell.model) and is_stepwise(cell.model):
        return LargestSizes(largest_batch=None, largest_seq_len=None)
    has_one_length = is_counted(cell.model) or bool(cell.workload.task)
    return LargestSizes(
        largest_batch=largest_fitting(at_batch, memory_bytes, start=cell.workload.batch_size),
        largest_seq_len=None if has_one_length else longest(),
    )


def _can_be_built(model: ModelSpec) -> bool:
    try:
        config_of(model)
    except ValueError:
        return False
    return True


def _with(cell: Cell, **changes: Any) -> Cell:
    return replace(cell, workload=replace(cell.workload, **changes))

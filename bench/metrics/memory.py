"""Memory of one steady step: its peak, split into weights, gradients, optimizer state and activations; the resident set; what it moves.

    peak_memory_bytes   the most bytes live at once during the step. CPU: live tensor storages. CUDA: what the caching allocator counts as
                        allocated, so rounding, kernel workspaces and cuBLAS's buffer are in it
    weight_bytes        parameters and buffers
    gradient_bytes      the most held by parameters' `.grad` at once (0 in `infer`)
    optimizer_bytes     AdamW's state: two moments and a counter per parameter (0 in `infer`)
    activation_bytes    the most of everything else at once: the input batch, what is saved for backward, temporaries, gradients on their
                        way to `.grad`
    rss_bytes           CPU: the most resident memory of the process during one plain step, less what was resident before the model was
                        built. It holds what the split cannot see (kernel workspaces, repacked operands, the allocator's slack) and what
                        the first step loaded (libraries, the compiler): tens to hundreds of MB. None on CUDA
    memory_source       `live_storages` (CPU), `cuda_allocator`, `cuda_reserved` (replayed graphs), `rss` (compiled on CPU), or `predicted`
    moved_bytes         what all operators of the step read and write if nothing stays in a cache: each distinct storage that an operator
                        reads, and each that it writes, once, no larger than the views of it that it is given. What a kernel moves inside
                        itself is not in it, and a table counts whole however few of its rows are looked up
    num_operators       operators of the step that compute; views and allocations are none. Each is at least one launch

The parts peak at different moments and need not add up to the peak. In `train`, the step starts by dropping the gradients of the one
before. On CUDA, the split is that of live storages too.

A compiled step hides its tensors from the dispatcher. On CPU its peak and activations are None; on CUDA its activations are the peak less
weights and optimizer state, so gradients born inside the compiled backward are among them. What it moves and launches is None on both.

A step that replays CUDA graphs (`--engine graph`, two modes of compile) allocates nothing: its memory was set aside when the graphs were
recorded. Its peak is what the allocator keeps reserved for graphs and weights once everything that is free was given back, in segments of 2 to
20 MiB.

A step that would not fit, or runs out of memory, is predicted: the same step on fake tensors, counted the same way. On CPU this equals the
count of a real step exactly (within 1 % when training under bf16-autocast, where fake LayerNorm keeps its statistics in another precision).
A compiled step is predicted as its eager twin, but for what it moves and launches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import is_out_of_memory
from bench.measure.engines import hides_operators
from bench.metrics import Measurement, Repeat
from bench.spec import PREDICTED, Cell, Job, Record

if TYPE_CHECKING:
    from bench.measure.memory_tracker import LiveBytes, StepCounts, Traffic
    from bench.measure.step import Step

REPEAT: Repeat = "once"
MEASURES_PROCESS = True
COLUMNS = (
    "peak_memory_bytes",
    "weight_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "activation_bytes",
    "rss_bytes",
    "memory_source",
    "moved_bytes",
    "num_operators",
)
NOT_NUMBERS = ("memory_source",)
LIVE_STORAGES = "live_storages"
CUDA_ALLOCATOR = "cuda_allocator"
CUDA_RESERVED = "cuda_reserved"
GRAPH_WARMUP_CALLS = 3
"""Compiled modes record at their second or third call."""
RSS = "rss"

USABLE_SHARE = 0.9
"""Of the memory available: the rest is for kernel workspaces and the allocator's slack."""
TENSORS_PER_BLOCK = 10
"""A generous count of tensors of each size that one block holds at once; see `rough_bound_bytes`."""
FLOAT_BYTES = 4
STATE_COPIES = 6
"""Weight, gradient, two moments; under autocast a cast weight and its gradient."""


def measure(job: Job) -> Measurement:
    """Measure one steady step of the cell, or predict it where it does not fit."""
    from bench.measure.step import attention_backend

    cell = job.cell
    with attention_backend(cell.workload.attention):
        available = available_bytes(cell.workload.device)
        # an obviously small step is not predicted at all
        if available is not None and rough_bound_bytes(cell) > USABLE_SHARE * available:
            predicted = predict(cell)
            if predicted.needed_bytes > USABLE_SHARE * available:
                return Measurement(values=_predicted_row(cell, predicted))
        try:
            return Measurement(values=_measured(cell, job.settings.seed))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        return Measurement(values=_predicted_row(cell, predict(cell)))


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """The columns as measured; None where nothing was."""
    values = records[-1].outcome.values if records else {}
    return {column: values.get(column) for column in COLUMNS}


def predict(cell: Cell) -> StepCounts:
    """Predict the peaks and the traffic of a steady step, on fake tensors: nothing is computed or allocated. Takes about a second, mostly imports."""
    from bench.measure.memory_tracker import predicted_counts

    return predicted_counts(dataclasses.replace(cell, workload=dataclasses.replace(cell.workload, engine="eager")))


def rough_bound_bytes(cell: Cell) -> int:
    """More than a step of this cell can hold, without looking: `STATE_COPIES` of its fp32 parameters, two input batches, and in every
    block `TENSORS_PER_BLOCK` tensors each of `(batch, n, width)`, `(batch, n, ffn_width)` and `(batch, heads, n, n)`; `infer` keeps one
    block's at a time."""
    from bench.measure.model import cost_of

    shape, work = cell.model.shape, cell.workload
    tokens = work.batch_size * shape.seq_len
    block = TENSORS_PER_BLOCK * tokens * (shape.width + shape.ffn_width + shape.heads * shape.seq_len)
    blocks = shape.depth if work.phase == "train" else 1
    data = 2 * tokens * cell.model.interface.patch_dim + TENSORS_PER_BLOCK * work.batch_size * cell.model.interface.num_classes
    return FLOAT_BYTES * (STATE_COPIES * cost_of(cell.model).params().at(shape.seq_len) + blocks * block + data)


def available_bytes(device: str) -> int | None:
    """Memory that a step may take on this device now; None where the system does not say."""
    if device == "cuda":
        import torch

        return torch.cuda.mem_get_info()[0]
    from bench.measure.environment import available_memory_bytes

    return available_memory_bytes()


def _measured(cell: Cell, seed: int) -> dict[str, Any]:
    from bench.measure.memory_tracker import counts_of_step, resident_bytes
    from bench.measure.step import build_step

    compiled = hides_operators(cell.workload.engine)
    rss_before = _status_bytes("VmRSS")
    step = build_step(cell, seed=seed)
    step.call()
    if cell.workload.device == "cuda":
        return _measured_on_cuda(step, compiled=compiled)
    # Start the kernel's high-water mark anew (proc(5), clear_refs): compiling takes more than the step does. Where that is forbidden the mark is the
    # process's own, and a fresh process starts with its resident set at the fork.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    step.call()
    rss_peak = _status_bytes("VmHWM")
    rss = None if rss_before is None or rss_peak is None else max(0, rss_peak - rss_before)
    if compiled:
        return _row(resident_bytes(step), RSS, rss_bytes=rss, peak_memory_bytes=None, activation_bytes=None)
    counts = counts_of_step(step)
    return _row(counts.live, LIVE_STORAGES, counts.traffic, rss_bytes=rss)


def _measured_on_cuda(step: Step, *, compiled: bool) -> dict[str, Any]:
    """The allocator's peak over an untracked step, then the split: tracked over another one or, compiled, of what stays between steps."""
    import torch

    from bench.measure.memory_tracker import counts_of_step, resident_bytes

    if step.replays:
        resident, peak = resident_bytes(step), _reserved_by_graphs(step)
        return _row(resident, CUDA_RESERVED, peak_memory_bytes=peak, activation_bytes=peak - resident.weight - resident.optimizer)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step.call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    if not compiled:
        counts = counts_of_step(step)
        return _row(counts.live, CUDA_ALLOCATOR, counts.traffic, peak_memory_bytes=peak)
    resident = resident_bytes(step)
    activation = peak - resident.weight - resident.optimizer
    return _row(resident, CUDA_ALLOCATOR, peak_memory_bytes=peak, activation_bytes=activation)


def _reserved_by_graphs(step: Step) -> int:
    import torch

    from bench.measure.memory_tracker import give_back_gpu_memory

    for _ in range(GRAPH_WARMUP_CALLS):
        step.call()
    gc.collect()
    torch.cuda.synchronize()
    give_back_gpu_memory()
    return torch.cuda.memory_reserved()


def _predicted_row(cell: Cell, counts: StepCounts) -> dict[str, Any]:
    return _row(counts.live, PREDICTED, None if hides_operators(cell.workload.engine) else counts.traffic)


def _row(live: LiveBytes, source: str, traffic: Traffic | None = None, **others: int | None) -> dict[str, Any]:
    """All columns: the split and the traffic, overridden by `others`."""
    split = {
        "peak_memory_bytes": live.total,
        "weight_bytes": live.weight,
        "gradient_bytes": live.gradient,
        "optimizer_bytes": live.optimizer,
        "activation_bytes": live.activation,
        "rss_bytes": None,
        "memory_source": source,
        "moved_bytes": traffic.moved_bytes if traffic else None,
        "num_operators": traffic.num_operators if traffic else None,
    }
    return {**split, **others}


def _status_bytes(name: str) -> int | None:
    """A line of /proc/self/status, in bytes; None on systems without it."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None

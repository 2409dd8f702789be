"""Peak memory of one steady step, and its parts.

    peak_memory_bytes   most bytes live at once during the step. CPU: live tensor storages. CUDA: bytes that the caching allocator counts as
                        allocated, including rounding, kernel workspaces and cuBLAS's buffer
    weight_bytes        parameters and buffers
    gradient_bytes      most bytes in parameters' `.grad` at once (0 in `infer`)
    optimizer_bytes     AdamW's state: two moments and a counter per parameter (0 in `infer`)
    activation_bytes    most bytes of everything else at once: the input batch, tensors saved for backward, temporaries, and gradients before they
                        reach `.grad`
    rss_bytes           CPU: peak resident memory of the process during one plain step, minus resident memory before the model was built. It includes
                        memory that the parts above miss (kernel workspaces, repacked operands, allocator slack) and everything that the first step
                        loaded (libraries, the compiler): tens to hundreds of MB. None on CUDA
    memory_source       `live_storages` (CPU), `cuda_allocator`, `cuda_reserved` (replayed graphs), `rss` (compiled on CPU), or `predicted`

The parts peak at different moments and need not add up to the peak. In `train`, the step starts by dropping the previous step's gradients. On CUDA,
the parts are measured from live storages too.

A compiled step hides its tensors from the dispatcher. On CPU its peak and activations are None. On CUDA its activations are the peak minus weights
and optimizer state, so they include gradients created inside the compiled backward.

A step that replays CUDA graphs (`--engine graph`, two modes of compile) allocates nothing: its memory was reserved when the graphs were recorded. Its
peak is the allocator's reserved memory for graphs and weights after all free memory was returned, in segments of 2 to 20 MiB.

A step that would not fit, or runs out of memory, is predicted: the same step on fake tensors, counted the same way. On CPU this equals the count of a
real step exactly (within 1 % when training under bf16-autocast, where fake LayerNorm keeps its statistics in another precision). A compiled step is
predicted like its eager twin.
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
from bench.metrics import Measurement, Repeat, last_values
from bench.spec import PREDICTED, Cell, Job, Record

if TYPE_CHECKING:
    from bench.measure.memory_tracker import LiveBytes, StepCounts
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
)
NOT_NUMBERS = ("memory_source",)
LIVE_STORAGES = "live_storages"
CUDA_ALLOCATOR = "cuda_allocator"
CUDA_RESERVED = "cuda_reserved"
GRAPH_WARMUP_CALLS = 3
"""Compiled modes record graphs at their second or third call."""
RSS = "rss"

USABLE_SHARE = 0.9
"""Usable share of the available memory.

The rest is for kernel workspaces and allocator slack.
"""
SMALL_SHARE = 0.2
"""Share of the available memory below which `rough_bound_bytes` lets a step run without a prediction."""
TENSORS_PER_BLOCK = 10
"""Generous number of tensors per size that one block holds.

See `rough_bound_bytes`.
"""
FLOAT_BYTES = 4
STATE_COPIES = 6
"""Copies of each parameter.

Weight, gradient and two moments; under autocast also a cast weight and its gradient.
"""


def measure(job: Job) -> Measurement:
    """Measure one steady step; predict it if it does not fit."""
    from bench.measure.step import attention_backend

    cell = job.cell
    with attention_backend(cell.workload.attention):
        available = available_bytes(cell.workload.device)
        # predicting takes about a second, so an obviously small step skips it
        if available is not None and rough_bound_bytes(cell) > SMALL_SHARE * available:
            predicted = predict(cell)
            if predicted.needed_bytes > USABLE_SHARE * available:
                return Measurement(values=_row(predicted.live, PREDICTED))
        try:
            return Measurement(values=_measured(cell, job.settings.seed))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        return Measurement(values=_row(predict(cell).live, PREDICTED))


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the columns as measured; None if not measured."""
    return last_values(records, COLUMNS)


def predict(cell: Cell) -> StepCounts:
    """Predict peaks of a steady step on fake tensors.

    Nothing is computed or allocated. Takes about a second, mostly imports.
    """
    from bench.measure.memory_tracker import predicted_counts

    return predicted_counts(dataclasses.replace(cell, workload=dataclasses.replace(cell.workload, engine="eager")))


def rough_bound_bytes(cell: Cell) -> int:
    """Return a rough bound on a step's memory, without building the model. Some steps need more: additive attention three times as much.

    Sums `STATE_COPIES` of the fp32 parameters, two input batches and, per block, `TENSORS_PER_BLOCK` tensors of each of the shapes
    `(batch, n, width)`, `(batch, n, ffn_width)` and `(batch, heads, n, n)`. `infer` holds one block's tensors at a time.
    """
    from bench.measure.model import cost_of

    shape, work = cell.model.shape, cell.workload
    tokens = work.batch_size * shape.seq_len
    block = TENSORS_PER_BLOCK * tokens * (shape.width + shape.ffn_width + shape.heads * shape.seq_len)
    blocks = shape.depth if work.phase == "train" else 1
    data = 2 * tokens * cell.model.interface.patch_dim + TENSORS_PER_BLOCK * work.batch_size * cell.model.interface.num_classes
    return FLOAT_BYTES * (STATE_COPIES * cost_of(cell.model).params().at(shape.seq_len) + blocks * block + data)


def available_bytes(device: str) -> int | None:
    """Return the device memory available to a step now; None if unknown."""
    if device == "cuda":
        import torch

        return torch.cuda.mem_get_info()[0]
    from bench.measure.environment import available_memory_bytes

    return available_memory_bytes()


def _measured(cell: Cell, seed: int) -> dict[str, Any]:
    from bench.measure.memory_tracker import counts_of_step, resident_bytes
    from bench.measure.step import build_step

    compiled = hides_operators(cell.workload.engine)
    rss_before = status_bytes("VmRSS")
    step = build_step(cell, seed=seed)
    step.call()
    if cell.workload.device == "cuda":
        return _measured_on_cuda(step, compiled=compiled)
    # Reset the kernel's high-water mark (proc(5), clear_refs), because compiling takes more memory than the step. If that is forbidden, the mark
    # covers the whole process, which starts with its resident set at the fork.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    step.call()
    rss_peak = status_bytes("VmHWM")
    rss = None if rss_before is None or rss_peak is None else max(0, rss_peak - rss_before)
    if compiled:
        return _row(resident_bytes(step), RSS, rss_bytes=rss, peak_memory_bytes=None, activation_bytes=None)
    return _row(counts_of_step(step).live, LIVE_STORAGES, rss_bytes=rss)


def _measured_on_cuda(step: Step, *, compiled: bool) -> dict[str, Any]:
    """Measure the allocator's peak over an untracked step, then the parts.

    The parts come from tracking another step or, for a compiled step, from the tensors that stay between steps.
    """
    import torch

    from bench.measure.memory_tracker import counts_of_step, resident_bytes

    if step.replays:
        source, peak = CUDA_RESERVED, _reserved_by_graphs(step)
    else:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step.call()
        torch.cuda.synchronize()
        source, peak = CUDA_ALLOCATOR, torch.cuda.max_memory_allocated()
        if not compiled:
            return _row(counts_of_step(step).live, source, peak_memory_bytes=peak)
    resident = resident_bytes(step)
    return _row(resident, source, peak_memory_bytes=peak, activation_bytes=peak - resident.weight - resident.optimizer)


def _reserved_by_graphs(step: Step) -> int:
    import torch

    from bench.measure.memory_tracker import give_back_gpu_memory

    for _ in range(GRAPH_WARMUP_CALLS):
        step.call()
    gc.collect()
    torch.cuda.synchronize()
    give_back_gpu_memory()
    return torch.cuda.memory_reserved()


def _row(live: LiveBytes, source: str, **others: int | None) -> dict[str, Any]:
    """Return all columns: the parts, overridden by `others`."""
    split = {
        "peak_memory_bytes": live.total,
        "weight_bytes": live.weight,
        "gradient_bytes": live.gradient,
        "optimizer_bytes": live.optimizer,
        "activation_bytes": live.activation,
        "rss_bytes": None,
        "memory_source": source,
    }
    return {**split, **others}


def status_bytes(name: str) -> int | None:
    """Read a line of /proc/self/status, in bytes; None if absent."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None

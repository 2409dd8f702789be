"""Trace of one steady step, recorded by torch's profiler, and where its time goes.

    trace             the file, relative to the run's folder: open it at ui.perfetto.dev or chrome://tracing
    products_share    matrix products and convolutions
    attention_share   fused attention
    norms_share       normalisations
    passes_share      everything else: activations, gates, residuals, copies, sums, the optimizer

The shares are of the time that torch's operators took, on CUDA of that of their kernels: without Python, launches and gaps.

The trace shows every operator and kernel on a time line, grouped by the model's modules. The step is profiled after all timings, in its own process,
so no time in the table includes the profiler. On CUDA, module ranges are also NVTX ranges, which Nsight Systems shows. An engine that hides its
operators shows kernels without modules.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.metrics import Measurement, Repeat, last_values
from bench.spec import Job, Record

if TYPE_CHECKING:
    from torch import nn

REPEAT: Repeat = "once"
KINDS = {
    "products_share": (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "_scaled_mm", "_int_mm", "mkldnn_linear", "convolution"),
        *("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_cudnn_rnn", "_cudnn_rnn_backward"),  # mostly products
    ),
    "attention_share": ("attention",),
    "norms_share": ("layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"),
}
"""Kinds of operators: whole names of products, and parts of the names of others; what fits none is a pass over memory."""
PASSES = "passes_share"
COLUMNS = ("trace", *KINDS, PASSES)
NOT_NUMBERS = ("trace",)
TRACES = "traces"
OPERATOR = "aten::"
"""How the profiler marks torch's own operators."""
WARMUP_CALLS = 3
QUIET = "99"
"""Log level that silences Kineto.

Otherwise Kineto reports its start and end, and a missing GPU.
"""


def measure(job: Job) -> Measurement:
    """Write the trace into the run's folder. Raises ValueError outside a run."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from bench.measure.engines import hides_operators
    from bench.measure.step import attention_backend, build_step

    os.environ.setdefault("KINETO_LOG_LEVEL", QUIET)  # Kineto reads it when the first profile of a process begins
    if not job.scratch:
        raise ValueError("a trace needs a run's folder")
    work = job.cell.workload
    name = Path(TRACES) / f"{job.cell.cell_id}.json.gz"
    path = Path(job.scratch).parent / name
    path.parent.mkdir(exist_ok=True)
    activities = [ProfilerActivity.CPU, *((ProfilerActivity.CUDA,) if work.device == "cuda" else ())]
    with attention_backend(work.attention):
        step = build_step(job.cell, seed=job.settings.seed)
        for _ in range(WARMUP_CALLS):
            step.call()
        shown = contextlib.nullcontext() if hides_operators(work.engine) else module_ranges(step.model, nvtx=work.device == "cuda")
        with shown, profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
            step.call()
            if work.device == "cuda":
                torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    attribute = "self_device_time_total" if work.device == "cuda" else "self_cpu_time_total"
    times = {event.key: float(getattr(event, attribute)) for event in profiler.key_averages() if event.key.startswith(OPERATOR)}
    return Measurement(values={"trace": str(name), **shares_of(times)})


def shares_of(times: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each kind in the times of operators, by name (`aten::mm`); empty without any time."""
    found = dict.fromkeys((*KINDS, PASSES), 0.0)
    for operator, time in times.items():
        found[kind_of(operator.removeprefix(OPERATOR))] += time
    total = sum(found.values())
    return {kind: time / total for kind, time in found.items()} if total else {}


def kind_of(operator: str) -> str:
    """Return the kind of an operator, without the profiler's mark."""
    products, *others = KINDS
    if operator in KINDS[products] or "convolution" in operator:
        return products
    return next((kind for kind in others if any(part in operator for part in KINDS[kind])), PASSES)


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the trace's file name; None without a trace."""
    return last_values(records, COLUMNS)


@contextlib.contextmanager
def module_ranges(model: nn.Module, *, nvtx: bool) -> Iterator[None]:
    """Record a range around every module's forward.

    Its name is the module's path and class.
    """
    import torch
    from torch.profiler import record_function

    open_ranges: list[record_function] = []
    hooks = []

    def enter(name: str) -> None:
        open_ranges.append(record_function(name))
        open_ranges[-1].__enter__()
        if nvtx:
            torch.cuda.nvtx.range_push(name)

    def leave() -> None:
        if nvtx:
            torch.cuda.nvtx.range_pop()
        open_ranges.pop().__exit__(None, None, None)

    for place, module in model.named_modules():
        name = f"{place or 'model'}: {type(module).__name__}"
        hooks.append(module.register_forward_pre_hook(lambda _module, _inputs, name=name: enter(name)))
        hooks.append(module.register_forward_hook(lambda _module, _inputs, _outputs: leave()))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

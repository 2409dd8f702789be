"""What this device reaches at best: matrix products, copies and tiny operators, by which steps are judged compute-, bandwidth- or launch-bound.

    ceiling_flops_per_s   the highest rate of a matrix product over a few square and tall shapes, in the arithmetic of the cell
    ceiling_bytes_per_s   bytes read and written per second by a copy between two arrays much larger than the last cache, as STREAM counts
                          them (McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", 1995)
    ceiling_launch_s      seconds per operator of a long chain of tiny ones (adding 1 to 16 numbers, called from Python): a step of k
                          operators can hardly take less than k times as long

The best of the repeats within a process, the median over rounds. A ceiling belongs to the device, its threads and the arithmetic, not to a
cell: one job per round measures it for all cells that share these.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.metrics import Measurement, Repeat
from bench.spec import Cell, Job, ModelSpec, Record, Settings, Workload
from models.layers.shape import Shape

if TYPE_CHECKING:
    import torch

    from bench.timing import Stopwatch

REPEAT: Repeat = "round"
COLUMNS = ("ceiling_flops_per_s", "ceiling_bytes_per_s", "ceiling_launch_s")

ARITHMETIC = {"fp32": "fp32", "bf16": "bf16", "bf16-autocast": "bf16"}
"""In what the matrix products of a dtype are computed."""
PRODUCTS = {
    "cpu": ((256, 256, 256), (512, 512, 512), (4096, 256, 256), (1024, 1024, 1024)),
    "cuda": ((1024, 1024, 1024), (4096, 4096, 4096), (16384, 1024, 4096), (8192, 8192, 8192)),
}
"""`(rows, inner, columns)`, the cheapest first: those that fit a cache and those that do not."""
COPY_BYTES = {"cpu": 2**27, "cuda": 2**29}
"""Of each array: several times the last cache."""
CHAIN_LENGTH = 1000
CHAIN_ELEMENTS = 16
MIN_REPEATS = 3
SHARES = {"product": 0.5, "copy": 0.375, "launch": 0.125}
"""Of the sampling time."""


def shared_by(cell: Cell, settings: Settings) -> Mapping[str, Any]:
    """Cells that agree on these share one measurement."""
    return {"device": cell.workload.device, "dtype": ARITHMETIC[cell.workload.dtype], "threads": settings.threads}


def measure(job: Job) -> Measurement:
    """Measure the three ceilings in about `sample_s`. Only the cell's device and dtype count."""
    import torch

    from bench.step import exact_fp32
    from bench.stopwatch import stopwatch_for

    work, sample_s = job.cell.workload, job.settings.sample_s
    exact_fp32()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[ARITHMETIC[work.dtype]]
    stopwatch = stopwatch_for(work.device)
    rate, shape = _product_rate(work.device, dtype, stopwatch, SHARES["product"] * sample_s)
    return Measurement(
        values={
            "ceiling_flops_per_s": rate,
            "ceiling_bytes_per_s": _copy_rate(work.device, dtype, stopwatch, SHARES["copy"] * sample_s),
            "ceiling_launch_s": _launch_seconds(work.device, dtype, stopwatch, SHARES["launch"] * sample_s),
            "ceiling_shape": " x ".join(map(str, shape)),
            "threads": torch.get_num_threads(),
        }
    )


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Medians over rounds; None where nothing was measured."""
    if not records:
        return dict.fromkeys(COLUMNS)
    return {column: statistics.median(record.outcome.values[column] for record in records) for column in COLUMNS}


def calibration_job(device: str, dtype: str, settings: Settings) -> Job:
    """The measurement on its own, outside any plan."""
    model = ModelSpec(name="none", family="none", shape=Shape(seq_len=2, width=1, depth=1, heads=1, ffn_width=1))
    return Job(cell=Cell(model=model, workload=Workload(device=device, dtype=dtype)), metric="ceiling", repeat=0, settings=settings)


def _product_rate(device: str, dtype: torch.dtype, stopwatch: Stopwatch, time_s: float) -> tuple[float, tuple[int, int, int]]:
    """The best FLOPs per second and its shape. Shapes that would not fit their part of the time, at the best rate so far, are left out."""
    import torch

    shapes = PRODUCTS[device]
    part_s = time_s / len(shapes)
    best, best_shape = 0.0, shapes[0]
    for rows, inner, columns in shapes:
        flops = 2 * rows * inner * columns
        if best and (MIN_REPEATS + 1) * flops / best > part_s:
            continue
        left, right = (torch.rand(size, device=device).to(dtype) for size in ((rows, inner), (inner, columns)))
        out = torch.empty(rows, columns, dtype=dtype, device=device)
        rate = flops / _fastest(functools.partial(torch.mm, left, right, out=out), stopwatch, part_s)
        if rate > best:
            best, best_shape = rate, (rows, inner, columns)
    return best, best_shape


def _copy_rate(device: str, dtype: torch.dtype, stopwatch: Stopwatch, time_s: float) -> float:
    """Bytes per second, those read and those written."""
    import torch

    source = torch.ones(COPY_BYTES[device] // dtype.itemsize, dtype=dtype, device=device)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES[device] / _fastest(functools.partial(target.copy_, source), stopwatch, time_s)


def _launch_seconds(device: str, dtype: torch.dtype, stopwatch: Stopwatch, time_s: float) -> float:
    """Seconds per operator, each of which waits for the one before."""
    import torch

    numbers = torch.ones(CHAIN_ELEMENTS, dtype=dtype, device=device)
    return _fastest(functools.partial(numbers.add_, 1), stopwatch, time_s, inner_loop=CHAIN_LENGTH)


def _fastest(call: Callable[[], object], stopwatch: Stopwatch, time_s: float, inner_loop: int = 1) -> float:
    """Seconds of one call: the least over the samples, of which the first, that sets things up, does not count."""
    stopwatch.sample(call, inner_loop)
    taken: list[float] = []
    spent = 0.0
    while len(taken) < MIN_REPEATS or spent < time_s:
        taken.append(stopwatch.sample(call, inner_loop).wall_s)
        spent += taken[-1] * inner_loop
    return min(taken)

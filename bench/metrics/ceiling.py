"""Highest rates of this device: matrix products, copies and operator launches.

They show whether a step is bound by computation, bandwidth or launches.

    ceiling_flops_per_s   highest rate of torch's matrix product, torch.mm, over a few square and tall shapes, in the cell's arithmetic
    ceiling_bytes_per_s   bytes read and written per second by a copy between two arrays much larger than the last cache, as STREAM counts
                          them (McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", 1995)
    ceiling_launch_s      seconds per operator in a long chain of tiny operators (adding 1 to each of 16 numbers, called from Python): a step of k
                          operators can hardly take less than k times as long

The value `small_product_flops_per_s` is the rate at the cheapest shape, which even a short measurement includes.

Each process reports its best repeat, and the table the median over rounds. A ceiling depends on the device, its threads and the arithmetic,
not on the cell: one job in every fourth round measures it for all cells that share these.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.measure.hosts import COPY_BYTES
from bench.metrics import Measurement, Repeat
from bench.spec import Cell, Job, ModelSpec, Record, Settings, Workload
from models.layers.shape import Shape

if TYPE_CHECKING:
    import torch

    from bench.measure.timer import Sample, Stopwatch

MatrixShape = tuple[int, int, int]
REPEAT: Repeat = "round"
EVERY = 4
COLUMNS = ("ceiling_flops_per_s", "ceiling_bytes_per_s", "ceiling_launch_s")
SMALL_PRODUCT = "small_product_flops_per_s"

ARITHMETIC = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "bf16-autocast": "bf16"}
"""Arithmetic of matrix products, by the cell's dtype."""
PRODUCTS = {
    "cpu": ((256, 256, 256), (512, 512, 512), (4096, 256, 256), (1024, 1024, 1024)),
    "cuda": ((1024, 1024, 1024), (4096, 4096, 4096), (16384, 1024, 4096), (8192, 8192, 8192)),
}
"""`(rows, inner, columns)`, cheapest first: some fit a cache, some do not."""
CHAIN_LENGTH = 1000
CHAIN_ELEMENTS = 16
MIN_REPEATS = 3
SHARES = {"product": 0.5, "copy": 0.375, "launch": 0.125}
"""Shares of the sampling time."""


def shared_by(cell: Cell, settings: Settings) -> Mapping[str, Any]:
    """Return the facts that cells must share to share one measurement."""
    return {"device": cell.workload.device, "dtype": ARITHMETIC[cell.workload.dtype], "threads": settings.threads}


def measure(job: Job) -> Measurement:
    """Measure the three ceilings in about `sample_s` seconds.

    Only the cell's device and dtype matter.
    """
    import torch

    from bench.measure.step import set_product_precision
    from bench.measure.timer import WARMUP_S, stopwatch_for

    work, sample_s = job.cell.workload, job.settings.sample_s
    set_product_precision(ARITHMETIC[work.dtype])
    dtype = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}[ARITHMETIC[work.dtype]]
    stopwatch = stopwatch_for(work.device)
    if work.device == "cuda":  # raises its clocks from idle
        _fastest(_product(PRODUCTS["cuda"][1], "cuda", dtype), stopwatch, WARMUP_S["cuda"])
    rates = _product_rates(work.device, dtype, stopwatch, SHARES["product"] * sample_s)
    best = max(rates, key=rates.__getitem__)
    return Measurement(
        values={
            "ceiling_flops_per_s": rates[best],
            "ceiling_bytes_per_s": _copy_rate(work.device, dtype, stopwatch, SHARES["copy"] * sample_s),
            "ceiling_launch_s": _launch_seconds(work.device, dtype, stopwatch, SHARES["launch"] * sample_s),
            SMALL_PRODUCT: rates[PRODUCTS[work.device][0]],
            "ceiling_shape": " x ".join(map(str, best)),
            "threads": torch.get_num_threads(),
        }
    )


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return medians over rounds; None without records."""
    return {column: statistics.median(record.outcome.values[column] for record in records) if records else None for column in COLUMNS}


def calibration_job(device: str, dtype: str, settings: Settings) -> Job:
    """Return a job that measures the ceilings outside a plan."""
    model = ModelSpec(name="none", family="none", shape=Shape(seq_len=2, width=1, depth=1, heads=1, ffn_width=1))
    return Job(cell=Cell(model=model, workload=Workload(device=device, dtype=dtype)), metric="ceiling", repeat=0, settings=settings)


def _product_rates(device: str, dtype: torch.dtype, stopwatch: Stopwatch, time_s: float) -> dict[MatrixShape, float]:
    """Return FLOPs per second by shape, for every shape that the time allows.

    A shape is skipped if, at the best rate so far, it would exceed its share. The first shape is always timed.
    """
    shapes = PRODUCTS[device]
    part_s = time_s / len(shapes)
    found: dict[MatrixShape, float] = {}
    for shape in shapes:
        flops = 2 * math.prod(shape)
        if not found or (MIN_REPEATS + 1) * flops / max(found.values()) <= part_s:
            found[shape] = flops / _fastest(_product(shape, device, dtype), stopwatch, part_s)
    return found


def _product(shape: MatrixShape, device: str, dtype: torch.dtype) -> Callable[[], object]:
    import torch

    rows, inner, columns = shape
    left, right = (torch.rand(size, device=device).to(dtype) for size in ((rows, inner), (inner, columns)))
    return functools.partial(torch.mm, left, right, out=torch.empty(rows, columns, dtype=dtype, device=device))


def _copy_rate(device: str, dtype: torch.dtype, stopwatch: Stopwatch, time_s: float) -> float:
    """Return bytes read and written per second."""
    import torch

    source = torch.ones(COPY_BYTES[device] // dtype.itemsize, dtype=dtype, device=device)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES[device] / _fastest(functools.partial(target.copy_, source), stopwatch, time_s)


def _launch_seconds(device: str, dtype: torch.dtype, stopwatch: Stopwatch, time_s: float) -> float:
    """Return seconds per operator in a chain of dependent operators."""
    import torch

    numbers = torch.ones(CHAIN_ELEMENTS, dtype=dtype, device=device)
    return _fastest(functools.partial(numbers.add_, 1), stopwatch, time_s, inner_loop=CHAIN_LENGTH, by_wall=True)


def _fastest(call: Callable[[], object], stopwatch: Stopwatch, time_s: float, inner_loop: int = 1, *, by_wall: bool = False) -> float:
    """Return seconds per call of the fastest sample, discarding the first.

    The first sample includes set-up. Uses the device's clock if there is one and `by_wall` is False, because waiting for the device adds
    microseconds.
    """
    stopwatch.sample(call, inner_loop)
    taken: list[Sample] = []
    spent = 0.0
    while len(taken) < MIN_REPEATS or spent < time_s:
        taken.append(stopwatch.sample(call, inner_loop))
        spent += taken[-1].wall_s * inner_loop
    return min(sample.wall_s if by_wall or sample.device_s is None else sample.device_s for sample in taken)

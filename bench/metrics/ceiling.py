"""Highest rates of this device: matrix products, copies and operator launches.

They show whether a step is bound by computation, bandwidth or launches.

    ceiling_flops_per_s   highest rate of a matrix product over a few square and tall shapes, in the cell's arithmetic. A CPU times torch.mm and
                          oneDNN's linear layer and takes the faster: on AMD, oneDNN is faster by a factor of two in fp32
    ceiling_bytes_per_s   bytes read and written per second by a copy between two arrays much larger than the last cache, as STREAM counts
                          them (McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", 1995)
    ceiling_launch_s      seconds per operator in a long chain of tiny operators (adding 1 to each of 16 numbers, called from Python): a step of k
                          operators can hardly take less than k times as long
    ceiling_kernel        the fastest product: `torch.mm`, `oneDNN` or `oneDNN packed`; None in older records, which timed torch.mm alone
    ceiling_products      FLOPs per second of each kernel at the cheapest shape, which even a short measurement includes

Each process reports its best repeat, and the table the median over rounds. A ceiling depends on the device, its threads and the arithmetic,
not on the cell: one job per round measures it for all cells that share these.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.metrics import Measurement, Repeat
from bench.spec import Cell, Job, ModelSpec, Record, Settings, Workload
from models.layers.shape import Shape

if TYPE_CHECKING:
    import torch

    from bench.measure.timer import Sample, Stopwatch

MatrixShape = tuple[int, int, int]
Prepare = Callable[[MatrixShape, str, "torch.dtype"], Callable[[], object]]
"""Builds the product to time from shape, device and dtype."""
REPEAT: Repeat = "round"
RATES = ("ceiling_flops_per_s", "ceiling_bytes_per_s", "ceiling_launch_s")
KERNEL, BY_KERNEL = "ceiling_kernel", "ceiling_products"
COLUMNS = (*RATES, KERNEL)
NOT_NUMBERS = (KERNEL,)

ARITHMETIC = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "bf16-autocast": "bf16"}
"""Arithmetic of matrix products, by the cell's dtype."""
PRODUCTS = {
    "cpu": ((256, 256, 256), (512, 512, 512), (4096, 256, 256), (1024, 1024, 1024)),
    "cuda": ((1024, 1024, 1024), (4096, 4096, 4096), (16384, 1024, 4096), (8192, 8192, 8192)),
}
"""`(rows, inner, columns)`, cheapest first: some fit a cache, some do not."""
TORCH_MM, ONEDNN, PACKED = "torch.mm", "oneDNN", "oneDNN packed"
COPY_BYTES = {"cpu": 2**27, "cuda": 2**29}
"""Bytes of each array: several times the last cache."""
CHAIN_LENGTH = 1000
CHAIN_ELEMENTS = 16
MIN_REPEATS = 3
SHARES = {"product": 0.5, "copy": 0.375, "launch": 0.125}
"""Shares of the sampling time."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A timed matrix product.

    `rate`: FLOPs per second.
    `kernel`: the library function that computed it.
    """

    rate: float
    shape: MatrixShape
    kernel: str


def shared_by(cell: Cell, settings: Settings) -> Mapping[str, Any]:
    """Return the facts that cells must share to share one measurement."""
    return {"device": cell.workload.device, "dtype": ARITHMETIC[cell.workload.dtype], "threads": settings.threads}


def measure(job: Job) -> Measurement:
    """Measure the three ceilings in about `sample_s` seconds.

    Only the cell's device and dtype matter.
    """
    import torch

    from bench.measure.step import set_product_precision
    from bench.measure.timer import rules_for, stopwatch_for

    work, sample_s = job.cell.workload, job.settings.sample_s
    set_product_precision(ARITHMETIC[work.dtype])
    dtype = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}[ARITHMETIC[work.dtype]]
    stopwatch = stopwatch_for(work.device)
    if warmup_s := rules_for(work.device, sample_s).min_warmup_s:  # raises a GPU's clocks from idle
        _fastest(_torch_mm(PRODUCTS[work.device][1], work.device, dtype), stopwatch, warmup_s)
    products = _products(work.device, dtype, stopwatch, SHARES["product"] * sample_s)
    best = _fastest_of(products)
    return Measurement(
        values={
            "ceiling_flops_per_s": best.rate,
            "ceiling_bytes_per_s": _copy_rate(work.device, dtype, stopwatch, SHARES["copy"] * sample_s),
            "ceiling_launch_s": _launch_seconds(work.device, dtype, stopwatch, SHARES["launch"] * sample_s),
            KERNEL: best.kernel,
            BY_KERNEL: {found.kernel: found.rate for found in products if found.shape == PRODUCTS[work.device][0]},
            "ceiling_shape": " x ".join(map(str, best.shape)),
            "threads": torch.get_num_threads(),
        }
    )


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return medians over rounds and every winning kernel; None without records."""
    if not records:
        return dict.fromkeys(COLUMNS)
    medians = {column: statistics.median(record.outcome.values[column] for record in records) for column in RATES}
    kernels = sorted({kernel for record in records if (kernel := record.outcome.values.get(KERNEL))})
    return {**medians, KERNEL: " | ".join(kernels) or None}


def calibration_job(device: str, dtype: str, settings: Settings) -> Job:
    """Return a job that measures the ceilings outside a plan."""
    model = ModelSpec(name="none", family="none", shape=Shape(seq_len=2, width=1, depth=1, heads=1, ffn_width=1))
    return Job(cell=Cell(model=model, workload=Workload(device=device, dtype=dtype)), metric="ceiling", repeat=0, settings=settings)


def _products(device: str, dtype: torch.dtype, stopwatch: Stopwatch, time_s: float) -> list[Product]:
    """Time every kernel at every shape that the time allows.

    A shape is skipped if, at the best rate so far, it would exceed its share. The first shape is always timed.
    """
    shapes, kernels = PRODUCTS[device], _kernels(device, dtype)
    part_s = time_s / len(shapes) / len(kernels)
    found: list[Product] = []
    for shape, (name, prepare) in itertools.product(shapes, kernels.items()):
        flops = 2 * math.prod(shape)
        if shape != shapes[0] and (MIN_REPEATS + 1) * flops / _fastest_of(found).rate > part_s:
            continue
        found.append(Product(rate=flops / _fastest(prepare(shape, device, dtype), stopwatch, part_s), shape=shape, kernel=name))
    return found


def _fastest_of(products: Sequence[Product]) -> Product:
    return max(products, key=lambda product: product.rate)


def _kernels(device: str, dtype: torch.dtype) -> Mapping[str, Prepare]:
    """Return the matrix products available on this device, by name."""
    import torch

    from bench.measure.onednn import product

    found: dict[str, Prepare] = {TORCH_MM: _torch_mm}
    if device != "cpu" or product.why_unsupported():
        return found
    if dtype == torch.float32:
        found |= {ONEDNN: _onednn_linear, PACKED: functools.partial(_onednn_linear, packs=True)}
    elif torch.ops.mkldnn._is_mkldnn_bf16_supported():
        found[ONEDNN] = _onednn_linear
    return found


def _torch_mm(shape: MatrixShape, device: str, dtype: torch.dtype) -> Callable[[], object]:
    import torch

    rows, inner, columns = shape
    left, right = (torch.rand(size, device=device).to(dtype) for size in ((rows, inner), (inner, columns)))
    return functools.partial(torch.mm, left, right, out=torch.empty(rows, columns, dtype=dtype, device=device))


def _onednn_linear(shape: MatrixShape, device: str, dtype: torch.dtype, *, packs: bool = False) -> Callable[[], object]:
    """Build oneDNN's linear layer, without bias and activation.

    Weights lie as in a layer, `(columns, inner)`, or packed as in the engine `onednn`.
    """
    import torch

    from bench.measure.onednn import product

    rows, inner, columns = shape
    left, weights = (torch.rand(size, device=device).to(dtype) for size in ((rows, inner), (columns, inner)))
    return functools.partial(product.product, left, product.packed(weights, rows) if packs else weights)


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

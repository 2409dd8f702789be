"""Plan sweeps of batch size or length, as far as memory allows.

Batch sizes are 1, 4, 16, ...; lengths are 17, 65, 257, ... A size fits if the predicted peak of building the model and of one step does; the
prediction uses fake tensors and runs nothing. Lengths are tried in growing order. Batch sizes are tried at both
ends, because their peak is affine: weights are constant and activations grow per sample. `narrow` then finds the largest that fits with few
predictions, each of which takes about a second for 30 layers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from bench import numbers
from bench.errors import one_line
from bench.measure import environment
from bench.measure.memory_tracker import predicted_counts
from bench.measure.model import is_stepwise
from bench.measure.step import PARAMETER_DTYPES, attention_backend
from bench.peers import own_import
from bench.planning.jobs import estimated_shortest_job_seconds
from bench.planning.request import Request
from bench.planning.search import Expand, SizedAt, lengths_of, longest_sized, narrow, sized_at
from bench.planning.sizing import resolve_models
from bench.planning.values import MAX_SIZE
from bench.spec import Cell, PlannedCell, RequestError, Settings, Skipped, Sweep

PLANNED_MEMORY_SHARE = 0.8
"""Default share of the device's memory that a step may fill.

It is below the share at which the metric `memory` predicts instead of measuring.
"""
GIB = 2**30
BATCHES = tuple(4**k for k in range(MAX_SIZE.bit_length()) if 4**k <= MAX_SIZE)
SECONDS_PER_TOKEN = 4e-3
"""Estimated prediction time per token and layer of a stepwise model.

The operators run on fake tensors, in Python, several times per token.
"""
MAX_PREDICTION_S = 10.0
"""Do not predict a step whose prediction takes longer."""


class UnpredictableError(Exception):
    """torch cannot run the step on the predicted device."""


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """The bytes that a step may hold, and their source in words."""

    num_bytes: int
    source: str

    def __str__(self) -> str:
        return f"{numbers.bytes_text(self.num_bytes)} ({self.source})"


@dataclass(frozen=True, kw_only=True)
class PlannedSweep:
    """A sweep with its cells and skipped combinations.

    `sweep`: None if no cell can run.
    """

    sweep: Sweep | None = None
    cells: tuple[PlannedCell, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def sweeps_of(request: Request, expand: Expand, device: str, settings: Settings) -> Iterator[PlannedSweep]:
    """Yield the requested sweeps.

    There is one for each model, budget, phase, dtype, engine and attention kernel, and for each length (batch sweep) or batch size (length sweep).
    Raises RequestError if --memory is missing and the device's memory is unknown.
    """
    if request.sweeps_batch:
        yield from _batch_sweeps(request, expand, headroom_of(request, device), settings)
    if request.sweeps_seq:
        yield from _length_sweeps(request, expand, headroom_of(request, device), settings)


def headroom_of(request: Request, device: str) -> Headroom:
    """Return the memory of --memory, else PLANNED_MEMORY_SHARE of the device's.

    The share is of a GPU's whole memory, or of a CPU's available memory. Raises RequestError if that is unknown.
    """
    elsewhere = "" if _predicted_device(device) == device else ", predicted as on a CPU"
    if request.memory_bytes:
        return Headroom(num_bytes=request.memory_bytes, source=f"--memory{elsewhere}")
    whole = environment.gpu_facts()["gpu_memory_bytes"] if device == "cuda" else environment.available_memory_bytes()
    if whole is None:
        raise RequestError(f"--memory is missing, and the memory of the {device} device is unknown", "try --memory 8GiB")
    share, kind = round(PLANNED_MEMORY_SHARE * whole), "of the GPU" if device == "cuda" else "available when planned"
    # round down to whole GiB, so that small changes in available memory do not change the plan
    return Headroom(
        num_bytes=share // GIB * GIB or share, source=f"{100 * PLANNED_MEMORY_SHARE:.0f} % of the memory {kind}, rounded down{elsewhere}"
    )


@functools.lru_cache(maxsize=4096)
def peak_bytes(cell: Cell) -> int:
    """Predict the peak bytes of building a model and of a step.

    Models are built in fp32 whatever their dtype, and every engine is predicted as eager. Without a GPU, a GPU's step is predicted on the CPU:
    with attention `math` if requested, else with the kernel that the CPU chooses. Raises UnpredictableError.
    """
    work, device = cell.workload, _predicted_device(cell.workload.device)
    attention = work.attention if device == work.device or work.attention == "math" else "auto"
    try:
        with attention_backend(attention):
            found = own_import.ask(cell.model.digest, predicted_counts, _with(cell, engine="eager", device=device))
            return found.needed_bytes
    except RequestError:
        raise
    except (RuntimeError, ValueError) as error:  # a ValueError stands for any error of a user's own model
        raise UnpredictableError(f"its step cannot be predicted: {one_line(error)}") from error


def _predicted_device(device: str) -> str:
    return device if torch.cuda.is_available() else "cpu"


def _with(cell: Cell, **changes: Any) -> Cell:
    return replace(cell, workload=replace(cell.workload, **changes))


def _batch_sweeps(request: Request, expand: Expand, headroom: Headroom, settings: Settings) -> Iterator[PlannedSweep]:
    def with_batch(planned: PlannedCell, batch_size: int) -> tuple[PlannedCell, ...]:
        return (replace(planned, cell=_with(planned.cell, batch_size=batch_size)),)

    for sized in resolve_models(request):
        if isinstance(sized, Skipped):
            yield PlannedSweep(skipped=(sized,))
            continue
        for planned in expand(sized, replace(request, batch_sizes=(1,))):
            at = functools.partial(with_batch, planned)
            yield _Climb(axis="batch", at=at, place=0, steps=(1, MAX_SIZE), grows=True, headroom=headroom, settings=settings).plan()


def _length_sweeps(request: Request, expand: Expand, headroom: Headroom, settings: Settings) -> Iterator[PlannedSweep]:
    for alone in _single(request):
        at, steps, model = sized_at(alone, expand), lengths_of(alone), alone.models[0]
        # cost grows with n if sizes are given or published; sizes matched to a budget may shrink
        grows = model.is_published or model.is_outside or bool(alone.sizes.width)
        if grows:
            steps = (*steps, MAX_SIZE)
        elif longest := longest_sized(at, steps):
            steps = (*(n for n in steps if n < longest), longest)
        else:
            steps = steps[:1]
        tried = [at(n) for n in (steps[:1] if grows else steps)]
        yield PlannedSweep(skipped=tuple(found for found in tried if isinstance(found, Skipped)))
        workloads = () if isinstance(tried[-1], Skipped) else tried[-1]
        for place in range(len(workloads)):
            yield _Climb(axis="seq", at=at, place=place, steps=steps, grows=grows, headroom=headroom, settings=settings).plan()


def _single(request: Request) -> Iterator[Request]:
    """Split a request into one per model and budget.

    A published model, or one with a given width, gives one request.
    """
    for model in request.models:
        has_budget = not (model.is_published or request.sizes.width)
        for budget in request.budgets if has_budget else request.budgets[:1]:
            yield replace(request, models=(model,), budgets=(budget,))


@dataclass(frozen=True, kw_only=True)
class _Climb:
    """The search for the sweep of one workload.

    `axis`: `batch` or `seq`.
    `at`: returns the cells at a size.
    `place`: index of this workload's cell among those.
    `steps`: sizes to try, in growing order.
    `grows`: whether the peak grows with the size. If so, the search ends at the first step that is infeasible or does not fit; if not, it tries
        all steps. A model that processes tokens one by one always ends at the first length that takes too long.
    """

    axis: str
    at: SizedAt
    place: int
    steps: tuple[int, ...]
    grows: bool
    headroom: Headroom
    settings: Settings

    def plan(self) -> PlannedSweep:
        """Plan the sweep, or skip it if it cannot be predicted."""
        try:
            return self._climb()
        except UnpredictableError as error:
            return PlannedSweep(skipped=(_skipped(self._cell(self.steps[0 if self.grows else -1]), str(error)),))

    def _climb(self) -> PlannedSweep:
        fitting: list[int] = []
        misses: dict[int, Skipped] = {}
        beyond, too_slow = None, ""
        for size in self.steps:
            if isinstance(self.at(size), Skipped):
                if self.grows:
                    beyond = size
                    break
                continue
            if too_slow := self._why_too_slow(size):
                misses[size] = _skipped(self._cell(size), too_slow)
            elif self._fits(size):
                fitting, beyond = [*fitting, size], None
                continue
            else:
                misses[size] = self._skipped_too_large(size)
            beyond = beyond or size
            if too_slow or self.grows:
                break
        if not fitting:
            return PlannedSweep(skipped=tuple(misses.values())[:1])
        largest = fitting[-1]
        if too_slow and beyond == list(misses)[-1]:
            end = {"beyond": beyond, "ends_because": misses[beyond].reason}
        else:
            largest, beyond = narrow(self.at, self._fits, largest, beyond, self._guess) if beyond else (largest, None)
            end = self._end(largest, beyond)
        below = (skipped for size, skipped in misses.items() if size < largest)
        shorter = fitting if self.axis == "seq" else BATCHES
        return self._within_time([*(size for size in shorter if size < largest), largest], end, tuple(below))

    def _end(self, largest: int, beyond: int | None) -> dict[str, Any]:
        """Describe why the sweep ends, as fields of `Sweep`."""
        if self.axis == "batch" and largest == MAX_SIZE:
            return {"beyond": largest, "ends_because": f"larger batches than {MAX_SIZE:,} are not tried"}
        if self.axis == "seq" and largest == MAX_SIZE:
            return {"beyond": largest, "ends_because": f"longer sequences than {MAX_SIZE:,} are not tried"}
        beyond = beyond or largest + 1
        found = self.at(beyond)
        if isinstance(found, Skipped):
            return {"beyond": beyond, "ends_because": found.reason}
        return {"beyond": beyond, "beyond_bytes": self._peak(beyond)}

    def _within_time(self, sizes: list[int], end: dict[str, Any], skipped: tuple[Skipped, ...]) -> PlannedSweep:
        """Plan the sizes that the time limit allows; skip the rest."""
        seconds = {size: estimated_shortest_job_seconds(self._cell(size), self.settings) for size in sizes}
        cells = tuple(self._cell(size) for size in sizes if seconds[size] <= self.settings.limit_s)
        if slow := [size for size in sizes if seconds[size] > self.settings.limit_s]:
            name = f"{'batch' if self.axis == 'batch' else 'n ='} {slow[0]:,}"
            reason = (
                f"{name} and above: {sizes[-1]:,} fits {self.headroom}, but a job of {name} takes about {seconds[slow[0]]:,.0f} s "
                f"and --limit-s allows {self.settings.limit_s:g}"
            )
            skipped = (*skipped, _skipped(self._cell(slow[0]), reason))
        sweep = Sweep(
            axis=self.axis,
            cells=tuple(planned.cell.cell_id for planned in cells),
            memory_bytes=self.headroom.num_bytes,
            memory_source=self.headroom.source,
            largest=sizes[-1],
            peak_bytes=self._peak(sizes[-1]),
            **{"beyond_bytes": None, "ends_because": "memory", **end},
        )
        return PlannedSweep(sweep=sweep if cells else None, cells=cells, skipped=skipped)

    def _cell(self, size: int) -> PlannedCell:
        found = self.at(size)
        assert not isinstance(found, Skipped)
        return found[self.place]

    def _fits(self, size: int) -> bool:
        return self._peak(size) <= self.headroom.num_bytes

    def _peak(self, size: int) -> int:
        """Return the predicted peak bytes at a size.

        If the weights alone exceed the memory, return only their bytes: a lower bound that needs no prediction.
        """
        weights = _weight_bytes(self._cell(size))
        return weights if weights > self.headroom.num_bytes else peak_bytes(self._cell(size).cell)

    def _guess(self, low: int, high: int) -> float:
        """Estimate the size at which the peak reaches the memory.

        For batch sizes, interpolate linearly: weights are constant and activations grow per sample. For lengths, interpolate by a power law.
        """
        first, last = self._peak(low), self._peak(high)
        if self.axis == "batch":
            return low + (self.headroom.num_bytes - first) / (last - first) * (high - low)
        return low * math.pow(self.headroom.num_bytes / first, math.log(high / low) / math.log(last / first))

    def _why_too_slow(self, size: int) -> str:
        """Return why a length takes too long, for a stepwise model.

        A stepwise model processes tokens one by one. "" for other models, or if its prediction and its job are fast enough.
        """
        planned = self._cell(size)
        if self.axis == "batch" or not is_stepwise(planned.cell.model):
            return ""
        job_s = estimated_shortest_job_seconds(planned, self.settings)
        prediction_s = SECONDS_PER_TOKEN * size * planned.cell.model.shape.depth
        if prediction_s > MAX_PREDICTION_S:
            return f"one token after another, n = {size:,} takes about {prediction_s:,.0f} s to predict, more than {MAX_PREDICTION_S:g}"
        if job_s > self.settings.limit_s:
            return f"a job of n = {size:,} takes about {job_s:,.0f} s and --limit-s allows {self.settings.limit_s:g}"
        return ""

    def _skipped_too_large(self, size: int) -> Skipped:
        planned, peak = self._cell(size), self._peak(size)
        name = f"{'batch' if self.axis == 'batch' else 'n ='} {size:,}"
        bound = "at least " if peak == _weight_bytes(planned) else ""
        return _skipped(planned, f"{name} needs {bound}{numbers.bytes_text(peak)} by prediction, more than {self.headroom}")


def _weight_bytes(planned: PlannedCell) -> int:
    return planned.sizing.params * PARAMETER_DTYPES[planned.cell.workload.dtype].itemsize


def _skipped(planned: PlannedCell, reason: str) -> Skipped:
    model, work = planned.cell.model, planned.cell.workload
    words = ", ".join((work.phase, work.engine, work.dtype, f"attention {work.attention}"))
    return Skipped(model=model.name, seq_len=model.shape.seq_len, budget=planned.sizing.budget, reason=f"{reason} ({words})")

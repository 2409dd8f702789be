"""Ladders: batch sizes 1, 4, 16, ... up to the largest that fits a memory, and lengths 17, 65, 257, ... up to the longest.

What fits is decided by the peak of building a model and of a step on fake tensors, which runs nothing. In the batch the peak is affine (weights
stay, activations are per sample): two predictions give a line, and where the line meets the memory it is predicted again, together with the batch
that is one larger.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.errors import one_line
from bench.measure import environment
from bench.measure.memory_tracker import predicted_counts
from bench.measure.model import is_stepwise
from bench.measure.step import PARAMETER_DTYPES, attention_backend
from bench.planning.jobs import estimated_visit_seconds
from bench.planning.longest import Expand, SizedAt, lengths_of, longest_between, longest_sized, sized_at
from bench.planning.request import Request
from bench.planning.sizing import resolve_models
from bench.planning.values import MAX_SIZE
from bench.spec import Cell, Ladder, PlannedCell, RequestError, Settings, Skipped

MEMORY_SHARE = 0.8
"""Of the device's memory where none is stated: below the share at which the memory meter predicts instead of measuring."""
MIB, GIB = 2**20, 2**30
BATCHES = tuple(4**k for k in range(MAX_SIZE.bit_length()) if 4**k <= MAX_SIZE)
SECOND_BATCH = 16
SECONDS_PER_TOKEN = 4e-3
"""To predict one layer that takes the tokens one after another: its operators run on fake tensors, in Python, more than once."""
MAX_PREDICTION_S = 10.0


class UnpredictableError(Exception):
    """A step that torch cannot run on the device that is predicted, and why."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """The bytes that a step may hold, and where that figure is from."""

    num_bytes: int
    source: str

    def __str__(self) -> str:
        return f"{bytes_text(self.num_bytes)} ({self.source})"


@dataclass(frozen=True, kw_only=True)
class Climb:
    """One ladder with its cells, and what was asked for and is not in it; no ladder where not one of its cells can be run."""

    ladder: Ladder | None = None
    cells: tuple[PlannedCell, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def climbs(request: Request, expand: Expand, device: str, settings: Settings) -> Iterator[Climb]:
    """A ladder for each model, size, phase, dtype, engine and kernel of the request, and for each of its lengths or batch sizes; none unless asked.

    `expand` makes the cells of a sized model. Raises RequestError where no memory is stated and the device does not say what it has.
    """
    if request.climbs_batch:
        yield from _batch_climbs(request, expand, room_of(request, device), settings)
    if request.climbs_seq:
        yield from _length_climbs(request, expand, room_of(request, device), settings)


def room_of(request: Request, device: str) -> Room:
    """What is stated; else a share of the GPU's whole memory, or of what is available now on a CPU."""
    elsewhere = "" if _predicted_device(device) == device else ", predicted as on a CPU"
    if request.memory_bytes:
        return Room(num_bytes=request.memory_bytes, source=f"--memory{elsewhere}")
    whole = environment.gpu_facts()["gpu_memory_bytes"] if device == "cuda" else environment.available_memory_bytes()
    if whole is None:
        raise RequestError(f"--memory is missing, and the {device} device here does not say what it has", "try --memory 8GiB")
    share, what = round(MEMORY_SHARE * whole), "of the GPU" if device == "cuda" else "available when planned"
    # whole GiB: what others take for a moment changes no plan
    return Room(num_bytes=share // GIB * GIB or share, source=f"{100 * MEMORY_SHARE:.0f} % of the memory {what}, rounded down{elsewhere}")


@functools.lru_cache(maxsize=4096)
def peak_bytes(cell: Cell) -> int:
    """The predicted peak of building the model, in fp32 whatever its dtype, and of one steady step, with any engine that of eager.

    A GPU's step is predicted as a CPU's where there is no GPU, and then with the attention that a CPU chooses, but for `math`, which is everywhere.
    Raises UnpredictableError.
    """
    work, device = cell.workload, _predicted_device(cell.workload.device)
    attention = work.attention if device == work.device or work.attention == "math" else "auto"
    try:
        with attention_backend(attention):
            return predicted_counts(_with(cell, engine="eager", device=device)).needed_bytes
    except RuntimeError as error:
        raise UnpredictableError(f"its step cannot be predicted: {one_line(error)}") from error


def _predicted_device(device: str) -> str:
    return device if torch.cuda.is_available() else "cpu"


def _climbed(planned: PlannedCell, climb: Callable[[], Climb]) -> Climb:
    """One that cannot be predicted is skipped with its reason."""
    try:
        return climb()
    except UnpredictableError as error:
        return Climb(skipped=(_skipped(planned, str(error)),))


def _with(cell: Cell, **changes: Any) -> Cell:
    return replace(cell, workload=replace(cell.workload, **changes))


def _batch_climbs(request: Request, expand: Expand, room: Room, settings: Settings) -> Iterator[Climb]:
    for sized in resolve_models(request):
        if isinstance(sized, Skipped):
            yield Climb(skipped=(sized,))
        else:
            for planned in expand(sized, replace(request, batch_sizes=(1,))):
                yield _climbed(planned, functools.partial(climb_batches, planned, room, settings))


def climb_batches(planned: PlannedCell, room: Room, settings: Settings) -> Climb:
    """The ladder of one cell, whatever its own batch size."""

    def at(batch_size: int) -> PlannedCell:
        return replace(planned, cell=_with(planned.cell, batch_size=batch_size))

    def peak_at(batch_size: int) -> int:
        return peak_bytes(at(batch_size).cell)

    if peak_at(1) > room.num_bytes:
        return Climb(skipped=(_too_large(planned, "batch 1", peak_at(1), room),))
    largest = largest_batch(peak_at, room.num_bytes)
    is_last = largest == MAX_SIZE
    ladder = _ladder("batch", room, largest, peak_at(largest))
    if is_last:
        ladder = replace(ladder, beyond=largest, ends_because=f"larger batches than {MAX_SIZE:,} are not tried")
    else:
        ladder = replace(ladder, beyond=largest + 1, beyond_bytes=peak_at(largest + 1))
    return _within_time(ladder, {size: at(size) for size in _rungs(BATCHES, largest)}, room, settings)


def largest_batch(peak_at: Callable[[int], int], num_bytes: int) -> int:
    """The last batch size whose peak fits, up to MAX_SIZE; the first one must.

    Each guess is where the line through the last two peaks meets the memory. A peak is the largest of several affine sums, so the line may bend:
    guesses stay between what fits and what does not, and halve the rest where they make no way.
    """
    low, high, line, num_lines = 1, MAX_SIZE + 1, (1, SECOND_BATCH), 8
    while high - low > 1:
        guess = _meets(line, peak_at, num_bytes) if num_lines > 0 else (low + high) // 2
        guess = min(max(guess, low + 1), high - 1)
        low, high = (guess, high) if peak_at(guess) <= num_bytes else (low, guess)
        line, num_lines = (line if guess in line else (line[1], guess)), num_lines - 1
    return low


def _meets(line: tuple[int, int], peak_at: Callable[[int], int], num_bytes: int) -> int:
    first, second = line
    per_sample = (peak_at(second) - peak_at(first)) / (second - first)
    return first + math.floor((num_bytes - peak_at(first)) / per_sample) if per_sample > 0 else MAX_SIZE


def _length_climbs(request: Request, expand: Expand, room: Room, settings: Settings) -> Iterator[Climb]:
    for alone in _single(request):
        at, rungs = sized_at(alone, expand), lengths_of(alone)
        if _keeps_sizes(alone):
            yield from _growing_climbs(at, (*rungs, MAX_SIZE), room, settings)
            continue
        longest = longest_sized(at, rungs)
        missed = (at(n) for n in rungs if (n < longest if longest else n == rungs[0]))
        yield Climb(skipped=tuple(found for found in missed if isinstance(found, Skipped)))
        if longest is not None:
            num_workloads = len(_cells(at, longest))
            for place in range(num_workloads):
                climb = functools.partial(climb_lengths, at, place, _rungs(rungs, longest), room, settings)
                yield _climbed(_cells(at, longest)[place], climb)


def _keeps_sizes(request: Request) -> bool:
    """Whether its one model only grows with n: sizes set outright or published, and models that are not ours."""
    model = request.models[0]
    return model.is_published or model.is_outside or bool(request.sizes.width)


def _growing_climbs(at: SizedAt, rungs: tuple[int, ...], room: Room, settings: Settings) -> Iterator[Climb]:
    """Sized and predicted rung by rung, up to the first that is too much: a longer one would not fit either."""
    first = at(rungs[0])
    if isinstance(first, Skipped):
        yield Climb(skipped=(first,))
        return
    for place, planned in enumerate(first):
        yield _climbed(planned, functools.partial(climb_lengths, at, place, rungs, room, settings, grows=True))


def _single(request: Request) -> Iterator[Request]:
    """One model and one budget each; where no budget decides the size, one for the model."""
    for model in request.models:
        has_budget = not (model.is_published or request.sizes.width)
        for budget in request.budgets if has_budget else request.budgets[:1]:
            yield replace(request, models=(model,), budgets=(budget,))


@dataclass(frozen=True, kw_only=True)
class _Reach:
    """The rungs that fit, and why others do not; `beyond`: the first above them that does not, `is_slow` where it was not even predicted."""

    fitting: tuple[int, ...]
    misses: Mapping[int, Skipped]
    beyond: int | None
    is_slow: bool


def _reach(
    at: SizedAt, place: int, peak_at: Callable[[int], int], rungs: tuple[int, ...], room: Room, settings: Settings, *, grows: bool
) -> _Reach:
    fitting: list[int] = []
    misses: dict[int, Skipped] = {}
    beyond, slow = None, ""
    for n in rungs:
        found = at(n)
        if isinstance(found, Skipped):
            if grows:
                beyond = n
                break
            continue
        planned = found[place]
        if slow := _too_slow(planned, settings):
            misses[n] = _skipped(planned, slow)
        elif peak_at(n) > room.num_bytes:
            misses[n] = _too_large(planned, f"n = {n:,}", peak_at(n), room)
        else:
            fitting, beyond = [*fitting, n], None
            continue
        beyond = beyond or n
        if slow or grows:
            break
    return _Reach(fitting=tuple(fitting), misses=misses, beyond=beyond, is_slow=bool(slow) and list(misses)[-1] == beyond)


def climb_lengths(at: SizedAt, place: int, rungs: tuple[int, ...], room: Room, settings: Settings, *, grows: bool = False) -> Climb:
    """The ladder of one workload, the `place`th at every length; the last rung is the longest that has a size. One whose model `grows` ends at the
    first rung that has no size or does not fit, and a stepwise model's at the first that takes too long."""

    def peak_at(n: int) -> int:
        planned = _cells(at, n)[place]
        weights = _weight_bytes(planned)
        return weights if weights > room.num_bytes else peak_bytes(planned.cell)

    reach = _reach(at, place, peak_at, rungs, room, settings, grows=grows)
    if not reach.fitting:
        return Climb(skipped=tuple(reach.misses.values())[:1])
    low, beyond = reach.fitting[-1], reach.beyond
    if reach.is_slow:
        ladder = replace(_ladder("seq", room, low, peak_at(low)), beyond=beyond or low, ends_because=reach.misses[beyond or low].reason)
    else:
        low, beyond = longest_between(at, peak_at, room.num_bytes, low, beyond) if beyond else (low, beyond)
        ladder = _ended(_ladder("seq", room, low, peak_at(low)), at, peak_at, beyond)
    climb = _within_time(ladder, {n: _cells(at, n)[place] for n in dict.fromkeys((*reach.fitting, low))}, room, settings)
    return replace(climb, skipped=(*(skipped for n, skipped in reach.misses.items() if n < low), *climb.skipped))


def _ended(ladder: Ladder, at: SizedAt, peak_at: Callable[[int], int], beyond: int | None) -> Ladder:
    """With what lies above the longest: a length that does not fit, one that has no size, or none that is tried."""
    if ladder.largest == MAX_SIZE:
        return replace(ladder, beyond=ladder.largest, ends_because=f"longer sequences than {MAX_SIZE:,} are not tried")
    next_length = beyond or ladder.largest + 1
    found = at(next_length)
    if isinstance(found, Skipped):
        return replace(ladder, beyond=next_length, ends_because=found.reason)
    return replace(ladder, beyond=next_length, beyond_bytes=peak_at(next_length))


def _cells(at: SizedAt, n: int) -> tuple[PlannedCell, ...]:
    found = at(n)
    assert not isinstance(found, Skipped)
    return found


def _ladder(axis: str, room: Room, largest: int, peak: int) -> Ladder:
    """One that ends at the memory, as yet without cells."""
    return Ladder(
        axis=axis,
        cells=(),
        memory_bytes=room.num_bytes,
        memory_source=room.source,
        largest=largest,
        peak_bytes=peak,
        beyond=largest,
        beyond_bytes=None,
        ends_because="memory",
    )


def _rungs(steps: tuple[int, ...], top: int) -> tuple[int, ...]:
    return (*(step for step in steps if step < top), top)


def _within_time(ladder: Ladder, rungs: Mapping[int, PlannedCell], room: Room, settings: Settings) -> Climb:
    """The rungs that can be timed within the limit; the first that cannot is named, for all above it."""
    seconds = {size: estimated_visit_seconds(planned, settings) for size, planned in rungs.items()}
    cells = tuple(planned for size, planned in rungs.items() if seconds[size] <= settings.limit_s)
    name = "batch" if ladder.axis == "batch" else "n ="
    skipped = [
        _skipped(
            rungs[size],
            f"{name} {size:,} and above: up to {ladder.largest:,} fits {room}, but a job of {name} {size:,} takes about {seconds[size]:,.0f} s "
            f"and --limit-s allows {settings.limit_s:g}",
        )
        for size in rungs
        if seconds[size] > settings.limit_s
    ]
    held = replace(ladder, cells=tuple(planned.cell.cell_id for planned in cells))
    return Climb(ladder=held if cells else None, cells=cells, skipped=tuple(skipped[:1]))


def _weight_bytes(planned: PlannedCell) -> int:
    """What its parameters alone hold: a lower bound of the peak, known without building anything."""
    return planned.sizing.params * PARAMETER_DTYPES[planned.cell.workload.dtype].itemsize


def _too_slow(planned: PlannedCell, settings: Settings) -> str:
    """Why a stepwise model is not predicted at this length, where each token is predicted by itself; "" for any other, or one that is fast enough."""
    model = planned.cell.model
    if not is_stepwise(model):
        return ""
    n, job_s = model.shape.seq_len, estimated_visit_seconds(planned, settings)
    prediction_s = SECONDS_PER_TOKEN * n * model.shape.depth
    if prediction_s > MAX_PREDICTION_S:
        return f"one token after another, n = {n:,} takes about {prediction_s:,.0f} s to predict, more than {MAX_PREDICTION_S:g}"
    if job_s > settings.limit_s:
        return f"a job of n = {n:,} takes about {job_s:,.0f} s and --limit-s allows {settings.limit_s:g}"
    return ""


def _too_large(planned: PlannedCell, name: str, peak: int, room: Room) -> Skipped:
    bound = "at least " if peak == _weight_bytes(planned) else ""
    return _skipped(planned, f"{name} needs {bound}{bytes_text(peak)} by prediction, more than {room}")


def _skipped(planned: PlannedCell, reason: str) -> Skipped:
    model, work = planned.cell.model, planned.cell.workload
    words = ", ".join((work.phase, work.engine, work.dtype, f"attention {work.attention}"))
    return Skipped(model=model.name, seq_len=model.shape.seq_len, budget=planned.sizing.budget, reason=f"{reason} ({words})")


def bytes_text(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.2f} GiB" if num_bytes >= GIB else f"{num_bytes / MIB:,.2f} MiB"

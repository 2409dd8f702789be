"""Training-loop speed, compared with a plain loop, timm's and a bare one.

The plain loop is the usual DataLoader loop. The bare loop (`bound`) runs training steps alone, on batches prepared beforehand. All run eagerly, in
the cell's precision.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.intervals import geometric_interval
from bench.measure.engines import EAGER
from bench.metrics import Measurement, Repeat
from bench.spec import Job, Recipe, Record

if TYPE_CHECKING:
    from torch import Tensor

    from bench.training.data import TrainingData

REPEAT: Repeat = "round"
NEEDS_TASK = True
COLUMNS = (
    "loop_images_per_s",
    "bound_images_per_s",
    "plain_images_per_s",
    "timm_images_per_s",
    "loop_of_bound",
    "loop_of_bound_low",
    "loop_of_bound_high",
    "loop_over_plain",
    "loop_over_plain_low",
    "loop_over_plain_high",
    "loop_over_timm",
    "loop_over_timm_low",
    "loop_over_timm_high",
)
WAYS = ("loop", "bound", "plain", "timm")
RATIOS = {"loop_of_bound": "bound", "loop_over_plain": "plain", "loop_over_timm": "timm"}
"""Columns of our loop's ratio to another way."""
DTYPES = ("fp32", "bf16-autocast")
NUM_STEPS = 24
"""Steps per stretch.

The loops take turns, stretch by stretch, so that a slow moment of the machine affects all.
"""
MIN_STRETCHES = 3
TRAINING_STEPS = NUM_STEPS * len(WAYS) * (1 + MIN_STRETCHES)
"""Training steps of one job with slow steps, for its estimated time."""


def measure(job: Job) -> Measurement:
    """Measure items per second of the loops.

    All use the same model and items, and the workload's batch size and dtype. timm's is left out without timm, or if items are not images stored as
    bytes. The time of our loop is the time it reports for its steps, including reading, shuffling, schedule and progress, without validation. Raises
    ValueError for a cell without a task or with another dtype or engine, RequestError if its data are missing.
    """
    import torch

    from bench.measure.step import set_product_precision
    from bench.training.data import load_training_data

    work = job.cell.workload
    if not work.task:
        raise ValueError("training speed needs a task to train on")
    if work.dtype not in DTYPES or work.engine != EAGER:
        raise ValueError(f"training speed needs {' or '.join(DTYPES)}, {EAGER}; this configuration is {work.dtype}, {work.engine}")
    recipe = Recipe(epochs=1, batch_size=work.batch_size, precision=work.dtype)
    set_product_precision("fp32")
    torch.manual_seed(job.settings.seed)
    data = load_training_data(job.cell.model, work.task, recipe, seed=job.settings.seed).to(work.device)
    unread = load_training_data(job.cell.model, work.task, recipe, seed=job.settings.seed, prepares=False)
    num_steps = min(NUM_STEPS, len(data.learned) // work.batch_size)
    num_items = num_steps * work.batch_size or len(data.learned)
    seconds = _take_turns(_ways(job, _first(data, num_items), _first(unread, num_items), recipe), job.settings.sample_s)
    return Measurement(samples={f"{way}_images_per_s": [num_items / s for s in found] for way, found in seconds.items()})


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Return medians over rounds, and ratios with t-intervals over rounds.

    Intervals are None for a single round, and all of timm's columns without its loop. Ratios are paired by stretch within a round.
    """
    if not records:
        return dict.fromkeys(COLUMNS)
    samples = [record.outcome.samples for record in records]
    measured = [way for way in WAYS if all(f"{way}_images_per_s" in found for found in samples)]
    rates = [{way: found[f"{way}_images_per_s"] for way in measured} for found in samples]
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {f"{way}_images_per_s": statistics.median(statistics.median(r[way]) for r in rates) for way in measured}
    for name, other in RATIOS.items():
        if other not in measured:
            continue
        ratios = [statistics.median(a / b for a, b in zip(r["loop"], r[other], strict=True)) for r in rates]
        interval = geometric_interval(ratios)
        row[name] = interval.estimate if interval else ratios[0]
        row[f"{name}_low"], row[f"{name}_high"] = (interval.low, interval.high) if interval else (None, None)
    return row


def _ways(job: Job, data: TrainingData, unread: TrainingData, recipe: Recipe) -> dict[str, Callable[[], float]]:
    """Return each loop as a function.

    Each function trains on all items once and returns the seconds taken.
    """
    from bench.measure.model import build_model
    from bench.training.baselines import bound_seconds, plain_seconds, prepared_batches, suits_timm, timm_seconds
    from bench.training.loop import Training

    device = job.cell.workload.device
    model = build_model(job.cell.model).to(device)
    batches = prepared_batches(data, recipe)
    training = Training(model, data, recipe, seed=job.settings.seed, device=device)
    untrained = copy.deepcopy(training.state())
    forward = _in_precision(model, recipe.precision, device)

    def loop_seconds() -> float:
        training.restore(copy.deepcopy(untrained))
        training.run_epoch(None)
        return training.epochs[0].steps_s

    ways = {
        "loop": loop_seconds,
        "bound": lambda: bound_seconds(model, batches, data.answers, recipe, device, forward),
        "plain": lambda: plain_seconds(model, unread, recipe, device, forward),
    }
    if importlib.util.find_spec("timm") and suits_timm(unread, recipe):
        ways["timm"] = lambda: timm_seconds(model, unread, recipe, device, forward)
    return ways


def _in_precision(call: Callable[..., Tensor], precision: str, device: str) -> Callable[..., Tensor]:
    """Return the call in a precision, with outputs in fp32 for the loss."""
    from bench.measure.step import autocast_of

    def forward(*batch: Tensor | None) -> Tensor:
        with autocast_of(precision, device):
            return call(*batch).float()

    return forward


def _take_turns(ways: Mapping[str, Callable[[], float]], at_least_s: float) -> dict[str, list[float]]:
    """Time stretches of all loops in alternating order.

    The first stretch of each loop is discarded.
    """
    found: dict[str, list[float]] = {way: [] for way in ways}
    for run in ways.values():
        run()
    started = time.perf_counter()
    for turn in itertools.count():
        if turn >= MIN_STRETCHES and time.perf_counter() - started > at_least_s:
            return found
        for way in list(ways) if turn % 2 else reversed(list(ways)):
            found[way].append(ways[way]())
    raise AssertionError("unreachable: itertools.count never ends")


def _first(data: TrainingData, num_items: int) -> TrainingData:
    """Limit the training items to the first `num_items`.

    Few validation items are kept, because validation is not timed.
    """
    import torch

    few = torch.arange(min(len(data.held_out), 32))
    return dataclasses.replace(data, learned=data.learned.select(torch.arange(num_items)), held_out=data.held_out.select(few))

"""Training-loop speed, compared with a plain and a bare loop.

The plain loop is the usual DataLoader loop. The bare loop (`bound`) runs training steps alone, on batches prepared beforehand.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.intervals import geometric_interval
from bench.metrics import Measurement, Repeat
from bench.spec import Job, Recipe, Record

if TYPE_CHECKING:
    from bench.training.data import TrainingData

REPEAT: Repeat = "round"
NEEDS_TASK = True
COLUMNS = (
    "loop_images_per_s",
    "bound_images_per_s",
    "plain_images_per_s",
    "loop_of_bound",
    "loop_of_bound_low",
    "loop_of_bound_high",
    "loop_over_plain",
    "loop_over_plain_low",
    "loop_over_plain_high",
)
WAYS = ("loop", "bound", "plain")
NUM_STEPS = 24
"""Steps per stretch.

The three loops take turns, stretch by stretch, so that a slow moment of the machine affects all.
"""
MIN_STRETCHES = 3


def measure(job: Job) -> Measurement:
    """Measure items per second of the three loops.

    All use the same model and items. Uses the workload's batch size, fp32. The time of our loop is the time it reports for its steps, including
    reading, shuffling, schedule and progress, without validation. Raises ValueError for a cell without a task or with another dtype or engine,
    RequestError if its data are missing.
    """
    import torch

    from bench.measure.step import set_product_precision
    from bench.training.data import load_training_data

    work = job.cell.workload
    if not work.task:
        raise ValueError("training speed needs a task to train on")
    if (work.dtype, work.engine) != ("fp32", "eager"):
        raise ValueError(f"training speed needs fp32, eager; this configuration is {work.dtype}, {work.engine}")
    recipe = Recipe(epochs=1, batch_size=work.batch_size)
    set_product_precision("fp32")
    torch.manual_seed(job.settings.seed)
    data = load_training_data(job.cell.model, work.task, recipe, seed=job.settings.seed).to(work.device)
    unread = load_training_data(job.cell.model, work.task, recipe, seed=job.settings.seed, prepares=False)
    num_items = min(len(data.learned), NUM_STEPS * work.batch_size)
    seconds = _take_turns(_ways(job, _first(data, num_items), _first(unread, num_items), recipe), job.settings.sample_s)
    return Measurement(samples={f"{way}_images_per_s": [num_items / s for s in found] for way, found in seconds.items()})


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Return medians over rounds, and ratios with t-intervals over rounds.

    Intervals are None for a single round. Ratios are paired by stretch within a round.
    """
    if not records:
        return dict.fromkeys(COLUMNS)
    rates = [{way: record.outcome.samples[f"{way}_images_per_s"] for way in WAYS} for record in records]
    row: dict[str, Any] = {f"{way}_images_per_s": statistics.median(statistics.median(r[way]) for r in rates) for way in WAYS}
    for name, other in (("loop_of_bound", "bound"), ("loop_over_plain", "plain")):
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
    from bench.training.baselines import bound_seconds, plain_seconds, prepared_batches
    from bench.training.loop import Training

    device = job.cell.workload.device
    model = build_model(job.cell.model).to(device)
    batches = prepared_batches(data, recipe)

    def loop_seconds() -> float:
        training = Training(model, data, recipe, seed=job.settings.seed, device=device)
        training.run(None)
        return training.epochs[0].steps_s

    return {
        "loop": loop_seconds,
        "bound": lambda: bound_seconds(model, batches, data.answers, recipe, device),
        "plain": lambda: plain_seconds(model, unread, recipe, device),
    }


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

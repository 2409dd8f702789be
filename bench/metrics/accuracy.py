"""Accuracy on a task's test items after training, top-1 to top-5, over several seeds."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import catalog
from bench.intervals import mean_interval
from bench.metrics import Measurement, Repeat
from bench.spec import Job, Record
from bench.tasks import DATA_VARIABLE

if TYPE_CHECKING:
    from bench.tasks import Split
    from bench.training.examples import Examples
    from bench.training.loop import TrainResult

REPEAT: Repeat = "seed"
COLUMNS = (
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "accuracy_top5",
    "train_accuracy",
    "score",
    "score_name",
    "num_seeds",
    "train_s",
    "train_images_per_s",
)


def measure(job: Job) -> Measurement:
    """Train the cell's model on its task with the job's recipe, in fp32; the seed is the settings' plus the repeat.

    Raises RequestError where the model's seq_len does not fit the task, ValueError where it was built for another one or the job has no recipe.
    """
    import torch

    from bench.build import build_model
    from bench.step import exact_fp32
    from bench.training.loop import train

    if job.recipe is None:
        raise ValueError("an accuracy job needs a recipe")
    seed = job.settings.seed + job.repeat
    examples, test = _load_examples(job)
    exact_fp32()
    torch.manual_seed(seed)
    model = build_model(job.cell.model)
    result = train(model, examples, test, job.recipe, seed=seed, device=job.cell.workload.device)
    return _measurement(result, seed)


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Means over seeds, with a 95 % t-interval for the accuracy, clipped to 0..1 (None for a single seed).

    Of the two times, medians: a busy machine skews means.
    """
    if not records:
        return dict.fromkeys(COLUMNS)
    values = [record.outcome.values for record in records]
    interval = mean_interval(_column(values, "accuracy"))
    return {
        "accuracy": statistics.fmean(_column(values, "accuracy")),
        "accuracy_low": max(0.0, interval.low) if interval else None,
        "accuracy_high": min(1.0, interval.high) if interval else None,
        "accuracy_top5": statistics.fmean(_column(values, "accuracy_top5")),
        "train_accuracy": statistics.fmean(_column(values, "train_accuracy")),
        "score": None,
        "score_name": None,
        "num_seeds": len(records),
        "train_s": statistics.median(_column(values, "train_s")),
        "train_images_per_s": statistics.median(_column(values, "train_images_per_s")),
    }


def _load_examples(job: Job) -> tuple[Examples, Examples]:
    """(to learn from, to test on): the task's images cut into the patches that the model reads."""
    from bench.build import config_of
    from bench.training.examples import Examples
    from bench.training.patches import cut_patches

    model = job.cell.model
    task = catalog.load("tasks", job.cell.workload.task)
    pool = config_of(model).pool
    interface = task.INFO.interface(model.shape.seq_len, pool)
    if interface != model.interface:
        raise ValueError(f"task {task.INFO.name} needs {interface}, the model was built for {model.interface}")
    patch_side = task.INFO.patch_side(model.shape.seq_len, pool)

    def examples(split: Split) -> Examples:
        return Examples(data=cut_patches(split.images, patch_side), labels=split.labels)

    splits = task.load(os.environ.get(DATA_VARIABLE, ""))
    return examples(splits.train), examples(splits.test)


def _measurement(result: TrainResult, seed: int) -> Measurement:
    """`correct` holds a 1 or 0 per test item, in stored order, for paired tests between models."""
    top = {f"accuracy_top{k}": share for k, share in enumerate(result.test.top, start=1) if k > 1}
    return Measurement(
        values={
            "accuracy": result.test.accuracy,
            **top,
            "train_accuracy": result.train.accuracy,
            "validation_accuracy": result.validation.accuracy,
            "train_s": result.train_s,
            "train_images_per_s": result.images_per_s,
            "num_epochs": len(result.epochs),
            "best_epoch": result.best_epoch,
            "seed": seed,
        },
        samples={
            "loss": [epoch.loss for epoch in result.epochs],
            "validation_accuracy": [epoch.validation_accuracy for epoch in result.epochs],
            "epoch_s": [epoch.steps_s for epoch in result.epochs],
            "correct": result.test.correct.int().tolist(),
        },
    )


def _column(values: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in values]

"""Accuracy, or a regression score, on test items after training.

Several seeds are trained. Classes give top-1 to top-5 accuracy; values give R2.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.intervals import mean_interval
from bench.metrics import Measurement, Repeat
from bench.progress import tell
from bench.spec import Job, Record
from bench.tasks._info import Images, info_of
from bench.training.curve_fits import encode_fit
from bench.training.pictures import encode_picture
from bench.training.weight_maps import TokenLayout, encode_mixing
from models.layers.shape import image_grid

if TYPE_CHECKING:
    from torch import nn

    from bench.training.checkpoint import Checkpoint
    from bench.training.data import TrainingData
    from bench.training.loop import TrainResult
    from bench.training.objective import Scores

REPEAT: Repeat = "seed"
NEEDS_TASK = True
TOP_COLUMNS = tuple(f"accuracy_top{k}" for k in range(2, 6))
COLUMNS = (
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    *TOP_COLUMNS,
    "train_accuracy",
    "exact_accuracy",
    "exact_accuracy_low",
    "exact_accuracy_high",
    "perplexity",
    "perplexity_low",
    "perplexity_high",
    "score",
    "score_low",
    "score_high",
    "score_name",
    "num_seeds",
    "train_score",
    "train_s",
    "epoch_s",
    "train_images_per_s",
    "train_flops",
    "teacher_accuracy",
    "teacher_s",
    "num_epochs",
    "num_steps",
    "learning_rate",
    "train_engine",
    "train_precision",
)
MEANS = (*TOP_COLUMNS, "train_accuracy", "train_score", "teacher_accuracy")
MEDIANS = ("train_s", "epoch_s", "train_images_per_s", "train_flops", "teacher_s", "num_epochs", "num_steps")
WAYS = ("train_engine", "train_precision")
NOT_NUMBERS = ("score_name", *WAYS)


def measure(job: Job) -> Measurement:
    """Train the cell's model with the job's recipe and score it.

    Test items are scored once. The seed is the settings' seed plus the repeat. The record of the first seed also holds the model's token mixing
    before and after training (`bench.training.weight_maps`), the fit of a curve (`bench.training.curve_fits`) and a test image
    (`bench.training.pictures`).

    Raises RequestError if the model's seq_len does not fit the task or the data are missing, ValueError if the model was built for another task or
    the job has no recipe.
    """
    from bench.training.inspection import fit_of, mixing_of, picture_of

    seed = job.settings.seed + job.repeat
    model, data, begun = _prepare(job, seed)
    is_first = job.repeat == 0  # one example suffices; matrices in every record would take much space
    layout, curve = _layout(job), info_of(job.cell.workload.task).curve
    start = mixing_of(model, data, layout) if is_first else {}
    result = _train(job, model, data, seed=seed, scores_test=True)
    assert result.test is not None
    mixing, matrices = encode_mixing(layout, {"start": start, "trained": mixing_of(model, data, layout)}) if is_first else ({}, {})
    fit = encode_fit(fit_of(model, data, curve)) if is_first and curve else {}
    picture, pixels = encode_picture(picture_of(data, job.cell.model.interface.rows)) if is_first else ({}, {})
    values = {
        **_scores(result.test, ""),
        **_scores(result.train, "train_"),
        **_sequence_scores(result.test, is_generated=data.generation is not None),
        **training_values(job, result),
        "seed": seed,
        **begun,
        **(_saved(job, model, data, result, seed) if job.settings.save_weights else {}),
        **mixing,
        **picture,
    }
    samples = {**training_samples(result), "item_scores": result.test.items.tolist(), **matrices, **fit, **pixels}
    return Measurement(values=values, samples=samples)


def train_job(job: Job, *, seed: int) -> TrainResult:
    """Train the job's model without scoring its test split, continuing from its checkpoint if there is one."""
    model, data, _ = _prepare(job, seed)
    return _train(job, model, data, seed=seed, scores_test=False)


def training_values(job: Job, result: TrainResult) -> dict[str, Any]:
    """Return cost, data and validation score of a training run.

    `solved_at`: the validation score at which it would end, if its recipe says so.
    `train_engine`, `train_precision`: how the steps were computed.
    `hosts`: the machines that trained, in order. `training_version`: the code that determined what they learned.
    `train_flops`: model FLOPs of forward and backward over all epochs; None if the backward pass of a model from outside cannot be counted. A
    teacher's training is included in `train_s` and `train_flops`; its answers in every epoch are included in `train_flops`.
    """
    from bench.measure.model import cost_of, counted_of
    from bench.measure.training_code import training_version

    assert job.recipe is not None
    per_item = cost_of(job.cell.model).train_flops().at(job.cell.model.shape.seq_len)
    found = counted_of(job.cell.model)
    num_learned, teacher = result.num_learned * len(result.epochs), result.teacher
    train_flops = per_item * num_learned + (teacher.train_flops + teacher.flops * num_learned if teacher else 0)
    return {
        "validation": result.validation.value,
        "data_id": result.data_id,
        "train_s": result.train_s + (teacher.train_s if teacher else 0.0),
        "epoch_s": result.train_s / len(result.epochs),
        "train_images_per_s": result.images_per_s,
        "train_flops": train_flops if found is None or found.has_backward else None,
        "num_epochs": len(result.epochs),
        "num_steps": result.num_steps,
        "best_epoch": result.best_epoch,
        "learning_rate": job.recipe.learning_rate,
        "weight_decay": job.recipe.weight_decay,
        "training_version": training_version(job.cell.model.family),
        "train_engine": "compile" if job.recipe.compile else job.recipe.engine,
        "train_precision": job.recipe.precision,
        **({"solved_at": info_of(job.cell.workload.task).solved_at} if job.recipe.until_solved else {}),
        **({"hosts": "; ".join(result.hosts)} if result.hosts else {}),
        **({"teacher_s": teacher.train_s, "teacher_accuracy": teacher.accuracy, "teacher_params": teacher.params} if teacher else {}),
    }


def training_samples(result: TrainResult) -> dict[str, list[float]]:
    """Return losses, scores and seconds by epoch, without what an epoch has none of (`bench.training.loop.Epoch`)."""
    found = {
        "loss": [epoch.loss for epoch in result.epochs],
        "validation": [epoch.validation for epoch in result.epochs],
        "epoch_s": [epoch.steps_s for epoch in result.epochs],
    }
    for name in ("train_accuracy", "validation_loss"):
        series = [value for epoch in result.epochs if (value := getattr(epoch, name)) is not None]
        found |= {name: series} if series else {}
    return found


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Average over seeds; add 95 % t-intervals for accuracies and scores.

    Intervals of accuracies are clipped to 0..1; intervals are None for a single seed. Times are medians, because a busy machine skews means.

    For tasks with a class per token; None in records without them:

    `exact_accuracy`: share of test items with every answer right.
    `perplexity`: `exp` of the cross-entropy per answer on the test items, without label smoothing. Mean and interval over seeds are computed before
    `exp`. None if answers are generated.
    """
    if not records:
        return dict.fromkeys(COLUMNS)
    values = [record.outcome.values for record in records]
    found = {
        **_mean_with_interval(values, "accuracy", low=0.0, high=1.0),
        **_mean_with_interval(values, "exact_accuracy", low=0.0, high=1.0),
        **_perplexity(values),
        **_mean_with_interval(values, "score", low=float("-inf"), high=float("inf")),
        **{name: _mean(values, name) for name in MEANS},
        **{name: _median(values, name) for name in MEDIANS},
        **{name: "; ".join(dict.fromkeys(row[name] for row in values if name in row)) or None for name in WAYS},
        "score_name": values[0].get("score_name"),
        "learning_rate": values[0].get("learning_rate"),
        "num_seeds": len(records),
    }
    return {name: found[name] for name in COLUMNS}


def _prepare(job: Job, seed: int) -> tuple[nn.Module, TrainingData, dict[str, str]]:
    """Build the untrained model and load its data; return also what the record notes of weights that it begins with.

    All depend on the seed alone, even when training resumes.
    """
    import torch

    from bench.measure.model import build_model
    from bench.measure.step import set_product_precision
    from bench.measure.weights import begin_with
    from bench.training.data import load_training_data

    if job.recipe is None:
        raise ValueError(f"metric {job.metric} needs a recipe to train with")
    data = load_training_data(job.cell.model, job.cell.workload.task, job.recipe, seed=seed)
    set_product_precision(job.recipe.precision)
    torch.manual_seed(seed)
    model = build_model(job.cell.model)
    if not job.recipe.init:
        return model, data, {}
    return model, data, begin_with(model, job.cell.model, job.recipe, seed, task=job.cell.workload.task, classes=data.classes)


def _saved(job: Job, model: nn.Module, data: TrainingData, result: TrainResult, seed: int) -> dict[str, str]:
    """Save the scored weights in the run's folder; return the name of the file, or nothing, with a message, if writing fails."""
    from bench.measure.weights import Trained, save

    assert job.recipe is not None
    mean, spread = (tuple(found.tolist()) if found is not None else () for found in (data.mean, data.spread))
    trained = Trained(
        cell=job.cell,
        recipe=job.recipe,
        seed=seed,
        validation=result.validation.value,
        mean=mean,
        spread=spread,
        classes=data.classes,
    )
    try:
        return {"weights": save(Path(job.run_folder), trained, model).name}
    except (OSError, RuntimeError) as error:  # torch says that a disk is full by a RuntimeError
        tell(f"could not save the weights of {job.cell.model.name} ({getattr(error, 'strerror', None) or error}); the scores are kept")
        return {}


def _train(job: Job, model: nn.Module, data: TrainingData, *, seed: int, scores_test: bool) -> TrainResult:
    from bench.training.distillation import train_with_teacher

    assert job.recipe is not None
    checkpoint = _checkpoint(job, seed, data.data_id)
    device = job.cell.workload.device
    return train_with_teacher(model, data, job.recipe, seed=seed, device=device, checkpoint=checkpoint, scores_test=scores_test)


def _layout(job: Job) -> TokenLayout:
    from bench.measure.model import num_data_tokens_of

    model, num_data = job.cell.model, num_data_tokens_of(job.cell.model)
    grid = image_grid(num_data, model.interface.rows) if isinstance(info_of(job.cell.workload.task).reads, Images) else (1, num_data)
    return TokenLayout(seq_len=model.shape.seq_len, class_token=num_data < model.shape.seq_len, grid=grid if min(grid) > 1 else None)


def _checkpoint(job: Job, seed: int, data_id: str) -> Checkpoint | None:
    import torch

    from bench.measure.cpu import cpu_facts
    from bench.measure.environment import boot
    from bench.measure.training_code import training_version
    from bench.training.checkpoint import Checkpoint

    if not job.scratch:
        return None
    identity: dict[str, str | int] = {
        "subject": job.subject_id,
        "data": data_id,
        "code": training_version(job.cell.model.family),
        "seed": seed,
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),  # a plain str, because checkpoints load safely only with plain data
    }
    host = f"{cpu_facts()['cpu_type']}, boot {boot()}"
    return Checkpoint(path=Path(job.scratch) / job.scratch_name, identity=identity, hosts=[host])


def _scores(scores: Scores, prefix: str) -> dict[str, Any]:
    """Return accuracies for classes, or R2 as a named score for values."""
    if not scores.top:
        return {f"{prefix}score": scores.value, **({} if prefix else {"score_name": "r2"})}
    top = {f"accuracy_top{k}": share for k, share in enumerate(scores.top, start=1) if k > 1}
    return {f"{prefix}accuracy": scores.value, **({} if prefix else top)}


def _sequence_scores(scores: Scores, *, is_generated: bool) -> dict[str, Any]:
    """Return sequence scores of token-class tasks.

    Generated sequences have no perplexity, because each answer follows the model's own earlier answers, not the right ones.
    """
    if scores.exact is None:
        return {}
    exact = {"exact_accuracy": scores.exact}
    return exact if is_generated or scores.loss is None else {**exact, "cross_entropy": scores.loss}


def _perplexity(values: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return perplexity over seeds, with its interval.

    `exp` is applied to the mean cross-entropy and the ends of its interval, so the interval stays positive.
    """
    nats = _mean_with_interval(values, "cross_entropy", low=0.0, high=math.inf)
    largest = math.log(sys.float_info.max)  # math.exp raises OverflowError above it
    return {
        name.replace("cross_entropy", "perplexity"): None if found is None else math.exp(found) if found < largest else math.inf
        for name, found in nats.items()
    }


def _mean_with_interval(values: Sequence[Mapping[str, Any]], name: str, *, low: float, high: float) -> dict[str, float | None]:
    interval = mean_interval(_column(values, name))
    return {
        name: _mean(values, name),
        f"{name}_low": max(low, interval.low) if interval else None,
        f"{name}_high": min(high, interval.high) if interval else None,
    }


def _mean(values: Sequence[Mapping[str, Any]], name: str) -> float | None:
    found = _column(values, name)
    return statistics.fmean(found) if found else None


def _median(values: Sequence[Mapping[str, Any]], name: str) -> float | None:
    found = [row[name] for row in values if row.get(name) is not None]  # integers stay integers
    return statistics.median(found) if found else None


def _column(values: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in values if row.get(name) is not None]

"""Data of one training run: training, validation and test items."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bench.measure.model import config_of, num_data_tokens_of
from bench.serialize import ID_LENGTH
from bench.spec import NO_TEACHER, ModelSpec, Recipe
from bench.tasks import Split, Splits, load_splits
from bench.tasks._info import Generation, Images, info_of
from bench.training.augment import Augmentation
from bench.training.reading import Reader, split_validation


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Data of one training run, as stored or cut into patches.

    `learned`, `held_out`, `test`: training, validation and test items.
    `reader`: converts their batches to the model's input.
    `answers`, `generation`, `solved_at`: as in `TaskInfo`.
    `num_classes`: outputs of the task; 0 if unknown.
    `data_id`: digest of the task's data, equal for equal data.
    `mean`, `spread`, `classes`: as in `Splits`.
    """

    learned: Split
    held_out: Split
    test: Split
    reader: Reader
    answers: str
    num_classes: int = 0
    generation: Generation | None = None
    solved_at: float | None = None
    data_id: str = ""
    mean: Tensor | None = None
    spread: Tensor | None = None
    classes: tuple[str, ...] = ()

    def to(self, device: str) -> TrainingData:
        moved = {name: getattr(self, name).to(device) for name in ("learned", "held_out", "test", "reader")}
        return replace(self, **moved)


def load_training_data(model: ModelSpec, task: str, recipe: Recipe, *, seed: int) -> TrainingData:
    """Load a task's data as the model reads them; images are cut into patches beforehand if no augmentation changes them.

    `seed`: draws the validation items if the task has no validation split.

    Raises RequestError if the model's seq_len does not fit the task or the data are missing, ValueError if the model was built for another task.
    """
    info = info_of(task)
    pool: str = config_of(model).pool
    interface = info.interface(model.shape.seq_len, pool)
    if interface != model.interface:
        raise ValueError(f"task {task} needs {interface}, the model was built for {model.interface}")
    patch_side = info.reads.patch_side(model.shape.seq_len, pool) if isinstance(info.reads, Images) else None
    splits = load_splits(task, num_tokens=num_data_tokens_of(model))
    whole = Reader(patch_side=patch_side)
    if not splits.are_normalised:
        whole = replace(whole, mean=splits.mean, spread=splits.spread)
    augmentation = Augmentation(recipe.augment, num_classes=info.num_classes, magnitude=recipe.magnitude) if recipe.augment else None
    reader = replace(whole, augmentation=augmentation)
    learned = splits.train
    if splits.validation is not None:
        held_out = splits.validation
    else:
        learned, held_out = split_validation(learned, recipe.validation_fraction, torch.Generator().manual_seed(seed))
    return TrainingData(
        # a teacher needs whole images to augment, even if its student does not
        learned=reader.prepare(learned) if recipe.teacher == NO_TEACHER else learned,
        held_out=whole.prepare(held_out),
        test=whole.prepare(splits.test),
        reader=reader,
        answers=info.answers,
        num_classes=info.num_classes,
        generation=info.generation,
        solved_at=info.solved_at,
        data_id=digest(splits),
        mean=splits.mean,
        spread=splits.spread,
        classes=splits.classes,
    )


def digest(splits: Splits) -> str:
    """Return a short sha256 over all data of a task.

    It covers inputs, targets and lengths, in order.
    """
    found = hashlib.sha256()
    for split in (splits.train, splits.validation, splits.test):
        for tensor in (split.inputs, split.targets, split.lengths) if split else ():
            if tensor is not None:
                found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:ID_LENGTH]

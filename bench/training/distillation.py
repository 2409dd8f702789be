"""Training with a teacher (distillation).

The teacher learns first, from the same items. The student then learns from the teacher's answers too.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from bench.spec import NO_TEACHER, Recipe
from bench.training.augment import Augmentation
from bench.training.checkpoint import Checkpoint
from bench.training.data import TrainingData
from bench.training.loop import Training, TrainResult, train
from bench.training.reading import image_size
from bench.training.teacher import ConvolutionalNetwork, TrainedTeacher, flops_per_image

TEACHER_PART, STUDENT_PART = "teacher", "student"
TEACHER_RECIPE = Recipe(batch_size=64, learning_rate=3e-3, label_smoothing=0.0)
"""The teacher's recipe, equal for every student except for epochs and precision.

Label smoothing is off, because it removes information that a student could learn from the teacher's answers (Mueller et al. 2019,
arXiv:1906.02629).
"""
TEACHER_AUGMENT = ("crop", "flip")


def train_with_teacher(
    model: nn.Module,
    data: TrainingData,
    recipe: Recipe,
    *,
    seed: int,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    scores_test: bool = True,
) -> TrainResult:
    """Run `bench.training.loop.train`, after training a teacher if the recipe has one.

    Both share the checkpoint.
    """
    if recipe.teacher == NO_TEACHER:
        return train(model, data, recipe, seed=seed, device=device, checkpoint=checkpoint, scores_test=scores_test)
    teacher = train_teacher(data, recipe, seed=seed, device=device, checkpoint=checkpoint)
    own = checkpoint.part_of(STUDENT_PART, {TEACHER_PART: teacher.state}) if checkpoint else None
    return train(model, data, recipe, seed=seed, device=device, checkpoint=own, scores_test=scores_test, teacher=teacher)


def train_teacher(
    data: TrainingData, recipe: Recipe, *, seed: int, device: str = "cpu", checkpoint: Checkpoint | None = None
) -> TrainedTeacher:
    """Train the teacher; keep its best epoch on validation.

    uint8 images are cropped and flipped. The teacher is built and trained from `seed`, with the same loop as every model, and resumes from its part
    of the checkpoint. Test items are not used. Raises ValueError if the data are not images, DivergedError as training does.
    """
    if data.reader.patch_side is None:
        raise ValueError("a teacher needs images; these data have none")
    channels, side = image_size(data.learned.inputs, data.reader.patch_side)
    torch.manual_seed(seed)
    network = ConvolutionalNetwork(channels, data.num_classes).to(device)
    are_bytes = data.learned.inputs.dtype == torch.uint8
    augmentation = Augmentation(TEACHER_AUGMENT, num_classes=data.num_classes) if are_bytes else None
    seen = dataclasses.replace(data, reader=dataclasses.replace(data.reader, augmentation=augmentation)).to(device)
    own_recipe = dataclasses.replace(TEACHER_RECIPE, epochs=recipe.teacher_epochs, precision=recipe.precision)
    training = Training(network, seen, own_recipe, seed=seed, device=device, message_prefix="teacher: ")
    own = checkpoint.part_of(TEACHER_PART) if checkpoint else None
    if own and (state := own.read()):
        training.restore(state)
    training.run(own)
    flops, per_item = flops_per_image(channels, side, data.num_classes)
    return TrainedTeacher(
        model=network.eval().requires_grad_(False),
        accuracy=training.epochs[training.best_epoch - 1].validation,
        params=sum(parameter.numel() for parameter in network.parameters()),
        flops=flops,
        train_flops=per_item * len(data.learned) * len(training.epochs),
        train_s=training.elapsed_s,
        state=training.state(),
    )

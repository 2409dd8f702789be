"""The teacher of a distillation: a small convolutional network and its cost.

Convolutions assume that neighbouring pixels belong together and that a pattern may occur anywhere. The teacher's answers pass some of this knowledge
to a model that must learn it (Touvron et al. 2020, arXiv:2012.12877, Sec. 3 and 5.2: convolutional teachers teach transformers best).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.spec import Recipe
from models.layers.patches import fold_patches

STAGES = ((32,), (64, 64), (128,), (128,))
"""Channels of the convolutions, by stage; the image is halved between stages."""
KERNEL = 3
SMALLEST_SIDE = 4
"""Smallest side that is halved.

With one item per batch, batch normalisation needs more than one pixel.
"""
MULTIPLY_ADD = 2
TEMPERATURE = 3.0


class ConvolutionalNetwork(nn.Module):
    """Convolutions of 3 x 3 in stages, mean over pixels, linear layer.

    Each convolution has batch normalisation and ReLU; maximum pooling halves images between stages. Reads the student's input,
    `(batch, patches, channels * patch_side**2)`, and joins the patches to images.
    """

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.channels = channels
        widths = [channels, *(width for stage in STAGES for width in stage)]
        sizes = itertools.pairwise(widths)
        self.stages = nn.ModuleList(nn.Sequential(*(_convolution(*next(sizes)) for _ in stage)) for stage in STAGES)
        self.classify = nn.Linear(widths[-1], num_classes)
        self.to(memory_format=torch.channels_last)  # takes a third less time on a CPU

    def forward(self, data: Tensor, _: Tensor | None = None) -> Tensor:
        images = fold_patches(data, self.channels, math.isqrt(data.shape[2] // self.channels))
        for number, stage in enumerate(self.stages):
            if number and images.shape[-1] >= SMALLEST_SIDE:
                images = F.max_pool2d(images, 2)
            images = stage(images)
        logits: Tensor = self.classify(images.mean(dim=(2, 3)))
        return logits


@dataclass(frozen=True, kw_only=True)
class TrainedTeacher:
    """A trained teacher and its cost.

    FLOPs count matrix products and convolutions, two per multiply-add.

    `accuracy`: on validation items.
    `flops`: forward pass of one item.
    `train_flops`: whole training of the teacher.
    `train_s`: seconds of that training.
    `state`: final training state, see `Training.state`.
    """

    model: nn.Module
    accuracy: float
    params: int
    flops: int
    train_flops: int
    train_s: float
    state: Mapping[str, Any]

    @torch.no_grad()
    def answer(self, data: Tensor) -> Tensor:
        """Return the teacher's logits, `(batch, classes)`, for a student's batch.

        `data`: `(batch, patches, channels * patch_side**2)`.
        """
        logits: Tensor = self.model(data)
        return logits


def distillation_loss(own_loss: Tensor, outputs: Tensor, answers: Tensor, recipe: Recipe) -> Tensor:
    """Mix the student's own loss with its distance from the teacher.

    `outputs`, `answers`: logits of student and teacher, `(batch, classes)`. The distance has weight `distillation_weight`.

    soft: divergence of the softened distributions, times the squared temperature, which keeps the size of the gradient (Hinton et al. 2015,
    arXiv:1503.02531, Sec. 2; arXiv:2012.12877, Eq. 2). hard: cross-entropy with the teacher's choices as labels (arXiv:2012.12877, Eq. 3).
    """
    if recipe.distillation == "hard":
        differing = F.cross_entropy(outputs, answers.argmax(dim=-1))
    else:
        own, others = (F.log_softmax(logits / TEMPERATURE, dim=-1) for logits in (outputs, answers))
        differing = TEMPERATURE**2 * F.kl_div(own, others, reduction="batchmean", log_target=True)
    return (1.0 - recipe.distillation_weight) * own_loss + recipe.distillation_weight * differing


def flops_per_image(channels: int, side: int, num_classes: int) -> tuple[int, int]:
    """Return the FLOPs of forward, and of forward and backward, for one image.

    Zeros of the padding count like pixels. In training, each layer takes three products; the first takes two, because images need no gradient.
    """
    layers, before = [], channels
    for number, stage in enumerate(STAGES):
        if number and side >= SMALLEST_SIDE:
            side //= 2
        for width in stage:
            layers.append(MULTIPLY_ADD * side * side * KERNEL * KERNEL * before * width)
            before = width
    forward = sum(layers) + MULTIPLY_ADD * before * num_classes
    return forward, 3 * forward - layers[0]


def _convolution(channels: int, width: int) -> nn.Module:
    # the batch normalisation adds the bias
    return nn.Sequential(nn.Conv2d(channels, width, KERNEL, padding=KERNEL // 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())

"""Reference loops: the plain DataLoader loop, timm's loop and bare training steps.

Most published code uses the plain loop. No training loop can be faster than its bare steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bench.peers.libraries import library
from bench.spec import Recipe
from bench.tasks._info import CLASS
from bench.training.data import TrainingData
from bench.training.objective import loss
from bench.training.optimizer import build_optimizer
from bench.training.reading import Batch, Examples, Reader

Forward = Callable[..., Tensor]
"""Calls the model on a batch's data and mask."""


class PlainItems(Dataset[tuple[Any, ...]]):
    """Items one at a time, as torchvision's data sets return them.

    An image becomes a PIL image, then a tensor, and is then normalised.
    """

    def __init__(self, examples: Examples, reader: Reader) -> None:
        self.examples, self.reader = examples, reader
        self.to_tensor: Any = None
        if examples.inputs.dtype == torch.uint8 and examples.inputs.ndim == 4:
            from torchvision import transforms

            steps = [transforms.ToPILImage(), transforms.ToTensor()]
            if reader.mean is not None and reader.spread is not None:
                steps.append(transforms.Normalize(reader.mean.tolist(), reader.spread.tolist()))
            self.to_tensor = transforms.Compose(steps)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, item: int) -> tuple[Any, ...]:
        inputs, target = self.examples.inputs[item], self.examples.targets[item]
        if self.to_tensor is not None:
            inputs = self.to_tensor(inputs)
        if self.examples.lengths is None:
            return inputs, target
        return inputs, target, self.examples.lengths[item]


def plain_seconds(model: nn.Module, data: TrainingData, recipe: Recipe, device: str, forward: Forward | None = None) -> float:
    """Return the seconds of one epoch of the plain loop.

    It collates item by item in a DataLoader, decays all parameters alike, and reads loss and accuracy after every batch.

    `forward`: function that calls the model; by default the model itself.
    """
    call = model if forward is None else forward
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    loader = DataLoader(PlainItems(data.learned.to("cpu"), data.reader.to("cpu")), batch_size=recipe.batch_size, shuffle=True)
    reader = Reader(patch_side=data.reader.patch_side)
    model.train()
    started, total, num_right = time.perf_counter(), 0.0, 0
    for inputs, targets, *lengths in loader:
        examples = Examples(inputs=inputs, targets=targets, lengths=lengths[0] if lengths else None).to(device)
        batch = reader.read(examples)
        optimizer.zero_grad()
        outputs = call(batch.data, batch.valid)
        batch_loss = loss(data.answers, outputs, batch.targets, label_smoothing=recipe.label_smoothing)
        batch_loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
        total += batch_loss.item()
        num_right += int((outputs.argmax(dim=-1) == batch.targets).sum().item())
    return time.perf_counter() - started


class TimmItems(Dataset[tuple[Any, int]]):
    """Images and classes one at a time, as timm's data sets return them.

    timm's loader sets `transform`, from a PIL image to a normalised tensor.
    """

    transform: Callable[[Any], Tensor]

    def __init__(self, examples: Examples) -> None:
        from torchvision.transforms.functional import to_pil_image

        self.images = [to_pil_image(image) for image in examples.inputs]
        self.targets = examples.targets.tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, item: int) -> tuple[Any, int]:
        return self.transform(self.images[item]), self.targets[item]


def suits_timm(data: TrainingData, recipe: Recipe) -> bool:
    """Return whether timm's loop takes these items: images stored as bytes, one class each, in full batches."""
    are_images = data.learned.inputs.dtype == torch.uint8 and data.learned.inputs.ndim == 4 and data.reader.mean is not None
    return are_images and data.answers == CLASS and len(data.learned) % recipe.batch_size == 0


def timm_seconds(model: nn.Module, data: TrainingData, recipe: Recipe, device: str, forward: Forward | None = None) -> float:
    """Return the seconds of one epoch of timm's loop.

    Each step does what one of timm's train.py does, with timm's own parts: loader without prefetcher, workers or augmentation, loss, optimizer,
    clipping, schedule and meters. Building them is not timed. The items must suit it (`suits_timm`).

    `forward`: function that calls the model; by default the model itself.
    """
    call = model if forward is None else forward
    timm = {name: library(f"timm.{name}", "timm's loop") for name in ("data", "loss", "models", "optim", "scheduler", "utils")}
    mean, spread = (() if found is None else tuple(found.tolist()) for found in (data.reader.mean, data.reader.spread))
    loader = timm["data"].create_loader(
        TimmItems(data.learned.to("cpu")),
        input_size=tuple(data.learned.inputs.shape[1:]),
        batch_size=recipe.batch_size,
        is_training=True,
        no_aug=True,
        mean=mean,
        std=spread,
        num_workers=0,
        persistent_workers=False,
        use_prefetcher=False,
    )
    optimizer = timm["optim"].create_optimizer_v2(model, opt="adamw", lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    steps = {"step_on_epochs": False, "updates_per_epoch": len(loader)}
    scheduler, _ = timm["scheduler"].create_scheduler_v2(optimizer, num_epochs=recipe.epochs, **steps)
    loss_of, reader = timm["loss"].LabelSmoothingCrossEntropy(recipe.label_smoothing), Reader(patch_side=data.reader.patch_side)
    losses, data_time, step_time = (timm["utils"].AverageMeter() for _ in range(3))
    model.train()
    optimizer.zero_grad()
    started = end = time.perf_counter()
    for number, (images, targets) in enumerate(loader, start=1):
        batch = reader.read(Examples(inputs=images, targets=targets).to(device))
        data_time.update(time.perf_counter() - end)
        batch_loss = loss_of(call(batch.data, batch.valid), batch.targets)
        batch_loss.backward()
        timm["utils"].dispatch_clip_grad(timm["models"].model_parameters(model), value=recipe.clip_norm, mode="norm")
        optimizer.step()
        optimizer.zero_grad()
        losses.update(batch_loss.item(), len(targets))
        scheduler.step_update(num_updates=number, metric=losses.avg)
        step_time.update(time.perf_counter() - end)
        end = time.perf_counter()
    return end - started


def prepared_batches(data: TrainingData, recipe: Recipe) -> list[Batch]:
    """Read every batch of an epoch beforehand, on the device."""
    items = torch.arange(len(data.learned), device=data.learned.targets.device)
    return [data.reader.learn(data.learned.select(chosen)) for chosen in items.split(recipe.batch_size)]


def bound_seconds(
    model: nn.Module, batches: Sequence[Batch], answers: str, recipe: Recipe, device: str, forward: Forward | None = None
) -> float:
    """Return the seconds of bare steps on prepared batches.

    A step is forward, loss, backward, clipping and optimizer.

    `forward`: function that calls the model; by default the model itself.
    """
    call = model if forward is None else forward
    optimizer = build_optimizer(model, recipe)
    model.train()
    _wait(device)
    started = time.perf_counter()
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss(answers, call(batch.data, batch.valid), batch.targets, label_smoothing=recipe.label_smoothing).backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()

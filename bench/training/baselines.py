"""Reference loops: the plain DataLoader loop and bare training steps.

Most published code uses the plain loop. No training loop can be faster than its bare steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from bench.spec import Recipe
from bench.training.data import TrainingData
from bench.training.objective import loss
from bench.training.optimizer import build_optimizer
from bench.training.reading import Batch, Examples, Reader


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


def plain_seconds(model: nn.Module, data: TrainingData, recipe: Recipe, device: str) -> float:
    """Return the seconds of one epoch of the plain loop.

    It collates item by item in a DataLoader, decays all parameters alike, and reads loss and accuracy after every batch.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    loader = DataLoader(PlainItems(data.learned.to("cpu"), data.reader.to("cpu")), batch_size=recipe.batch_size, shuffle=True)
    reader = Reader(patch_side=data.reader.patch_side)
    model.train()
    started, total, num_right = time.perf_counter(), 0.0, 0
    for inputs, targets, *lengths in loader:
        examples = Examples(inputs=inputs, targets=targets, lengths=lengths[0] if lengths else None).to(device)
        batch = reader.read(examples)
        optimizer.zero_grad()
        outputs = model(batch.data, batch.valid)
        batch_loss = loss(data.answers, outputs, batch.targets, label_smoothing=recipe.label_smoothing)
        batch_loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
        total += batch_loss.item()
        num_right += int((outputs.argmax(dim=-1) == batch.targets).sum().item())
    return time.perf_counter() - started


def prepared_batches(data: TrainingData, recipe: Recipe) -> list[Batch]:
    """Read every batch of an epoch beforehand, on the device."""
    items = torch.arange(len(data.learned), device=data.learned.targets.device)
    return [data.reader.learn(data.learned.select(chosen)) for chosen in items.split(recipe.batch_size)]


def bound_seconds(model: nn.Module, batches: Sequence[Batch], answers: str, recipe: Recipe, device: str) -> float:
    """Return the seconds of bare steps on prepared batches.

    A step is forward, loss, backward, clipping and optimizer.
    """
    optimizer = build_optimizer(model, recipe)
    model.train()
    _wait(device)
    started = time.perf_counter()
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss(answers, model(batch.data, batch.valid), batch.targets, label_smoothing=recipe.label_smoothing).backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()

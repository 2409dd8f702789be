"""What a model learns from: inputs and targets held as whole tensors, and the part of them that is held out for validation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bench.tasks import Split


@dataclass(frozen=True, kw_only=True)
class Examples:
    """`inputs`, `targets` and `lengths` as in `bench.tasks.Split`: `(items, ...)`, stored as compactly as the task gives them."""

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: str | torch.device) -> Examples:
        lengths = None if self.lengths is None else self.lengths.to(device)
        return Examples(inputs=self.inputs.to(device), targets=self.targets.to(device), lengths=lengths)

    def select(self, chosen: Tensor) -> Examples:
        """The items at `chosen`, a mask or indices."""
        lengths = None if self.lengths is None else self.lengths[chosen]
        return Examples(inputs=self.inputs[chosen], targets=self.targets[chosen], lengths=lengths)


def examples_of(split: Split) -> Examples:
    return Examples(inputs=split.inputs, targets=split.targets, lengths=split.lengths)


def split_validation(examples: Examples, fraction: float, generator: torch.Generator) -> tuple[Examples, Examples]:
    """(to learn from, held out): `fraction` of the items drawn at random, at least one and never all; where an item has one class, of each class.

    Both keep the stored order. Raises ValueError for a fraction outside (0, 1) or where no class has an item to spare.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"validation_fraction must be between 0 and 1, not {fraction}: the best epoch is chosen on held-out items")
    strata = examples.targets.cpu() if examples.targets.ndim == 1 else torch.zeros(len(examples), dtype=torch.int64)
    shuffled = torch.randperm(len(strata), generator=generator)
    held_out = torch.zeros(len(strata), dtype=torch.bool)
    for stratum in strata.unique():
        members = shuffled[strata[shuffled] == stratum]
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        held_out[members[:count]] = True
    if not held_out.any():
        raise ValueError(f"{len(strata)} training items leave none for validation: some class needs at least two items")
    return examples.select(~held_out), examples.select(held_out)

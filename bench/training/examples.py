"""What a model learns from: inputs and labels held as whole tensors, and the part of them that is held out for validation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Examples:
    """`data`: what the model reads, `(items, ...)`; `labels`: `(items,)` int64."""

    data: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: str | torch.device) -> Examples:
        return Examples(data=self.data.to(device), labels=self.labels.to(device))

    def select(self, chosen: Tensor) -> Examples:
        """The items at `chosen`, a mask or indices."""
        return Examples(data=self.data[chosen], labels=self.labels[chosen])


def split_validation(examples: Examples, fraction: float, generator: torch.Generator) -> tuple[Examples, Examples]:
    """(to learn from, held out): of each class, `fraction` of the items drawn at random, at least one and never all.

    Both keep the stored order. Raises ValueError for a fraction outside (0, 1) or where no class has an item to spare.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"validation_fraction must be between 0 and 1, not {fraction}: the best epoch is chosen on held-out items")
    labels = examples.labels.cpu()
    shuffled = torch.randperm(len(labels), generator=generator)
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = shuffled[labels[shuffled] == label]
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        held_out[members[:count]] = True
    if not held_out.any():
        raise ValueError(f"{len(labels)} training items leave none for validation: some class needs at least two items")
    return examples.select(~held_out), examples.select(held_out)

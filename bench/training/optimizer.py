"""AdamW with weight decay on matrices only, and its learning-rate schedules.

Source: arXiv 1711.05101 (AdamW). The learning rate warms up, then follows a cosine, stays constant or halves on plateaus.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from bench.spec import Recipe


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """Build AdamW with up to two parameter groups, the decayed one first.

    An empty group is omitted. A model without parameters gets one empty group, and steps change nothing.
    """
    decayed, free = decay_groups(model)
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": free, "weight_decay": 0.0}]
    fused = not any(map(torch.is_complex, [*decayed, *free]))
    return torch.optim.AdamW([group for group in groups if group["params"]] or groups[:1], lr=recipe.learning_rate, fused=fused)


def decay_groups(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return (decayed, not decayed) parameters.

    Weights that multiply their input are decayed. Vectors (biases, norms, spatial biases), embedding tables, and tensors of three or more axes
    with a leading one of size 1 (class token, positions) are not.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for parameter in model.parameters():
        added_to_batch = parameter.ndim > 2 and parameter.shape[0] == 1
        is_matrix = parameter.ndim >= 2 and not added_to_batch and id(parameter) not in tables
        (decayed if is_matrix else free).append(parameter)
    return decayed, free


def build_plateau(optimizer: torch.optim.Optimizer, recipe: Recipe) -> torch.optim.lr_scheduler.ReduceLROnPlateau | None:
    """Build the schedule that halves the learning rate on a plateau.

    A plateau is more than `patience` epochs without a better score. None if the recipe has another schedule.
    """
    if recipe.schedule != "plateau":
        return None
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=recipe.patience, threshold=0.0)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def learning_rate_factor(step: int, *, num_steps: int, warmup_steps: int) -> float:
    """Return the factor on the peak learning rate at `step`.

    Steps count from 0. Source: arXiv 1608.03983, Eq. 5, after a warm-up. The last warm-up step reaches the peak. The factor would reach zero at
    `num_steps`, one step after the last, so that no step is without effect.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step + 1 - warmup_steps) / (num_steps + 1 - warmup_steps)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def learning_rate_at(step: int, recipe: Recipe, num_steps: int) -> float | None:
    """Return a step's learning rate; None if the plateau schedule decides."""
    warmup_steps = round(recipe.warmup * num_steps)
    if step < warmup_steps or recipe.schedule == "cosine":
        return recipe.learning_rate * learning_rate_factor(step, num_steps=num_steps, warmup_steps=warmup_steps)
    if step == warmup_steps or recipe.schedule == "constant":
        return recipe.learning_rate
    return None

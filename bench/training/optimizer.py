"""Torch's optimizers with weight decay on matrices only, and the schedules of their learning rates.

After a linear warm-up the rate
- `cosine`       follows a half cosine to zero (arXiv 1608.03983, Eq. 5)
- `constant`     stays
- `plateau`      halves when the validation score stops rising
- `step`         is a tenth after half, and a hundredth after three quarters of the steps (arXiv 1512.03385, Sec. 4.2)
- `exponential`  falls by the same factor in every step, to a hundredth

`one-cycle` has a warm-up of its own: up from 1/25 along a cosine for 0.3 of the steps, then down to 1/250,000 (arXiv 1708.07120, with the
numbers of torch's OneCycleLR).

Sources: arXiv 1711.05101 (AdamW), 1412.6980 (Adam), https://kellerjordan.github.io/posts/muon/ (Muon).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bench.spec import Recipe

MOMENTUM = 0.9
STEPS, STEP_FACTOR = (0.5, 0.75), 0.1
"""Shares of the steps after which `step` multiplies the rate, and by what."""
EXPONENTIAL_END = 0.01
CYCLE_UP, CYCLE_START, CYCLE_END = 0.3, 1 / 25, 1 / 25e4


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Build the optimizer with up to two parameter groups, the decayed one first.

    An empty group is omitted. A model without parameters gets one empty group, and steps change nothing.
    """
    decayed, free = decay_groups(model)
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": free, "weight_decay": 0.0}]
    fused = not any(map(torch.is_complex, [*decayed, *free]))
    given = [group for group in groups if group["params"]] or groups[:1]
    ends = _ends(model, decayed)
    hidden = [parameter for parameter in decayed if parameter.ndim == 2 and id(parameter) not in ends]
    if recipe.optimizer == "muon" and hidden:
        return MuonAndAdamW(hidden, given, recipe)
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(given, lr=recipe.learning_rate, momentum=MOMENTUM, nesterov=True, fused=fused)
    kind: type[torch.optim.Adam] = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return kind(given, lr=recipe.learning_rate, fused=fused)


def _ends(model: nn.Module, decayed: Sequence[nn.Parameter]) -> set[int]:
    """Return the ids of the matrices that embed the input, and of the last one.

    They are known by the name of their module. A model that names none embeds by its first matrix, unless it has an embedding table.
    """
    embeddings = [parameter for name, parameter in model.named_parameters() if "embed" in name]
    has_table = any(isinstance(module, nn.Embedding) for module in model.modules())
    first = embeddings or ([] if has_table else decayed[:1])
    return {id(parameter) for parameter in (*first, *decayed[-1:])}


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for the matrices of hidden layers; AdamW for all else: embeddings and the last matrix, vectors and tensors of other shapes.

    The steps of Muon are scaled to the root mean square of AdamW's (arXiv 2502.16982, Sec. 2.2), so that both take one learning rate.

    `hidden`: these matrices, at least one.
    `groups`: parameter groups of the whole model.
    """

    def __init__(self, hidden: Sequence[nn.Parameter], groups: Sequence[dict[str, Any]], recipe: Recipe) -> None:
        known, rate = set(map(id, hidden)), recipe.learning_rate
        others = [{**group, "params": [one for one in group["params"] if id(one) not in known]} for group in groups]
        self.parts: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(hidden, lr=rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=rate),
        )
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Let the parts step by this optimizer's groups and state."""
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups, part.state = [next(groups) for _ in part.param_groups], self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step(closure)


def decay_groups(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return (decayed, not decayed) parameters.

    Weights that multiply their input are decayed. Vectors (biases, norms, spatial biases), embedding tables, tensors of three or more axes
    with a leading one of size 1 (class token, positions) and what a module names in `NOT_DECAYED` are not.
    """
    spared = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    spared |= {id(getattr(module, name)) for module in model.modules() for name in getattr(module, "NOT_DECAYED", ())}
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for parameter in model.parameters():
        added_to_batch = parameter.ndim > 2 and parameter.shape[0] == 1
        is_matrix = parameter.ndim >= 2 and not added_to_batch and id(parameter) not in spared
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
    if recipe.schedule == "one-cycle":
        return recipe.learning_rate * one_cycle_factor(step, num_steps)
    warmup_steps = round(recipe.warmup * num_steps)
    if step < warmup_steps or recipe.schedule == "cosine":
        return recipe.learning_rate * learning_rate_factor(step, num_steps=num_steps, warmup_steps=warmup_steps)
    if recipe.schedule == "plateau":
        return recipe.learning_rate if step == warmup_steps else None
    return recipe.learning_rate * _factor_after_warmup(recipe.schedule, (step - warmup_steps) / (num_steps - warmup_steps))


def _factor_after_warmup(schedule: str, progress: float) -> float:
    """Return the factor on the peak learning rate after a share of the steps that follow the warm-up."""
    if schedule == "step":
        return STEP_FACTOR ** sum(progress >= share for share in STEPS)
    return EXPONENTIAL_END**progress if schedule == "exponential" else 1.0


def one_cycle_factor(step: int, num_steps: int) -> float:
    """Return the factor on the peak learning rate at `step`, counted from 0; the last step has the least."""
    top = CYCLE_UP * num_steps - 1
    if step <= top:
        return _between(CYCLE_START, 1.0, step / top)
    return _between(1.0, CYCLE_END, (step - top) / (num_steps - 1 - top))


def _between(start: float, end: float, share: float) -> float:
    """Go from `start` to `end` along a half cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2

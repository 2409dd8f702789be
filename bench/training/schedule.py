"""The learning rate over a run: linear warm-up, then cosine decay to zero or a constant; changed at every step."""

from __future__ import annotations

import math

from bench.spec import Recipe


def learning_rate_factor(step: int, *, num_steps: int, warmup_steps: int) -> float:
    """What the peak learning rate is multiplied by at `step`, counted from 0 (arXiv 1608.03983, Eq. 5, after a warm-up).

    The last warm-up step is at the peak; zero would be reached at `num_steps`, one after the last step, so that no step is without effect.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step + 1 - warmup_steps) / (num_steps + 1 - warmup_steps)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def learning_rate_at(step: int, recipe: Recipe, num_steps: int) -> float | None:
    """The learning rate of a step; None where it stays what it is, because a plateau decides."""
    warmup_steps = round(recipe.warmup * num_steps)
    if step < warmup_steps or recipe.schedule == "cosine":
        return recipe.learning_rate * learning_rate_factor(step, num_steps=num_steps, warmup_steps=warmup_steps)
    if step == warmup_steps or recipe.schedule == "constant":
        return recipe.learning_rate
    return None

"""Trials of learning rates and weight decays, scored on validation items.

`bench.planning.tuning` chooses them. The winner is then trained afresh for the reported accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.metrics import Measurement, Repeat
from bench.metrics.accuracy import train_job, training_samples, training_values
from bench.planning.tuning import TRIAL_SEED_OFFSET, best_trial
from bench.spec import Job, Record

REPEAT: Repeat = "trial"
NEEDS_TASK = True
COLUMNS = (
    "num_trials",
    "tuned_validation",
    "tuned_learning_rate",
    "tried_learning_rate_low",
    "tried_learning_rate_high",
    "tuned_weight_decay",
    "tuning_s",
    "tuning_flops",
)


def measure(job: Job) -> Measurement:
    """Train once with the trial's recipe; score the validation items alone."""
    result = train_job(job, seed=job.settings.seed + TRIAL_SEED_OFFSET)
    return Measurement(values=training_values(job, result), samples=training_samples(result))


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Summarise the trials that did not diverge.

    `tuned_validation` is the best validation score, biased upwards as the best of several. `tuning_s` and `tuning_flops` are sums over all.
    """
    if not records:
        return dict.fromkeys(COLUMNS)
    values = [record.outcome.values for record in records]
    best = best_trial(values)
    rates, flops = [float(found["learning_rate"]) for found in values], [found["train_flops"] for found in values]
    return {
        "num_trials": len(records),
        "tuned_validation": best["validation"],
        "tuned_learning_rate": best["learning_rate"],
        "tried_learning_rate_low": min(rates),
        "tried_learning_rate_high": max(rates),
        "tuned_weight_decay": best["weight_decay"],
        "tuning_s": sum(float(found["train_s"]) for found in values),
        "tuning_flops": None if None in flops else sum(map(int, flops)),
    }

"""Learning-rate search on validation items, with equal candidates for every model.

The best learning rate is then trained afresh for the reported accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.metrics import Measurement, Repeat
from bench.metrics.accuracy import train_job, training_samples, training_values
from bench.planning.tuning import TRIAL_SEED_OFFSET
from bench.spec import Job, Record

REPEAT: Repeat = "trial"
NEEDS_TASK = True
COLUMNS = ("num_trials", "tuned_validation", "tuned_learning_rate", "tuning_s")


def measure(job: Job) -> Measurement:
    """Train once with the trial's learning rate; score the validation items alone."""
    result = train_job(job, seed=job.settings.seed + TRIAL_SEED_OFFSET, scores_test=False)
    return Measurement(values=training_values(job, result), samples=training_samples(result))


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Summarise the trials that did not diverge.

    `tuned_validation` is the best validation score, biased upwards as the best of several; `tuning_s` sums the seconds of all.
    """
    if not records:
        return dict.fromkeys(COLUMNS)
    best = max(records, key=lambda record: (float(record.outcome.values["validation"]), -record.repeat)).outcome.values
    return {
        "num_trials": len(records),
        "tuned_validation": best["validation"],
        "tuned_learning_rate": best["learning_rate"],
        "tuning_s": sum(float(record.outcome.values["train_s"]) for record in records),
    }

"""Learning rates tried on validation, the same ones for every model; the best is trained afresh for the reported accuracy."""

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
    """Train once with the trial's learning rate and score the validation items; the test items are left alone."""
    result = train_job(job, seed=job.settings.seed + TRIAL_SEED_OFFSET, scores_test=False)
    return Measurement(values=training_values(job, result), samples=training_samples(result))


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Trials that did not diverge, the best validation score (biased upwards, being the best of several) and its learning rate; seconds of all."""
    if not records:
        return dict.fromkeys(COLUMNS)
    best = max(records, key=lambda record: (float(record.outcome.values["validation"]), -record.repeat)).outcome.values
    return {
        "num_trials": len(records),
        "tuned_validation": best["validation"],
        "tuned_learning_rate": best["learning_rate"],
        "tuning_s": sum(float(record.outcome.values["train_s"]) for record in records),
    }

"""What happened in each training, epoch by epoch, as the records tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.running.store import StoredRun
from bench.running.table import training_records
from bench.spec import MEASURED

BY_EPOCH = ("loss", "validation")
TOTALS = ("accuracy", "score", "train_accuracy", "train_s", "num_epochs", "learning_rate")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """`name`: a folder's name for it. `series`: values by epoch; `totals`: what the training came to."""

    cell_id: str
    seed: int
    name: str
    series: Mapping[str, Sequence[float]]
    totals: Mapping[str, float]


def curves_of(stored: StoredRun) -> Iterator[Curve]:
    """One per training that was measured; cells that share a training have it once, under the first."""
    seen: set[tuple[str, int]] = set()
    for planned in stored.plan.cells:
        for record in training_records(stored, planned):
            if record.outcome.status != MEASURED or (record.subject_id, record.repeat) in seen:
                continue
            seen.add((record.subject_id, record.repeat))
            model, values = planned.cell.model, record.outcome.values
            name = f"{model.name}_n{model.shape.seq_len}_{planned.cell.workload.task}_{record.subject_id[:8]}_seed{record.repeat}"
            yield Curve(
                cell_id=planned.cell.cell_id,
                seed=record.repeat,
                name="".join(letter if letter.isalnum() or letter in "+=-_." else "_" for letter in name),
                series={series: record.outcome.samples[series] for series in BY_EPOCH if record.outcome.samples.get(series)},
                totals={total: float(values[total]) for total in TOTALS if isinstance(values.get(total), int | float)},
            )

"""Export a run to other programs, and extract its training curves."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import catalog
from bench.errors import one_line
from bench.running.store import StoredRun
from bench.running.table import training_records
from bench.spec import RequestError

INSTALL = "pip install 'gmlp-bench[exports]'"
BY_EPOCH = ("loss", "validation")
TOTALS = ("accuracy", "score", "train_accuracy", "train_s", "num_epochs", "learning_rate")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The curves of one training.

    `cell_id`: configuration; the first one if several share the training.
    `name`: unique in the run and safe as a folder name.
    `series`: values by epoch.
    `totals`: final figures.
    """

    cell_id: str
    seed: int
    name: str
    series: Mapping[str, Sequence[float]]
    totals: Mapping[str, float]


def require_installed(programs: Sequence[str]) -> None:
    """Raise RequestError for unknown programs and for missing packages."""
    for program in programs:
        catalog.require("exports", program)
        package = catalog.load("exports", program).PACKAGE
        if importlib.util.find_spec(package) is None:
            raise RequestError(f"exports to {program} need the package {package}", INSTALL)


def export(stored: StoredRun, program: str, target: str = "") -> str:
    """Export a run; return the command or address that shows it.

    Raises RequestError if the run holds nothing for that program, `target` cannot be written, or the program's package is broken.
    """
    require_installed([program])
    try:
        viewer: str = catalog.load("exports", program).export(stored, target)
    except ImportError as error:
        raise RequestError(f"cannot export to {program}: {one_line(error)}", INSTALL) from error
    return viewer


def curves_of(stored: StoredRun) -> Iterator[Curve]:
    """Yield one curve per measured training.

    A training shared by several cells appears once, under the first of them.
    """
    seen: set[tuple[str, int]] = set()
    for planned in stored.plan.cells:
        for record in training_records(stored, planned):
            if (record.subject_id, record.repeat) in seen:
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

"""Show the trials behind each model's learning rate, and where the best one lay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench import numbers
from bench.analysis.study import Study
from bench.planning.tuning import FAILED, Search, Tuned
from bench.report.charts.style import display_name
from bench.report.document import Block, TableBlock
from bench.report.tables import Table
from bench.spec import Recipe, is_trained, training_id

HEADERS = ("model", "trained on", "trials", "rates tried", "best rate", "best weight decay", "validation score", "best lies")
CAPTION = (
    "Every model made the same number of trials, each with a fifth of the epochs and one seed. The best score of several is biased upwards: compare "
    "models by their test scores."
)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """The trials of one model.

    `place`: task, n and size.
    """

    model: str
    place: str
    tuned: Tuned

    @property
    def best(self) -> Recipe | None:
        """The best trial's recipe; None while trials are missing, or if all failed."""
        chosen = self.tuned.recipe
        same = (trial for trial in self.tuned.trials if chosen and _values(trial) == _values(chosen))
        return next(same, None)


def search_blocks(study: Study) -> tuple[Block, ...]:
    """Return the table; () without trials."""
    found = searched(study)
    return (TableBlock(table=_table(found), caption=CAPTION),) if found else ()


def searched(study: Study) -> list[Searched]:
    """Return the trials of each model, in plan order."""
    search, rows = Search(study.plan, study.records), study.row_by_cell
    found: dict[str, Searched] = {}
    for planned in study.plan.cells:
        cell, tuned = planned.cell, search.of(planned.cell)
        if is_trained(cell, study.plan) and tuned.trials:
            size = numbers.count(planned.sizing.budget or planned.sizing.params)
            place = f"{cell.workload.task}, n = {cell.model.shape.seq_len}, {size}"
            name = training_id(cell, tuned.trials[0])
            found.setdefault(name, Searched(model=str(rows[cell.cell_id]["model"]), place=place, tuned=tuned))
    return list(found.values())


def _table(found: Sequence[Searched]) -> Table:
    numeric = (False, False, *[True] * 5, False)
    return Table(headers=HEADERS, numeric=numeric, rows=tuple(map(_row, found)))


def _row(found: Searched) -> tuple[str, ...]:
    tuned, best = found.tuned, found.best
    tried = sorted({trial.learning_rate for trial in tuned.trials})
    score, num_failed = tuned.scores[tuned.trials.index(best)] if best else None, tuned.scores.count(FAILED)
    return (
        display_name(found.model),
        found.place,
        str(sum(score is not None for score in tuned.scores)) + (f" ({num_failed} failed)" if num_failed else ""),
        f"{tried[0]:g} to {tried[-1]:g}",
        f"{best.learning_rate:g}" if best else "",
        f"{best.weight_decay:g}" if best else "",
        "" if score is None else f"{score:.3f}",
        _place_in(tried, best),
    )


def _place_in(tried: Sequence[float], best: Recipe | None) -> str:
    if best is None:
        return "not known yet"
    if best.learning_rate in (tried[0], tried[-1]):
        return f"at the {'low' if best.learning_rate == tried[0] else 'high'} end"
    return "inside"


def _values(recipe: Recipe) -> tuple[float, float]:
    return recipe.learning_rate, recipe.weight_decay

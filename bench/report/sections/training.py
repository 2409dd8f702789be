"""Show differences between trained models at equal epochs, training FLOPs and training time, and the search for learning rates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bench import numbers
from bench.analysis.accuracy import BUDGETS, CurveGroup, CurvePair
from bench.analysis.study import Study
from bench.planning.tuning import FAILED, Search, Tuned, made_trials, trial_epochs
from bench.report.charts.style import display_name
from bench.report.charts.training_curves import curve_figure, figure_name, limit_text, place_text
from bench.report.document import Block, TableBlock
from bench.report.tables import Table
from bench.spec import Recipe, is_trained, training_id

MAX_FIGURES = 6
MEASURES = {"accuracy": "accuracy (in points)", "score": "score"}
WIDEST = 1.0
"""An interval that reaches further than this from its estimate says nothing of an accuracy."""
CAPTION = (
    "First model minus second in validation {measure}, with 95 % intervals over seeds, and the epochs that each finished. Intervals hold for all "
    "differences at one task, length and size together (Bonferroni); five seeds are needed to decide. The budget is the largest that all models "
    "of a group reached. A training's score is its best among the epochs finished within the budget; nothing is interpolated. Under a schedule "
    "that decays, a training that is cut short has not had its low learning rates, so its score is a lower bound. Differences are paired by seed. "
    "Time as trained, without validation: other work on the machine counts too. Scores are of validation items; All rows has "
    "those of test items."
)


def equal_budget_blocks(study: Study, *, drawn: Collection[str] = ()) -> tuple[Block, ...]:
    """Return the table of all groups, and their figures; () without two models to compare.

    `drawn`: names of figures that the page has already. Call inside `style.figure_style`.
    """
    groups = study.equal_budgets
    if not groups:
        return ()
    measures = " or ".join(dict.fromkeys(MEASURES[group.measure] for group in groups))
    table = TableBlock(table=budget_table(groups), caption=CAPTION.format(measure=measures))
    figures = (
        curve_figure(group, figure_name(place)) for place, group in enumerate(groups[:MAX_FIGURES]) if figure_name(place) not in drawn
    )
    return (table, *figures)


def budget_table(groups: Sequence[CurveGroup]) -> Table:
    """Return one row per pair of models."""
    headers = ("compared", "models", *(f"equal {budget.rpartition(' ')[2]}" for budget in BUDGETS), "budgets")
    pairs = [(group, pair) for group in groups for pair in group.pairs]
    rows = tuple(
        (
            place_text(group),
            f"{display_name(pair.first)} - {display_name(pair.second)}",
            *(_difference(pair, budget, group.measure) for budget in BUDGETS),
            ", ".join(limit_text(budget, limit) for budget, limit in group.limits.items()),
        )
        for group, pair in pairs
    )
    keys = tuple((None, None, *(_estimate(pair, budget) for budget in BUDGETS), None) for _, pair in pairs)
    return Table(headers=headers, numeric=(False, False, True, True, True, False), rows=rows, keys=keys)


def _estimate(pair: CurvePair, budget: str) -> float | None:
    return pair.at[budget].interval.estimate if budget in pair.at else None


def _difference(pair: CurvePair, budget: str, measure: str) -> str:
    """Write `+5.3 [3.6, 6.9], 5 : 4`."""
    found = pair.at.get(budget)
    if found is None:
        return "one finished no epoch"
    scale, digits = (100, 1) if measure == "accuracy" else (1, 3)
    size, low, high = (scale * value for value in (found.interval.estimate, found.interval.low, found.interval.high))
    interval = f"[{low:.{digits}f}, {high:.{digits}f}]" if high - size < scale * WIDEST else "(interval open)"
    return f"{size:+.{digits}f} {interval}, {found.epochs[0]} : {found.epochs[1]}"


HEADERS = ("model", "trained on", "trials", "rates tried", "best rate", "best weight decay", "validation score", "best lies")
SEARCH_CAPTION = (
    "{made}, each with {epochs} and one seed. The best score of several is biased upwards: compare models by their test scores."
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
    if not found:
        return ()
    nums = {(one.place.partition(",")[0], len(one.tuned.trials)) for one in found}
    apart = len(nums) > len({task for task, _ in nums})
    made = (
        "Models were searched apart, and made unlike numbers of trials" if apart else "Every model of a task made the same number of trials"
    )
    return (TableBlock(table=_table(found), caption=SEARCH_CAPTION.format(made=made, epochs=trial_epochs(study.plan))),)


def searched(study: Study) -> list[Searched]:
    """Return the trials of each model, in plan order."""
    search, rows = Search(study.plan, study.records), study.row_by_cell
    found: dict[str, Searched] = {}
    for planned in study.plan.cells:
        cell, tuned = planned.cell, search.of(planned.cell)
        if tuned.trials and not tuned.recipe and study.trainings.get(cell.cell_id):
            tuned = made_trials(cell, study.plan, study.records)
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
        "" if score is None else f"{score.value:.3f}{f' after {-score.minus_epochs} epochs' if score.minus_epochs else ''}",
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

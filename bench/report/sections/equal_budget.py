"""Show differences between trained models at equal epochs, training FLOPs and training time."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bench.analysis.accuracy import BUDGETS, CurveGroup, CurvePair
from bench.analysis.study import Study
from bench.report.charts.style import display_name
from bench.report.charts.training_curves import curve_figure, figure_name, limit_text, place_text
from bench.report.document import Block, TableBlock
from bench.report.tables import Table

MAX_FIGURES = 6
MEASURES = {"accuracy": "accuracy (in points)", "score": "score"}
WIDEST = 1.0
"""An interval that reaches further than this from its estimate says nothing of an accuracy."""
CAPTION = (
    "First model minus second in validation {measure}, with 95 % intervals over seeds, and the epochs that each finished. Intervals hold for all "
    "differences at one task, length and size together (Bonferroni); five seeds are needed to decide. The budget is the largest that all models "
    "of a group reached. A training's score is its best among the epochs finished within the budget; nothing is interpolated. Under a schedule "
    "that decays, a training that is cut short has not had its low learning rates, so its score is a lower bound. Differences are paired by seed. "
    "Time as trained, not interleaved, without validation: other work on the machine counts too. Scores are of validation items; All rows has "
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

"""Write the sentences of `bench compare`: results, caveats and methods."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.accuracy import Comparison
from bench.analysis.frame import work_text
from bench.analysis.front import (
    DIFFERENCE_UNITS,
    EXACT,
    SIZE_TOLERANCE,
    STEP_COSTS,
    WORKLOAD_KEYS,
    Axes,
    Fronts,
    model_place,
    on_front,
    task_names,
)
from bench.report.charts.front import X_LABELS
from bench.spec import Plan, Recipe

MAX_PLACES, MAX_CLAUSES = 6, 8
"""The most places and pairs of models that a sentence lists."""
METHOD = (
    "Seeds and items are two random factors: the variance of the difference adds the variance over seeds within each model (Welch 1947) and the "
    "variance over paired test items, with degrees of freedom by Satterthwaite (1946), as readers and cases are crossed in multi-reader multi-case "
    "studies (Obuchowski and Rockette 1995). It is conservative: the item variance contains part of the seed variance. One seed has no interval."
)
CORRECTION = (
    "Intervals of differences: 95 %, together for the pairs of one task, length and budget (Bonferroni). Significant: it leaves out 0."
)
ABOUT_FRONT = (
    "The front is drawn by the estimates. In the table of trained models, dominated means that another model of that size costs no more and is "
    "significantly better; open, that neither is decided. Models matched to one parameter budget count as equally large; of times, one is no longer "
    "than another if their intervals do not overlap."
)


def quick_text(plan: Plan) -> list[str]:
    """Warn of a quick run."""
    return ["Quick run: measure without --quick before drawing conclusions."] if plan.settings.quick else []


def heading(rows: pandas.DataFrame, fronts: Fronts) -> tuple[str, str]:
    """Return title and conditions of the figure that shows `rows`, those of the first cost."""
    plan, quality = fronts[0].plan, fronts[0].axes.y.capitalize()
    shown = [c for c in fronts[0].comparisons if c.first_id in set(rows["cell_id"])]
    title = f"{quality}{_outcome(shown)}" if shown else f"{quality} against {_nouns([one.axes for one in fronts])}"
    lengths = sorted(rows["seq_len"].unique())
    parts = (
        ", ".join([*dict.fromkeys(rows["task"]), f"n = {', '.join(numbers.whole(n) for n in lengths)}"]),
        _seeds(rows, plan.settings.seeds),
        _recipe(plan),
        *(text for one in fronts for text in workload_text(one.rows, one.axes)),
        plan.created[:10],
        *(("quick run",) if plan.settings.quick else ()),
    )
    return title, f"{'; '.join(parts)}."


def figure_caption(costs: Sequence[Axes], apart: str) -> str:
    """Describe the figure; `apart`: a cost that tells models of one size apart, or empty."""
    one_size = f" All models have the same {_noun(costs[0].x)}: --x {apart} tells them apart." if apart and len(costs) == 1 else ""
    beside = " Overlapping points are drawn side by side." if any(axes.x in EXACT for axes in costs) else ""
    return (
        f"Mean {costs[0].y} on the test split over seeds, against {_nouns(costs)}; each interval holds at 95 %.{one_size}{beside} The line "
        "is the best mean up to each x, and rings mark its models. Overlapping bars do not replace the tests in the comparisons."
    )


def front_sentence(rows: pandas.DataFrame, axes: Axes) -> list[str]:
    """List the models on the front by task and length."""
    places = []
    sizes, tasks = rows.groupby(["task", "seq_len"])["size"].nunique(), task_names(rows["task"])
    for place, members in on_front(rows).groupby(["task", "seq_len"], sort=False):
        task, n = place
        names = [f"{row['label']}{f' ({_size(row)})' if sizes[place] > 1 else ''}" for row in members.to_dict("records")]
        places.append(f"{tasks[task]}, n = {n:.0f}: {', '.join(names)}")
    more = f"; {len(places) - MAX_PLACES} more in the table" if len(places) > MAX_PLACES else ""
    return [f"Front of {axes.y} against {_noun(axes.x)}: {'; '.join(places[:MAX_PLACES])}{more}."]


def verdict_sentence(comparisons: Sequence[Comparison]) -> list[str]:
    """Count and list the significant differences, then all others."""
    if not comparisons:
        return ["No two trained models of equal size share task, n and budget, so nothing is compared pairwise."]
    significant = [c for c in comparisons if c.significant]
    decidable = [c for c in comparisons if not c.caveat]
    found = []
    if decidable:
        clauses = _clauses(significant)
        listed = f": {_listed(clauses)}" if clauses else ""
        found.append(f"{len(significant)} of {len(decidable)} differences {_are(len(significant))} significant{listed}.")
    if len(decidable) > len(significant):
        others = _clauses([c for c in decidable if not c.significant], " and ")
        found.append(f"No significant difference: {_listed(others)}.")
    for caveat in dict.fromkeys(c.caveat for c in comparisons if c.caveat):
        open_pairs = [c for c in comparisons if c.caveat == caveat]
        about = f"{len(open_pairs)} pairs" if len(open_pairs) > MAX_CLAUSES else "; ".join(_clauses(open_pairs, " and "))
        found.append(f"Not decided ({caveat}): {about}.")
    return found


def unequal_text(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    """Count the pairs left untested because one model is larger.

    `pairs`: the two rows of each pair.
    """
    by_policy = Counter("flops" if first["match"] == "flops" else "params" for first, _ in pairs)
    nouns = {"flops": "forward FLOPs", "params": "parameters"}
    return [
        f"{num} pair{' was' if num == 1 else 's were'} not tested: their {nouns[policy]} differ by more than {SIZE_TOLERANCE[policy]:.0%}, so "
        "size could explain a difference."
        for policy, num in by_policy.items()
    ]


def seeds_lost_text(rows: pandas.DataFrame, without: Sequence[str], planned: int) -> list[str]:
    """Name models with fewer seeds than planned.

    `without`: names of models without any seed.
    """
    fewer = rows[rows["num_seeds"] < planned].to_dict("records")
    named = [f"{model_place(row)}: {seeds_text(row['num_seeds'], planned)}" for row in fewer]
    named += [f"{name}: {seeds_text(0, planned)}" for name in without]
    if not named:
        return []
    return [
        f"Seeds were lost (diverged, failed or not run): {'; '.join(named)}. Means over the remaining seeds may be too high, so no "
        "difference from these models is claimed."
    ]


def unit_text(comparisons: Sequence[Comparison], axes: Axes) -> list[str]:
    """State the unit of differences unless it is the quantity shown."""
    unit = DIFFERENCE_UNITS[axes.y]
    if axes.y == unit or not comparisons:
        return []
    return [f"Differences are in {unit}, minus the mean squared error by which test items are scored, not in the {axes.y} shown."]


def workload_text(rows: pandas.DataFrame, axes: Axes) -> list[str]:
    """Name the measured workload if x is the cost of a step."""
    measured = rows[rows["x"].notna()]
    if axes.x not in STEP_COSTS or measured.empty:
        return []
    *keys, batch = WORKLOAD_KEYS
    work = [work_text(key, measured[key].iloc[0]) for key in keys]
    return [f"{_noun(axes.x)}: {', '.join([*work, f'batch {numbers.whole(measured[batch].iloc[0])}'])}"]


def seeds_text(num: float, planned: int) -> str:
    """Write `3 of 5` if seeds were lost, else their number."""
    return f"{num:.0f} of {planned}" if num < planned else numbers.whole(num)


def _noun(x: str) -> str:
    return X_LABELS[x].partition(" (")[0]


def _nouns(costs: Sequence[Axes]) -> str:
    return ", ".join(_noun(axes.x) for axes in costs)


def _outcome(comparisons: Sequence[Comparison]) -> str:
    decidable = [c for c in comparisons if not c.caveat]
    num = sum(c.significant for c in decidable)
    if not decidable:
        return f": nothing is decided ({'; '.join(dict.fromkeys(c.caveat for c in comparisons))})"
    budgets = all(c.group["match"] != "shape" and not numbers.is_empty(c.group["budget"]) for c in decidable)
    equal = "at equal budget" if budgets else "of equal size"
    if num == 0:
        return f": no significant difference {equal}"
    return f": {num} of {len(decidable)} differences {equal} {_are(num)} significant"


def _are(num: int) -> str:
    return "is" if num == 1 else "are"


def _seeds(rows: pandas.DataFrame, planned: int) -> str:
    low, high = rows["num_seeds"].min(), rows["num_seeds"].max()
    if low < planned:
        most = f" to {high:.0f}" if high > low else ""
        return f"{low:.0f}{most} of {planned} seeds"
    return f"{low:.0f} seed{'' if high == 1 else 's'}" if low == high else f"{low:.0f} to {high:.0f} seeds"


def _recipe(plan: Plan) -> str:
    recipe: Recipe = plan.recipe
    rate = f"rate chosen from {plan.settings.lr_trials} trials" if plan.settings.lr_trials else f"at {recipe.learning_rate:g}"
    return f"{recipe.epochs} epochs of AdamW {rate}, batch {recipe.batch_size * recipe.accumulate}"


def _size(row: Mapping[str, Any]) -> str:
    return str(row["size"]) if not numbers.is_empty(row["budget"]) else numbers.count(row["params"])


def _clauses(comparisons: Sequence[Comparison], joint: str = " above ") -> list[str]:
    """Write one clause per pair of models.

    Example: `gmlp above vit (n = 17 at 300 k, 1 M)`.
    """
    places: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for c in comparisons:
        budget = "own size" if numbers.is_empty(c.group["budget"]) else numbers.count(c.group["budget"])
        names = (c.first, c.second) if joint == " above " else sorted((c.first, c.second))
        places[joint.join(names)][c.group["seq_len"]].append(budget)
    return [f"{pair} ({'; '.join(_place(n, budgets) for n, budgets in lengths.items())})" for pair, lengths in places.items()]


def _listed(clauses: Sequence[str]) -> str:
    more = f"; {len(clauses) - MAX_CLAUSES} more pairs in the table" if len(clauses) > MAX_CLAUSES else ""
    return "; ".join(clauses[:MAX_CLAUSES]) + more


def _place(n: float, budgets: Sequence[str]) -> str:
    return f"n = {n:.0f} at {', '.join(dict.fromkeys(budgets))}"

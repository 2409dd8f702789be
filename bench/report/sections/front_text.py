"""Write the sentences of `bench compare`: results, caveats and methods."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
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
from bench.analysis.pareto import ON
from bench.analysis.significance import MCNEMAR, ONE_SEED, PAIRED_T, TWO_WAY, Comparison
from bench.report.charts.front import X_LABELS
from bench.spec import Plan, Recipe

MAX_PLACES, MAX_CLAUSES = 6, 8
"""The most places and pairs of models that a sentence lists."""
TESTS = {
    TWO_WAY: (
        "Two-way t-test (two or more seeds each): the variance of the difference adds the variance over seeds within each model (Welch 1947) and "
        "the variance over paired test items, with degrees of freedom by Satterthwaite (1946). Seeds and items are crossed as readers and cases "
        "are in multi-reader multi-case studies (Dorfman, Berbaum and Metz 1992; Obuchowski and Rockette 1995). The test is conservative: the item "
        "variance contains part of the seed variance."
    ),
    MCNEMAR: (
        "Exact McNemar test (McNemar 1947) on items that exactly one model answers correctly, with the interval of Agresti and Min "
        f"(2005); {ONE_SEED}."
    ),
    PAIRED_T: f"Paired t-test over items; {ONE_SEED}.",
}
CORRECTION = (
    "p (Holm): corrected for all {num} comparisons of this run together (Holm 1979), significant below 0.05. Each interval of a difference holds at "
    "95 % alone, without correction."
)
JOINT = (
    "Intervals of the front and its figure hold for all models and both axes together, at 95 % (Bonferroni; the spread over seeds is pooled over "
    "the models of one length and size, unless one stands out or does not vary); those in the table of trained models hold each alone."
)
ABOUT_FRONT = (
    f"{JOINT} "
    "Certain: no other model of that length could have a smaller or equal x and a larger or equal y, wherever the values lie within these "
    "intervals; and every tested model with a smaller or equal x differs significantly in y. Models matched to one parameter budget count as equally "
    "large. "
    "Not certain: any model with one seed (no interval), any model whose latency is unstable or has too few rounds for an interval, and every model "
    "if x is a training time, since wall times of single trainings have no known spread. In the table of trained models, a plain off means "
    "that another model is better wherever the values lie within their intervals."
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
        f"Mean {costs[0].y} on the test split over seeds, against {_nouns(costs)}; all intervals together hold at 95 %.{one_size}{beside} The line "
        "is the best mean up to each x. Rings mark its models; dotted rings mark uncertain membership. Overlapping bars do not replace the tests "
        "in the comparisons."
    )


def front_sentence(rows: pandas.DataFrame, axes: Axes) -> list[str]:
    """List the models on the front by task and length."""
    places = []
    sizes, tasks = rows.groupby(["task", "seq_len"])["size"].nunique(), task_names(rows["task"])
    for place, members in on_front(rows).groupby(["task", "seq_len"], sort=False):
        task, n = place
        names = [f"{row['label']}{_aside(row, several=sizes[place] > 1)}" for row in members.to_dict("records")]
        places.append(f"{tasks[task]}, n = {n:.0f}: {', '.join(names)}")
    more = f"; {len(places) - MAX_PLACES} more in the table" if len(places) > MAX_PLACES else ""
    return [f"Front of {axes.y} against {_noun(axes.x)}: {'; '.join(places[:MAX_PLACES])}{more}."]


def uncertain_text(rows: pandas.DataFrame, axes: Axes) -> list[str]:
    """Name models that are never certain: x has no reliable spread."""
    doubtful = rows[rows["x_doubtful"] & rows["x"].notna()].to_dict("records")
    if not doubtful:
        return []
    if axes.x == "train_s":
        return ["No membership is certain: training times are wall times of single trainings, with unknown spread."]
    named = f"{len(doubtful)} of {len(rows)} models" if len(doubtful) > MAX_PLACES else "; ".join(model_place(row) for row in doubtful)
    return [f"Never certain, because their latency is unstable or has no interval: {named}."]


def verdict_sentence(comparisons: Sequence[Comparison]) -> list[str]:
    """Count and list the significant differences, then all others."""
    if not comparisons:
        return ["No two trained models of equal size share task, n and budget, so nothing is compared pairwise."]
    significant = [c for c in comparisons if c.significant]
    about_models = [c for c in comparisons if c.about_models]
    lost = [c for c in comparisons if c.seeds_lost]
    single = len(comparisons) - len(about_models) - len(lost)
    found = []
    if about_models:
        clauses = _clauses(significant)
        listed = f": {_listed(clauses)}" if clauses else ""
        found.append(
            f"{len(significant)} of {len(about_models)} differences {_are(len(significant))} significant (Holm-adjusted p < 0.05){listed}."
        )
    if len(about_models) > len(significant):
        others = _clauses([c for c in about_models if not c.significant], " and ")
        found.append(f"No significant difference: {_listed(others)}.")
    if lost:
        found.append(f"Not claimed, because seeds were lost: {'; '.join(_clauses(lost, ' and '))}.")
    if single:
        found.append(f"Comparisons of one seed per model: {single}; they say nothing about other seeds.")
    return found


def method_text(comparisons: Sequence[Comparison]) -> list[str]:
    used = {c.difference.test for c in comparisons}
    tests = [text for name, text in TESTS.items() if name in used]
    return [*tests, CORRECTION.format(num=len(comparisons))] if tests else []


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
    about_models = [c for c in comparisons if c.about_models]
    num = sum(c.significant for c in about_models)
    if not about_models:
        lost = any(c.seeds_lost for c in comparisons)
        return ": seeds were lost, so no difference is claimed" if lost else " of one seed each: nothing is shown about other seeds"
    budgets = all(c.group["match"] != "shape" and not numbers.is_empty(c.group["budget"]) for c in about_models)
    equal = "at equal budget" if budgets else "of equal size"
    if num == 0:
        return f": no significant difference {equal}"
    return f": {num} of {len(about_models)} differences {equal} {_are(num)} significant"


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


def _aside(row: Mapping[str, Any], *, several: bool) -> str:
    parts = [*([_size(row)] if several else []), *([] if row["front"] == ON else ["not certain"])]
    return f" ({', '.join(parts)})" if parts else ""


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

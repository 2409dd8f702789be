"""Write `bench compare` as JSON, text and files: results, caveats and methods."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas

from bench import numbers
from bench.analysis.accuracy import Comparison
from bench.analysis.frame import row_name, work_text
from bench.analysis.front import (
    DIFFERENCE_UNITS,
    EXACT,
    OPEN,
    STEP_COSTS,
    WORKLOAD_KEYS,
    Axes,
    CostAgainstQuality,
    Fronts,
    on_front,
    task_names,
    unmeasured,
)
from bench.analysis.sizes import SIZE_TOLERANCE
from bench.files import write_bytes, write_text, writing
from bench.reading.table import row_values
from bench.report import tables
from bench.report.charts.front import MAX_PANELS, X_LABELS, draw_fronts, is_unstable
from bench.report.charts.style import figure_style, series_styles
from bench.report.document import Block, Bullets, Document, FigureBlock, Paragraph, Section, TableBlock
from bench.report.images import images_of, svg_file
from bench.report.markdown import to_markdown
from bench.report.tables import Column, Table, plain
from bench.spec import OPTIMIZERS, Plan, Recipe


def name_of(fronts: Fronts) -> str:
    """Return the name of the page and its figure."""
    return "_".join(("compare", *(found.axes.x for found in fronts), fronts[0].axes.y))


def json_of(fronts: Fronts) -> dict[str, Any]:
    """Return each cost's front, and every comparison, as JSON; unknown values are null."""
    found = fronts[0]
    front = [_front_entry(row, one.axes) for one in fronts for row in on_front(one.rows).to_dict("records")]
    comparisons = [_comparison_entry(comparison, found.axes) for comparison in found.comparisons]
    quick = found.plan.settings.quick
    return {"runs": list(found.runs), "quick": quick, "x": _costs(fronts), "y": found.axes.y, "front": front, "comparisons": comparisons}


def _costs(fronts: Fronts) -> str:
    """Write the costs as --x takes them."""
    return ",".join(found.axes.x for found in fronts)


def text_tables(fronts: Fronts) -> list[tuple[str, Table]]:
    """Return titles and tables in reading order, without empty tables.

    Against several costs, the table of trained models says for each cost who is on its front.
    """
    found = fronts[0]
    front = (f"Pareto front: {found.axes.x} against {found.axes.y}", front_table(on_front(found.rows), found.axes))
    named = [
        ("Trained models", rows_table(fronts)),
        *([front] if len(fronts) == 1 else []),
        ("Comparisons", comparison_table(found.comparisons, found.axes)),
    ]
    return [(title, table) for title, table in named if table.rows]


def notes(fronts: Fronts) -> list[str]:
    """Sum up the tables in sentences; the page has the methods too."""
    found, front = fronts[0], _front_notes(fronts)
    is_open = "Open: off the front, but not significantly below a model that costs no more." if (found.rows["front"] == OPEN).any() else ""
    limits = (*unit_text(found.comparisons, found.axes), *_limits(found), *filter(None, [is_open]))
    return [*quick_text(found.plan), *front, *verdict_sentence(found.comparisons), *limits]


def _front_notes(fronts: Fronts) -> list[str]:
    return [text for one in fronts for text in front_sentence(one.rows, one.axes)]


def _limits(found: CostAgainstQuality) -> list[str]:
    """Say why some differences are not claimed or not tested."""
    lost = seeds_lost_text(found.rows, found.without_seeds)
    return [*lost, *unequal_text(found.unequal)]


def _method(found: CostAgainstQuality) -> list[str]:
    return [*unit_text(found.comparisons, found.axes), METHOD, CORRECTION]


def write_comparison(fronts: Fronts, folder: Path) -> Path:
    """Write page and figures into `folder`; return the page's path.

    The page is compare_<x>_<y>.md, with all costs in its name; the figure is SVG. `folder` is created if missing. Equal data give equal bytes.
    Raises RequestError if it cannot be written.
    """
    page = folder / f"{name_of(fronts)}.md"
    with writing(folder), figure_style():
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        document = _document(fronts)
        for name, image in images_of(document.figures).items():
            write_bytes(folder / "figures" / f"{name}.svg", svg_file(image))
        write_text(page, to_markdown(document))
    return page


def figure(fronts: Fronts) -> FigureBlock:
    """Draw the front, or one beside the other for several costs. Call inside `style.figure_style`."""
    found = fronts[0]
    rows = found.rows[found.rows["x"].notna()]
    title, conditions = heading(rows, fronts)
    tasks = task_names(rows["task"])
    places = list(dict.fromkeys(zip(rows["task"], rows["seq_len"], strict=True)))
    left_out = [f"{tasks[task]}, n = {n:.0f}" for task, n in places[MAX_PANELS:]]
    drawn = [(one.rows[one.rows["x"].notna()], one.axes) for one in fronts]
    hollow = " Hollow: an unstable time." if any(is_unstable(row, axes) for rows, axes in drawn for row in row_values(rows)) else ""
    return FigureBlock(
        name=name_of(fronts),
        title=title,
        caption=f"{conditions} {figure_caption([one.axes for one in fronts], found.apart)}{hollow}",
        figure=draw_fronts(drawn, series_styles(list(rows["label"])), found.chance),
        missing=(*dict.fromkeys(text for one in fronts for text in unmeasured(one.rows)), *left_out),
    )


def _document(fronts: Fronts) -> Document:
    found = fronts[0]
    blocks = {title.partition(":")[0]: TableBlock(table=table) for title, table in text_tables(fronts)}
    conditions = [Paragraph(text=text) for one in fronts for text in workload_text(one.rows, one.axes)]
    front = (*_front_notes(fronts), ABOUT_FRONT)
    sections: dict[str, Sequence[Block]] = {
        "Which differences are significant": (
            Paragraph(text=" ".join((*verdict_sentence(found.comparisons), *_limits(found)))),
            *([blocks["Comparisons"]] if "Comparisons" in blocks else []),
            *([Bullets(items=tuple(_method(found)))] if found.comparisons else []),
        ),
        "Front": (Paragraph(text=" ".join(front)), *([blocks["Pareto front"]] if len(fronts) == 1 else []), figure(fronts)),
        "Trained models": (blocks["Trained models"], *conditions),
    }
    of, into = (found.runs[0], "") if len(found.runs) == 1 else (f"{len(found.runs)} runs", " --out FOLDER")
    return Document(
        title=f"{of}: {_costs(fronts).replace(',', ', ')} against {found.axes.y}",
        subtitle=f"Made by: bench compare {' '.join(found.runs)} --x {_costs(fronts)} --y {found.axes.y}{into}; run of {found.plan.created[:10]}",
        notice=" ".join(quick_text(found.plan)),
        sections=tuple(Section(title=title, blocks=tuple(parts)) for title, parts in sections.items()),
    )


def _front_entry(row: Mapping[str, Any], axes: Axes) -> dict[str, Any]:
    return {
        "cost": axes.x,
        "cell_id": row["cell_id"],
        "label": row["label"],
        **_group_entry(row),
        "x": float(row["x"]),
        **{name: _number(row[name]) for name in ("y", "y_low", "y_high", "x_low", "x_high")},
    }


def _comparison_entry(comparison: Comparison, axes: Axes) -> dict[str, Any]:
    difference = comparison.difference
    return {
        **_group_entry(comparison.group),
        "first": {"cell_id": comparison.first_id, "label": comparison.first, "seeds": comparison.seeds[0]},
        "second": {"cell_id": comparison.second_id, "label": comparison.second, "seeds": comparison.seeds[1]},
        "difference": difference.estimate,
        "unit": DIFFERENCE_UNITS[axes.y],
        "low": _number(difference.low),
        "high": _number(difference.high),
        "num_items": comparison.num_items,
        "significant": comparison.significant,
        "verdict": comparison.verdict,
        "remark": comparison.caveat,
    }


def _group_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "task": row["task"],
        "seq_len": int(row["seq_len"]),
        "budget": None if pandas.isna(row["budget"]) else int(row["budget"]),
        "match": row["match"],
    }


def _number(value: Any) -> float | None:
    return None if numbers.is_empty(value) or math.isinf(value) else float(value)


def rows_table(fronts: Fronts) -> Table:
    """Return one row per trained model; against several costs, each cost is followed by the membership of its front."""
    rows = fronts[0].rows.assign(front=fronts[0].rows["front"].fillna(""))
    task = (plain("task"),) if rows["task"].nunique() > 1 else ()
    seeds = Column(header="seeds", text=lambda row: seeds_text(row["num_seeds"], row["planned_seeds"]))
    time = Column(header="training time", text=lambda row: numbers.duration(1e3 * row["train_s"]))
    costs = {
        "params": tables.PARAMS,
        "flops": tables.FLOPS,
        "latency_ms": tables.LATENCY,
        "peak_memory_bytes": tables.MEMORY,
        "train_s": time,
    }
    asked = [plain("front")]
    if len(fronts) > 1:
        members = {f"front by {one.axes.x}": one.rows.set_index("training")["front"] for one in fronts}
        rows = rows.assign(**{header: rows["training"].map(front).fillna("") for header, front in members.items()})
        asked = [column for one, header in zip(fronts, members, strict=True) for column in (costs.pop(one.axes.x), plain(header))]
    columns = (
        *(tables.MODEL, *task, tables.LENGTH, tables.BUDGET, tables.ACCURACY, tables.SCORE, *asked),
        *(*costs.values(), seeds, tables.TRAINING[2]),
    )
    return tables.table(row_values(rows), columns, keep=("model", "n"))


def front_table(front: pandas.DataFrame, axes: Axes) -> Table:
    task = (plain("task"),) if front["task"].nunique() > 1 else ()
    x = Column(header=axes.x, text=lambda row: _x_text(row, axes))
    y = Column(header=axes.y, text=lambda row: _quality(row, axes))
    return tables.table(row_values(front), (tables.MODEL, *task, tables.LENGTH, tables.BUDGET, x, y), keep=("model", "n"))


def comparison_table(comparisons: Sequence[Comparison], axes: Axes) -> Table:
    tasks = task_names(c.group["task"] for c in comparisons)
    task = ("task",) if len(tasks) > 1 else ()
    difference = "difference [95 %]" if axes.y == "accuracy" else f"difference in {DIFFERENCE_UNITS[axes.y]} [95 %]"
    headers = (*task, "n", "budget", "higher", "lower", "verdict", difference, "seeds", "items")
    numeric = tuple(header not in ("task", "higher", "lower", "verdict") for header in headers)
    texts = [(*(tasks[c.group[key]] for key in task), *_comparison_texts(c, axes)) for c in comparisons]
    return Table(headers=headers, numeric=numeric, rows=tuple(texts))


def _quality(row: tables.Row, axes: Axes) -> str:
    if axes.y == "accuracy":
        return numbers.fraction(row["y"], row["y_low"], row["y_high"])
    return numbers.bounded(row["y"], row["y_low"], row["y_high"], "{:.3g}".format)


def _comparison_texts(comparison: Comparison, axes: Axes) -> tuple[str, ...]:
    group = comparison.group
    seeds = " and ".join(dict.fromkeys(map(seeds_text, comparison.seeds, comparison.planned_seeds)))
    return (
        *(numbers.whole(group["seq_len"]), numbers.count(group["budget"]), comparison.first, comparison.second),
        *(comparison.verdict, _difference_text(comparison, axes)),
        *(seeds, f"{comparison.num_items:,}"),
    )


def _difference_text(comparison: Comparison, axes: Axes) -> str:
    found, (scale, form) = comparison.difference, (100, "{:+.2f}") if axes.y == "accuracy" else (1, "{:+.3g}")
    estimate, low, high = (form.format(scale * value) for value in (found.estimate, found.low, found.high))
    return f"{estimate}{' pp' if axes.y == 'accuracy' else ''}{'' if found.is_open else f' [{low}, {high}]'}"


def _x_text(row: tables.Row, axes: Axes) -> str:
    if axes.x == "latency_ms":
        is_range = numbers.is_empty(row["x_high"]) or math.isinf(row["x_high"])
        low, high = (row.get("latency_min_ms"), row.get("latency_max_ms")) if is_range else (row["x_low"], row["x_high"])
        text = numbers.interval_ms(row["x"], low, high, is_range=is_range)
        return f"{text}, unstable" if is_unstable(row, axes) else text
    if axes.x == "train_s":
        return numbers.duration(1e3 * row["x"])
    if axes.x == "peak_memory_bytes":
        return numbers.bytes_text(row["x"])
    return numbers.exact(row["params"]) if axes.x == "params" else numbers.count(row["x"])


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
        _seeds(rows),
        _recipe(plan),
        *_own_recipes(rows),
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
    placed = len({(c.group["task"], *_place_of(c)) for c in comparisons}) > 1
    found = []
    if decidable:
        clauses = _clauses(significant, placed=placed)
        listed = f": {_listed(clauses)}" if clauses else ""
        found.append(f"{len(significant)} of {len(decidable)} differences {_are(len(significant))} significant{listed}.")
    if len(decidable) > len(significant):
        others = _clauses([c for c in decidable if not c.significant], " and ", placed=placed)
        found.append(f"No significant difference: {_listed(others)}.")
    for caveat in dict.fromkeys(c.caveat for c in comparisons if c.caveat):
        open_pairs = [c for c in comparisons if c.caveat == caveat]
        about = f"{len(open_pairs)} pairs" if len(open_pairs) > MAX_CLAUSES else "; ".join(_clauses(open_pairs, " and ", placed=placed))
        found.append(f"Not decided ({caveat}): {about}.")
    return found


def unequal_text(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    """Count the pairs left untested because one model is larger.

    `pairs`: the two rows of each pair.
    """
    by_policy = Counter(first["match"] if first["match"] in SIZE_TOLERANCE else "params" for first, _ in pairs)
    nouns = {"flops": "forward FLOPs", "params": "parameters", "state": "states"}
    return [
        f"{num} pair{' was' if num == 1 else 's were'} not tested: their {nouns[policy]} differ by more than {SIZE_TOLERANCE[policy]:.0%}, so "
        "size could explain a difference."
        for policy, num in by_policy.items()
    ]


def seeds_lost_text(rows: pandas.DataFrame, without: Mapping[str, int]) -> list[str]:
    """Name models with fewer seeds than planned.

    `without`: names of models without any seed, with the number planned.
    """
    fewer = rows[rows["num_seeds"] < rows["planned_seeds"]].to_dict("records")
    named = [f"{row_name(row)}: {seeds_text(row['num_seeds'], row['planned_seeds'])}" for row in fewer]
    named += [f"{name}: {seeds_text(0, planned)}" for name, planned in without.items()]
    if not named:
        return []
    return [
        f"Fewer seeds than planned (diverged, failed or not run): {'; '.join(named)}. Means over the others may be too high, so no "
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


def _seeds(rows: pandas.DataFrame) -> str:
    low, high = rows["num_seeds"].min(), rows["num_seeds"].max()
    if (rows["num_seeds"] < rows["planned_seeds"]).any():
        most = f" to {high:.0f}" if high > low else ""
        return f"{low:.0f}{most} of {' or '.join(map(str, sorted(rows['planned_seeds'].unique())))} seeds"
    return numbers.counted(low, "seed") if low == high else f"{low:.0f} to {high:.0f} seeds"


def _recipe(plan: Plan) -> str:
    recipe: Recipe = plan.recipe
    rate = "each model at the best rate of its trials" if plan.settings.lr_trials else f"at {recipe.learning_rate:g}"
    return f"{recipe.epochs} epochs of {OPTIMIZERS[recipe.optimizer]} {rate}, batch {recipe.batch_size * recipe.accumulate}"


def _own_recipes(rows: pandas.DataFrame) -> list[str]:
    """Say how the recipe of a size differs from the run's, where the names of its models do not."""
    own = rows[(rows["recipe"] != "") & (rows["label"] == rows["model"])].to_dict("records")
    return list(dict.fromkeys(f"{_size(row)}: {row['recipe'].replace(',', ', ')}" for row in own))


def _size(row: Mapping[str, Any]) -> str:
    return str(row["size"]) if not numbers.is_empty(row["budget"]) else numbers.count(row["params"])


def _clauses(comparisons: Sequence[Comparison], joint: str = " above ", *, placed: bool) -> list[str]:
    """Write one clause per pair of models, if `placed` with the lengths and budgets.

    Example: `gmlp above vit (n = 17 at 300 k, 1 M)`.
    """
    places: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for c in comparisons:
        n, budget = _place_of(c)
        names = (c.first, c.second) if joint == " above " else sorted((c.first, c.second))
        places[joint.join(names)][n].append(budget)
    if not placed:
        return list(places)
    return [f"{pair} ({'; '.join(_place(n, budgets) for n, budgets in lengths.items())})" for pair, lengths in places.items()]


def _place_of(comparison: Comparison) -> tuple[float, str]:
    n, budget = comparison.group["seq_len"], comparison.group["budget"]
    return n, "own size" if numbers.is_empty(budget) else numbers.count(budget)


def _listed(clauses: Sequence[str]) -> str:
    more = f"; {len(clauses) - MAX_CLAUSES} more pairs in the table" if len(clauses) > MAX_CLAUSES else ""
    return "; ".join(clauses[:MAX_CLAUSES]) + more


def _place(n: float, budgets: Sequence[str]) -> str:
    return f"n = {n:.0f} at {', '.join(dict.fromkeys(budgets))}"

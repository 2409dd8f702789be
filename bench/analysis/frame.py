"""Prepare the table of a run for reports.

Every column is present, numbers are floats, and each row has the texts `label`, `size` and `batching`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.series import SERIES_KEYS, by_part, row_values
from bench.numbers import count
from bench.reading.roofline import COLUMNS as ROOFLINE
from bench.same_size import is_one_width
from bench.spec import AUTO, EXPLICIT, MEASURED, NO_ATTENTION, Part

WORK_KEYS = ("device", "phase", "engine", "dtype", "batching", "task", "recipe")
PHASE_NAMES = {"infer": "inference", "train": "training"}
TEXT_COLUMNS = (
    "batching",
    *("cell_id", "model", "family", "phase", "engine", "dtype", "device", "attention", "task", "recipe", "match", "status", "reason"),
    *(
        "sizing",
        "flops_counted_by",
        "memory_source",
        "ratio_to",
        "score_name",
        "attention_effective",
        "precision_effective",
        "engine_effective",
        "spatial_effective",
        "allocator_effective",
    ),
)
FLAG_COLUMNS = ("latency_stable", "flops_agree", "quick")
NUMBER_COLUMNS = (
    *("seq_len", "batch_size", "budget", "budget_error", "width", "depth", "heads", "ffn_width"),
    *("ffn_moved", "params", "params_seq", "params_blocks"),
    *("flops", "flops_quadratic_share", "flops_train", "fft_flops", "latency_ms", "latency_low_ms", "latency_high_ms"),
    *("latency_min_ms", "latency_max_ms", "ratio", "ratio_low", "ratio_high", "ratio_min", "ratio_max", "num_blocks"),
    *("latency_p90_ms", "latency_p99_ms", "device_latency_ms", "first_call_ms", "compile_s", "throughput_per_s", "tokens_per_s", "mfu"),
    *("num_rounds", "num_samples", "threads", "page_faults", "peak_memory_bytes", "weight_bytes", "gradient_bytes", "optimizer_bytes"),
    *("activation_bytes", "rss_bytes", "energy_j", "accuracy", "accuracy_low", "accuracy_high", "accuracy_top5", "train_accuracy"),
    *("exact_accuracy", "exact_accuracy_low", "exact_accuracy_high", "perplexity", "perplexity_low", "perplexity_high"),
    *("score", "score_low", "score_high", "num_seeds", "train_s", "train_images_per_s", "train_flops", "learning_rate", "num_trials"),
    *("ceiling_flops_per_s", "ceiling_bytes_per_s", *ROOFLINE),
)


def prepare(rows: pandas.DataFrame, parts: Sequence[Part] = ()) -> pandas.DataFrame:
    """Return a copy with all columns, ordered by part if given.

    Texts become str ("" if empty), numbers float (NaN if empty), flags True, False or None.

    Added columns:
    `label`: the model, with the attention kernel, requested and recorded, if several were requested. A model whose name has
    options or several words, and that is one variant of the question, has the variant's name (see `variant_names`).
    `size`: the budget, with the matching policy if several are used; else the one-width policy or `own size`.
    `batching`: the batch size, or how the batch follows n.
    `variant`: the arms of the plan that the cell belongs to.

    A cell in several parts of the plan has one row in each; `cells` keeps one.
    """
    frame = by_part(rows.reset_index(drop=True), parts)
    # dtype object: pandas' string dtype would copy every string
    texts = {name: pandas.Series([_text(value) for value in _column(frame, name)], dtype=object) for name in TEXT_COLUMNS}
    amounts = {name: pandas.to_numeric(pandas.Series(_column(frame, name), dtype=object), errors="coerce") for name in NUMBER_COLUMNS}
    flags = {name: pandas.Series([_flag(value) for value in _column(frame, name)], dtype=object) for name in FLAG_COLUMNS}
    # built in one call: pandas warns when so many columns are added one by one
    frame = pandas.DataFrame({**dict(frame.items()), **texts, **{name: column.astype(float) for name, column in amounts.items()}, **flags})
    frame["label"] = _labels(frame, parts)
    frame["size"] = _sizes(frame)
    frame["variant"] = _variants(frame, parts)
    return frame


def cells(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return one row per cell, even for cells in several parts."""
    return frame[~(frame["cell_id"].duplicated() & (frame["cell_id"] != ""))]


def work_text(key: str, value: Any) -> str:
    """Return a workload value that is readable without its column name."""
    if key == "phase":
        return PHASE_NAMES.get(str(value), str(value))
    if key == "task":
        return str(value) or "synthetic data"
    if key == "recipe":
        return str(value) or "the run's recipe"
    return str(value)


def varying(frame: pandas.DataFrame, keys: tuple[str, ...] = WORK_KEYS) -> tuple[str, ...]:
    """Return the keys whose columns have more than one value."""
    return tuple(key for key in keys if frame[key].nunique(dropna=False) > 1)


def constant_work(frame: pandas.DataFrame) -> str:
    """Describe the workload values that all rows share."""
    if frame.empty:
        return ""
    shared = [(key, frame[key].iloc[0]) for key in WORK_KEYS if key not in varying(frame)]
    return ", ".join(work_text(key, value) for key, value in shared if value or key != "recipe")


def row_name(row: Any, keys: tuple[str, ...]) -> str:
    """Name a cell by model, n, budget and varying workload values."""
    parts = [f"{row['label']}, n = {row['seq_len']:.0f}", str(row["size"]), *(work_text(key, row[key]) for key in keys)]
    return ", ".join(part for part in parts if part)


def cell_names(rows: pandas.DataFrame) -> dict[str, str]:
    """Return the name of every cell of a table, by cell id."""
    frame = prepare(rows)
    keys = varying(frame)
    return {row["cell_id"]: row_name(row, keys) for row in row_values(frame)}


def incomplete(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows that were not measured in full: failed, or not run yet."""
    return rows[rows["status"] != MEASURED]


def unstable(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows whose latency is flagged unstable."""
    return frame[[flag is False for flag in frame["latency_stable"]]]


def _column(frame: pandas.DataFrame, name: str) -> list[Any]:
    return list(frame[name]) if name in frame else [None] * len(frame)


def _text(value: Any) -> str:
    return "" if value is None or (pandas.api.types.is_scalar(value) and pandas.isna(value)) else str(value)


def _flag(value: Any) -> bool | None:
    return None if value is None or pandas.isna(value) else bool(value)


def _labels(frame: pandas.DataFrame, parts: Sequence[Part]) -> list[str]:
    num_kernels = frame.groupby("model")["attention"].nunique()
    several = {model for model, num in num_kernels.items() if num > 1}
    rows = zip(frame["model"], frame["attention"], _kernels(frame) if several else frame["attention"], strict=True)
    labels = [f"{model} ({kernel})" if model in several and asked != NO_ATTENTION else model for model, asked, kernel in rows]
    names = variant_names(dict(zip(frame["cell_id"], labels, strict=True)), parts)
    return [names.get(label, label) for label in labels]


def variant_names(labels: Mapping[str, str], parts: Sequence[Part]) -> dict[str, str]:
    """Return the names of variants by the label of the model that each is; `labels`: by cell id.

    A variant may be another model in another part: the one of most parts has the bare name, others are told by their part.
    """
    places: dict[tuple[str, str], list[str]] = {}
    of_several_models = set()
    for where, arm in [(part.name, arm) for part in parts for arm in part.arms]:
        members = {labels[cell_id] for cell_id in arm.cells if cell_id in labels}
        of_several_models |= {arm.name} if len(members) > 1 else set()
        for label in members:
            places.setdefault((label, arm.name), []).append(where)
    num_names = Counter(label for label, _ in places)
    found: dict[str, str] = {}
    for (label, name), used in sorted(places.items(), key=lambda item: -len(item[1])):
        if {"+", "_"} & set(label) and num_names[label] == 1 and name not in of_several_models:
            taken = {*found.values(), *labels.values()} - {label}
            found[label] = next((text for text in (name, f"{name}, {', '.join(used)}") if text not in taken), label)
    return found


def _kernels(frame: pandas.DataFrame) -> list[str]:
    """Return the attention kernel of each row: as requested, and by records if torch chose explicit products.

    One series has one kernel: `auto, math` if all its rows ran explicit products, `auto, mixed` if only some did.
    """
    series = frame.groupby(list(SERIES_KEYS), sort=False, dropna=False).ngroup()
    ran: dict[int, set[bool]] = {}
    for number, kernel in zip(series, frame["attention_effective"], strict=True):
        if kernel:
            ran.setdefault(number, set()).add(kernel == EXPLICIT)
    found = [ran.get(number, {False}) for number in series]
    return [
        asked if asked != AUTO or explicit == {False} else f"{AUTO}, {'mixed' if False in explicit else EXPLICIT}"
        for asked, explicit in zip(frame["attention"], found, strict=True)
    ]


def _sizes(frame: pandas.DataFrame) -> list[str]:
    policies = frame.loc[frame["budget"].notna(), "match"].nunique()
    pairs = zip(frame["budget"], frame["match"], strict=True)
    return [_size(budget, match, policies > 1) for budget, match in pairs]


def _variants(frame: pandas.DataFrame, parts: Sequence[Part]) -> list[str]:
    found: dict[str, dict[str, None]] = {}
    for arm in [arm for part in parts for arm in part.arms]:
        for cell_id in arm.cells:
            found.setdefault(cell_id, {})[arm.name] = None
    return ["; ".join(found.get(cell_id, ())) for cell_id in frame["cell_id"]]


def _size(budget: float, match: str, several: bool) -> str:
    if pandas.isna(budget):
        return match if is_one_width(match) else "own size"
    return f"budget {count(budget)}" + (f", match {match}" if several else "")


SCOPE_TEXTS = ("phase", "engine", "dtype", "batching", "match", "budget")


def scope_text(scope: Mapping[str, Any]) -> str:
    """Describe the workload and policy of a verdict in one phrase."""
    parts = [scope_value_text(scope, key) for key in ("phase", "engine", "dtype", "batching", "task")]
    match, budget = scope.get("match"), numbers.count(scope.get("budget"))
    return ", ".join(part for part in (*parts, f"match {match}" if match else "", budget) if part)


def scope_value_text(scope: Mapping[str, Any], key: str) -> str:
    value = scope.get(key)
    if key == "budget":
        return numbers.count(value)
    return "" if value is None or value == "" else work_text(key, value)

"""Prepare the rows of a run: every column, texts that name a row, subjects, and the scopes in which rows may be compared.

Every column is present, numbers are floats, and each row has the texts `label`, `size` and `batching`. A scope is chosen by a rule fixed in
advance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench import numbers
from bench.numbers import count, is_empty, known
from bench.reading.roofline import COLUMNS as ROOFLINE
from bench.reading.table import row_values
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
        "energy_source",
        "energy_reason",
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
    *("ffn_moved", "params", "params_seq", "params_blocks", "state_bytes"),
    *("flops", "flops_quadratic_share", "flops_train", "fft_flops", "latency_ms", "latency_low_ms", "latency_high_ms"),
    *("latency_min_ms", "latency_max_ms", "ratio", "ratio_low", "ratio_high", "ratio_min", "ratio_max", "num_blocks"),
    *("latency_p90_ms", "latency_p99_ms", "device_latency_ms", "first_call_ms", "compile_s", "throughput_per_s", "tokens_per_s", "mfu"),
    *("num_rounds", "num_samples", "threads", "page_faults", "peak_memory_bytes", "weight_bytes", "gradient_bytes", "optimizer_bytes"),
    *("activation_bytes", "rss_bytes", "energy_j", "accuracy", "accuracy_low", "accuracy_high", "train_accuracy"),
    *("accuracy_top2", "accuracy_top3", "accuracy_top4", "accuracy_top5"),
    *("exact_accuracy", "exact_accuracy_low", "exact_accuracy_high", "perplexity", "perplexity_low", "perplexity_high"),
    *("score", "score_low", "score_high", "num_seeds", "train_s", "train_images_per_s", "train_flops", "learning_rate", "num_trials"),
    *("ceiling_flops_per_s", "ceiling_bytes_per_s", *ROOFLINE, "products_share", "attention_share", "norms_share", "passes_share"),
)
SCOPE_TEXTS = ("phase", "engine", "dtype", "batching", "match", "budget")
ATTENTION_FAMILIES = ("vit", "transformer")
FUSED = ("flash", "efficient", "cudnn", "overrideable")
WITHOUT_PAIRS = re.compile(r"kernel=fft|rank=[1-9]")
"""Options of gMLP that leave no product of all pairs of tokens: no claim about growth with n is about them."""
MIXER = re.compile(r"mixer=(\w+)")
REFERENCE_MIXERS = ("identity", "mean_pooling", "window_attention", "depthwise_convolution")
"""Mixers from which a token does not learn what another, far away, holds."""
SERIES_KEYS = ("model", "attention", "match", "budget", "batching", "phase", "engine", "dtype", "device", "task", "recipe")
SCOPE_KEYS = tuple(key for key in SERIES_KEYS if key not in ("model", "attention"))
PREFERRED: dict[str, tuple[str, ...]] = {"phase": ("infer",), "engine": ("eager",), "dtype": ("fp32", "bf16")}
"""The values, best first, of the scope that answers a claim.

The order is fixed in advance, so that no scope is chosen for a favourable answer.
"""
POLICIES = ("params", "shape", "flops", "state")


def prepare(rows: pandas.DataFrame, parts: Sequence[Part] = ()) -> pandas.DataFrame:
    """Return a copy with all columns, ordered by part if given.

    Texts become str ("" if empty), numbers float (NaN if empty), flags True, False or None.

    Added columns:
    `label`: the model, with the attention kernel, requested and recorded, if several were requested. A model whose name has
    options or several words, and that is one variant of the question, has the variant's name (see `variant_names`).
    `size`: the budget, with the matching policy if several are used; else `own size`.
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


def row_name(row: Any, keys: tuple[str, ...] = ()) -> str:
    """Name a cell by model, n, budget and the workload values of `keys`."""
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
    if isinstance(value, str):
        return value
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
        return "own size"
    return f"budget {count(budget)}" + (f", match {match}" if several else "")


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


def is_subject(row: Mapping[str, Any], subject: str) -> bool:
    """Return whether the row's model belongs to the claim's subject: gmlp, attention, global (either), explicit or fused."""
    if row["family"] == "gmlp":
        return subject in ("gmlp", "global") and "gating=identity" not in str(row["model"])
    if row["family"] not in ATTENTION_FAMILIES or subject == "gmlp":
        return False
    if subject in ("attention", "global"):
        return True
    ran = row.get("attention_effective")
    kernel = row["attention"] if is_empty(ran) else ran
    return bool(kernel == EXPLICIT if subject == "explicit" else kernel in FUSED)


def mixes_all(row: Mapping[str, Any]) -> bool:
    """Return whether the row's model may carry what any token holds to any other: gMLP, attention, and mixers such as linear attention."""
    mixer = MIXER.search(str(row["model"])) if row["family"] == "metaformer" else None
    return is_subject(row, "global") or (mixer is not None and mixer[1] not in REFERENCE_MIXERS)


def label_of(keys: Mapping[str, Any]) -> str:
    """Return the model's name, with the requested attention kernel if any."""
    attention = keys.get("attention")
    return f"{keys['model']} ({attention})" if attention not in (None, "", "none") else str(keys["model"])


def by_part(rows: pandas.DataFrame, parts: Sequence[Part]) -> pandas.DataFrame:
    """Return the rows of every part, in the order of the parts.

    `match` is taken from the part, unless that has several policies. The new column `batching` is `batch 32`, or the rule by which the batch
    follows n. A cell in several parts has one row in each, but only one per match and batching. Without parts, only a missing `batching` is added.
    """
    if not parts:
        return rows if "batching" in rows else rows.assign(batching=_batch_texts(rows))
    found = []
    for part in parts:
        members = rows[rows["cell_id"].isin(part.cells)]
        match = members["match"] if ", " in part.match else part.match
        found.append(members.assign(match=match, batching=part.batching or _batch_texts(members)))
    whole = pandas.concat(found) if found else rows
    return whole.drop_duplicates(["cell_id", "match", "batching"]).reset_index(drop=True)


def _batch_texts(rows: pandas.DataFrame) -> list[str]:
    sizes = rows["batch_size"] if "batch_size" in rows else [None] * len(rows)
    return ["" if size is None or pandas.isna(size) else f"batch {int(size)}" for size in sizes]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Rows that may be compared at equal length.

    `keys`: their shared values, by SCOPE_KEYS; None if empty.
    `rows`: shortest first; `place` is the length under which a row is compared.
    """

    keys: Mapping[str, Any]
    rows: pandas.DataFrame

    @property
    def reach(self) -> float:
        """The longest length over the shortest."""
        return float(self.rows["place"].max() / self.rows["place"].min())


def scopes_of(frame: pandas.DataFrame, column: str, places: Mapping[str, int]) -> list[Scope]:
    """Group the rows with a value of `column`, the primary scope first.

    `places`: the length under which a cell is compared, by cell id, where it is not its own. Groups with one length are left out.
    """
    known = frame[frame[column] > 0]
    known = known.assign(place=[places.get(cell_id, int(n)) for cell_id, n in zip(known["cell_id"], known["seq_len"], strict=True)])
    # of two neighbours (256 and 257) one is enough to follow a model
    kept = known.groupby(["label", *SCOPE_KEYS], sort=False, dropna=False)["place"].transform(lambda of: ~(of + 1).isin(of))
    found = [
        Scope(keys=scope_of(dict(zip(SCOPE_KEYS, values, strict=True))), rows=rows.drop_duplicates(["label", "place"]).sort_values("place"))
        for values, rows in known[kept.astype(bool)].groupby(list(SCOPE_KEYS), sort=False, dropna=False)
        if rows["place"].nunique() > 1
    ]
    return sorted(found, key=lambda scope: scope_rank(scope.keys, scope.reach))


def scope_of(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scope of a series; empty values become None."""
    return {key: known(keys.get(key)) for key in SCOPE_KEYS}


def scope_rank(scope: Mapping[str, Any], reach: float) -> tuple[float, ...]:
    """Return the position of a scope in the order of preference.

    The order is phase, engine, dtype, a fixed batch, the longest grid (`reach`), the matching policy. Unlisted values come last.
    """
    work = [_place_in(wanted, scope.get(key)) for key, wanted in PREFERRED.items()]
    return (*work, int(not str(scope.get("batching")).startswith("batch")), -reach, _place_in(POLICIES, scope.get("match")))


def _place_in(wanted: tuple[str, ...], value: Any) -> int:
    return wanted.index(value) if value in wanted else len(wanted)

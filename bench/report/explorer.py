"""Select rows and columns of one run, or of all, for the interactive explorer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import varying, work_text
from bench.peers.names import PEERS
from bench.report.charts.style import SPARE_COLORS, series_styles
from bench.report.sections.wording import spell_out_model, spell_out_policy
from bench.spec import MEASURED

MIB = 1024.0**2
SIZES = {"seq_len": "n (tokens)", "batch_size": "batch size", "params": "parameters", "width": "width"}
TIMES = {
    "latency_ms": "latency (ms)",
    "throughput_per_s": "samples/s",
    "tokens_per_s": "tokens/s",
    "latency_p90_ms": "latency, p90 (ms)",
    "device_latency_ms": "device time (ms)",
    "train_s": "training time (s)",
    "train_images_per_s": "items trained/s",
    "mfu": "MFU",
    "roofline_share": "share of the roofline",
    "products_share": "share of time in products",
    "energy_j": "energy (J)",
}
"""Quantities that belong to a host and its timed code."""
COUNTS = {
    "flops": "FLOPs per sample",
    "flops_train": "FLOPs with backward",
    "flops_quadratic_share": "share of FLOPs in n^2",
    "train_flops": "training FLOPs",
    "peak_memory_bytes": "peak memory (MiB)",
    "activation_bytes": "activations (MiB)",
    "weight_bytes": "weights (MiB)",
}
"""Quantities that are equal on every host."""
SCORES = {
    "accuracy": "accuracy",
    "train_accuracy": "accuracy on training data",
    "exact_accuracy": "exact sequences",
    "perplexity": "perplexity",
    "score": "score",
}
"""Quantities that belong to the training code and its recipe."""
FIRST = ("latency_ms", "accuracy", "score")
MEASURES = {name: (TIMES | COUNTS | SCORES)[name] for name in (*FIRST, *TIMES, *COUNTS, *SCORES)}
"""Labels by column. The explorer opens on the first that was measured."""
BOUNDS = {
    "latency_ms": ("latency_low_ms", "latency_high_ms"),
    "energy_j": ("energy_low_j", "energy_high_j"),
}
FRACTIONS = ("flops_quadratic_share", "products_share", "accuracy", "train_accuracy", "exact_accuracy", "score", "mfu", "roofline_share")
"""Columns that start on a linear axis; all others start logarithmic."""
DIMENSIONS = {
    "run": "run",
    "host": "host",
    "label": "model",
    "size": "size",
    "phase": "phase",
    "engine": "engine",
    "dtype": "dtype",
    "batching": "batch",
    "device": "device",
    "task": "task",
    "recipe": "recipe",
    "seq_len": "n",
}

WORK = ("label", "match", "phase", "engine", "dtype", "batching", "device", "task", "recipe")
"""Columns that tell series apart, besides the sizes."""
APART = {"timed_by": [*TIMES], "trained_by": [*SCORES]}
"""Columns of several runs that tell series apart in some quantities only."""
NOTED = ("status", "latency_stable", "doubts")
"""Columns that a point's note tells."""


def explorer_data(frame: pandas.DataFrame) -> dict[str, Any] | None:
    """Return the explorer's data, ready for JSON; None without a plot.

    A plot needs two rows and a measured quantity. The frame of several runs (`bench/report/all_runs.py`) has the columns `run`, `host`,
    `doubts` and those of APART: no line joins rows that differ in one of them, and times of several hosts are never shown together.
    """
    quantities = [
        _quantity(frame, name, label) for name, label in (SIZES | MEASURES).items() if name in frame and frame[name].notna().any()
    ]
    measured = [quantity["name"] for quantity in quantities if quantity["name"] in MEASURES]
    if len(frame) < 2 or not measured:
        return None
    return {
        "quantities": quantities,
        "dimensions": [_dimension(frame, name, DIMENSIONS[name]) for name in varying(frame, tuple(n for n in DIMENSIONS if n in frame))],
        "parts": _parts(frame),
        "notes": [_note(row) for row in frame[[name for name in NOTED if name in frame]].to_dict("records")],
        "colors": {_model(label): style.color for label, style in series_styles([*frame["label"], *frame["model"]]).items()},
        "palette": SPARE_COLORS,
        "x": (*varying(frame, ("seq_len", "batch_size", "params")), "seq_len")[0],
        "y": measured[0],
    }


def _quantity(frame: pandas.DataFrame, name: str, label: str) -> dict[str, Any]:
    divisor = MIB if name.endswith("_bytes") else 1.0
    low, high = BOUNDS.get(name, (f"{name}_low", f"{name}_high"))
    bounds = {"low": _values(frame[low]), "high": _values(frame[high])} if low in frame and frame[low].notna().any() else {}
    unit = label.rpartition(" (")[2].removesuffix(")") if name in MEASURES and label.endswith(")") else ""
    values = _values(frame[name] / divisor)
    return {"name": name, "label": label, "unit": unit, "log": name not in FRACTIONS, "timed": name in TIMES, "values": values, **bounds}


def _values(column: Iterable[Any]) -> list[float | int | None]:
    """Round values to five digits, except whole numbers; empty becomes None."""
    found = (None if numbers.is_empty(value) else float(value) for value in column)
    return [None if value is None else int(value) if value.is_integer() else float(f"{value:.5g}") for value in found]


def _parts(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return what tells series apart, as dimensions: rows that differ in one are not joined by a line.

    A line may run over `sizes` unless its x axis is n or the batch. The width follows n at one budget, so it counts only without a budget; so does
    the depth on an axis of sizes.

    `only`: the quantities that a part concerns; None for all.
    """
    own = frame["budget"].isna()
    depth, width = ([f"{value:.0f}" if value == value else "" for value in frame[name]] for name in ("depth", "width"))
    texts = pandas.DataFrame(
        {
            **{name: frame[name] for name in ("label", "size", *WORK[1:])},
            "width": [f"width {value}" if free and value else "" for value, free in zip(width, own, strict=True)],
            "depth": [f"{value} blocks" if value else "" for value in depth],
            "own_depth": [f"{value} blocks" if free and value else "" for value, free in zip(depth, own, strict=True)],
        }
    )
    found = [_dimension(texts, name, name) for name in varying(texts, tuple(texts))]
    found += [_dimension(frame, name, name) for name in varying(frame, tuple(name for name in APART if name in frame))]
    return [{**part, "sizes": part["name"] in ("size", "width", "depth"), "only": APART.get(part["name"])} for part in found]


def _model(label: str) -> str:
    """Write a series as in prose; a peer by its package and factory."""
    return spell_out_model(label.removeprefix(PEERS))


def _dimension(frame: pandas.DataFrame, name: str, label: str) -> dict[str, Any]:
    """Return the distinct texts, and each row's index into them."""
    values = sorted(frame[name].dropna().unique()) if name == "seq_len" else list(dict.fromkeys(frame[name]))
    texts = [f"{value:.0f}" if name == "seq_len" else _text(name, value) for value in values]
    places = {value: place for place, value in enumerate(values)}
    return {"name": name, "label": label, "texts": texts, "codes": [places[value] for value in frame[name]]}


def _text(name: str, value: Any) -> str:
    return _model(value) if name == "label" else spell_out_policy(work_text(name, value))


def _note(row: dict[str, Any]) -> str:
    unstable = ["latency unstable"] if row["latency_stable"] is False else []
    doubted = [f"bench check doubts {row['doubts']}"] if row.get("doubts") else []
    return ", ".join([*unstable, *([str(row["status"])] if row["status"] != MEASURED else []), *doubted])

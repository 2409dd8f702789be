"""Show sweeps of batch size and length, and their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import WORK_KEYS, varying
from bench.analysis.saturation import NEAR, Saturation
from bench.analysis.study import Study
from bench.report.document import Block, TableBlock
from bench.report.tables import LATENCY, LENGTH, MODEL, Column, Row, Table, number, plain, table, work_columns
from bench.spec import NO_ATTENTION, PREDICTED, Plan, Sweep

NEAR_TEXT = f"{100 * NEAR:.0f} %"
MEMORY_DIGITS = 6
"""Enough digits to compare an amount of memory with its limit."""
EAGER_TEXT = "The prediction holds for an eager step; packed weights, CUDA graphs and compiled steps need more memory."
BATCH_CAPTION = (
    "Throughput against batch size. A sweep ends at the largest batch predicted to fit into memory; one sample more is predicted not to fit. "
    f"{EAGER_TEXT} Peak throughput is the best of all batches tried, which biases it slightly upward. The next column has the smallest batch that "
    f"reaches {NEAR_TEXT} of it; that share is paired by round. Brackets hold 95 % intervals over rounds."
)
SEQ_CAPTION = (
    "The longest n found that is predicted to fit into memory. At a matched budget width and ffn_width shrink as n grows, until no size meets "
    f"the budget. {EAGER_TEXT}"
)
LATENCY_COLUMNS = ("latency_ms", "latency_low_ms", "latency_high_ms", "latency_stable")
TOP_COLUMNS = (*LATENCY_COLUMNS, "peak_memory_bytes", "memory_source", "tokens_per_s", "width")
"""Columns taken from the largest step alone."""


def saturation_blocks(study: Study) -> tuple[Block, ...]:
    """Return the tables of all sweeps; () without a sweep."""
    found = study.saturations
    tables = ((batch_table(found), BATCH_CAPTION), (length_table(found), SEQ_CAPTION))
    return tuple(TableBlock(table=table, caption=caption) for table, caption in tables if table.rows)


def batch_table(found: Sequence[Saturation]) -> Table:
    rows = _rows(found, "batch")
    columns = (
        *_places(rows, LENGTH),
        number("largest", "largest batch that fits", numbers.exact),
        *MEMORY_COLUMNS,
        Column(header="one more needs", text=lambda row: _bytes(row["beyond_bytes"]), key="beyond_bytes"),
        *(Column(header="peak samples/s", text=_throughput, key="best_per_s"), number("best_size", "at batch", numbers.exact)),
        number("near_size", f"{NEAR_TEXT} of it from batch", numbers.exact),
        Column(header="share there", text=_share, key="near_share"),
        Column(header="status of largest", text=lambda row: row["top"], numeric=False, badge=True),
    )
    return table(rows, columns, keep=("model", "n"))


def length_table(found: Sequence[Saturation]) -> Table:
    rows = _rows(found, "seq")
    columns = (
        *_places(rows, number("batch_size", "batch", numbers.exact)),
        number("largest", "longest n that fits", numbers.exact),
        *MEMORY_COLUMNS,
        Column(header="next n", text=_next_size, numeric=False),
        *(number("width", "width there", numbers.whole), LATENCY, number("tokens_per_s", "tokens/s there", numbers.count)),
        Column(header="status of longest", text=lambda row: row["top"], numeric=False, badge=True),
    )
    return table(rows, columns, keep=("model",))


def sweep_table(plan: Plan) -> Table:
    """Return the predicted largest size of each sweep in a plan."""
    by_id = {planned.cell.cell_id: planned.cell for planned in plan.cells}
    rows = []
    for sweep in plan.ladders:
        cell = by_id[sweep.cells[0]]
        work = cell.workload
        kernel = () if work.attention == NO_ATTENTION else (f"attention {work.attention}",)
        size = f"batch at n = {cell.model.shape.seq_len}" if sweep.axis == "batch" else f"n at batch {work.batch_size}"
        words = ", ".join((work.phase, work.engine, work.dtype, *kernel))
        rows.append({"model": cell.model.name, "size": size, "work": words, **_sweep_row(sweep)})
    columns = (
        *(plain("model"), plain("size", "sweep"), plain("work", "workload"), number("largest", "largest", numbers.exact)),
        *(number("peak_bytes", "peak", _bytes), plain("memory"), Column(header="next", text=_next_size, numeric=False)),
    )
    return table(pandas.DataFrame(rows), columns, keep=("model",))


def _sweep_row(sweep: Sweep) -> Row:
    return {
        "largest": sweep.largest,
        "peak_bytes": sweep.peak_bytes,
        "memory": f"{numbers.bytes_text(sweep.memory_bytes)}, {sweep.memory_source}",
        "beyond": sweep.beyond,
        "beyond_bytes": sweep.beyond_bytes,
        "ends_because": sweep.ends_because,
    }


def _rows(found: Sequence[Saturation], axis: str) -> pandas.DataFrame:
    rows = [_row(each) for each in found if each.sweep.axis == axis]
    return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=["label", "seq_len", "size", *WORK_KEYS])


def _row(found: Saturation) -> Row:
    """Join the sweep's results with the row of its largest step.

    If that step was not run, the one below it gives the workload, but no measurements.
    """
    last, best, near, share = found.steps.iloc[-1].to_dict(), found.best or {}, found.near or {}, found.near_share
    workload = {name: last[name] for name in ("label", "seq_len", "size", "batch_size", *WORK_KEYS)}
    measured = {name: (found.top or {}).get(name) for name in TOP_COLUMNS}
    values = {
        **{f"best_{name}": best.get(f"throughput_{name}") for name in ("per_s", "low_per_s", "high_per_s")},
        "best_is_stable": best.get("latency_stable"),
        "best_size": best.get("batch_size"),
        "near_size": near.get("batch_size"),
        **{f"near_{name}": getattr(share, place, None) for name, place in (("share", "estimate"), ("low", "low"), ("high", "high"))},
    }
    top = str(found.top["status"]) if found.top else "not run: too slow"
    return {**workload, **measured, **_sweep_row(found.sweep), **values, "top": top}


def _places(rows: pandas.DataFrame, *others: Column) -> tuple[Column, ...]:
    size = (plain("size"),) if varying(rows, ("size",)) else ()
    work = work_columns(rows.assign(batching="")) if len(rows) else ()
    return (MODEL, *others, *size, *work)


def _bytes(value: Any) -> str:
    return numbers.bytes_text(value, MEMORY_DIGITS)


def _measured(row: Row) -> str:
    return "" if row["memory_source"] == PREDICTED else _bytes(row["peak_memory_bytes"])


MEMORY_COLUMNS = (
    number("peak_bytes", "predicted peak", _bytes),
    Column(header="measured peak", text=_measured, key="peak_memory_bytes"),
    plain("memory"),
)


def _throughput(row: Row) -> str:
    text = numbers.bounded(row["best_per_s"], row["best_low_per_s"], row["best_high_per_s"], numbers.count)
    return f"{text}, unstable" if row["best_is_stable"] is False else text


def _share(row: Row) -> str:
    return numbers.bounded(row["near_share"], row["near_low"], row["near_high"], lambda value: f"{value:.3f}")


def _next_size(row: Mapping[str, Any]) -> str:
    """Name the next larger size, and why the sweep excludes it."""
    if numbers.is_empty(row["beyond_bytes"]):
        return f"{numbers.exact(row['beyond'])}: {row['ends_because']}"
    return f"{numbers.exact(row['beyond'])} needs {_bytes(row['beyond_bytes'])}"

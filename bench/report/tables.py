"""Build the tables of a run for Markdown, HTML and the terminal.

A `Column` turns a row of the prepared frame into text; each table chooses its columns and their order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas

from bench import catalog, numbers
from bench.analysis.frame import varying, work_text
from bench.intervals import MAX_STABLE_WIDTH
from bench.reading.table import row_values
from bench.spec import MEASURED, NO_ATTENTION, PREDICTED, Plan, Skipped

if TYPE_CHECKING:
    from bench.planning.fit import LargestSizes

Row = Mapping[str, Any]
UNSTABLE = "~"
"""Mark of an unstable latency in `summary_table`."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of texts, with data for sorting and colour.

    `headers`: one text per column.
    `numeric`: whether a column is aligned right.
    `rows`: texts, one per column.
    `keys`: a number per text to sort by; None sorts by the text. Empty sorts all by text.
    `badges`: whether a column holds states such as `failed`, shown in colour. Empty means no column.
    """

    headers: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    keys: tuple[tuple[float | None, ...], ...] = ()
    badges: tuple[bool, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table.

    `header`: its title.
    `text`: converts a row of the prepared frame into text.
    `numeric`: whether it is aligned right.
    `key`: frame column to sort by; empty sorts by the text.
    `badge`: whether its texts are states, shown in colour.
    """

    header: str
    text: Callable[[Row], str]
    numeric: bool = True
    key: str = ""
    badge: bool = False


def plain(name: str, header: str = "") -> Column:
    """Return a column of texts, headed by `header` or the column's name."""
    return Column(header=header or name, text=lambda row: str(row[name]), numeric=False)


def number(name: str, header: str, form: Callable[[Any], str]) -> Column:
    """Return a column of numbers formatted by `form`; missing values are empty."""
    return Column(header=header, text=lambda row: "" if numbers.is_empty(row[name]) else form(row[name]), key=name)


def _time(row: Row) -> str:
    return numbers.interval_ms(row["latency_ms"], *time_bounds(row), is_range=numbers.is_empty(row["latency_low_ms"]))


def time_bounds(row: Row) -> tuple[float | None, float | None]:
    """Return the interval of a latency in ms; where the rounds are too few for one, their range."""
    kind = ("min", "max") if numbers.is_empty(row["latency_low_ms"]) else ("low", "high")
    low, high = (row.get(f"latency_{bound}_ms") for bound in kind)
    return (None, None) if numbers.is_empty(low) or numbers.is_empty(high) else (low, high)


def ratio_text(row: Row) -> str:
    """Return a ratio of latencies with its interval; where the rounds are too few for one, with their range."""
    kind = ("min", "max") if (is_range := numbers.is_empty(row["ratio_low"])) else ("low", "high")
    return numbers.ratio(row["ratio"], *(row.get(f"ratio_{bound}") for bound in kind), is_range=is_range)


def _marked_time(row: Row) -> str:
    """Return the latency, marked if it is unstable."""
    return f"{UNSTABLE if row['latency_stable'] is False else ''}{_time(row)}"


def _latency(row: Row) -> str:
    text = _time(row)
    return f"{text}, unstable" if text and row["latency_stable"] is False else text


def _memory(row: Row) -> str:
    text = numbers.bytes_text(row["peak_memory_bytes"])
    return f"{text}, predicted" if text and row["memory_source"] == PREDICTED else text


def _fft_flops(row: Row) -> str:
    """Return the FLOPs of FFTs; "" where there are none, so that a run without FFTs has no such column."""
    return numbers.count(row["fft_flops"]) if row["fft_flops"] > 0 else ""


def _energy(row: Row) -> str:
    return f"{numbers.significant(row['energy_j'])} J" if pandas.notna(row["energy_j"]) else ""


def _score(row: Row) -> str:
    text = numbers.fraction(row["score"], row["score_low"], row["score_high"])
    return f"{text} {row['score_name']}".strip() if text else ""


def _latency_ratio(row: Row) -> str:
    """Return a ratio such as "1.02 [1.01, 1.03] x vit".

    The reference's length is shown only if it differs from the row's.
    """
    text = ratio_text(row)
    return f"{text} x {_reference(row)}" if text else ""


def _reference(row: Row) -> str:
    return str(row["ratio_to"]).replace(f" n={row['seq_len']:.0f}", "")


def _ratio(name: str) -> Callable[[Row], str]:
    """Return a function that formats a unitless number with its interval."""
    return lambda row: numbers.fraction(row[name], row[f"{name}_low"], row[f"{name}_high"])


MODEL = plain("label", "model")
VARIANT = plain("variant")
LENGTH = number("seq_len", "n", numbers.whole)
BUDGET = number("budget", "budget", numbers.count)
PARAMS = number("params", "params", numbers.exact)
FLOPS = number("flops", "FLOPs", numbers.count)
LATENCY = Column(header="latency", text=_latency, key="latency_ms")
MARKED_LATENCY = Column(header="latency", text=_marked_time, key="latency_ms")
UNMEASURED = Column(header="status", text=lambda row: "" if row["status"] == MEASURED else row["status"], numeric=False)
RATIO = Column(header="latency ratio", text=_latency_ratio, key="ratio")
MEMORY = Column(header="peak memory", text=_memory, key="peak_memory_bytes")
ACCURACY = Column(header="accuracy", text=_ratio("accuracy"), key="accuracy")
EXACT_ACCURACY = Column(header="exact sequences", text=_ratio("exact_accuracy"), key="exact_accuracy")
PERPLEXITY = Column(header="perplexity", text=_ratio("perplexity"), key="perplexity")
SCORE = Column(header="score", text=_score, key="score")
ENERGY = Column(header="energy", text=_energy, key="energy_j")
STATUS = Column(header="status", text=lambda row: row["status"], numeric=False, badge=True)

SHAPE = (
    *(number(name, name, numbers.whole) for name in ("width", "depth", "heads", "ffn_width")),
    *(number("ffn_moved", "from nominal", numbers.signed_percent), number("budget_error", "size error", numbers.signed_percent)),
)
COST = (
    *(FLOPS, number("flops_quadratic_share", "in n^2", numbers.percent)),
    number("flops_train", "FLOPs with backward", numbers.count),
    Column(header="FFT FLOPs", text=_fft_flops, key="fft_flops"),
    *(LATENCY, RATIO, number("latency_p90_ms", "p90", numbers.duration), number("device_latency_ms", "device time", numbers.duration)),
    *(number("throughput_per_s", "samples/s", numbers.count), number("mfu", "MFU", numbers.percent), MEMORY),
    ENERGY,
    *(number(f"{kind}_share", f"time in {kind}", numbers.percent) for kind in ("products", "attention", "norms", "passes")),
)
TRAINING = (
    ACCURACY,
    *(number(f"accuracy_top{k}", f"top-{k}", numbers.fraction) for k in range(2, 6)),
    number("train_accuracy", "on training data", numbers.fraction),
    *(EXACT_ACCURACY, PERPLEXITY, SCORE, number("num_seeds", "seeds", numbers.whole)),
    Column(header="training time", text=lambda row: numbers.duration(1e3 * row["train_s"]), key="train_s"),
    number("train_images_per_s", "items trained/s", numbers.count),
    number("train_flops", "training FLOPs", numbers.count),
    number("learning_rate", "learning rate", numbers.significant),
    number("num_trials", "trials", numbers.whole),
)


def rows_table(frame: pandas.DataFrame) -> Table:
    """Return everything measured, one row per cell.

    The caption has the workload values that all cells share.
    """
    columns = (
        *(MODEL, VARIANT, LENGTH, *_size_columns(frame), *work_columns(frame), PARAMS),
        *(*COST, *TRAINING, *_package_columns(frame), *SHAPE, number("num_rounds", "rounds", numbers.whole)),
        *(STATUS, plain("cell_id")),
    )
    filled = set(frame.columns[frame.notna().any()])
    asked = [column for column in columns if not column.key or column.key in filled]
    return table(row_values(frame), asked, keep=("model", "n", "status"))


def without_constants(found: Table, keep: Collection[str] = ()) -> tuple[Table, str]:
    """Return the table without columns that have one text in all of several rows, and what they say: `depth 2, rounds 20`."""
    constant = {i for i, header in enumerate(found.headers) if header not in keep and len({row[i] for row in found.rows}) == 1}
    if len(found.rows) < 2 or not constant:
        return found, ""
    kept = [i for i in range(len(found.headers)) if i not in constant]
    slim = Table(
        headers=tuple(found.headers[i] for i in kept),
        numeric=tuple(found.numeric[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in found.rows),
        keys=tuple(tuple(keys[i] for i in kept) for keys in found.keys),
        badges=tuple(found.badges[i] for i in kept) if found.badges else (),
    )
    return slim, ", ".join(f"{found.headers[i]} {found.rows[0][i]}" for i in sorted(constant))


def summary_table(frame: pandas.DataFrame) -> Table:
    """Return the short table of a run for the terminal, the most important columns first."""
    size = (plain("size"),) if frame["size"].nunique() > 1 else ()
    columns = (
        MODEL,
        LENGTH,
        *size,
        *work_columns(frame),
        UNMEASURED,
        MARKED_LATENCY,
        _ratio_column(frame),
        *(MEMORY, ENERGY),
        *(ACCURACY, SCORE),
        *_package_columns(frame),
        FLOPS,
        PARAMS,
    )
    return table(row_values(frame), columns, keep=("model", "n"))


def _package_columns(frame: pandas.DataFrame) -> tuple[Column, ...]:
    """Return the columns of numbers that metrics of installed packages declare; their names are read from the source text."""
    declared = [metric.assigned("COLUMNS") for metric in catalog.from_packages("metrics")]
    names = {node.value for columns in declared if columns for node in ast.walk(columns) if isinstance(node, ast.Constant)}
    found = frame.loc[:, [name for name in frame.select_dtypes("number").columns if name in names]]
    return tuple(
        number(name, name, numbers.exact if pandas.api.types.is_integer_dtype(kind) else numbers.significant)
        for name, kind in found.dtypes.items()
    )


def plan_table(plan: Plan, fitting: Mapping[str, LargestSizes] | None = None) -> Table:
    """Return the configurations of a plan, with resolved sizes.

    `fitting`: the largest sizes that fit a memory, by cell id, as two further columns.
    """
    sizes, work = ("width", "depth", "heads", "ffn_width"), ("phase", "dtype", "engine", "device")
    largest = ("largest_batch", "largest_seq_len") if fitting else ()
    headers = ("model", "n", *largest, "params", "error", *sizes, "FLOPs", "attention", "batch", "budget", *work, "ffn_width from nominal")
    rows = []
    for planned in plan.cells:
        model, workload, sizing = planned.cell.model, planned.cell.workload, planned.sizing
        rows.append(
            (
                *(model.name, str(model.shape.seq_len)),
                *(numbers.exact(getattr(fitting[planned.cell.cell_id], name)) for name in largest if fitting),
                f"{sizing.params:,}",
                "" if sizing.budget_error is None else f"{sizing.budget_error:+.2%}",
                *(str(planned.size(size) or "") for size in sizes),
                numbers.count(sizing.cost.flops().at(model.shape.seq_len)),
                *("" if workload.attention == NO_ATTENTION else workload.attention, str(workload.batch_size)),
                *(f"{sizing.budget:,}" if sizing.budget else "", *(getattr(workload, name) for name in work)),
                "" if sizing.ffn_moved is None else f"{sizing.ffn_moved:+.0%}",
            )
        )
    numeric = tuple(header in ("n", *largest, "params", "error", *sizes, "FLOPs", "batch", "budget") for header in headers)
    return Table(headers=headers, numeric=numeric, rows=tuple(rows))


def _ratio_column(frame: pandas.DataFrame) -> Column:
    """Return the column of ratios; its header names the reference if there is only one."""
    references = {_reference(row) for row in row_values(frame) if not numbers.is_empty(row["ratio"])}
    if len(references) != 1:
        return RATIO
    return Column(header=f"latency / {references.pop()}'s", text=ratio_text)


def failure_table(frame: pandas.DataFrame) -> Table:
    """Return the status and reason of each failed cell."""
    return table(
        row_values(frame), (MODEL, VARIANT, LENGTH, BUDGET, *work_columns(frame), STATUS, plain("reason")), keep=("model", "n", "status")
    )


def unstable_table(frame: pandas.DataFrame, keys: tuple[str, ...]) -> Table:
    """Return the unstable cells with reasons.

    `keys`: workload columns to show.
    """
    width = Column(header="interval", text=lambda row: _relative_width(*time_bounds(row)))
    because = Column(header="because", text=_unstable_because, numeric=False)
    columns = (MODEL, VARIANT, LENGTH, *_size_columns(frame), *(_work(key) for key in keys), LATENCY, width, because)
    return table(row_values(frame), columns, keep=("model", "n"))


def skipped_table(skipped: Sequence[Skipped]) -> Table:
    """Return the skipped combinations with reasons and nearest parameter counts."""
    rows = [{**vars(found), "label": found.model} for found in skipped]
    columns = (MODEL, LENGTH, BUDGET, plain("reason"), number("nearest_params", "nearest params", numbers.exact))
    return table(rows, columns, keep=("model", "n"))


def work_columns(frame: pandas.DataFrame) -> tuple[Column, ...]:
    """Return a column for each workload value that varies."""
    return tuple(_work(key) for key in varying(frame))


def table(rows: Sequence[Row], columns: Sequence[Column], keep: tuple[str, ...] = ()) -> Table:
    """Return a table of the rows, without empty columns unless in `keep`."""
    texts = [[column.text(row) for row in rows] for column in columns]
    shown = [i for i, column in enumerate(columns) if column.header in keep or any(texts[i])]
    return Table(
        headers=tuple(columns[i].header for i in shown),
        numeric=tuple(columns[i].numeric for i in shown),
        rows=tuple(zip(*(texts[i] for i in shown), strict=True)),
        keys=tuple(tuple(_sort_key(row, columns[i].key) for i in shown) for row in rows),
        badges=tuple(columns[i].badge for i in shown),
    )


def _sort_key(record: Row, name: str) -> float | None:
    return float(record[name]) if name and not numbers.is_empty(record[name]) else None


def _work(key: str) -> Column:
    return Column(header=key.replace("_", " "), text=lambda row: work_text(key, row[key]), numeric=False)


def _size_columns(frame: pandas.DataFrame) -> tuple[Column, ...]:
    """Return the budget column, and the matching policy if it varies."""
    return (BUDGET, plain("match")) if frame["match"].nunique() > 1 else (BUDGET,)


def _unstable_because(row: Row) -> str:
    low, high = time_bounds(row)
    wide = not (low is None or high is None) and high / low - 1 > MAX_STABLE_WIDTH
    return "the interval is wide" if wide else "the rounds drift"


def _relative_width(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * (high / low - 1):.0f} % wide"

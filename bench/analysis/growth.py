"""Follow every quantity of a run along n, and find the n^2 terms of a model.

A series is a set of cells that differ in sequence length only; a round measures every cell once. Counts have exact polynomials, FLOPs closed forms;
counts and times have local exponents. Builds no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from bench.analysis.frame import SERIES_KEYS
from bench.intervals import Interval, exactly, signed_ranks
from bench.numbers import counted, is_empty, known
from bench.reading.timings import Timings
from bench.spec import NO_ATTENTION, Plan, PlannedCell
from models.layers.cost import ZERO

SIZES = ("width", "depth", "heads", "ffn_width")
TWIN_RATIO = 1.05
"""Lengths with a smaller ratio are twins (256 and 257)."""
MIN_RANGE = 16
"""The least ratio of longest to shortest length for fits."""
MIN_PAIRED_ROUNDS = 6
"""Rounds needed to compare neighbouring lengths or two series."""
MIN_LENGTHS = 4
TOLERANCE = 0.005
"""The largest relative distance of a count from its polynomial."""
MIN_COUNTS = 4
"""Fewest lengths of a polynomial: one more than it has terms, which checks it."""
ROUNDING = 1e-9
QUADRATIC = 2


Matrix = NDArray[np.float64]
Row = Mapping[str, Any]
Samples = Mapping[int, Mapping[int, float]]
"""Positive values by length, ascending, and by round. Counts, which have no noise, have one round."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Cells that differ in sequence length only.

    `keys`: the shared values, by `SERIES_KEYS`.
    `rows`: one row per length, shortest first.
    """

    keys: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def cell_ids(self) -> tuple[str, ...]:
        return tuple(str(row["cell_id"]) for row in self.rows)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(int(row["seq_len"]) for row in self.rows)

    @property
    def reach(self) -> float:
        """The longest length over the shortest."""
        return self.lengths[-1] / self.lengths[0]

    @property
    def has_one_shape(self) -> bool:
        """Whether all rows share width, depth, heads and ffn_width."""
        return len({tuple(known(row.get(size)) for size in SIZES) for row in self.rows}) == 1


def series_of(rows: Sequence[Row]) -> list[Series]:
    """Group rows that differ in length only; those of `bench.analysis.frame.by_part`. Groups with one length are left out."""
    found: dict[tuple[Any, ...], dict[float, Row]] = {}
    for row in rows:
        found.setdefault(tuple(known(row.get(key)) for key in SERIES_KEYS), {}).setdefault(row["seq_len"], row)
    return [
        Series(keys=dict(zip(SERIES_KEYS, keys, strict=True)), rows=tuple(by_length[n] for n in sorted(by_length)))
        for keys, by_length in found.items()
        if len(by_length) > 1
    ]


def complete_rounds(samples: Samples, lengths: Sequence[int]) -> tuple[Matrix, int]:
    """Return the values of the rounds that have all `lengths`, `(rounds, lengths)`, and how many rounds lack one.

    A slowdown of an incomplete round could not cancel between lengths. Raises ValueError if a value is not positive and finite.
    """
    if not all(0 < value < math.inf for by_round in samples.values() for value in by_round.values()):
        raise ValueError("samples must be positive and finite: leave out a metric that was not measured")
    rounds = sorted({place for by_round in samples.values() for place in by_round})
    complete = [place for place in rounds if all(place in samples[n] for n in lengths)]
    values = np.array([[samples[n][place] for n in lengths] for place in complete], dtype=np.float64).reshape(len(complete), len(lengths))
    return values, len(rounds) - len(complete)


def without_twins(lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths, ascending, keeping the longer of twins.

    A twin lies less than 5 % below a longer length: 256 and 257 are one point on the curve, measured twice.
    """
    kept: list[int] = []
    for n in sorted(lengths, reverse=True):
        if not kept or n * TWIN_RATIO <= kept[-1]:
            kept.append(n)
    return tuple(reversed(kept))


def centres_over_rounds(logs: Matrix) -> list[Interval]:
    """Return each column's centre with its 95 % interval (`bench.intervals.SignedRanks`).

    `logs` is `(rounds, columns)`, logarithms. One round is exact.
    """
    if len(logs) < 2:
        return [exactly(value) for value in logs.mean(axis=0).tolist()]
    return [found.interval() for column in logs.T if (found := signed_ranks(column.tolist()))]


def too_few_lengths(lengths: Sequence[int], at_least: int) -> str:
    """Explain why a series has too few or too similar lengths.

    The text says which lengths to add; empty if there are enough. Twins must have been removed.
    """
    if len(lengths) < at_least:
        num = len(lengths)
        found = f"{counted(num, 'length')} ({', '.join(map(str, lengths))})" if num else "No length can be used"
        return f"{found}; at least {at_least} are needed, where 256 and 257 count as one. Add lengths."
    if lengths[-1] / lengths[0] < MIN_RANGE:
        wanted = lengths[0] * MIN_RANGE
        return f"The longest length is {lengths[-1] / lengths[0]:.1f} times the shortest; {MIN_RANGE} times is needed. Add n = {wanted} or longer."
    return ""


def too_few_rounds(num: int, num_dropped: int) -> str:
    """Explain why a series has too few complete rounds, `num`, beside those dropped.

    The text says how many rounds to run; empty if there are enough.
    """
    if num >= MIN_PAIRED_ROUNDS:
        return ""
    if num_dropped and not num:
        return f"None of {num_dropped} rounds has all lengths: they come from different runs. Measure all lengths in one run."
    dropped = f" ({num_dropped} more miss a length)" if num_dropped else ""
    needed = f"at least {MIN_PAIRED_ROUNDS} are needed. Run with --rounds {MIN_PAIRED_ROUNDS} or more, without --quick."
    return f"{num} complete rounds{dropped}; {needed}"


@dataclass(frozen=True, kw_only=True)
class LocalExponent:
    """d log value / d log n between two neighbouring lengths.

    1 is linear, 2 quadratic. Exact samples have an interval of width 0.
    """

    shorter: int
    longer: int
    exponent: Interval


@dataclass(frozen=True, kw_only=True)
class LocalExponents:
    """The exponents of a series.

    `refused`: why there are none, and which lengths or rounds to add.
    """

    refused: str = ""
    exponents: tuple[LocalExponent, ...] = ()


def local_exponents(samples: Samples, *, exact: bool = False) -> LocalExponents:
    """Return the exponent between each length and the next.

    Values are paired within the round; intervals are over rounds. Of lengths within 5 % of each other only the longest is used: a slope between twins
    would be noise.
    """
    lengths = without_twins(list(samples))
    values, num_dropped = complete_rounds(samples, lengths)
    if refused := too_few_lengths(lengths, MIN_LENGTHS) or ("" if exact else too_few_rounds(len(values), num_dropped)):
        return LocalExponents(refused=refused)
    intervals = centres_over_rounds(np.diff(np.log(values), axis=1) / np.diff(np.log(lengths)))
    steps = zip(lengths[:-1], lengths[1:], intervals, strict=True)
    return LocalExponents(
        exponents=tuple(LocalExponent(shorter=shorter, longer=longer, exponent=found) for shorter, longer, found in steps)
    )


@dataclass(frozen=True, kw_only=True)
class GrowthMeasure:
    """A quantity to follow along n.

    `column`: the column of the table.
    `divisor`: the column to divide by, if any.
    `timed`: measured in every round; else a count.
    `per_workload`: whether it depends on the workload as well as the model.
    """

    name: str
    unit: str
    column: str
    divisor: str = ""
    timed: bool = False
    per_workload: bool = True


LATENCY = GrowthMeasure(name="time per sample", unit="ms", column="latency_ms", divisor="batch_size", timed=True)
ACTIVATIONS = GrowthMeasure(name="activations per sample", unit="bytes", column="activation_bytes", divisor="batch_size")
PEAK = GrowthMeasure(name="peak memory", unit="bytes", column="peak_memory_bytes")
WEIGHTS = GrowthMeasure(name="weights", unit="bytes", column="weight_bytes", per_workload=False)
FLOPS = GrowthMeasure(name="FLOPs per sample", unit="FLOPs", column="flops", per_workload=False)
GROWTH_MEASURES = (LATENCY, ACTIVATIONS, PEAK, WEIGHTS, FLOPS)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The polynomial a + b n + c n^2 of the counts at `lengths`, ascending."""

    a: float
    b: float
    c: float
    lengths: tuple[int, ...]

    def share(self, n: int) -> float:
        """The part of c n^2 in the count at n."""
        return self.c * n * n / (self.a + self.b * n + self.c * n * n)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The growth of one quantity over one series.

    `counted`: its polynomial; None for times, and for counts that follow none.
    """

    series: Series
    measure: GrowthMeasure
    counted: Counted | None
    exponents: LocalExponents


def growth_of(shaped: Sequence[Series], timings: Timings) -> list[Growth]:
    """Follow every quantity with values at three or more lengths.

    `shaped`: series of one shape.
    """
    found = [_growth(series, measure, timings) for measure in GROWTH_MEASURES for series in _distinct(shaped, measure)]
    return [growth for growth in found if growth is not None]


def samples_of(series: Series, measure: GrowthMeasure, timings: Timings) -> Samples:
    """Return the values of a series; those of a time in ms, by round.

    Times are per sample because fixed tokens per batch shrink the batch as n grows. Empty values and zeros are left out.
    """
    divisors = [float(row[measure.divisor]) if measure.divisor else 1.0 for row in series.rows]
    if measure.timed:
        cells = series.cell_ids
        known = timings.together(cells) if timings.are_interleaved(cells) else [timings.get(cell_id, {}) for cell_id in cells]
    else:
        values: list[Any] = [row.get(measure.column) for row in series.rows]
        known = [{} if is_empty(value) or value <= 0 else {0: float(value)} for value in values]
    return {
        n: {place: value / by for place, value in by_round.items()}
        for n, by, by_round in zip(series.lengths, divisors, known, strict=True)
        if by_round
    }


def polynomial_of(samples: Samples) -> Counted | None:
    """Return the polynomial of exact counts from the first length where one holds; None without one.

    A memory peak is the largest of several sums; at short lengths another sum may be the largest. Least squares relative to the counts, so that
    every length weighs the same; the terms may be negative, as with n - 1 patches.
    """
    every = without_twins(list(samples))
    for start in range(len(every)):
        lengths = every[start:]
        if too_few_lengths(lengths, MIN_COUNTS):
            return None
        n, values = np.asarray(lengths, dtype=np.float64), complete_rounds(samples, lengths)[0][0]
        design = np.stack([np.ones_like(n), n, n**2], axis=1) / values[:, None]
        scale = np.linalg.norm(design, axis=0)
        terms = np.linalg.lstsq(design / scale, np.ones(len(n)), rcond=None)[0] / scale
        parts = design * terms
        if np.abs(parts.sum(axis=1) - 1).max() <= TOLERANCE:
            a, b, c = np.where(np.abs(parts).max(axis=0) > ROUNDING, terms, 0.0).tolist()
            return Counted(a=a, b=b, c=c, lengths=lengths)
    return None


def _growth(series: Series, measure: GrowthMeasure, timings: Timings) -> Growth | None:
    if measure is PEAK and len({row["batch_size"] for row in series.rows}) > 1:
        return None  # a peak per sample would be meaningless, because the weights in it do not shrink with the batch
    samples = samples_of(series, measure, timings)
    if len(samples) < 3:
        return None
    return Growth(
        series=series,
        measure=measure,
        counted=polynomial_of(samples) if not measure.timed else None,
        exponents=local_exponents(samples, exact=not measure.timed),
    )


def _distinct(found: Sequence[Series], measure: GrowthMeasure) -> Sequence[Series]:
    """Return one series per model and shape if workload does not matter.

    For a measure that depends on the workload, return all series.
    """
    if measure.per_workload:
        return found
    seen: dict[tuple[Any, ...], Series] = {}
    for series in found:
        seen.setdefault((series.keys["model"], series.lengths, tuple(known(row.get(measure.column)) for row in series.rows)), series)
    return list(seen.values())


def quadratic_home(plan: Plan) -> dict[str, Row]:
    """Return which terms of each cell hold the n^2, by cell id. A cell counted at one length is left out: a count has no degrees.

    Values: FLOPs per n^2 and their share of all FLOPs at n, weights per n^2, and the names of the terms.

    `weight_terms`: terms that multiply by an n x n matrix of weights. A Toeplitz matrix has fewer weights, each used several times.
    `activation_terms`: terms that compute n x n numbers for every sample.
    """
    return {planned.cell.cell_id: _home_of(planned) for planned in plan.cells if not planned.sizing.is_counted}


def _home_of(planned: PlannedCell) -> Row:
    cost, model, n = planned.sizing.cost, planned.cell.model, planned.cell.model.shape.seq_len
    flops = cost.flops()
    quadratic = [term for term in cost.terms if term.macs.degree(QUADRATIC)]
    return {
        "model": model.name,
        "seq_len": n,
        "budget": planned.sizing.budget,
        "flops_coefficient": flops.degree(QUADRATIC),
        "flops_share": flops.degree(QUADRATIC) * n**QUADRATIC / flops.at(n) if flops.at(n) else None,
        "weights_coefficient": cost.params().degree(QUADRATIC),
        "params_seq": planned.sizing.params_seq,
        "weight_terms": tuple(term.name for term in quadratic if term.params.varying() != ZERO),
        "activation_terms": tuple(term.name for term in quadratic if term.params.varying() == ZERO),
    }


@dataclass(frozen=True, kw_only=True)
class FlopsGrowth:
    """How one model's FLOPs per sample grow over its lengths.

    `model`: its label without the kernel of attention, which does not change its FLOPs.
    `shortest`, `longest`: its lengths.
    `times`: FLOPs at the longest over those at the shortest.
    `share`: of the FLOPs at the longest, those that grow as n^2; None if they were counted at one length.
    `has_weights`, `has_scores`: whether it multiplies by n x n weights, and whether it computes n x n numbers for every sample.
    `attention`: the kernels of its attention, those that ran where that is known; empty without attention.
    `widths`: at the shortest and the longest.
    """

    model: str
    shortest: int
    longest: int
    times: float
    share: float | None
    has_weights: bool
    has_scores: bool
    attention: frozenset[str]
    widths: tuple[int, int] = (0, 0)


def gate_and_attention(found: Sequence[FlopsGrowth]) -> list[FlopsGrowth]:
    """Return the first model of which n^2 is in its weights, and the first with attention; empty without both."""
    gates = [growth for growth in found if growth.has_weights and not growth.has_scores]
    attention = [growth for growth in found if growth.attention]
    return [gates[0], attention[0]] if gates and attention else []


def flops_growth(rows: pandas.DataFrame, homes: Mapping[str, Row]) -> list[FlopsGrowth]:
    """Return the growth of every model with FLOPs at two lengths.

    `rows`: comparable ones (`bench.analysis.frame.Scope`), `homes`: of `quadratic_home`.
    """
    found = []
    for model, members in rows[rows["flops"] > 0].groupby("model", sort=False):
        labels = {label for label in members["label"] if not label.startswith(f"{model} (")} or {model}
        first, last = members.iloc[members["place"].argmin()], members.iloc[members["place"].argmax()]
        if first["place"] == last["place"]:
            continue
        home = homes.get(last["cell_id"])
        found.append(
            FlopsGrowth(
                model=str(min(labels)),
                shortest=int(first["place"]),
                longest=int(last["place"]),
                times=float(last["flops"] / first["flops"]),
                share=None if home is None else float(home["flops_share"]),
                has_weights=bool(home is not None and home["weight_terms"]),
                has_scores=bool(home is not None and home["activation_terms"]),
                attention=frozenset(ran or asked for ran, asked in zip(members["attention_effective"], members["attention"], strict=True))
                - {"", NO_ATTENTION},
                widths=(int(first["width"]), int(last["width"])),
            )
        )
    return found

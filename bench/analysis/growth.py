"""Follow every quantity of a run along n, and find the n^2 terms of a model.

Counts have exact polynomials, FLOPs closed forms; counts and times have local exponents and twin lengths. Builds no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

from bench.analysis.frame import (
    MIN_PAIRED_ROUNDS,
    Matrix,
    Series,
    SeriesRounds,
    centres_over_rounds,
    complete_rounds,
    counted_samples,
    latency_samples,
    lengths_of,
    round_table,
    too_few_lengths,
    too_few_rounds,
    without_twins,
)
from bench.intervals import Interval, ratio_over_rounds
from bench.reading.timings import Timings
from bench.spec import NO_ATTENTION, Plan, PlannedCell
from models.layers.cost import ZERO

MIN_LENGTHS = 4
TOLERANCE = 0.005
"""The largest relative distance of a count from its polynomial."""
MIN_COUNTS = 4
"""Fewest lengths of a polynomial: one more than it has terms, which checks it."""
ROUNDING = 1e-9
QUADRATIC = 2
IDENTITY = ("cell_id", "model", "seq_len", "budget")


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


@dataclass(frozen=True, kw_only=True)
class TwinRatio:
    """Cost per token at length n, relative to length n - 1.

    `ratio`: above 1, the extra token costs more than an average one.
    `refused`: why `ratio` is None.
    """

    n: int
    ratio: Interval | None
    refused: str = ""


def local_exponents(samples: pandas.DataFrame, *, exact: bool = False) -> LocalExponents:
    """Return the exponent between each length and the next.

    `samples` has the columns `n`, `round`, `value`. Values are paired within the round; intervals are over rounds. Of lengths within 5 %
    of each other only the longest is used: a slope between twins would be noise.
    """
    series = complete_rounds(samples, lengths=without_twins(lengths_of(samples)), exact=exact)
    if refused := too_few_lengths(series, MIN_LENGTHS) or ("" if exact else too_few_rounds(series, MIN_PAIRED_ROUNDS)):
        return LocalExponents(refused=refused)
    intervals = centres_over_rounds(np.diff(np.log(series.values), axis=1) / np.diff(np.log(series.lengths)))
    steps = zip(series.lengths[:-1], series.lengths[1:], intervals, strict=True)
    return LocalExponents(
        exponents=tuple(LocalExponent(shorter=shorter, longer=longer, exponent=found) for shorter, longer, found in steps)
    )


def twin_ratios(samples: pandas.DataFrame, *, exact: bool = False) -> tuple[TwinRatio, ...]:
    """Compare every n with n - 1, if both were measured.

    The ratio shows the effect of alignment. It is paired by round: an estimate with its interval.
    """
    table = round_table(samples, exact)
    values, places = table.to_numpy(dtype=np.float64), {int(n): place for place, n in enumerate(table.columns)}
    return tuple(_twin_ratio(n, values[:, [places[n - 1], places[n]]], exact) for n in places if n - 1 in places)


def _twin_ratio(n: int, values: Matrix, exact: bool) -> TwinRatio:
    """Compare n with n - 1.

    `values` has one row per round and a column for n - 1 and for n, NaN where not measured.
    """
    is_known = ~np.isnan(values)
    complete, before = is_known.all(axis=1), n - 1
    num_dropped = int(is_known.any(axis=1).sum() - complete.sum())
    pair = SeriesRounds(lengths=(before, n), values=values[complete], num_dropped=num_dropped)
    if not exact and (refused := too_few_rounds(pair, MIN_PAIRED_ROUNDS)):
        return TwinRatio(n=n, ratio=None, refused=refused)
    ratios = ((pair.values[:, 1] / n) / (pair.values[:, 0] / before)).tolist()
    if exact:
        return TwinRatio(n=n, ratio=Interval(estimate=ratios[0], low=ratios[0], high=ratios[0], num=1))
    return TwinRatio(n=n, ratio=ratio_over_rounds(np.log(ratios).tolist()))


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
    twins: tuple[TwinRatio, ...]


def growth_of(shaped: Sequence[Series], timings: Timings) -> list[Growth]:
    """Follow every quantity with values at three or more lengths.

    `shaped`: series of one shape.
    """
    found = [_growth(series, measure, timings) for measure in GROWTH_MEASURES for series in _distinct(shaped, measure)]
    return [growth for growth in found if growth is not None]


def samples_of(series: Series, measure: GrowthMeasure, timings: Timings) -> pandas.DataFrame:
    """Return the columns `n`, `round`, `value`; counts have one round."""
    if measure.timed:
        return latency_samples(series, timings)
    return counted_samples(series, measure.column, measure.divisor)


def polynomial_of(samples: pandas.DataFrame) -> Counted | None:
    """Return the polynomial of exact counts from the first length where one holds; None without one.

    A memory peak is the largest of several sums; at short lengths another sum may be the largest. Least squares relative to the counts, so that
    every length weighs the same; the terms may be negative, as with n - 1 patches.
    """
    lengths = without_twins(lengths_of(samples))
    for start in range(len(lengths)):
        series = complete_rounds(samples, lengths=lengths[start:], exact=True)
        if not series.num_rounds or too_few_lengths(series, MIN_COUNTS):
            return None
        n = np.asarray(series.lengths, dtype=np.float64)
        design = np.stack([np.ones_like(n), n, n**2], axis=1) / series.means[:, None]
        scale = np.linalg.norm(design, axis=0)
        terms = np.linalg.lstsq(design / scale, np.ones(len(n)), rcond=None)[0] / scale
        parts = design * terms
        if np.abs(parts.sum(axis=1) - 1).max() <= TOLERANCE:
            a, b, c = np.where(np.abs(parts).max(axis=0) > ROUNDING, terms, 0.0).tolist()
            return Counted(a=a, b=b, c=c, lengths=series.lengths)
    return None


def _growth(series: Series, measure: GrowthMeasure, timings: Timings) -> Growth | None:
    if measure is PEAK and series.rows["batch_size"].nunique() > 1:
        return None  # a peak per sample would be meaningless, because the weights in it do not shrink with the batch
    samples = samples_of(series, measure, timings)
    if samples["n"].nunique() < 3:
        return None
    return Growth(
        series=series,
        measure=measure,
        counted=polynomial_of(samples) if not measure.timed else None,
        exponents=local_exponents(samples, exact=not measure.timed),
        twins=twin_ratios(samples, exact=not measure.timed),
    )


def _distinct(found: Sequence[Series], measure: GrowthMeasure) -> Sequence[Series]:
    """Return one series per model and shape if workload does not matter.

    For a measure that depends on the workload, return all series.
    """
    if measure.per_workload:
        return found
    seen: dict[tuple[Any, ...], Series] = {}
    for series in found:
        if measure.column in series.rows:
            seen.setdefault((series.keys["model"], series.lengths, tuple(series.rows[measure.column].fillna(0))), series)
    return list(seen.values())


def quadratic_home(plan: Plan) -> pandas.DataFrame:
    """Return, per cell, which terms hold the n^2.

    Columns: FLOPs per n^2 and their share of all FLOPs at n, weights per n^2, and the names of the terms.

    `weight_terms`: terms that multiply by an n x n matrix of weights. A Toeplitz matrix has fewer weights, each used several times.
    `activation_terms`: terms that compute n x n numbers for every sample.
    """
    found = []
    for planned in _in_closed_form(plan):
        cost, n = planned.sizing.cost, planned.cell.model.shape.seq_len
        flops, quadratic = cost.flops(), cost.flops().degree(QUADRATIC)
        homes: dict[bool, list[str]] = {True: [], False: []}
        for term in cost.terms:
            if term.macs.degree(QUADRATIC):
                homes[term.params.varying() != ZERO].append(term.name)
        share = quadratic * n**QUADRATIC / flops.at(n) if flops.at(n) else None
        weights = cost.params().degree(QUADRATIC)
        found.append((*_identity(planned), quadratic, share, weights, planned.sizing.params_seq, tuple(homes[True]), tuple(homes[False])))
    columns = ("flops_coefficient", "flops_share", "weights_coefficient", "params_seq", "weight_terms", "activation_terms")
    return pandas.DataFrame(found, columns=[*IDENTITY, *columns])


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


def flops_growth(rows: pandas.DataFrame, homes: pandas.DataFrame) -> list[FlopsGrowth]:
    """Return the growth of every model with FLOPs at two lengths.

    `rows`: comparable ones (`bench.analysis.frame.Scope`), `homes`: of `quadratic_home`.
    """
    home_of = {home["cell_id"]: home for home in homes.to_dict("records")}
    found = []
    for model, members in rows[rows["flops"] > 0].groupby("model", sort=False):
        labels = {label for label in members["label"] if not label.startswith(f"{model} (")} or {model}
        first, last = members.iloc[members["place"].argmin()], members.iloc[members["place"].argmax()]
        if first["place"] == last["place"]:
            continue
        home = home_of.get(last["cell_id"])
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


def _in_closed_form(plan: Plan) -> list[PlannedCell]:
    """Leave out cells counted at one length: a count has no degrees."""
    return [planned for planned in plan.cells if not planned.sizing.is_counted]


def _identity(planned: PlannedCell) -> tuple[str, str, int, int | None]:
    model = planned.cell.model
    return planned.cell.cell_id, model.name, model.shape.seq_len, planned.sizing.budget

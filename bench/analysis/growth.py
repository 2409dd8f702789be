"""Follow every quantity of a run along n, find the n^2 terms of a model, and the lengths at which two models cost the same.

A series is a set of cells that differ in sequence length only; a round measures every cell once. Counts have exact polynomials, FLOPs closed forms;
counts and times have local exponents. Costs cross where closed forms are equal, or where the log ratio of two measured series
changes sign. Builds no model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from bench.analysis.frame import ATTENTION_FAMILIES, SCOPE_KEYS, SERIES_KEYS, label_of
from bench.intervals import Interval, signed_ranks
from bench.numbers import counted, is_empty, known
from bench.reading.table import ATTENTION_MIXER
from bench.reading.timings import Timings
from bench.spec import NO_ATTENTION, Plan, PlannedCell
from models.layers.cost import ZERO, Cost, Polynomial

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
        return [_exactly(value) for value in logs.mean(axis=0).tolist()]
    return [found.interval() for column in logs.T if (found := signed_ranks(column.tolist()))]


def _exactly(value: float) -> Interval:
    return Interval(estimate=value, low=value, high=value, num=1)


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


GATING = "gmlp"
SHORTEST = 2
"""The smallest n considered."""
SAME_ROOT = 1e-9
CROSSING_MEASURES = (LATENCY, ACTIVATIONS, PEAK)
SCOPES = {"blocks": "blocks", "whole model": None}
"""Scopes of a cost by name, as `Cost.flops` and `Cost.params` take them."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A length at which two costs are equal.

    `n`: the estimate; exact for closed forms.
    `low`, `high`: measured lengths on either side at which the difference is significant; None without one.
    `before`, `after`: the cheaper model below and above n.
    """

    n: float
    low: float | None
    high: float | None
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Crossovers:
    """All crossings by rising n.

    `none`: without crossings, which model is cheaper, or why that is unknown.
    """

    crossings: tuple[Crossing, ...] = ()
    none: str = ""


@dataclass(frozen=True, kw_only=True)
class ClosedForm:
    """A model that keeps its shape as n grows, with its cost.

    `shape`: depth, width and ffn_width in words.
    `budget`: the budget that was matched; None for published or given sizes.
    """

    model: str
    family: str
    shape: str
    width: int
    budget: int | None
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class ClosedCrossing:
    """The lengths at which two closed forms are equal, by scope.

    `flops`, `params`: the crossings.
    `ratios`: FLOPs of the first model over the second, at every length of the plan.
    """

    first: ClosedForm
    second: ClosedForm
    flops: Mapping[str, Crossovers]
    params: Mapping[str, Crossovers]
    ratios: Mapping[str, Mapping[int, float]]

    @property
    def gating(self) -> ClosedForm:
        """The gMLP of the two."""
        return self.first if self.first.family == GATING else self.second

    @property
    def attention(self) -> ClosedForm:
        """The form beside the gMLP."""
        return self.second if self.first.family == GATING else self.first

    def ratio(self, n: float) -> float:
        """Return the FLOPs of the gMLP over those of the other at any n."""
        own, other = (sum(c * n**power for power, c in enumerate(form.cost.flops().coefficients)) for form in (self.gating, self.attention))
        return own / other


@dataclass(frozen=True, kw_only=True)
class PairCrossing:
    """The measured crossings of two series.

    The series differ only in model and attention kernel. `scope`: the keys of the first series (`bench.analysis.frame.SERIES_KEYS`).
    """

    first: str
    second: str
    scope: Mapping[str, Any]
    measure: GrowthMeasure
    found: Crossovers


def closed_forms(plan: Plan) -> list[ClosedForm]:
    """Return every model that keeps its shape over the plan's lengths.

    A mixer in blocks or chunks pads to whole ones, so its constant part is exact at one length only, and below one chunk it is quadratic: the
    form is that of the longest length.
    """
    found: dict[tuple[Any, ...], ClosedForm] = {}
    lengths: dict[tuple[Any, ...], set[int]] = {}
    for planned in sorted(plan.cells, key=lambda planned: -planned.cell.model.shape.seq_len):
        if planned.sizing.is_counted:
            continue  # a cost counted at one length has no closed form
        model, shape, budget = planned.cell.model, planned.cell.model.shape, planned.sizing.budget
        text = f"{shape.depth} x {shape.width}, ffn_width {shape.ffn_width}"
        form = ClosedForm(model=model.name, family=model.family, shape=text, width=shape.width, budget=budget, cost=planned.sizing.cost)
        key = (form.model, form.family, form.shape, form.budget)
        found.setdefault(key, form)
        lengths.setdefault(key, set()).add(shape.seq_len)
    # with one length, the shape counts as kept only if no budget was matched at that length
    return [form for key, form in found.items() if len(lengths[key]) > 1 or form.budget is None]


def closed_pairs(plan: Plan) -> list[ClosedCrossing]:
    """Compare every two families that keep one shape over the plan's lengths, and attention with each of the other mixers of a block.

    Both must have the same budget, or both published or given sizes.
    """
    lengths = sorted({planned.cell.model.shape.seq_len for planned in plan.cells})
    found = []
    for first, second in combinations(closed_forms(plan), 2):
        names = (first.model, second.model)
        is_compared = first.family != second.family or (ATTENTION_MIXER in names and first.model != second.model)
        if not is_compared or first.budget != second.budget:
            continue
        flops = {scope: (first.cost.flops(part), second.cost.flops(part)) for scope, part in SCOPES.items()}
        params = {scope: (first.cost.params(part), second.cost.params(part)) for scope, part in SCOPES.items()}
        found.append(
            ClosedCrossing(
                first=first,
                second=second,
                flops={scope: cost_crossovers(*pair, names) for scope, pair in flops.items()},
                params={scope: cost_crossovers(*pair, names) for scope, pair in params.items()},
                ratios={scope: {n: own.at(n) / other.at(n) for n in lengths} for scope, (own, other) in flops.items()},
            )
        )
    return found


def gating_pairs(found: Sequence[ClosedCrossing]) -> list[ClosedCrossing]:
    """Choose for each gMLP the attention of about its size, smallest gMLP first.

    The partner is the nearest in parameters without n x n weights; of equally near ones, ViT comes before Transformer.
    """
    pairs = [pair for pair in found if pair.gating.family == GATING and pair.attention.family in ATTENTION_FAMILIES]
    nearest = {(pair.gating.model, pair.gating.shape): pair for pair in sorted(pairs, key=_distance, reverse=True)}
    return sorted(nearest.values(), key=lambda pair: _num_params(pair.gating))


def _distance(pair: ClosedCrossing) -> tuple[float, int]:
    ratio = _num_params(pair.gating) / _num_params(pair.attention)
    return round(abs(math.log(ratio)), 1), ATTENTION_FAMILIES.index(pair.attention.family)


def _num_params(form: ClosedForm) -> int:
    return form.cost.params().at(1)


def equal_terms_at(cost: Polynomial) -> float | None:
    """Return the n at which the n^2 term equals the linear term.

    None if either is absent or negative.
    """
    return cost.degree(1) / cost.degree(2) if cost.degree(1) > 0 and cost.degree(2) > 0 else None


def cost_crossovers(first: Polynomial, second: Polynomial, names: tuple[str, str]) -> Crossovers:
    """Find every real n >= 2 at which the cheaper polynomial changes.

    Roots are the eigenvalues of the companion matrix (numpy.roots) of the integer difference. The signs between them are exact, in fractions, so a
    root without a change of sign is not a crossing.
    """
    difference = first + second * -1
    roots = _positive_roots(difference)
    places = [Fraction(0), *map(Fraction, roots)]
    probes = [*((low + high) / 2 for low, high in pairwise(places)), 2 * places[-1] + SHORTEST]
    values = [sum((c * n**power for power, c in enumerate(difference.coefficients)), Fraction(0)) for n in probes]
    cheaper = [names[0] if value < 0 else names[1] for value in values]
    crossings = tuple(
        Crossing(n=root, low=root, high=root, before=cheaper[place], after=cheaper[place + 1])
        for place, root in enumerate(roots)
        if values[place] * values[place + 1] < 0 and root >= SHORTEST
    )
    if crossings:
        return Crossovers(crossings=crossings)
    if not values[-1]:
        return Crossovers(none=f"{names[0]} and {names[1]} cost the same at every n")
    return Crossovers(none=f"none: {cheaper[-1]} is cheaper at every n from {SHORTEST}")


def _positive_roots(difference: Polynomial) -> list[float]:
    """Return the distinct real roots above 0, rising.

    A root is a whole number if the difference is exactly 0 there.
    """
    found: list[float] = []
    roots = np.roots([float(c) for c in reversed(difference.coefficients)])
    for root in sorted(float(r.real) for r in roots if abs(r.imag) <= SAME_ROOT * abs(r) and r.real > 0):
        polished = float(round(root)) if difference.at(round(root)) == 0 else root
        if not found or polished > found[-1] * (1 + SAME_ROOT):
            found.append(polished)
    return found


def measured_pairs(shaped: Sequence[Series], timings: Timings) -> list[PairCrossing]:
    """Compare the measured costs of series with equal scope.

    A pair contains gMLP or a block with attention, or one model under two attention kernels. `shaped`: series that keep one shape.
    """
    pairs = list(_pairs(shaped))
    found = []
    for measure in CROSSING_MEASURES:
        for pair in pairs:
            if ratios := _paired_times(pair, timings) if measure.timed else _ratios(*(samples_of(one, measure, timings) for one in pair)):
                names = (label_of(pair[0].keys), label_of(pair[1].keys))
                crossovers = measured_crossovers(ratios, names, exact=not measure.timed)
                found.append(PairCrossing(first=names[0], second=names[1], scope=pair[0].keys, measure=measure, found=crossovers))
    return found


def _pairs(shaped: Sequence[Series]) -> Iterator[tuple[Series, Series]]:
    scopes: dict[tuple[str, ...], list[Series]] = {}
    for series in shaped:
        scopes.setdefault(tuple(str(series.keys.get(key)) for key in SCOPE_KEYS), []).append(series)
    for members in scopes.values():
        for first, second in combinations(members, 2):
            models = (first.keys["model"], second.keys["model"])
            if {"gmlp", ATTENTION_MIXER} & set(models) or models[0] == models[1]:
                yield first, second


def _paired_times(pair: tuple[Series, Series], timings: Timings) -> Samples:
    """Return the ratio of both series' times per sample, at their common lengths.

    Each length pairs its two cells by round, independently of other lengths.
    """
    first, second = ({int(row["seq_len"]): row for row in series.rows} for series in pair)
    found = {}
    for n in sorted(first.keys() & second.keys()):
        logs = timings.log_ratios(str(first[n]["cell_id"]), str(second[n]["cell_id"]))
        per_sample = float(second[n]["batch_size"]) / float(first[n]["batch_size"])
        found[n] = {place: per_sample * math.exp(log) for place, log in logs.items()}
    return {n: by_round for n, by_round in found.items() if by_round}


def _ratios(first: Samples, second: Samples) -> Samples:
    """Return the ratio of two counts at their common lengths."""
    return {n: {0: first[n][0] / second[n][0]} for n in first if n in second}


def measured_crossovers(ratios: Samples, names: tuple[str, str], *, exact: bool = False) -> Crossovers:
    """Find the crossings of the mean log ratio of two series.

    `ratios`: first over second, at their common lengths. Between lengths, the log ratio is linear in log n. Only common rounds are used, and the
    longer of twins.
    """
    if len(ratios) < 2:
        found = f"{counted(len(ratios), 'length')} in common"
        return Crossovers(none=f"{found}; at least 2 are needed. Measure both at the same lengths.")
    values, num_dropped = complete_rounds(ratios, list(ratios))
    if not exact and (refused := too_few_rounds(len(values), num_dropped)):
        return Crossovers(none=refused)
    lengths, places = without_twins(list(ratios)), list(ratios)
    return crossovers_of(lengths, centres_over_rounds(np.log(values[:, [places.index(n) for n in lengths]])), names)


def crossovers_of(lengths: Sequence[int], ratios: Sequence[Interval], names: tuple[str, str]) -> Crossovers:
    """Return one crossing for every change of the cheaper model.

    `ratios` are log ratios of first over second at rising lengths. The bounds are the measured lengths between which the decision changes; the
    estimate between them is interpolated, and has no interval.

    Before the first and after the last significant length, a change of the mean's sign is a crossing with an open end. If the mean crosses several
    times between two significant lengths, that is one crossing (the middle one), or none if the same model is cheaper at both.
    """
    low, middle, high = (np.array([getattr(ratio, name) for ratio in ratios]) for name in ("low", "estimate", "high"))
    significant = [place for place in range(len(lengths)) if low[place] > 0 or high[place] < 0]
    if not significant:
        return Crossovers(none=f"none up to n = {lengths[-1]}: no significant difference between {names[0]} and {names[1]} at any length")
    crossings = []
    for i, j in pairwise(sorted({0, *significant, len(lengths) - 1})):
        if middle[i] * middle[j] < 0:
            before, after = names if middle[j] > 0 else names[::-1]
            zeros = [zero for k in range(i, j) if (zero := _zero(lengths, middle, k)) is not None]
            low_n, high_n = (float(lengths[place]) if place in significant else None for place in (i, j))
            crossings.append(Crossing(n=zeros[len(zeros) // 2], low=low_n, high=high_n, before=before, after=after))
    if crossings:
        return Crossovers(crossings=tuple(crossings))
    cheaper = names[0] if (high < 0).any() else names[1]
    unclear = ", ".join(str(n) for place, n in enumerate(lengths) if place not in significant)
    rest = f" is cheaper; no significant difference at n = {unclear}" if unclear else " is cheaper at every length"
    return Crossovers(none=f"none up to n = {lengths[-1]}: {cheaper}{rest}")


def _zero(lengths: Sequence[int], line: Matrix, k: int) -> float | None:
    """Return the n between two lengths where the line crosses 0.

    The line is linear in log n from length k to length k + 1. None if it keeps its sign, as a bound does at an open end.
    """
    start, end = float(line[k]), float(line[k + 1])
    if start == end or start * end > 0:
        return None
    return math.exp(math.log(lengths[k]) + start / (start - end) * math.log(lengths[k + 1] / lengths[k]))

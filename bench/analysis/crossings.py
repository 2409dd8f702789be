"""Find the lengths at which two models cost the same.

Costs cross where closed forms are equal, or where the log ratio of two measured series changes sign. Builds no model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from bench.analysis.frame import ATTENTION_FAMILIES, SCOPE_KEYS, label_of
from bench.analysis.growth import (
    ACTIVATIONS,
    LATENCY,
    PEAK,
    GrowthMeasure,
    Matrix,
    Samples,
    Series,
    centres_over_rounds,
    complete_rounds,
    samples_of,
    too_few_rounds,
    without_twins,
)
from bench.intervals import Interval
from bench.numbers import counted
from bench.reading.table import ATTENTION_MIXER
from bench.reading.timings import Timings
from bench.spec import Plan
from models.layers.cost import Cost, Polynomial

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

    `flops`: the crossings.
    `ratios`: FLOPs of the first model over the second, at every length of the plan.
    """

    first: ClosedForm
    second: ClosedForm
    flops: Mapping[str, Crossovers]
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
    """Return every model that keeps its shape over the plan's lengths, and whose FLOPs are one polynomial at all of them.

    A mixer in blocks or chunks pads to whole ones: between these its FLOPs are a staircase, which has no closed form.
    """
    found: dict[tuple[Any, ...], ClosedForm] = {}
    lengths: dict[tuple[Any, ...], set[int]] = {}
    staircases = set()
    for planned in sorted(plan.cells, key=lambda planned: -planned.cell.model.shape.seq_len):
        if planned.sizing.is_counted:
            continue  # a cost counted at one length has no closed form
        model, shape, budget = planned.cell.model, planned.cell.model.shape, planned.sizing.budget
        text = f"{shape.depth} x {shape.width}, ffn_width {shape.ffn_width}"
        form = ClosedForm(model=model.name, family=model.family, shape=text, width=shape.width, budget=budget, cost=planned.sizing.cost)
        key = (form.model, form.family, form.shape, form.budget)
        known = found.setdefault(key, form)
        lengths.setdefault(key, set()).add(shape.seq_len)
        # older plans do not say so, but two lengths may
        if planned.sizing.is_staircase or known.cost.flops().at(shape.seq_len) != form.cost.flops().at(shape.seq_len):
            staircases.add(key)
    # with one length, the shape counts as kept only if no budget was matched at that length
    return [form for key, form in found.items() if key not in staircases and (len(lengths[key]) > 1 or form.budget is None)]


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
        found.append(
            ClosedCrossing(
                first=first,
                second=second,
                flops={scope: cost_crossovers(*pair, names) for scope, pair in flops.items()},
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
            if {GATING, ATTENTION_MIXER} & set(models) or models[0] == models[1]:
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

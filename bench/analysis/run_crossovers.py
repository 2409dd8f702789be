"""Where the series of a run cost the same: from the closed forms of their shapes, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas

from bench.analysis.crossover import Crossovers, cost_crossovers, cost_ratio, equal_terms_at
from bench.analysis.evidence import SCOPE_KEYS, label_of
from bench.analysis.growth import ACTIVATIONS, LATENCY, PEAK, Measure, samples_of
from bench.analysis.measured_crossover import MeasuredCrossovers, measured_crossovers
from bench.analysis.series import SAMPLE_COLUMNS, Series, has_one_shape, row_values, series_of
from bench.running.timings import Timings
from bench.spec import Plan
from models.layers.cost import Cost

MEASURED = (LATENCY, ACTIVATIONS, PEAK)
SCOPES = {"blocks": "blocks", "whole model": None}


@dataclass(frozen=True, kw_only=True)
class PairCrossing:
    """Two series that differ in the model or its attention kernel alone, and where the measured quantity is equal."""

    first: str
    second: str
    scope: Mapping[str, Any]
    measure: Measure
    found: MeasuredCrossovers


@dataclass(frozen=True, kw_only=True)
class ClosedCrossing:
    """Two models of one budget, each of one shape: where FLOPs and parameters are equal, by scope (`blocks`, `whole model`), and the ratio of their
    FLOPs, first over second, at every length of the plan."""

    first: str
    second: str
    first_shape: str
    second_shape: str
    budget: int | None
    flops: Mapping[str, Crossovers]
    params: Mapping[str, Crossovers]
    ratios: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, kw_only=True)
class EqualTerms:
    """The n at which the quadratic part of a model's FLOPs equals the linear one, by scope; None: it never does."""

    model: str
    shape: str
    at: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class _Shaped:
    """A model of one shape, whatever its n."""

    name: str
    family: str
    shape: str
    budget: int | None


def measured_pairs(frame: pandas.DataFrame, timings: Timings) -> list[PairCrossing]:
    """Pairs with gMLP in them, and one model under two attention kernels, within equal scopes; lengths where both were measured."""
    shaped = [series for series in series_of(frame) if has_one_shape(series.rows)]
    return [
        PairCrossing(first=label_of(first.keys), second=label_of(second.keys), scope=first.keys, measure=measure, found=found)
        for measure in MEASURED
        for first, second in _pairs(shaped)
        if (found := _crossovers(first, second, measure, timings)) is not None
    ]


def closed_pairs(plan: Plan) -> list[ClosedCrossing]:
    """Every pair of families at one budget (or of published or set sizes) that keep one shape over the plan's lengths."""
    lengths = sorted({planned.cell.model.shape.seq_len for planned in plan.cells})
    pairs = combinations(_costs(plan).items(), 2)
    return [_closed(*pair, lengths) for pair in pairs if pair[0][0].family != pair[1][0].family and pair[0][0].budget == pair[1][0].budget]


def equal_terms(plan: Plan) -> list[EqualTerms]:
    """One per model and shape."""
    return [
        EqualTerms(model=key.name, shape=key.shape, at={scope: equal_terms_at(cost.flops(part)) for scope, part in SCOPES.items()})
        for key, cost in _costs(plan).items()
    ]


def _pairs(shaped: list[Series]) -> Iterator[tuple[Series, Series]]:
    scopes: dict[tuple[str, ...], list[Series]] = {}
    for series in shaped:
        scopes.setdefault(tuple(str(series.keys.get(key)) for key in SCOPE_KEYS), []).append(series)
    for members in scopes.values():
        for first, second in combinations(members, 2):
            models = (first.keys["model"], second.keys["model"])
            if "gmlp" in models or models[0] == models[1]:
                yield first, second


def _crossovers(first: Series, second: Series, measure: Measure, timings: Timings) -> MeasuredCrossovers | None:
    samples = _paired_samples(first, second, timings) if measure.timed else [samples_of(s, measure, timings) for s in (first, second)]
    if any(part.empty for part in samples):
        return None
    return measured_crossovers(samples[0], samples[1], (label_of(first.keys), label_of(second.keys)), exact=measure.exact)


def _paired_samples(first: Series, second: Series, timings: Timings) -> list[pandas.DataFrame]:
    """Times of both at every length that both have, as they compare there; one length has nothing to do with another."""
    rows = [{int(row["seq_len"]): row for row in row_values(series.rows)} for series in (first, second)]
    found: tuple[list[Any], list[Any]] = ([], [])
    for n in sorted(rows[0].keys() & rows[1].keys()):
        members = [row_by_length[n] for row_by_length in rows]
        for samples, row, times in zip(found, members, timings.together([str(row["cell_id"]) for row in members]), strict=True):
            samples += [(n, place, ms / float(row["batch_size"])) for place, ms in times.items()]
    return [pandas.DataFrame(samples, columns=list(SAMPLE_COLUMNS)) for samples in found]


def _costs(plan: Plan) -> dict[_Shaped, Cost]:
    """The closed form of every model that keeps its shape. A block-wise mixer pads to whole blocks, so its constant part is that of one length."""
    found: dict[_Shaped, Cost] = {}
    lengths: dict[_Shaped, set[int]] = {}
    for planned in plan.cells:
        if planned.sizing.is_counted:
            continue  # one length says nothing of another
        model, shape = planned.cell.model, planned.cell.model.shape
        text = f"{shape.depth} x {shape.width}, ffn_width {shape.ffn_width}"
        key = _Shaped(name=model.name, family=model.family, shape=text, budget=planned.sizing.budget)
        found.setdefault(key, planned.sizing.cost)
        lengths.setdefault(key, set()).add(shape.seq_len)
    # one length alone shows a shape that is kept only where it was not chosen for that length
    return {key: cost for key, cost in found.items() if len(lengths[key]) > 1 or key.budget is None}


def _closed(first: tuple[_Shaped, Cost], second: tuple[_Shaped, Cost], lengths: list[int]) -> ClosedCrossing:
    (model, cost), (other, other_cost) = first, second
    names = (model.name, other.name)
    return ClosedCrossing(
        first=model.name,
        second=other.name,
        first_shape=model.shape,
        second_shape=other.shape,
        budget=model.budget,
        flops={scope: cost_crossovers(cost.flops(part), other_cost.flops(part), names) for scope, part in SCOPES.items()},
        params={scope: cost_crossovers(cost.params(part), other_cost.params(part), names) for scope, part in SCOPES.items()},
        ratios={scope: {n: cost_ratio(cost.flops(part), other_cost.flops(part), n) for n in lengths} for scope, part in SCOPES.items()},
    )

"""Pool runs of one request on several hosts.

The result is the ratio of each pair of cells by host type, and pooled over types. The host type (of CPU or GPU) is the unit of generalisation.
Rounds of a run give an estimate with its variance. Runs of one boot are averaged, then the machines of one type; types are then pooled by a
random-effects model. Method and sources: docs/hosts.md.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import numbers
from bench.analysis.effects import contrasts_of, with_baselines
from bench.analysis.frame import cells, prepare, work_text
from bench.analysis.series import row_values
from bench.intervals import LEVEL, Interval, round_mean
from bench.measure.hosts import host_type, is_capped
from bench.running.store import StoredRun
from bench.running.table import references_of, rows_of, times_of
from bench.running.timings import Timings
from bench.serialize import canonical_json
from bench.spec import Plan, RequestError

MIN_TYPES_POOLED = 3
MIN_TYPES_PREDICTED = 5
"""Host types needed for a prediction interval."""
EQUAL_MARGIN = 0.03
"""Ratios within this share of 1 count as equal."""
LEAST_VARIANCE = 1e-12
"""The least variance of a mean log ratio.

It means a standard error of 1e-6; identical rounds would otherwise have infinite weight.
"""
NAME_KEYS = ("engine", "size", "phase", "dtype", "batch_size", "task")
"""Columns shown in a pair's name if they vary within the run."""
SAME_SETTINGS = ("threads", "cold")
"""Settings that change a time and must agree.

Rounds and sampling time only change its precision.
"""
CONVENIENCE = "The host types are a convenience sample, so the intervals hold for similar types."


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine between two boots.

    `type`: the type of the CPU, or of the GPU on CUDA.
    """

    type: str
    boot: str


@dataclass(frozen=True, kw_only=True)
class MeanLogRatio:
    """A mean log ratio.

    `variance`: of the mean.
    `freedom`: the degrees of freedom of the variance.
    """

    mean: float
    variance: float
    freedom: float

    @property
    def ratio(self) -> Interval:
        """The ratio with its 95 % t-interval."""
        return _ratio(self.mean, math.sqrt(self.variance), self.freedom)


@dataclass(frozen=True, kw_only=True)
class TypeEstimate:
    """One pair of cells on one host type.

    `num_machines`: the number of boots.
    """

    host_type: str
    num_machines: int
    num_runs: int
    estimate: MeanLogRatio


@dataclass(frozen=True, kw_only=True)
class RandomEffects:
    """The ratio pooled over host types.

    `mean`: the mean log ratio.
    `tau`: the standard deviation of the true log ratios between types.
    """

    num_types: int
    mean: float
    standard_error: float
    tau: float

    @property
    def ratio(self) -> Interval:
        """The mean ratio with its 95 % Hartung-Knapp interval."""
        return _ratio(self.mean, self.standard_error, self.num_types - 1)

    @property
    def prediction(self) -> Interval | None:
        """The 95 % prediction interval for the ratio of a new type.

        Higgins, Thompson and Spiegelhalter (2009), with k - 2 degrees of freedom. None below `MIN_TYPES_PREDICTED` types.
        """
        if self.num_types < MIN_TYPES_PREDICTED:
            return None
        return _ratio(self.mean, math.hypot(self.tau, self.standard_error), self.num_types - 2)


@dataclass(frozen=True, kw_only=True)
class CellPair:
    """Two cells whose times are compared, first over second.

    `batch_ratio`: items per call of the second over items per call of the first.
    """

    name: str
    first: str
    second: str
    batch_ratio: float = 1.0


@dataclass(frozen=True, kw_only=True)
class PooledPair:
    """A pair with its estimates by host type.

    `pooled`: None below `MIN_TYPES_POOLED` types.
    """

    pair: CellPair
    types: tuple[TypeEstimate, ...]
    pooled: RandomEffects | None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The pairs of one request over several runs.

    `work_version`: the version of the measured work, equal in all runs.
    `notes`: sentences on data that could not be pooled, and on the limits of the pooled ratios.
    """

    runs: tuple[str, ...]
    hosts: tuple[Host, ...]
    work_version: str | None
    pairs: tuple[PooledPair, ...]
    notes: tuple[str, ...]


def host_of(environment: Mapping[str, Any]) -> Host | None:
    """Return the host; None if type or boot are not recorded."""
    kind, boot = host_type(environment), environment.get("boot")
    return Host(type=kind, boot=str(boot)) if kind and boot else None


def pool_runs(runs: Sequence[StoredRun]) -> Pool:
    """Pool runs of one request.

    Raises RequestError if the runs are too few, quick, capped, duplicated, from unknown hosts, differ in work or request, or have no timed pair.
    """
    hosts = _hosts_of(runs)
    _require_one_request(runs)
    _require_no_duplicate(runs, hosts)
    timings = [times_of(run) for run in runs]
    names = [run.folder.resolve().name for run in runs]
    found, notes = [], []
    for pair in pairs_of(runs[0]):
        by_run = [estimate_of(pair, timed) for timed in timings]
        types = tuple(_by_type(by_run, hosts))
        notes += [f"{pair.name} has fewer than two rounds in {name}." for name, own in zip(names, by_run, strict=True) if own is None]
        if types:
            found.append(PooledPair(pair=pair, types=types, pooled=random_effects([kind.estimate for kind in types])))
    if not found:
        raise RequestError(
            "these runs have no two timed configurations of equal length, batch, phase, dtype, device and task, and no variants to compare",
            "measure two or more models at one length, with latency among --metrics",
        )
    return Pool(
        runs=tuple(names),
        hosts=tuple(hosts),
        work_version=runs[0].environment.get("work_version"),
        pairs=tuple(found),
        notes=(*dict.fromkeys(map(_limit_of, found)), CONVENIENCE, *notes),
    )


def pairs_of(run: StoredRun) -> list[CellPair]:
    """Pair every cell with its reference.

    In a part with arms the reference is the baseline's cell at the same place; pairs that predictions name are added. Elsewhere it is the cell in
    the column `ratio_to`. Cells whose outputs were compared and differ are left out.
    """
    rows = {
        row["cell_id"]: row for row in row_values(cells(prepare(rows_of(run)))) if numbers.is_empty(row.get("equal")) or bool(row["equal"])
    }
    pairs = [*_pairs_of_arms(run.plan, rows), *_pairs_of_groups(run.plan, rows)]
    return list({(pair.first, pair.second): pair for pair in reversed(pairs)}.values())[::-1]


def estimate_of(pair: CellPair, timings: Timings) -> MeanLogRatio | None:
    """Estimate a pair's mean log ratio from the rounds of one run.

    See `bench.intervals.round_mean`. None below two rounds.
    """
    logs = [value + math.log(pair.batch_ratio) for value in timings.log_ratios(pair.first, pair.second).values()]
    found = round_mean(logs)
    return None if found is None else MeanLogRatio(mean=found.mean, variance=max(found.error**2, LEAST_VARIANCE), freedom=found.degrees)


def average(estimates: Sequence[MeanLogRatio]) -> MeanLogRatio:
    """Return the plain mean of several estimates.

    The variance is the larger of two: the sum of the estimates' own variances over num^2 (Satterthwaite's degrees of freedom), or the variance of
    their spread over num. The spread includes both noise and real differences, but a few estimates may agree by chance.
    """
    num = len(estimates)
    own = sum(found.variance for found in estimates) / num**2
    freedom = sum(found.variance for found in estimates) ** 2 / sum(found.variance**2 / found.freedom for found in estimates)
    spread = statistics.variance([found.mean for found in estimates]) / num if num > 1 else 0.0
    return MeanLogRatio(
        mean=statistics.fmean(found.mean for found in estimates),
        variance=max(own, spread),
        freedom=num - 1 if spread > own else freedom,
    )


def random_effects(estimates: Sequence[MeanLogRatio]) -> RandomEffects | None:
    """Pool types whose true log ratios vary.

    None below `MIN_TYPES_POOLED` types.

    tau^2 is Paule and Mandel's: the value at which the weighted squares Q(tau^2) equal k - 1, or 0. Hartung and Knapp multiply the squared standard
    error 1 / sum(w) by q = Q / (k - 1). At this tau^2, q is 1, or below 1 if tau^2 = 0. In the latter case max(1, q) is used (Knapp and Hartung
    2003), because types that agree by chance would narrow the interval without limit. So q is always 1 and does not appear in the code.
    """
    num = len(estimates)
    if num < MIN_TYPES_POOLED:
        return None
    means, variances = [found.mean for found in estimates], [found.variance for found in estimates]
    tau_squared = paule_mandel(means, variances)
    weights = [1 / (variance + tau_squared) for variance in variances]
    return RandomEffects(
        num_types=num,
        mean=statistics.fmean(means, weights),
        standard_error=1 / math.sqrt(sum(weights)),
        tau=math.sqrt(tau_squared),
    )


def paule_mandel(means: Sequence[float], variances: Sequence[float]) -> float:
    """Estimate the variance between types after Paule and Mandel.

    It is the value at which Q, the weighted squares about the weighted mean, is k - 1; 0 if Q is smaller already.
    """
    from scipy.optimize import brentq

    def excess(tau_squared: float) -> float:
        weights = [1 / (variance + tau_squared) for variance in variances]
        centre = statistics.fmean(means, weights)
        return sum(w * (mean - centre) ** 2 for mean, w in zip(means, weights, strict=True)) - (len(means) - 1)

    highest = 2 * statistics.variance(means)  # Q is below k - 1 there
    return float(brentq(excess, 0.0, highest, xtol=1e-14, rtol=1e-12)) if excess(0.0) > 0 else 0.0


def _ratio(mean: float, error: float, freedom: float) -> Interval:
    """Return the ratio with the t-interval of its logarithm.

    Bounds are clipped to the range of floating point.
    """
    from scipy.special import stdtrit

    half = float(stdtrit(freedom, 0.5 + LEVEL / 2)) * error
    low, high = (math.exp(min(max(bound, -700.0), 700.0)) for bound in (mean - half, mean + half))
    return Interval(estimate=math.exp(mean), low=low, high=high, num=round(freedom) + 1)


def _by_type(by_run: Sequence[MeanLogRatio | None], hosts: Sequence[Host]) -> Iterator[TypeEstimate]:
    """Yield one estimate per host type, in the order given.

    Runs of one boot are averaged first, then boots.
    """
    for kind in dict.fromkeys(host.type for host in hosts):
        boots: dict[str, list[MeanLogRatio]] = {}
        for host, estimate in zip(hosts, by_run, strict=True):
            if host.type == kind and estimate is not None:
                boots.setdefault(host.boot, []).append(estimate)
        if boots:
            yield TypeEstimate(
                host_type=kind,
                num_machines=len(boots),
                num_runs=sum(map(len, boots.values())),
                estimate=average([average(own) for own in boots.values()]),
            )


def _limit_of(found: PooledPair) -> str:
    """Say whether the ratio is pooled and has a prediction interval."""
    num = len(found.types)
    types = f"{num} host type{'s' if num > 1 else ''}"
    if num < MIN_TYPES_POOLED:
        return f"Nothing is pooled over {types}: a random-effects model needs {MIN_TYPES_POOLED}. Estimates are listed by type."
    if num < MIN_TYPES_PREDICTED:
        return f"No prediction interval from {types}: it needs {MIN_TYPES_PREDICTED}."
    return f"Pooled over {types} by a random-effects model (Paule-Mandel, Hartung-Knapp); the prediction interval is for one new type."


def _pairs_of_arms(plan: Plan, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[CellPair]:
    predictions = with_baselines(plan.question.predictions, plan.parts) if plan.question else []
    for found in contrasts_of(plan.parts, predictions, rows):
        others = [_text(key, value) for key, value in found.place.items() if key != "seq_len"]
        several = [found.part] if sum(bool(part.arms) for part in plan.parts) > 1 else []
        name = ", ".join([f"{found.arm} / {found.against}", f"n = {found.seq_len}", *others, *several])
        batches = [float(rows[cell_id]["batch_size"]) for cell_id in found.cells]
        yield CellPair(name=name, first=found.first, second=found.second, batch_ratio=batches[1] / batches[0])


def _pairs_of_groups(plan: Plan, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[CellPair]:
    in_arms = {cell_id for part in plan.parts for arm in part.arms for cell_id in arm.cells}
    found = [row for cell_id, row in rows.items() if cell_id not in in_arms]
    keys = [key for key in NAME_KEYS if len({row[key] for row in found}) > 1]
    references = references_of(plan)
    for row in found:
        if reference := rows.get(references.get(row["cell_id"], "")):
            own = [key for key in keys if row[key] != reference[key]]
            both = [", ".join([str(cell["label"]), *(_text(key, cell[key]) for key in own)]) for cell in (row, reference)]
            place = [f"n = {row['seq_len']:.0f}", *(_text(key, row[key]) for key in keys if key not in own)]
            yield CellPair(name=", ".join([" / ".join(both), *place]), first=row["cell_id"], second=reference["cell_id"])


def _text(key: str, value: Any) -> str:
    """Return a value that is readable without its column name."""
    if key == "batch_size":
        return f"batch {value:.0f}"
    return f"budget {numbers.count(value)}" if key == "budget" else work_text(key, value)


def _hosts_of(runs: Sequence[StoredRun]) -> list[Host]:
    """Return the host of each run.

    Raises RequestError for fewer than two runs, and if a run is quick or capped, its host is unknown, or its work differs.
    """
    if len(runs) < 2:
        raise RequestError(f"{len(runs)} run cannot be pooled", "name two or more: bench pool RUN RUN... (make replicate measures one)")
    for run in runs:
        if run.plan.settings.quick:
            raise RequestError(f"{run.folder} is a quick run, which decides nothing", "measure it without --quick")
    hosts = [host_of(run.environment) for run in runs]
    unknown = [str(run.folder) for run, host in zip(runs, hosts, strict=True) if host is None]
    if unknown:
        raise RequestError(f"host unknown: {', '.join(unknown)}", "measure again to pool")
    if capped := [str(run.folder) for run in runs if is_capped(run.environment)]:
        raise RequestError(
            f"{capped[0]} was measured with a cap on vector instructions, so it represents no host type",
            "leave it out, or compare two runs with bench diff",
        )
    first = runs[0]
    for run in runs[1:]:
        versions = [str(known.environment.get("work_version")) for known in (first, run)]
        if versions[0] != versions[1]:
            raise RequestError(
                f"work_version differs: {versions[0]} in {first.folder}, {versions[1]} in {run.folder}",
                "measure one of them again with the same version",
            )
    return [host for host in hosts if host is not None]


def _require_one_request(runs: Sequence[StoredRun]) -> None:
    """Raise RequestError if the requests differ, naming the first difference.

    The difference is a cell or a setting.
    """
    hint = f"run the same request on each host: bench run --plan {runs[0].folder}"
    planned = [{found.cell.cell_id: found.cell for found in run.plan.cells} for run in runs]
    for (run, own), (other, others) in itertools.permutations(zip(runs, planned, strict=True), 2):
        if missing := [cell for cell_id, cell in own.items() if cell_id not in others]:
            cell = missing[0]
            name = f"{cell.model.name}, n = {cell.model.shape.seq_len}, attention {cell.workload.attention} ({cell.cell_id})"
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise RequestError(f"the requests differ: {name}{more} of {run.folder} is not in {other.folder}", hint)
    for run, key in itertools.product(runs[1:], SAME_SETTINGS):
        first, own = getattr(runs[0].plan.settings, key), getattr(run.plan.settings, key)
        if first != own:
            raise RequestError(f"the settings differ: {key} is {first} in {runs[0].folder}, {own} in {run.folder}", hint)


def _require_no_duplicate(runs: Sequence[StoredRun], hosts: Sequence[Host]) -> None:
    """Raise RequestError if two runs of one boot share a record.

    One was then copied from the other.
    """
    timed = [{canonical_json(record) for record in run.records if record.metric == "latency"} for run in runs]
    for first, second in itertools.combinations(range(len(runs)), 2):
        if hosts[first].boot == hosts[second].boot and timed[first] & timed[second]:
            raise RequestError(f"{runs[first].folder} and {runs[second].folder} contain the same records", "name each measurement once")

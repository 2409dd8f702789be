"""List the ratios of one request by host, run beside run.

Ratio and interval are those of a variant's effect, or of the run's column `ratio`. Runs of unlike hosts, or of unlike timed code, are never joined
into one number (docs/hosts.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import numbers
from bench.analysis.effects import place_text
from bench.analysis.study import Study, study
from bench.intervals import Interval, joint_level
from bench.measure.hosts import host_type, is_known
from bench.reading.store import StoredRun
from bench.reading.table import references_of, row_values
from bench.reading.timings import ratio_of
from bench.serialize import canonical_json
from bench.spec import RequestError
from bench.timing_groups import num_contrasts

NAME_KEYS = ("engine", "size", "phase", "dtype", "batch_size", "task")
"""Columns shown in a comparison's name if they vary within the run."""
SAME_SETTINGS = ("threads", "cold")
"""Settings that change a time and must agree.

Rounds and sampling time only change its precision.
"""
Cells = tuple[str, str]
"""The ids of the two cells of a ratio, numerator first."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """What runs have in common that are occasions of one host.

    `type`: the type of the CPU, or of the GPU on CUDA.
    `work_version`: the version of the timed code.
    """

    type: str
    work_version: str


@dataclass(frozen=True, kw_only=True)
class HostRatio:
    """A ratio of times on one host.

    `comparison`: its name, such as `gMLP / fused attention, n = 17`.
    `ratios`: of each run, by its name, with its interval.
    """

    comparison: str
    cells: Cells
    host: Host
    ratios: tuple[tuple[str, Interval], ...]

    @property
    def extremes(self) -> tuple[float, float] | None:
        """The lowest and the highest ratio over several occasions; None for one run."""
        estimates = [found.estimate for _, found in self.ratios]
        return (min(estimates), max(estimates)) if len(estimates) > 1 else None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The ratios of one request, by comparison and host.

    `runs`: the names of the runs. `hosts`, `boots`: of each; a boot that was not recorded is empty.
    `notes`: comparisons that a run lacks.
    """

    runs: tuple[str, ...]
    hosts: tuple[Host, ...]
    boots: tuple[str, ...]
    rows: tuple[HostRatio, ...]
    notes: tuple[str, ...]


def pool_runs(runs: Sequence[StoredRun]) -> Pool:
    """List the ratios of one request by host.

    Raises RequestError if the runs are too few, quick, duplicated, of unknown hosts, differ in their request, or have no timed pair.
    """
    hosts = _hosts_of(runs)
    _require_one_request(runs)
    _require_no_duplicate(runs)
    by_run = [(run.folder.resolve().name, ratios_of(study(run))) for run in runs]
    comparisons = {cells: name for _, found in reversed(by_run) for cells, (name, _) in found.items()}
    if not comparisons:
        raise RequestError(
            "these runs have no two timed configurations of equal length, batch, phase, dtype, device and task, and no variants to compare",
            "measure two or more models at one length, with latency among `metrics`",
        )
    return Pool(
        runs=tuple(name for name, _ in by_run),
        hosts=tuple(hosts),
        boots=tuple(str(run.environment.get("boot") or "") for run in runs),
        rows=tuple(row for cells, name in comparisons.items() for row in _by_host(name, cells, by_run, hosts)),
        notes=tuple(
            f"{comparison} has no ratio in {name}."
            for cells, comparison in comparisons.items()
            for name, found in by_run
            if cells not in found
        ),
    )


def ratios_of(known: Study) -> dict[Cells, tuple[str, Interval]]:
    """Return the names and ratios of a run's compared cells.

    An arm is compared with its part's baseline, and with the arms that predictions name; another cell with the one that its column `ratio_to` names.
    Times decide nothing, and are left out, where the outputs were compared and differ or the rounds are too few.
    """
    found: dict[Cells, tuple[str, Interval]] = {}
    for cells, name, ratio in itertools.chain(_of_arms(known), _of_groups(known)):
        found.setdefault(cells, (name, ratio))
    return found


def _of_arms(known: Study) -> Iterator[tuple[Cells, str, Interval]]:
    several = sum(bool(part.arms) for part in known.plan.parts) > 1
    for effect in known.effects:
        if effect.measure.name == "latency_ms" and not effect.caveat:
            found = effect.contrast
            names = [f"{found.arm} / {found.against}", place_text({"seq_len": found.seq_len, **found.place}), found.part * several]
            yield found.cells, ", ".join(filter(None, names)), effect.estimate


def _of_groups(known: Study) -> Iterator[tuple[Cells, str, Interval]]:
    in_arms = {cell_id for part in known.plan.parts for arm in part.arms for cell_id in arm.cells}
    rows = {row["cell_id"]: row for row in row_values(known.cells) if row["cell_id"] not in in_arms and _may_be_compared(row)}
    keys = [key for key in NAME_KEYS if len({row[key] for row in rows.values()}) > 1]
    contrasts = num_contrasts(known.plan)
    for first, second in references_of(known.plan).items():
        if first in rows and second in rows and (ratio := ratio_of(first, second, known.timings, joint_level(contrasts.get(first, 1)))):
            yield (first, second), _name(rows[first], rows[second], keys), ratio


def _may_be_compared(row: Mapping[str, Any]) -> bool:
    return numbers.is_empty(row.get("equal")) or bool(row["equal"])


def _name(row: Mapping[str, Any], reference: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Name two cells by what differs between them, then by the place that they share."""
    own = [key for key in keys if row[key] != reference[key]]
    both = [", ".join(filter(None, (str(cell["label"]), place_text({key: cell[key] for key in own})))) for cell in (row, reference)]
    return f"{' / '.join(both)}, {place_text({key: row[key] for key in ('seq_len', *keys) if key not in own})}"


def _by_host(
    comparison: str, cells: Cells, by_run: Sequence[tuple[str, Mapping[Cells, tuple[str, Interval]]]], hosts: Sequence[Host]
) -> Iterator[HostRatio]:
    types = [host.type for host in hosts]
    for host in sorted(dict.fromkeys(hosts), key=lambda found: types.index(found.type)):
        ratios = tuple((name, found[cells][1]) for (name, found), own in zip(by_run, hosts, strict=True) if own == host and cells in found)
        if ratios:
            yield HostRatio(comparison=comparison, cells=cells, host=host, ratios=ratios)


def _hosts_of(runs: Sequence[StoredRun]) -> list[Host]:
    """Return the host of each run.

    Raises RequestError for fewer than two runs, and if a run is quick or its host is unknown.
    """
    if len(runs) < 2:
        raise RequestError(f"{len(runs)} run cannot be pooled", "name two or more: bench pool RUN RUN... (make replicate measures one)")
    for run in runs:
        if run.plan.settings.quick:
            raise RequestError(f"{run.folder} is a quick run, which decides nothing", "measure it without `quick`")
    if unknown := [str(run.folder) for run in runs if not is_known(run.environment)]:
        raise RequestError(f"host unknown: {', '.join(unknown)}", "measure again to pool")
    return [Host(type=str(host_type(run.environment)), work_version=str(run.environment["work_version"])) for run in runs]


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


def _require_no_duplicate(runs: Sequence[StoredRun]) -> None:
    """Raise RequestError if two runs share a record: one was copied from the other."""
    timed = [{canonical_json(record) for record in run.records if record.metric == "latency"} for run in runs]
    for first, second in itertools.combinations(range(len(runs)), 2):
        if timed[first] & timed[second]:
            raise RequestError(f"{runs[first].folder} and {runs[second].folder} contain the same records", "name each measurement once")

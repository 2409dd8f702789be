"""Choose, guard and annotate the folder of a run.

It notes the host's ceilings at the start and end of a run, and at its end the load and the executors used.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.files import TEMPORARY, write_json, writing
from bench.measure.hosts import AT_END, AT_START, CONTINUED_ON, HOST_FACTS, disagreements
from bench.needs import depends_on_host, needs_quiet, trains
from bench.planning.jobs import is_complete
from bench.progress import tell
from bench.reading.store import ENVIRONMENT, RECORDS, RunRecords, is_stored, read_environment, read_plan
from bench.running.writer import CORRUPT, RecordWriter, start_run
from bench.spec import PLAN, Job, Plan, RequestError


@dataclass(frozen=True, kw_only=True)
class ChosenFolder:
    """The folder that a run is written to.

    `complete`: it already holds the complete run.
    `records`: the folder's records.
    """

    folder: Path
    complete: bool
    records: RunRecords


def choose_folder(plan: Plan, out: Path | None, today: datetime.date, *, again: bool = False) -> ChosenFolder:
    """Return the folder for a run of the plan.

    `out`: exactly this folder. Without it, the folder of an unfinished run of the same plan in results/, from any day; otherwise a new
    folder results/<date>_<device>_<name>.
    `again`: some jobs will be measured again, so a complete run counts as unfinished.
    Raises RequestError if `out` holds something other than a run of this plan.
    """
    if out:
        _require_plan(out, plan)
        return _chosen(out, plan, again=again)
    for folder in sorted(Path("results").glob(f"*_{plan.name}*"), reverse=again):
        if _same_plan(folder, plan) and not (chosen := _chosen(folder, plan, again=again)).complete:
            return chosen
    return _chosen(unused_folder(plan.cells[0].cell.workload.device, plan.name, today), plan, again=again)


def unused_folder(device: str, name: str, today: datetime.date) -> Path:
    """Return an unused path results/<date>_<device>_<name>, numbered if needed.

    Creates nothing.
    """
    stem = f"{today.isoformat()}_{device}_{name}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(folder for name in names if not (folder := Path("results") / name).exists())


def claim_folder(plan: Plan, today: datetime.date) -> ChosenFolder:
    """Create the folder of a new run, so that no other that starts now takes it. Raises RequestError if it cannot be created."""
    while True:
        folder = unused_folder(plan.cells[0].cell.workload.device, plan.name, today)
        with writing(f"the run folder {folder}"):
            folder.parent.mkdir(exist_ok=True)
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return _chosen(folder, plan, again=False)


@contextlib.contextmanager
def writing_to(
    folder: Path,
    plan: Plan,
    facts: Mapping[str, Any],
    *,
    move_corrupt: bool,
    records: RunRecords,
    left: Callable[[], Iterable[Job]],
) -> Iterator[RecordWriter]:
    """Yield the only writer of the folder.

    A new folder gets a plan and an environment. `facts`: the environment of this process. `left`: returns the jobs left to run.
    Raises RequestError, and creates nothing, if the folder holds another run, or a run from another machine, software or code.
    Where trainings alone are left, the machine may be another.
    """
    _require_same_run(folder, plan, facts, left)
    with writing(f"the run folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    with RecordWriter(folder, move_corrupt=move_corrupt, records=records) as writer:
        _require_same_run(folder, plan, facts, left)  # check again: the lock now keeps other processes from changing it
        if _is_new(folder):
            start_run(folder, plan, facts)
        _note_host(folder, facts)
        if writer.num_corrupt:
            tell(f"moved {writer.num_corrupt} corrupt lines to {CORRUPT}")
        yield writer


def note_end(folder: Path, facts: Mapping[str, Any], executor: str, load: float | None) -> None:
    """Note the executors used and, on the machine that the run began on, the load at the end.

    `load`: one-minute average in processes, which reveals a busy machine; None if unknown.
    """
    noted = read_environment(folder)
    executors = sorted({*noted.get("executors", ()), executor})
    _note(folder, {"executors": executors, **({} if _elsewhere(noted, facts) else {"load_at_end": load})})


@contextlib.contextmanager
def ceilings_noted(folder: Path, facts: Mapping[str, Any], measure: Callable[[], Any]) -> Iterator[None]:
    """Note the host's ceilings before and after the jobs.

    A resumed run keeps the ceilings of its first start and replaces those at its end. An interrupted run gets none at its end, nor does one
    that ends on another machine than it began on.
    """
    if _elsewhere(read_environment(folder), facts):
        yield
        return
    if AT_START not in read_environment(folder):
        _note(folder, {AT_START: measure()})
    yield
    _note(folder, {AT_END: measure()})


def _elsewhere(noted: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return whether this is another machine, or other software, than that on which the run began."""
    return bool(disagreements(noted, facts, trained=False))


def _note_host(folder: Path, facts: Mapping[str, Any]) -> None:
    """Note each further environment that continues the run."""
    noted = read_environment(folder)
    own, hosts = {key: facts.get(key) for key in HOST_FACTS}, noted.get(CONTINUED_ON, [])
    if own not in ({key: noted.get(key) for key in HOST_FACTS}, *hosts):
        _note(folder, {CONTINUED_ON: [*hosts, own]})


def _note(folder: Path, facts: Mapping[str, Any]) -> None:
    write_json(folder / ENVIRONMENT, {**read_environment(folder), **facts})


def require_run_folder(folder: Path) -> None:
    """Raise RequestError unless the folder is new or holds a run."""
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file, not a folder", "choose another `out`")
    if not (_is_new(folder) or is_stored(folder / PLAN)):
        raise RequestError(f"{folder} is not empty and is not a run folder", "choose another `out`")


def _require_plan(folder: Path, plan: Plan) -> None:
    """Raise RequestError unless the folder is new or holds this plan."""
    require_run_folder(folder)
    if is_stored(folder / PLAN) and not _same_plan(folder, plan):
        _require_same_code(folder, plan)
        raise RequestError(f"{folder} holds another plan", "choose another `out`")


def _require_same_code(folder: Path, plan: Plan) -> None:
    """Raise RequestError if a user's own model has the code of its namesake in the folder no longer."""
    then, now = (
        {p.cell.model.name: p.cell.model.digest for p in found.cells if p.cell.model.digest} for found in (read_plan(folder), plan)
    )
    for name in then.keys() & now.keys():
        if then[name] != now[name]:
            raise RequestError(
                f"{name} has changed since {folder} was measured: its code was {then[name]} then, it is {now[name]} now",
                "their records must not be mixed; choose another `out`",
            )


def _require_same_run(folder: Path, plan: Plan, facts: Mapping[str, Any], left: Callable[[], Iterable[Job]]) -> None:
    """Raise RequestError unless the folder is new or holds this run.

    What its trainings learn does not depend on the machine, so they may go on elsewhere once all of its times are measured.
    """
    _require_plan(folder, plan)
    if _is_new(folder):
        return
    noted, trained = read_environment(folder), trains(plan)
    pairs = disagreements(noted, facts, trained=trained, timed=depends_on_host(plan))
    if pairs and _trainings_alone(left()):
        pairs = disagreements(noted, facts, trained=trained, timed=False)
    for key, (then, now) in pairs.items():
        raise RequestError(
            f"{folder} was measured with another {key}: {then!r} then, {now!r} now",
            f"their records must not be mixed; measure into a new folder: bench run --plan {shlex.quote(str(folder))} --out NEW",
        )


def _trainings_alone(left: Iterable[Job]) -> bool:
    """Return whether anything is left, and nothing that is timed."""
    metrics = {job.metric for job in left}
    return bool(metrics) and not any(map(needs_quiet, metrics))


def _is_new(folder: Path) -> bool:
    """Return whether the folder holds no run yet.

    It may be absent, empty, or left by a killed start: a start writes the environment last, so a folder without it holds no records.
    """
    return not folder.exists() or all(
        path.name == PLAN
        or (path.name == RECORDS and not path.stat().st_size)
        or (path.name.startswith(".") and path.name.endswith(TEMPORARY))
        for path in folder.iterdir()
    )


def _same_plan(folder: Path, plan: Plan) -> bool:
    try:
        return read_plan(folder).plan_id == plan.plan_id
    except RequestError:
        return False


def _chosen(folder: Path, plan: Plan, *, again: bool) -> ChosenFolder:
    records = RunRecords(folder)
    complete = not again and _same_plan(folder, plan) and is_complete(plan, records.read())
    return ChosenFolder(folder=folder, complete=complete, records=records)

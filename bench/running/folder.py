"""The folder of a run: which one a request gets, may it be written by this process, and what is noted in it at the beginning and the end."""

from __future__ import annotations

import contextlib
import datetime
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.files import TEMPORARY, write_json
from bench.measure.hosts import AT_END, AT_START, disagreements
from bench.planning.jobs import is_complete
from bench.planning.request import trains
from bench.progress import tell
from bench.running.store import (
    CORRUPT,
    ENVIRONMENT,
    RECORDS,
    RecordWriter,
    RunRecords,
    is_stored,
    read_environment,
    read_plan,
    read_plan_of_run,
    start_run,
)
from bench.spec import PLAN, Plan, RequestError

MAX_SAME_DAY = 1000


@dataclass(frozen=True, kw_only=True)
class ChosenFolder:
    """Where a run goes; whether it is there already, complete; its records."""

    folder: Path
    complete: bool
    records: RunRecords


def choose_folder(plan: Plan, out: Path | None, today: datetime.date, *, again: bool = False) -> ChosenFolder:
    """Where the run goes.

    `out` names the folder exactly. Without it: results/<date>_<device>_<name>, where an unfinished run of the same plan (of any day) is
    continued and a finished one is left alone beside a new one. `again`: something of it is to be measured again, so that it counts as unfinished.
    """
    if out:
        return _chosen(out, plan, again=again)
    for folder in sorted(Path("results").glob(f"*_{plan.name}*"), reverse=again):
        if _same_plan(folder, plan) and not (chosen := _chosen(folder, plan, again=again)).complete:
            return chosen
    return _chosen(unused_folder(plan.cells[0].cell.workload.device, plan.name, today), plan, again=again)


def unused_folder(device: str, name: str, today: datetime.date) -> Path:
    """results/<date>_<device>_<name>, numbered where that is taken. Makes nothing."""
    stem = f"{today.isoformat()}_{device}_{name}"
    for number in range(1, MAX_SAME_DAY):
        folder = Path("results") / (stem if number == 1 else f"{stem}-{number}")
        if not folder.exists():
            return folder
    raise RequestError(f"results/ already holds {MAX_SAME_DAY} runs named {stem}", "name one with --out")


def make_empty_folder(out: Path | None, device: str, name: str) -> Path:
    """Make the folder `out`, which must be empty or new, or without `out` an unused one in results/. Raises RequestError where it cannot be made."""
    folder = out or unused_folder(device, name, datetime.date.today())
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"{folder} is there already and not empty", "choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror or error}", "choose another --out") from error
    return folder


def report_folder(run_folder: Path) -> Path:
    """reports/<name> beside results/<name>; for a run elsewhere, `report` inside its folder."""
    resolved = run_folder.resolve()
    if resolved.parent.name == "results":
        return resolved.parent.parent / "reports" / resolved.name
    return run_folder / "report"


@contextlib.contextmanager
def writing_to(
    folder: Path, plan: Plan, facts: Mapping[str, Any], *, put_corrupt_aside: bool, records: RunRecords | None = None
) -> Iterator[RecordWriter]:
    """The one writer of the folder, which is made and given plan and environment where it is new. Raises RequestError, and makes nothing, where it
    holds another run, or this one from another machine, software or code."""
    _require_fit(folder, plan, facts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot write the run folder {folder}: {error.strerror or error}", "choose another --out") from error
    with RecordWriter(folder, put_corrupt_aside=put_corrupt_aside, records=records) as writer:
        _require_fit(folder, plan, facts)  # now that nobody else can change it
        if _is_new(folder):
            start_run(folder, plan, facts)
        if writer.num_corrupt:
            tell(f"{writer.num_corrupt} corrupt lines were put aside in {CORRUPT}")
        yield writer


def note_end(folder: Path, executor: str, load: float | None) -> None:
    """The load at the end, beside that at the beginning, and what has run jobs here: a busy machine is seen afterwards."""
    executors = sorted({*read_environment(folder).get("executors", ()), executor})
    _note(folder, {"executors": executors, "load_at_end": load})


@contextlib.contextmanager
def ceilings_noted(folder: Path, measure: Callable[[], Any]) -> Iterator[None]:
    """Note ceilings of the host before and after the jobs; where a run goes on, keep those of its first start and replace those of its end.

    An interrupted run gets none at its end.
    """
    if AT_START not in read_environment(folder):
        _note(folder, {AT_START: measure()})
    yield
    _note(folder, {AT_END: measure()})


def _note(folder: Path, facts: Mapping[str, Any]) -> None:
    write_json(folder / ENVIRONMENT, {**read_environment(folder), **facts})


def _require_fit(folder: Path, plan: Plan, facts: Mapping[str, Any]) -> None:
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file, not a folder", "choose another --out")
    if _is_new(folder):
        if is_stored(folder / PLAN) and not _same_plan(folder, plan):
            raise RequestError(f"{folder} holds another plan", "choose another --out")
        return
    if not is_stored(folder / PLAN):
        raise RequestError(f"{folder} is not empty, and holds no run", "choose another --out")
    if read_plan_of_run(folder).plan_id != plan.plan_id:
        raise RequestError(f"{folder} holds a run of another plan", "choose another --out")
    for key, (then, now) in disagreements(read_environment(folder), facts, trained=trains(plan)).items():
        raise RequestError(
            f"{folder} was measured with another {key}: {then!r} then, {now!r} now",
            f"its records must not be mixed with others; measure it anew: bench run --plan {shlex.quote(str(folder))} --out NEW",
        )


def _is_new(folder: Path) -> bool:
    """Does the folder hold nothing but leftovers of a start that was killed? The environment is written last."""
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

"""Time a plan's cells with two revisions in turn, storing each round.

A pilot is a short first measurement that sets the calls per burst and the number of blocks. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.console import cell_text, duration_text
from bench.files import write_json
from bench.planning.jobs import group_jobs
from bench.planning.timing import PILOT, Pilot, TimingGroup, designed, fits
from bench.progress import tell
from bench.running.code_run import CONTROL, FIRST, NAMES, SECOND, CellRound, CodeRun
from bench.running.interleave import take_turns
from bench.running.revision_member import RevisionCode, RevisionMember, run_alone
from bench.running.signals import Stop
from bench.serialize import to_json
from bench.spec import MEASURED, Cell, Job


def measure_code(run: CodeRun, codes: Sequence[RevisionCode], path: Path, stop: Stop) -> CodeRun:
    """Measure the plan with both revisions and return the run.

    The run is written to `path` after each pilot and after each round of a cell. A KeyboardInterrupt ends it at once; `stop` ends it
    after the current round of a cell, and is closing then. Both mark it as interrupted.
    """
    write_json(path, to_json(dataclasses.replace(run, interrupted=True)))
    found, complete = run, False
    try:
        for found, complete in _steps(run, codes):
            write_json(path, to_json(dataclasses.replace(found, interrupted=not complete)))
            if stop.requested:
                break
        stop.closing = True
    except KeyboardInterrupt:
        pass
    return dataclasses.replace(found, interrupted=not complete)


def _steps(run: CodeRun, codes: Sequence[RevisionCode]) -> Iterator[tuple[CodeRun, bool]]:
    """Yield the run after each step, and whether it is complete.

    A step is a pilot or a round of one cell. A cell that failed is not measured again.
    """
    settings = run.plan.settings
    cells = [planned.cell for planned in run.plan.cells]
    for cell in cells:
        job = Job(cell=cell, metric=PILOT, repeat=0, settings=settings)
        outcome = run_alone(job, codes[0])
        tell(f"pilot, {cell_text(job)}: {'done' if outcome.status == MEASURED else f'{outcome.status}: {outcome.reason}'}")
        run = dataclasses.replace(run, pilots={**run.pilots, cell.cell_id: outcome})
        yield run, False
    start, num_rounds = time.monotonic(), settings.rounds * len(cells)
    for repeat in range(settings.rounds):
        random.Random(f"{settings.seed}/{repeat}").shuffle(cells)
        for place, cell in enumerate(cells, start=1):
            num_done = repeat * len(cells) + place
            if not run.failure(cell.cell_id):
                run = dataclasses.replace(run, rounds=(*run.rounds, _cell_round(cell, repeat, run, codes)))
                left_s = (time.monotonic() - start) / num_done * (num_rounds - num_done)
                tell(_progress_text(run.rounds[-1], run) + (f"; {duration_text(left_s)} left" if num_done < num_rounds else ""))
            yield run, num_done == num_rounds


def _cell_round(cell: Cell, repeat: int, run: CodeRun, codes: Sequence[RevisionCode]) -> CellRound:
    """Measure one round of a cell, starting the processes in random order."""
    codes_by_name = {FIRST: codes[0], SECOND: codes[1], CONTROL: codes[0]}
    jobs = dict(zip(codes_by_name, group_jobs(_group_of(cell, run), run.plan.settings, repeat), strict=False))
    order = list(jobs)
    random.Random(f"{run.plan.settings.seed}/{cell.cell_id}/{repeat}").shuffle(order)
    members = [RevisionMember(jobs[name], codes_by_name[name]) for name in order]
    try:
        outcomes = dict(zip(order, take_turns(members), strict=True))
    finally:
        for member in members:
            member.close()
    return CellRound(cell_id=cell.cell_id, repeat=repeat, outcomes={name: outcomes[name] for name in jobs})


def _group_of(cell: Cell, run: CodeRun) -> TimingGroup:
    """Return the group of both revisions and the control.

    The control is left out if three processes do not fit in memory.
    """
    values = run.pilots[cell.cell_id].values
    pilot = Pilot(call_s=values["call_s"], peak_bytes=values.get("peak_bytes"), available_bytes=values.get("available_bytes"))
    pilots = {cell.cell_id: pilot}
    members = [(cell, False), (cell, False), (cell, True)]
    return designed(f"code/{cell.cell_id}", members if fits(members, pilots) else members[:2], pilots, run.plan.settings)


def _progress_text(done: CellRound, run: CodeRun) -> str:
    cell = next(planned.cell for planned in run.plan.cells if planned.cell.cell_id == done.cell_id)
    name = cell_text(Job(cell=cell, metric="latency", repeat=done.repeat))
    outcomes = [(NAMES[member], outcome) for member, outcome in done.outcomes.items()]
    failed = [f"{member} {outcome.status}: {outcome.reason}" for member, outcome in outcomes if outcome.status != MEASURED]
    times = [f"{member} {outcome.values['latency_ms']:.4g} ms" for member, outcome in outcomes if outcome.status == MEASURED]
    return f"round {done.repeat + 1} of {run.plan.settings.rounds}, {name}: {', '.join([*failed, *times])}"

"""Runs jobs on a Ray cluster, one at a time on each node's CPUs or on each GPU; the cluster at RAY_ADDRESS, or one of this machine alone.

Every slot runs `bench.slot` in a process of its own, so that a job is measured as `--on process` measures it. Nodes whose machine, software or code
differs from that of most slots are left out and named: their times must not be mixed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from bench.cluster import (
    NOT_HEARD,
    START_LIMIT_S,
    Place,
    Slot,
    difference,
    facts_of,
    leave_out,
    outcome_of,
    ray,
    room_for_slots,
    slots_of,
    start_actor,
)
from bench.environment import code_facts
from bench.plain_data import to_json
from bench.spec import Job, Outcome, RequestError

MAX_LOSSES = 3
"""A job whose worker or node is lost so often is given up: it may be the cause."""
LOOK_S = 5.0
"""How often nodes that joined the cluster are looked for."""
LOST = "lost_workers"
"""The value in an outcome that says how many workers or nodes were lost before."""


def inspect_environment(*, threads: int, device: str, allocator: str) -> dict[str, Any]:
    """The facts of the nodes that run the jobs. Raises RequestError where none can, or they run other code than this process."""
    there, here = dict(slots_of(Place(threads, device, allocator))[0].facts), code_facts()["code_version"]
    if there["code_version"] != here:
        raise RequestError(f"the nodes run version {there['code_version']!r}, and this is {here!r}", "install the same on all nodes")
    return there


class Executor:
    """A context manager. A cluster that was started for it ends with it; of one that was there already, only its own slots do."""

    def __init__(self) -> None:
        self._pool: _Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        slots_of.cache_clear()
        with contextlib.suppress(Exception):  # a cluster that is gone cannot be left
            ray().shutdown()

    def run(self, job: Job) -> Outcome:
        return next(outcome for _, outcome in self.run_many(iter([job])))

    def run_many(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Each job on a free slot. A job whose worker or node was lost is run again on another. Raises RequestError where no slot is left."""
        again: deque[Job] = deque()
        losses: Counter[Any] = Counter()
        while True:
            while self._pool is None or self._pool.free or not self._pool.working:
                if (job := again.popleft() if again else next(jobs, None)) is None:
                    break
                self._pool = self._pool or _Pool(_place_of(job))
                if not self._pool.free:
                    again.appendleft(job)
                    break
                self._pool.start(job)
            if self._pool is None or not (self._pool.working or again):
                return
            if not self._pool.may_have_slots():
                raise RequestError("no node of the Ray cluster is left", "start one, and go on with: bench run --resume RUN --on ray")
            for job, outcome in self._pool.ended():
                if outcome is None:
                    losses[job.key] += 1
                    what = "giving it up" if losses[job.key] >= MAX_LOSSES else "it runs again"
                    told = f"{job.metric} {job.repeat + 1} of {job.cell.model.name} n={job.cell.model.shape.seq_len}"
                    warnings.warn(f"a worker or node of the Ray cluster was lost during {told}; {what}", stacklevel=2)
                    if losses[job.key] < MAX_LOSSES:
                        again.append(job)
                        continue
                    outcome = Outcome(status="killed", reason=f"its worker or node was lost {MAX_LOSSES} times")
                yield job, _marked(outcome, losses[job.key])


class _Pool:
    """The slots of a cluster: free, working, or joining, as those of nodes that came later and of workers that take a lost one's place do."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.free = deque(slots_of(place))
        self.working: dict[Any, tuple[Slot, Job]] = {}
        self._joining: dict[Any, tuple[Slot, float]] = {}
        self._chosen = self.free[0]
        self._used = {slot.node for slot in self.free}
        self._seen = {node for node, _ in room_for_slots(place)}
        self._looked_s = time.monotonic()

    def start(self, job: Job) -> None:
        slot = self.free.popleft()
        self.working[slot.actor.run.remote(json.dumps(to_json(job)))] = (slot, job)

    def may_have_slots(self) -> bool:
        """Is any there, or coming?"""
        if not (self.free or self.working or self._joining):
            self._look_for_nodes()
        return bool(self.free or self.working or self._joining)

    def ended(self) -> Iterator[tuple[Job, Outcome | None]]:
        """The next jobs that end, after at most `LOOK_S`; None in the place of an outcome where the worker or node was lost."""
        done, _ = ray().wait([*self.working, *self._joining], num_returns=1, timeout=LOOK_S)
        for reference in done:
            if reference in self._joining:
                self._admit(reference)
                continue
            slot, job = self.working.pop(reference)
            outcome = outcome_of(reference)
            if outcome is None:
                self._replace(slot)
            else:
                self.free.append(slot)
            yield job, outcome
        if time.monotonic() - self._looked_s > LOOK_S:
            self._look_for_nodes()

    def _admit(self, reference: Any) -> None:
        asked, _ = self._joining.pop(reference)
        facts = facts_of(reference)
        slot = dataclasses.replace(asked, facts=facts or {})
        if reason := difference(self._chosen, slot) if facts else "its worker ended at once":
            leave_out(slot.actor, slot.node, reason)
            return
        if slot.node not in self._used:
            warnings.warn(f"node {slot.node[:8]} of the Ray cluster came later and joins the run", stacklevel=2)
        self._used.add(slot.node)
        self.free.append(slot)

    def _replace(self, lost: Slot) -> None:
        """Another slot on the same node, where it is still there."""
        with contextlib.suppress(Exception):
            ray().kill(lost.actor)
        if needs := dict(room_for_slots(self._place)).get(lost.node):
            self._ask_to_join(lost.node, needs)

    def _look_for_nodes(self) -> None:
        """Those that came since are asked to join; a slot that was asked and has not answered in time is given up."""
        self._looked_s = time.monotonic()
        for reference, (slot, asked_s) in list(self._joining.items()):
            if self._looked_s - asked_s > START_LIMIT_S:
                del self._joining[reference]
                leave_out(slot.actor, slot.node, NOT_HEARD)
        room = room_for_slots(self._place)
        for node, needs in room:
            if node not in self._seen:
                self._ask_to_join(node, needs)
        self._seen |= {node for node, _ in room}

    def _ask_to_join(self, node: str, needs: Mapping[str, Any]) -> None:
        slot = Slot(start_actor(node, needs, self._place), node, {})
        self._joining[slot.actor.facts.remote()] = (slot, time.monotonic())


def _place_of(job: Job) -> Place:
    return Place(job.settings.threads, job.cell.workload.device, job.settings.allocator)


def _marked(outcome: Outcome, num_lost: int) -> Outcome:
    return dataclasses.replace(outcome, values={**outcome.values, LOST: num_lost}) if num_lost else outcome

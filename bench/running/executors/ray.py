"""Runs jobs on a Ray cluster, one at a time on each node's CPUs or on each GPU; the cluster at RAY_ADDRESS, or one of this machine alone.

Every slot runs `bench.running.slot` in a process of its own, so that a job is measured as `--on process` measures it. Nodes whose machine, software
or code differs from that of most slots are left out and named: their times must not be mixed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from bench.measure.environment import code_facts
from bench.running.executors import Batch
from bench.running.executors._cluster import (
    CONNECT_LIMIT_S,
    NOT_HEARD,
    START_LIMIT_S,
    Place,
    Slot,
    difference,
    facts_of,
    leave_out,
    outcomes_of,
    ray,
    room_for_slots,
    slots_of,
    start_slot,
)
from bench.serialize import to_json
from bench.spec import Job, Outcome, RequestError

MAX_LOSSES = 3
"""A job whose worker or node is lost so often is given up: it may be the cause."""
LOOK_S = 5.0
"""How often nodes that joined the cluster are looked for."""
LOST = "lost_workers"
"""The value in an outcome that says how many workers or nodes were lost before."""


def inspect_environment(*, threads: int, device: str, allocator: str) -> dict[str, Any]:
    """The facts of the nodes that run the jobs. Raises RequestError where none can, or they run other code than this process."""
    there, here = dict(slots_of(Place(threads, device, allocator)).used[0].facts), code_facts()["code_version"]
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
        return self.run_group((job,))[0]

    def run_group(self, batch: Batch) -> list[Outcome]:
        return next(outcomes for _, outcomes in self.run_many(iter([batch])))

    def run_many(self, batches: Iterator[Batch]) -> Iterator[tuple[Batch, list[Outcome]]]:
        """Each batch on a free slot. One whose worker or node was lost is run again on another. Raises RequestError where no slot is left."""
        again: deque[Batch] = deque()
        losses: Counter[Any] = Counter()
        while True:
            while self._pool is None or self._pool.free or not self._pool.working:
                if (batch := again.popleft() if again else next(batches, None)) is None:
                    break
                self._pool = self._pool or _Pool(_place_of(batch[0]))
                if not self._pool.free:
                    again.appendleft(batch)
                    break
                self._pool.start(batch)
            if self._pool is None or not (self._pool.working or again):
                return
            if not self._pool.may_have_slots():
                raise RequestError("no node of the Ray cluster is left", "start one, and go on with: bench run --resume RUN --on ray")
            for batch, outcomes in self._pool.ended():
                job = batch[0]
                if outcomes is None:
                    losses[job.key] += 1
                    what = "giving it up" if losses[job.key] >= MAX_LOSSES else "it runs again"
                    told = f"{job.metric} {job.repeat + 1} of {job.cell.model.name} n={job.cell.model.shape.seq_len}"
                    warnings.warn(f"a worker or node of the Ray cluster was lost during {told}; {what}", stacklevel=2)
                    if losses[job.key] < MAX_LOSSES:
                        again.append(batch)
                        continue
                    lost = Outcome(status="killed", reason=f"its worker or node was lost {MAX_LOSSES} times")
                    outcomes = [lost for _ in batch]
                yield batch, [_marked(outcome, losses[job.key]) for outcome in outcomes]


class _Pool:
    """The slots of a cluster: free, working, or joining, as those of nodes that came later and of workers that take a lost one's place do."""

    def __init__(self, place: Place) -> None:
        self._place = place
        slots = slots_of(place)
        self.free = deque(slots.used)
        self.working: dict[Any, tuple[Slot, Batch]] = {}
        self._joining: dict[Any, tuple[Slot, float]] = {}
        self._chosen = slots.used[0]
        self._nodes = {slot.node for slot in slots.used}
        self._differing = set(slots.left_out)
        self._failures: Counter[str] = Counter()
        self._room = _Room(place)

    def start(self, batch: Batch) -> None:
        slot = self.free.popleft()
        self.working[slot.actor.run.remote(json.dumps([to_json(job) for job in batch]))] = (slot, batch)

    def may_have_slots(self) -> bool:
        """Is any there, or coming?"""
        if not (self.free or self.working or self._joining):
            self._fill(self._room.now())
        return bool(self.free or self.working or self._joining)

    def ended(self) -> Iterator[tuple[Batch, list[Outcome] | None]]:
        """The next batches that end, after at most `LOOK_S`; None in the place of outcomes where the worker or node was lost."""
        done, _ = ray().wait([*self.working, *self._joining], num_returns=1, timeout=LOOK_S)
        for reference in done:
            if reference in self._joining:
                self._admit(reference)
                continue
            slot, batch = self.working.pop(reference)
            outcomes = outcomes_of(reference)
            if outcomes is None:
                self._replace(slot)
            else:
                self.free.append(slot)
            yield batch, outcomes
        self._fill(self._room.latest())

    def _admit(self, reference: Any) -> None:
        asked, _ = self._joining.pop(reference)
        facts = facts_of(reference)
        if facts is None:
            self._failures[asked.node] += 1
            warnings.warn(f"no slot could be started on node {asked.node[:8]} of the Ray cluster", stacklevel=2)
            return
        slot = dataclasses.replace(asked, facts=facts)
        if reason := difference(self._chosen, slot):
            self._differing.add(slot.node)
            leave_out(slot, reason)
            return
        if slot.node not in self._nodes:
            warnings.warn(f"node {slot.node[:8]} of the Ray cluster came later and joins the run", stacklevel=2)
        self._nodes.add(slot.node)
        self.free.append(slot)

    def _replace(self, lost: Slot) -> None:
        """By another slot on the same node, which cannot be started where that is gone too."""
        with contextlib.suppress(Exception):
            ray().kill(lost.actor)
        self._ask_to_join(lost.node, lost.needs)

    def _fill(self, room: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Slots are asked for where nodes have more room than slots; one that was asked for and has not answered in time is given up."""
        for reference, (slot, asked_s) in list(self._joining.items()):
            if time.monotonic() - asked_s > START_LIMIT_S:
                del self._joining[reference]
                self._failures[slot.node] += 1
                leave_out(slot, NOT_HEARD)
        there = Counter(slot.node for slot in (*self.free, *(slot for slot, _ in (*self.working.values(), *self._joining.values()))))
        for node, needs in room:
            there[node] -= 1
            if there[node] < 0 and node not in self._differing and self._failures[node] < MAX_LOSSES:
                self._ask_to_join(node, needs)

    def _ask_to_join(self, node: str, needs: Mapping[str, Any]) -> None:
        slot = start_slot(node, needs, self._place)
        self._joining[slot.actor.facts.remote()] = (slot, time.monotonic())


class _Room:
    """What the nodes have room for, asked every `LOOK_S` in a thread of its own: a cluster whose head is gone blocks whoever asks."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._asked_s = time.monotonic()
        self._asking: threading.Thread | None = None
        self._answers: list[list[tuple[str, dict[str, Any]]]] = []

    def latest(self) -> list[tuple[str, dict[str, Any]]]:
        """The answer that came since the last call; empty where none did."""
        if time.monotonic() - self._asked_s > LOOK_S and not (self._asking and self._asking.is_alive()):
            self._ask()
        return self._answers.pop() if self._answers else []

    def now(self) -> list[tuple[str, dict[str, Any]]]:
        """The answer to a question asked now; empty where none comes within `CONNECT_LIMIT_S`."""
        if not (self._asking and self._asking.is_alive()):
            self._answers.clear()
            self._ask()
        assert self._asking is not None
        self._asking.join(CONNECT_LIMIT_S)
        return self._answers.pop() if self._answers else []

    def _ask(self) -> None:
        self._asked_s = time.monotonic()
        self._asking = threading.Thread(target=self._answer, daemon=True)
        self._asking.start()

    def _answer(self) -> None:
        with contextlib.suppress(Exception):  # a cluster that is gone
            self._answers.append(room_for_slots(self._place))


def _place_of(job: Job) -> Place:
    return Place(job.settings.threads, job.cell.workload.device, job.settings.allocator)


def _marked(outcome: Outcome, num_lost: int) -> Outcome:
    return dataclasses.replace(outcome, values={**outcome.values, LOST: num_lost}) if num_lost else outcome

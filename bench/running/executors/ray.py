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
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from bench.measure.environment import code_facts
from bench.running.executors import Batch
from bench.running.executors._cluster import (
    CONNECT_LIMIT_S,
    NOT_HEARD,
    START_LIMIT_S,
    Place,
    Room,
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
from bench.spec import Job, Outcome, RecordKey, RequestError

MAX_LOSSES = 3
"""A job whose worker or node is lost so often is given up: it may be the cause."""
LOOK_S = 5.0
"""Seconds between two looks for nodes that joined the cluster."""
LOST = "lost_workers"
"""The value in an outcome that counts the workers or nodes lost before."""


def inspect_environment(*, threads: int, device: str, allocator: str) -> dict[str, Any]:
    """Return the facts of the nodes that run the jobs. Raises RequestError where none can, or they run other code than this process."""
    slots, _ = slots_of(Place(threads, device, allocator))
    there, here = dict(slots[0].facts), code_facts()["code_version"]
    if there["code_version"] != here:
        raise RequestError(f"the nodes run version {there['code_version']!r}, and this is {here!r}", "install the same on all nodes")
    return there


class Executor:
    """A context manager. On exit it ends its own slots, and the whole cluster where that was started for it."""

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
        """Run each batch on a free slot, and again on another where its worker or node was lost. Raises RequestError where no slot is left."""
        first = next(batches, None)
        if first is None:
            return
        pool = self._pool = self._pool or _Pool(
            Place(first[0].settings.threads, first[0].cell.workload.device, first[0].settings.allocator)
        )
        waiting, losses = deque([first]), Counter[RecordKey]()
        while True:
            while pool.free and (batch := waiting.popleft() if waiting else next(batches, None)):
                pool.start(batch)
            if not (pool.working or waiting):
                if pool.free or not (batch := next(batches, None)):
                    return
                waiting.append(batch)
            if not pool.may_have_slots():
                raise RequestError("no node of the Ray cluster is left", "start one, and go on with: bench run --resume RUN --on ray")
            for batch, outcomes in pool.ended():
                job = batch[0]
                if outcomes is None:
                    losses[job.key] += 1
                    is_last = losses[job.key] >= MAX_LOSSES
                    name = f"{job.metric} {job.repeat + 1} of {job.cell.model.name} n={job.cell.model.shape.seq_len}"
                    then = "giving it up" if is_last else "it runs again"
                    warnings.warn(f"a worker or node of the Ray cluster was lost during {name}; {then}", stacklevel=2)
                    if not is_last:
                        waiting.append(batch)
                        continue
                    outcomes = [Outcome(status="killed", reason=f"its worker or node was lost {MAX_LOSSES} times") for _ in batch]
                if num_lost := losses[job.key]:
                    outcomes = [dataclasses.replace(outcome, values={**outcome.values, LOST: num_lost}) for outcome in outcomes]
                yield batch, outcomes


class _Pool:
    """The slots of a cluster: free, working, or joining, on nodes that came later or in place of lost workers."""

    def __init__(self, place: Place) -> None:
        self._place = place
        slots, differing = slots_of(place)
        self.free = deque(slots)
        self.working: dict[Any, tuple[Slot, Batch]] = {}
        self._joining: dict[Any, tuple[Slot, float]] = {}
        self._chosen = slots[0]
        self._nodes = {slot.node for slot in slots}
        self._differing = set(differing)
        self._failures: Counter[str] = Counter()
        self._asked_s = time.monotonic()
        self._asking: threading.Thread | None = None
        self._answers: list[Room] = []

    def start(self, batch: Batch) -> None:
        slot = self.free.popleft()
        self.working[slot.actor.run.remote(json.dumps([to_json(job) for job in batch]))] = (slot, batch)

    def may_have_slots(self) -> bool:
        """Look for room where no slot is left; False where none can be started either."""
        if not (self.free or self.working or self._joining):
            self._fill(self._room(wait_s=CONNECT_LIMIT_S))
        return bool(self.free or self.working or self._joining)

    def ended(self) -> Iterator[tuple[Batch, list[Outcome] | None]]:
        """Yield the next batches that end, within `LOOK_S`; None for outcomes where the worker or node was lost."""
        done, _ = ray().wait([*self.working, *self._joining], num_returns=1, timeout=LOOK_S)
        for reference in done:
            if reference in self._joining:
                self._admit(reference)
                continue
            slot, batch = self.working.pop(reference)
            outcomes = outcomes_of(reference)
            if outcomes is not None:
                self.free.append(slot)
            else:  # another slot takes its place; it cannot start where the node is gone too
                with contextlib.suppress(Exception):
                    ray().kill(slot.actor)
                self._ask_to_join(slot.node, slot.needs)
            yield batch, outcomes
        self._fill(self._room())

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

    def _fill(self, room: Room) -> None:
        """Ask for slots where nodes have room for more. Give up those that were asked for and have not answered in time."""
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

    def _room(self, *, wait_s: float = 0.0) -> Room:
        """Return the room that nodes were found to have since the last call; ask every `LOOK_S`, or at once in order to wait for the answer.

        A thread asks: a cluster whose head is gone blocks whoever asks.
        """
        if wait_s:
            self._answers.clear()  # to an earlier question
        elif self._answers:
            return self._answers.pop()
        if not (self._asking and self._asking.is_alive()) and (wait_s or time.monotonic() - self._asked_s > LOOK_S):
            self._asked_s = time.monotonic()
            self._asking = threading.Thread(target=self._ask, daemon=True)
            self._asking.start()
        if self._asking:
            self._asking.join(wait_s)
        return self._answers.pop() if self._answers else []

    def _ask(self) -> None:
        with contextlib.suppress(Exception):  # a cluster that is gone
            self._answers.append(room_for_slots(self._place))

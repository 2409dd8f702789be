"""Run jobs on a Ray cluster, one at a time per slot.

The cluster is the one at RAY_ADDRESS, or a new one on this machine alone. A slot is a GPU, or a share of the CPUs of a node. Every slot runs
`bench.running.slot` in its own process, so jobs are measured as with `--on process`. Nodes that differ from most in machine, software
or code are left out with a warning, because their times must not be mixed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shlex
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from bench.measure.environment import code_facts
from bench.needs import needs_quiet
from bench.progress import speaking
from bench.running.executors import SLOTS_VARIABLE, Batch
from bench.running.executors._cluster import (
    CONNECT_LIMIT_S,
    NO_ANSWER,
    OWN,
    START_LIMIT_S,
    Slot,
    SlotSettings,
    SlotSpecs,
    difference,
    end_slot,
    facts_of,
    head_answers,
    leave_out,
    outcomes_of,
    possible_slots,
    ray,
    slots_of,
    start_slot,
)
from bench.serialize import to_json
from bench.spec import Job, Outcome, RecordKey, RequestError

MAX_LOSSES = 3
"""A job that loses this many workers is given up."""
POLL_S = 5.0
"""Seconds between two checks for nodes that joined the cluster."""
HEAD_LIMIT_S = 30.0
"""Seconds without an answer after which a head that cannot be reached is lost. After 60 s Ray would end this process, with its own words."""
LOST = "lost_workers"
"""The outcome's value that counts lost workers or nodes of its job."""


def inspect_environment(*, threads: int, device: str) -> dict[str, Any]:
    """Return the facts of the nodes that run the jobs.

    Raises RequestError if no node can run jobs, or if the nodes run other code than this process.
    """
    slots, _ = slots_of(settings_of(threads, device))
    facts, own_version = dict(slots[0].facts), code_facts()["code_version"]
    if facts["code_version"] != own_version:
        raise RequestError(
            f"the nodes run version {facts['code_version']!r}, but this machine runs {own_version!r}",
            "install the same version on all nodes",
        )
    return facts


class Executor:
    """A context manager that ends its slots on exit.

    A cluster that was started for it ends too.
    """

    def __init__(self) -> None:
        self._pool: _Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        slots_of.cache_clear()
        with contextlib.suppress(Exception):  # the cluster may be gone
            ray().shutdown()

    def run(self, job: Job) -> Outcome:
        return self.run_group((job,))[0]

    def run_group(self, batch: Batch) -> list[Outcome]:
        return next(outcomes for _, outcomes in self.run_many(iter([batch])))

    def run_many(self, batches: Iterator[Batch]) -> Iterator[tuple[Batch, list[Outcome]]]:
        """Run each batch on a free slot; yield outcomes as batches end.

        Where slots share the CPUs of a node, a batch that measures time or memory runs alone.
        A batch whose worker or node is lost runs again on another slot, up to MAX_LOSSES times. Raises ConnectionError if no slot is left, or if
        the head of the cluster is lost.
        """
        first = next(batches, None)
        if first is None:
            return
        pool = self._pool = self._pool or _Pool(settings_of(first[0].settings.threads, first[0].cell.workload.device))
        waiting, losses = deque([first]), Counter[RecordKey]()
        while True:
            while pool.free and not pool.is_reserved and (batch := waiting.popleft() if waiting else next(batches, None)):
                if pool.working and pool.must_be_alone(batch):
                    waiting.appendleft(batch)
                    break
                pool.start(batch)
            if not (pool.working or waiting):
                if pool.free or not (batch := next(batches, None)):
                    return
                waiting.append(batch)
            if reason := pool.why_lost():
                raise ConnectionError(
                    errno.ENOTCONN, f"{reason} ({_how_to_go_on(first[0].run_folder)})", os.environ.get("RAY_ADDRESS") or OWN
                )
            for batch, outcomes in pool.ended():
                job = batch[0]
                if outcomes is None:
                    losses[job.key] += 1
                    is_last = losses[job.key] >= MAX_LOSSES
                    name = f"{job.metric} (repeat {job.repeat + 1}) of {job.cell.model.name} n={job.cell.model.shape.seq_len}"
                    consequence = "the job is given up" if is_last else "the job runs again"
                    warnings.warn(f"a worker or node of the Ray cluster was lost during {name}; {consequence}", stacklevel=2)
                    if not is_last:
                        waiting.append(batch)
                        continue
                    outcomes = [Outcome(status="killed", reason=f"its worker or node was lost {MAX_LOSSES} times") for _ in batch]
                if num_lost := losses[job.key]:
                    outcomes = [dataclasses.replace(outcome, values={**outcome.values, LOST: num_lost}) for outcome in outcomes]
                yield batch, outcomes


def settings_of(threads: int, device: str) -> SlotSettings:
    """Return the settings of slots, with the number that the environment sets.

    Raises RequestError if it sets one for GPUs.
    """
    wanted = os.environ.get(SLOTS_VARIABLE)
    if wanted and device == "cuda":
        raise RequestError("`slots` share the CPUs of a node, but with `device=cuda` each GPU is one slot", "leave `slots` out")
    return SlotSettings(threads, device, int(wanted or 1))


def _how_to_go_on(run_folder: str) -> str:
    slots = os.environ.get(SLOTS_VARIABLE)
    command = shlex.join(["bench", "run", "--resume", run_folder, "--on", "ray", *(["--slots", slots] if slots else [])])
    if os.environ.get("RAY_ADDRESS", OWN) in ("", OWN):
        return f"what was measured is stored; go on with: {command}"
    return f"what was measured is stored; start a cluster, then: {command} --address HOST:6379"


class _Pool:
    """The slots of a cluster.

    `free`: slots waiting for a batch.
    `working`: slots and their batches, by the reference of the pending outcomes.
    `_joining`: slots that have yet to answer: on new nodes, in place of lost workers, or beside them, with the time of the request.
    `_failures`: failed starts by node.
    `_queried_s`, `_answered_s`: when the cluster was last asked for its nodes, and when it last answered.
    """

    def __init__(self, settings: SlotSettings) -> None:
        self._settings = settings
        slots, differing = slots_of(settings)
        self.free = deque(slots)
        self.working: dict[Any, tuple[Slot, Batch]] = {}
        self._joining: dict[Any, tuple[Slot, float]] = {}
        self._chosen = slots[0]
        self._nodes = {slot.node for slot in slots}
        self._differing = set(differing)
        self._failures: Counter[str] = Counter()
        self._queried_s = time.monotonic()
        self._query: threading.Thread | None = None
        self._answers: list[SlotSpecs] = []
        self._answered_s = self._queried_s

    def start(self, batch: Batch) -> None:
        slot = self.free.popleft()
        self.working[slot.actor.run.remote(json.dumps([to_json(job) for job in batch]))] = (slot, batch)

    def must_be_alone(self, batch: Batch) -> bool:
        """Return whether other jobs at the same time would change what a batch measures."""
        return self._settings.per_node > 1 and needs_quiet(batch[0].metric)

    @property
    def is_reserved(self) -> bool:
        """Whether a batch runs that must be alone."""
        return any(self.must_be_alone(batch) for _, batch in self.working.values())

    def why_lost(self) -> str:
        """Return why the cluster can run no job; "" if it can. Tries to start a slot if none exists."""
        if time.monotonic() - self._answered_s > HEAD_LIMIT_S and not head_answers():
            return "the head of the Ray cluster is lost"
        if not (self.free or self.working or self._joining):
            self._start_missing(self._poll_possible_slots(wait_s=CONNECT_LIMIT_S))
        return "" if self.free or self.working or self._joining else "no node of the Ray cluster is left"

    def ended(self) -> Iterator[tuple[Batch, list[Outcome] | None]]:
        """Yield the batches that end next, waiting at most POLL_S seconds.

        Outcomes are None if the worker or node was lost.
        """
        done, _ = ray().wait([*self.working, *self._joining], num_returns=1, timeout=POLL_S)
        for reference in done:
            if reference in self._joining:
                self._admit(reference)
                continue
            slot, batch = self.working.pop(reference)
            with speaking(batch[0]):
                outcomes = outcomes_of(reference)
            if outcomes is not None:
                self.free.append(slot)
            else:  # request a replacement; it cannot start if the node is gone too
                end_slot(slot)
                self._request_slot(slot.node, slot.needs)
                self._ask_again(slot.node)
            yield batch, outcomes
        self._start_missing(self._poll_possible_slots())

    def _ask_again(self, node: str) -> None:
        """Use no free slot of a node before it answers: if the whole node is lost, a batch would be lost on each."""
        for slot in [slot for slot in self.free if slot.node == node]:
            self.free.remove(slot)
            self._joining[slot.actor.facts.remote()] = (slot, time.monotonic())

    def _admit(self, reference: Any) -> None:
        """Use a slot that has answered, unless its node differs."""
        requested, _ = self._joining.pop(reference)
        facts = facts_of(reference)
        if facts is None:
            end_slot(requested)
            self._failures[requested.node] += 1
            warnings.warn(f"no slot could be started on node {requested.node[:8]} of the Ray cluster", stacklevel=2)
            return
        slot = dataclasses.replace(requested, facts=facts)
        if reason := difference(self._chosen, slot):
            self._differing.add(slot.node)
            leave_out(slot, reason)
            return
        if slot.node not in self._nodes:
            warnings.warn(f"new node {slot.node[:8]} of the Ray cluster joins the run", stacklevel=2)
        self._nodes.add(slot.node)
        self.free.append(slot)

    def _start_missing(self, possible: SlotSpecs) -> None:
        """Request slots that do not exist yet, and give up overdue requests."""
        for reference, (slot, requested_s) in list(self._joining.items()):
            if time.monotonic() - requested_s > START_LIMIT_S:
                del self._joining[reference]
                self._failures[slot.node] += 1
                leave_out(slot, NO_ANSWER)
        existing = Counter(slot.node for slot in (*self.free, *(slot for slot, _ in (*self.working.values(), *self._joining.values()))))
        for node, needs in possible:
            existing[node] -= 1
            if existing[node] < 0 and node not in self._differing and self._failures[node] < MAX_LOSSES:
                self._request_slot(node, needs)

    def _request_slot(self, node: str, needs: Mapping[str, Any]) -> None:
        slot = start_slot(node, needs, self._settings)
        self._joining[slot.actor.facts.remote()] = (slot, time.monotonic())

    def _poll_possible_slots(self, *, wait_s: float = 0.0) -> SlotSpecs:
        """Return the possible slots found since the last call.

        Empty if there is no answer yet. The cluster is queried every POLL_S seconds, or at once if `wait_s` is set, waiting that long for the
        answer. The query runs in a thread, because it blocks if the head of the cluster is gone.
        """
        if wait_s:
            self._answers.clear()  # discard the answer to an earlier query
        elif self._answers:
            return self._answers.pop()
        if not (self._query and self._query.is_alive()) and (wait_s or time.monotonic() - self._queried_s > POLL_S):
            self._queried_s = time.monotonic()
            self._query = threading.Thread(target=self._run_query, daemon=True)
            self._query.start()
        if self._query:
            self._query.join(wait_s)
        return self._answers.pop() if self._answers else []

    def _run_query(self) -> None:
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._answers.append(possible_slots(self._settings))
            self._answered_s = time.monotonic()

"""Interleave the members of a timing group, burst by burst, and trainings, a fraction of a second each.

In each block every member has one turn, in random order; only one is active at a time. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from bench.spec import MEASURED, Job, Outcome

STANDS_STILL = 0.05
"""Share of a core below which a process counts as idle.

OpenMP workers spin for a while after their work is done.
"""
POLL_S, MAX_WAIT_S = 0.0002, 1.0
"""Seconds between checks for an idle process, and the longest wait."""


class Member(Protocol):
    """A job in its own process, which sleeps between turns.

    `outcome`: None until the job has ended, successfully or not.
    """

    job: Job
    outcome: Outcome | None

    def begin(self) -> None:
        """Let the process build its step; on a CPU, warm it up too."""

    def ready(self) -> None:
        """Wait until that is done."""

    def warm_up(self) -> None:
        """Warm up on a GPU."""

    def burst(self) -> None: ...

    def end(self) -> None:
        """Set the outcome, from all bursts."""

    def processor_s(self) -> float | None:
        """Return the processor time of its process in seconds; None if unknown."""


def take_turns(members: Sequence[Member]) -> list[Outcome]:
    """Warm up every member, run all blocks, and return the outcomes.

    If a member fails or dies, the others continue. Outcomes are in the order of the members. They share one `started_at`, which
    identifies the members timed together. The value `restless_turns` counts a member's bursts that began while the previous member was
    still busy.
    """
    started_at, began = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"), time.perf_counter()
    restless: dict[int, int] = {}
    on_cpu = members[0].job.cell.workload.device == "cpu"
    starting = starting_order(members)
    for member in starting:
        member.begin()
        if on_cpu:
            member.ready()
    if not on_cpu:  # setting up takes seconds there, so all members do at the same time; but each compiles and warms up alone
        for member in starting:
            member.ready()
        for member in starting:
            if member.outcome is None:
                member.warm_up()
    for member, previous in _turn_order(members):
        if previous is not None and not stands_still(previous):
            restless[id(member)] = restless.get(id(member), 0) + 1
        member.burst()
    for member in members:
        if member.outcome is None:
            member.end()
    busy_s = sum(member.outcome.duration_s or 0.0 for member in members if member.outcome)
    # members that set up at the same time were busy for longer in all than the group took
    share = min(1.0, (time.perf_counter() - began) / busy_s) if busy_s and not on_cpu else 1.0
    return [_final_outcome(member, started_at, restless.get(id(member), 0), share) for member in members]


def starting_order(members: Sequence[Member]) -> list[Member]:
    """Return the members in a random order, reversed in the next round.

    Of two equal processes, the one started first is slightly faster (docs/decisions/0020).
    """
    return _shuffled(members, members[0].job, _generator(members[0].job, "start"))


def _generator(job: Job, purpose: str) -> random.Random:
    """Return the random generator of a round.

    An even round and the next one have equal generators. The second reverses every order, so that effects of the order cancel.
    """
    return random.Random(f"{job.settings.seed}/{job.group or job.beside}/{purpose} {job.repeat // 2}")


def _shuffled(members: Sequence[Member], job: Job, generator: random.Random) -> list[Member]:
    found = list(members)
    generator.shuffle(found)
    return found[::-1] if job.repeat % 2 else found


def stands_still(member: Member) -> bool:
    """Wait until a member is idle; return whether it is.

    Waits at most MAX_WAIT_S seconds. A member is idle when it uses less than STANDS_STILL of a core. True if its processor time is
    unknown.
    """
    deadline = time.monotonic() + MAX_WAIT_S
    before, since = member.processor_s(), time.perf_counter()
    while before is not None and time.monotonic() < deadline:
        time.sleep(POLL_S)
        now, until = member.processor_s(), time.perf_counter()
        if now is None or now - before <= STANDS_STILL * (until - since):
            return True
        before, since = now, until
    return before is None


def _turn_order(members: Sequence[Member]) -> Iterator[tuple[Member, Member | None]]:
    """Yield each member at its turn, with the previous member.

    At the first turn, or after itself, the previous member is None. Each block has all members that have not ended, in a random order
    that the next round reverses. Trainings have turns until all have ended.
    """
    job = members[0].job
    generator = _generator(job, "blocks")
    previous: Member | None = None
    for _ in range(job.num_blocks) if job.group else itertools.count():
        alive = [member for member in members if member.outcome is None]
        if not alive:
            return
        for member in _shuffled(alive, job, generator):
            yield member, previous if previous is not member else None
            previous = member


def _final_outcome(member: Member, started_at: str, restless: int, share: float) -> Outcome:
    """Return a member's outcome; `share` scales its duration."""
    outcome = member.outcome
    assert outcome is not None
    if outcome.duration_s is not None:
        outcome = dataclasses.replace(outcome, duration_s=share * outcome.duration_s)
    beside = {} if member.job.group else {"took_turns": True}
    values = {**outcome.values, "restless_turns": restless, **beside} if outcome.status == MEASURED else outcome.values
    return dataclasses.replace(outcome, started_at=started_at, values=values)


def processor_s(pid: int) -> float | None:
    """Return the processor time of all threads of a process, in seconds.

    Read from the process's CPU clock with nanosecond resolution (clock_getcpuclockid(3)). None if the process is gone or has no such
    clock.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None

"""The members of a timing group take turns: one is active at a time, in random order within a block. Imports no torch."""

from __future__ import annotations

import dataclasses
import datetime
import random
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from bench.spec import MEASURED, Job, Outcome

STANDS_STILL = 0.05
"""The share of a core that a process which waits may take. Workers of OpenMP spin for a while after their work is done."""
LOOK_S, MAX_WAIT_S = 0.001, 1.0


class Member(Protocol):
    """A job in a process of its own, which sleeps between turns. `outcome`: None until it has ended, well or not."""

    job: Job
    outcome: Outcome | None

    def begin(self) -> None:
        """Have it build its step and warm up."""

    def ready(self) -> None:
        """Wait until it is warm."""

    def burst(self) -> None: ...

    def end(self) -> None:
        """Give the outcome of all bursts."""

    def processor_s(self) -> float | None:
        """Processor time of its process so far; None where the system does not tell."""


def take_turns(members: Sequence[Member]) -> list[Outcome]:
    """Warm every member up, then run one burst of each per block; one that fails or dies leaves the others to go on.

    The outcomes are in the order of the members and bear one `started_at`, by which those that were timed together are known. `restless_turns`:
    bursts that began while the one before was still busy.
    """
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    restless: dict[int, int] = {}
    for member in starting_order(members):
        member.begin()
        if member.job.cell.workload.device == "cpu":
            member.ready()
    for member in members:  # on a GPU, setting up takes seconds, which all spend at once
        member.ready()
    for member, before in _in_order(members):
        if before is not None and not stands_still(before):
            restless[id(member)] = restless.get(id(member), 0) + 1
        member.burst()
    for member in members:
        if member.outcome is None:
            member.end()
    return [_marked(member, started_at, restless.get(id(member), 0)) for member in members]


def starting_order(members: Sequence[Member]) -> list[Member]:
    """In random order, which the next round turns round: of two equal processes, the one started first is a little faster (docs/decisions/0020)."""
    return _in_drawn_order(members, members[0].job, _draw(members[0].job, "start"))


def _draw(job: Job, what: str) -> random.Random:
    """The same for a round of even number and the one after it, which turns every order round: what an order favours cancels."""
    return random.Random(f"{job.settings.seed}/{job.group}/{what} {job.repeat // 2}")


def _in_drawn_order(members: Sequence[Member], job: Job, draw: random.Random) -> list[Member]:
    found = list(members)
    draw.shuffle(found)
    return found[::-1] if job.repeat % 2 else found


def stands_still(member: Member) -> bool:
    """Wait until the processor time of a member no longer rises, for a second at most."""
    deadline = time.monotonic() + MAX_WAIT_S
    before, since = member.processor_s(), time.perf_counter()
    while before is not None and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        now, until = member.processor_s(), time.perf_counter()
        if now is None or now - before <= STANDS_STILL * (until - since):
            return True
        before, since = now, until
    return before is None


def _in_order(members: Sequence[Member]) -> Iterator[tuple[Member, Member | None]]:
    """Whose turn it is, and whose it was before; in each block all that are still there, in random order, which the next round turns round."""
    job = members[0].job
    draw = _draw(job, "blocks")
    before: Member | None = None
    for _ in range(job.num_blocks):
        for member in _in_drawn_order([member for member in members if member.outcome is None], job, draw):
            yield member, before if before is not member else None
            before = member


def _marked(member: Member, started_at: str, restless: int) -> Outcome:
    outcome = member.outcome
    assert outcome is not None
    values = {**outcome.values, "restless_turns": restless} if outcome.status == MEASURED else outcome.values
    return dataclasses.replace(outcome, started_at=started_at, values=values)

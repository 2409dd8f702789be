"""Keep the members of a timing group on the same processors. Imports no torch.

Each core of a virtual machine has a neighbour of its own. Members on two cores would compare the neighbours (docs/decisions/0020).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Set
from pathlib import Path

from bench.spec import Job

TOPOLOGY = Path("/sys/devices/system/cpu")


def processors_of(job: Job) -> frozenset[int]:
    """Return the processors that all members of a job's group use in its round; the next round uses other ones.

    Empty if they stay free to move: on a GPU, where the driver and the compiler have threads of their own; where a job needs every
    processor; where the system cannot pin; and in trainings, of which several may run on one machine, unknown to each other.
    """
    usable, threads = usable_processors(), job.settings.threads
    if job.recipe is not None or job.cell.workload.device != "cpu" or threads >= len(usable):
        return frozenset()
    first = job.repeat * threads
    return frozenset(usable[(first + place) % len(usable)] for place in range(threads))


def usable_processors() -> list[int]:
    """Return the processors that this process may use, one of every core first; empty if the system cannot tell."""
    try:
        found = os.sched_getaffinity(0)
    except (AttributeError, OSError):
        return []
    return sorted(found, key=lambda number: (_place_in_core(number), number))


def pin(pid: int, processors: Set[int]) -> bool:
    """Let a process that has one thread run on these processors alone; return whether it does.

    Threads that it starts later inherit this.
    """
    try:
        os.sched_setaffinity(pid, processors)
    except (AttributeError, OSError):
        return False
    return True


@contextlib.contextmanager
def kept_free(processors: Set[int]) -> Iterator[None]:
    """Keep this thread off the given processors, if there are others."""
    before = frozenset(usable_processors())
    others = before - processors
    moved = bool(processors and others) and pin(0, others)
    try:
        yield
    finally:
        if moved:
            pin(0, before)


def _place_in_core(number: int) -> int:
    """Return how many processors of the same core have a lower number; 0 if unknown."""
    try:
        text = (TOPOLOGY / f"cpu{number}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return 0
    return sum(_length_below(part, number) for part in text.strip().split(","))


def _length_below(part: str, number: int) -> int:
    """Return how many numbers of a range such as `4-7` or `4` are below `number`."""
    first, _, last = part.partition("-")
    return max(0, min(int(last or first) + 1, number) - int(first)) if first.isdigit() else 0

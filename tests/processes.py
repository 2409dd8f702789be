"""Finding a run's processes, and waiting for what it writes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path


def processes_of(session: int) -> Iterator[tuple[int, int]]:
    """Process and parent, of all in the session."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                yield int(path.parent.name), int(fields[1])


def worker_and_server(run: int) -> tuple[int | None, int | None]:
    """The process that measures, and the fork server that it came from; None where there is none now."""
    parents = dict(processes_of(run))
    for process, parent in parents.items():
        if parents.get(parent) == run:
            return process, parent
    return None, None


def wait_for_lines(folder: Path, pattern: str, num: int) -> None:
    """Until a file of that pattern has so many whole lines. Raises AssertionError after a minute."""
    for _ in range(1200):
        if any(path.read_bytes().count(b"\n") >= num for path in folder.glob(pattern)):
            return
        time.sleep(0.05)
    raise AssertionError(f"no {num} lines in {pattern} of {sorted(path.name for path in folder.iterdir())}")

"""A run that goes on while the test does something to it: starting it, finding its processes, waiting for what it writes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.record import RECORDS
from bench.stopping import SIGNALS
from tests.specimens import ROOT, bench_command, environment_of


@contextlib.contextmanager
def started(
    folder: Path,
    *request: str,
    num_lines: int,
    stream: int = subprocess.PIPE,
    prepare: Callable[[], None] = lambda: None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """The run, once it has so many records. In a session of its own: signals to the group reach its workers and server too. `prepare` is called in
    its process before it starts; `stream` is its three standard streams, if it is no pipe."""

    def first() -> None:
        _mind_signals()
        prepare()

    with subprocess.Popen(
        bench_command(*request),
        cwd=folder,
        env={**environment_of(ROOT), **(variables or {})},
        text=True,
        preexec_fn=first,
        start_new_session=True,
        stdin=None if stream == subprocess.PIPE else stream,
        stdout=stream,
        stderr=stream,
    ) as run:
        wait_for_lines(folder, f"**/{RECORDS}", num_lines)
        yield run


def _mind_signals() -> None:
    """A shell that starts the tests in the background leaves interrupts ignored, and children inherit that."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


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

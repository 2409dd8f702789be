"""A run that goes on while the test does something to it: starting it, finding its processes, waiting for what it writes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from bench.files import packed_path
from bench.reading.store import RECORDS
from bench.running.signals import SIGNALS
from bench.running.writer import RecordWriter
from tests.specimens import ROOT, bench_command, environment_of

LISTENING = "0A"
TEST_PROCESS = "PYTEST_XDIST_WORKER"
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


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
        wait_for_lines(run, folder, num_lines)
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


def processes_that_inherited(variable: str) -> list[int]:
    """Those whose environment has this `NAME=value`, whatever session they are of."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def slot_processes() -> list[int]:
    """Those of `--on ray` that hold a slot, on this machine; of this process's tests, where others run beside them."""
    found = []
    mine = processes_that_inherited(f"{TEST_PROCESS}={os.environ[TEST_PROCESS]}") if TEST_PROCESS in os.environ else None
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"bench.running.slot" in words and (mine is None or int(path.parent.name) in mine):
            found.append(int(path.parent.name))
    return found


def listening_addresses(processes: Iterable[int]) -> set[str]:
    """Where they wait for connections by TCP, as the kernel writes it: hexadecimal, byte order of the machine."""
    sockets: set[str] = set()
    for process in processes:
        for path in Path(f"/proc/{process}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(path))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].partition(":")[0])
    return found


def worker_and_server(run: int) -> tuple[int | None, int | None]:
    """The process that measures, and the fork server that it came from; None where there is none now."""
    parents = dict(processes_of(run))
    for process, parent in parents.items():
        if parents.get(parent) == run:
            return process, parent
    return None, None


def wait_for_lines(run: subprocess.Popen[str], folder: Path, num: int) -> None:
    """Until its records have so many whole lines. Raises AssertionError after five minutes, or where the run has ended before, with what it said."""
    for _ in range(6000):
        ended = run.poll() is not None
        plain = folder.glob(f"**/{RECORDS}")
        if any(path.read_bytes().count(b"\n") >= num for path in plain) or any(folder.glob(f"**/{packed_path(Path(RECORDS))}")):
            return
        assert not ended, run.communicate()
        time.sleep(0.05)
    raise AssertionError(f"no {num} records in {sorted(path.name for path in folder.iterdir())}")


def unpacked_records(folder: Path) -> Path:
    """The plain file of records in a run's folder, unpacked where the run is complete."""
    with RecordWriter(folder):
        return folder / RECORDS

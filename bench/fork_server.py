"""The server that all processes are forked from: it has imported torch and the program, and nothing else.

Imports no torch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from multiprocessing import forkserver, spawn, util
from multiprocessing.connection import Connection
from typing import Any

from bench.variables import variables_restored

PRELOAD = ["bench.running.ignore_signals", "bench.running.preload"]
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1"}
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Keeps the folder in which the program happens to run off the server's path: it may have a `models` or `bench` of its own."""
LONGEST_TEMPORARY = 60
"""Bytes of a temporary folder's name to which the names of multiprocessing's sockets can be added: a socket's may have about 100."""
DEATH_S = 60.0  # far longer than a killed process takes to disappear, even on a busy machine
STARTING = threading.Lock()
"""Held while a process starts, because that changes variables of this process."""
MAIN = ("init_main_from_name", "init_main_from_path", "main_path")
"""Entries by which multiprocessing tells a process to import this one's main module."""
_context = multiprocessing.get_context("forkserver")
_libraries: set[str] = set()


def use_libraries(names: Collection[str]) -> None:
    """Let the server import these libraries too, so that no job has to; a server that began without them is replaced."""
    if not _libraries.issuperset(names):
        _libraries.update(names)
        _leave_server()


def _leave_server() -> None:
    """Have the next process start a server of its own; the present one ends with its last child.

    multiprocessing's own way of stopping waits for that end: forever, if a child lives on.
    """
    server: Any = forkserver._forkserver
    with server._lock:
        if server._forkserver_pid is None:
            return
        os.close(server._forkserver_alive_fd)
        threading.Thread(target=_reap, args=(server._forkserver_pid,), daemon=True).start()
        server._forkserver_alive_fd = server._forkserver_address = server._forkserver_pid = None


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def new_process(target: Any, *arguments: Any) -> tuple[Any, Connection]:
    """Start a process that runs `target(connection, *arguments)`; return it with the other end of the connection.

    Raises ConnectionError or EOFError if there is no server to fork it.
    """
    connection, theirs = _context.Pipe()
    process = _context.Process(target=target, args=(theirs, *arguments), daemon=True)
    try:
        start(process)
    finally:
        theirs.close()
    return process, connection


def start(process: Any) -> None:
    """Start a process, first the server itself if none is alive.

    A killed server closes its socket shortly before the system reports its death, so connecting fails for a moment; then retry.
    Raises ConnectionError or EOFError if that fails for DEATH_S.
    """
    deadline = time.monotonic() + DEATH_S
    _context.set_forkserver_preload([*PRELOAD, *sorted(_libraries)])
    # Python 3.11's server ignores this process's sys.path and silently skips modules that it cannot import
    with (
        STARTING,
        _main_module_left_out(),
        _environment(
            {**SINGLE_THREADED, **SAFE_PATH, **_quiet_tracker(), "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
        ),
    ):
        _keep_sockets_short()
        while True:
            try:
                process.start()
                return
            except (ConnectionError, EOFError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def _quiet_tracker() -> dict[str, str]:
    """Keep Python's tracker of semaphores from telling of those that a killed job held: it removes them."""
    usual = os.environ.get("PYTHONWARNINGS", "")
    return {"PYTHONWARNINGS": ",".join(filter(None, (usual, "ignore:resource_tracker:UserWarning")))}


def _keep_sockets_short() -> None:
    """Let multiprocessing keep its sockets in /tmp if the usual folder's name is too long for them, as Python 3.14 does."""
    usual = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST_TEMPORARY and os.path.isdir("/tmp"):
        tempfile.tempdir = "/tmp"
        try:
            util.get_temp_dir()  # chosen once
        finally:
            tempfile.tempdir = usual


@contextlib.contextmanager
def _main_module_left_out() -> Iterator[None]:
    """Keep new processes from importing this one's main module.

    They need nothing of it, and importing a script without a guard would run it again.
    """
    usual = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        return {key: value for key, value in usual(name).items() if key not in MAIN}

    spawn.get_preparation_data = without_main
    try:
        yield
    finally:
        spawn.get_preparation_data = usual


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    with variables_restored(variables):
        os.environ.update(variables)
        yield

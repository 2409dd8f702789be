"""Run a job with one revision's code in a fresh interpreter.

The other end of the pipe is `bench.running.turns`. Imports no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench.errors import one_line
from bench.fork_server import SINGLE_THREADED
from bench.measure.processors import pin
from bench.planning.jobs import TIMED_OUT, limit_s
from bench.running.child import COMPILE_CACHE, STOP_GRACE_S, compile_cache, died
from bench.running.interleave import processor_s
from bench.running.revisions import OWN_FOLDER, tree_of
from bench.running.turns import BUILT
from bench.serialize import from_json, to_json
from bench.spec import Job, Outcome


class RevisionMember:
    """A member of a timing group, as in `bench.running.interleave.Member`.

    The time limit counts only active time. Always call `close`. The process has its own process group, so that it does not receive the
    terminal's signals.
    """

    def __init__(self, job: Job, compiled: Path, processors: frozenset[int] = frozenset()) -> None:
        """Take a job of another revision's code.

        `compiled`: folder for the compiled code of its models.
        `processors`: those that its process runs on; all if empty.
        """
        self.job = job
        self.outcome: Outcome | None = None
        self._tree, self._compiled, self._processors = tree_of(job.cell.workload.code), compiled, processors
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._is_built = False
        self._left_s = limit_s(job)

    def begin(self) -> None:
        """Start the interpreter and send the job.

        A job of a timing group is built and warmed up; any other job runs to its end.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.running.turns"],
            cwd=self._tree,
            env=_environment(self.job, self._tree, self._compiled),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            process_group=0,
        )
        if self._processors:
            pin(self._process.pid, self._processors)
        own = replace(self.job.cell, workload=replace(self.job.cell.workload, code=""))  # an older revision does not know of others
        self._ask(to_json(replace(self.job, cells=(), cell=own), defaults=False))

    def ready(self) -> None:
        """Do nothing, since `begin` already waited."""

    def warm_up(self) -> None:
        """Warm up, unless an older revision did so when it began."""
        if self._is_built:
            self._ask(True)

    def burst(self) -> None:
        self._ask(True)

    def end(self) -> None:
        self._ask(False)

    def processor_s(self) -> float | None:
        return processor_s(self._process.pid) if self._process else None

    def kill(self) -> None:
        """Begin to end the process and its children."""
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and its children, and wait until it has ended."""
        self.kill()
        if self._process:
            with self._process:
                self._process = None

    def _ask(self, message: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        start = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # the process died; `_answer` reports how
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self.outcome = self._answer(start + self._left_s)
        self._left_s -= time.monotonic() - start
        if self.outcome is not None:
            self.close()

    def _answer(self, deadline: float) -> Outcome | None:
        assert self._process is not None
        try:
            answer = json.loads(self._line(deadline))
            self._is_built = answer == BUILT
            return None if answer is None or self._is_built else from_json(Outcome, answer)
        except TimeoutError:
            return Outcome(status=TIMED_OUT, reason=f"longer than the limit of {limit_s(self.job):g} s")
        except EOFError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_GRACE_S)
            return died(self._process.returncode)
        except ValueError as error:
            return Outcome(status="failed", reason=f"cannot read the answer of the process: {one_line(error)}")

    def _line(self, deadline: float) -> bytes:
        """Return the next line of the process.

        Raises EOFError if the process ends, TimeoutError after the deadline.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            read = self._process.stdout.read(2**16)
            if not read:
                raise EOFError
            self._unread += read
        line, self._unread = self._unread.split(b"\n", 1)
        return line


def run_alone(job: Job, compiled: Path) -> Outcome:
    """Run a job without a timing group and return its outcome."""
    member = RevisionMember(job, compiled)
    try:
        member.begin()
        assert member.outcome is not None
        return member.outcome
    finally:
        member.close()


def _environment(job: Job, tree: Path, compiled: Path) -> dict[str, str]:
    """Return this process's environment variables, with the revision's packages first.

    The packages of this process are removed from PYTHONPATH.
    """
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and Path(path).resolve() != OWN_FOLDER]
    variables = {"PYTHONPATH": os.pathsep.join([str(tree), *others]), COMPILE_CACHE: compile_cache(str(compiled), job)}
    return {**os.environ, **SINGLE_THREADED, **variables}

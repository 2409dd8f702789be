"""Measure one job for a parent of any revision: `python -m bench.running.turns`.

It reads lines of JSON and answers each with one line. The first line is a job. A job without a timing group runs, and the answer is its
outcome. A job with a timing group begins, and the answer is null, or "built" on a GPU, where the first `true` asks for the warm-up; then `true`
asks for a burst and `false` for the end. Each is answered by null, or by the outcome once the job has ended. The program ends when its parent
or its input is gone.

`bench diff --code` can only measure revisions that have this file and keep this protocol.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from bench.errors import one_line
from bench.running import worker
from bench.running.child import die_with_parent
from bench.serialize import from_json, to_json
from bench.spec import Job, Outcome

BUILT = "built"
"""The answer of a job that has yet to warm up."""


def main() -> None:
    """Answer the lines of stdin on stdout.

    All other output goes to stderr.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for answer in answer_lines(sys.stdin):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def answer_lines(lines: Iterator[str]) -> Iterator[Any]:
    """Yield the answer to each line, as JSON data.

    Sets threads, allocator and memory limit of this process for the job.
    """
    try:
        job = from_json(Job, json.loads(next(lines, "")))
    except ValueError as error:
        yield to_json(Outcome(status="failed", reason=f"this revision cannot read the job: {one_line(error)}"))
        return
    worker.prepare_process(job)
    if not job.group:
        yield to_json(worker.run_job(job))
        return
    turns = worker.Turns(job)
    turns.begin()
    answer = None if job.cell.workload.device == "cpu" else BUILT
    while turns.outcome is None:
        yield answer
        answer = None
        line = next(lines, "")
        if not line:
            return
        if json.loads(line):
            turns.burst()
        else:
            turns.end()
    yield to_json(turns.outcome)


if __name__ == "__main__":
    main()

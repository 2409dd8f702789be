"""A place where jobs run that is not the run's own process: `python -m bench.running.slot THREADS DEVICE ALLOCATOR`.

Lines of JSON: first it says what it is (`facts`); then, for each job on stdin, what the job tells (`told`) and what became of it (`outcome`). It
runs jobs as `--on process` does, and ends with its parent or its input.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from bench.measure.environment import inspect_environment
from bench.progress import listening
from bench.running.executors.process import Executor, die_with_parent
from bench.serialize import from_json, to_json
from bench.spec import Job


def main(threads: str, device: str, allocator: str) -> None:
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed must not end up among the answers

    def say(kind: str, content: Any) -> None:
        answers.write(json.dumps({kind: content}) + "\n")
        answers.flush()

    say("facts", inspect_environment(threads=int(threads), device=device, allocator=allocator))
    with Executor() as runner, listening(lambda text: say("told", text)):
        for line in sys.stdin:
            say("outcome", to_json(runner.run(from_json(Job, json.loads(line)))))


if __name__ == "__main__":
    main(*sys.argv[1:])

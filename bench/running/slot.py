"""A place where jobs run that is not the run's own process: `python -m bench.running.slot THREADS DEVICE ALLOCATOR NODE`.

It reads lines and answers in lines of JSON. To `facts` it says what it is (`facts`); to a batch of jobs, what they tell (`told`) and what became of
them (`outcomes`). It runs jobs as `--on process` does, and ends with its parent, its input or its GPU.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

from bench.measure.environment import gpu_facts, inspect_environment
from bench.progress import listening
from bench.running.executors import run_batch
from bench.running.executors.process import Executor, die_with_parent
from bench.serialize import from_json, to_json
from bench.spec import Job

RAN_ON = "ran_on"
"""The value in an outcome that says on which node its job ran, and on which GPU of it."""
FACTS = "facts"
"""The line that asks what the slot is."""


def main(threads: str, device: str, allocator: str, node: str) -> None:
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed must not end up among the answers

    def say(kind: str, content: Any) -> None:
        answers.write(json.dumps({kind: content}) + "\n")
        answers.flush()

    ran_on = f"{node}:{os.environ['CUDA_VISIBLE_DEVICES']}" if device == "cuda" else node
    with Executor() as runner, listening(lambda text: say("told", text)):
        for line in sys.stdin:
            if line.strip() == FACTS:
                say("facts", inspect_environment(threads=int(threads), device=device, allocator=allocator))
                continue
            outcomes = run_batch(runner, tuple(from_json(Job, job) for job in json.loads(line)))
            if device == "cuda" and any(outcome.status == "failed" for outcome in outcomes) and not gpu_facts()["gpu"]:
                sys.exit("its GPU is gone")  # another slot runs the jobs; this one would fail all jobs, and faster than others do them
            say("outcomes", [to_json(dataclasses.replace(outcome, values={**outcome.values, RAN_ON: ran_on})) for outcome in outcomes])


if __name__ == "__main__":
    main(*sys.argv[1:])

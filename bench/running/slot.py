"""Run jobs for another process: `python -m bench.running.slot THREADS DEVICE NODE`.

It reads one request per line and answers in lines of JSON. The request `facts` is answered by {"facts": environment}. A JSON list of
jobs is answered by any number of {"progress": text}, then {"outcomes": [...]}. Jobs run as with `--on process`. The program ends when
its parent, its input or its GPU is gone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

from bench.measure.environment import gpu_facts, inspect_environment
from bench.progress import listening
from bench.running.child import die_with_parent
from bench.running.executors import run_batch
from bench.running.executors.process import Executor
from bench.serialize import from_json, to_json
from bench.spec import Job

RAN_ON = "ran_on"
"""The outcome's value with the job's node, and on CUDA its GPU."""
FACTS = "facts"
"""The request for the slot's environment."""


def main(threads: str, device: str, node: str) -> None:
    """Answer the requests on stdin until it closes."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # other output must not mix with the answers

    def answer(kind: str, content: Any) -> None:
        answers.write(json.dumps({kind: content}) + "\n")
        answers.flush()

    ran_on = f"{node}:{os.environ['CUDA_VISIBLE_DEVICES']}" if device == "cuda" else node
    with Executor() as runner, listening(lambda text: answer("progress", text)):
        for line in sys.stdin:
            if line.strip() == FACTS:
                answer("facts", inspect_environment(threads=int(threads), device=device))
                continue
            outcomes = run_batch(runner, tuple(from_json(Job, job) for job in json.loads(line)))
            if device == "cuda" and any(outcome.status == "failed" for outcome in outcomes) and not gpu_facts()["gpu"]:
                sys.exit("the GPU of this slot is gone")  # otherwise it would take, and fail, jobs faster than working slots
            answer("outcomes", [to_json(dataclasses.replace(outcome, values={**outcome.values, RAN_ON: ran_on})) for outcome in outcomes])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The protocol of `python -m bench.running.turns`: lines of JSON in, one line of JSON for each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.running import turns, worker
from bench.serialize import to_json
from bench.spec import MEASURED, Job, Outcome
from tests.running.small_plan import small_plan
from tests.specimens import copy_of_the_program, environment_of

NOISY_METRIC = '''"""Prints while it takes turns."""

from bench.metrics import Measurement

REPEAT = "round"
COLUMNS = ()


def take_turns(job):
    print("a stray line")
    bursts = 0
    while (yield):
        print("another one")
        bursts += 1
    return Measurement(values={"bursts": bursts})


def summarise(records):
    return {}
'''


def job(metric: str = "latency", group: str = "compare/x") -> Job:
    return Job(cell=small_plan().cells[0].cell, metric=metric, repeat=0, group=group, num_calls=1, num_blocks=2)


class FakeTurns:
    """Counts its bursts; ends when it is asked to, or by itself after `ends_after` of them."""

    ends_after = 100

    def __init__(self, job: Job) -> None:
        self.job = job
        self.outcome: Outcome | None = None
        self.bursts = -1

    def begin(self) -> None:
        self.burst()

    def burst(self) -> None:
        self.bursts += 1
        if self.bursts == self.ends_after:
            self.outcome = Outcome(status="failed", reason="planted")

    def end(self) -> None:
        self.outcome = Outcome(status=MEASURED, values={"bursts": self.bursts})


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that this process was prepared for, instead of preparing it."""
    found: list[Job] = []
    monkeypatch.setattr(worker, "prepare_process", found.append)
    monkeypatch.setattr(worker, "Turns", FakeTurns)
    return found


def answers(*messages: Any) -> list[Any]:
    lines: Iterator[str] = iter([json.dumps(message) + "\n" for message in messages])
    return list(turns.answer_lines(lines))


def test_each_line_of_a_group_has_one_answer_and_the_last_is_the_outcome(prepared: list[Job]) -> None:
    begun, first, second, outcome = answers(to_json(job()), True, True, False)
    assert (begun, first, second) == (None, None, None)
    assert (outcome["status"], outcome["values"]) == (MEASURED, {"bursts": 2})
    assert prepared == [job()]


def test_a_job_that_ends_by_itself_answers_its_outcome_to_a_burst(prepared: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTurns, "ends_after", 1)
    found = answers(to_json(job()), True, True)
    assert [answer and answer["reason"] for answer in found] == [None, "planted"]
    assert prepared


def test_a_job_without_a_group_is_run(prepared: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "run_job", lambda job: Outcome(status=MEASURED, values={"metric": job.metric}))
    (outcome,) = answers(to_json(job("pilot", group="")))
    assert outcome["values"] == {"metric": "pilot"}
    assert prepared


@pytest.mark.parametrize("message", [{**to_json(job()), "from_the_future": 1}, None])
def test_a_job_that_cannot_be_read_fails_with_its_reason(message: Any, prepared: list[Job]) -> None:
    (outcome,) = answers(message)
    assert outcome["status"] == "failed"
    assert outcome["reason"].startswith("this revision cannot read the job: ")
    assert prepared == []


@pytest.mark.slow
def test_stray_prints_stay_away_from_the_answers(tmp_path: Path) -> None:
    program = copy_of_the_program(tmp_path)
    (program / "bench" / "metrics" / "noisy.py").write_text(NOISY_METRIC)
    lines = [json.dumps(message) for message in (to_json(job("noisy")), True, True, False)]
    ran = subprocess.run(
        [sys.executable, "-m", "bench.running.turns"],
        input="\n".join(lines) + "\n",
        cwd=program,
        env=environment_of(program),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    *nothing, outcome = [json.loads(line) for line in ran.stdout.splitlines()]
    assert nothing == [None, None, None]
    assert (outcome["status"], outcome["values"]) == (MEASURED, {"bursts": 2})
    assert ran.stderr.count("a stray line") == 1
    assert ran.stderr.count("another one") == 2

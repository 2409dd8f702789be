"""A member in another interpreter, which here runs a tree that misbehaves on demand: whatever it does, there is an outcome and no process is left."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.running import revisions
from bench.running.revision_member import RevisionMember, run_alone
from bench.running.revisions import OWN_FOLDER
from bench.spec import Job, Settings
from tests.processes import processes_that_inherited
from tests.running import test_turns
from tests.running.waiting import comes_true

MARK = "REVISION_MEMBER_TEST"
SCRIPT = """
import json, os, signal, subprocess, sys, time
job = json.loads(sys.stdin.readline())
outcome = {"status": "measured", "values": {"folder": os.getcwd(), "path": os.environ["PYTHONPATH"], "group": os.getpgid(0) == os.getpid()}}
{behaviour}
"""
OBEDIENT = """
print("null", flush=True)
for line in sys.stdin:
    print("null" if json.loads(line) else json.dumps(outcome), flush=True)
"""


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Set in the environment of every process that the test starts; none of them may be there at its end."""
    value = f"{tmp_path.name}-{os.getpid()}"
    monkeypatch.setenv(MARK, value)
    yield f"{MARK}={value}"
    assert are_gone(f"{MARK}={value}")


def are_gone(mark: str) -> bool:
    """A process that is killed, and is no child of this one, is there for a moment longer."""
    return comes_true(lambda: processes_that_inherited(mark) == [])


CODE = "0123456789"


def job(metric: str = "latency", group: str = "g") -> Job:
    """A job of the other code."""
    found = test_turns.job(metric, group=group)
    return dataclasses.replace(found, cell=dataclasses.replace(found.cell, workload=dataclasses.replace(found.cell.workload, code=CODE)))


@pytest.fixture(autouse=True)
def no_trees() -> Iterator[None]:
    yield
    revisions._TREES.clear()


def code_that(behaviour: str, folder: Path) -> Path:
    """Check out a tree whose `bench.running.turns` reads the job, then does this; return the folder for compiled code."""
    running = folder / "tree" / "bench" / "running"
    running.mkdir(parents=True)
    for package in (running.parent, running):
        (package / "__init__.py").touch()
    (running / "turns.py").write_text(SCRIPT.replace("{behaviour}", behaviour))
    revisions._TREES[CODE] = folder / "tree"
    return folder / "compiled"


def patient(seconds: float) -> Job:
    return Job(cell=job().cell, metric="latency", repeat=0, group="g", settings=Settings(limit_s=seconds))


def test_it_runs_the_code_of_its_tree(tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(OWN_FOLDER), "/elsewhere"]))
    code = code_that(OBEDIENT, tmp_path)
    member = RevisionMember(job(), code)
    member.begin()
    assert member.outcome is None
    assert (member.processor_s() or 0) > 0
    assert len(processes_that_inherited(mark)) == 1
    member.burst()
    assert member.outcome is None
    member.end()
    assert member.outcome is not None
    assert member.outcome.values == {
        "folder": str(tmp_path / "tree"),
        "path": os.pathsep.join([str(tmp_path / "tree"), "/elsewhere"]),
        "group": True,
    }
    member.close()


@pytest.mark.parametrize(
    ("behaviour", "status", "reason"),
    {
        "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        "exit": ("sys.exit(3)", "failed", "exit code 3"),
        "garbage": ("print('hello', flush=True); time.sleep(60)", "failed", "cannot read the answer"),
        "unknown field": ('print(\'{"status": "measured", "mood": 1}\', flush=True)', "failed", "'mood'"),
        "half a line": ("os.write(1, b'nul')", "failed", "exit code 0"),
    }.values(),
)
def test_however_it_ends_there_is_an_outcome(behaviour: str, status: str, reason: str, tmp_path: Path, mark: str) -> None:
    outcome = run_alone(job(), code_that(behaviour, tmp_path))
    assert outcome.status == status
    assert reason in outcome.reason
    assert are_gone(mark)


def test_a_limit_that_passes_kills_it_and_what_it_started(tmp_path: Path, mark: str) -> None:
    """It has begun an answer."""
    grandchild = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    member = RevisionMember(patient(0.5), code_that(grandchild + "os.write(1, b'nul'); time.sleep(60)", tmp_path))
    member.begin()
    assert member.outcome is not None
    assert (member.outcome.status, member.outcome.reason) == ("timed_out", "longer than the limit of 0.5 s")
    assert are_gone(mark)
    assert member.processor_s() is None


@pytest.mark.slow
def test_the_times_in_which_it_is_active_add_up_and_no_other_counts(tmp_path: Path, mark: str) -> None:
    member = RevisionMember(
        patient(2.5), code_that(f"time.sleep(1.5){OBEDIENT.replace('    print', '    time.sleep(1.5); print')}", tmp_path)
    )
    member.begin()
    time.sleep(1.1)
    assert member.outcome is None
    member.burst()
    assert member.outcome is not None
    assert member.outcome.status == "timed_out"
    assert mark


def test_an_interrupt_leaves_no_process(tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    code = code_that("time.sleep(60)", tmp_path)
    monkeypatch.setattr(RevisionMember, "_line", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_alone(job(), code)
    assert are_gone(mark)


def test_what_it_is_given_is_the_job(tmp_path: Path, mark: str) -> None:
    echo = "outcome['values'] = {'job': job}; print(json.dumps(outcome), flush=True)"
    outcome = run_alone(job("pilot", group=""), code_that(echo, tmp_path))
    found = json.loads(json.dumps(outcome.values["job"]))
    assert found["metric"] == "pilot"
    assert "code" not in found["cell"]["workload"]  # an older revision does not know this field
    assert mark


@pytest.mark.parametrize(("first", "num_bursts"), [('"built"', 1), ("null", 0)])
def test_on_a_gpu_it_warms_up_when_asked_but_an_older_revision_did_so_at_once(
    first: str, num_bursts: int, tmp_path: Path, mark: str
) -> None:
    """A burst more than its partner's would pair every later burst with the wrong one."""
    count = """
print({first}, flush=True)
asked = 0
for line in sys.stdin:
    asked += json.loads(line)
    outcome["values"] = {{"asked": asked}}
    print("null" if json.loads(line) else json.dumps(outcome), flush=True)
"""
    member = RevisionMember(job(), code_that(count.format(first=f"'{first}'"), tmp_path))
    member.begin()
    member.warm_up()
    member.end()
    assert member.outcome is not None
    assert member.outcome.values == {"asked": num_bursts}
    assert mark

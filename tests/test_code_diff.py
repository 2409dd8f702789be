"""`bench diff --code` as a contributor meets it: what is refused, planted slowness, equal code, interrupts that leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import cli, code_diff
from bench.commands.run import Measured, Stopped
from bench.intervals import ratio_over_rounds
from bench.planning.jobs import jobs
from bench.reading.store import RunRecords, read_run
from bench.reading.table import rows_of
from bench.running.revisions import Revision
from bench.spec import Plan, Record
from tests.processes import processes_of
from tests.running.test_revisions import commit, git
from tests.specimens import bench_command, copy_of_the_program, environment_of

VIT = ("--models", "vit", "--seq", "17", "--width", "16", "--depth", "1", "--batch", "1", "--quick")
REQUEST = ("--models", "gmlp", *VIT[2:])
FORWARD = "    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:\n"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What would be measured; every name is a revision."""
    found: list[Plan] = []

    def carry_out(plan: Plan, *_: object) -> Measured:
        found.append(plan)
        raise Stopped(Path("results/x"))

    monkeypatch.setattr(code_diff, "find_revision", lambda name: Revision(name=name, commit=name.ljust(40, "a")))
    monkeypatch.setattr(code_diff, "checked_out", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(code_diff, "carry_out", carry_out)
    return found


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and what is said on stderr."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(["diff", *arguments])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, capsys.readouterr().err


def test_every_configuration_of_the_request_stands_twice_in_turns_with_itself_alone(
    plans: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(capsys, "main", ".", "--code", "--", "--models", "gmlp,vit", *VIT[2:], "--rounds", "4")[0] == 130
    (plan,) = plans
    assert (plan.metrics, plan.settings.rounds, len(plan.cells), len(plan.parts)) == (("latency",), 4, 4, 2)
    groups: dict[str, list[str]] = {}
    for job in jobs(plan):
        if job.group and not job.control and job.repeat == 0:
            groups.setdefault(job.group, []).append(job.cell.workload.code)
    assert sorted(groups.values()) == [["mainaaaaaa", ".aaaaaaaaa"]] * 2
    assert len({p.cell.model.name for p in plan.cells}) == 4  # no table or figure takes the two for one series
    assert sum(job.control for job in jobs(plan)) == 4


def test_a_request_may_be_a_plan_file(plans: list[Plan], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    with pytest.raises(SystemExit):
        cli.main(["plan", *VIT, "--metrics", "params", "--out", str(file)])
    assert answered(capsys, "--code", "main", ".", "--", "--plan", str(file))[0] == 130
    assert plans[0].metrics == ("latency",)


@pytest.mark.parametrize(
    ("words", "says"),
    {
        "one revision": (("main",), "two revisions"),
        "no request": (("main", "."), "--code REV_A REV_B -- --models"),
        "a request without --": (("main", ".", *VIT), "--code main . -- --models"),
        "an unknown flag": (("main", ".", "--", *VIT, "--modells", "x"), "--modells"),
        "an unknown model": (("main", ".", "--", "--models", "gmpl", "--seq", "17"), "did you mean gmlp?"),
        "one round": (("main", ".", "--", *VIT, "--rounds", "1"), "--rounds"),
        "another metric": (("main", ".", "--", *VIT, "--metrics", "memory"), "leave --metrics out"),
        "an interrupted run": (("main", ".", "--", "--resume", "x"), "--resume is for bench run"),
        "a bound on counts": (("main", ".", "--fail-if", "params>1", "--", *VIT), "not params"),
        "no bound": (("main", ".", "--fail-if", "fast", "--", *VIT), "--fail-if cannot read"),
        "the same code twice": (("main", "main", "--", *VIT), "are the same code"),
    }.values(),
)
def test_what_cannot_be_measured_is_refused(
    words: tuple[str, ...], says: str, plans: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = answered(capsys, "--code", *words)
    assert (code, plans) == (2, [])
    assert says in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("num", "factor", "text", "verdict"),
    [
        (5, 2.0, "2.000 (2.000 to 2.000)", "undecided: 5 rounds are too few"),
        (6, 2.0, "2.000 [2.000, 2.000]", "B slower"),
        (6, 1.0, "1.000 [1.000, 1.000]", "equal within 1.5 %"),
    ],
)
def test_a_verdict_needs_rounds_for_an_interval(num: int, factor: float, text: str, verdict: str) -> None:
    ratio = ratio_over_rounds([math.log(factor)] * num)
    assert ratio is not None
    assert code_diff._ratio_text(ratio) == text
    assert code_diff._verdict(ratio, 0.015) == verdict
    assert (code_diff._ratio_json(ratio)["high"] is None) is (num < 6)


def test_without_code_two_runs_are_compared(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []

    def compare(*given: object) -> tuple[object, None]:
        compared.append(given)
        return None, None

    monkeypatch.setattr("bench.analysis.diff.compare_folders", compare)
    monkeypatch.setattr("bench.report.console_views.show_two_runs", lambda *given, as_json: compared.append((given[2], as_json)))
    assert answered(capsys, "a", "b", "--fail-if", "params>1", "--json")[0] == 0
    assert compared == [(Path("a"), Path("b"), "params>1"), (None, True)]
    code, err = answered(capsys, "a", "b", "c")
    assert code == 2
    assert "not 3" in err
    assert len(compared) == 2


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The program with a history: gMLP sleeps 20 ms (`base`, checked out), or fails (`broken`); 60 ms in the working tree."""
    program = copy_of_the_program(tmp_path / "program")
    git(tmp_path, "init", "--quiet", str(program))
    gmlp = program / "models" / "gmlp.py"
    (program / ".gitignore").write_text("__pycache__\n")
    text = gmlp.read_text()
    for name, does in {"base": "time.sleep(0.02)", "broken": "raise ValueError('planted')"}.items():
        gmlp.write_text(text.replace(FORWARD, f"{FORWARD}        import time\n\n        {does}\n"))
        commit(program, name)
        git(program, "tag", name)
    git(program, "checkout", "--quiet", "base")
    gmlp.write_text(gmlp.read_text().replace("time.sleep(0.02)", "time.sleep(0.06)"))
    return program


class Compared:
    """One call in a folder of its own; its temporary folder and its processes must be gone afterwards."""

    def __init__(self, repository: Path, tmp_path: Path) -> None:
        self.repository, self.folder = repository, tmp_path / "here"
        # short: the fork server's socket lies in it, and a socket's path has at most 107 characters
        self.temporary = Path(tempfile.mkdtemp(prefix="gb"))
        self.folder.mkdir()

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            bench_command("diff", "--code", *arguments),
            cwd=self.folder,
            env={**environment_of(self.repository), "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as run:
            yield run

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with self.started(*arguments) as run:
            out, err = run.communicate(timeout=300)
        self.is_clean(run.pid)
        return run.returncode, out, err

    def is_clean(self, session: int) -> None:
        deadline = time.monotonic() + 10
        while list(processes_of(session)) and time.monotonic() < deadline:  # the fork server ends when it sees that its parent has
            time.sleep(0.05)
        assert not list(processes_of(session))
        assert not [path.name for path in self.temporary.iterdir() if path.name.startswith("gmlp-bench")]
        assert git(self.repository, "worktree", "list", "--porcelain").count("worktree ") == 1

    def records(self) -> list[Record]:
        return [record for folder in self.folder.glob("results/*") for record in RunRecords(folder).read()]

    def wait_for_rounds(self, run: subprocess.Popen[str], num: int) -> None:
        deadline = time.monotonic() + 240
        while len({record.repeat for record in self.records() if record.metric == "latency"}) < num:
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def compared(repository: Path, tmp_path: Path) -> Compared:
    return Compared(repository, tmp_path)


@pytest.mark.slow
def test_a_planted_slowness_is_found_in_dirty_code_and_the_run_is_one_that_other_commands_read(compared: Compared) -> None:
    code, out, err = compared.run("base", ".", "--json", "--fail-if", "latency_ms>1.5", "--", *REQUEST, "--rounds", "6")
    document = json.loads(out)
    (cell,) = document["cells"]
    assert (code, cell["verdict"], len(document["failing"])) == (1, "B slower", 1), err
    assert cell["ratio"]["low"] > 1.5
    rows = rows_of(read_run(next(compared.folder.glob("results/*_cpu_code-*-*"))))
    assert rows["ratio"].dropna().tolist() == [pytest.approx(cell["ratio"]["estimate"])]
    assert list(compared.folder.glob("reports/*/report.md"))


@pytest.mark.slow
def test_a_revision_that_cannot_run_a_configuration_leaves_the_others(compared: Compared) -> None:
    code, out, _ = compared.run("base", "broken", "--json", "--", "--models", "gmlp,vit", *REQUEST[2:], "--rounds", "2")
    gmlp, vit = json.loads(out)["cells"]
    assert code == 1
    assert "ValueError: planted" in gmlp["verdict"]
    assert vit["ratio"] is not None


@pytest.mark.slow
def test_an_interrupt_keeps_the_rounds_so_far_and_leaves_nothing(compared: Compared) -> None:
    with compared.started("base", ".", "--", *REQUEST, "--rounds", "50") as run:
        compared.wait_for_rounds(run, 2)
        os.killpg(run.pid, signal.SIGINT)  # as a terminal sends it
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "the same command goes on" in err
    assert 2 <= len({record.repeat for record in compared.records()}) < 50
    compared.is_clean(run.pid)


@pytest.mark.slow
def test_no_process_outlives_a_killed_command(compared: Compared) -> None:
    with compared.started("base", ".", "--", *REQUEST, "--rounds", "50") as run:
        compared.wait_for_rounds(run, 1)
        run.kill()
    deadline = time.monotonic() + 10
    while list(processes_of(run.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(processes_of(run.pid))

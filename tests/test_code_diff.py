"""`bench diff --code` as a contributor meets it: what is refused, planted slowness, equal code, interrupts that leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import cli, code_diff
from bench.commands.options import DiffOptions
from bench.running.code_run import CONTROL, FIRST, SECOND
from bench.running.revisions import PROTOCOL, Revision
from bench.spec import Plan
from tests.processes import processes_of
from tests.running.test_revisions import commit, git
from tests.specimens import bench_command, copy_of_the_program, environment_of, run_bench

VIT = ("--models", "vit", "--seq", "17", "--width", "16", "--depth", "1", "--batch", "1", "--quick")
REQUEST = ("--models", "gmlp", *VIT[2:])
FORWARD = "    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:\n"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What would be measured; every name is a revision."""
    found: list[Plan] = []
    monkeypatch.setattr(code_diff, "find_revision", lambda name: Revision(name=name, commit="a" * 40))
    monkeypatch.setattr(code_diff, "_measure_and_answer", lambda *given: found.append(given[2]))
    return found


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and what is said on stderr."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(["diff", *arguments])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, capsys.readouterr().err


def test_a_request_is_that_of_bench_run_for_latency_alone(plans: list[Plan], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert answered(capsys, "main", ".", "--code", "--", *VIT, "--rounds", "4")[0] == 0
    (plan,) = plans
    assert (plan.metrics, plan.settings.rounds, plan.cells[0].cell.model.shape.width) == (("latency",), 4, 16)
    file = tmp_path / "plan.json"
    with pytest.raises(SystemExit):
        cli.main(["plan", *VIT, "--metrics", "params", "--out", str(file)])
    assert answered(capsys, "--code", "main", ".", "--", "--plan", str(file))[0] == 0
    assert (plans[1].cells, plans[1].metrics) == (plan.cells, ("latency",))


@pytest.mark.parametrize(
    ("words", "says"),
    {
        "one revision": (("main",), "two revisions"),
        "one revision and a request": (("main", "--", *VIT), "two revisions"),
        "no request": (("main", "."), "--code REV_A REV_B -- --models"),
        "a request without --": (("main", ".", *VIT), "--code main . -- --models"),
        "an unknown flag": (("main", ".", "--", *VIT, "--modells", "x"), "--modells"),
        "an unknown model": (("main", ".", "--", "--models", "gmpl", "--seq", "17"), "did you mean gmlp?"),
        "a stray word": (("main", ".", "other", "--", *VIT), "other"),
        "one round": (("main", ".", "--", *VIT, "--rounds", "1"), "--rounds"),
        "another metric": (("main", ".", "--", *VIT, "--metrics", "memory"), "leave --metrics out"),
        "the default metrics": (("main", ".", "--", *VIT, "--metrics", "params,flops,latency,memory"), "leave --metrics out"),
        "the default executor": (("main", ".", "--", *VIT, "--on", "process"), "--on is for bench run"),
        "a folder of a run": (("main", ".", "--", *VIT, "--out", "x"), "--out is for bench run"),
        "an interrupted run": (("main", ".", "--", "--resume", "x"), "--resume is for bench run"),
        "another executor": (("main", ".", "--", *VIT, "--on", "inline"), "--on is for bench run"),
        "a bound on counts": (("main", ".", "--fail-if", "params>1", "--", *VIT), "not params"),
        "no bound": (("main", ".", "--fail-if", "fast", "--", *VIT), "--fail-if cannot read"),
        "a folder that holds something": (("main", ".", "--out", str(Path(__file__).parent), "--", *VIT), "is not empty"),
        "two forms": (("main", ".", "--json", "--markdown", "--", *VIT), "two forms"),
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


def test_without_code_two_runs_are_compared(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    monkeypatch.setattr(cli, "_compare_two", lambda *given: compared.append(given))
    assert answered(capsys, "a", "b", "--fail-if", "params>1", "--json")[0] == 0
    assert compared == [(Path("a"), Path("b"), DiffOptions(fail_if="params>1"), None, "json")]
    code, err = answered(capsys, "a", "b", "c")
    assert code == 2
    assert "not 3" in err
    assert len(compared) == 1


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The program with a history: `before` the protocol, then gMLP sleeps 20 ms (`base`, checked out), 60 ms (`slow`) or fails (`broken`)."""
    program = copy_of_the_program(tmp_path / "program")
    git(tmp_path, "init", "--quiet", str(program))
    protocol, gmlp = program / PROTOCOL, program / "models" / "gmlp.py"
    (program / ".gitignore").write_text("__pycache__\n")
    protocol.rename(tmp_path / "protocol")
    commit(program, "before")
    git(program, "tag", "before")
    (tmp_path / "protocol").rename(protocol)
    text = gmlp.read_text()
    for name, does in {"base": "time.sleep(0.02)", "slow": "time.sleep(0.06)", "broken": "raise ValueError('planted')"}.items():
        gmlp.write_text(text.replace(FORWARD, f"{FORWARD}        import time\n\n        {does}\n"))
        commit(program, name)
        git(program, "tag", name)
    git(program, "checkout", "--quiet", "base")
    return program


def test_a_revision_before_the_protocol_is_refused_naming_the_first_that_can(repository: Path, tmp_path: Path) -> None:
    ran = run_bench(repository, tmp_path, "diff", "--code", "before", "base", "--", *REQUEST)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[0] == f"error: revision before has no {PROTOCOL}, which is needed to measure it"
    assert git(repository, "rev-parse", "--short=10", "base") in ran.stderr.splitlines()[1]
    assert not (tmp_path / "results").exists()


class Compared:
    """One call in a folder of its own; its temporary folder and its processes must be gone afterwards."""

    def __init__(self, repository: Path, tmp_path: Path) -> None:
        self.repository, self.folder, self.temporary = repository, tmp_path / "here", tmp_path / "temporary"
        self.folder.mkdir()
        self.temporary.mkdir()

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
        assert not list(processes_of(session))
        assert not [path.name for path in self.temporary.iterdir() if path.name.startswith("gmlp-bench")]
        assert git(self.repository, "worktree", "list", "--porcelain").count("worktree ") == 1

    def kept(self) -> Any:
        (file,) = self.folder.glob("results/*/code.json")
        return json.loads(file.read_text())

    def wait_for_rounds(self, run: subprocess.Popen[str], num: int) -> None:
        deadline = time.monotonic() + 120
        while not list(self.folder.glob("results/*/code.json")) or len(self.kept()["rounds"]) < num:
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def compared(repository: Path, tmp_path: Path) -> Compared:
    return Compared(repository, tmp_path)


@pytest.mark.slow
def test_a_planted_slowness_is_found(compared: Compared) -> None:
    code, out, err = compared.run("base", "slow", "--json", "--fail-if", "latency_ms>1.5", "--", *REQUEST)
    document = json.loads(out)
    (cell,) = document["cells"]
    assert (code, cell["verdict"], len(document["failing"])) == (1, "B slower", 1), err
    assert cell["ratio_low"] > 1.0
    assert err.count("round ") == 3
    kept = compared.kept()
    assert [set(found["outcomes"]) for found in kept["rounds"]] == [{FIRST, SECOND, CONTROL}] * 3
    assert len({len(outcome["samples"]["wall_ms"]) for found in kept["rounds"] for outcome in found["outcomes"].values()}) == 1
    assert (kept["first"]["name"], kept["second"]["name"], kept["interrupted"]) == ("base", "slow", False)
    assert list(compared.folder.glob("results/*_cpu_code-*-*/code.json"))


@pytest.mark.slow
def test_equal_code_is_equal_and_dirty_code_is_what_is_measured(compared: Compared) -> None:
    """Three rounds of A/A are shown to differ once in twenty times, whatever the code; that they differ by half never happens."""
    code, out, err = compared.run("base", ".", "--markdown", "--fail-if", "latency_ms>1.5", "--", *REQUEST, "--margin", "0.5")
    assert code == 0, err
    assert "equal within 50 %" in out
    assert "A and B are the same code" in out
    gmlp = compared.repository / "models" / "gmlp.py"
    gmlp.write_text(gmlp.read_text().replace("time.sleep(0.02)", "time.sleep(0.06)"))
    code, out, err = compared.run("base", ".", "--out", "mine", "--", *REQUEST, "--rounds", "2", "--margin", "0.5")
    assert code == 0, err
    assert "the working tree, changed since" in out
    (found,) = [json.loads(path.read_text()) for path in compared.folder.glob("mine/code.json")]
    ratios = [
        found["outcomes"][SECOND]["values"]["latency_ms"] / found["outcomes"][FIRST]["values"]["latency_ms"] for found in found["rounds"]
    ]
    assert min(ratios) > 1.5


@pytest.mark.slow
def test_a_revision_that_cannot_run_a_cell_leaves_the_others(compared: Compared) -> None:
    code, out, _ = compared.run("base", "broken", "--json", "--", "--models", "gmlp,vit", *REQUEST[2:], "--rounds", "2")
    gmlp, vit = json.loads(out)["cells"]
    assert code == 1
    assert gmlp["failed"] == "B: failed: ValueError: planted"
    assert (vit["failed"], vit["num_rounds"]) == ("", 2)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_answers_the_rounds_so_far_and_leaves_nothing(times: int, compared: Compared) -> None:
    with compared.started("base", "slow", "--", *REQUEST, "--rounds", "50") as run:
        compared.wait_for_rounds(run, 2)
        for _ in range(times):
            os.killpg(run.pid, signal.SIGINT)  # as a terminal sends it
            time.sleep(0.1)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "interrupted: not all 50 rounds were measured" in out
    kept = compared.kept()
    assert kept["interrupted"]
    assert 2 <= len(kept["rounds"]) < 50
    assert "gmlp, n = 17" in out  # its verdict over so few rounds is the machine's affair
    compared.is_clean(run.pid)


@pytest.mark.slow
def test_no_process_outlives_a_killed_command(compared: Compared) -> None:
    with compared.started("base", "slow", "--", *REQUEST, "--rounds", "50") as run:
        compared.wait_for_rounds(run, 1)
        run.kill()
    deadline = time.monotonic() + 10
    while list(processes_of(run.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(processes_of(run.pid))

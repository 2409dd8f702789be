"""`bench diff --code` as a contributor meets it: what is refused, planted slowness, equal code, interrupts that leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from bench.commands import code_diff
from bench.commands.run import Measured, Stopped
from bench.intervals import ratio_over_rounds
from bench.planning.jobs import jobs
from bench.reading.store import RunRecords, read_run
from bench.reading.table import rows_of
from bench.running.revisions import Revision
from bench.spec import Outcome, Plan
from tests.answered import Answer
from tests.processes import processes_of, started
from tests.running.test_revisions import commit, git
from tests.running.waiting import comes_true
from tests.specimens import copy_of_the_program, run_bench

VIT = "--models vit --seq 17 --width 16 --depth 1 --batch 1 --quick".split()
REQUEST = ("--models", "gmlp", *VIT[2:])
PILOTS, PER_ROUND = 2, 3  # both revisions, and the control
FORWARD = "    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:\n"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What would be measured; every name is a revision."""
    monkeypatch.setattr(code_diff, "find_revision", lambda name, *_, **__: Revision(name=name, commit=name.ljust(40, "a")))
    monkeypatch.setattr(code_diff, "checked_out", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(code_diff, "run_alone", lambda *_: Outcome(status="measured"))
    return stops(monkeypatch)


def stops(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What would be measured."""
    found: list[Plan] = []

    def carry_out(plan: Plan, *_: object) -> Measured:
        found.append(plan)
        raise Stopped(Path("results/x"))

    monkeypatch.setattr(code_diff, "carry_out", carry_out)
    return found


def test_every_configuration_of_the_request_stands_twice_in_turns_with_itself_alone(plans: list[Plan], answer: Answer) -> None:
    assert answer("diff", "main", ".", "--code", "--", "--models", "gmlp,vit", *VIT[2:], "--rounds", "4")[0] == 130
    (plan,) = plans
    assert (plan.metrics, plan.settings.rounds, len(plan.cells), len(plan.parts)) == (("latency",), 4, 4, 2)
    groups: dict[str, list[str]] = {}
    for job in jobs(plan):
        if job.group and not job.control and job.repeat == 0:
            groups.setdefault(job.group, []).append(job.cell.workload.code)
    assert sorted(groups.values()) == [["mainaaaaaa", ".aaaaaaaaa"]] * 2
    assert len({p.cell.model.name for p in plan.cells}) == 4  # no table or figure takes the two for one series
    assert sum(job.control for job in jobs(plan)) == 4


def test_a_request_may_be_a_plan_file(plans: list[Plan], answer: Answer, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    answer("plan", *VIT, "--metrics", "params", "--out", file)
    assert answer("diff", "--code", "main", ".", "--", "--plan", file)[0] == 130
    assert plans[0].metrics == ("latency",)


@pytest.mark.parametrize(
    ("words", "says"),
    {
        "one revision": (("main",), "two revisions"),
        "no request": (("main", "."), "--code REV_A REV_B -- --models"),
        "a request without --": (("main", ".", *VIT), "--code main . -- --models"),
        "an unknown flag": (("main", ".", "--", *VIT, "--modells", "x"), "--modells"),
        "one round": (("main", ".", "--", *VIT, "--rounds", "1"), "--rounds"),
        "another metric": (("main", ".", "--", *VIT, "--metrics", "memory"), "leave --metrics out"),
        "an interrupted run": (("main", ".", "--", "--resume", "x"), "--resume is for bench run"),
        "a bound on counts": (("main", ".", "--fail-if", "params>1", "--", *VIT), "not params"),
        "no bound": (("main", ".", "--fail-if", "fast", "--", *VIT), "--fail-if cannot read"),
        "the same code twice": (("main", "main", "--", *VIT), "are the same code"),
    }.values(),
)
def test_what_cannot_be_measured_is_refused(words: tuple[str, ...], says: str, plans: list[Plan], answer: Answer) -> None:
    code, _, err = answer("diff", "--code", *words)
    assert (code, plans) == (2, [])
    assert says in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("num", "factor", "verdict"),
    [(5, 2.0, "undecided: 5 rounds are too few"), (6, 2.0, "B slower"), (6, 1.0, "equal within 1.5 %")],
)
def test_a_verdict_needs_rounds_for_an_interval(num: int, factor: float, verdict: str) -> None:
    ratio = ratio_over_rounds([math.log(factor)] * num)
    assert ratio is not None
    assert code_diff._verdict(ratio, 0.015) == verdict
    assert (code_diff._ratio_json(ratio)["high"] is None) is (num < 6)


MINE = """from torch import nn

class Net(nn.Module):
    def __init__(self, patch_dim, num_classes, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(patch_dim, width), nn.Linear(width, num_classes))

    def forward(self, patches):
        return self.layers(patches).mean(1)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's repository, the current folder: `old` without the model, `base` with it, and one layer more in the working tree."""
    folder = tmp_path / "mine"
    git(tmp_path, "init", "--quiet", str(folder))
    for name, file in {"old": "README", "base": "mine.py"}.items():
        (folder / file).write_text(MINE)
        commit(folder, name)
        git(folder, "tag", name)
    (folder / "mine.py").write_text(MINE.replace("nn.Linear(width,", "nn.Linear(width, width), nn.Linear(width,"))
    monkeypatch.chdir(folder)
    return folder


def test_a_users_file_is_taken_as_it_is_in_each_revision_of_its_repository(
    mine: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    found = stops(monkeypatch)
    (mine / "mine.py").write_text(MINE.replace("nn.Linear(width,", "nn.ReLU(), nn.Linear(width,"))
    assert answer("diff", "--code", "base", ".", "--", "--models", "mine.py:Net", *VIT[2:])[0] == 130
    first, second = (planned.cell for planned in found[0].cells)
    assert first.model.digest != second.model.digest
    assert (first.model.shape, first.workload) == (second.model.shape, second.workload)
    assert found[0].parts[0].name.startswith("mine.py:Net n=17")
    assert git(mine, "worktree", "list", "--porcelain").count("worktree ") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("base", ".", "--", "--models", "mine.py:Net,vit"), "leave vit out"),
        (("old", ".", "--", "--models", "mine.py:Net"), "revision old has no mine.py"),
        (("base", ".", "--", "--models", "mine.py:Net", "--params", "100k"), "have other sizes"),
        (
            ("base", ".", "--", "--models", "mine.py:Net", "--width", "16"),
            "error: mine.py:Net at n=17 has 3,258 parameters at base and 3,530 at .\n",
        ),
        (("base", ".", "--", "--models", "mine.py:Nett", "--width", "16"), "at base: "),
    ],
)
def test_files_that_two_revisions_do_not_share_are_refused(
    words: tuple[str, ...], says: str, mine: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    found = stops(monkeypatch)
    code, _, err = answer("diff", "--code", *words, "--seq", "17", "--depth", "1", "--batch", "1", "--quick")
    assert (code, found) == (2, [])
    assert says in err
    assert len(err.splitlines()) <= 2
    assert git(mine, "worktree", "list", "--porcelain").count("worktree ") == 1


def test_three_runs_are_refused(answer: Answer) -> None:
    code, _, err = answer("diff", "a", "b", "c")
    assert (code, "not 3" in err) == (2, True)


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
    """Calls in a folder of their own; their temporary folder and processes must be gone afterwards."""

    def __init__(self, repository: Path, tmp_path: Path) -> None:
        self.repository, self.folder = repository, tmp_path / "here"
        # short: the fork server's socket lies in it, and a socket's path has at most 107 characters
        self.temporary = Path(tempfile.mkdtemp(prefix="gb"))
        self.folder.mkdir()

    def started(self, *arguments: str, num_lines: int) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
        variables = {"PYTHONPATH": str(self.repository), "TMPDIR": str(self.temporary)}
        return started(self.folder, "diff", "--code", *arguments, num_lines=num_lines, variables=variables)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with self.started(*arguments, num_lines=1) as run:
            out, err = run.communicate(timeout=300)
        self.is_clean(run.pid)
        return run.returncode, out, err

    def is_clean(self, session: int) -> None:
        assert comes_true(lambda: not list(processes_of(session)))  # the fork server ends when it sees that its parent has
        assert not [path.name for path in self.temporary.iterdir() if path.name.startswith("gmlp-bench")]
        assert git(self.repository, "worktree", "list", "--porcelain").count("worktree ") == 1


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
def test_a_revision_whose_models_have_another_size_is_refused(compared: Compared) -> None:
    program = compared.repository
    with (program / "models" / "gmlp.py").open("a") as file:
        for name in ("build", "cost"):
            file.write(f"\n\n_{name} = {name}\n\n\ndef {name}(config):\n    return _{name}(_deeper(config))\n")
        file.write(
            "\n\ndef _deeper(config):\n    import dataclasses\n\n"
            "    return dataclasses.replace(config, shape=dataclasses.replace(config.shape, depth=2))\n"
        )
    commit(program, "deeper")
    git(program, "tag", "deeper")
    ran = run_bench(program, compared.folder, "diff", "--code", "base", "deeper", "--", *REQUEST)
    assert ran.returncode == 2, ran.stderr
    assert re.match(r"error: gmlp at n=17 has ([\d,]+) parameters at base and (?!\1)[\d,]+ at deeper\n", ran.stderr)
    assert not list(compared.folder.iterdir())


@pytest.mark.slow
def test_a_revision_that_cannot_run_a_configuration_leaves_the_others(compared: Compared) -> None:
    code, out, _ = compared.run("base", "broken", "--json", "--", "--models", "gmlp,vit", *REQUEST[2:], "--rounds", "2")
    gmlp, vit = json.loads(out)["cells"]
    assert code == 1
    assert "ValueError: planted" in gmlp["verdict"]
    assert vit["ratio"] is not None


@pytest.mark.slow
def test_an_interrupt_keeps_the_rounds_so_far_and_leaves_nothing(compared: Compared) -> None:
    with compared.started("base", ".", "--", *REQUEST, "--rounds", "50", num_lines=PILOTS + PER_ROUND + 1) as run:
        os.killpg(run.pid, signal.SIGINT)  # as a terminal sends it
        _, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "the same command goes on" in err
    (folder,) = compared.folder.glob("results/*")
    assert 2 <= len({record.repeat for record in RunRecords(folder).read()}) < 50
    compared.is_clean(run.pid)


@pytest.mark.slow
def test_no_process_outlives_a_killed_command(compared: Compared) -> None:
    with compared.started("base", ".", "--", *REQUEST, "--rounds", "50", num_lines=PILOTS + 1) as run:
        run.kill()
    assert comes_true(lambda: not list(processes_of(run.pid)))

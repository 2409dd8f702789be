"""`bench report` needs the records and no torch; several runs are merged only into a folder of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.answered import Answer

PROJECT = Path(__file__).parents[2]
RUN = PROJECT / "results" / "2026-11-25_cpu_peers_mamba2"
OTHER = PROJECT / "results" / "2026-11-24_cpu_trec"
PARTS = tuple(PROJECT / "results" / f"2026-11-26_cpu_attention_{part}" for part in ("cost", "accuracy"))
UNLIKE = PROJECT / "results" / "2026-11-26_cpu_positions"
WITHOUT_TORCH = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
from bench.cli import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_report_is_built_where_there_is_no_torch(tmp_path: Path) -> None:
    run = tmp_path / "results" / RUN.name
    run.mkdir(parents=True)
    for name in ("plan.json.xz", "environment.json", "records.jsonl.xz"):
        shutil.copy(RUN / name, run)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "report", str(run)], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    report = tmp_path / "reports" / RUN.name
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (0, f"report: {report / 'report.html'}")
    assert {path.name for path in report.iterdir()} == {"report.html", "report.md", "verdicts.json", "figures"}
    assert (run / "table.parquet").exists()
    verdicts = json.loads((report / "verdicts.json").read_text())["verdicts"]
    assert {verdict["answer"] for verdict in verdicts} <= {"supported", "refuted", "undecided"}


def test_a_report_elsewhere_leaves_the_run_as_it_is(tmp_path: Path, answer: Answer) -> None:
    before = {path.name: path.read_bytes() for path in RUN.iterdir()}
    assert answer("report", RUN, "--out", tmp_path / "mine")[0] == 0
    assert {path.suffix for path in (tmp_path / "mine" / "figures").iterdir()} == {".svg"}
    assert {path.name: path.read_bytes() for path in RUN.iterdir()} == before
    assert {"report.html", "table.csv", "table.parquet"} <= {path.name for path in (tmp_path / "mine").iterdir()}


def wrong(answered: tuple[int, str, str]) -> str:
    code, _, err = answered
    assert code == 2
    return " ".join(err.split())


def test_runs_that_disagree_are_refused_by_the_key(tmp_path: Path, answer: Answer) -> None:
    message = wrong(answer("report", RUN, OTHER, "--out", tmp_path / "both"))
    assert "differ in code_version" in message
    assert not (tmp_path / "both").exists()


def test_files_of_others_are_not_replaced(tmp_path: Path, answer: Answer) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    assert "holds no report" in wrong(answer("report", RUN, "--out", tmp_path))
    assert "is no plan" in wrong(answer("plan --models vit --seq 17 --out", notes))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_report_of_two_runs_needs_a_name(answer: Answer) -> None:
    assert "add --out reports/NAME" in wrong(answer("report", *PARTS))
    assert "add --out reports/NAME" in wrong(answer("compare", *PARTS))


def test_runs_of_unlike_questions_are_not_one_report(tmp_path: Path, answer: Answer) -> None:
    message = wrong(answer("report", PARTS[0], UNLIKE, "--out", tmp_path / "both"))
    assert f"{PARTS[0]} and {UNLIKE} answer different questions" in message
    assert not (tmp_path / "both").exists()

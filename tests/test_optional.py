"""What the program does without its optional packages: everything else, and one line for what needs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.tasks import DATA_VARIABLES
from tests.answered import Answer
from tests.specimens import ROOT, run_bench

OPTIONAL = tuple("datasets fvcore g_mlp_pytorch pynvml ray sklearn timm tokenizers transformers vit_pytorch".split())
UNTRAINED = ROOT / "results" / "2026-11-20_cpu_published_pairs"
TINY = "--models gmlp,vit --seq 17 --params 60k --depth 1"
OUTRIGHT = "--seq 17 --width 32 --depth 1 --heads 2 --ffn-width 64"
CHECKS = """
import json, sys
from bench import cli
for command in json.loads(sys.argv[1]):
    try:
        cli.main(command.split())
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"{command} ended with {ended.code}")
"""


def path_without(folder: Path, packages: Sequence[str]) -> str:
    """A PYTHONPATH under which Python finds none of the packages, in its child processes neither."""
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({list(packages)!r}))\n")
    return os.pathsep.join((str(folder), str(ROOT)))


@pytest.mark.slow
def test_planning_and_reading_need_no_optional_package(tmp_path: Path) -> None:
    run, copy = (str(shutil.copytree(UNTRAINED, tmp_path / "results" / name)) for name in (UNTRAINED.name, "copy"))
    probe = f"import importlib.util; print([name for name in {OPTIONAL!r} if importlib.util.find_spec(name)])"
    variables = {**os.environ, "PYTHONPATH": path_without(tmp_path, OPTIONAL)}
    assert subprocess.check_output([sys.executable, "-c", probe], env=variables, text=True).strip() == "[]"
    commands = [
        "--help",
        "list families",
        "list tasks",
        f"plan {TINY} --metrics params,flops,latency",
        "describe gmlp-s",
        f"check {run}",
        f"diff {run} {copy}",
        f"report {run}",
    ]
    done = subprocess.run(
        [sys.executable, "-c", CHECKS, json.dumps(commands)],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert len(list(tmp_path.rglob("report.html"))) == 1


@pytest.mark.slow
def test_a_run_does_not_need_fvcore(tmp_path: Path) -> None:
    request = f"run {TINY} --metrics params,flops,latency --rounds 2 --quick --out mine --json"
    ran = run_bench(ROOT, tmp_path, *request.split(), variables={"PYTHONPATH": path_without(tmp_path, ("fvcore",))})
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    rows = json.loads(ran.stdout)["rows"]
    assert [row["status"] for row in rows] == ["measured", "measured"]
    assert {(row["flops_counted_by"], row["flops_fvcore"], row["flops_agree"]) for row in rows} == {("closed form, torch", None, True)}
    assert all(row["latency_ms"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("package", "typed", "told"),
    [
        ("timm", "plan --models timm:gmlp_s16_224", "needs the library timm"),
        ("g_mlp_pytorch", f"plan --models python:bench.peers.g_mlp_pytorch:gmlp {OUTRIGHT}", "needs the library g_mlp_pytorch"),
        ("tokenizers", f"run --models vit {OUTRIGHT} --task trec+tokenizer=bpe --metrics accuracy", "needs the library tokenizers"),
        (
            "datasets",
            f"run --models vit {OUTRIGHT} --task trec --metrics accuracy --data-root . --download",
            "downloading task trec needs the library datasets",
        ),
        ("sklearn", f"run --models vit {OUTRIGHT} --task digits --metrics accuracy", "needs the library scikit-learn"),
        ("ray", f"run --models vit {OUTRIGHT} --metrics params --on ray", "--on ray needs the package ray"),
    ],
)
def test_what_needs_an_absent_package_is_refused_in_one_line(
    package: str, typed: str, told: str, in_tmp: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    for name in DATA_VARIABLES:  # the call may set them
        monkeypatch.setenv(name, "")
    code, _, err = answer(typed)
    assert code == 2
    *_, error, hint = err.splitlines()
    assert told in error
    assert hint.startswith("hint: pip install ")
    assert not list(in_tmp.rglob("records.jsonl*"))

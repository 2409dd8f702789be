"""What `bench ablate gpu` measures: the argument before refinements, heads as published models have them, and all of it rehearsed on a CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import environment
from bench.planning.ablation import ablation_of
from bench.planning.jobs import estimated_part_seconds
from tests.answered import Answer
from tests.planning.test_ablation import CUDA, QUICK, plan_of

PARTS = [grid.name for grid in ablation_of("gpu").cuda]
REHEARSED = [grid.name for grid in ablation_of("gpu").quick]
NEEDS_GPU = {"fp32", "compiled", "a token for each pixel"}


def test_all_that_needs_no_gpu_is_rehearsed() -> None:
    assert [name for name in PARTS if name not in NEEDS_GPU] == REHEARSED


@pytest.mark.slow
def test_attention_has_heads_of_64_channels_and_cudnn_stands_beside_torchs_choice() -> None:
    """Width / 32 heads gave a ViT of 22M twelve heads of 32, which no published ViT has and which wastes half of a GPU's tiles."""
    plan = plan_of("gpu", CUDA)
    assert plan.skipped == ()
    attending = (p for p in plan.cells if p.cell.workload.attention != "none" and p.cell.model.family != "timm")
    timed = [p for p in attending if not p.cell.workload.task or p.cell.model.shape.seq_len > 17]
    assert len(timed) > 30
    assert {p.cell.model.shape.width // p.cell.model.shape.heads for p in timed} == {64}
    kernels = {p.cell.workload.attention for p in plan.cells if p.cell.cell_id in plan.parts[-1].cells}
    assert kernels == {"auto", "flash", "cudnn", "math"}


@pytest.mark.slow
def test_on_a_gpu_no_engine_doubles_what_graph_replays_tell_already() -> None:
    assert {p.cell.workload.engine for p in plan_of("gpu", CUDA).cells} == {"eager", "compile"}
    assert sum(estimated_part_seconds(plan_of("gpu", CUDA))) < 40 * 60


def test_the_rehearsal_is_short() -> None:
    plan = plan_of("gpu", QUICK)
    assert plan.skipped == ()
    assert sum(estimated_part_seconds(plan)) < 4 * 60
    assert max(p.cell.model.shape.seq_len for p in plan.cells) <= 197


def test_a_dry_run_under_a_gpu_says_what_fits_and_starts_nothing(monkeypatch: pytest.MonkeyPatch, in_tmp: Path, answer: Answer) -> None:
    facts = environment.gpu_facts()
    monkeypatch.setattr(environment, "gpu_facts", lambda: {**facts, "gpu": "planted", "gpu_memory_bytes": 80 * 2**30})
    monkeypatch.setattr(environment, "_torch_has_cuda", lambda: True)
    monkeypatch.setenv("COLUMNS", "150")
    code, out, _ = answer("ablate gpu --part headline --part trace --minutes 1.5 --dry-run")
    assert code == 0
    _, first, last, *_ = out.splitlines()
    assert (first.split()[0], "%" in first) == ("headline", True)
    assert (last.split()[0], " no " in last) == ("trace", True)
    assert list(in_tmp.iterdir()) == []


ROOT = Path(__file__).parents[2]


def test_the_script_of_a_lent_gpu_asks_for_every_part() -> None:
    found = re.search(r"^PARTS=\((.*)\)$", (ROOT / "tests/cuda/pass.sh").read_text(), re.MULTILINE)
    assert found
    assert re.findall(r'"([^"]+)"', found[1]) == PARTS


@pytest.mark.slow
def test_the_tests_for_a_gpu_are_collected_in_a_tree_without_git_results_and_reports(tmp_path: Path) -> None:
    """As it is sent to a machine with a GPU. All of tests/ would need the stored runs, and takes a minute to collect."""
    for name in ("bench", "models", "ablations", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    words = [sys.executable, "-m", "pytest", "tests/cuda", "--collect-only", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert int(re.search(r"(\d+) tests collected", ended.stdout)[1]) > 90  # type: ignore[index]

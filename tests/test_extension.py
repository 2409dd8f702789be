"""One file is one extension: dropped into its folder it is listed, planned, measured and reported, and no second file is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.packages import EXECUTOR, example
from tests.specimens import copy_of_the_program, run_bench

pytestmark = pytest.mark.slow
ABLATION = '''"""Does a file suffice?

Prediction: yes. The blocks learn nothing that counts in one epoch.

Source: none.

Cost: seconds on a CPU; a GPU the same.
"""

from bench.questions import Ablation, Arm, Grid, Prediction

SMALL = {"task": "digits", "seq": "17", "width": "16", "heads": "2", "metrics": "params,flops,accuracy", "epochs": "1"}
ARMS = (
    Arm(name="plain blocks", flags={"models": "vit", "depth": "1"}, facts={"textbook": "n^2 d"}),
    Arm(name="smoothed labels", flags={"models": "vit", "depth": "1", "recipe": "label_smoothing=0.3"}),
    Arm(name="two blocks", flags={"models": "vit", "depth": "2"}),
)
GRIDS = (Grid(name="blocks", flags=SMALL, arms=ARMS),)
ABLATION = Ablation(
    cpu=GRIDS,
    cuda=GRIDS,
    quick=GRIDS,
    predictions=(Prediction(part="blocks", arm="two blocks", measure="params", expected="higher", by=0.1, because="they are two"),),
)
'''


def answer(program: Path, folder: Path, *arguments: str) -> Any:
    """The document that a command prints."""
    ran = run_bench(program, folder, *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_one_file_is_an_ablation(tmp_path: Path) -> None:
    """Listed, run, and reported with its arms, its prediction and the outcome."""
    program = copy_of_the_program(tmp_path / "program")
    (program / "ablations" / "suffices.py").write_text(ABLATION)
    found = answer(program, tmp_path, *"ablate suffices --quick --on inline --device cpu".split())
    assert [(row["depth"], row["recipe"], row["status"]) for row in found["rows"]] == [
        (1, None, "measured"),
        (1, "label_smoothing=0.3", "measured"),
        (2, None, "measured"),
    ]
    folder = tmp_path / "reports" / Path(found["run"]).name
    assert (folder / "report.md").read_text().startswith("# Does a file suffice?\n")
    page = (folder / "report.html").read_text()
    assert all(f">{arm}<" in page for arm in ("plain blocks", "smoothed labels", "two blocks"))
    told = json.loads((folder / "verdicts.json").read_text())
    assert [prediction["answer"] for prediction in told["predictions"]] == ["supported"]
    (entry,) = [entry for entry in answer(program, tmp_path, "ablate", "--list") if entry["name"] == "suffices"]
    assert entry["last"] == f"{found['run']}, a first look: 1 supported"


def test_one_file_is_a_mixer_with_options(tmp_path: Path) -> None:
    """Listed, planned, counted, trained and reported within the shared block."""
    program = copy_of_the_program(tmp_path / "program")
    (program / "models" / "mixers" / "per_token.py").write_text(example("per_token"))
    assert "per_token" in {entry["name"] for entry in answer(program, tmp_path, "list", "mixers")}
    models = ("metaformer+mixer=per_token", "metaformer+mixer=per_token:bias=true")
    sizes = "--seq 16 --width 16 --depth 1 --task digits --device cpu".split()
    metrics = "--metrics params,flops,memory,accuracy --seeds 1 --epochs 1 --on inline".split()
    found = answer(program, tmp_path, "run", "--models", ",".join(models), *sizes, *metrics)
    first, second = found["rows"]
    for row in (first, second):
        assert row["status"] == "measured"
        assert row["flops_agree"]
        assert row["activation_bytes"] > 0
        assert 0 <= row["accuracy"] <= 1
    assert second["params"] - first["params"] == 16
    page = (tmp_path / "reports" / Path(found["run"]).name / "report.html").read_text()
    assert all(model in page for model in models)
    refused = run_bench(program, tmp_path, "run", "--models", "metaformer+mixer=per_token:gain=2", *sizes)
    assert refused.returncode == 2
    assert "gain" in refused.stderr


def test_one_file_per_extension_is_enough(tmp_path: Path) -> None:
    program = copy_of_the_program(tmp_path / "program")
    family = (program / "models" / "vit.py").read_text()
    wide = family.replace("NOMINAL_FFN_RATIO = 4", "NOMINAL_FFN_RATIO = 8").replace('"deit', '"wide')
    (program / "models" / "wide_vit.py").write_text(wide)
    (program / "bench" / "metrics" / "weight_norm.py").write_text(example("weight_norm"))
    (program / "bench" / "tasks" / "first_token.py").write_text(example("first_token"))
    (program / "bench" / "running" / "executors" / "here.py").write_text(EXECUTOR)
    listed = {f"{entry['kind']} {entry['name']}" for entry in answer(program, tmp_path, "list")}
    assert {"families wide_vit", "metrics weight_norm", "tasks first_token", "executors here"} <= listed
    request = "run --models wide_vit --seq 17 --task first_token+items=60 --width 16 --depth 1 --on here"
    trained = "--metrics params,flops,weight_norm,accuracy --seeds 1 --epochs 1"
    found = answer(program, tmp_path, *request.split(), *trained.split())
    (row,) = found["rows"]
    assert (row["model"], row["ffn_width"], row["task"], row["status"]) == ("wide_vit", 128, "first_token+items=60", "measured")
    assert row["flops_agree"]
    assert row["weight_norm"] > 0
    assert 0 <= row["accuracy"] <= 1
    assert "wide_vit" in (tmp_path / "reports" / Path(found["run"]).name / "report.md").read_text()

"""One file is one extension: dropped into its folder it is listed, planned, measured and reported, and no second file is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.specimens import copy_of_the_program, run_bench

pytestmark = pytest.mark.slow
METRIC = '''"""The width, measured the hard way."""

from bench.metrics import Measurement

REPEAT = "once"
COLUMNS = ("rows_of_first_weight",)


def measure(job):
    from bench.measure.model import build_model

    return Measurement(values={"rows_of_first_weight": next(build_model(job.cell.model).parameters()).shape[-1]})


def summarise(records):
    return {"rows_of_first_weight": records[0].outcome.values["rows_of_first_weight"]}
'''
TASK = '''"""Random noise of three classes."""

from bench.tasks._info import Images, TaskInfo
from bench.tasks import Split, Splits
from models.layers.options import Option

OPTIONS = (Option("items", 30),)


def info(choice):
    return TaskInfo(
        name="noise",
        summary="random noise",
        source="made here",
        reads=Images(channels=1, side=8),
        num_classes=3,
        chance=1 / 3,
        num_train=choice.options["items"],
        num_test=30,
    )


def load(choice, *, num_tokens, place):
    import torch

    def split(items):
        return Split(inputs=torch.randn(items, 1, 8, 8), targets=torch.arange(items) % 3)

    return Splits(train=split(choice.options["items"]), test=split(30))
'''
EXECUTOR = '''"""Like inline, under another name."""

from bench.running.executors.inline import Executor

__all__ = ["Executor"]
'''
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
MIXER = '''"""Every token answers for itself: a linear layer over its channels, with or without a bias."""

from dataclasses import dataclass

from torch import nn

from models.layers.cost import Cost, N, Term, constant
from models.layers.shape import require_positive


@dataclass(frozen=True, kw_only=True)
class Config:
    seq_len: int
    width: int
    bias: bool = False

    def __post_init__(self):
        require_positive("width", self.width)


class OwnChannels(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.projection = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, tokens, valid=None):
        return self.projection(tokens)


def build(config):
    return OwnChannels(config)


def cost(config):
    weights = config.width**2
    return Cost((Term(name="projection", params=constant(weights + config.width * config.bias), macs=N * weights),))
'''


def test_one_file_is_an_ablation(tmp_path: Path) -> None:
    """Listed, run, and reported with its arms, its prediction and the outcome."""
    program = copy_of_the_program(tmp_path / "program")
    (program / "ablations" / "suffices.py").write_text(ABLATION)
    ran = run_bench(program, tmp_path, "ablate", "suffices", "--quick", "--on", "inline", "--device", "cpu", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [(row["depth"], row["recipe"], row["status"]) for row in found["rows"]] == [
        (1, None, "measured"),
        (1, "label_smoothing=0.3", "measured"),
        (2, None, "measured"),
    ]
    folder = tmp_path / "reports" / Path(found["run"]).name
    report, page = ((folder / name).read_text() for name in ("report.md", "report.html"))
    assert report.startswith("# Does a file suffice?\n")
    assert "Of 1 prediction 1 is supported." in report
    (outcome,) = [line for line in report.splitlines() if "two blocks against plain blocks" in line]
    assert all(word in outcome for word in ("**supported**", "parameters higher by more than 10 %"))
    assert "Predicted because they are two" in page
    assert all(f">{arm}<" in page for arm in ("plain blocks", "smoothed labels", "two blocks"))
    told = json.loads((tmp_path / "reports" / Path(found["run"]).name / "verdicts.json").read_text())
    assert [prediction["answer"] for prediction in told["predictions"]] == ["supported"]
    listed = json.loads(run_bench(program, tmp_path, "ablate", "--list", "--json").stdout)
    (entry,) = [entry for entry in listed if entry["name"] == "suffices"]
    assert entry == {
        "name": "suffices",
        "question": "Does a file suffice?",
        "cost": "seconds on a CPU; a GPU the same.",
        "last": f"{found['run']}, a first look: 1 supported",
    }


def test_one_file_is_a_mixer_with_options(tmp_path: Path) -> None:
    """Listed, planned, counted, trained and reported within the shared block."""
    program = copy_of_the_program(tmp_path / "program")
    (program / "models" / "mixers" / "own_channels.py").write_text(MIXER)
    listed = {entry["name"]: entry["summary"] for entry in json.loads(run_bench(program, tmp_path, "list", "mixers", "--json").stdout)}
    assert listed["own_channels"].startswith("Every token answers for itself")
    models = ("metaformer+mixer=own_channels", "metaformer+mixer=own_channels:bias=true")
    sizes = ("--seq", "16", "--width", "16", "--depth", "1", "--task", "digits", "--device", "cpu")
    metrics = ("--metrics", "params,flops,memory,accuracy", "--seeds", "1", "--epochs", "1", "--on", "inline", "--json")
    ran = run_bench(program, tmp_path, "run", "--models", ",".join(models), *sizes, *metrics)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert len(found["rows"]) == 2
    assert all(row["status"] == "measured" and row["flops_agree"] and row["activation_bytes"] > 0 for row in found["rows"])
    assert all(0 <= row["accuracy"] <= 1 for row in found["rows"])
    params = {row["model"]: row["params"] for row in found["rows"]}
    assert params[models[1]] - params[models[0]] == 16
    page = (tmp_path / "reports" / Path(found["run"]).name / "report.html").read_text()
    assert all(model in page for model in models)
    refused = run_bench(program, tmp_path, "run", "--models", "metaformer+mixer=own_channels:gain=2", *sizes)
    assert refused.returncode == 2
    assert "gain" in refused.stderr


def test_one_file_per_extension_is_enough(tmp_path: Path) -> None:
    program = copy_of_the_program(tmp_path / "program")
    family = (program / "models" / "vit.py").read_text()
    (program / "models" / "wide_vit.py").write_text(
        family.replace("NOMINAL_FFN_RATIO = 4", "NOMINAL_FFN_RATIO = 8").replace('"deit', '"wide')
    )
    mixer = (program / "models" / "mixers" / "attention.py").read_text()
    (program / "models" / "mixers" / "my_attention.py").write_text(mixer)
    (program / "bench" / "metrics" / "first_width.py").write_text(METRIC)
    (program / "bench" / "tasks" / "noise.py").write_text(TASK)
    (program / "bench" / "running" / "executors" / "here.py").write_text(EXECUTOR)
    listed = {(e["kind"], e["name"]) for e in json.loads(run_bench(program, tmp_path, "list", "--json").stdout)}
    assert {
        ("families", "wide_vit"),
        ("mixers", "my_attention"),
        ("metrics", "first_width"),
        ("tasks", "noise"),
        ("executors", "here"),
    } <= listed
    ran = run_bench(
        program,
        tmp_path,
        *("run", "--models", "wide_vit", "--seq", "17", "--task", "noise+items=60", "--width", "16", "--depth", "1"),
        *("--metrics", "params,flops,first_width,accuracy", "--seeds", "1", "--epochs", "1", "--on", "here", "--json"),
    )
    assert ran.returncode == 0, ran.stderr
    (row,) = json.loads(ran.stdout)["rows"]
    assert (row["model"], row["ffn_width"], row["task"], row["status"]) == ("wide_vit", 128, "noise+items=60", "measured")
    assert row["flops_agree"]
    assert row["rows_of_first_weight"] == 16
    assert 0 <= row["accuracy"] <= 1
    assert "wide_vit" in (tmp_path / "reports" / Path(json.loads(ran.stdout)["run"]).name / "report.md").read_text()

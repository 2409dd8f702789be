"""One file is one extension: dropped into its folder it is listed, planned, measured and reported, and no second file is touched."""

from __future__ import annotations

import json
from pathlib import Path

from tests.specimens import copy_of_the_program, run_bench

METRIC = '''"""The width, measured the hard way."""

from bench.metrics import Measurement

REPEAT = "once"
COLUMNS = ("rows_of_first_weight",)


def measure(job):
    from bench.build import build_model

    return Measurement(values={"rows_of_first_weight": next(build_model(job.cell.model).parameters()).shape[-1]})


def summarise(records):
    return {"rows_of_first_weight": records[0].outcome.values["rows_of_first_weight"]}
'''
TASK = '''"""Random noise of three classes."""

from bench.task_info import Images, TaskInfo
from bench.tasks import Split, Splits

OPTIONS = {"items": 30}


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

from bench.executors.inline import Executor

__all__ = ["Executor"]
'''
ABLATION = '''"""Does a file suffice?"""

GRID = {}
'''


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
    (program / "bench" / "executors" / "here.py").write_text(EXECUTOR)
    (program / "ablations" / "suffices.py").write_text(ABLATION)
    listed = {(e["kind"], e["name"]) for e in json.loads(run_bench(program, tmp_path, "list", "--json").stdout)}
    assert {
        ("families", "wide_vit"),
        ("mixers", "my_attention"),
        ("metrics", "first_width"),
        ("tasks", "noise"),
        ("executors", "here"),
        ("ablations", "suffices"),
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

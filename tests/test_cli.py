"""The command line as a user meets it: bad requests, light commands, help."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bench import cli
from bench.reading.store import content_of
from bench.spec import Job, Outcome
from models.layers.cost import real_fft_flops

RUN = ("run", "--models", "gmlp,vit", "--seq", "17,65")
SMALL = (*RUN, "--width", "16", "--depth", "1")
TASK = ("run", "--models", "vit", "--task", "digits", "--seq")
TRAINED = ("run", "--models", "gmlp", "--task", "digits", "--seq", "17", "--metrics", "accuracy")
GATED = ("plan", "--models", "metaformer+mixer=gated_projection:spatial_heads=3", "--seq", "17")
TRAINING_FLAGS = {"accuracy-seq": "17", "seeds": "2", "epochs": "2", "recipe": "dropout=0.1", "lr-trials": "3"}
MALFORMED: dict[str, tuple[str, ...]] = {
    "no model": ("run", "--seq", "17"),
    "empty models": ("run", "--models", "", "--seq", "17"),
    "empty entry in models": ("run", "--models", "gmlp,,vit", "--seq", "17"),
    "a comma alone": ("run", "--models", ",", "--seq", "17"),
    "unknown family": ("run", "--models", "gmpl", "--seq", "17"),
    "unknown variant": ("run", "--models", "deit-xl"),
    "unknown option of a family": ("run", "--models", "gmlp+pol=mean", "--seq", "17"),
    "option of another family": ("run", "--models", "vit+spatial_heads=2", "--seq", "17"),
    "option without a value": ("run", "--models", "gmlp+pool", "--seq", "17"),
    "option with an empty value": ("run", "--models", "gmlp+pool=", "--seq", "17"),
    "option value not allowed": ("run", "--models", "gmlp+pool=max", "--seq", "17"),
    "option value not a number": ("run", "--models", "gmlp+spatial_heads=two", "--seq", "17"),
    "option value zero": ("run", "--models", "gmlp+spatial_heads=0", "--seq", "17"),
    "option value not a boolean": ("run", "--models", "gmlp+activation_after=yes", "--seq", "17"),
    "negative option": ("run", "--models", "gmlp+tiny_attention=-1", "--seq", "17"),
    "models with spaces": ("run", "--models", "gmlp", "vit", "--seq", "17"),
    "a file for a model": ("run", "--models", "vit,mine/mix.py", "--seq", "17"),
    "no seq": ("run", "--models", "gmlp"),
    "empty seq entry": ("run", "--models", "gmlp", "--seq", "17,,65"),
    "seq zero": ("run", "--models", "gmlp", "--seq", "0"),
    "seq one": ("run", "--models", "gmlp", "--seq", "1"),
    "seq negative": ("run", "--models", "gmlp", "--seq", "-17"),
    "seq huge": ("run", "--models", "gmlp", "--seq", "99999999999999999999"),
    "seq a fraction": ("run", "--models", "gmlp", "--seq", "17.5"),
    "seq a word": ("run", "--models", "gmlp", "--seq", "seventeen"),
    "seq that the task has not": (*TASK, "17,64"),
    "variant that does not fit the task": ("run", "--models", "deit-ti", "--task", "digits"),
    "params zero": (*RUN, "--params", "0"),
    "params negative": (*RUN, "--params", "-1M"),
    "params a word": (*RUN, "--params", "big"),
    "params with an unknown suffix": (*RUN, "--params", "1T"),
    "params huge": (*RUN, "--params", "99999999B"),
    "params empty": (*RUN, "--params", ""),
    "params too small for any width": (*RUN, "--params", "100"),
    "params too small for these lengths": ("run", "--models", "gmlp", "--seq", "4097", "--params", "1M"),
    "unknown policy": (*RUN, "--match", "size"),
    "unknown reference": (*RUN, "--match", "flops", "--reference", "resnet"),
    "unknown scope": (*RUN, "--budget-scope", "head"),
    "depth zero": (*RUN, "--depth", "0"),
    "depth huge": (*RUN, "--depth", "1000000"),
    "width negative": (*RUN, "--width", "-8"),
    "width not a multiple of heads": (*RUN, "--width", "130", "--heads", "7"),
    "width of less than one channel a head": (*RUN, "--width", "3", "--heads", "7"),
    "ffn_width without width": (*RUN, "--ffn-width", "128"),
    "ffn_width that does not split": ("run", "--models", "gmlp", "--seq", "17", "--width", "64", "--ffn-width", "129"),
    "heads a word": (*RUN, "--heads", "many"),
    "unknown metric": (*RUN, "--metrics", "speed"),
    "empty metrics": (*RUN, "--metrics", ""),
    "unknown task": (*RUN, "--task", "mnist"),
    "gpu for cuda": (*RUN, "--device", "gpu"),
    "half precision": (*RUN, "--dtype", "fp16"),
    "a short name for the learning rate": (*TASK, "17", "--metrics", "accuracy", "--recipe", "lr=0.1"),
    "accuracy without a task": (*RUN, "--metrics", "accuracy"),
    **{f"{flag} without accuracy": (*RUN, f"--{flag}", value) for flag, value in TRAINING_FLAGS.items()},
    "a reference without FLOPs to match": (*RUN, "--reference", "gmlp"),
    "matching of sizes that are set": (*RUN, "--width", "64", "--match", "flops"),
    "a scope of a budget that is not there": (*RUN, "--width", "64", "--budget-scope", "blocks"),
    "attention of models without it": ("plan", "--models", "gmlp", "--seq", "17", "--attention", "math"),
    "rounds of counts": (*RUN, "--metrics", "params,flops", "--rounds", "5"),
    "a margin without times": (*RUN, "--metrics", "params", "--margin", "0.1"),
    "memory in gigabytes": ("plan", *RUN[1:], "--memory", "8GB"),
    "the largest batch as a batch": (*RUN, "--batch", "max"),
    "a batch of less than one sample": (*RUN, "--batch-tokens", "20"),
    "a flag of training for two revisions": ("diff", "--code", "HEAD", ".", "--", *RUN[1:], "--seeds", "2"),
    "accuracy_seq not in seq": (*TASK, "17", "--metrics", "accuracy", "--accuracy-seq", "65"),
    "data root that is no folder": (*RUN, "--data-root", "nowhere"),
    "data root without a name": (*RUN, "--data-root", ""),
    "sizes for a published variant": ("run", "--models", "deit-ti", "--width", "64"),
    "budget for a published variant": ("run", "--models", "deit-ti", "--params", "5M"),
    "an option given twice": ("run", "--models", "gmlp+pool=mean+pool=cls", "--seq", "17"),
    "address without Ray": (*RUN, "--address", "here:6379"),
    "address without Ray, of a question": ("ablate", "sequence_length", "--address", "here:6379"),
    "address without Ray, beside peers": ("peers", "--address", "here:6379"),
    "a budget that a width does not meet": (*RUN, "--width", "64", "--params", "5M"),
    "ffn_width and a budget at a width": (*RUN, "--width", "64", "--ffn-width", "128", "--params", "300k"),
    "a budget that a width does not meet, to describe": ("describe", "vit", "--width", "128", "--params", "5M"),
    "the default batch and tokens": (*RUN, "--batch", "32", "--batch-tokens", "1024"),
    "the default epochs twice": (*TASK, "17", "--metrics", "accuracy", "--recipe", "epochs=10", "--epochs", "5"),
    "the default input for an image task": (*TASK, "17", "--input", "patches"),
    "default depth for a published variant": ("run", "--models", "deit-ti", "--depth", "6"),
    "plan with a default flag": ("run", "--plan", "plan.json", "--depth", "6"),
    "unknown input": (*RUN, "--input", "audio"),
    "tokens for an image task": (*TASK, "17", "--input", "tokens"),
    "unknown phase": (*RUN, "--phase", "inference"),
    "empty phase": (*RUN, "--phase", ""),
    "unknown dtype": (*RUN, "--dtype", "fp64"),
    "unknown engine": (*RUN, "--engine", "jit"),
    "unknown attention": (*RUN, "--attention", "flsh"),
    "batch zero": (*RUN, "--batch", "0"),
    "batch negative": (*RUN, "--batch", "-32"),
    "batch huge": (*RUN, "--batch", "10000000000"),
    "unknown device": (*RUN, "--device", "tpu"),
    "cuda where there is none": (*RUN, "--device", "cuda"),
    "threads zero": (*RUN, "--threads", "0"),
    "more threads than cores": (*RUN, "--threads", "100000"),
    "rounds zero": (*RUN, "--rounds", "0"),
    "rounds a word": (*RUN, "--rounds", "few"),
    "margin zero": (*RUN, "--margin", "0"),
    "margin in percent": (*RUN, "--margin", "3"),
    "limit zero": (*RUN, "--limit-s", "0"),
    "limit negative": (*RUN, "--limit-s", "-1"),
    "limit not a number": (*RUN, "--limit-s", "nan"),
    "limit infinite": (*RUN, "--limit-s", "inf"),
    "seeds zero": (*RUN, "--seeds", "0"),
    "seed negative": (*RUN, "--seed", "-1"),
    "epochs zero": (*RUN, "--epochs", "0"),
    "unknown executor": (*RUN, "--on", "slurm"),
    "unknown flag": (*RUN, "--modells", "gmlp"),
    "flag without a value": ("run", "--models"),
    "stray word": (*RUN, "now"),
    "unknown command": ("rnu",),
    "unknown kind": ("list", "family"),
    "plan that is not there": ("run", "--plan", "nowhere.json"),
    "plan with other flags": ("run", "--plan", "plan.json", "--models", "vit"),
    "plan and resume": ("run", "--plan", "plan.json", "--resume", "x"),
    "resume and out": ("run", "--resume", "x", "--out", "y"),
    "resume of nothing": ("run", "--resume", "nowhere"),
    "report of nothing": ("report", "nowhere"),
    "check of nothing": ("check", "nowhere"),
    "report without a run": ("report",),
    "describe of several": ("describe", "vit", "--seq", "17,65"),
    "describe of two models": ("describe", "gmlp,vit"),
    "describe of nothing": ("describe",),
    "describe of what cannot be": ("describe", "gmlp", "--seq", "4097", "--params", "100k"),
    "image data that are absent": (*TASK[:-2], "cifar10", "--seq", "17", "--metrics", "accuracy", "--data-root", "."),
    "data that no folder was named for": (*TASK[:-2], "cifar10", "--seq", "17", "--metrics", "accuracy"),
    "text data that are absent": (*TASK[:-2], "trec", "--seq", "65", "--metrics", "accuracy", "--data-root", "."),
    "a task without its argument": (*TASK[:-2], "images", "--seq", "17"),
    "a task with an argument too many": (*TASK[:-2], "digits:here", "--seq", "17"),
    "an option that a task has not": (*TASK[:-2], "copy+size=3", "--seq", "16"),
    "an option of a task with a bad value": (*TASK[:-2], "copy+symbols=few", "--seq", "16"),
    "an odd length for copying": (*TASK[:-2], "copy", "--seq", "17"),
    "a table that is not there": (*TASK[:-2], "text:nowhere.csv", "--seq", "17"),
    "a table of an unknown kind": (*TASK[:-2], "text:nowhere.xlsx", "--seq", "17"),
    "a folder of images that is not there": (*TASK[:-2], "images:nowhere", "--seq", "17"),
    "checkpoints of no training": (*RUN, "--checkpoints", "large"),
    "too few trials to bracket": (*TASK, "17", "--metrics", "accuracy", "--lr-trials", "2"),
    "weight decays without rates": (*TASK, "17", "--metrics", "accuracy", "--decay-trials", "3"),
    "multiples of no weight decay": (
        *(*TASK, "17", "--metrics", "accuracy", "--lr-trials", "3", "--decay-trials", "3", "--recipe", "weight_decay=0"),
    ),
    "trials not a number": (*TASK, "17", "--metrics", "accuracy", "--lr-trials", "two"),
    "tuning without trials": (*TASK, "17", "--metrics", "accuracy,tuning"),
    "unknown key of a recipe": (*TASK, "17", "--metrics", "accuracy", "--recipe", "learning=1"),
    "recipe without a value": (*TASK, "17", "--metrics", "accuracy", "--recipe", "dropout"),
    "recipe with an unknown augmentation": (*TASK, "17", "--metrics", "accuracy", "--recipe", "augment=crop+blur"),
    "recipe with a rate of zero": (*TASK, "17", "--metrics", "accuracy", "--recipe", "learning_rate=0"),
    "recipe with a key given twice": (*TASK, "17", "--metrics", "accuracy", "--recipe", "epochs=1,epochs=2"),
    "dropout of everything": (*TASK, "17", "--metrics", "accuracy", "--recipe", "dropout=1"),
    "identity gating with attention": ("run", "--models", "gmlp+gating=identity+tiny_attention=8", "--seq", "17"),
    "heads that an option does not allow": ("plan", "--models", "metaformer+mixer=attention:inner_width=64", "--heads", "3", "--seq", "17"),
    "the same to describe": ("describe", "metaformer+mixer=attention:inner_width=64", "--heads", "3", "--seq", "17"),
    "no width for an option": ("plan", "--models", "metaformer+mixer=attention:inner_width=7", "--params", "300k", "--seq", "17"),
    "no width for an option to describe": ("describe", "metaformer+mixer=attention:inner_width=7", "--params", "300k", "--seq", "17"),
    "a width that an option does not allow": (*GATED, "--width", "64", "--params", "1M"),
    "a reference that reads points": ("plan", "--models", "vit", "--match", "flops", "--reference", "kernel_regression", "--seq", "17"),
    "dropout at a place that is not there": (
        *TASK[:2],
        "gmlp",
        *TASK[3:],
        "17",
        "--metrics",
        "accuracy",
        "--recipe",
        "dropout=0.1,dropout_at=attention",
    ),
    "an encoder that reads its own answers": ("plan", "--models", "transformer", "--task", "reverse+form=shifted", "--seq", "16"),
    "compare of nothing": ("compare", "nowhere"),
    "minutes a word": (*RUN, "--minutes", "few"),
    "minutes zero": (*RUN, "--minutes", "0"),
    "minutes of a question too few": ("ablate", "headline", "--minutes", "0.1"),
    "diff with nothing": ("diff", "nowhere", "nowhere"),
    "diff of one run": ("diff", "nowhere"),
    "code of an unknown revision": ("diff", "--code", "no-such-revision", ".", "--", *RUN[1:]),
    "plan for an unwritable file": ("plan", "--models", "vit", "--seq", "17", "--out", "/proc/nowhere/plan.json"),
}


WORDS: dict[str, tuple[str, ...]] = {
    "models with spaces": ("extra argument", "try bench run --models gmlp,vit"),
    "a file for a model": ("mine/mix.py is a file", "write mine/mix.py:NAME"),
    "unknown family": ("gmpl", "did you mean gmlp?", "bench list families"),
    "seq that the task has not": ("64", "17, 65, 257", "--seq"),
    "params too small for any width": ("100 parameters", "nearest"),
    "cuda where there is none": ("--device cuda", "--device cpu"),
    "unknown option of a family": ("pol", "did you mean pool?"),
    "a budget that a width does not meet": (
        "at depth 6 and width 64 no ffn_width of 3 to 12 times the width comes within 0.5% of 5,000,000 parameters",
        "nearest",
    ),
    "ffn_width and a budget at a width": ("--ffn-width needs --width without --params", "--width alone"),
    "plan with a default flag": ("--plan takes the whole request", "leave --depth out"),
    "unknown task": ("'mnist'", "did you mean digits or fashion_mnist?", "bench list tasks"),
    "a short name for the learning rate": ("'lr'", "did you mean learning_rate?"),
    "a table that is not there": ("text:nowhere.csv", ".csv, .tsv, .jsonl, .parquet", "--task text:reviews.csv"),
    "width not a multiple of heads": ("--width 130", "--heads 7", "nearest: 126, 133", "try --width 133"),
    "accuracy without a task": ("--task digits",),
    "heads that an option does not allow": ("inner_width must be a multiple of heads", "--heads"),
    "a reference that reads points": ("kernel_regression", "reads points", "gmlp"),
    "dropout at a place that is not there": ("attention", "gmlp", "dropout_at=embedding"),
    "unknown flag": ("--modells", "--models", "bench run --help"),
    "depth zero": ("--depth", "'0'", "between 1 and 10,000", "try --depth 6"),
    "flag without a value": ("--models", "try bench run --models gmlp,vit", "bench run --help"),
    "stray word": ("now", "try bench run --models", "bench run --help"),
    "describe of nothing": ("MODEL", "try bench describe gmlp"),
    "describe of two models": ("one model", "gmlp,vit", "try bench describe gmlp", "bench plan --models gmlp,vit"),
    "a batch of less than one sample": ("--seq 65", "try --batch-tokens 65"),
}
"""What a line says was asked, what is allowed and what to type."""


def answered(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    output = capsys.readouterr()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, output.out, output.err


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = dict.fromkeys(("gpu", "gpu_count", "gpu_memory_bytes", "gpu_driver", "cuda_version"))
    monkeypatch.setattr("bench.measure.environment.gpu_facts", lambda: nothing)


def test_there_are_enough_malformed_requests() -> None:
    assert len(MALFORMED) >= 60
    assert WORDS.keys() <= MALFORMED.keys()


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_gets_one_clear_line_and_writes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = answered(MALFORMED[name], capsys)
    assert code == 2
    assert out == ""
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"]
    named = re.search(r"--(?!help)[a-z]", err) or any(word and word in err for word in MALFORMED[name])
    assert named, "it names neither a field nor a value that was typed"
    assert all(word in err for word in WORDS.get(name, ()))
    assert ("No such option" in err) == (name == "unknown flag"), "a case of a flag that is gone proves nothing"
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_output_folder_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = answered((*RUN, "--metrics", "params", "--out", "/proc/nowhere/run"), capsys)
    assert code == 2
    assert "cannot write the run folder" in err


@pytest.mark.parametrize(
    ("batch", "text", "suggested"),
    [("32", ", batch 32, about ", True), ("4", ", batch 4, about ", False), ("1,4", ", batch 1, 4, about ", False)],
)
def test_the_estimate_names_the_batch_and_a_slow_quick_run_a_smaller_one(
    batch: str, text: str, suggested: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("plan", "--models", "gmlp", "--seq", "513", "--params", "4M", "--quick", "--threads", "1", "--device", "cpu", "--batch", batch)
    _, _, err = answered(words, capsys)
    assert text in err
    assert ("--batch 4 is faster" in err) == suggested


@pytest.mark.parametrize(("metrics", "said"), [("params,accuracy", True), ("params,latency", False)])
def test_a_plan_says_how_long_its_trainings_take(metrics: str, said: bool, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "--models", "vit", "--seq", "17", "--params", "100k", "--depth", "2", "--task", "digits", "--metrics", metrics)
    _, _, err = answered((*words, "--device", "cpu"), capsys)
    assert [line.startswith("trainings: about ") and line.endswith(", 3 of each model") for line in err.splitlines()].count(True) == said
    _, out, _ = answered((*words, "--device", "cpu", "--json"), capsys)
    assert bool(json.loads(out)["estimated_training_s"]) == said


def test_a_run_ends_with_paths_two_lines_of_notes_and_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answered((*SMALL, "--metrics", "params", "--quick", "--on", "inline", "--out", str(tmp_path / "mine")), capsys)
    assert code == 0
    opening, results, report, first, more = err.splitlines()
    assert opening.startswith(f"{tmp_path / 'mine'}: 4 configurations, batch 32, about ")
    assert (results, report.partition(":")[0]) == (f"results: {tmp_path / 'mine'}", "report")
    assert first.partition(":")[0] in ("note", "WARNING")
    assert more.startswith("advice")
    assert more.endswith(f"bench check {tmp_path / 'mine'}")
    table, _, answer = out.partition("\n\n")
    assert table.splitlines()[0].split() == ["model", "n", "params"]
    assert 1 <= len(answer.splitlines()) <= 3


def test_a_folder_with_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}")
    code, _, err = answered((*RUN, "--metrics", "params", "--out", str(tmp_path)), capsys)
    assert code == 2
    assert str(tmp_path) in err
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_a_folder_that_can_hold_no_run_is_refused_before_planning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "today.txt").touch()
    monkeypatch.setattr("bench.commands.run.plan_to_run", lambda *_: pytest.fail("planned"))
    monkeypatch.setattr("bench.planning.ablation.plan_ablation", lambda *_: pytest.fail("planned"))
    for folder, reason in {"notes": "is not a run folder", "notes/today.txt": "is a file"}.items():
        for command in (RUN, ("run", "--plan", "plan.json"), ("ablate", "positions"), ("peers",)):
            code, _, err = answered((*command, "--out", str(tmp_path / folder)), capsys)
            assert (code, reason in err) == (2, True)


def test_a_task_without_training_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    for metrics, noted in {"params": True, "params,accuracy": False}.items():
        code, _, err = answered(("plan", "--models", "vit", "--task", "digits", "--seq", "17", "--metrics", metrics), capsys)
        assert (code, "note: --task digits only sets inputs and outputs" in err) == (0, noted)


@pytest.mark.parametrize("spoilt", ["records.jsonl", "plan.json", "environment.json"])
@pytest.mark.parametrize("command", ["report", "check"])
def test_a_corrupt_run_is_refused_in_one_line(spoilt: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(__file__).parents[1] / "results" / "2026-11-27_cpu_three_families"
    for name in ("records.jsonl", "plan.json", "environment.json"):
        text = (content_of(run / name) or b"").decode()
        (tmp_path / name).write_text(text if name != spoilt else '{"schema": []}\n' + text)
    code, out, err = answered((command, str(tmp_path)), capsys)
    assert (code, out) == (2, "")
    assert 1 <= len(err.splitlines()) <= 3
    assert spoilt in err
    assert len(list(tmp_path.iterdir())) == 3


LIGHT = (
    ("--help",),
    ("run", "--help"),
    ("list",),
    ("list", "families", "--json"),
    ("run", "--modells", "gmlp"),
    ("run", "--models", "gmpl", "--seq", "17"),
    ("run", "--models", "gmlp", "--seq", "17", "--dtype", "fp64"),
    ("check", "nowhere"),
)


ONE_AFTER_THE_OTHER = """
import json, sys
from bench import cli
for arguments in json.loads(sys.argv[1]):
    try:
        cli.main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    loaded = sorted({"torch", "pandas", "matplotlib", "scipy"} & set(sys.modules))
    sys.stderr.write("\\nLOADED " + json.dumps([arguments, code, loaded]) + "\\n")
"""


def test_light_commands_import_no_torch(tmp_path: Path) -> None:
    """Nor anything else that is heavy, but for the last one, which reads a table."""
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(LIGHT)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=_own_path())
    told = [json.loads(line.removeprefix("LOADED ")) for line in ran.stderr.splitlines() if line.startswith("LOADED ")]
    expected = [[list(arguments), 0 if "--help" in arguments or "list" in arguments else 2, []] for arguments in LIGHT]
    assert told[:-1] == expected[:-1]
    assert told[-1][:2] == expected[-1][:2]
    assert "torch" not in told[-1][2]


def _own_path() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


COMMANDS = (
    *("run", "plan", "describe", "list", "ablate", "peers", "report", "index", "site", "compare", "diff", "pool"),
    *("check", "env"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_a_real_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answered((command, "--help"), capsys)
    assert code == 0
    assert f"Example: bench {command}" in " ".join(out.split())


def test_every_command_is_held_to_the_help_rule() -> None:
    import typer.main

    group: Any = typer.main.get_command(cli.app)
    assert tuple(group.commands) == COMMANDS


COMPLETED = {
    "a command": ("bench des", "describe"),
    "a flag": ("bench run --mod", "--models"),
    "a family in a list": ("bench run --models gmlp,tra", "gmlp,transformer"),
    "a variant": ("bench describe deit-t", "deit-ti"),
    "a metric": ("bench plan --metrics params,lat", "params,latency"),
    "a task": ("bench run --task asso", "associative_recall"),
    "an engine": ("bench run --engine eag", "eager"),
    "a question": ("bench ablate token", "token_mixing"),
    "a kind": ("bench list exe", "executors"),
    "a matching policy": ("bench run --match s", "shape"),
    "phases": ("bench run --phase infer,t", "infer,train"),
    "attention kernels": ("bench plan --attention auto,m", "auto,math"),
    "a device": ("bench ablate --device cp", "cpu"),
    "a precision": ("bench run --dtype bf16-", "bf16-autocast"),
    "a run": ("bench check results/2026-01-02", "results/2026-01-02_cpu_x"),
    "several runs": ("bench report results/a results/2026-01-02", "results/2026-01-02_cpu_x"),
    "no run": ("bench check elsewhere/2026-01-02", ""),
}


@pytest.mark.parametrize("name", COMPLETED)
def test_the_shell_completes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "results" / "2026-01-02_cpu_x"
    run.mkdir(parents=True)
    (run / "plan.json.xz").touch()
    (tmp_path / "results" / "2026-01-02_no_run").mkdir()
    typed, completed = COMPLETED[name]
    monkeypatch.chdir(tmp_path)
    for variable, text in {"_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}.items():
        monkeypatch.setenv(variable, text)
    code, out, _ = answered((), capsys)
    assert (code, out.split()) == (0, completed.split())


def test_completion_is_light(tmp_path: Path) -> None:
    variables = {"_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": "bench run --models g", "COMP_CWORD": "3"}
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, "[[]]"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=_own_path() | variables)
    assert ran.stdout.split() == ["gmlp", "gmlp-ti", "gmlp-s", "gmlp-b"]
    assert json.loads(ran.stderr.partition("LOADED ")[2]) == [[], 0, []]


def test_tasks_are_listed_with_their_facts(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answered(("list", "tasks", "--json"), capsys)
    tasks = {task["name"]: task for task in json.loads(out)}
    assert code == 0
    assert tasks["cifar10"]["lengths"] == "2, 5, 17, 65, 257, 1025"
    assert (tasks["trec"]["num_classes"], tasks["trec"]["num_train"], tasks["trec"]["num_test"]) == (6, 5452, 500)
    assert (tasks["copy"]["chance"], tasks["copy"]["options"]["symbols"]) == (1 / 16, 16)
    assert tasks["images"]["argument"] == "FOLDER"
    assert all(task["source"] for task in tasks.values() if not task["argument"])


def test_the_table_of_tasks_names_each(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answered(("list", "tasks"), capsys)
    assert code == 0
    assert {"images:FOLDER", "text:FILE", "associative_recall", "cifar100"} <= set(out.split())


def test_describe_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answered(("describe", "gmlp", "--params", "1M", "--seq", "257", "--json"), capsys)
    data = json.loads(out)
    assert code == 0
    assert sum(data["flops_by_degree"].values()) == data["flops"] == sum(t["flops"] for t in data["terms"])
    assert sum(t["params"] for t in data["terms"]) == data["params"]
    assert data["params_seq"] == 6 * (257 * 257 + 257)
    assert data["quadratic_equals_linear_at"]["blocks"] == 3 * data["width"]
    assert abs(data["params"] / data["budget"] - 1) <= 0.005


@pytest.mark.parametrize("form", ["text", "json"])
def test_describe_shows_ffts_where_there_are_some(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--width", "32", "--depth", "2", "--ffn-width", "64", "--seq", "257", *(["--json"] if form == "json" else []))
    dense, by_fft = (answered(("describe", f"gmlp+toeplitz=true{kernel}", *sizes), capsys)[1] for kernel in ("", "+kernel=fft"))
    assert "fft_flops" not in dense
    flops = 2 * (2 * 32 + 1) * real_fft_flops(540)
    if form == "json":
        assert json.loads(by_fft)["fft_flops"] == flops
    else:
        (line,) = [line for line in by_fft.splitlines() if "fft_flops" in line]
        assert line.split() == ["fft_flops", f"{flops:,}"]


def test_describe_shows_the_true_size_of_a_misjudged_vit(capsys: pytest.CaptureFixture[str]) -> None:
    """A ViT of 6 layers, 768 wide, with 1024 feed-forward channels was once put at 8 millions; its blocks alone hold 23.6 M."""
    _, out, _ = answered(
        ("describe", "vit", "--width", "768", "--depth", "6", "--heads", "8", "--ffn-width", "1024", "--seq", "65", "--json"), capsys
    )
    attention, feed_forward, norms = 4 * (768 * 768 + 768), 2 * 768 * 1024 + 1024 + 768, 2 * 2 * 768
    assert json.loads(out)["params_blocks"] == 6 * (attention + feed_forward + norms) == 23_640_576


def planned_on(device: str, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code, out, _ = answered(("plan", "--models", "vit", "--device", device, "--json", *words), capsys)
    assert code == 0
    plan: dict[str, Any] = json.loads(out)["plan"]
    return plan


@pytest.mark.parametrize(
    ("device", "typed", "limit_s", "train_limit_s"),
    [
        ("cpu", (), 60, 3600),
        ("cuda", (), 180, 3600),
        ("cuda", ("--quick",), 20, 3600),
        ("cuda", ("--limit-s", "60"), 60, 60),
        ("cuda", ("--limit-s", "90", "--quick"), 90, 90),
    ],
)
def test_a_job_has_longer_on_cuda_unless_its_limit_is_typed(
    device: str, typed: tuple[str, ...], limit_s: float, train_limit_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = planned_on(device, capsys, "--seq", "17", *typed)["settings"]
    assert (settings["limit_s"], settings["train_limit_s"]) == (limit_s, train_limit_s)


def lengths_of(plan: dict[str, Any]) -> list[int]:
    return list(dict.fromkeys(cell["cell"]["model"]["shape"]["seq_len"] for cell in plan["cells"]))


def test_without_lengths_cuda_has_aligned_ones_beside_the_unaligned(capsys: pytest.CaptureFixture[str]) -> None:
    assert lengths_of(planned_on("cuda", capsys)) == [64, 65, 256, 257, 1024, 1025]
    assert lengths_of(planned_on("cuda", capsys, "--seq", "65")) == [65]
    assert lengths_of(planned_on("cuda", capsys, "--models", "deit-ti")) == [197]  # published with a length
    code, _, err = answered(("plan", "--models", "vit", "--device", "cpu"), capsys)
    assert code == 2
    assert "--seq is missing" in err


def test_plan_touches_no_device_and_speaks_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def touched() -> None:
        raise AssertionError("a device was asked")

    monkeypatch.setattr("bench.measure.environment.gpu_facts", touched)
    monkeypatch.setattr("torch.cuda.is_available", touched)
    code, out, _ = answered(("plan", "--models", "gmlp,vit", "--seq", "17,1025", "--device", "cuda", "--json"), capsys)
    data = json.loads(out)
    assert code == 0
    assert {c["cell"]["workload"]["device"] for c in data["plan"]["cells"]} == {"cuda"}
    assert [s["model"] for s in data["plan"]["skipped"]] == ["gmlp"]
    assert data["estimated_s"] > 0


def test_list_names_what_the_folders_hold(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answered(("list", "--json"), capsys)
    listed = {(e["kind"], e["name"]) for e in json.loads(out)}
    assert {("families", "gmlp"), ("mixers", "attention"), ("tasks", "digits"), ("executors", "process")} <= listed
    assert all(e["summary"] for e in json.loads(out))


def calibrated(monkeypatch: pytest.MonkeyPatch, outcome: Outcome) -> list[Job]:
    """The jobs that the process executor is handed, each of which ends as `outcome`."""
    handed: list[Job] = []

    def run(_: object, job: Job) -> Outcome:
        handed.append(job)
        return outcome

    monkeypatch.setattr("bench.running.executors.process.Executor.run", run)
    monkeypatch.setattr("bench.fork_server.new_process", lambda *_: (Mock(), None))
    return handed


@pytest.mark.usefixtures("no_gpu")
def test_calibrating_tells_the_ceilings_of_both_arithmetics(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ceilings = {"ceiling_flops_per_s": 1e11, "ceiling_bytes_per_s": 2e10, "ceiling_launch_s": 3e-6}
    handed = calibrated(monkeypatch, Outcome(status="measured", values={**ceilings, "threads": 1}))
    code, out, _ = answered(("env", "--calibrate", "--json"), capsys)
    assert code == 0
    assert [(job.metric, job.cell.workload.dtype, job.cell.workload.device) for job in handed] == [
        ("ceiling", "fp32", "cpu"),
        ("ceiling", "bf16", "cpu"),
    ]
    threads = handed[0].settings.threads
    assert json.loads(out) == [{"device": "cpu", "threads": threads, "dtype": dtype, **ceilings} for dtype in ("fp32", "bf16")]
    code, out, _ = answered(("env", "--calibrate"), capsys)
    assert code == 0
    assert {"cpu", "fp32", "bf16", "1e+11", "2e+10", "3e-06"} <= set(out.split())


@pytest.mark.usefixtures("no_gpu")
def test_a_calibration_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calibrated(monkeypatch, Outcome(status="out_of_memory", reason="planted"))
    code, out, err = answered(("env", "--calibrate", "--json"), capsys)
    assert code == 1
    assert [entry["ceiling_launch_s"] for entry in json.loads(out)] == [None, None]
    assert "fp32: out_of_memory: planted" in err


def test_a_run_with_an_edited_plan_is_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(__file__).parents[1] / "results" / "2026-11-27_cpu_three_families"
    for name in ("records.jsonl", "plan.json", "environment.json"):
        (tmp_path / name).write_bytes(content_of(run / name) or b"")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["cells"][0]["sizing"]["params"] += 1
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    code, out, err = answered(("check", str(tmp_path)), capsys)
    assert (code, out) == (2, "")
    assert "cannot be run: the parameters of" in err

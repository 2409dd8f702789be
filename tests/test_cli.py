"""The command line as a user meets it: bad requests, light commands, help."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer.main

import bench
from bench import cli
from bench.reading.store import content_of
from bench.spec import Job, Outcome, RequestError
from tests.answered import Answer
from tests.specimens import ROOT, environment_of

RUN = "run --models gmlp,vit --seq 17,65"
TASK = "run --models vit --task digits --seq"
TRAINED = f"{TASK} 17 --metrics accuracy"
TRAINING_FLAGS = ("--accuracy-seq 17", "--seeds 2", "--epochs 2", "--recipe dropout=0.1", "--lr-trials 3", "--save-weights")
MALFORMED = {
    "no model": "run --seq 17",
    "empty entry in models": "run --models gmlp,,vit --seq 17",
    "unknown family": "run --models gmpl --seq 17",
    "unknown variant": "run --models deit-xl",
    "unknown option of a family": "run --models gmlp+pol=mean --seq 17",
    "option value not allowed": "run --models gmlp+pool=max --seq 17",
    "option value zero": "run --models gmlp+spatial_heads=0 --seq 17",
    "models with spaces": "run --models gmlp, vit --seq 17",
    "a file for a model": "run --models vit,mine/mix.py --seq 17",
    "no seq": "run --models gmlp",
    "seq one": "run --models gmlp --seq 1",
    "seq that the task has not": f"{TASK} 17,64",
    "variant that does not fit the task": "run --models deit-ti --task digits",
    "params a word": f"{RUN} --params big",
    "params too small for any width": f"{RUN} --params 100",
    "params too small for these lengths": "run --models gmlp --seq 4097 --params 1M",
    "seq negative": "run --models gmlp --seq -17",
    "unknown reference": f"{RUN} --match flops --reference resnet",
    "unknown policy": f"{RUN} --match size",
    "depth zero": f"{RUN} --depth 0",
    "width not a multiple of heads": f"{RUN} --width 130 --heads 7",
    "width of less than one channel a head": f"{RUN} --width 3 --heads 7",
    "ffn_width without width": f"{RUN} --ffn-width 128",
    "ffn_width that does not split": "run --models gmlp --seq 17 --width 64 --ffn-width 129",
    "unknown metric": f"{RUN} --metrics speed",
    "unknown task": f"{RUN} --task mnist",
    "a short name for the learning rate": f"{TRAINED} --recipe lr=0.1",
    "accuracy without a task": f"{RUN} --metrics accuracy",
    **{f"{flag.split()[0]} without accuracy": f"{RUN} {flag}" for flag in TRAINING_FLAGS},
    "a reference without FLOPs to match": f"{RUN} --reference gmlp",
    "matching of sizes that are set": f"{RUN} --width 64 --match flops",
    "attention of models without it": "plan --models gmlp --seq 17 --attention math",
    **{
        f"{flag.split()[0]} of trainings": f"{TRAINED} {flag}"
        for flag in ("--attention math", "--batch 8", "--batch-tokens 340", "--dtype bf16", "--engine compile")
    },
    "rounds of counts": f"{RUN} --metrics params,flops --rounds 5",
    "a margin without times": f"{RUN} --metrics params --margin 0.1",
    "the largest batch as a batch": f"{RUN} --batch max",
    "a batch of less than one sample": f"{RUN} --batch-tokens 20",
    "a flag of training for two revisions": "diff --code HEAD . -- --models gmlp,vit --seq 17,65 --seeds 2",
    "accuracy_seq not in seq": f"{TRAINED} --accuracy-seq 65",
    "data root that is no folder": f"{RUN} --data-root nowhere",
    "an option given twice": "run --models gmlp+pool=mean+pool=cls --seq 17",
    "address without Ray": f"{RUN} --address here:6379",
    "address without Ray, beside peers": "peers --address here:6379",
    "a budget that a width does not meet": f"{RUN} --width 64 --params 5M",
    "ffn_width and a budget at a width": f"{RUN} --width 64 --ffn-width 128 --params 300k",
    "the default batch and tokens": f"{RUN} --batch 32 --batch-tokens 1024",
    "the default epochs twice": f"{TRAINED} --recipe epochs=10 --epochs 5",
    "default depth for a published variant": "run --models deit-ti --depth 6",
    "plan with a default flag": "run --plan plan.json --depth 6",
    "unknown dtype": f"{RUN} --dtype fp64",
    "unknown engine": f"{RUN} --engine jit",
    "unknown attention": f"{RUN} --attention flsh",
    "unknown device": f"{RUN} --device tpu",
    "cuda where there is none": f"{RUN} --device cuda",
    "more threads than cores": f"{RUN} --threads 100000",
    "margin in percent": f"{RUN} --margin 3",
    "limit not a number": f"{RUN} --limit-s nan",
    "unknown executor": f"{RUN} --on slurm",
    "unknown flag": f"{RUN} --modells gmlp",
    "flag without a value": "run --models",
    "stray word": f"{RUN} now",
    "unknown command": "rnu",
    "unknown kind": "list family",
    "plan that is not there": "run --plan nowhere.json",
    "plan and resume": "run --plan plan.json --resume x",
    "resume and out": "run --resume x --out y",
    "resume of nothing": "run --resume nowhere",
    "report of nothing": "report nowhere",
    "report without a run": "report",
    "describe of two models": "describe gmlp,vit",
    "describe of nothing": "describe",
    "describe of what cannot be": "describe gmlp --seq 4097 --params 100k",
    "image data that are absent": "run --models vit --task cifar10 --seq 17 --metrics accuracy --data-root .",
    "data that no folder was named for": "run --models vit --task cifar10 --seq 17 --metrics accuracy",
    "a task without its argument": "run --models vit --task images --seq 17",
    "a task with an argument too many": "run --models vit --task digits:here --seq 17",
    "an option that a task has not": "run --models vit --task copy+size=3 --seq 16",
    "a table that is not there": "run --models vit --task text:nowhere.csv --seq 17",
    "a folder of images that is not there": "run --models vit --task images:nowhere --seq 17",
    "checkpoints of no training": f"{RUN} --checkpoints large",
    "weight decays without rates": f"{TRAINED} --decay-trials 3",
    "multiples of no weight decay": f"{TRAINED} --lr-trials 3 --decay-trials 3 --recipe weight_decay=0",
    "tuning without trials": f"{TRAINED},tuning",
    "heads that an option does not allow": "plan --models metaformer+mixer=attention:inner_width=64 --heads 3 --seq 17",
    "the same to describe": "describe metaformer+mixer=attention:inner_width=64 --heads 3 --seq 17",
    "a reference that reads points": "plan --models vit --match flops --reference kernel_regression --seq 17",
    "a reference without a state": "plan --models gmlp+causal=true --match state --seq 17",
    "only models without a state": "plan --models vit --match state --reference metaformer+mixer=gru --seq 17",
    "a published reference": f"{RUN} --match flops --reference deit-ti",
    "minutes zero": f"{RUN} --minutes 0",
    "minutes of a question too few": "ablate headline --minutes 0.1",
    "diff with nothing": "diff nowhere nowhere",
    "diff of one run": "diff nowhere",
    "code of an unknown revision": "diff --code no-such-revision . -- --models gmlp,vit --seq 17,65",
    "code without two dashes": "diff --code HEAD . --models gmlp,vit --seq 17,65",
    "plan for a folder": "plan --models vit --seq 17 --out .",
    "plan for an unwritable file": "plan --models vit --seq 17 --out /proc/nowhere/plan.json",
}


WORDS = {
    "models with spaces": ("extra argument", "vit", "a list has no spaces: gmlp,vit", "bench run --help"),
    "code without two dashes": ("two dashes: bench diff --code main . -- --models",),
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
    "a reference without a state": ("vit", "no state", "--reference metaformer+mixer=attention:causal=true"),
    "only models without a state": ("vit: --match state needs", "no token reads a later one", "choose another --match"),
    "unknown flag": ("--modells", "--models", "bench run --help"),
    "depth zero": ("--depth", "'0'", "between 1 and 10,000", "try --depth 6"),
    "flag without a value": ("--models", "bench run --help"),
    "stray word": ("now", "bench run --help"),
    "describe of nothing": ("MODEL", "try bench describe gmlp"),
    "describe of two models": ("one model", "gmlp,vit", "try bench describe gmlp", "bench plan --models gmlp,vit"),
    "a batch of less than one sample": ("--seq 65", "try --batch-tokens 65"),
}
"""What a line says was asked, what is allowed and what to type."""


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = dict.fromkeys(("gpu", "gpu_count", "gpu_memory_bytes", "gpu_driver", "cuda_version"))
    monkeypatch.setattr("bench.measure.environment.gpu_facts", lambda: nothing)


def test_words_are_asked_of_malformed_requests() -> None:
    assert WORDS.keys() <= MALFORMED.keys()


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_gets_one_clear_line_and_writes_nothing(name: str, in_tmp: Path, answer: Answer) -> None:
    code, out, err = answer(MALFORMED[name])
    assert code == 2
    assert out == ""
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"]
    named = re.search(r"--(?!help)[a-z]", err) or any(word in err for word in MALFORMED[name].split())
    assert named, "it names neither a field nor a value that was typed"
    assert all(word in err for word in WORDS.get(name, ()))
    assert ("No such option" in err) == (name in ("unknown flag", "code without two dashes")), (
        "a case of a flag that is gone proves nothing"
    )
    assert list(in_tmp.iterdir()) == []


def test_an_unwritable_output_folder_is_refused_before_anything_runs(answer: Answer) -> None:
    code, _, err = answer(f"{RUN} --metrics params --out /proc/nowhere/run")
    assert code == 2
    assert "cannot write the run folder" in err


@pytest.mark.parametrize(
    ("batch", "text", "suggested"),
    [("32", ", batch 32, about ", True), ("1,4", ", batch 1, 4, about ", False)],
)
def test_the_estimate_names_the_batch_and_a_slow_quick_run_a_smaller_one(batch: str, text: str, suggested: bool, answer: Answer) -> None:
    _, _, err = answer(f"plan --models gmlp --seq 513 --params 4M --quick --threads 1 --device cpu --batch {batch}")
    assert text in err
    assert ("--batch 4 is faster" in err) == suggested


def test_a_run_ends_with_paths_two_lines_of_notes_and_its_answer(tmp_path: Path, answer: Answer) -> None:
    code, out, err = answer(f"{RUN} --width 16 --depth 1 --metrics params --quick --on inline --out {tmp_path}/mine")
    assert code == 0
    opening, results, report, first, more = err.splitlines()
    assert opening.startswith(f"{tmp_path / 'mine'}: 4 configurations, about ")
    assert (results, report.partition(":")[0]) == (f"results: {tmp_path / 'mine'}", "report")
    assert first.partition(":")[0] in ("note", "WARNING")
    assert more.startswith("advice")
    assert more.endswith(f"bench check {tmp_path / 'mine'}")
    table, _, findings = out.partition("\n\n")
    assert table.splitlines()[0].split() == ["model", "n", "params"]
    assert 1 <= len(findings.splitlines()) <= 3


def test_a_folder_that_can_hold_no_run_is_refused_before_planning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "today.txt").touch()
    monkeypatch.setattr("bench.commands.run.plan_to_run", lambda *_: pytest.fail("planned"))
    monkeypatch.setattr("bench.planning.ablation.plan_ablation", lambda *_: pytest.fail("planned"))
    for folder, reason in {"notes": "is not a run folder", "notes/today.txt": "is a file"}.items():
        for command in (RUN, "run --plan plan.json", "ablate positions", "peers"):
            code, _, err = answer(f"{command} --out {tmp_path}/{folder}")
            assert (code, reason in err) == (2, True)


@pytest.mark.parametrize(("metrics", "trains"), [("params,accuracy", True), ("params", False)])
def test_a_plan_says_how_long_its_trainings_take_or_that_it_has_none(metrics: str, trains: bool, answer: Answer) -> None:
    code, _, err = answer(f"plan --models vit --task digits --seq 17 --metrics {metrics} --device cpu")
    assert (code, "\ntrainings: about " in err, "note: --task digits only sets inputs and outputs" in err) == (0, trains, not trains)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The records, plan and environment of a stored run."""
    run = ROOT / "results" / "2026-11-27_cpu_three_families"
    for name in ("records.jsonl", "plan.json", "environment.json"):
        (tmp_path / name).write_bytes(content_of(run / name) or b"")
    return tmp_path


@pytest.mark.parametrize("spoilt", ["records.jsonl", "plan.json", "environment.json"])
def test_a_corrupt_run_is_refused_in_one_line(spoilt: str, copied: Path, answer: Answer) -> None:
    (copied / spoilt).write_text('{"schema": []}\n' + (copied / spoilt).read_text())
    code, out, err = answer(f"report {copied}")
    assert (code, out) == (2, "")
    assert 1 <= len(err.splitlines()) <= 3
    assert spoilt in err
    assert len(list(copied.iterdir())) == 3


def test_a_run_with_an_edited_plan_is_not_checked(copied: Path, answer: Answer) -> None:
    plan = json.loads((copied / "plan.json").read_text())
    plan["cells"][0]["sizing"]["params"] += 1
    (copied / "plan.json").write_text(json.dumps(plan))
    code, out, err = answer(f"check {copied}")
    assert (code, out) == (2, "")
    assert "cannot be run: the parameters of" in err


LIGHT = (
    "--version",
    "--help",
    "run --help",
    "list",
    "list families --json",
    "run --modells gmlp",
    "run --models gmpl --seq 17",
    "run --models gmlp,torchvision:vit_b_16,python:bench.peers.timm:gmlp --seq 17 --dtype fp64",
    "check nowhere",
)


ONE_AFTER_THE_OTHER = """
import json, sys
from bench import cli
for typed in json.loads(sys.argv[1]):
    try:
        cli.main(typed.split())
    except SystemExit as stopped:
        code = stopped.code
    loaded = sorted({"torch", "pandas", "matplotlib", "scipy"} & set(sys.modules))
    sys.stderr.write("\\nLOADED " + json.dumps([typed, code, loaded]) + "\\n")
"""


def test_light_commands_import_no_torch(tmp_path: Path) -> None:
    """Nor anything else that is heavy, but for the last one, which reads a table."""
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(LIGHT)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment_of(ROOT))
    told = [json.loads(line.removeprefix("LOADED ")) for line in ran.stderr.splitlines() if line.startswith("LOADED ")]
    expected: list[Any] = [[typed, 0 if "--help" in typed or typed.startswith(("list", "--version")) else 2, []] for typed in LIGHT]
    assert told[:-1] == expected[:-1]
    assert told[-1][:2] == expected[-1][:2]
    assert "torch" not in told[-1][2]


GROUP: Any = typer.main.get_command(cli.app)


@pytest.mark.parametrize("command", GROUP.commands)
def test_every_help_ends_with_a_real_example(command: str, answer: Answer) -> None:
    code, out, _ = answer(f"{command} --help")
    assert code == 0
    assert f"Example: bench {command}" in " ".join(out.split())


def test_version_names_the_revision(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMLP_BENCH_REVISION", "0123456789abcdef")
    assert answer("--version") == (0, f"gmlp-bench {bench.__version__}+0123456789\n", "")


COMPLETED = {
    "a command": ("bench des", "describe"),
    "a flag": ("bench run --mod", "--models"),
    "a family in a list": ("bench run --models gmlp,tra", "gmlp,transformer"),
    "a variant": ("bench describe deit-t", "deit-ti"),
    "a metric": ("bench plan --metrics params,lat", "params,latency"),
    "a task": ("bench run --task asso", "associative_recall"),
    "a question": ("bench ablate token", "token_mixing"),
    "a kind": ("bench list exe", "executors"),
    "a matching policy": ("bench run --match sh", "shape"),
    "phases": ("bench run --phase infer,t", "infer,train"),
    "a run": ("bench check results/2026-01-02", "results/2026-01-02_cpu_x"),
    "several runs": ("bench report results/a results/2026-01-02", "results/2026-01-02_cpu_x"),
    "no run": ("bench check elsewhere/2026-01-02", ""),
}


@pytest.mark.parametrize("name", COMPLETED)
def test_the_shell_completes(name: str, in_tmp: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    run = in_tmp / "results" / "2026-01-02_cpu_x"
    run.mkdir(parents=True)
    (run / "plan.json.xz").touch()
    (in_tmp / "results" / "2026-01-02_no_run").mkdir()
    typed, completed = COMPLETED[name]
    for variable, text in {"_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}.items():
        monkeypatch.setenv(variable, text)
    code, out, _ = answer("")
    assert (code, out.split()) == (0, completed.split())


def test_completion_is_light(tmp_path: Path) -> None:
    variables = {"_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": "bench run --models g", "COMP_CWORD": "3"}
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, '[""]']
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment_of(ROOT) | variables)
    assert ran.stdout.split() == ["gmlp", "gmlp-ti", "gmlp-s", "gmlp-b"]
    assert json.loads(ran.stderr.partition("LOADED ")[2]) == ["", 0, []]


def test_tasks_are_listed_with_their_facts(answer: Answer) -> None:
    code, out, _ = answer("list tasks --json")
    tasks = {task["name"]: task for task in json.loads(out)}
    assert code == 0
    assert tasks["cifar10"]["lengths"] == "2, 5, 17, 65, 257, 1025"
    assert (tasks["copy"]["chance"], tasks["copy"]["options"]["symbols"]) == (1 / 16, 16)
    assert tasks["images"]["argument"] == "FOLDER"
    assert all(task["source"] for task in tasks.values() if not task["argument"])


def test_describe_speaks_json(answer: Answer) -> None:
    code, out, _ = answer("describe gmlp --params 1M --seq 257 --json")
    data = json.loads(out)
    assert code == 0
    assert sum(data["flops_by_degree"].values()) == data["flops"] == sum(t["flops"] for t in data["terms"])
    assert sum(t["params"] for t in data["terms"]) == data["params"]
    assert data["params_seq"] == 6 * (257 * 257 + 257)
    assert data["quadratic_equals_linear_at"]["blocks"] == 3 * data["width"]
    assert abs(data["params"] / data["budget"] - 1) <= 0.005
    assert data["state_bytes"] is data["state"] is None


def test_describe_tells_the_state_in_bytes(answer: Answer) -> None:
    gated, attending = (
        json.loads(answer(f"describe {model} --width 64 --depth 2 --seq 256 --json")[1])
        for model in ("gmlp+causal=true+pool=mean", "metaformer+mixer=linear_attention:causal=true")
    )
    assert (gated["state_bytes"], gated["state"]) == (4 * (2 * 256 * gated["ffn_width"] // 2 + 64), "grows with n")
    assert (attending["state_bytes"], attending["state"]) == (4 * (2 * 64 * (64 // attending["heads"] + 1) + 64), "fixed")


def test_a_plan_replaces_nothing_but_itself(answer: Answer, tmp_path: Path) -> None:
    pipe, plan = tmp_path / "pipe", tmp_path / "plan.json"
    os.mkfifo(pipe)
    code, _, err = answer(f"plan --models vit --seq 17 --device cpu --out {pipe}")
    assert (code, f"cannot write {pipe}: it is no regular file" in err, pipe.is_fifo()) == (2, True, True)
    for _ in range(2):
        assert answer(f"plan --models vit --seq 17 --device cpu --out {plan}")[0] == 0
    before = plan.read_bytes()
    code, _, err = answer(f"plan --models gmlp --seq 17 --device cpu --out {plan}")
    assert (code, f"{plan} exists and holds another plan" in err, plan.read_bytes()) == (2, True, before)


def test_a_run_that_is_refused_when_it_starts_leaves_no_folder(answer: Answer, in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RequestError("no node has answered", "start one")

    monkeypatch.setattr("bench.running.runner.execute", refuse)
    code, _, err = answer("run --models vit --seq 17 --width 16 --depth 1 --metrics params --quick")
    assert (code, "no node has answered" in err) == (2, True)
    assert not list(in_tmp.iterdir())


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("list tasks", {"images:FOLDER", "cifar100"}),
        ("list mixers", {"attention"}),
        ("describe gmlp --params 1M --seq 257", {"n^2", "params_seq"}),
        pytest.param(
            "plan --models gmlp,vit --seq 17,1025 --device cpu --memory 1GiB", {"largest_batch", "skipped"}, marks=pytest.mark.slow
        ),
    ],
)
def test_without_json_there_are_tables(typed: str, words: set[str], answer: Answer) -> None:
    code, out, _ = answer(typed)
    assert code == 0
    assert words <= set(out.split())


def planned_on(device: str, answer: Answer, typed: str = "") -> dict[str, Any]:
    code, out, _ = answer(f"plan --models vit --device {device} --json {typed}")
    assert code == 0
    plan: dict[str, Any] = json.loads(out)["plan"]
    return plan


@pytest.mark.parametrize(
    ("device", "typed", "limit_s", "train_limit_s"),
    [
        ("cpu", "", 60, 3600),
        ("cuda", "", 180, 3600),
        ("cuda", "--quick", 20, 3600),
        ("cuda", "--limit-s 90 --quick", 90, 90),
    ],
)
def test_a_job_has_longer_on_cuda_unless_its_limit_is_typed(
    device: str, typed: str, limit_s: float, train_limit_s: float, answer: Answer
) -> None:
    settings = planned_on(device, answer, f"--seq 17 {typed}")["settings"]
    assert (settings["limit_s"], settings["train_limit_s"]) == (limit_s, train_limit_s)


def lengths_of(plan: dict[str, Any]) -> list[int]:
    return list(dict.fromkeys(cell["cell"]["model"]["shape"]["seq_len"] for cell in plan["cells"]))


def test_without_lengths_cuda_has_aligned_ones_beside_the_unaligned(answer: Answer) -> None:
    assert lengths_of(planned_on("cuda", answer)) == [64, 65, 256, 257, 1024, 1025]
    assert lengths_of(planned_on("cuda", answer, "--seq 65")) == [65]
    assert lengths_of(planned_on("cuda", answer, "--models deit-ti")) == [197]  # published with a length
    code, _, err = answer("plan --models vit --device cpu")
    assert code == 2
    assert "--seq is missing" in err


def test_plan_touches_no_device_and_speaks_json(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched() -> None:
        raise AssertionError("a device was asked")

    monkeypatch.setattr("bench.measure.environment.gpu_facts", touched)
    monkeypatch.setattr("torch.cuda.is_available", touched)
    code, out, _ = answer("plan --models gmlp,vit --seq 17,1025 --device cuda --json")
    data = json.loads(out)
    assert code == 0
    assert {c["cell"]["workload"]["device"] for c in data["plan"]["cells"]} == {"cuda"}
    assert [s["model"] for s in data["plan"]["skipped"]] == ["gmlp"]
    assert data["estimated_s"] > 0


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
def test_calibrating_tells_the_ceilings_of_both_arithmetics(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    ceilings = {"ceiling_flops_per_s": 1e11, "ceiling_bytes_per_s": 2e10, "ceiling_launch_s": 3e-6}
    handed = calibrated(monkeypatch, Outcome(status="measured", values={**ceilings, "threads": 1}))
    code, out, _ = answer("env --calibrate --json")
    assert code == 0
    assert [(job.metric, job.cell.workload.dtype, job.cell.workload.device) for job in handed] == [
        ("ceiling", "fp32", "cpu"),
        ("ceiling", "bf16", "cpu"),
    ]
    threads = handed[0].settings.threads
    assert json.loads(out) == [{"device": "cpu", "threads": threads, "dtype": dtype, **ceilings} for dtype in ("fp32", "bf16")]
    assert {"bf16", "1e+11", "2e+10", "3e-06"} <= set(answer("env --calibrate")[1].split())


@pytest.mark.usefixtures("no_gpu")
def test_a_calibration_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    calibrated(monkeypatch, Outcome(status="out_of_memory", reason="planted"))
    code, out, err = answer("env --calibrate --json")
    assert code == 1
    assert [entry["ceiling_launch_s"] for entry in json.loads(out)] == [None, None]
    assert "fp32: out_of_memory: planted" in err

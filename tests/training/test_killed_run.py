"""A whole run that is killed while it trains, and started again by the same command, ends as one that was left alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.reading.store import read_records
from tests.specimens import bench_command, copy_of_the_program, environment_of, run_bench

EPOCHS, STEPS_PER_EPOCH = 16, 11
REQUEST = (
    *("run", "--models", "gmlp", "--seq", "5", "--width", "8", "--depth", "1", "--task", "digits", "--metrics", "accuracy", "--seeds", "1"),
    *("--threads", "1", "--recipe", f"epochs={EPOCHS},batch_size=128,dropout=0.1", "--out", "mine"),
)
IMPATIENT = {
    "bench/training/checkpoint.py": ("EVERY_S = 30.0", "EVERY_S = 0.0"),
    "bench/training/loop.py": ("MESSAGE_EVERY_S = 1.0", "MESSAGE_EVERY_S = 0.0"),
    "bench/console_progress.py": ("PLAIN_REPORT_S = 15.0", "PLAIN_REPORT_S = 0.0"),
}


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, saving and telling at every step."""
    program = copy_of_the_program(tmp_path_factory.mktemp("program"))
    for name, (before, after) in IMPATIENT.items():
        text = (program / name).read_text()
        assert text.count(before) == 1
        (program / name).write_text(text.replace(before, after))
    return program


def wait_for_step(folder: Path, step: int) -> int:
    """The step that the checkpoint in the folder has reached, once it is at least `step`."""
    for _ in range(6000):
        for path in folder.glob("accuracy-*.pt"):
            found: int = torch.load(path, weights_only=True)["state"]["step"]
            if found >= step:
                return found
        time.sleep(0.01)
    raise AssertionError(f"no checkpoint of step {step} in {folder}")


def kill_while_training(program: Path, folder: Path) -> int:
    """Start the run, kill all its processes in a late epoch; the step of the last checkpoint seen before."""
    with subprocess.Popen(
        bench_command(*REQUEST),
        cwd=folder,
        env=environment_of(program),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        step = wait_for_step(folder / "mine" / "checkpoints", 2 * STEPS_PER_EPOCH + 3)
        os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    assert list(read_records(folder / "mine" / "records.jsonl")) == []
    return step


def what_must_agree(folder: Path) -> dict[str, Any]:
    (record,) = read_records(folder / "mine" / "records.jsonl")
    values, samples = record.outcome.values, record.outcome.samples
    names = ("accuracy", "accuracy_top2", "train_accuracy", "validation", "best_epoch", "num_epochs", "train_flops", "seed")
    return {**{name: values[name] for name in names}, **{name: samples[name] for name in ("loss", "validation", "item_scores")}}


@pytest.mark.slow
def test_a_killed_run_is_finished_by_the_same_command(impatient: Path, tmp_path: Path) -> None:
    killed, alone = tmp_path / "killed", tmp_path / "alone"
    for folder in (killed, alone):
        folder.mkdir()
    step = kill_while_training(impatient, killed)
    again, undisturbed = (run_bench(impatient, folder, *REQUEST) for folder in (killed, alone))
    assert (again.returncode, undisturbed.returncode) == (0, 0), again.stderr + undisturbed.stderr
    assert what_must_agree(killed) == what_must_agree(alone)
    for folder in (killed, alone):
        assert not (folder / "mine" / "checkpoints").exists()
    # the second life went on: the first thing that it tells is no earlier than what the first had saved
    assert epochs_told(undisturbed.stderr)[0] == 1
    assert epochs_told(again.stderr)[0] >= step // STEPS_PER_EPOCH + 1 > 2
    assert epochs_told(again.stderr)[-1] == epochs_told(undisturbed.stderr)[-1] == EPOCHS


def epochs_told(err: str) -> list[int]:
    """The epochs of the lines of progress, which name the job, its loss and the time left."""
    line = r"0 of 1 jobs; gmlp n=5: accuracy, seed 0: epoch (\d+) of 16, loss \d\.\d+(?:, validation \d\.\d+)?(?:, about \d+ s left)?"
    return [int(epoch) for epoch in re.findall(line, err)]

"""A training that was killed, wherever, and taken up again ends with the bits of one that was left alone."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.metrics.accuracy import _checkpoint
from bench.progress import listening
from bench.spec import Cell, Job, ModelSpec, Recipe, Settings, Workload
from bench.training.checkpoint import Checkpoint
from bench.training.loop import Training
from models.layers.shape import Shape
from tests.specimens import ROOT, environment_of
from tests.training.resumable import CASES, EPOCHS, IDENTITY, MOMENTS, Kill, differences, run_case, summary_of


def drawn_lives() -> dict[str, tuple[str, list[Kill]]]:
    """By name: a case and its kills. Each case dies once at each of the moments, and once twice over, at drawn steps."""
    draw = random.Random(20)
    lives: dict[str, tuple[str, list[Kill]]] = {}
    for case_name, case in CASES.items():
        num_steps = EPOCHS * case.steps_per_epoch
        for moment in MOMENTS:
            # a state is torn while it is written, and lost with an epoch that was not scored: both are seen where every step is saved
            saved_every = draw.randint(1, 3) if moment in ("before", "update", "after") else 1
            lives[f"{case_name} {moment}"] = (case_name, [Kill(step=draw.randrange(num_steps), moment=moment, saved_every=saved_every)])
        steps = sorted(draw.sample(range(num_steps), 2))
        lives[f"{case_name} twice"] = (case_name, [Kill(step=step, moment="after") for step in steps])
    return lives


LIVES = drawn_lives()


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all lives have been lived."""
    folder = tmp_path_factory.mktemp("lives")
    asked = [{"name": name, "case": case, "kills": [dataclasses.asdict(kill) for kill in kills]} for name, (case, kills) in LIVES.items()]
    (folder / "lives.json").write_text(json.dumps(asked))
    command = [sys.executable, "-m", "tests.training.resumable", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, env=environment_of(ROOT), capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[str, Any]]:
    return {name: summary_of(*run_case(case, None)) for name, case in CASES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVES)
def test_a_killed_training_ends_with_the_bits_of_an_undisturbed_one(name: str, lived: Path, undisturbed: dict[str, Any]) -> None:
    case_name, kills = LIVES[name]
    found = torch.load(lived / f"{name}.pt", weights_only=True)
    assert differences(found, undisturbed[case_name]) == []
    assert found["began_at"] == kills[-1].last_saved(CASES[case_name].steps_per_epoch)
    assert not list((lived / "checkpoints").glob(f".{name}.pt.*.tmp"))


def test_what_is_compared_differs_between_trainings(undisturbed: dict[str, Any]) -> None:
    """Weights that training leaves alone, or trainings that end alike, could not show that anything was restored."""
    assert differences(undisturbed["dropout and plateau"], undisturbed["bf16"])
    for summary in undisturbed.values():
        assert len(set(summary["loss"])) == EPOCHS


class InterruptedByTestError(Exception):
    pass


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch, case_name: str, path: Path) -> Checkpoint:
    """Train in this process until the step is reached, every step saved."""
    checkpoint = Checkpoint(path=path, identity=IDENTITY, every_s=0.0)
    learn = Training.learn

    def learn_until(training: Training, chosen: Tensor) -> None:
        if training.step == step:
            raise InterruptedByTestError
        learn(training, chosen)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "learn", learn_until)
        with pytest.raises(InterruptedByTestError):
            run_case(CASES[case_name], checkpoint)
    return checkpoint


@pytest.mark.parametrize("case_name", CASES)
def test_an_interrupted_training_ends_with_the_bits_of_an_undisturbed_one(
    case_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    checkpoint = interrupt_at(CASES[case_name].steps_per_epoch + 1, monkeypatch, case_name, tmp_path / "state.pt")
    state = checkpoint.read()
    assert state is not None
    assert min(state["elapsed_s"], state["steps_s"]) > 0.0
    restored: list[int] = []
    restore = Training.restore

    def restore_and_note(training: Training, state: Any) -> None:
        restored.append(state["step"])
        restore(training, state)

    monkeypatch.setattr(Training, "restore", restore_and_note)
    weights, result = run_case(CASES[case_name], checkpoint)
    assert differences(summary_of(weights, result), undisturbed[case_name]) == []
    assert result.train_s > state["elapsed_s"]  # the clock goes on where it stood
    assert result.epochs[1].steps_s > state["steps_s"]
    assert restored == [CASES[case_name].steps_per_epoch + 1]


@pytest.mark.parametrize("forgotten", ["model", "optimizer", "random", "loss_sum"])
def test_a_state_that_forgets_something_does_not_end_alike(
    forgotten: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """The broken specimens: each part of the state decides bits of what follows."""
    case_name = "dropout and plateau"
    checkpoint = interrupt_at(6, monkeypatch, case_name, tmp_path / "state.pt")
    restore = Training.restore

    def restore_but_that(training: Training, state: Any) -> None:
        restore(training, {**state, forgotten: copy.deepcopy(training.state()[forgotten])})

    monkeypatch.setattr(Training, "restore", restore_but_that)
    assert differences(summary_of(*run_case(CASES[case_name], checkpoint)), undisturbed[case_name])


def test_the_weights_of_the_best_epoch_are_those_of_the_state(tmp_path: Path) -> None:
    checkpoint = Checkpoint(path=tmp_path / "state.pt", identity=IDENTITY, every_s=0.0)
    run_case(CASES["plain"], checkpoint)
    state = checkpoint.read()
    assert state is not None
    changed = {name: value + 1 for name, value in state["best_weights"].items()}
    assert checkpoint.save_if_due(lambda: {**state, "best_weights": changed})
    weights, _ = run_case(CASES["plain"], checkpoint)
    assert all(torch.equal(weights[name], value) for name, value in changed.items())


def test_a_finished_training_is_scored_again_and_not_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkpoint = Checkpoint(path=tmp_path / "state.pt", identity=IDENTITY, every_s=0.0)
    first = summary_of(*run_case(CASES["plain"], checkpoint))
    monkeypatch.setattr(Training, "learn", None)
    assert not differences(summary_of(*run_case(CASES["plain"], checkpoint)), first)


def test_a_torn_file_is_no_state_and_training_starts_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    checkpoint = interrupt_at(7, monkeypatch, "plain", tmp_path / "state.pt")
    for change in ({"subject": "another"}, {"threads": 2}, {"torch": "1.0"}):
        assert Checkpoint(path=checkpoint.path, identity={**IDENTITY, **change}).read() is None
    whole = checkpoint.path.read_bytes()
    for kept_bytes in (0, 10, 2000):
        checkpoint.path.write_bytes(whole[:kept_bytes])
        assert checkpoint.read() is None
    for other in ([1, 2], {"weights": 1}, torch.zeros(2)):
        torch.save(other, checkpoint.path)
        assert checkpoint.read() is None
    assert not differences(summary_of(*run_case(CASES["plain"], checkpoint)), undisturbed["plain"])


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("save", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content, protocol=2))])
def test_a_malicious_file_is_refused_and_not_executed(save: Any, tmp_path: Path) -> None:
    checkpoint, target = Checkpoint(path=tmp_path / "state.pt", identity=IDENTITY), tmp_path / "executed"
    save({"identity": dict(IDENTITY), "state": {"step": Malicious(target)}}, checkpoint.path)
    assert checkpoint.read() is None
    assert not target.exists()
    torch.load(checkpoint.path, weights_only=False) if save is torch.save else pickle.loads(checkpoint.path.read_bytes())
    assert target.exists()  # so it would have been


def made_job(**changes: Any) -> Job:
    model = ModelSpec(name="vit", family="vit", shape=Shape(seq_len=5, width=8, depth=1, heads=2, ffn_width=16))
    job = Job(cell=Cell(model=model, workload=Workload(task="digits")), metric="accuracy", repeat=0, recipe=Recipe(), scratch="folder")
    return dataclasses.replace(job, **changes)


def identity_of(job: Job, seed: int = 0, data_id: str = "data") -> dict[str, Any]:
    checkpoint = _checkpoint(job, seed, data_id)
    assert checkpoint is not None
    return dict(checkpoint.identity)


def test_seed_recipe_data_and_threads_are_part_of_the_identity() -> None:
    identity = identity_of(made_job())
    assert identity == identity_of(made_job(settings=Settings(limit_s=1.0)))
    assert identity["torch"] == torch.__version__
    assert identity != identity_of(made_job(), seed=1)
    assert identity != identity_of(made_job(), data_id="other data")
    assert identity != identity_of(made_job(recipe=Recipe(learning_rate=1e-4)))
    assert identity["threads"] == 1
    torch.set_num_threads(2)
    try:
        assert identity_of(made_job())["threads"] == 2
    finally:
        torch.set_num_threads(1)


def test_what_a_job_saves_it_can_read_again_and_no_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Safe loading refuses every type of its own, such as that of torch's version."""
    assert _checkpoint(made_job(scratch=""), 0, "data") is None
    job = made_job(scratch=str(tmp_path))
    checkpoint = _checkpoint(job, 0, "data")
    assert checkpoint is not None
    checkpoint.every_s = 0.0
    assert checkpoint.save_if_due(lambda: {"step": 3})
    again, other = _checkpoint(job, 0, "data"), _checkpoint(job, 1, "data")
    assert again is not None
    assert other is not None
    assert again.read() == {"step": 3}
    assert other.read() is None
    monkeypatch.setattr("bench.measure.training_code.training_version", lambda _: "other")
    changed = _checkpoint(job, 0, "data")
    assert changed is not None
    assert changed.read() is None


def test_another_machine_goes_on_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on(boot: str) -> Checkpoint:
        monkeypatch.setattr("bench.measure.environment.boot", lambda: boot)
        monkeypatch.setattr("bench.measure.cpu.cpu_facts", lambda: {"cpu_type": "a CPU"})
        checkpoint = _checkpoint(made_job(scratch=str(tmp_path)), 0, "data")
        assert checkpoint is not None
        checkpoint.every_s = 0.0
        return checkpoint

    assert on("one").save_if_due(lambda: {"step": 3})
    for name in ("one", "two", "two"):
        later = on(name)
        assert later.read() == {"step": 3}
        assert later.save_if_due(lambda: {"step": 3})
    assert later.hosts == ["a CPU, boot one", "a CPU, boot two"]


def test_a_slow_save_makes_the_next_one_rarer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("bench.training.checkpoint.time.monotonic", lambda: now[0])
    checkpoint = Checkpoint(path=tmp_path / "state.pt", identity=IDENTITY, every_s=30.0, _saved_at=now[0])

    def slow_state() -> dict[str, int]:
        now[0] += 6.0
        return {"step": 1}

    now[0] += 30
    assert checkpoint.save_if_due(slow_state)
    now[0] += 299
    assert not checkpoint.save_if_due(slow_state)
    assert checkpoint.read() == {"step": 1}
    now[0] += 1
    assert checkpoint.save_if_due(slow_state)
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_a_disk_that_refuses_is_told_and_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    checkpoint = Checkpoint(path=tmp_path / "file" / "state.pt", identity=IDENTITY, every_s=0.0)
    told: list[str] = []
    with listening(told.append):
        assert not checkpoint.save_if_due(lambda: {"step": 1})
    assert "could not write a checkpoint" in told[0]
    assert checkpoint.read() is None

"""A training that was cut off, wherever, and taken up again ends with the bits of one that was left alone.

The real kill of a whole run that trains is in tests/training/test_killed_run.py.
"""

from __future__ import annotations

import copy
import math
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bench.metrics.accuracy import _checkpoint
from bench.progress import listening
from bench.spec import Job, Recipe, Settings
from bench.training.checkpoint import Checkpoint
from bench.training.loop import Training, TrainResult
from tests.made_jobs import small_job
from tests.training.small_trainings import IDENTITY, NUM_LEARNED, changed, differences, losses, run, run_until_cut_off, saved_at

EPOCHS = 3
CASES: dict[str, tuple[str, Recipe]] = {
    "plain": ("gmlp", changed(epochs=EPOCHS)),
    "dropout and plateau": ("vit", changed(epochs=EPOCHS, dropout=0.2, schedule="plateau", patience=0)),
    "augmented": (
        "gmlp",
        changed(
            epochs=EPOCHS,
            augment=("crop", "flip", "randaugment", "mixup", "cutmix", "erasing"),
            dropout=0.1,
            stochastic_depth=0.1,
            accumulate=2,
        ),
    ),
    "averaged": ("gmlp", changed(epochs=EPOCHS, ema=0.9, optimizer="sgd", schedule="one-cycle")),
    "bf16": ("vit", changed(epochs=EPOCHS, precision="bf16-autocast", schedule="constant", augment=("crop", "flip"), dropout=0.1)),
}
"""By name: the family, and the recipe."""


def run_case(name: str, checkpoint: Checkpoint | None = None) -> tuple[nn.Module, TrainResult]:
    family, recipe = CASES[name]
    return run(recipe, family, checkpoint)


def cut_off(name: str, path: Path, step: int) -> Checkpoint:
    """What a training leaves that was cut off at that step, every step saved."""
    family, recipe = CASES[name]
    run_until_cut_off(recipe, family, checkpoint := saved_at(path), step)
    return checkpoint


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, tuple[nn.Module, TrainResult]]:
    return {name: run_case(name) for name in CASES}


Results = dict[str, tuple[nn.Module, TrainResult]]


def test_what_is_compared_differs_between_trainings(undisturbed: Results) -> None:
    """Weights that training leaves alone, or trainings that end alike, could not show that anything was restored."""
    assert len(differences(undisturbed["dropout and plateau"], undisturbed["bf16"])) > 2
    assert {len(set(losses(result))) for _, result in undisturbed.values()} == {EPOCHS}


@pytest.mark.parametrize("place", [-1, 0, 1], ids=["before the end of an epoch", "after it", "in the next"])
@pytest.mark.parametrize("name", CASES)
def test_a_training_that_was_cut_off_ends_with_the_bits_of_an_undisturbed_one(
    name: str, place: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, undisturbed: Results
) -> None:
    recipe = CASES[name][1]
    step = math.ceil(NUM_LEARNED / (recipe.batch_size * recipe.accumulate)) + place
    checkpoint = cut_off(name, tmp_path / "state.pt", step)
    state = checkpoint.read()
    assert state is not None
    restored: list[int] = []
    restore = Training.restore

    def restore_and_note(training: Training, state: Any) -> None:
        restored.append(state["step"])
        restore(training, state)

    monkeypatch.setattr(Training, "restore", restore_and_note)
    found = run_case(name, checkpoint)
    assert differences(found, undisturbed[name]) == []
    assert restored == [step]
    assert found[1].train_s > state["elapsed_s"] > 0.0  # the clock goes on where it stood


@pytest.mark.parametrize("forgotten", ["model", "optimizer", "random", "sums"])
def test_a_state_that_forgets_something_does_not_end_alike(
    forgotten: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, undisturbed: Results
) -> None:
    """The broken specimens: each part of the state decides bits of what follows."""
    name = "dropout and plateau"
    checkpoint = cut_off(name, tmp_path / "state.pt", 6)
    restore = Training.restore

    def restore_but_that(training: Training, state: Any) -> None:
        restore(training, {**state, forgotten: copy.deepcopy(training.state()[forgotten])})

    monkeypatch.setattr(Training, "restore", restore_but_that)
    assert differences(run_case(name, checkpoint), undisturbed[name])


def test_a_finished_training_is_scored_again_and_not_trained_and_keeps_the_weights_of_its_best_epoch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkpoint = saved_at(tmp_path / "state.pt")
    first = run_case("plain", checkpoint)
    monkeypatch.setattr(Training, "learn", None)
    assert differences(run_case("plain", checkpoint), first) == []
    state = checkpoint.read()
    assert state is not None
    moved = {name: value + 1 for name, value in state["best_weights"].items()}
    assert checkpoint.save_if_due(lambda: {**state, "best_weights": moved})
    weights = run_case("plain", checkpoint)[0].state_dict()
    assert all(torch.equal(weights[name], value) for name, value in moved.items())


def test_a_torn_file_is_no_state_and_training_starts_anew(tmp_path: Path, undisturbed: Results) -> None:
    checkpoint = cut_off("plain", tmp_path / "state.pt", 7)
    for change in ({"subject": "another"}, {"threads": 2}, {"torch": "1.0"}):
        assert Checkpoint(path=checkpoint.path, identity={**IDENTITY, **change}).read() is None
    whole = checkpoint.path.read_bytes()
    for kept_bytes in (0, 10, 2000):
        checkpoint.path.write_bytes(whole[:kept_bytes])
        assert checkpoint.read() is None
    for other in ([1, 2], {"weights": 1}, torch.zeros(2)):
        torch.save(other, checkpoint.path)
        assert checkpoint.read() is None
    assert differences(run_case("plain", checkpoint), undisturbed["plain"]) == []


def test_a_kill_while_a_state_is_written_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def tear_and_die(file_number: int) -> None:
        os.ftruncate(file_number, os.fstat(file_number).st_size // 2)
        raise KeyboardInterrupt

    checkpoint = saved_at(tmp_path / "state.pt")
    assert checkpoint.save_if_due(lambda: {"step": 1})
    monkeypatch.setattr("bench.training.checkpoint.os.fsync", tear_and_die)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save_if_due(lambda: {"step": 2})
    assert checkpoint.read() == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


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
    fields: dict[str, Any] = {"recipe": Recipe(), "scratch": "folder", **changes}
    return small_job("accuracy", work={"task": "digits"}, **fields)


def checkpoint_of(job: Job, seed: int = 0, data_id: str = "data") -> Checkpoint:
    """Of every step."""
    found = _checkpoint(job, seed, data_id)
    assert found is not None
    found.every_s = 0.0
    return found


def identity_of(job: Job, seed: int = 0, data_id: str = "data") -> dict[str, Any]:
    return dict(checkpoint_of(job, seed, data_id).identity)


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
    assert checkpoint_of(job).save_if_due(lambda: {"step": 3})
    assert checkpoint_of(job).read() == {"step": 3}
    assert checkpoint_of(job, seed=1).read() is None
    monkeypatch.setattr("bench.measure.training_code.training_version", lambda _: "other")
    assert checkpoint_of(job).read() is None


def test_another_machine_goes_on_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on(boot: str) -> Checkpoint:
        monkeypatch.setattr("bench.measure.environment.boot", lambda: boot)
        monkeypatch.setattr("bench.measure.cpu.cpu_facts", lambda: {"cpu_type": "a CPU"})
        return checkpoint_of(made_job(scratch=str(tmp_path)))

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

"""On a real GPU: steps that are recorded and replayed learn what eager steps learn, and a resumed training has the bits of an uninterrupted one."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.measure.step import attention_backend, set_product_precision
from bench.tasks._info import CLASS, TOKEN_CLASS
from bench.training.loop import train
from tests.training.small_trainings import SEED, build, changed, losses, made_data, run, run_until_cut_off, same_bits, saved_at
from tests.training.test_recorded_step import Peeking, token_data

pytestmark = pytest.mark.cuda
FAMILIES = ("gmlp", "vit", "transformer")
CLOSE = 1e-3
"""Relative distance of losses: the recorded learning rate is rounded, and kernels may add in another order."""
RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout and plateau": {"dropout": 0.2, "stochastic_depth": 0.2, "schedule": "plateau", "patience": 0, "epochs": 4},
    "augmented": {"augment": ("crop", "flip", "mixup", "cutmix"), "dropout": 0.1},
    "several batches": {"accumulate": 2, "batch_size": 4},
    "a teacher": {"teacher": "convolution", "teacher_epochs": 1},
    "bf16": {"precision": "bf16-autocast"},
}


@pytest.fixture(autouse=True)
def repeatable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of attention's kernels the explicit one alone adds in a fixed order, and cuDNN's convolutions (a teacher's) do if asked."""
    set_product_precision("fp32")
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    with attention_backend("math"):
        yield


@pytest.mark.parametrize("changes", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_recipe_learns_what_eager_steps_learn(family: str, changes: dict[str, Any]) -> None:
    """Dropout, too: a replay advances the random state as the same kernels do one by one."""
    found, expected = (run(changed(engine=engine, **changes), family, device="cuda")[1] for engine in ("graph", "eager"))
    tolerance = 2e-2 if "precision" in changes else CLOSE
    assert losses(found) == pytest.approx(losses(expected), rel=tolerance)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("answers", [CLASS, TOKEN_CLASS])
def test_padded_text_is_learned_as_by_eager_steps(answers: str, accumulate: int) -> None:
    data, interface = token_data(answers)
    recipe = changed(epochs=4, batch_size=4, accumulate=accumulate)
    results = [
        train(build("vit", interface), data, dataclasses.replace(recipe, engine=engine), seed=SEED, device="cuda")
        for engine in ("graph", "eager")
    ]
    assert losses(results[0]) == pytest.approx(losses(results[1]), rel=CLOSE)


@pytest.mark.parametrize("step", [5, 7, 9])
@pytest.mark.parametrize("changes", RECIPES.values(), ids=RECIPES)
def test_a_resumed_training_equals_an_uninterrupted_one_to_the_bit(tmp_path: Path, changes: dict[str, Any], step: int) -> None:
    """Interrupted after an epoch, between full steps, and before the smaller one."""
    recipe = changed(engine="graph", **changes)
    expected, whole = run(recipe, "gmlp", device="cuda")
    run_until_cut_off(recipe, "gmlp", saved_at(tmp_path / "c.pt"), step, device="cuda")
    torch.cuda.manual_seed(0)
    model, resumed = run(recipe, "gmlp", saved_at(tmp_path / "c.pt"), device="cuda")
    assert same_bits(model, expected)
    assert losses(resumed) == losses(whole)


def record_first() -> None:
    run(changed(engine="graph"), "vit", device="cuda")


def record_what_waits() -> None:
    train(Peeking(), made_data(), changed(engine="graph"), seed=SEED, device="cuda")


def alone(function: str) -> subprocess.CompletedProcess[str]:
    """Call a function of this file in a process of its own."""
    code = f"from {__name__} import {function}; {function}()"
    return subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)


def test_the_first_training_of_a_process_is_recorded() -> None:
    """Its first optimizer step imports modules, and the exceptions of such an import hold the frames below it."""
    ended = alone("record_first")
    assert not ended.returncode, ended.stderr


def test_a_model_that_waits_for_the_device_is_refused_with_what_to_type() -> None:
    """In a process of its own, for a recording that failed may leave the device unusable."""
    ended = alone("record_what_waits")
    assert ended.returncode
    assert re.search(
        "^RuntimeError: engine=graph cannot record this training step: .*; try --recipe engine=eager$", ended.stderr, re.MULTILINE
    )

"""A recipe that compiles the model learns what the eager one learns."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import torch
from torch import nn

from bench.spec import Recipe
from bench.training.loop import train
from tests.training.test_loop import Perceptron, build, made_data

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling on a CPU needs a C++ compiler")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own remarks
def test_a_compiled_model_learns_as_the_eager_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[type] = []
    compile_model = torch.compile

    def compile_and_note(model: nn.Module) -> object:
        compiled.append(type(model))
        return compile_model(model)

    monkeypatch.setattr(torch, "compile", compile_and_note)
    recipe = Recipe(epochs=3, batch_size=40, learning_rate=1e-2)
    eager = train(build(), made_data(), recipe, seed=0)
    assert compiled == []
    model = build()
    found = train(model, made_data(), dataclasses.replace(recipe, compile=True), seed=0)
    assert compiled == [Perceptron]
    assert [epoch.loss for epoch in found.epochs] == pytest.approx([epoch.loss for epoch in eager.epochs], rel=1e-4)
    assert not any(name.startswith("_orig_mod") for name in model.state_dict())

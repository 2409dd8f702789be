"""Steps that are recorded and replayed learn what eager steps learn, to the bit where they are interrupted. A tape stands in for the GPU."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.measure.engines import graph
from bench.tasks import IGNORED, Split
from bench.tasks._info import CLASS, TOKEN_CLASS
from bench.training.checkpoint import random_state
from bench.training.data import TrainingData
from bench.training.loop import Training, train
from bench.training.reading import Reader
from bench.training.recorded_step import RecordedStep
from bench.training.teacher import ConvolutionalNetwork
from models.layers.shape import Interface
from tests.training import tape
from tests.training.small_trainings import NUM_CLASSES, SEED, build, changed, losses, made_data, run, run_until_cut_off, same_bits, saved_at

CLOSE = 1e-4
"""Relative distance of losses: the recorded learning rate is rounded to float32."""


@pytest.fixture(autouse=True)
def by_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "record", tape.record)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`recording` and `replay`, in order."""
    happened: list[str] = []

    def record(call: Callable[[], Any]) -> Callable[[], Any]:
        happened.append("recording")
        replay = tape.record(call)

        def replay_and_note() -> Any:
            happened.append("replay")
            return replay()

        return replay_and_note

    monkeypatch.setattr(graph, "record", record)
    return happened


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gmlp", {"dropout": 0.3}),
        ("vit", {"dropout": 0.2, "stochastic_depth": 0.2, "schedule": "plateau", "patience": 0, "epochs": 6}),
        ("gmlp", {"augment": ("crop", "flip", "mixup", "cutmix")}),
        ("vit", {"accumulate": 2}),
        ("vit", {"teacher": "convolution", "teacher_epochs": 1, "distillation": "hard"}),
        ("gmlp", {"precision": "bf16-autocast"}),
        ("gmlp", {"batch_size": 1000}),
    ],
    ids=str,
)
def test_at_rates_that_need_no_rounding_every_recipe_learns_the_bits_of_eager(family: str, changes: dict[str, Any]) -> None:
    """The last step of an epoch has half the items, or is the only one and small."""
    exact = {"schedule": "constant", "learning_rate": 2.0**-7, "warmup": 0.0, **changes}
    model, found = run(changed(engine="graph", **exact), family)
    other, expected = run(changed(**exact), family)
    assert losses(found) == losses(expected)
    assert [epoch.train_accuracy for epoch in found.epochs] == [epoch.train_accuracy for epoch in expected.epochs]
    assert same_bits(model, other)


def test_running_statistics_are_those_of_eager_steps() -> None:
    """Those of batch normalisation, one of them a whole number, change at every step, at recording too."""
    recipe = changed(schedule="constant", learning_rate=2.0**-7, warmup=0.0)
    models = []
    for engine in ("graph", "eager"):
        torch.manual_seed(SEED)
        models.append(ConvolutionalNetwork(3, NUM_CLASSES))
        train(models[-1], made_data(), dataclasses.replace(recipe, engine=engine), seed=SEED)
    assert same_bits(*models)


@pytest.mark.parametrize(("batch_size", "num_full"), [(8, 4), (6, 6), (1000, 1)])
def test_a_full_step_is_recorded_once_and_a_smaller_one_never(counted: list[str], batch_size: int, num_full: int) -> None:
    """Of 36 items, four steps of 8 are replayed and the one of 4 is not. Where all items are one step, it is full."""
    run(changed(engine="graph", batch_size=batch_size))
    assert counted == ["recording", *["replay"] * 2 * num_full]


def test_a_recording_meets_no_accumulator_of_a_gradient_from_before() -> None:
    """On a GPU such a one belongs to another stream, and the recording fails."""
    weight = nn.Parameter(torch.ones(3))
    model = nn.Module()
    model.weight = weight
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    sums = torch.zeros(2)

    met: list[bool] = []

    def step(portions: object) -> Tensor:  # noqa: ARG001
        node: Any = torch.autograd.graph.get_gradient_edge(weight).node
        met.append("seen" in node.metadata)
        node.metadata["seen"] = True
        loss = (weight**2).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    RecordedStep(model, optimizer, sums).take(step, [])
    assert len(met) >= 2
    assert not any(met)


def token_data(answers: str) -> tuple[TrainingData, Interface]:
    """Sequences of unlike lengths; a fifth of the tokens is not asked for."""
    generator = torch.Generator().manual_seed(1)
    tokens, lengths = torch.randint(3, (20, 5), generator=generator), torch.arange(20) % 3 + 2
    padding = torch.arange(5) >= lengths[:, None]
    if answers == CLASS:
        targets, interface = tokens[:, 0], Interface(input="tokens", vocab_size=3, num_classes=3)
        tokens, padding = tokens[:, :4], padding[:, :4]  # and the class token
    else:
        targets, interface = tokens.masked_fill(padding, IGNORED), Interface(input="tokens", output="tokens", vocab_size=3, num_classes=3)
    examples = Split(inputs=tokens, targets=targets, lengths=lengths)
    return TrainingData(learned=examples, held_out=examples, test=examples, reader=Reader(), answers=answers), interface


@pytest.mark.parametrize(("family", "answers", "accumulate"), [("vit", CLASS, 1), ("transformer", TOKEN_CLASS, 2)])
def test_padded_text_is_learned_as_by_eager_steps(family: str, answers: str, accumulate: int) -> None:
    """Each step has other lengths and, for answers at tokens, batches of other weights."""
    data, interface = token_data(answers)
    recipe = changed(epochs=4, batch_size=4, accumulate=accumulate)
    found = train(build(family, interface), data, dataclasses.replace(recipe, engine="graph"), seed=SEED)
    expected = train(build(family, interface), data, recipe, seed=SEED)
    assert losses(found) == pytest.approx(losses(expected), rel=CLOSE)
    assert losses(found)[-1] < losses(found)[0]


@pytest.mark.parametrize(
    ("family", "changes", "step"),
    [
        ("gmlp", {"dropout": 0.1, "augment": ("crop", "flip")}, 5),
        ("vit", {"dropout": 0.1, "schedule": "plateau", "patience": 0, "epochs": 3}, 7),
        ("transformer", {"accumulate": 2, "batch_size": 4}, 9),
    ],
    ids=str,
)
def test_a_resumed_training_equals_an_uninterrupted_one_to_the_bit(
    tmp_path: Path, counted: list[str], family: str, changes: dict[str, Any], step: int
) -> None:
    """Interrupted after an epoch, between full steps, and before the smaller one. A step is replayed if it was, or would have been."""
    recipe = changed(engine="graph", **changes)
    expected, whole = run(recipe, family)
    run_until_cut_off(recipe, family, saved_at(tmp_path / "c.pt"), step)
    counted.clear()
    model, resumed = run(recipe, family, saved_at(tmp_path / "c.pt"))
    assert same_bits(model, expected)
    num_replays = 4 * recipe.epochs - (step - step // 5)
    assert counted == [*["recording"] * bool(num_replays), *["replay"] * num_replays]
    assert losses(resumed) == losses(whole)


def fresh() -> Training:
    torch.manual_seed(SEED)
    training = Training(build("vit"), made_data(), changed(engine="graph", dropout=0.2), seed=SEED, device="cpu")
    training.model.train()
    return training


def kept(training: Training) -> list[Tensor]:
    """Copies of all that a step changes; the state that the optimizer does not have yet is zeros."""
    states = [training.optimizer.state.get(weight, {}) for weight in training.model.parameters()]
    moments = [state.get(name, torch.zeros(())) for state in states for name in ("step", "exp_avg", "exp_avg_sq")]
    own = (*training.model.state_dict().values(), training.sums, *random_state().values())
    return [tensor.clone() for tensor in (*own, *(moment if moment.any() else torch.zeros(()) for moment in moments))]


@pytest.mark.parametrize("num_before", [0, 3])
def test_recording_changes_nothing(monkeypatch: pytest.MonkeyPatch, num_before: int) -> None:
    """With and without an optimizer state. The steps before the recording change all of it."""
    training = fresh()
    for chosen in training._order()[:num_before]:
        training.learn(chosen)
    training.recorded = training._unrecorded()
    assert {(type(group["lr"]), group["capturable"]) for group in training.optimizer.param_groups} == {(float, False)}
    seen = {"before": kept(training)}

    def record_and_note(call: Callable[[], Any]) -> Callable[[], Any]:
        tape.record(call)
        seen["recorded"] = kept(training)
        return lambda: seen.update(after=kept(training)) or training.first_loss

    monkeypatch.setattr(graph, "record", record_and_note)
    training.learn(training._order()[num_before])
    assert not any(torch.equal(a, b) for a, b in zip(seen["before"], seen["recorded"], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(seen["before"], seen["after"], strict=True))


def test_a_training_is_freed_without_a_collection_of_garbage() -> None:
    """What a recording holds on the device is freed with it, before the next one."""
    training = fresh()
    training.learn(training._order()[0])
    gc.disable()
    try:
        left = weakref.ref(training)
        del training
        assert left() is None
    finally:
        gc.enable()


class Peeking(nn.Module):
    """Looks at its data, which a GPU would have to be waited for."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.linear = nn.Linear(width, NUM_CLASSES)

    def forward(self, data: Tensor, _: Tensor | None) -> Tensor:
        outputs: Tensor = self.linear(data.mean(dim=1))
        return outputs if outputs.sum().item() else -outputs


class Renewing(Peeking):
    """Puts a new tensor in place of its buffer at every step: Python, which no replay runs."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(48))

    def forward(self, data: Tensor, _: Tensor | None) -> Tensor:
        self.mean = data.mean(dim=(0, 1))
        outputs: Tensor = self.linear(data.mean(dim=1) - self.mean)
        return outputs


@pytest.mark.parametrize(
    ("model", "problem"), [(Peeking, f"{tape.REFUSED}.*"), (Renewing, "the model replaces a parameter or buffer by another tensor.*")]
)
def test_what_cannot_be_recorded_is_refused_with_what_to_type(model: type[nn.Module], problem: str) -> None:
    with pytest.raises(RuntimeError, match=rf"{problem}; try --recipe engine=eager$"):
        train(model(), made_data(), changed(engine="graph"), seed=SEED)
    assert train(model(), made_data(), changed(), seed=SEED).epochs


def test_a_recurrence_over_padded_text_cannot_be_recorded() -> None:
    """torch packs its items by lengths that the processor reads."""
    data, interface = token_data(TOKEN_CLASS)
    with pytest.raises(RuntimeError, match=r"engine=graph cannot record this training step: .*; try --recipe engine=eager"):
        train(build("recurrent_attention", interface), data, changed(engine="graph"), seed=SEED)


def test_an_error_of_the_step_itself_is_not_laid_to_the_engine() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as failed:
        train(Peeking(width=47), made_data(), changed(engine="graph"), seed=SEED)
    assert "engine" not in str(failed.value)


def test_memory_that_runs_out_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording's own end fails too, as torch's does, with an error that says less."""

    def record(call: Callable[[], Any]) -> Callable[[], Any]:
        try:
            call()
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    def run_out(*_: Any) -> None:
        if next(calls):
            raise torch.OutOfMemoryError("CUDA out of memory")

    calls, model = itertools.count(), build("gmlp")
    model.register_forward_hook(run_out)
    monkeypatch.setattr(graph, "record", record)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        train(model, made_data(), changed(engine="graph"), seed=SEED)

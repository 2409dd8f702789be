"""How steps are computed: what may run, which is the fastest, and that neither timing nor engine changes what is learned."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bench.measure.model import build_model
from bench.measure.onednn import product, site
from bench.measure.step import attention_backend
from bench.spec import ModelSpec, Recipe
from bench.tasks import IGNORED
from bench.tasks._info import TOKEN_CLASS
from bench.training import execution, loop
from bench.training.augment import Augmentation
from bench.training.checkpoint import Checkpoint
from bench.training.data import TrainingData
from bench.training.distillation import train_with_teacher
from bench.training.execution import ENOUGH_S, MAX_TURNS, MIN_TURNS, attends, candidates, fastest, forward_of, time_bursts
from bench.training.loop import Training, TrainResult, train
from bench.training.reading import Examples, Reader
from models.layers.shape import Interface, Shape
from tests.training.resumable import IDENTITY, NUM_CLASSES, PATCH_SIDE, SEED, made_images

NO_BF16 = "this processor has no bf16 products"
RECIPE = Recipe(epochs=2, batch_size=8, learning_rate=1e-2)
NUM_LEARNED = 36
"""The last batch of an epoch has 4 items."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever oneDNN can compute, it computes."""
    choose(monkeypatch, lambda names: names[-1])


def choose(monkeypatch: pytest.MonkeyPatch, name_of: Callable[[Sequence[str]], str]) -> None:
    monkeypatch.setattr(site, "fastest", lambda found, *_: name_of(list(found)))


def changed(**changes: object) -> Recipe:
    return dataclasses.replace(RECIPE, **changes)  # type: ignore[arg-type]


def images(augment: tuple[str, ...] = ()) -> TrainingData:
    augmentation = Augmentation(augment, num_classes=NUM_CLASSES) if augment else None
    reader = Reader(patch_side=PATCH_SIDE, mean=torch.full((3,), 0.5), spread=torch.full((3,), 0.3), augmentation=augmentation)
    parts = [made_images(num, seed) for seed, num in enumerate((NUM_LEARNED, 12, 15))]
    return TrainingData(learned=parts[0], held_out=parts[1], test=parts[2], reader=reader, answers="class", num_classes=NUM_CLASSES)


def build(family: str = "gmlp", interface: Interface | None = None) -> nn.Module:
    shape = Shape(seq_len=5, width=8, depth=1, heads=2, ffn_width=16)
    spec = ModelSpec(name=family, family=family, shape=shape, interface=interface or Interface(patch_dim=48, num_classes=NUM_CLASSES))
    torch.manual_seed(SEED)
    return build_model(spec)


def run(recipe: Recipe, family: str = "gmlp", checkpoint: Checkpoint | None = None) -> tuple[nn.Module, TrainResult]:
    model = build(family)
    return model, train_with_teacher(model, images(recipe.augment), recipe, seed=SEED, checkpoint=checkpoint)


def losses(result: TrainResult) -> list[float]:
    return [epoch.loss for epoch in result.epochs]


def same_bits(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("changes", "device", "has_bf16", "expected"),
    [
        ({}, "cpu", True, "eager fp32"),
        ({"precision": "bf16-autocast"}, "cpu", False, "eager bf16-autocast"),
        ({"compile": True}, "cpu", True, "compile fp32"),
        ({"engine": "onednn"}, "cpu", True, "onednn fp32"),
        ({"engine": "auto"}, "cpu", True, "eager fp32, onednn fp32"),
        ({"precision": "auto"}, "cpu", True, "eager fp32, eager bf16-autocast"),
        ({"precision": "auto"}, "cpu", False, "eager fp32"),
        ({"engine": "auto", "precision": "auto"}, "cpu", True, "eager fp32, eager bf16-autocast, onednn fp32"),
        ({"engine": "auto", "precision": "auto"}, "cuda", True, "eager fp32, eager bf16-autocast"),
        ({"engine": "auto", "precision": "auto"}, "cuda", False, "eager fp32"),
        ({"engine": "onednn", "precision": "auto"}, "cpu", True, "onednn fp32"),
        ({"engine": "auto", "precision": "bf16-autocast"}, "cpu", False, "eager bf16-autocast"),
        ({"engine": "auto", "precision": "tf32"}, "cuda", True, "eager tf32"),
        ({"engine": "graph"}, "cuda", True, "graph fp32"),
        ({"engine": "graph", "precision": "auto"}, "cuda", True, "graph fp32, graph bf16-autocast"),
    ],
)
def test_candidates_are_what_recipe_and_machine_allow(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], device: str, has_bf16: bool, expected: str
) -> None:
    monkeypatch.setattr(product, "why_unsupported", lambda dtype=torch.float32: "" if dtype == torch.float32 or has_bf16 else NO_BF16)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16 or including_emulation)
    assert ", ".join(found.name for found in candidates(changed(**changes), device)) == expected


@pytest.mark.parametrize(
    ("changes", "device", "expected"),
    [
        ({}, "cpu", "eager fp32"),
        ({"precision": "bf16-autocast"}, "cpu", "eager bf16-autocast"),  # nothing is open, so equal seeds give equal bits
        ({"precision": "auto"}, "cuda", "eager fp32, eager bf16-autocast"),
        ({"precision": "auto"}, "cpu", "eager fp32, eager bf16-autocast, eager explicit attention bf16-autocast"),
    ],
)
def test_in_bf16_on_a_cpu_attention_may_be_explicit(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], device: str, expected: str
) -> None:
    monkeypatch.setattr(product, "why_unsupported", lambda *_: "")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    assert ", ".join(found.name for found in candidates(changed(**changes), device, with_attention=True)) == expected


@pytest.mark.parametrize(("family", "expected"), {"gmlp": False, "vit": True, "transformer": True}.items())
def test_models_that_attend_are_found(family: str, expected: bool) -> None:
    assert attends(build(family)) is expected


def test_explicit_attention_runs_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = set[str]()

    def note(name: str) -> AbstractContextManager[None]:
        ran.add(name)
        return attention_backend(name)

    monkeypatch.setattr(loop, "fastest", lambda seconds: len(seconds) - 1)
    monkeypatch.setattr(loop, "attention_backend", note)
    monkeypatch.setattr(product, "why_unsupported", lambda *_: "")
    _, result = run(changed(precision="auto"), "vit")
    assert [found.name for found in result.executions] == ["eager explicit attention bf16-autocast"]
    assert ran == {"auto", "math"}  # the other was timed
    assert all(math.isfinite(loss) for loss in losses(result))


def test_without_onednn_auto_is_eager_and_onednn_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "why_unsupported", lambda *_: "this build of torch has no oneDNN")
    assert [found.name for found in candidates(changed(engine="auto"), "cpu")] == ["eager fp32"]
    with pytest.raises(RuntimeError, match="engine=onednn cannot run: this build of torch has no oneDNN"):
        run(changed(engine="onednn"))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (([1.0, 1.0, 1.0],), 0),
        (([1.0, 1.0, 1.0], [0.98, 0.98, 0.98]), 0),
        (([1.0, 1.0, 1.0], [0.96, 0.96, 0.96]), 1),
        (([1.0, 1.0, 1.0], [0.9, 0.9, 0.9], [0.8, 0.8, 0.8]), 2),
        (([1.0, 10.0, 1.0], [0.9, 9.0, 5.0]), 1),  # in one turn the machine was slow for both, in another for one
    ],
)
def test_the_fastest_by_turns_wins_unless_it_ties_with_the_first(seconds: Sequence[list[float]], expected: int) -> None:
    assert fastest(seconds) == expected


@pytest.mark.parametrize(("burst_s", "turns"), [(0.01, MAX_TURNS), (ENOUGH_S, MIN_TURNS)])
def test_bursts_take_turns_until_enough_time_is_spent(burst_s: float, turns: int) -> None:
    now, order = [0.0], []

    def burst(number: int) -> Callable[[], None]:
        def run() -> None:
            now[0] += burst_s * (number + 1)
            order.append(number)

        return run

    seconds = time_bursts([burst(0), burst(1)], clock=lambda: now[0])
    assert seconds == [pytest.approx([burst_s] * turns), pytest.approx([2 * burst_s] * turns)]
    assert order == [number for turn in range(turns) for number in ((0, 1) if turn % 2 else (1, 0))]


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gmlp", {}),
        ("vit", {"dropout": 0.2, "accumulate": 2, "schedule": "plateau"}),
        ("transformer", {"augment": ("crop", "flip", "mixup")}),
        ("gmlp", {"teacher": "convolution", "teacher_epochs": 1}),
    ],
)
@pytest.mark.usefixtures("by_onednn")
def test_onednn_learns_what_eager_learns(family: str, changes: dict[str, object]) -> None:
    """Shorter last batches, dropout, augmentation, several batches per step and a teacher."""
    _, expected = run(changed(**changes), family)
    _, found = run(changed(engine="onednn", **changes), family)
    assert losses(found) == pytest.approx(losses(expected), rel=1e-4)
    (used,) = found.executions
    assert (used.name, used.step_ms) == ("onednn fp32", {})
    assert {key[3][0][0] for key, name in used.products.items() if name == "onednn"} >= {8, 4}  # type: ignore[index]


@pytest.mark.usefixtures("by_onednn")
def test_onednn_learns_from_padded_items() -> None:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, (20, 5), generator=generator)
    lengths = torch.arange(20) % 4 + 2
    targets = torch.where(torch.arange(5) < lengths[:, None], tokens, IGNORED)
    examples = Examples(inputs=tokens, targets=targets, lengths=lengths)
    data = TrainingData(learned=examples, held_out=examples, test=examples, reader=Reader(), answers=TOKEN_CLASS)
    interface = Interface(input="tokens", output="tokens", vocab_size=3, num_classes=3)
    found = {engine: train(build("vit", interface), data, changed(engine=engine, epochs=3), seed=SEED) for engine in ("eager", "onednn")}
    assert losses(found["onednn"]) == pytest.approx(losses(found["eager"]), rel=1e-4)
    assert "onednn" in found["onednn"].executions[0].products.values()


def test_timing_leaves_weights_and_random_state_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "fastest", lambda _: 0)
    recipe = changed(dropout=0.2, augment=("crop", "flip"))
    expected, _ = run(recipe)
    model, result = run(dataclasses.replace(recipe, engine="auto", precision="auto"))
    assert same_bits(model, expected)
    (used,) = result.executions
    assert used.name == "eager fp32"
    assert {len(ms) for ms in used.step_ms.values()} == {MAX_TURNS}
    assert {"eager fp32", "onednn fp32"} <= set(used.step_ms)


@pytest.mark.usefixtures("by_onednn")
def test_the_fastest_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "fastest", lambda seconds: len(seconds) - 1)
    _, result = run(changed(engine="auto"))
    assert result.executions[0].name == "onednn fp32"
    assert "onednn" in result.executions[0].products.values()


def test_onednn_is_not_chosen_where_it_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, lambda names: names[0])
    monkeypatch.setattr(loop, "fastest", lambda seconds: len(seconds) - 1)
    _, result = run(changed(engine="auto"))
    assert result.executions[0].name == "eager fp32"
    assert set(result.executions[0].step_ms) == {"eager fp32", "onednn fp32"}


class CutOffError(Exception):
    pass


def run_until_cut_off(monkeypatch: pytest.MonkeyPatch, recipe: Recipe, checkpoint: Checkpoint, step: int) -> None:
    learn = Training.learn

    def learn_or_end(training: Training, chosen: Tensor) -> None:
        if training.step == step and training.epochs:
            raise CutOffError
        learn(training, chosen)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "learn", learn_or_end)
        with pytest.raises(CutOffError):
            run(recipe, checkpoint=checkpoint)


def checkpoint_at(path: Path, host: str) -> Checkpoint:
    return Checkpoint(path=path, identity=IDENTITY, every_s=0.0, hosts=[host])


def test_a_resumed_training_keeps_its_products_to_the_bit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = changed(engine="onednn", dropout=0.1)
    choose(monkeypatch, lambda names: names[-1])
    expected, _ = run(recipe)
    run_until_cut_off(monkeypatch, recipe, checkpoint_at(tmp_path / "c.pt", "here"), step=7)
    choose(monkeypatch, lambda names: names[0])
    model, result = run(recipe, checkpoint=checkpoint_at(tmp_path / "c.pt", "here"))
    assert same_bits(model, expected)
    assert [used.host for used in result.executions] == ["here"]


@pytest.mark.usefixtures("by_onednn")
def test_another_host_decides_anew_and_the_same_one_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe, path = changed(engine="auto"), tmp_path / "c.pt"
    monkeypatch.setattr(loop, "fastest", lambda _: 0)
    run_until_cut_off(monkeypatch, recipe, checkpoint_at(path, "here"), step=7)
    monkeypatch.setattr(loop, "fastest", lambda _: 1)
    run_until_cut_off(monkeypatch, recipe, checkpoint_at(path, "here"), step=8)
    _, result = run(recipe, checkpoint=checkpoint_at(path, "there"))
    assert [(used.host, used.engine) for used in result.executions] == [("here", "eager"), ("there", "onednn")]
    assert result.hosts == ("here", "there")


def test_scoring_uses_the_plain_model() -> None:
    """oneDNN would time its products once more for each size of the last scored batch."""
    _, result = run(changed(engine="onednn"))
    assert {key[-1] for key in result.executions[0].products} == {True}  # with gradients
    assert math.isfinite(result.validation.value)


def test_more_trainings_than_torch_compiles_a_function_all_run_by_onednn() -> None:
    from torch._dynamo import config

    limit, model = 3, build()
    with config.patch(recompile_limit=limit):  # timm, once imported, sets it to a million
        for _ in range(limit + 1):
            used = execution.Execution(engine="onednn", precision="fp32")
            forward_of(model, used)(torch.zeros(2, 4, 48), None)
            assert used.products

"""Distillation: what the teacher costs and sees, what the student takes from it, and that an interruption changes no bit of either."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.flop_counter import count_train_with_torch, count_with_torch
from bench.measure.model import cost_of
from bench.metrics import accuracy
from bench.progress import listening
from bench.spec import Recipe
from bench.tasks import Split
from bench.tasks._info import info_of
from bench.training import distillation, loop
from bench.training.checkpoint import Checkpoint
from bench.training.data import TrainingData, load_training_data
from bench.training.distillation import TEACHER_RECIPE, train_teacher, train_with_teacher
from bench.training.loop import DivergedError, Training, TrainResult, train
from bench.training.reading import Reader, image_size
from bench.training.teacher import TEMPERATURE, ConvolutionalNetwork, TrainedTeacher, distillation_loss, flops_per_image
from models.layers.patches import cut_patches
from tests.made_jobs import small_job, small_model
from tests.training.small_trainings import (
    NUM_LEARNED,
    SEED,
    build,
    changed,
    differences,
    made_data,
    run,
    run_until_cut_off,
    same_bits,
    saved_at,
)

RECIPE = changed(teacher="convolution", teacher_epochs=2)
PLAIN = dataclasses.replace(RECIPE, teacher="none")
STEPS = -(-NUM_LEARNED // 8)


def taught(recipe: Recipe, checkpoint: Checkpoint | None = None) -> tuple[nn.Module, TrainResult]:
    return run(recipe, "vit", checkpoint)


@pytest.mark.parametrize(("side", "channels", "num_classes"), [(32, 3, 10), (5, 1, 100), (2, 3, 2)])
def test_closed_form_flops_are_the_counted_ones_at_any_side(side: int, channels: int, num_classes: int) -> None:
    with torch.device("meta"):
        network, data = ConvolutionalNetwork(channels, num_classes), torch.empty(1, 1, channels * side * side)
    counted = count_with_torch(network.eval(), data).flops, count_train_with_torch(network.train(), data).flops
    assert counted == flops_per_image(channels, side, num_classes)
    small = ConvolutionalNetwork(channels, num_classes).train()
    small(torch.rand(1, 1, channels * side * side)).sum().backward()  # batch normalisation refuses a single value per channel
    assert all(parameter.grad is not None for parameter in small.parameters())


@pytest.mark.parametrize(("channels", "patch_side"), [(1, 2), (3, 4)])
def test_the_teacher_sees_the_images_that_were_cut(channels: int, patch_side: int) -> None:
    images = torch.rand(2, channels, 8, 8)
    patches, network = cut_patches(images, patch_side), ConvolutionalNetwork(channels, 2).eval()
    assert torch.equal(network(patches), network(cut_patches(images, 8)))
    assert not torch.equal(network(patches), network(cut_patches(images.flip(-1), 8)))
    assert image_size(patches, patch_side) == image_size(images, patch_side) == (channels, 8)


def test_the_soft_loss_is_the_formula_of_the_paper() -> None:
    """(1 - w) CE + w T^2 KL(teacher || student) with both softened, written out in double precision."""
    generator = torch.Generator().manual_seed(0)
    outputs, answers = (3 * torch.randn(6, 4, dtype=torch.float64, generator=generator) for _ in range(2))
    own = F.cross_entropy(outputs, torch.arange(6) % 4)
    theirs, ours = ((logits / TEMPERATURE).exp() / (logits / TEMPERATURE).exp().sum(1, keepdim=True) for logits in (answers, outputs))
    divergence = (theirs * (theirs / ours).log()).sum(1).mean()
    found = distillation_loss(own, outputs, answers, dataclasses.replace(RECIPE, distillation_weight=0.3))
    torch.testing.assert_close(found, 0.7 * own + 0.3 * TEMPERATURE**2 * divergence)
    assert divergence > 0.01


def test_the_hard_loss_is_cross_entropy_with_the_teachers_choices() -> None:
    outputs, answers = torch.randn(6, 4), torch.randn(6, 4)
    found = distillation_loss(
        torch.tensor(2.0), outputs, answers, dataclasses.replace(RECIPE, distillation="hard", distillation_weight=0.25)
    )
    chosen = outputs.log_softmax(1)[torch.arange(6), answers.argmax(1)]
    torch.testing.assert_close(found, 0.75 * 2.0 - 0.25 * chosen.mean())


def test_a_student_learns_otherwise_but_for_a_teacher_without_weight() -> None:
    plain, silent, heard = (taught(recipe) for recipe in (PLAIN, dataclasses.replace(RECIPE, distillation_weight=0.0), RECIPE))
    assert differences(plain, silent) == []
    assert "weights" in differences(plain, heard)
    assert (plain[1].teacher is None, silent[1].teacher is None) == (True, False)


def rows(parts: list[Tensor]) -> set[bytes]:
    return {item.numpy().tobytes() for part in parts for item in part}


@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_teacher_learns_from_the_students_items_and_sees_no_test_item(as_bytes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of floats are not augmented: an item is known by its bits. Bytes are moved about while they are learned from."""
    learned, read = list[Tensor](), list[Tensor]()

    class Watched(ConvolutionalNetwork):
        def forward(self, data: Tensor, _: Tensor | None = None) -> Tensor:
            (learned if self.training else read).append(data)
            return super().forward(data)

    monkeypatch.setattr(distillation, "ConvolutionalNetwork", Watched)
    data = made_data()
    if not as_bytes:
        parts: Any = {name: getattr(data, name) for name in ("learned", "held_out", "test")}
        as_floats: Any = {name: dataclasses.replace(part, inputs=part.inputs.float() / 255) for name, part in parts.items()}
        data = dataclasses.replace(data, **as_floats)
    train_teacher(data, RECIPE, seed=SEED)
    items, held_out, test = (rows([data.reader.read(part).data]) for part in (data.learned, data.held_out, data.test))
    assert rows(read) == held_out
    assert not (rows(learned) | rows(read)) & test
    assert sum(map(len, learned)) == NUM_LEARNED * RECIPE.teacher_epochs
    if as_bytes:
        assert len(rows(learned) & items) < len(rows(learned)) / 10  # one in 162 draws leaves an image as it was
    else:
        assert rows(learned) == items


def test_a_student_hears_the_teacher_on_its_own_images(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Tensor] = []
    answer = TrainedTeacher.answer

    def answer_and_note(teacher: TrainedTeacher, data: Tensor) -> Tensor:
        assert not teacher.model.training
        asked.append(data)
        return answer(teacher, data)

    monkeypatch.setattr(TrainedTeacher, "answer", answer_and_note)
    model, met = build("vit"), list[Tensor]()
    model.register_forward_pre_hook(lambda module, inputs: met.append(inputs[0]) if module.training else None)
    train_with_teacher(model, made_data(), RECIPE, seed=SEED)
    assert len(asked) == len(met) == STEPS * RECIPE.epochs
    assert all(a is b for a, b in zip(asked, met, strict=True))


def test_a_teacher_learns_and_tells_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MESSAGE_EVERY_S", 0.0)
    shades = torch.arange(96) % 2
    images = (shades[:, None, None, None] * 100 + 50).expand(-1, 3, 8, 8).to(torch.uint8)
    part = Split(inputs=images, targets=shades)
    data = dataclasses.replace(made_data(), learned=part, held_out=part, num_classes=2)
    told: list[str] = []
    with listening(told.append):
        teacher = train_teacher(data, dataclasses.replace(RECIPE, teacher_epochs=6), seed=0)
    assert teacher.accuracy == 1.0
    assert all(text.startswith("teacher: epoch") for text in told)
    assert not any(parameter.requires_grad for parameter in teacher.model.parameters())


def test_a_teacher_that_diverges_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "TEACHER_RECIPE", dataclasses.replace(TEACHER_RECIPE, learning_rate=1e30, warmup=0.0, clip_norm=1e9))
    with pytest.raises(DivergedError, match="teacher: training diverged in epoch 1"):
        taught(RECIPE)


def test_a_recipe_and_its_teacher_must_agree() -> None:
    teacher = train_teacher(made_data(), RECIPE, seed=0)
    for recipe, given in ((RECIPE, None), (PLAIN, teacher)):
        with pytest.raises(ValueError, match="teacher must be given if and only if the recipe has one"):
            train(build("vit"), made_data(), recipe, seed=0, teacher=given)
    with pytest.raises(ValueError, match="a teacher needs images"):
        train_teacher(dataclasses.replace(made_data(), reader=Reader()), RECIPE, seed=0)


SMALL_STEPS = dataclasses.replace(TEACHER_RECIPE, batch_size=8)


@pytest.fixture(scope="module")
def undisturbed() -> tuple[nn.Module, TrainResult]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(distillation, "TEACHER_RECIPE", SMALL_STEPS)
        return taught(RECIPE)


@pytest.mark.parametrize(("who", "step"), [("teacher: ", STEPS), ("", STEPS), ("", 1)])
def test_an_interruption_of_either_changes_no_bit(
    who: str, step: int, undisturbed: tuple[nn.Module, TrainResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(distillation, "TEACHER_RECIPE", SMALL_STEPS)
    checkpoint = saved_at(tmp_path / "state.pt")
    learn, begun = Training.learn, list[tuple[str, int]]()

    def learn_and_note(training: Training, chosen: Tensor) -> None:
        begun.append((training.message_prefix, training.step))
        learn(training, chosen)

    run_until_cut_off(RECIPE, "vit", checkpoint, step, who=who)
    monkeypatch.setattr(Training, "learn", learn_and_note)
    resumed, result = taught(RECIPE, checkpoint)
    assert differences((resumed, result), undisturbed) == []
    assert begun[0] == (who, step)
    assert result.teacher
    assert undisturbed[1].teacher
    assert same_bits(result.teacher.model, undisturbed[1].teacher.model)
    assert result.teacher.accuracy == undisturbed[1].teacher.accuracy
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_the_metric_counts_the_teacher_as_compute_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one item in ten left to learn from: counts are exact whatever their number."""

    def few(*arguments: Any, **options: Any) -> TrainingData:
        data = load_training_data(*arguments, **options)
        return dataclasses.replace(data, learned=data.learned.select(torch.arange(len(data.learned)) % 10 == 0))

    monkeypatch.setattr("bench.training.data.load_training_data", few)
    recipe = Recipe(epochs=2, batch_size=32, teacher="convolution", teacher_epochs=1)
    model = small_model("vit", seq_len=5, heads=2, interface=info_of("digits").interface(5, "cls"))
    found = small_job("accuracy", model, work={"task": "digits"}, repeat=1, recipe=recipe)
    alone = accuracy.measure(dataclasses.replace(found, recipe=dataclasses.replace(recipe, teacher="none"))).values
    taught = accuracy.measure(found).values
    num_learned = alone["train_flops"] / cost_of(model).train_flops().at(5) / 2
    assert num_learned == round(num_learned) > 100
    forward, learning = flops_per_image(1, 32, 10)
    assert taught["train_flops"] == alone["train_flops"] + num_learned * (learning + 2 * forward)
    assert taught["teacher_params"] == sum(parameter.numel() for parameter in ConvolutionalNetwork(1, 10).parameters())
    assert taught["train_s"] > taught["teacher_s"] > 0.0
    assert taught["epoch_s"] == pytest.approx((taught["train_s"] - taught["teacher_s"]) / 2)
    assert not {"teacher_s", "teacher_accuracy", "teacher_params"} & set(alone)

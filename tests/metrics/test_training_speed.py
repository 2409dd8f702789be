"""Training speed: the ratios against values worked out by hand, and the ways really learn, from the same items."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from bench.measure.model import build_model
from bench.metrics import training_speed
from bench.spec import Cell, Job, ModelSpec, Outcome, Recipe, Record, Settings, Workload
from bench.tasks._info import CLASS
from bench.training import data as data_module
from bench.training.baselines import bound_seconds, plain_seconds, prepared_batches, suits_timm, timm_seconds
from bench.training.checkpoint import Checkpoint
from bench.training.data import TrainingData, load_training_data
from bench.training.decoding import score
from bench.training.loop import Training
from bench.training.objective import Scores
from bench.training.reading import Examples, Reader
from models.layers.shape import Interface, Shape

MODEL = ModelSpec(
    name="vit",
    family="vit",
    shape=Shape(seq_len=5, width=16, depth=1, heads=2, ffn_width=32),
    interface=Interface(patch_dim=256, num_classes=10),
)
RECIPE = Recipe(epochs=1, batch_size=32, learning_rate=5e-3)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def record(
    round_number: int, loop: tuple[float, ...], bound: tuple[float, ...], plain: tuple[float, ...], timm: tuple[float, ...] = ()
) -> Record:
    samples = {"loop_images_per_s": loop, "bound_images_per_s": bound, "plain_images_per_s": plain}
    outcome = Outcome(status="measured", samples={**samples, **({"timm_images_per_s": timm} if timm else {})})
    return Record(
        subject_id="x",
        metric="training_speed",
        repeat=round_number,
        control=False,
        environment_id="e",
        code_version="v",
        outcome=outcome,
    )


def test_ratios_are_paired_by_stretch() -> None:
    """The stretch in which the machine was ten times slower says the same as the others."""
    row = training_speed.summarise([record(number, (90.0, 9.0, 90.0), (100.0, 10.0, 100.0), (60.0, 6.0, 60.0)) for number in range(3)])
    assert row["loop_of_bound"] == pytest.approx(0.9)
    assert (row["loop_of_bound_low"], row["loop_of_bound_high"]) == (pytest.approx(0.9), pytest.approx(0.9))
    assert row["loop_over_plain"] == pytest.approx(1.5)
    assert (row["loop_images_per_s"], row["bound_images_per_s"], row["plain_images_per_s"]) == (90.0, 100.0, 60.0)


def test_timms_loop_has_its_own_ratio_and_empty_columns_where_it_did_not_run() -> None:
    with_timm = [record(number, (90.0, 9.0), (100.0, 10.0), (60.0, 6.0), (45.0, 4.5)) for number in range(2)]
    row = training_speed.summarise(with_timm)
    assert (row["timm_images_per_s"], row["loop_over_timm"]) == (pytest.approx(24.75), pytest.approx(2.0))
    assert (row["loop_over_timm_low"], row["loop_over_timm_high"]) == (pytest.approx(2.0), pytest.approx(2.0))
    row = training_speed.summarise([*with_timm, record(2, (90.0,), (100.0,), (60.0,))])
    assert row["loop_over_plain"] == pytest.approx(1.5)
    assert {name for name, value in row.items() if value is None} == {name for name in training_speed.COLUMNS if "timm" in name}


def test_one_round_has_no_interval_and_none_has_nothing() -> None:
    row = training_speed.summarise([record(0, (90.0,), (100.0,), (60.0,))])
    assert (row["loop_of_bound"], row["loop_of_bound_low"]) == (0.9, None)
    assert set(training_speed.summarise([]).values()) == {None}
    assert tuple(row) == training_speed.COLUMNS


def trained_by(way: str) -> Scores:
    data = load_training_data(MODEL, "digits", RECIPE, seed=0, prepares=way != "plain")
    torch.manual_seed(0)
    model = build_model(MODEL)
    for _ in range(4):
        if way == "plain":
            assert plain_seconds(model, data, RECIPE, "cpu") > 0
        else:
            assert bound_seconds(model, prepared_batches(data, RECIPE), data.answers, RECIPE, "cpu") > 0
    return score(model, data.test, data.reader, data.answers)


@pytest.mark.parametrize("way", ["plain", "bound"])
def test_what_the_loop_is_held_against_learns_too(way: str) -> None:
    assert trained_by(way).value > 0.4


def bright_images(num_items: int) -> Examples:
    """Classes differ in brightness."""
    targets = torch.arange(num_items) % 3
    noise = torch.randint(40, (num_items, 3, 16, 16), generator=torch.Generator().manual_seed(num_items))
    return Examples(inputs=(noise + 80 * targets[:, None, None, None]).to(torch.uint8), targets=targets)


def images() -> TrainingData:
    reader = Reader(patch_side=8, mean=torch.full((3,), 0.4), spread=torch.full((3,), 0.3))
    parts = [bright_images(num) for num in (70, 9, 30)]
    return TrainingData(learned=parts[0], held_out=parts[1], test=parts[2], reader=reader, answers=CLASS)


IMAGE_MODEL = dataclasses.replace(MODEL, interface=Interface(patch_dim=192, num_classes=10))


def test_timms_loop_learns_from_the_same_images() -> None:
    data, recipe = images(), dataclasses.replace(RECIPE, batch_size=7, epochs=5)
    torch.manual_seed(0)
    model = build_model(IMAGE_MODEL)
    assert suits_timm(data, recipe)
    for _ in range(recipe.epochs):
        assert timm_seconds(model, data, recipe, "cpu") > 0
    assert score(model, data.test, data.reader, data.answers).value > 0.9


def test_timms_loader_gives_what_our_reader_does() -> None:
    """Every item once, normalised alike, in patches."""
    data, seen = images(), list[Tensor]()
    model = build_model(IMAGE_MODEL)
    model.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    timm_seconds(model, data, dataclasses.replace(RECIPE, batch_size=7), "cpu")
    expected, found = data.reader.read(data.learned).data, torch.cat(seen)
    assert found.shape == expected.shape
    assert torch.allclose(found.flatten(1).sum(dim=1).sort().values, expected.flatten(1).sum(dim=1).sort().values, atol=1e-2)


def test_timms_loop_needs_images_stored_as_bytes_in_full_batches() -> None:
    data = images()
    assert not suits_timm(data, dataclasses.replace(RECIPE, batch_size=8))  # timm drops an incomplete batch
    digits = load_training_data(MODEL, "digits", RECIPE, seed=0, prepares=False)
    assert not suits_timm(digits, dataclasses.replace(RECIPE, batch_size=1))


@pytest.mark.parametrize("changes", [{"dtype": "bf16"}, {"engine": "compile"}])
def test_a_cell_of_another_arithmetic_or_engine_is_refused(changes: dict[str, str]) -> None:
    cell = Cell(model=MODEL, workload=Workload(task="digits", **changes))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fp32 or bf16-autocast, eager"):
        training_speed.measure(Job(cell=cell, metric="training_speed", repeat=0))


def test_a_real_measurement_gives_as_many_stretches_of_each_way() -> None:
    cell = Cell(model=MODEL, workload=Workload(task="digits"))
    samples = training_speed.measure(Job(cell=cell, metric="training_speed", repeat=0, settings=Settings(sample_s=0.01))).samples
    assert set(samples) == {f"{way}_images_per_s" for way in ("loop", "bound", "plain")}
    assert {len(series) for series in samples.values()} == {training_speed.MIN_STRETCHES}


def test_all_four_ways_train_and_the_loop_starts_afresh_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first_losses, run_epoch = list[float](), Training.run_epoch

    def run_and_note(training: Training, checkpoint: Checkpoint | None) -> None:
        assert (training.step, training.epochs, float(training.loss_sum)) == (0, [], 0.0)
        run_epoch(training, checkpoint)
        first_losses.append(float(training.first_loss))

    monkeypatch.setattr(Training, "run_epoch", run_and_note)
    monkeypatch.setattr(data_module, "load_training_data", lambda *_, **__: images())
    cell = Cell(model=IMAGE_MODEL, workload=Workload(task="digits", batch_size=8))
    samples = training_speed.measure(Job(cell=cell, metric="training_speed", repeat=0, settings=Settings(sample_s=0.01))).samples
    assert set(samples) == {f"{way}_images_per_s" for way in training_speed.WAYS}
    assert {len(series) for series in samples.values()} == {training_speed.MIN_STRETCHES}
    assert len(first_losses) == training_speed.MIN_STRETCHES + 1
    assert len(set(first_losses)) == 1


def test_under_autocast_all_four_ways_multiply_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[torch.dtype, int] = {}

    def build_and_note(spec: ModelSpec) -> torch.nn.Module:
        model = build_model(spec)
        (linear, *_) = [part for part in model.modules() if isinstance(part, torch.nn.Linear)]
        linear.register_forward_hook(lambda _, __, output: seen.update({output.dtype: seen.get(output.dtype, 0) + 1}))
        return model

    monkeypatch.setattr("bench.measure.model.build_model", build_and_note)
    monkeypatch.setattr(data_module, "load_training_data", lambda *_, **__: images())
    monkeypatch.setattr(training_speed, "NUM_STEPS", 1)
    cell = Cell(model=IMAGE_MODEL, workload=Workload(task="digits", dtype="bf16-autocast", batch_size=8))
    samples = training_speed.measure(Job(cell=cell, metric="training_speed", repeat=0, settings=Settings(sample_s=0.0))).samples
    num_stretches = len(samples["loop_images_per_s"]) + 1
    # one batch per stretch and way; our loop also scores nine held-out images, under autocast too
    assert set(seen) == {torch.bfloat16}
    assert seen[torch.bfloat16] >= len(training_speed.WAYS) * num_stretches

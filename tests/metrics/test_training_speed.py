"""Training speed: the ratios against values worked out by hand, and the three ways really learn, from the same items."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from bench.measure.model import build_model
from bench.metrics import training_speed
from bench.spec import Cell, Job, ModelSpec, Outcome, Recipe, Record, Settings, Workload
from bench.training.baselines import bound_seconds, plain_seconds, prepared_batches
from bench.training.data import load_training_data
from bench.training.decoding import score
from bench.training.objective import Scores
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


def record(round_number: int, loop: tuple[float, ...], bound: tuple[float, ...], plain: tuple[float, ...]) -> Record:
    samples = {"loop_images_per_s": loop, "bound_images_per_s": bound, "plain_images_per_s": plain}
    outcome = Outcome(status="measured", samples=samples)
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


def test_a_cell_of_another_arithmetic_is_refused() -> None:
    cell = Cell(model=MODEL, workload=Workload(task="digits", dtype="bf16"))
    with pytest.raises(ValueError, match="fp32, eager"):
        training_speed.measure(Job(cell=cell, metric="training_speed", repeat=0))


def test_a_real_measurement_gives_as_many_stretches_of_each_way() -> None:
    cell = Cell(model=MODEL, workload=Workload(task="digits"))
    samples = training_speed.measure(Job(cell=cell, metric="training_speed", repeat=0, settings=Settings(sample_s=0.01))).samples
    assert set(samples) == {f"{way}_images_per_s" for way in training_speed.WAYS}
    assert {len(series) for series in samples.values()} == {training_speed.MIN_STRETCHES}

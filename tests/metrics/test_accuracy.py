"""The accuracy metric: one seed trained on the digits or on a small made task, and the summary over seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.measure.model import build_model, cost_of
from bench.measure.step import set_product_precision
from bench.metrics import Measurement, accuracy
from bench.running.worker import run_job
from bench.serialize import from_json, to_json
from bench.spec import Job, Outcome, Recipe, Record, RequestError, Settings
from bench.tasks import digits, load_splits
from bench.tasks._info import info_of
from bench.training import loop
from models.layers.shape import Interface
from tests.made_jobs import small_job, small_model, small_record

RECIPE = Recipe(epochs=3, batch_size=32, learning_rate=5e-3)
COPY = "copy+symbols=8+items=300+test_items=40"
CURVE = "curve_fitting+items=300+test_items=20"


def make_job(*, seq_len: int = 5, patch_dim: int = 256) -> Job:
    """On the digits."""
    model = small_model(seq_len=seq_len, heads=2, options={"pool": "cls"}, interface=Interface(patch_dim=patch_dim, num_classes=10))
    return small_job("accuracy", model, work={"task": "digits"}, recipe=RECIPE)


def made_job(task: str = COPY, *, repeat: int = 0, seed: int = 0, **changes: Any) -> Job:
    """On a few made items; `changes`: of the recipe."""
    info = info_of(task)
    model = small_model(
        "vit" if task == COPY else "gmlp", seq_len=8, width=8, interface=info.interface(8, "none" if task.startswith("copy") else "cls")
    )
    recipe = dataclasses.replace(RECIPE, **{"epochs": 2, **changes})
    return small_job("accuracy", model, work={"task": task}, repeat=repeat, settings=Settings(seed=seed), recipe=recipe)


@pytest.fixture(scope="module")
def measured() -> Measurement:
    return accuracy.measure(make_job())


@pytest.fixture(scope="module")
def copied() -> Measurement:
    return accuracy.measure(made_job())


def test_scores_agree_with_the_items_and_beat_guessing(measured: Measurement) -> None:
    values, correct = measured.values, measured.samples["item_scores"]
    tops = [values["accuracy"], *(values[f"accuracy_top{k}"] for k in range(2, 6))]
    assert tops == sorted(tops)
    assert len(correct) == digits.INFO.num_test
    assert set(correct) <= {0, 1}
    assert sum(correct) / len(correct) == pytest.approx(values["accuracy"])
    assert min(values["accuracy"], values["train_accuracy"]) > 3 * digits.INFO.chance
    assert {"exact_accuracy", "cross_entropy"}.isdisjoint(values)  # one class per item has neither


def test_training_is_accounted_for_and_series_have_one_entry_per_epoch(measured: Measurement) -> None:
    values, samples = measured.values, measured.samples
    by_class = load_splits("digits", num_tokens=4).train.targets.bincount().tolist()
    num_learned = digits.INFO.num_train - sum(max(1, round(0.1 * num)) for num in by_class)
    assert values["train_flops"] == cost_of(make_job().cell.model).train_flops().at(5) * num_learned * RECIPE.epochs
    assert (values["learning_rate"], values["num_epochs"]) == (RECIPE.learning_rate, RECIPE.epochs)
    assert (values["train_engine"], values["train_precision"]) == ("eager", "fp32")
    assert {"train_s", "train_images_per_s", "validation", "train_accuracy"} <= set(values)
    assert [len(samples[name]) for name in ("loss", "validation", "epoch_s")] == [RECIPE.epochs] * 3
    assert samples["validation"][int(values["best_epoch"]) - 1] == values["validation"]


def test_the_seed_is_the_settings_plus_the_repeat_and_the_first_alone_says_how_tokens_were_mixed(copied: Measurement) -> None:
    by_repeat, by_settings = accuracy.measure(made_job(repeat=1)), accuracy.measure(made_job(seed=1))
    assert by_repeat.values["seed"] == by_settings.values["seed"] == 1
    assert by_repeat.samples["loss"] == by_settings.samples["loss"] != copied.samples["loss"]
    assert "mixing" in copied.values
    assert "mixing" not in by_repeat.values
    assert not any(name.endswith(("_start", "_trained")) for name in by_repeat.samples)


def test_the_first_seed_says_how_tokens_were_mixed_before_and_after(measured: Measurement) -> None:
    stored = measured.values["mixing"]
    assert (stored["seq_len"], stored["class_token"], stored["side"]) == (5, True, 2)
    assert list(stored["kinds"]) == ["attention", "positions"]
    torch.manual_seed(0)
    fresh = dict(build_model(make_job().cell.model).named_parameters())["embedding.positions"][0]
    alike = torch.nn.functional.normalize(fresh, dim=-1)
    start = torch.tensor(measured.samples["positions_start"]).view(5, 5)
    trained = torch.tensor(measured.samples["positions_trained"]).view(5, 5)
    assert torch.allclose(start, alike @ alike.T, atol=1e-3)
    assert not torch.allclose(start, trained, atol=1e-2)
    assert len(measured.samples["attention_start"]) == 2 * 5 * 5


def test_looking_at_the_mixing_changes_no_bit_of_the_training(monkeypatch: pytest.MonkeyPatch, copied: Measurement) -> None:
    monkeypatch.setattr("bench.training.inspection.MAX_SEQ_LEN", 1)
    unseen = accuracy.measure(made_job())
    assert "mixing" not in unseen.values
    assert unseen.samples["item_scores"] == copied.samples["item_scores"]
    assert unseen.samples["loss"] == copied.samples["loss"]


def test_what_does_not_fit_the_task_is_refused() -> None:
    with pytest.raises(RequestError, match="seq_len 6 does not fit task digits"):
        accuracy.measure(make_job(seq_len=6))
    with pytest.raises(ValueError, match="the model was built for"):
        accuracy.measure(make_job(patch_dim=192))
    with pytest.raises(ValueError, match="needs a recipe"):
        accuracy.measure(dataclasses.replace(make_job(), recipe=None))


@pytest.mark.slow
def test_labels_dealt_at_random_train_to_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole pipeline, within five standard deviations of guessing; with its true labels the same model is far above."""
    true = load_splits("digits", num_tokens=4)
    shuffled = [dataclasses.replace(split, targets=deal(split.targets, seed)) for seed, split in enumerate((true.train, true.test))]
    dealt = dataclasses.replace(true, train=shuffled[0], test=shuffled[1])
    monkeypatch.setattr("bench.training.data.load_splits", lambda *_, **__: dealt)
    values = accuracy.measure(make_job()).values
    chance = digits.INFO.chance
    assert abs(values["accuracy"] - chance) < 5 * math.sqrt(chance * (1 - chance) / digits.INFO.num_test)


def deal(targets: Tensor, seed: int) -> Tensor:
    return targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))]


def test_a_training_that_diverges_is_an_outcome_with_the_epochs_before(monkeypatch: pytest.MonkeyPatch, copied: Measurement) -> None:
    learn = loop.Training.learn

    def learn_until_the_second_epoch(training: loop.Training, chosen: Tensor) -> None:
        learn(training, chosen)
        if training.epochs:
            monkeypatch.setattr(loop, "EXPLODED", 1e-6)

    monkeypatch.setattr(loop.Training, "learn", learn_until_the_second_epoch)
    outcome = run_job(made_job())
    assert (outcome.status, outcome.values) == ("diverged", {})
    assert "epoch 2" in outcome.reason
    assert outcome.samples == {name: tuple(copied.samples[name][:1]) for name in ("loss", "validation")}
    assert from_json(Outcome, to_json(outcome)) == outcome


def test_a_rate_beyond_all_measure_diverges() -> None:
    outcome = run_job(made_job(learning_rate=1e30, warmup=0.0, clip_norm=1e6))
    assert outcome.status == "diverged", outcome.reason
    assert "epoch 1" in outcome.reason


def score_records(*scores: float) -> list[Record]:
    values = {"score_name": "r2", "train_s": 1.0, "train_images_per_s": 1.0}
    return [small_record("accuracy", {**values, "score": score}, place) for place, score in enumerate(scores)]


def test_values_are_summarised_as_a_score_by_name() -> None:
    row = accuracy.summarise(score_records(0.5, 0.6, 0.7))
    assert (row["score"], row["score_name"], row["accuracy"], row["accuracy_top5"]) == (pytest.approx(0.6), "r2", None, None)
    assert row["score_low"] < 0.6 < row["score_high"]
    assert accuracy.summarise(score_records(0.0, -4.0))["score_low"] < -4.0  # a score has no lower end


def test_a_task_of_values_is_scored_by_the_variance_explained_and_its_first_seed_holds_how_the_first_test_item_was_fitted() -> None:
    found, samples = (measurement := accuracy.measure(made_job(CURVE))).values, measurement.samples
    assert found["score_name"] == "r2"
    assert {"accuracy", "train_accuracy"}.isdisjoint(found)
    assert {"score", "train_score"} <= set(found)
    assert (len(samples["item_scores"]), max(samples["item_scores"]) <= 0.0) == (20, True)
    item = load_splits(CURVE, num_tokens=8).test
    assert samples["fit_observed_x"] == pytest.approx(item.inputs[0, :4, 0].tolist(), rel=1e-4)
    assert samples["fit_observed_y"] == pytest.approx(item.inputs[0, :4, 1].tolist(), rel=1e-4)
    assert samples["fit_asked_x"] == pytest.approx(item.inputs[0, 4:, 0].tolist(), rel=1e-4)
    assert samples["fit_truth"] == pytest.approx(item.targets[0, 4:].tolist(), rel=1e-4)
    squared = [(one - other) ** 2 for one, other in zip(samples["fit_truth"], samples["fit_prediction"], strict=True)]
    assert sum(squared) / 4 == pytest.approx(-samples["item_scores"][0], rel=1e-3)
    assert not any(name.startswith("fit_") for name in accuracy.measure(made_job(CURVE, repeat=1)).samples)


@pytest.mark.parametrize(("form", "generated"), [("", False), ("+form=shifted", True)])
def test_token_classes_have_exact_sequences_and_where_they_are_not_generated_a_cross_entropy(form: str, generated: bool) -> None:
    found = accuracy.measure(made_job(COPY + form, epochs=1))
    assert found.values["exact_accuracy"] == sum(score == 1.0 for score in found.samples["item_scores"]) / 40
    assert ("cross_entropy" in found.values) is not generated
    if not generated:  # hardly trained: about that of guessing among 8
        assert found.values["cross_entropy"] == pytest.approx(math.log(8), rel=0.2)
    row = accuracy.summarise([small_record("accuracy", found.values)])
    assert (row["exact_accuracy"], row["exact_accuracy_low"]) == (found.values["exact_accuracy"], None)
    assert (row["perplexity"] is None) is generated


def test_exact_accuracy_and_perplexity_of_three_seeds_worked_out_by_hand() -> None:
    """Cross-entropies 1.9, 2, 2.1: mean 2, standard deviation 0.1; t(0.975, 2) = 4.302653: half width 0.248414."""
    values = [{"accuracy": 0.5, "cross_entropy": ce, "exact_accuracy": share} for ce, share in ((1.9, 0.7), (2.0, 0.8), (2.1, 0.9))]
    row = accuracy.summarise([small_record("accuracy", found, place) for place, found in enumerate(values)])
    assert row["perplexity"] == pytest.approx(math.exp(2))
    assert row["perplexity_low"] == pytest.approx(math.exp(2 - 0.248414), rel=1e-6)
    assert row["perplexity_high"] == pytest.approx(math.exp(2 + 0.248414), rel=1e-6)
    assert (row["exact_accuracy"], row["exact_accuracy_high"]) == (pytest.approx(0.8), 1.0)
    assert row["exact_accuracy_low"] == pytest.approx(0.8 - 0.248414, abs=1e-6)
    beyond = accuracy.summarise([small_record("accuracy", {"accuracy": 0.5, "cross_entropy": 1e4})])
    assert (beyond["perplexity"], beyond["perplexity_low"]) == (math.inf, None)


def make_records(accuracies: list[float]) -> list[Record]:
    """One per seed; the times rise with the seed, the last one tenfold."""
    found = []
    for place, (value, train_s) in enumerate(zip(accuracies, (2.0, 3.0, 40.0), strict=False)):
        values = {"accuracy": value, "accuracy_top5": 1.0, "train_accuracy": min(1.0, value + 0.01)}
        found.append(small_record("accuracy", {**values, "train_s": train_s, "train_images_per_s": 100.0 / train_s}, place))
    return found


def test_three_seeds_worked_out_by_hand() -> None:
    """Mean 0.8, standard deviation 0.1; t(0.975, 2) = 4.302653: half width 0.248414."""
    row = accuracy.summarise(make_records([0.7, 0.8, 0.9]))
    assert tuple(row) == accuracy.COLUMNS
    assert row["accuracy"] == pytest.approx(0.8)
    assert row["accuracy_low"] == pytest.approx(0.8 - 0.248414, abs=1e-6)
    assert row["accuracy_high"] == 1.0
    assert row["train_accuracy"] == pytest.approx(0.81)
    assert (row["train_s"], row["num_seeds"], row["score"], row["score_name"]) == (3.0, 3, None, None)
    assert row["train_images_per_s"] == pytest.approx(100.0 / 3.0)
    assert {row[name] for name in accuracy.COLUMNS if name.startswith(("exact_accuracy", "perplexity"))} == {None}


def test_a_training_computes_as_its_recipe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, dtypes = list[nn.Module](), set[torch.dtype]()

    def forward_of(model: nn.Module) -> Callable[..., Tensor]:
        def forward(data: Tensor, valid: Tensor | None = None) -> Tensor:
            outputs: Tensor = model(data, valid)
            dtypes.add(outputs.dtype)
            return outputs

        compiled.append(model)
        return forward

    monkeypatch.setattr(torch, "compile", forward_of)
    found = accuracy.measure(made_job(epochs=1, compile=True, precision="bf16-autocast"))
    assert (found.values["train_engine"], found.values["train_precision"]) == ("compile", "bf16-autocast")
    assert len(compiled) == 1
    assert dtypes == {torch.bfloat16}


def test_rows_name_every_engine_that_trained_once() -> None:
    values = [{"accuracy": 0.5, "train_engine": engine, "train_precision": "fp32"} for engine in ("eager", "graph", "eager")]
    row = accuracy.summarise([small_record("accuracy", found, place) for place, found in enumerate(values)])
    assert (row["train_engine"], row["train_precision"]) == ("eager; graph", "fp32")
    assert accuracy.summarise([small_record("accuracy", {"accuracy": 0.5})])["train_engine"] is None


def test_one_seed_has_no_interval_equal_seeds_an_empty_one_and_none_empty_columns() -> None:
    single = accuracy.summarise(make_records([0.9]))
    assert (single["accuracy"], single["accuracy_low"], single["accuracy_high"], single["num_seeds"]) == (0.9, None, None, 1)
    equal = accuracy.summarise(make_records([0.5, 0.5]))
    assert (equal["accuracy_low"], equal["accuracy_high"]) == (0.5, 0.5)
    assert accuracy.summarise(make_records([0.0, 0.2]))["accuracy_low"] == 0.0
    assert accuracy.summarise([]) == dict.fromkeys(accuracy.COLUMNS)


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True)])
def test_products_of_a_training_are_tf32_where_the_recipe_says_so(precision: str, allowed: bool) -> None:
    set_product_precision("fp32" if allowed else "tf32")
    try:
        accuracy._prepare(made_job(precision=precision), seed=0)
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (allowed, allowed)
    finally:
        set_product_precision("fp32")

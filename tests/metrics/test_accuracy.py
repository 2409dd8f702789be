"""The accuracy metric: one seed trained on the digits or on a small made task, and the summary over seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.measure.model import build_model, cost_of
from bench.measure.step import set_product_precision
from bench.metrics import Measurement, accuracy
from bench.running.worker import run_job
from bench.serialize import from_json, to_json
from bench.spec import Job, Outcome, Recipe, RequestError, Settings
from bench.tasks import digits, load_splits
from bench.tasks._info import info_of
from bench.training import loop
from models.layers.shape import Interface
from tests.made_jobs import small_job, small_model, small_record
from tests.trained_run import made_task, trained_run

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
    series = ("loss", "validation", "epoch_s", "train_accuracy", "validation_loss")
    assert [len(samples[name]) for name in series] == [RECIPE.epochs] * len(series)
    assert samples["validation"][int(values["best_epoch"]) - 1] == values["validation"]


def test_the_seed_is_the_settings_plus_the_repeat_and_the_first_alone_says_how_tokens_were_mixed(copied: Measurement) -> None:
    by_repeat, by_settings = accuracy.measure(made_job(repeat=1)), accuracy.measure(made_job(seed=1))
    assert by_repeat.values["seed"] == by_settings.values["seed"] == 1
    assert by_repeat.samples["loss"] == by_settings.samples["loss"] != copied.samples["loss"]
    assert "mixing" in copied.values
    assert "mixing" not in by_repeat.values
    assert not any(name.endswith(("_start", "_trained")) for name in by_repeat.samples)


def test_the_first_seed_says_how_tokens_were_mixed_before_and_after(measured: Measurement) -> None:
    assert list(measured.values["mixing"]["kinds"]) == ["attention", "positions"]
    torch.manual_seed(0)
    fresh = dict(build_model(make_job().cell.model).named_parameters())["embedding.positions"][0]
    alike = torch.nn.functional.normalize(fresh, dim=-1)
    start = torch.tensor(measured.samples["positions_start"]).view(5, 5)
    trained = torch.tensor(measured.samples["positions_trained"]).view(5, 5)
    assert torch.allclose(start, alike @ alike.T, atol=1e-3)
    assert not torch.allclose(start, trained, atol=1e-2)


@pytest.mark.parametrize(
    ("size", "seq", "grid"), [("height=8+width=16", "9", [2, 4]), ("height=4+width=12", "4", None), ("side=8", "5", [2, 2])]
)
def test_the_patches_of_any_image_lie_on_their_grid_unless_it_is_a_line(
    size: str, seq: str, grid: list[int] | None, tmp_path: Path
) -> None:
    task = f"{made_task(tmp_path).removesuffix('+side=8')}+{size}"
    _, (found,) = trained_run(tmp_path / "run", task, models="gmlp", seq=seq)
    mixing = found.values["mixing"]
    assert mixing["grid"] == grid
    assert mixing["kinds"]["spatial_gating"].get("filters", {}).get("shape", [])[2:] == (2 * grid if grid else [])
    assert bool(mixing["kinds"]["spatial_gating"]["trained"]["grid"][0]) is bool(grid)


def test_what_does_not_fit_the_task_is_refused() -> None:
    with pytest.raises(RequestError, match="seq_len 6 does not fit task digits"):
        accuracy.measure(make_job(seq_len=6))
    with pytest.raises(ValueError, match="the model was built for"):
        accuracy.measure(make_job(patch_dim=192))
    with pytest.raises(ValueError, match="needs a recipe"):
        accuracy.measure(dataclasses.replace(make_job(), recipe=None))


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


def summary(*seeds: dict[str, Any]) -> Mapping[str, Any]:
    return accuracy.summarise([small_record("accuracy", values, place) for place, values in enumerate(seeds)])


def test_every_rank_from_two_to_five_is_a_column() -> None:
    row = summary(*({"accuracy": 0.5, **{f"accuracy_top{k}": 0.5 + k / 20 + seed for k in range(2, 6)}} for seed in (0.0, 0.1)))
    assert [row[f"accuracy_top{k}"] for k in range(2, 6)] == pytest.approx([0.65, 0.7, 0.75, 0.8])


def test_values_are_summarised_as_a_score_by_name() -> None:
    row = summary(*({"score_name": "r2", "score": score} for score in (0.5, 0.6, 0.7)))
    assert (row["score"], row["score_name"], row["accuracy"], row["accuracy_top5"]) == (pytest.approx(0.6), "r2", None, None)
    assert row["score_low"] < 0.6 < row["score_high"]
    assert summary({"score": 0.0}, {"score": -4.0})["score_low"] < -4.0  # a score has no lower end


def test_a_task_of_values_is_scored_by_the_variance_explained_and_its_first_seed_holds_how_the_first_test_item_was_fitted() -> None:
    found, samples = (measurement := accuracy.measure(made_job(CURVE))).values, measurement.samples
    assert found["score_name"] == "r2"
    assert {"accuracy", "train_accuracy"}.isdisjoint(found)
    assert {"score", "train_score"} <= set(found)
    assert (len(samples["item_scores"]), max(samples["item_scores"]) <= 0.0) == (20, True)
    item = load_splits(CURVE, num_tokens=8).test
    expected = {
        "observed_x": item.inputs[0, :4, 0],
        "observed_y": item.inputs[0, :4, 1],
        "asked_x": item.inputs[0, 4:, 0],
        "truth": item.targets[0, 4:],
    }
    for name, values in expected.items():
        assert samples[f"fit_{name}"] == pytest.approx(values.tolist(), rel=1e-4)
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
    row = summary(dict(found.values))
    assert (row["exact_accuracy"], row["exact_accuracy_low"]) == (found.values["exact_accuracy"], None)
    assert (row["perplexity"] is None) is generated


def test_exact_accuracy_and_perplexity_of_three_seeds_worked_out_by_hand() -> None:
    """Cross-entropies 1.9, 2, 2.1: mean 2, standard deviation 0.1; t(0.975, 2) = 4.302653: half width 0.248414."""
    values = ({"accuracy": 0.5, "cross_entropy": ce, "exact_accuracy": share} for ce, share in ((1.9, 0.7), (2.0, 0.8), (2.1, 0.9)))
    row = summary(*values)
    assert row["perplexity"] == pytest.approx(math.exp(2))
    assert row["perplexity_low"] == pytest.approx(math.exp(2 - 0.248414), rel=1e-6)
    assert row["perplexity_high"] == pytest.approx(math.exp(2 + 0.248414), rel=1e-6)
    assert (row["exact_accuracy"], row["exact_accuracy_high"]) == (pytest.approx(0.8), 1.0)
    assert row["exact_accuracy_low"] == pytest.approx(0.8 - 0.248414, abs=1e-6)
    beyond = summary({"accuracy": 0.5, "cross_entropy": 1e4})
    assert (beyond["perplexity"], beyond["perplexity_low"]) == (math.inf, None)


def test_three_seeds_worked_out_by_hand() -> None:
    """Mean 0.8, standard deviation 0.1; t(0.975, 2) = 4.302653: half width 0.248414. Of times the median counts."""
    seeds = zip((0.7, 0.8, 0.9), (2.0, 3.0, 40.0), strict=True)
    row = summary(*({"accuracy": value, "train_accuracy": value + 0.01, "train_s": train_s} for value, train_s in seeds))
    assert tuple(row) == accuracy.COLUMNS
    assert row["accuracy"] == pytest.approx(0.8)
    assert row["accuracy_low"] == pytest.approx(0.8 - 0.248414, abs=1e-6)
    assert row["accuracy_high"] == 1.0
    assert row["train_accuracy"] == pytest.approx(0.81)
    assert (row["train_s"], row["num_seeds"], row["score"], row["score_name"]) == (3.0, 3, None, None)
    assert {row[name] for name in accuracy.COLUMNS if name.startswith(("exact_accuracy", "perplexity"))} == {None}


def test_rows_name_how_their_seeds_were_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda model: model)
    found = accuracy.measure(made_job(epochs=1, compile=True, precision="bf16-autocast")).values
    row = summary({**found, "train_engine": "eager"}, {**found}, {**found})
    assert (row["train_engine"], row["train_precision"]) == ("eager; compile", "bf16-autocast")
    assert summary({"accuracy": 0.5})["train_engine"] is None


def test_one_seed_has_no_interval_equal_seeds_an_empty_one_and_none_empty_columns() -> None:
    single, equal = summary({"accuracy": 0.9}), summary({"accuracy": 0.5}, {"accuracy": 0.5})
    assert (single["accuracy"], single["accuracy_low"], single["accuracy_high"], single["num_seeds"]) == (0.9, None, None, 1)
    assert (equal["accuracy_low"], equal["accuracy_high"]) == (0.5, 0.5)
    assert summary({"accuracy": 0.0}, {"accuracy": 0.2})["accuracy_low"] == 0.0
    assert summary() == dict.fromkeys(accuracy.COLUMNS)


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True)])
def test_products_of_a_training_are_tf32_where_the_recipe_says_so(precision: str, allowed: bool) -> None:
    set_product_precision("fp32" if allowed else "tf32")
    try:
        accuracy._prepare(made_job(precision=precision), seed=0)
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (allowed, allowed)
    finally:
        set_product_precision("fp32")

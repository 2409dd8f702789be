"""Models at equal budgets: differences by hand, and budgets that cut a training short."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from bench.analysis.equal_budget import EPOCHS, FLOPS, TIME, CurveGroup, curve_of, equal_budgets, paired_half_width
from bench.intervals import mean_interval
from bench.spec import Outcome, Record

CHEAP = ((0.5, 0.6, 0.7), (0.4, 0.6, 0.8))
"""Validation scores of two seeds by epoch."""
COSTLY = ((0.6, 0.9, 0.8), (0.7, 0.8, 0.9))


def trainings_of(
    subject: str, scores: Sequence[Sequence[float]], *, flops: float = 10.0, seconds: Sequence[float] = (1.0, 1.0), **values: Any
) -> list[Record]:
    """One training per seed: an epoch takes `flops`, and the `seconds` of its seed."""
    return [
        Record(
            subject_id=subject,
            metric="accuracy",
            repeat=seed,
            control=False,
            environment_id="e",
            code_version="v",
            outcome=Outcome(
                status="measured",
                values={"train_flops": flops * len(series), "num_epochs": len(series), **values},
                samples={"validation": tuple(series), "epoch_s": (took,) * len(series)},
            ),
        )
        for seed, (series, took) in enumerate(zip(scores, seconds, strict=True))
    ]


def row(model: str, family: str = "vit", **values: Any) -> dict[str, Any]:
    place = {"task": "digits", "recipe": "", "seq_len": 17.0, "size": "budget 300 k", "attention": "auto"}
    return {"cell_id": model, "model": model, "label": model, "family": family, "accuracy": 0.9, **place, **values}


def compared(trainings: Mapping[str, Sequence[Record]], *rows: Mapping[str, Any], **options: Any) -> list[CurveGroup]:
    return equal_budgets(rows or [row(name) for name in trainings], trainings, **options)


def test_each_budget_is_the_largest_that_both_reached_and_cuts_the_other() -> None:
    """The costly model takes twice the FLOPs per epoch, and 4 s in the median of 2 and 6; the cheap one takes 3 s."""
    found = compared(
        {"cheap": trainings_of("a", CHEAP, seconds=(3.0, 3.0)), "costly": trainings_of("b", COSTLY, flops=20.0, seconds=(2.0, 6.0))}
    )
    (group,) = found
    (pair,) = group.pairs
    assert group.limits == {EPOCHS: 3.0, FLOPS: 30.0, TIME: 9.0}
    assert {budget: difference.epochs for budget, difference in pair.at.items()} == {EPOCHS: (3, 3), FLOPS: (3, 1), TIME: (3, 2)}
    estimates = {budget: difference.interval.estimate for budget, difference in pair.at.items()}
    # each seed counts with its best: 0.7 and 0.8 against 0.9 and 0.9, 0.6 and 0.7, 0.9 and 0.8
    assert estimates == pytest.approx({EPOCHS: -0.15, FLOPS: 0.1, TIME: -0.1})


def test_intervals_of_two_models_are_paired_t_intervals_for_all_differences_together() -> None:
    """Three budgets of one pair: each at 1 - 0.05 / 3."""
    (group,) = compared({"cheap": trainings_of("a", CHEAP), "costly": trainings_of("b", COSTLY)})
    wanted = mean_interval([0.7 - 0.9, 0.8 - 0.9], 1 - 0.05 / 3)
    assert wanted is not None
    found = group.pairs[0].at[EPOCHS].interval
    assert (found.estimate, found.low, found.high) == pytest.approx((wanted.estimate, wanted.low, wanted.high))
    assert not group.pairs[0].at[EPOCHS].shown
    assert group.pairs[0].lead(EPOCHS) == 0.0


def test_another_size_is_another_family() -> None:
    trainings = {"cheap": trainings_of("a", CHEAP), "costly": trainings_of("b", COSTLY)}
    more = {**trainings, "c": trainings_of("c", CHEAP), "d": trainings_of("d", COSTLY)}
    (alone,) = compared(trainings)
    groups = compared(more, row("cheap"), row("costly"), row("c", seq_len=65.0), row("d", seq_len=65.0))
    assert [group.place["seq_len"] for group in groups] == [65.0, 17.0]
    assert groups[1].pairs[0].at[EPOCHS].interval == alone.pairs[0].at[EPOCHS].interval


def test_a_shared_seed_effect_cancels_and_the_interval_covers_at_its_level() -> None:
    rng = np.random.default_rng(1)
    draws, covered = 2000, 0
    for _ in range(draws):
        seeds = rng.normal(0, 5.0, 3)
        scores = {name: seeds + rng.normal(0, 0.1, 3) for name in "abc"}
        half = paired_half_width(scores["a"], scores["b"], 0.95)
        covered += abs(float((scores["a"] - scores["b"]).mean())) <= half
        assert half < 2
    assert covered / draws == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("scores", [(CHEAP[:1], COSTLY[:1]), (((0.5, 0.5),) * 2, ((0.6, 0.6),) * 2)])
def test_one_seed_or_equal_differences_show_nothing(scores: tuple[Sequence[Sequence[float]], ...]) -> None:
    seconds = (1.0,) * len(scores[0])
    (group,) = compared({name: trainings_of(name, found, seconds=seconds) for name, found in zip("ab", scores, strict=True)})
    assert group.pairs[0].at[EPOCHS].interval.estimate < 0
    assert group.pairs[0].at[EPOCHS].interval.high == math.inf


def test_a_model_that_lost_a_seed_supports_no_difference() -> None:
    series = [(0.50, 0.60), (0.51, 0.62), (0.52, 0.61), (0.51, 0.60), (0.52, 0.62)]
    better = [tuple(value + 0.3 for value in values) for values in series]
    better[0] = (0.80, 0.91)
    trainings = {"a": trainings_of("a", series, seconds=(1.0,) * 5), "b": trainings_of("b", better, seconds=(1.0,) * 5)}
    assert compared(trainings, planned_seeds=5)[0].pairs[0].lead(EPOCHS) < 0
    lost = {**trainings, "b": trainings["b"][1:]}
    found = compared(lost, planned_seeds=5)[0].pairs[0].at[EPOCHS]
    assert not found.shown
    assert found.interval.num == 4
    assert found.interval.estimate == pytest.approx(-0.3)


def test_too_slow_for_one_epoch_is_no_score() -> None:
    (group,) = compared({"a": trainings_of("a", CHEAP), "b": trainings_of("b", COSTLY, seconds=(50.0, 50.0))})
    assert set(group.pairs[0].at) == {EPOCHS, FLOPS}
    assert group.pairs[0].lead(TIME) == 0.0


def test_a_seed_that_stopped_early_shortens_its_model() -> None:
    curve = curve_of(row("a"), trainings_of("a", (CHEAP[0][:2], CHEAP[1])))
    assert curve is not None
    assert curve.scores.tolist() == [[0.5, 0.6], [0.4, 0.6]]
    assert curve.spent[EPOCHS] == (1.0, 2.0)


def test_trainings_without_a_cost_by_epoch_are_left_out() -> None:
    """A teacher's cost is known in total alone; the oldest records have no validation by epoch."""
    assert curve_of(row("a"), trainings_of("a", CHEAP, teacher_s=3.0)) is None
    assert curve_of(row("a"), trainings_of("a", ((), ()), num_epochs=3)) is None
    assert compared({"a": trainings_of("a", CHEAP, teacher_s=3.0), "b": trainings_of("b", COSTLY)}) == []


def test_groups_pairs_and_variants() -> None:
    """gMLP and attention come first; a shared training counts once; variants and other sizes stay apart."""
    rows = [
        row("gru", "gru"),
        row("vit"),
        row("gmlp", "gmlp"),
        row("vit", cell_id="again"),
        row("small", size="budget 100 k"),
        row("arm"),
    ]
    trainings = {str(one["cell_id"]): trainings_of(str(one["model"]), CHEAP) for one in rows}
    (group,) = compared(trainings, *rows, variants={"arm"})
    assert [curve.model for curve in group.curves] == ["gru", "vit", "gmlp"]
    assert [(pair.first, pair.second) for pair in group.pairs] == [("vit", "gmlp"), ("gru", "vit"), ("gru", "gmlp")]
    assert group.measure == "accuracy"
    (scored,) = compared(trainings, *({**one, "accuracy": math.nan} for one in rows), variants={"arm"})
    assert scored.measure == "score"

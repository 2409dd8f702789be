"""Effects of arms hold together, compare cells with their counterparts and show nothing that is not known; a front sets quality against time."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.analysis.accuracy import Scores, compare_scores
from bench.analysis.arm_fronts import ArmFront, arm_fronts
from bench.analysis.effects import Contrast, Effect, Observations, contrasts_of, effects_of, with_baselines
from bench.intervals import Interval
from bench.questions import MEASURES, Prediction
from bench.reading.timings import Timings
from bench.report.charts.arm_fronts import front_title
from bench.spec import Part, PlannedArm

BASE = "base"
PART = "part"
NUM_SEEDS, NUM_ITEMS = 5, 200


def part_of(arms: Mapping[str, Sequence[str]], baseline: str = BASE, name: str = PART) -> Part:
    cells = tuple(itertools.chain(*arms.values()))
    planned = tuple(PlannedArm(name=arm, cells=tuple(found)) for arm, found in arms.items())
    return Part(name=name, match="params", batching="", cells=cells, arms=planned, baseline=baseline)


def row(cell_id: str, **values: Any) -> dict[str, Any]:
    return {"cell_id": cell_id, "seq_len": 16.0, "batch_size": 4.0, "model": "vit", "attention": "auto", "accuracy": 0.5, **values}


def observed(rows: Sequence[Mapping[str, Any]], **fields: Any) -> Observations:
    empty: dict[str, Any] = {"scores": {}, "data_ids": {}, "cross_entropies": {}, "timings": Timings()}
    return Observations(rows={found["cell_id"]: found for found in rows}, **{**empty, **fields})


def effects(part: Part, seen: Observations, predictions: Sequence[Prediction] = ()) -> list[Effect]:
    return effects_of(contrasts_of([part], predictions, seen.rows), seen)


def two_arms(**fields: Any) -> tuple[Part, Observations]:
    """One arm `new` against the baseline, a cell each: `a` and `b`."""
    rows = [row("b", **fields.pop("base_row", {})), row("a", **fields.pop("new_row", {}))]
    return part_of({BASE: ["b"], "new": ["a"]}), observed(rows, **fields)


def one(measure: str, **fields: Any) -> Effect:
    """The effect of `two_arms` on one measure."""
    (found,) = [effect for effect in effects(*two_arms(**fields)) if effect.measure.name == measure]
    return found


def test_a_part_has_effects_on_what_it_asks_for_alone() -> None:
    """Its cells may have been timed for another part; parameters are known of every one."""
    counts = {"params": 4.0, "flops": 2.0, "activation_bytes": 8.0}
    part, seen = two_arms(base_row=counts, new_row=counts)
    assert {effect.measure.name for effect in effects(part, seen)} == set(counts)
    asked = dataclasses.replace(seen, metrics={PART: ("memory",)})
    assert {effect.measure.name for effect in effects(part, asked)} == {"params", "activation_bytes"}


def trained(rng: np.random.Generator, level: float, hardness: np.ndarray[Any, Any], num_seeds: int = NUM_SEEDS) -> Scores:
    """0/1 scores of one model: items as hard for all, some harder for this one, and seeds with luck of their own."""
    items = len(hardness)
    own, luck = rng.normal(0, 0.5, items), rng.normal(0, 0.1, (num_seeds, 1))
    found: Scores = (level + hardness + own + luck + rng.normal(0, 0.5, (num_seeds, items)) > 0).astype(float)
    return found


def against_base(names: Sequence[str]) -> tuple[Part, list[dict[str, Any]]]:
    return part_of({BASE: ["b"], **{name: [name] for name in names}}), [row(name) for name in ("b", *names)]


def shares_held(draw: Callable[[], Mapping[str, Any]], truth: Mapping[str, float], repeats: int = 250) -> tuple[float, float]:
    """How often the intervals of the arms in `truth` hold it, all together and each; `draw`: what is observed."""
    part, rows = against_base(list(truth))
    found = [{effect.contrast.first: effect.estimate for effect in effects(part, observed(rows, **draw()))} for _ in range(repeats)]
    held = np.array([[intervals[name].contains(value) for name, value in truth.items()] for intervals in found])
    return float(held.all(axis=1).mean()), float(held.mean())


def test_intervals_of_each_alone_would_not_hold_together() -> None:
    """The specimen: ratios of times at 95 % each, eight arms; and as effects give them."""
    rng, names = np.random.default_rng(5), [f"c{i}" for i in range(8)]

    def draw() -> dict[str, Any]:
        return {"timings": Timings({name: dict(enumerate(np.exp(rng.normal(0, 0.05, 7)).tolist())) for name in ("b", *names)})}

    assert shares_held(draw, dict.fromkeys(names, 1.0))[0] >= 0.93
    logs = rng.normal(0, 0.05, (250, 9, 7))
    ratios = logs[:, 1:] - logs[:, :1]
    alone = np.abs(ratios.mean(axis=2)) <= stats.t.ppf(0.975, 6) * ratios.std(axis=2, ddof=1) / math.sqrt(7)
    assert alone.all(axis=1).mean() < 0.85


@pytest.mark.parametrize("wide", ["", "c3", "b"])
def test_whatever_the_spreads_the_intervals_hold_together(wide: str) -> None:
    """Perplexities of twenty arms that are all the same, but that one spreads ten times as far."""
    rng, names = np.random.default_rng(11), [f"c{i}" for i in range(19)]

    def draw() -> dict[str, Any]:
        spreads = {name: 0.1 if name == wide else 0.01 for name in ("b", *names)}
        return {"cross_entropies": {name: rng.normal(0, own, NUM_SEEDS).tolist() for name, own in spreads.items()}}

    together, each = shares_held(draw, dict.fromkeys(names, 1.0), repeats=300)
    assert together >= 0.93
    assert each >= 0.99


def test_the_level_of_an_interval_is_divided_by_their_number() -> None:
    rng = np.random.default_rng(2)
    scores = {name: trained(rng, 0.5, rng.normal(0, 1, NUM_ITEMS)) for name in ("b", "c0", "c1")}
    part, rows = against_base(["c0", "c1"])
    found = effects(part, observed(rows, scores=scores))
    wanted = compare_scores(scores["c0"], scores["b"], 0.975)
    assert (found[0].estimate.low, found[0].estimate.high) == pytest.approx((wanted.low, wanted.high))
    assert {effect.num_comparisons for effect in found} == {2}
    asked = [
        Prediction(part=PART, arm=first, against=second, expected="higher") for first, second in ((BASE, "c0"), ("c0", "c1"), ("c1", "c0"))
    ]
    both_ways = effects(part, observed(rows, scores=scores), asked)
    assert len(both_ways) == 5
    assert {effect.num_comparisons for effect in both_ways} == {3}  # a pair that is asked for in both directions is one


def test_the_difference_is_the_arms_minus_the_baselines() -> None:
    found = one("accuracy", scores={"a": np.tile([1.0] * 150 + [0.0] * 50, (5, 1)), "b": np.tile([1.0] * 100 + [0.0] * 100, (5, 1))})
    assert found.estimate.estimate == pytest.approx(0.25)
    assert found.shown
    assert (found.contrast.arm, found.contrast.against, found.contrast.cells) == ("new", BASE, ("a", "b"))


def test_a_sequence_is_exact_where_everything_asked_of_it_is_right() -> None:
    scores = {"a": np.tile([1.0, 1.0, 0.75, 0.5], (3, 5)), "b": np.tile([1.0, 0.75, 0.75, 0.5], (3, 5))}
    known: dict[str, Any] = {"scores": scores, "base_row": {"exact_accuracy": 0.5}, "new_row": {"exact_accuracy": 0.5}}
    assert one("exact_accuracy", **known).estimate.estimate == pytest.approx(0.25)
    assert one("accuracy", **known).estimate.estimate == pytest.approx(0.0625)


def test_an_arm_with_a_length_of_its_own_is_compared_with_the_baseline() -> None:
    found = one("params", new_row={"seq_len": 64.0, "params": 30.0}, base_row={"params": 20.0})
    assert (found.estimate.estimate, found.contrast.place, found.contrast.seq_len) == (1.5, {}, 64)


def test_several_lengths_are_compared_at_each_that_both_have() -> None:
    lengths = {"b": (16.0, 32.0, 64.0), "a": (16.0, 32.0, 64.0, 128.0)}
    rows = [row(f"{arm}{n:.0f}", seq_len=n, params=k * n) for arm, k in (("b", 10), ("a", 30)) for n in lengths[arm]]
    part = part_of({BASE: ["b64", "b16", "b32"], "new": ["a16", "a32", "a64", "a128"]})
    found = effects(part, observed(rows))
    assert [(e.contrast.seq_len, e.contrast.place, e.contrast.cells, e.estimate.estimate) for e in found] == [
        (n, {"seq_len": n}, (f"a{n}", f"b{n}"), 3.0) for n in (16, 32, 64)
    ]


def test_a_cell_that_was_not_measured_has_no_effect() -> None:
    part, seen = two_arms(
        new_row={"params": float("nan"), "accuracy": float("nan")}, base_row={"params": 3.0}, scores={"b": np.ones((3, 4))}
    )
    assert effects(part, seen) == []
    assert contrasts_of([part], (), {"b": seen.rows["b"]}) == []


def test_counted_ratios_are_exact() -> None:
    counts = {"params": (300.0, 200.0), "flops": (7.0, 14.0), "train_flops": (6.0, 2.0), "activation_bytes": (80.0, 40.0)}
    new, base = ({name: pair[i] for name, pair in counts.items()} for i in (0, 1))
    found = {effect.measure.name: effect for effect in effects(*two_arms(new_row={**new, "batch_size": 8.0}, base_row=base))}
    assert {name: effect.estimate.estimate for name, effect in found.items()} == {
        "params": 1.5,
        "flops": 0.5,
        "train_flops": 3.0,
        "activation_bytes": 1.0,  # twice the bytes, for twice the batch
    }
    assert all(effect.estimate.low == effect.estimate.high == effect.estimate.estimate for effect in found.values())
    assert {(effect.is_exact, effect.num_comparisons) for effect in found.values()} == {(True, 1)}
    assert found["params"].shown
    assert not found["activation_bytes"].shown


def test_perplexity_is_compared_on_logarithms_by_welch() -> None:
    first, second = (9.0, 10.0, 12.0, 11.0, 9.5), (14.0, 13.0, 17.0, 16.0, 15.0, 14.5)
    found = one("perplexity", cross_entropies={"a": np.log(first).tolist(), "b": np.log(second).tolist()})
    reference = stats.ttest_ind(np.log(first), np.log(second), equal_var=False)
    low, high = reference.confidence_interval(0.95)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.estimate.estimate == pytest.approx(stats.gmean(first) / stats.gmean(second))
    assert found.shown


@pytest.mark.parametrize(
    ("num", "planned", "caveat"),
    [
        (5, 5, ""),
        (4, 4, "4 seeds: 5 are needed to decide"),
        (2, 5, "only 2 of 5 seeds have a result"),
        (1, 1, "one seed: other seeds may differ"),
    ],
)
def test_seeds_that_were_lost_or_are_too_few_decide_nothing(num: int, planned: int, caveat: str) -> None:
    seeds = 0.01 * np.arange(planned)
    scores = {"a": np.ones((num, 60)), "b": np.zeros((planned, 60))}
    logs = {"a": np.log(9.0 + seeds[:num]).tolist(), "b": np.log(14.0 + seeds).tolist()}
    found = effects(*two_arms(scores=scores, cross_entropies=logs, planned_seeds=dict.fromkeys("ab", planned)))
    assert {effect.measure.name: (effect.caveat, effect.shown) for effect in found} == dict.fromkeys(
        ("accuracy", "perplexity"), (caveat, not caveat)
    )
    assert [effect.estimate.is_open for effect in found if effect.measure.name == "accuracy"] == [num == 1]


@pytest.mark.parametrize(("first", "second"), [((9.0,), (14.0, 14.01, 14.02)), ((1e-100, 1e100), (1e-90, 1e90))])
def test_bounds_of_one_seed_or_beyond_floating_point_are_infinite(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    found = one("perplexity", cross_entropies={"a": np.log(first).tolist(), "b": np.log(second).tolist()})
    assert (found.estimate.low, found.estimate.high) == (0.0, math.inf)
    assert not found.shown


def test_other_data_are_compared_without_pairing() -> None:
    rng = np.random.default_rng(3)
    hardness = rng.normal(0, 1, NUM_ITEMS)
    scores = {"a": trained(rng, 1.0, hardness), "b": trained(rng, 0.5, hardness)}
    for of_a, paired in (("x", True), ("y", False)):
        found = one("accuracy", scores=scores, data_ids={"a": of_a, "b": "x"}).estimate
        wanted = compare_scores(scores["a"], scores["b"], paired=paired)
        assert (found.low, found.estimate, found.high) == pytest.approx((wanted.low, wanted.estimate, wanted.high))
    assert one("accuracy", scores={"a": scores["a"][:, :50], "b": scores["b"]}).estimate.num == NUM_SEEDS


def time_ratio(first: Sequence[float], second: Sequence[float], **fields: Any) -> Effect:
    """The effect on time of `new`, by rounds."""
    return one("latency_ms", timings=Timings({"a": dict(enumerate(first)), "b": dict(enumerate(second))}), **fields)


def test_times_are_paired_by_round() -> None:
    """A noisy round slows both: the ratio is 2 in every round, and nearly sure."""
    slow = (1.0, 5.0, 0.5, 3.0, 2.0, 0.9)
    found = time_ratio([2.0 * ms * (1 + 0.001 * i) for i, ms in enumerate(slow)], [*slow, 100.0])
    assert found.estimate.estimate == pytest.approx(2.005, abs=1e-3)
    assert found.estimate.num == 6
    assert found.estimate.high / found.estimate.low < 1.01
    assert found.shown


def test_times_are_compared_per_sample() -> None:
    found = time_ratio([4.0 + 0.01 * i for i in range(5)], [2.0] * 5, new_row={"batch_size": 8.0})
    assert found.estimate.estimate == pytest.approx(1.005, abs=1e-4)


@pytest.mark.parametrize(("num", "caveat"), [(2, "2 rounds are too few"), (5, "")])
def test_rounds_that_are_too_few_for_an_interval_show_nothing(num: int, caveat: str) -> None:
    found = time_ratio([2.0 + 0.1 * i for i in range(num)], [1.0] * num)
    assert (found.shown, found.caveat, found.estimate.is_open) == (False, caveat, True)
    assert effects(*two_arms(timings=Timings({"a": {0: 2.0}, "b": {0: 1.0}}))) == []


@pytest.mark.parametrize(("equal", "caveat"), [(False, "outputs of new differ"), (True, ""), (None, "")])
def test_times_of_unequal_answers_are_doubted_and_named(equal: bool | None, caveat: str) -> None:
    found = time_ratio([2.0, 2.1] * 3, [1.0] * 6, new_row={"equal": equal})
    assert (found.caveat, found.shown) == (caveat, not caveat)


def test_what_predictions_name_is_compared_beside_the_baseline_once() -> None:
    rows = [row(name, params=value) for name, value in (("b", 1.0), ("x", 2.0), ("y", 6.0))]
    part = part_of({BASE: ["b"], "x": ["x"], "y": ["y"]})
    asked = Prediction(part=PART, arm="y", against="x", expected="higher")
    predictions = [asked, dataclasses.replace(asked, measure="flops"), dataclasses.replace(asked, against=BASE)]
    found = [(e.contrast.arm, e.contrast.against, e.estimate.estimate) for e in effects(part, observed(rows), predictions)]
    assert found == [("x", BASE, 2.0), ("y", BASE, 6.0), ("y", "x", 3.0)]


def test_a_prediction_without_a_rival_is_about_the_baseline_of_its_part() -> None:
    bare = Prediction(part=PART, arm="new", expected="higher")
    other = dataclasses.replace(bare, against="other")
    absent = dataclasses.replace(bare, part="left out")
    found = with_baselines([bare, other, absent], [part_of({BASE: ["b"], "new": ["a"]})])
    assert [prediction.against for prediction in found] == [BASE, "other", ""]


def test_every_measure_has_its_estimator() -> None:
    found = effects(
        *two_arms(
            new_row=dict.fromkeys(MEASURES, 1.0),
            base_row=dict.fromkeys(MEASURES, 2.0),
            scores={"a": np.ones((3, 9)), "b": np.zeros((3, 9))},
            cross_entropies={"a": (0.0, 0.4, 0.2), "b": (1.4, 1.6, 1.5)},
            timings=Timings({"a": {0: 1.0, 1: 2.0}, "b": {0: 2.0, 1: 2.0}}),
        )
    )
    assert {effect.measure.name for effect in found} == set(MEASURES)


ARMS = ("attention", "linear", "window", "gating")


def effect(part: str, arm: str, n: int, measure: str, middle: float, half: float = 0.01) -> Effect:
    """Against attention."""
    cells = {"first": f"{part}-{arm}-{n}", "second": f"{part}-{ARMS[0]}-{n}"}
    contrast = Contrast(part=part, arm=arm, against=ARMS[0], place={}, seq_len=n, **cells)
    estimate = Interval(estimate=middle, low=middle - half, high=middle + half, num=3)
    return Effect(contrast=contrast, measure=MEASURES[measure], estimate=estimate)


PARTS = tuple(
    part_of({arm: [f"{name}-{arm}-{n}" for n in lengths] for arm in ARMS}, ARMS[0], name)
    for name, lengths in (("recall", (64, 256)), ("time", (256, 1024, 4096)))
)
ROWS: dict[str, dict[str, Any]] = {
    f"recall-{arm}-{n}": {"seq_len": n, "accuracy": value, "accuracy_low": value - 0.02, "accuracy_high": value + 0.02, "num_seeds": 3}
    for n in (64, 256)
    for arm, value in zip(ARMS, (0.99, 0.97, 0.2, 0.98), strict=True)
}
TIMES = [
    effect("time", arm, n, "latency_ms", ratio)
    for n, ratios in ((1024, (0.9, 0.5, 0.8)), (4096, (0.3, 0.1, 0.7)))
    for arm, ratio in zip(ARMS[1:], ratios, strict=True)
]
SCORES = [
    effect("recall", "linear", 256, "accuracy", -0.02, half=0.05),
    effect("recall", "window", 256, "accuracy", -0.79),
    effect("recall", "gating", 256, "accuracy", 0.008, half=0.005),
]


def fronts(
    times: Sequence[Effect] = TIMES, scores: Sequence[Effect] = SCORES, predictions: Sequence[Prediction] = (), without: str = "nothing"
) -> list[ArmFront]:
    rows = {cell: found for cell, found in ROWS.items() if not cell.startswith(without)}
    return arm_fronts(PARTS, rows, [*times, *scores], predictions)


def test_every_trained_length_is_set_against_the_longest_time() -> None:
    found = fronts()
    assert [(front.part, front.seq_len, front.time_part, front.time_seq_len) for front in found] == [
        ("recall", 64, "time", 4096),
        ("recall", 256, "time", 4096),
    ]
    assert {point.arm: point.time.estimate for point in found[1].points} == {"attention": 1.0, "linear": 0.3, "window": 0.1, "gating": 0.7}
    assert [point.arm for point in found[0].points if point.is_worse] == []  # nothing is significant at n = 64
    assert [point.arm for point in found[1].points if point.is_worse] == ["window"]
    linear = found[1].points[1].quality
    assert [linear.estimate, linear.low, linear.high, linear.num] == pytest.approx([0.97, 0.95, 0.99, 3])


def test_a_length_that_fewer_variants_reached_is_passed_over() -> None:
    assert {front.time_seq_len for front in fronts(TIMES[:-1])} == {1024}


def test_the_length_is_the_one_that_predictions_ask_about() -> None:
    asked = Prediction(part="time", arm="linear", against="attention", measure="latency_ms", expected="lower", seq_len=1024, because="")
    other = dataclasses.replace(asked, part="recall", seq_len=4096)
    predictions = [asked, other, dataclasses.replace(other, measure="accuracy", part="time")]
    assert {front.time_seq_len for front in fronts(predictions=predictions)} == {1024}


def test_without_times_of_three_variants_or_the_baseline_there_is_nothing_to_show() -> None:
    assert fronts([]) == fronts([found for found in TIMES if found.contrast.arm == "window"]) == []
    assert fronts(without="recall-attention") == []


@pytest.mark.parametrize(
    ("times", "scores", "title"),
    [
        (TIMES, SCORES, "linear takes 0.30× the time of attention at n = 4096, and is not significantly worse in recall at n = 256"),
        (
            [effect("time", arm, 4096, "latency_ms", 0.9, half=0.2) for arm in ARMS[1:]],
            SCORES,
            "No variant is significantly faster than attention at n = 4096",
        ),
        (
            TIMES,
            [dataclasses.replace(found, caveat="one seed") for found in SCORES],
            "Quality in recall at n = 256 against time at n = 4096; differences in quality are not tested",
        ),
        (
            TIMES,
            [effect("recall", arm, 256, "accuracy", -0.5) for arm in ARMS[1:]],
            "Every variant significantly faster than attention at n = 4096 is worse in recall at n = 256",
        ),
    ],
)
def test_the_title_names_the_fastest_that_is_not_worse(times: list[Effect], scores: list[Effect], title: str) -> None:
    assert front_title(fronts(times, scores)[1]) == title


def test_a_part_whose_name_ends_in_its_length_has_it_once() -> None:
    assert front_title(dataclasses.replace(fronts()[1], part="recall, n = 256")).endswith("not significantly worse in recall, n = 256")

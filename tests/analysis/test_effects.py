"""Effects of arms on planted data: together their intervals hold, cells are compared with their counterparts, and what is not known is not shown."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.analysis.effects import Effect, Observations, contrasts_of, effects_of, with_baselines
from bench.analysis.significance import Scores, over_seeds_and_items, over_unpaired_items
from bench.questions import MEASURES, Prediction
from bench.reading.timings import Timings
from bench.report.sections.verdicts import interval_json, interval_text
from bench.spec import Part, PlannedArm

BASE = "base"
PART = "part"
NUM_SEEDS, NUM_ITEMS = 5, 200


def part_of(arms: Mapping[str, Sequence[str]], baseline: str = BASE) -> Part:
    cells = tuple(itertools.chain(*arms.values()))
    planned = tuple(PlannedArm(name=name, cells=tuple(found)) for name, found in arms.items())
    return Part(name=PART, match="params", batching="", cells=cells, arms=planned, baseline=baseline)


def row(cell_id: str, **values: Any) -> dict[str, Any]:
    return {"cell_id": cell_id, "seq_len": 16.0, "batch_size": 4.0, "model": "vit", "attention": "auto", "accuracy": 0.5, **values}


def observed(rows: Sequence[Mapping[str, Any]], **fields: Any) -> Observations:
    empty: dict[str, Any] = {"scores": {}, "data_ids": {}, "seed_values": {}, "timings": Timings(), "num_seeds": NUM_SEEDS}
    return Observations(rows={found["cell_id"]: found for found in rows}, **{**empty, **fields})


def effects(part: Part, seen: Observations, predictions: Sequence[Prediction] = ()) -> list[Effect]:
    return effects_of(contrasts_of([part], predictions, seen.rows), seen)


def one(part: Part, seen: Observations, measure: str) -> Effect:
    (found,) = [effect for effect in effects(part, seen) if effect.measure.name == measure]
    return found


def two_arms(**fields: Any) -> tuple[Part, Observations]:
    """One arm `new` against the baseline, a cell each: `a` and `b`."""
    rows = [row("b", **fields.pop("base_row", {})), row("a", **fields.pop("new_row", {}))]
    return part_of({BASE: ["b"], "new": ["a"]}), observed(rows, **fields)


def trained(rng: np.random.Generator, level: float, hardness: np.ndarray[Any, Any], num_seeds: int = NUM_SEEDS) -> Scores:
    """0/1 scores of one model: items as hard for all, some harder for this one, and seeds with luck of their own."""
    items = len(hardness)
    own, luck = rng.normal(0, 0.5, items), rng.normal(0, 0.1, (num_seeds, 1))
    found: Scores = (level + hardness + own + luck + rng.normal(0, 0.5, (num_seeds, items)) > 0).astype(float)
    return found


SPREAD = math.sqrt(1.0 + 0.25 + 0.01 + 0.25)


@pytest.mark.parametrize("num_arms", [2, 8])
def test_together_the_intervals_hold_every_true_difference(num_arms: int) -> None:
    rng = np.random.default_rng(num_arms)
    levels = {"b": 0.5, **{f"c{i}": 0.5 + 0.15 * i for i in range(num_arms)}}
    truth = {name: stats.norm.cdf(level / SPREAD) - stats.norm.cdf(0.5 / SPREAD) for name, level in levels.items()}
    part = part_of({BASE: ["b"], **{f"arm {i}": [f"c{i}"] for i in range(num_arms)}})
    rows = [row(name) for name in levels]
    repeats, covered = 250, 0
    for _ in range(repeats):
        hardness = rng.normal(0, 1, NUM_ITEMS)
        scores = {name: trained(rng, level, hardness) for name, level in levels.items()}
        found = effects(part, observed(rows, scores=scores))
        assert len(found) == num_arms
        covered += all(effect.estimate.contains(truth[effect.contrast.first]) for effect in found)
    assert covered / repeats >= 0.93


def test_intervals_of_each_alone_would_not_hold_together() -> None:
    """The specimen: ratios of times at 95 % each, eight arms; then as effects give them."""
    rng = np.random.default_rng(5)
    names = [f"c{i}" for i in range(8)]
    part = part_of({BASE: ["b"], **{name: [name] for name in names}})
    rows = [row(name) for name in ("b", *names)]
    alone, together, repeats = 0, 0, 250
    for _ in range(repeats):
        logs = {name: rng.normal(0, 0.05, 7) for name in ("b", *names)}
        timings = {name: {i: math.exp(value) for i, value in enumerate(values)} for name, values in logs.items()}
        found = effects(part, observed(rows, timings=Timings(timings)))
        together += all(effect.estimate.contains(1.0) for effect in found)
        ratios = [logs[name] - logs["b"] for name in names]
        alone += all(abs(r.mean()) <= stats.t.ppf(0.975, 6) * r.std(ddof=1) / math.sqrt(7) for r in ratios)
    assert alone / repeats < 0.85
    assert together / repeats >= 0.93


def test_the_level_of_an_interval_is_divided_by_their_number() -> None:
    rng = np.random.default_rng(2)
    scores = {name: trained(rng, 0.5, rng.normal(0, 1, NUM_ITEMS)) for name in ("b", "c0", "c1")}
    part = part_of({BASE: ["b"], "0": ["c0"], "1": ["c1"]})
    found = effects(part, observed([row(name) for name in scores], scores=scores))
    wanted = over_seeds_and_items(scores["c0"], scores["b"], 0.975)
    assert (found[0].estimate.low, found[0].estimate.high) == pytest.approx((wanted.low, wanted.high))
    assert {effect.num_comparisons for effect in found} == {2}


def test_the_difference_is_the_arms_minus_the_baselines() -> None:
    part, seen = two_arms(scores={"a": np.tile([1.0] * 150 + [0.0] * 50, (5, 1)), "b": np.tile([1.0] * 100 + [0.0] * 100, (5, 1))})
    found = one(part, seen, "accuracy")
    assert found.estimate.estimate == pytest.approx(0.25)
    assert found.shown
    assert (found.contrast.arm, found.contrast.against, found.contrast.cells) == ("new", BASE, ("a", "b"))


def test_an_accuracy_differs_by_a_hundred_points_at_most() -> None:
    learned_once = np.repeat([[0.0], [1.0], [0.0]], NUM_ITEMS, axis=1)
    part, seen = two_arms(scores={"b": np.zeros((3, NUM_ITEMS)), "a": learned_once}, data_ids={"a": "one", "b": "one"})
    bounds = one(part, seen, "accuracy").estimate
    assert bounds.estimate == pytest.approx(1 / 3)
    assert -1 <= bounds.low < 0 < bounds.high == 1


def test_a_sequence_is_exact_where_everything_asked_of_it_is_right() -> None:
    scores = {"a": np.tile([1.0, 1.0, 0.75, 0.5], (3, 5)), "b": np.tile([1.0, 0.75, 0.75, 0.5], (3, 5))}
    exact = {"exact_accuracy": 0.5}
    part, seen = two_arms(scores=scores, base_row=exact, new_row=exact)
    assert one(part, seen, "exact_accuracy").estimate.estimate == pytest.approx(0.25)
    assert one(part, seen, "accuracy").estimate.estimate == pytest.approx(0.0625)


def test_an_arm_with_a_length_of_its_own_is_compared_with_the_baseline() -> None:
    part, seen = two_arms(new_row={"seq_len": 64.0, "params": 30.0}, base_row={"params": 20.0})
    found = one(part, seen, "params")
    assert found.estimate.estimate == 1.5
    assert found.contrast.place == {}
    assert found.contrast.seq_len == 64


def test_several_lengths_are_compared_at_each() -> None:
    lengths = (16.0, 32.0, 64.0)
    rows = [row(f"{arm}{n:.0f}", seq_len=n, params=k * n) for arm, k in (("b", 10), ("a", 30)) for n in lengths]
    part = part_of({BASE: ["b64", "b16", "b32"], "new": ["a16", "a32", "a64"]})
    found = [effect for effect in effects(part, observed(rows)) if effect.measure.name == "params"]
    assert [(e.contrast.seq_len, e.contrast.place, e.contrast.cells, e.estimate.estimate) for e in found] == [
        (n, {"seq_len": n}, (f"a{n}", f"b{n}"), 3.0) for n in (16, 32, 64)
    ]


def test_a_length_that_only_one_of_the_two_has_is_compared_with_nothing() -> None:
    rows = [row("b16", params=1.0), row("a16", params=2.0), row("a64", seq_len=64.0, params=3.0)]
    found = effects(part_of({BASE: ["b16"], "new": ["a16", "a64"]}), observed(rows))
    assert [effect.contrast.cells for effect in found] == [("a16", "b16")]


def test_several_models_of_an_arm_are_compared_each_with_itself() -> None:
    rows = [row(f"{arm}-{model}", model=model, params=k) for arm, k in (("b", 10.0), ("a", 20.0)) for model in ("gmlp", "vit")]
    part = part_of({BASE: ["b-gmlp", "b-vit"], "new": ["a-vit", "a-gmlp"]})
    found = [effect.contrast for effect in effects(part, observed(rows))]
    assert [(c.place["model"], c.cells) for c in found] == [("vit", ("a-vit", "b-vit")), ("gmlp", ("a-gmlp", "b-gmlp"))]


def test_a_cell_that_was_not_measured_has_no_effect() -> None:
    part, seen = two_arms(
        new_row={"params": float("nan"), "accuracy": float("nan")}, base_row={"params": 3.0}, scores={"b": np.ones((3, 4))}
    )
    assert effects(part, seen) == []
    assert contrasts_of([part], (), {"b": seen.rows["b"]}) == []


def test_counted_ratios_are_exact() -> None:
    counts = {"params": (300.0, 200.0), "flops": (7.0, 14.0), "train_flops": (6.0, 2.0), "activation_bytes": (80.0, 40.0)}
    new, base = ({name: pair[i] for name, pair in counts.items()} for i in (0, 1))
    part, seen = two_arms(new_row={**new, "batch_size": 8.0}, base_row=base)
    found = {effect.measure.name: effect for effect in effects(part, seen)}
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
    part, seen = two_arms(seed_values={"perplexity": {"a": first, "b": second}})
    found = one(part, seen, "perplexity")
    reference = stats.ttest_ind(np.log(first), np.log(second), equal_var=False)
    low, high = reference.confidence_interval(0.95)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.estimate.estimate == pytest.approx(stats.gmean(first) / stats.gmean(second))
    assert found.shown


MANY = [f"c{i}" for i in range(19)]


def many_arms() -> tuple[Part, list[dict[str, Any]]]:
    """Nineteen arms against a baseline."""
    return part_of({BASE: ["b"], **{name: [name] for name in MANY}}), [row(name) for name in ("b", *MANY)]


def perplexities(rng: np.random.Generator, wide: str = "") -> dict[str, list[float]]:
    """Of twenty arms that are all the same, but that one spreads ten times as far."""
    return {name: np.exp(rng.normal(0, 0.1 if name == wide else 0.01, NUM_SEEDS)).tolist() for name in ("b", *MANY)}


def held(wide: str) -> tuple[float, float]:
    """How often the intervals of nineteen ratios hold the truth, all together and each."""
    rng, (part, rows), repeats = np.random.default_rng(11), many_arms(), 300
    together, each = 0, 0
    for _ in range(repeats):
        found = effects(part, observed(rows, seed_values={"perplexity": perplexities(rng, wide)}))
        right = [effect.estimate.contains(1.0) for effect in found]
        together, each = together + all(right), each + sum(right)
    return together / repeats, each / repeats / len(MANY)


@pytest.mark.parametrize("wide", ["", "c3", "b"])
def test_whatever_the_spreads_the_intervals_hold_together(wide: str) -> None:
    together, each = held(wide)
    assert together >= 0.93
    assert each >= 0.99


def test_accuracies_of_twenty_arms_hold_together() -> None:
    rng, (part, rows), repeats, covered = np.random.default_rng(12), many_arms(), 200, 0
    for _ in range(repeats):
        hardness = rng.normal(0, 1, NUM_ITEMS)
        scores = {name: trained(rng, 0.5, hardness) for name in ("b", *MANY)}
        covered += all(effect.estimate.contains(0.0) for effect in effects(part, observed(rows, scores=scores)))
    assert covered / repeats >= 0.93


def test_an_arm_that_lost_a_seed_is_doubtful_and_the_others_are_not() -> None:
    part, rows = many_arms()
    values = perplexities(np.random.default_rng(15))
    values["c0"] = values["c0"][:2]
    found = effects(part, observed(rows, seed_values={"perplexity": values}))
    assert (found[0].caveat, found[0].shown) == ("only 2 of 5 seeds have a result", False)
    assert {effect.caveat for effect in found[1:]} == {""}


def test_fewer_than_five_seeds_decide_nothing() -> None:
    part, seen = two_arms(scores={"a": np.ones((4, 60)), "b": np.zeros((4, 60))}, num_seeds=4)
    found = one(part, seen, "accuracy")
    assert (found.estimate.estimate, found.shown, found.caveat) == (1.0, False, "4 seeds: 5 are needed to decide")


def test_a_perplexity_with_lost_seeds_or_a_single_one_is_never_shown() -> None:
    for first, num_seeds, caveat in (
        ((9.0, 9.01), 5, "only 2 of 5 seeds have a result"),
        ((9.0,), 5, "only 1 of 5 seeds have a result"),
        ((9.0,), 1, "one seed: other seeds may differ"),
    ):
        part, seen = two_arms(seed_values={"perplexity": {"a": first, "b": (14.0, 14.01, 14.02)}}, num_seeds=num_seeds)
        found = one(part, seen, "perplexity")
        assert (found.caveat, found.shown) == (caveat, False)
    assert (found.estimate.low, found.estimate.high) == (0.0, math.inf)


def test_bounds_beyond_floating_point_are_infinite() -> None:
    part, seen = two_arms(seed_values={"perplexity": {"a": (1e-100, 1e100), "b": (1e-90, 1e90)}}, num_seeds=2)
    found = one(part, seen, "perplexity")
    assert (found.estimate.low, found.estimate.high) == (0.0, math.inf)
    assert not found.shown


def test_accuracy_with_lost_seeds_or_a_single_one_is_never_shown() -> None:
    better, worse = np.ones((5, 60)), np.zeros((5, 60))
    shown = one(*two_arms(scores={"a": better, "b": worse}), "accuracy")
    lost = one(*two_arms(scores={"a": better[:2], "b": worse}), "accuracy")
    single = one(*two_arms(scores={"a": better[:1], "b": worse[:1]}, num_seeds=1), "accuracy")
    assert (shown.shown, shown.caveat) == (True, "")
    assert (lost.shown, lost.caveat) == (False, "only 2 of 5 seeds have a result")
    assert (single.shown, single.caveat) == (False, "one seed: other seeds may differ")
    assert not any(effect.estimate.contains(0.0) for effect in (shown, lost, single))


def test_other_data_are_compared_without_pairing() -> None:
    rng = np.random.default_rng(3)
    hardness = rng.normal(0, 1, NUM_ITEMS)
    scores = {"a": trained(rng, 1.0, hardness), "b": trained(rng, 0.5, hardness)}
    same = one(*two_arms(scores=scores, data_ids={"a": "x", "b": "x"}), "accuracy")
    other = one(*two_arms(scores=scores, data_ids={"a": "x", "b": "y"}), "accuracy")
    wanted = over_unpaired_items(scores["a"], scores["b"])
    assert (other.estimate.low, other.estimate.high) == pytest.approx((wanted.low, wanted.high))
    assert other.estimate.estimate == pytest.approx(same.estimate.estimate)
    assert other.estimate.high - other.estimate.low != same.estimate.high - same.estimate.low
    assert one(*two_arms(scores={"a": scores["a"][:, :50], "b": scores["b"]}), "accuracy").estimate.num == NUM_SEEDS


def test_single_seeds_on_other_data_have_an_estimate_and_no_bounds() -> None:
    scores = {"a": np.array([[1.0, 1.0, 0.0, 0.0]]), "b": np.array([[1.0, 0.0, 0.0, 0.0]])}
    found = one(*two_arms(scores=scores, data_ids={"a": "x", "b": "y"}, num_seeds=1), "accuracy")
    assert (found.estimate.low, found.estimate.estimate, found.estimate.high) == (-math.inf, 0.25, math.inf)
    assert not found.shown
    assert found.caveat


def test_times_are_paired_by_round() -> None:
    """A noisy round slows both: the ratio is 2 in every round, and nearly sure."""
    slow = (1.0, 5.0, 0.5, 3.0, 2.0, 0.9)
    timings = {"a": {i: 2.0 * s * (1 + 0.001 * i) for i, s in enumerate(slow)}, "b": {**dict(enumerate(slow)), 9: 100.0}}
    found = one(*two_arms(timings=Timings(timings)), "latency_ms")
    assert found.estimate.estimate == pytest.approx(2.005, abs=1e-3)
    assert found.estimate.num == 6
    assert found.estimate.high / found.estimate.low < 1.01
    assert found.shown


def test_rounds_that_are_too_few_for_an_interval_have_their_range() -> None:
    timings = {"a": {i: 2.0 + 0.1 * i for i in range(5)}, "b": dict.fromkeys(range(5), 1.0)}
    found = one(*two_arms(timings=Timings(timings)), "latency_ms")
    assert (found.shown, found.caveat, found.estimate.is_open) == (False, "", True)
    assert interval_text(found.estimate, "ratio") == "2.20 (2.00 to 2.40)"
    assert interval_json(found.estimate) == {"estimate": pytest.approx(2.2, abs=0.01), "low": 0.0, "high": None}


def test_times_are_compared_per_sample() -> None:
    timings = {"a": {i: 4.0 + 0.01 * i for i in range(5)}, "b": dict.fromkeys(range(5), 2.0)}
    assert one(*two_arms(timings=Timings(timings), new_row={"batch_size": 8.0}), "latency_ms").estimate.estimate == pytest.approx(
        1.005, abs=1e-4
    )


def test_too_few_rounds_show_nothing() -> None:
    timings = {"a": {0: 2.0, 1: 2.0}, "b": {0: 1.0, 1: 1.0}}
    found = one(*two_arms(timings=Timings(timings)), "latency_ms")
    assert (found.caveat, found.shown) == ("2 rounds are too few", False)
    part, seen = two_arms(timings=Timings({"a": {0: 2.0}, "b": {0: 1.0}}))
    assert effects(part, seen) == []


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
    part, seen = two_arms(
        new_row=dict.fromkeys(MEASURES, 1.0),
        base_row=dict.fromkeys(MEASURES, 2.0),
        scores={"a": np.ones((3, 9)), "b": np.zeros((3, 9))},
        seed_values={"perplexity": {"a": (1.0, 1.5, 1.2), "b": (4.0, 5.0, 4.5)}},
        timings=Timings({"a": {i: 1.0 + i for i in range(3)}, "b": dict.fromkeys(range(3), 2.0)}),
    )
    assert {effect.measure.name for effect in effects(part, seen)} == set(MEASURES)


@pytest.mark.parametrize(("equal", "caveat"), [(False, "outputs of new differ"), (True, ""), (None, "")])
def test_times_of_unequal_answers_are_doubted_and_named(equal: bool | None, caveat: str) -> None:
    timings = {"a": {i: 2.0 + 0.1 * (i % 2) for i in range(6)}, "b": dict.fromkeys(range(6), 1.0)}
    part, seen = two_arms(new_row={"equal": equal}, timings=Timings(timings))
    effect = one(part, seen, "latency_ms")
    assert (effect.caveat, effect.shown) == (caveat, not caveat)

"""Ours against the peers: ratios by hand, the fastest of several, means round by round, targets judged by intervals, and what is left out."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ablations.peers import ABLATION, BATCHES, LENGTHS, targets
from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED, Verdict, withheld
from bench.analysis.kernel_shares import kernel_shares
from bench.analysis.peer_targets import absent_arms, judge_target, with_targets
from bench.analysis.peers import BEST_ARM, SHIPPED, PeerComparison, both_with, compare_peers
from bench.intervals import Interval
from bench.running.timings import Timings
from bench.serialize import from_json, to_json
from bench.spec import FASTEST_PEER, LOWER, Part, PlannedArm, Prediction

ENGINE = "onednn"
T_OF_TWO = 12.706204736432095
"""The two-sided 95 % point of Student's t with one degree of freedom, tan(0.475 pi)."""
PLACES = ((17, 1), (65, 32))
ARMS = {
    BEST_ARM: ("gmlp", ENGINE),
    "ours, eager": ("gmlp", "eager"),
    "timm": ("python", "eager"),
    f"timm, {ENGINE}": ("python", ENGINE),
    "lucidrains": ("python", "eager"),
}
TIMES: dict[str, Sequence[float]] = {
    BEST_ARM: (1.0, 2.0),
    "ours, eager": (3.0, 6.0),
    "timm": (4.0, 4.0),
    f"timm, {ENGINE}": (2.0, 4.0),
    "lucidrains": (5.0, 5.0),
}
"""In ms, by round; the same at every place. Over timm as shipped: 1 / 4 and 2 / 4."""


class Made:
    """A part with a cell per arm and place; `changes` by cell id are made to its rows, `times` by arm or cell id replace those above."""

    def __init__(
        self,
        *,
        name: str = "gMLP, infer",
        family: str = "gmlp",
        arms: Mapping[str, tuple[str, str]] = ARMS,
        times: Mapping[str, Sequence[float]] | None = None,
        changes: Mapping[str, Mapping[str, Any]] | None = None,
        **work: Any,
    ) -> None:
        known, self.rows, self.timings = {**TIMES, **(times or {})}, {}, {}
        base = {"phase": "infer", "dtype": "fp32", "device": "cpu", "status": "measured", "reason": "", "equal": True, "output_error": 2e-6}
        planned = []
        for arm, (own, engine) in arms.items():
            ids = []
            for n, batch in PLACES:
                cell_id = f"{family}/{arm}/{n}"
                sizes = {"seq_len": float(n), "batch_size": float(batch), "flops": 3e6 if family == "gmlp" else 2e6}
                row = {**base, **sizes, "cell_id": cell_id, "family": family if own == "gmlp" else own, "engine": engine, **work}
                row |= {"equal": None, "output_error": None} if arm == "ours, eager" else {}
                self.rows[cell_id] = {**row, **(changes or {}).get(cell_id, {})}
                self.timings[cell_id] = dict(enumerate(known.get(cell_id, known[arm])))
                ids.append(cell_id)
            planned.append(PlannedArm(name=arm, cells=tuple(ids)))
        self.part = Part(name=name, match="none", batching="", cells=tuple(self.rows), arms=tuple(planned), baseline=BEST_ARM)

    def standing(self) -> PeerComparison:
        return standing_with(self)


def standing_with(*made: Made) -> PeerComparison:
    found = compare_peers([one.part for one in made], {k: v for one in made for k, v in one.rows.items()}, timings_with(*made))
    assert found is not None
    return found


def timings_with(*made: Made) -> Timings:
    return Timings({cell: times for one in made for cell, times in one.timings.items() if times})


def of_two(first: float, second: float) -> tuple[float, float, float]:
    """Estimate and bounds of the geometric mean of two ratios, by hand: two logs lie half their distance from their mean."""
    middle, half = (math.log(first) + math.log(second)) / 2, T_OF_TWO * abs(math.log(first) - math.log(second)) / 2
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def numbers_of(ratio: Interval | None) -> tuple[float, float, float]:
    assert ratio is not None
    return ratio.estimate, ratio.low, ratio.high


CELLS, MEAN, OUTPUTS = range(3)
"""The targets of a part, in the order of `ablations.peers.targets`."""


def judged(standing: PeerComparison, target: int, *, places: tuple[tuple[int, int], ...] = PLACES, absent: Sequence[str] = ()) -> Verdict:
    """As in the ablation, but for the places of these runs."""
    place = standing.places[0]
    return judge_target(dataclasses.replace(targets(place.part, place.phase)[target], places=places), standing, absent)


def test_ratios_are_paired_by_round() -> None:
    pairs = {(p.peer, p.kind, p.place.seq_len): p for p in Made().standing().pairs}
    assert numbers_of(pairs["timm", SHIPPED, 17].ratio) == pytest.approx(of_two(1 / 4, 2 / 4))
    assert numbers_of(pairs["lucidrains", SHIPPED, 65].ratio) == pytest.approx(of_two(1 / 5, 2 / 5))
    assert numbers_of(pairs["timm", both_with("eager"), 17].ratio) == pytest.approx(of_two(3 / 4, 6 / 4))
    assert numbers_of(pairs["timm", both_with(ENGINE), 17].ratio) == pytest.approx((0.5, 0.5, 0.5))
    assert ("lucidrains", both_with(ENGINE), 17) not in pairs
    assert {kind for _, kind, _ in pairs} == {SHIPPED, both_with("eager"), both_with(ENGINE)}


def test_cells_are_judged_by_intervals_that_hold_for_all_of_them() -> None:
    """Two places, so Student's t at 97.5 %, and twice the p-value; a cell that is below 1 by its own interval alone is open."""
    standing = Made(times={BEST_ARM: (1.0, 1.04), "timm": (1.5, 1.5), "lucidrains": (9.0, 9.0)}).standing()
    for pair in standing.fastest:
        middle, half = (math.log(1 / 1.5) + math.log(1.04 / 1.5)) / 2, math.log(1.04) / 2
        assert pair.ratio is not None
        assert pair.ratio.high < 1
        bounds = (
            math.exp(middle),
            math.exp(middle - half * math.tan(0.4875 * math.pi)),
            math.exp(middle + half * math.tan(0.4875 * math.pi)),
        )
        assert numbers_of(pair.joint) == pytest.approx(bounds)
        assert pair.p_adjusted == pytest.approx(2 * (1 - 2 / math.pi * math.atan(abs(middle) / half)))
    cells = judged(standing, CELLS)
    assert (cells.answer, cells.reason) == (UNDECIDED, "undecided at n = 17, batch 1; n = 65, batch 32")


def test_a_round_that_one_side_lacks_is_no_pair() -> None:
    made = Made(times={"timm": (4.0, 4.0, 1.0)})
    ratio = next(p.ratio for p in made.standing().pairs if p.peer == "timm" and p.kind == SHIPPED)
    assert ratio is not None
    assert ratio.num == 2


def test_the_fastest_peer_is_that_of_the_smallest_median_as_shipped() -> None:
    made = Made(times={"gmlp/lucidrains/65": (3.9, 3.9)})
    assert {pair.place.seq_len: pair.peer for pair in made.standing().fastest} == {17: "timm", 65: "lucidrains"}


def test_the_mean_is_taken_within_each_round() -> None:
    """Rounds whose places move against each other cancel: (1/4 * 2/4) and (2/4 * 1/4) have the same mean."""
    made = Made(times={"gmlp/ours, best engine/65": (2.0, 1.0)})
    mean = next(m for m in made.standing().means if m.peer == "timm" and m.kind == SHIPPED)
    assert numbers_of(mean.ratio) == pytest.approx((math.sqrt(1 / 8),) * 3)
    assert (mean.num_places, mean.num_planned) == (2, 2)
    fastest = next(m for m in made.standing().means if m.peer == FASTEST_PEER)
    assert fastest.ratio == mean.ratio


def test_different_answers_are_left_out_and_named() -> None:
    wrong = "gmlp/timm/17"
    standing = Made(changes={wrong: {"equal": False, "output_error": 0.02}}).standing()
    assert [(e.contender.cell_id, e.reason) for e in standing.excluded] == [(wrong, "outputs differ: output error 2.0e-02")]
    assert {(p.peer, p.place.seq_len) for p in standing.pairs if p.kind == SHIPPED} == {
        ("timm", 65),
        ("lucidrains", 17),
        ("lucidrains", 65),
    }
    equal = judged(standing, OUTPUTS)
    assert (equal.answer, equal.reason) == (REFUTED, "refuted at n = 17, batch 1")


def test_different_gradients_are_different_answers() -> None:
    """Though the outputs are equal."""
    standing = Made(changes={"gmlp/timm/17": {"equal": False, "gradient_error": 0.5}}).standing()
    assert [e.reason for e in standing.excluded] == ["outputs differ: output error 2.0e-06, gradient error 5.0e-01"]
    assert judged(standing, OUTPUTS).answer == SUPPORTED


def test_ours_with_different_answers_is_compared_with_nothing() -> None:
    standing = Made(changes={"gmlp/ours, best engine/17": {"equal": False}}).standing()
    assert {pair.place.seq_len for pair in standing.fastest} == {65}
    cells = judged(standing, CELLS)
    assert (cells.answer, cells.reason) == (UNDECIDED, "undecided at n = 65, batch 32; 1 of 2 configurations are not compared")
    assert judged(standing, MEAN).answer == UNDECIDED


@pytest.mark.parametrize("times", [(), (4.0,), (4.0, 4.0)])
def test_what_was_not_measured_in_full_is_named(times: tuple[float, ...]) -> None:
    """Also where some rounds ended: they would be the quick ones."""
    made = Made(times={"gmlp/timm/65": times}, changes={"gmlp/timm/65": {"status": "timed_out", "reason": "after 60 s"}})
    standing = made.standing()
    assert [(e.place.seq_len, e.reason) for e in standing.excluded] == [(65, "not fully measured: timed_out, after 60 s")]
    assert {pair.place.seq_len for pair in standing.pairs if pair.peer == "timm" and pair.kind == SHIPPED} == {17}


def test_what_was_not_timed_is_named() -> None:
    assert [e.reason for e in Made(times={"gmlp/timm/65": ()}).standing().excluded] == ["not timed"]


STEADY = {BEST_ARM: (1.0, 1.01), "timm": (2.0, 2.0), "lucidrains": (3.0, 3.0)}
"""About half of timm's time, and nearly the same in both rounds."""


def test_targets_are_judged_by_the_whole_interval() -> None:
    standing = Made(times=STEADY).standing()
    low, high = 0.5 * 1.01 ** (0.5 - T_OF_TWO / 2), 0.5 * 1.01 ** (0.5 + T_OF_TWO / 2)
    mean = judged(standing, MEAN)
    assert numbers_of(mean.estimates[0].value)[1:] == pytest.approx((low, high))
    assert (mean.answer, judged(standing, CELLS).answer, judged(standing, OUTPUTS).answer) == (SUPPORTED, SUPPORTED, SUPPORTED)
    assert mean.claim.question == "geometric mean of latency ratio at most 0.6"
    assert judged(standing, MEAN, places=()).answer == SUPPORTED  # a target without places is for those of the run
    within = dataclasses.replace(targets("gMLP, infer", "infer")[MEAN], places=PLACES)
    for bound, answer in ((high * 1.001, SUPPORTED), (math.sqrt(low * high), UNDECIDED), (low * 0.999, REFUTED)):
        assert judge_target(dataclasses.replace(within, at_most=bound), standing).answer == answer


def test_a_verdict_holds_the_figures_and_the_cells_that_it_rests_on() -> None:
    standing = Made(times=STEADY).standing()
    cells = judged(standing, CELLS)
    assert [(estimate.name, estimate.value) for estimate in cells.estimates] == [
        ("n = 17, batch 1", standing.fastest[0].joint),
        ("n = 65, batch 32", standing.fastest[1].joint),
    ]
    assert {"gmlp/ours, best engine/17", "gmlp/timm/65"} <= set(cells.cells)
    (error,) = judged(standing, OUTPUTS).estimates
    assert (error.name, error.unit, error.value.estimate) == ("largest of 8 configurations", "error", 2e-6)


def test_training_has_a_target_of_its_own() -> None:
    times = {**STEADY, BEST_ARM: (1.4, 1.4)}
    assert judged(Made(times=times).standing(), MEAN).answer == REFUTED
    assert judged(Made(times=times, phase="train").standing(), MEAN).answer == SUPPORTED


def test_a_cell_that_is_slower_is_named() -> None:
    cells = judged(Made(times={**STEADY, "gmlp/ours, best engine/65": (2.5, 2.5)}).standing(), CELLS)
    assert (cells.answer, cells.reason) == (REFUTED, "refuted at n = 65, batch 32")


def test_doubt_decides_nothing_timed_and_leaves_equality_alone() -> None:
    standing = Made(times=STEADY).standing()
    cells, outputs = judged(standing, CELLS), judged(standing, OUTPUTS)
    noisy = withheld(cells, "Too noisy.", quick=False)
    assert (noisy.answer, noisy.reason) == (UNDECIDED, "Too noisy. Otherwise: supported.")
    assert withheld(outputs, "Too noisy.", quick=False) == outputs
    assert withheld(cells, "A quick run.", quick=True).answer == UNDECIDED
    assert withheld(outputs, "A quick run.", quick=True) == outputs


def test_another_part_has_no_target() -> None:
    """bf16 and a GPU are parts of their own."""
    standing = Made(name="gMLP, bf16, infer", times=STEADY, dtype="bf16").standing()
    assert judge_target(targets("gMLP, infer", "infer")[CELLS], standing).reason == "not in this run"
    assert len(standing.fastest) == 2


def test_targets_are_for_the_places_of_the_ablation_and_for_fp32_on_a_cpu() -> None:
    grid = {(int(n), int(batch)) for n in LENGTHS.split(",") for batch in BATCHES.split(",")}
    found = [prediction for prediction in ABLATION.predictions if prediction.is_target]
    assert all(set(target.places) == grid for target in found)
    flags = {part.name: part.flags for part in ABLATION.cpu}
    assert {flags[target.part].get("dtype", "fp32") for target in found} == {"fp32"}
    assert not {target.part for target in found} & {part.name for part in ABLATION.cuda}


def test_a_plan_from_before_targets_is_judged_by_those_of_today() -> None:
    part = Made().part
    old = (Prediction(part=part.name, arm=BEST_ARM, against="timm", measure="latency_ms", expected=LOWER),)
    assert with_targets(old, [part]) == (*targets(part.name, "infer"), *old)
    assert with_targets((), [dataclasses.replace(part, name="gMLP, bf16, infer")]) == ()
    own = dataclasses.replace(targets(part.name, "infer")[MEAN], at_most=0.3)
    assert with_targets((own, *old), [part]) == (own, *old)


def test_a_plan_holds_the_bounds_of_its_targets_and_no_others() -> None:
    target, plain = targets("gMLP, infer", "infer")[MEAN], Prediction(part="gMLP, infer", arm=BEST_ARM, against="timm", expected=LOWER)
    assert from_json(Prediction, json.loads(json.dumps(to_json(target)))) == target
    assert set(to_json(target)) - set(to_json(plain)) == {"at_most", "mean", "places", "device"}


@pytest.mark.parametrize("reason", [{"status": "timed_out"}, {"equal": False}])
def test_without_one_of_its_peers_a_place_is_open(reason: dict[str, Any]) -> None:
    """The peer that is left is slower; the one that was lost may not be."""
    standing = Made(times=STEADY, changes={"gmlp/timm/17": reason}).standing()
    cells, mean = judged(standing, CELLS), judged(standing, MEAN)
    assert cells.answer == mean.answer == UNDECIDED
    assert cells.reason == mean.reason == "timm is not compared at n = 17, batch 1"


def test_a_place_that_refutes_does_so_without_one_of_its_peers() -> None:
    times = {**STEADY, "gmlp/ours, best engine/17": (9.0, 9.0)}
    cells = judged(Made(times=times, changes={"gmlp/timm/17": {"status": "timed_out"}}).standing(), CELLS)
    assert (cells.answer, cells.reason) == (REFUTED, "refuted at n = 17, batch 1; timm is not compared at n = 17, batch 1")


def test_an_arm_that_the_question_names_and_the_plan_lacks_leaves_all_open() -> None:
    made = Made(times=STEADY)
    own = [Prediction(part=made.part.name, arm=BEST_ARM, against=peer, expected=LOWER) for peer in ("timm", "torchvision")]
    absent = absent_arms(made.part.name, [*targets(made.part.name, "infer"), *own], [made.part])
    assert absent == ("torchvision",)
    found = [judged(made.standing(), target, absent=absent) for target in (CELLS, MEAN, OUTPUTS)]
    assert {verdict.answer for verdict in found} == {UNDECIDED}
    assert all("torchvision is not" in verdict.reason for verdict in found)


def test_other_places_decide_no_target_but_one_of_its_own_that_fails() -> None:
    whole = targets("gMLP, infer", "infer")[0].places
    for times in (STEADY, {**STEADY, BEST_ARM: (9.0, 9.0)}):
        mean = judged(Made(times=times).standing(), MEAN, places=whole)
        assert mean.answer == UNDECIDED
        assert mean.reason.startswith("measured at n = 17, batch 1; n = 65, batch 32; the target is for n = 17, batch 1 and 32")
    for target in (CELLS, OUTPUTS):
        assert judged(Made(times=STEADY).standing(), target, places=whole).answer == UNDECIDED
    slower = Made(times={**STEADY, "gmlp/ours, best engine/65": (2.5, 2.5)}).standing()
    assert judged(slower, CELLS, places=whole).answer == REFUTED
    assert judged(slower, CELLS, places=((17, 1), (17, 32))).answer == UNDECIDED


def test_unknown_errors_leave_equality_open() -> None:
    unknown = {"equal": None, "output_error": None}
    equal = judged(Made(changes={"gmlp/timm/17": unknown}).standing(), OUTPUTS)
    assert (equal.answer, equal.reason) == (UNDECIDED, "unknown for 1 of 8 configurations")
    assert equal.estimates[0].name == "largest of 7 configurations"


def test_a_run_without_our_best_engine_has_no_standing() -> None:
    made = Made()
    bare = dataclasses.replace(made.part, arms=made.part.arms[1:], baseline="timm")
    assert compare_peers([bare], made.rows, Timings(made.timings)) is None
    assert compare_peers([], {}, Timings()) is None


def test_a_cell_of_two_arms_stands_once() -> None:
    """Where eager itself is the best engine, ours is one cell under two names."""
    made = Made()
    ours = dataclasses.replace(made.part.arms[0], cells=made.part.arms[1].cells)
    standing = compare_peers([dataclasses.replace(made.part, arms=(*made.part.arms[1:], ours))], made.rows, Timings(made.timings))
    assert standing is not None
    kinds = [pair.kind for pair in standing.pairs if (pair.peer, pair.place.seq_len) == ("timm", 17)]
    assert kinds == [SHIPPED, both_with("eager")]
    assert numbers_of(standing.fastest[0].ratio) == pytest.approx(of_two(3 / 4, 6 / 4))


def two_families(**times: Sequence[float]) -> tuple[Made, Made]:
    """gMLP as above; timm's ViT takes 2 ms, ours 0.5 and 1 ms."""
    attention = {BEST_ARM: (0.5, 1.0), "timm": (2.0, 2.0), **times}
    return Made(), Made(name="ViT, infer", family="vit", times=attention)


def test_kernel_and_architecture_multiply_to_what_is_shipped() -> None:
    """timm's gMLP takes twice its ViT's time, and so does ours: all of it is architecture."""
    made = two_families()
    shares = kernel_shares(standing_with(*made), timings_with(*made))
    share = next(found for found in shares if found.peer == "timm" and found.place and found.place.seq_len == 17)
    assert numbers_of(share.shipped) == pytest.approx((2.0,) * 3)
    assert numbers_of(share.ours) == pytest.approx((2.0,) * 3)
    assert numbers_of(share.kernels) == pytest.approx((1.0,) * 3)
    assert share.share is None
    assert share.flops == pytest.approx(1.5)


def test_the_share_of_kernels_is_of_the_logarithm() -> None:
    """As shipped 4 / 1 = 4, ours 2 (in both rounds): half of the logarithm of 4."""
    made = two_families(timm=(1.0, 1.0))
    shares = [found for found in kernel_shares(standing_with(*made), timings_with(*made)) if found.peer == "timm"]
    assert [found.share for found in shares] == pytest.approx([0.5] * 3)
    assert [(found.place is None, found.num_places) for found in shares] == [(False, 1), (False, 1), (True, 2)]


def test_where_attention_is_not_faster_there_is_no_share() -> None:
    made = two_families(timm=(5.0, 5.0))
    assert {found.share for found in kernel_shares(standing_with(*made), timings_with(*made)) if found.peer == "timm"} == {None}


def test_other_phases_are_no_counterpart() -> None:
    made = (Made(), Made(name="ViT, train", family="vit", phase="train"))
    assert kernel_shares(standing_with(*made), timings_with(*made)) == []

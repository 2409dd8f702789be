"""Ours beside the peers: ratios by hand, the fastest of several, means round by round, bounds judged by intervals, and what is left out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ablations.peers import BATCHES, LENGTHS
from bench.analysis import peer_bounds
from bench.analysis.claims import UNDECIDED
from bench.analysis.kernel_shares import kernel_shares
from bench.analysis.peer_bounds import MET, MISSED, Judgement, answer_below, judge_bounds, lacking_arms, places_text
from bench.analysis.peers import BEST_ARM, FASTEST, SHIPPED, Standing, both_with, standing_of
from bench.intervals import Interval
from bench.running.timings import Timings
from bench.spec import LOWER, Part, PlannedArm, Prediction

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


@pytest.fixture(autouse=True)
def _bounds_for_these_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_bounds, "BOUND_GRID", PLACES)


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

    def standing(self) -> Standing:
        return standing_with(self)


def standing_with(*made: Made) -> Standing:
    found = standing_of([one.part for one in made], {k: v for one in made for k, v in one.rows.items()}, timings_with(*made))
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


def judged(standing: Standing, bound: str, doubt: str = "") -> Judgement:
    return next(found for found in judge_bounds(standing, doubt) if found.bound.startswith(bound))


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
    cells = judged(standing, "every cell")
    assert (cells.answer, cells.reason[:23]) == (UNDECIDED, "0 of 2 cells meet it; u")


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
    fastest = next(m for m in made.standing().means if m.peer == FASTEST)
    assert fastest.ratio == mean.ratio


def test_different_answers_are_left_out_and_named() -> None:
    wrong = "gmlp/timm/17"
    standing = Made(changes={wrong: {"equal": False, "output_error": 0.02}}).standing()
    assert [(e.contender.cell_id, e.reason) for e in standing.excluded] == [(wrong, "its answers differ: output error 2.0e-02")]
    assert {(p.peer, p.place.seq_len) for p in standing.pairs if p.kind == SHIPPED} == {
        ("timm", 65),
        ("lucidrains", 17),
        ("lucidrains", 65),
    }
    equal = judged(standing, "outputs equal")
    assert (equal.answer, places_text(equal.missed)) == (MISSED, "n = 17, batch 1")


def test_different_gradients_are_different_answers() -> None:
    """Though the outputs are equal."""
    standing = Made(changes={"gmlp/timm/17": {"equal": False, "gradient_error": 0.5}}).standing()
    assert [e.reason for e in standing.excluded] == ["its answers differ: output error 2.0e-06, gradient error 5.0e-01"]
    assert judged(standing, "outputs equal").answer == MET


def test_ours_with_different_answers_is_compared_with_nothing() -> None:
    standing = Made(changes={"gmlp/ours, best engine/17": {"equal": False}}).standing()
    assert {pair.place.seq_len for pair in standing.fastest} == {65}
    cells = judged(standing, "every cell")
    assert (cells.answer, cells.reason) == (UNDECIDED, "0 of 2 cells meet it; 1 of 2 cells are not compared; undecided at n = 65, batch 32")
    assert judged(standing, "geometric mean").answer == UNDECIDED


@pytest.mark.parametrize("times", [(), (4.0,), (4.0, 4.0)])
def test_what_was_not_measured_in_full_is_named(times: tuple[float, ...]) -> None:
    """Also where some rounds ended: they would be the quick ones."""
    made = Made(times={"gmlp/timm/65": times}, changes={"gmlp/timm/65": {"status": "timed_out", "reason": "after 60 s"}})
    standing = made.standing()
    assert [(e.place.seq_len, e.reason) for e in standing.excluded] == [(65, "not measured in full: timed_out, after 60 s")]
    assert {pair.place.seq_len for pair in standing.pairs if pair.peer == "timm" and pair.kind == SHIPPED} == {17}


def test_what_was_not_timed_is_named() -> None:
    assert [e.reason for e in Made(times={"gmlp/timm/65": ()}).standing().excluded] == ["it was not timed"]


STEADY = {BEST_ARM: (1.0, 1.01), "timm": (2.0, 2.0), "lucidrains": (3.0, 3.0)}
"""About half of timm's time, and nearly the same in both rounds."""


def test_bounds_are_judged_by_the_whole_interval() -> None:
    standing = Made(times=STEADY).standing()
    low, high = 0.5 * 1.01 ** (0.5 - T_OF_TWO / 2), 0.5 * 1.01 ** (0.5 + T_OF_TWO / 2)
    mean = judged(standing, "geometric mean at most 0.6")
    assert numbers_of(mean.value)[1:] == pytest.approx((low, high))
    assert (mean.answer, judged(standing, "every cell").answer, judged(standing, "outputs").answer) == (MET, MET, MET)
    assert answer_below(high, mean.value) == MET
    assert answer_below(math.sqrt(low * high), mean.value) == UNDECIDED
    assert answer_below(low * 0.999, mean.value) == MISSED


def test_training_has_a_bound_of_its_own() -> None:
    times = {**STEADY, BEST_ARM: (1.4, 1.4)}
    assert judged(Made(times=times).standing(), "geometric mean at most 0.6").answer == MISSED
    assert judged(Made(times=times, phase="train").standing(), "geometric mean at most 0.8").answer == MET


def test_a_cell_that_is_slower_is_named() -> None:
    cells = judged(Made(times={**STEADY, "gmlp/ours, best engine/65": (2.5, 2.5)}).standing(), "every cell")
    assert (cells.answer, places_text(cells.missed), cells.reason) == (MISSED, "n = 65, batch 32", "1 of 2 cells meet it")


def test_doubt_decides_nothing_timed() -> None:
    standing = Made(times=STEADY).standing()
    cells = judged(standing, "every cell", doubt="Too noisy.")
    assert (cells.answer, cells.reason) == (UNDECIDED, "Too noisy. Taken by itself: met, 2 of 2 cells meet it.")
    assert judged(standing, "outputs", doubt="Too noisy.").answer == MET


@pytest.mark.parametrize("work", [{"device": "cuda"}, {"dtype": "bf16"}])
def test_nothing_is_judged_where_no_bound_was_set(work: dict[str, Any]) -> None:
    standing = Made(times=STEADY, **work).standing()
    assert judge_bounds(standing) == []
    assert len(standing.fastest) == 2


BOUND_GRID = peer_bounds.BOUND_GRID


def test_the_bounds_are_for_the_places_of_the_ablation() -> None:
    assert set(BOUND_GRID) == {(int(n), int(batch)) for n in LENGTHS.split(",") for batch in BATCHES.split(",")}


@pytest.mark.parametrize("reason", [{"status": "timed_out"}, {"equal": False}])
def test_without_one_of_its_peers_a_place_is_open(reason: dict[str, Any]) -> None:
    """The peer that is left is slower; the one that was lost may not be."""
    standing = Made(times=STEADY, changes={"gmlp/timm/17": reason}).standing()
    cells, mean = judged(standing, "every cell"), judged(standing, "geometric mean")
    assert cells.answer == mean.answer == UNDECIDED
    assert "timm is not compared at n = 17, batch 1" in cells.reason
    assert "timm is not compared at n = 17, batch 1" in mean.reason


def test_a_place_that_is_missed_stays_so_without_one_of_its_peers() -> None:
    times = {**STEADY, "gmlp/ours, best engine/17": (9.0, 9.0)}
    cells = judged(Made(times=times, changes={"gmlp/timm/17": {"status": "timed_out"}}).standing(), "every cell")
    assert (cells.answer, places_text(cells.missed)) == (MISSED, "n = 17, batch 1")


def test_an_arm_that_the_question_names_and_the_plan_lacks_leaves_all_open() -> None:
    made = Made(times=STEADY)
    predictions = [Prediction(part=made.part.name, arm=BEST_ARM, against=peer, expected=LOWER) for peer in ("timm", "torchvision")]
    lacking = lacking_arms([made.part], predictions)
    assert lacking == {made.part.name: ("torchvision",)}
    found = judge_bounds(made.standing(), lacking=lacking)
    assert {judgement.answer for judgement in found} == {UNDECIDED}
    assert all("torchvision is not" in judgement.reason for judgement in found)


def test_other_places_decide_no_bound_but_one_of_its_own_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_bounds, "BOUND_GRID", BOUND_GRID)
    found = judge_bounds(Made(times=STEADY).standing())
    assert {judgement.answer for judgement in found} == {UNDECIDED}
    assert all("over 2 places (n = 17, batch 1; n = 65, batch 32): the bound is for n = 17, batch 1 and 32" in f.reason for f in found)
    slower = Made(times={**STEADY, "gmlp/ours, best engine/65": (2.5, 2.5)}).standing()
    assert (judged(slower, "every cell").answer, judged(slower, "geometric mean").answer) == (MISSED, UNDECIDED)


def test_unknown_errors_leave_equality_open() -> None:
    unknown = {"equal": None, "output_error": None}
    equal = judged(Made(changes={"gmlp/timm/17": unknown}).standing(), "outputs")
    assert (equal.answer, equal.reason) == (UNDECIDED, "largest error 2.0e-06 over 7 cells; not known for 1 of 8 cells")


def test_a_run_without_our_best_engine_has_no_standing() -> None:
    made = Made()
    bare = dataclasses.replace(made.part, arms=made.part.arms[1:], baseline="timm")
    assert standing_of([bare], made.rows, Timings(made.timings)) is None
    assert standing_of([], {}, Timings()) is None


def test_a_cell_of_two_arms_stands_once() -> None:
    """Where eager itself is the best engine, ours is one cell under two names."""
    made = Made()
    ours = dataclasses.replace(made.part.arms[0], cells=made.part.arms[1].cells)
    standing = standing_of([dataclasses.replace(made.part, arms=(*made.part.arms[1:], ours))], made.rows, Timings(made.timings))
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

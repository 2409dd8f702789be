"""Ours against the peers: ratios by hand, the fastest of several, means round by round, and what is left out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bench.analysis.peers import BEST_ARM, FASTEST_PEER, SHIPPED, PeerComparison, both_with, compare_peers
from bench.intervals import Interval
from bench.reading.timings import Timings
from bench.spec import Part, PlannedArm

ENGINE = "compile"
PLACES = ((17, 1), (65, 32))
ARMS = {
    BEST_ARM: ("gmlp", ENGINE),
    "ours, eager": ("gmlp", "eager"),
    "timm": ("python", "eager"),
    f"timm, {ENGINE}": ("python", ENGINE),
    "lucidrains": ("python", "eager"),
}
TIMES: dict[str, Sequence[float]] = {
    BEST_ARM: (1.0, 2.0) * 4,
    "ours, eager": (3.0, 6.0) * 4,
    "timm": (4.0,) * 8,
    f"timm, {ENGINE}": (2.0, 4.0) * 4,
    "lucidrains": (5.0,) * 8,
}
"""In ms, by round; the same at every place. Over timm as shipped: 1 / 4 and 2 / 4, in turn."""


class Made:
    """A part with a cell per arm and place; `changes` by cell id are made to its rows, `times` by arm or cell id replace those above."""

    def __init__(
        self, *, times: Mapping[str, Sequence[float]] | None = None, changes: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        known, self.rows, self.timings = {**TIMES, **(times or {})}, {}, {}
        base = {"phase": "infer", "dtype": "fp32", "device": "cpu", "status": "measured", "reason": "", "equal": True, "output_error": 2e-6}
        planned = []
        for arm, (family, engine) in ARMS.items():
            ids = []
            for n, batch in PLACES:
                cell_id = f"gmlp/{arm}/{n}"
                sizes = {"seq_len": float(n), "batch_size": float(batch)}
                row = {**base, **sizes, "cell_id": cell_id, "family": family, "engine": engine}
                row |= {"equal": None, "output_error": None} if arm == "ours, eager" else {}
                self.rows[cell_id] = {**row, **(changes or {}).get(cell_id, {})}
                self.timings[cell_id] = dict(enumerate(known.get(cell_id, known[arm])))
                ids.append(cell_id)
            planned.append(PlannedArm(name=arm, cells=tuple(ids)))
        self.part = Part(name="gMLP, infer", match="none", batching="", cells=tuple(self.rows), arms=tuple(planned), baseline=BEST_ARM)

    def standing(self) -> PeerComparison:
        found = compare_peers([self.part], self.rows, Timings({cell: times for cell, times in self.timings.items() if times}))
        assert found is not None
        return found


def of_two(first: float, second: float) -> tuple[float, float, float]:
    """Estimate and bounds of two ratios in turn over six rounds: the middle of the two, and both."""
    return math.sqrt(first * second), first, second


def numbers_of(ratio: Interval | None) -> tuple[float, float, float]:
    assert ratio is not None
    return ratio.estimate, ratio.low, ratio.high


def test_ratios_are_paired_by_round() -> None:
    pairs = {(p.peer, p.kind, p.place.seq_len): p for p in Made().standing().pairs}
    assert numbers_of(pairs["timm", SHIPPED, 17].ratio) == pytest.approx(of_two(1 / 4, 2 / 4))
    assert numbers_of(pairs["lucidrains", SHIPPED, 65].ratio) == pytest.approx(of_two(1 / 5, 2 / 5))
    assert numbers_of(pairs["timm", both_with("eager"), 17].ratio) == pytest.approx(of_two(3 / 4, 6 / 4))
    assert numbers_of(pairs["timm", both_with(ENGINE), 17].ratio) == pytest.approx((0.5, 0.5, 0.5))
    assert ("lucidrains", both_with(ENGINE), 17) not in pairs
    assert {kind for _, kind, _ in pairs} == {SHIPPED, both_with("eager"), both_with(ENGINE)}


@pytest.mark.parametrize(("num_rounds", "num_faster"), [(6, 0), (7, 2)])
def test_the_intervals_of_a_place_hold_together(num_rounds: int, num_faster: int) -> None:
    """Of two peers each interval has 97.5 %, which six rounds do not attain: 2 / 2^6 is 3.1 %."""
    standing = Made(times={BEST_ARM: (1.0,) * num_rounds, "timm": (1.5,) * num_rounds, "lucidrains": (9.0,) * num_rounds}).standing()
    for pair in standing.fastest:
        assert pair.ratio is not None
        assert pair.ratio.is_open == (num_rounds == 6)
        assert pair.ratio.estimate == pytest.approx(1 / 1.5)
    assert standing.shown_faster == {"fp32": (num_faster, 2)}


def test_the_fastest_peer_is_that_of_the_smallest_median_as_shipped() -> None:
    made = Made(times={"gmlp/lucidrains/65": (3.9,) * 6})
    assert {pair.place.seq_len: pair.peer for pair in made.standing().fastest} == {17: "timm", 65: "lucidrains"}


def test_the_mean_is_taken_within_each_round() -> None:
    """Rounds whose places move against each other cancel: (1/4 * 2/4) and (2/4 * 1/4) have the same mean."""
    made = Made(times={"gmlp/ours, best engine/65": (2.0, 1.0) * 3})
    mean = next(m for m in made.standing().means if m.peer == "timm" and m.kind == SHIPPED)
    assert numbers_of(mean.ratio) == pytest.approx((math.sqrt(1 / 8),) * 3)
    assert (mean.num_places, mean.num_planned) == (2, 2)
    fastest = next(m for m in made.standing().means if m.peer == FASTEST_PEER)
    assert fastest.ratio == mean.ratio


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"output_error": 0.02}, "outputs differ: output error 2.0e-02"),
        ({"gradient_error": 0.5}, "outputs differ: output error 2.0e-06, gradient error 5.0e-01"),
    ],
)
def test_different_answers_are_left_out_and_named(changes: dict[str, float], reason: str) -> None:
    """Also where only the gradients differ."""
    wrong = "gmlp/timm/17"
    standing = Made(changes={wrong: {"equal": False, **changes}}).standing()
    assert [(e.row["cell_id"], e.reason) for e in standing.excluded] == [(wrong, reason)]
    assert {(p.peer, p.place.seq_len) for p in standing.pairs if p.kind == SHIPPED} == {
        ("timm", 65),
        ("lucidrains", 17),
        ("lucidrains", 65),
    }


def test_ours_with_different_answers_is_compared_with_nothing() -> None:
    standing = Made(changes={"gmlp/ours, best engine/17": {"equal": False}}).standing()
    assert {pair.place.seq_len for pair in standing.fastest} == {65}
    mean = next(m for m in standing.means if m.peer == FASTEST_PEER)
    assert (mean.num_places, mean.num_planned) == (1, 2)


@pytest.mark.parametrize(
    ("times", "changes", "reason"),
    [
        ((), {}, "not timed"),
        ((), {"status": "timed_out", "reason": "after 60 s"}, "not fully measured: timed_out, after 60 s"),
        ((4.0, 4.0), {"status": "timed_out", "reason": "after 60 s"}, "not fully measured: timed_out, after 60 s"),
    ],
)
def test_what_was_not_measured_in_full_is_named(times: tuple[float, ...], changes: dict[str, str], reason: str) -> None:
    """Also where some rounds ended: they would be the quick ones."""
    standing = Made(times={"gmlp/timm/65": times}, changes={"gmlp/timm/65": changes}).standing()
    assert [(e.place.seq_len, e.reason) for e in standing.excluded] == [(65, reason)]
    assert {pair.place.seq_len for pair in standing.pairs if pair.peer == "timm" and pair.kind == SHIPPED} == {17}


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

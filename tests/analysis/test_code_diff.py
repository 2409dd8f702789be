"""Two revisions, from the bursts of each round to an answer: planted times, known verdicts."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bench.analysis.code_diff import CellAnswer, answer, require_latency
from bench.analysis.diff import Bound, parse_bound
from bench.planning.build import build_plan
from bench.report.code_diff import about, json_of, sentences, show, table_of
from bench.running.code_run import CONTROL, FIRST, SECOND, CellRound, CodeRun
from bench.running.revisions import Revision
from bench.spec import MEASURED, Outcome, Plan, Recipe, RequestError, Settings
from tests.requested import parse_request

LEVELS = (1.0, 3.0, 0.5, 2.0, 1.5, 0.8, 1.2)
"""What the machine made of each round; ratios do not feel it."""
NOISE = (-1.0, 1.0, -0.5, 0.5, 0.0, 0.8, -0.8)


FACTS = {"device": "cpu", "cpu_model": "a processor", "gpu": "a GPU", "threads": 1, "torch_version": "2.14.1"}


def plan_of(seq: str = "17", rounds: int = 7) -> Plan:
    request = parse_request(models="vit", seq=seq, width="16", depth="1", metrics="latency", batch="1")
    return build_plan(request, settings=Settings(rounds=rounds), recipe=Recipe(), device="cpu", command="bench diff")


def timed(bursts: Sequence[float], first_call_ms: float = 5.0) -> Outcome:
    ordered = sorted(bursts)
    values = {"latency_ms": ordered[len(ordered) // 2], "first_call_ms": first_call_ms}
    return Outcome(status=MEASURED, values=values, samples={"wall_ms": tuple(bursts)})


FAILED = Outcome(status="failed", reason="ValueError: an unknown option")


def run_of(ratios: Mapping[str, Sequence[float]], plan: Plan, *, control: float = 1.0, **other: Any) -> CodeRun:
    """A run in which B takes these times as long as A, by cell id and round. Each round has five blocks with a slow one, whose order differs."""
    rounds = [
        CellRound(cell_id=cell_id, repeat=repeat, outcomes=members(level, ratio, control * math.exp(0.001 * noise)))
        for cell_id, by_round in ratios.items()
        for repeat, (level, ratio, noise) in enumerate(zip(LEVELS, by_round, NOISE, strict=False))
    ]
    revisions = {"first": Revision(name="main", commit="a" * 40), "second": Revision(name="topic", commit="b" * 40)}
    return CodeRun(**{**revisions, "plan": plan, "environment": FACTS, "rounds": tuple(rounds), **other})


def members(level: float, ratio: float, control: float) -> dict[str, Outcome]:
    blocks = [level * weather for weather in (1.0, 1.1, 5.0, 0.9, 1.0)]
    return {
        FIRST: timed(blocks, first_call_ms=7.0),
        SECOND: timed([block * ratio for block in blocks], first_call_ms=9.0),
        CONTROL: timed([block * control for block in blocks]),
    }


def spread(ratio: float, half: float) -> list[float]:
    return [ratio * math.exp(half * noise) for noise in NOISE]


def answered(ratio: float, half: float) -> CellAnswer:
    plan = plan_of()
    (cell,) = answer(run_of({plan.cells[0].cell.cell_id: spread(ratio, half)}, plan)).cells
    return cell


@pytest.mark.parametrize(
    ("ratio", "half", "verdict"),
    [
        (1.2, 0.01, "B slower"),
        (1 / 1.2, 0.01, "B faster"),
        (1.0, 0.005, "equal within 3 %"),
        (1.01, 0.002, "B slower, equal within 3 %"),
        (0.99, 0.002, "B faster, equal within 3 %"),
    ],
)
def test_a_planted_ratio_comes_back_with_its_verdict(ratio: float, half: float, verdict: str) -> None:
    cell = answered(ratio, half)
    assert cell.ratio is not None
    assert cell.ratio.estimate == pytest.approx(ratio, rel=1e-6)
    assert (cell.verdict, cell.num_rounds) == (verdict, 7)
    assert cell.first_call_ms == (7.0, 9.0)
    assert cell.control_holds


def test_what_is_open_says_how_many_rounds_would_decide_it() -> None:
    cell = answered(1.03, 0.06)
    assert cell.rounds_needed is not None
    assert cell.rounds_needed > 7
    assert cell.verdict == f"undecided: about {cell.rounds_needed} rounds would decide"
    assert answered(1.0, 3.0).verdict == "undecided: not even 1,000 rounds would decide"


def test_the_unit_is_the_round_and_its_ratio_the_median_over_blocks() -> None:
    """One block that hit B alone changes nothing; another process's luck is the round's."""
    plan = plan_of(rounds=2)
    first, second = (1.0, 1.0, 1.0), (2.0, 2.0, 50.0)
    rounds = tuple(
        CellRound(cell_id=plan.cells[0].cell.cell_id, repeat=repeat, outcomes={FIRST: timed(first), SECOND: timed(times)})
        for repeat, times in enumerate((second, (8.0, 8.0, 8.0)))
    )
    (cell,) = answer(run_of({}, plan, rounds=rounds)).cells
    assert cell.ratio is not None
    assert cell.ratio.estimate == pytest.approx(4.0)
    assert cell.ratio.num == 2
    assert cell.control is None
    assert cell.control_holds is None


def test_decisions_hold_for_all_cells_together() -> None:
    """A difference that one cell alone would show is not shown beside nine that show none."""
    alone, many = plan_of(), plan_of(",".join(str(n) for n in range(17, 27)))
    faint = spread(1.02, 0.016)
    ids = [planned.cell.cell_id for planned in many.cells]
    assert answer(run_of({alone.cells[0].cell.cell_id: faint}, alone)).cells[0].different
    found = answer(run_of({**dict.fromkeys(ids, spread(1.0, 0.005)), ids[0]: faint}, many))
    assert found.num_compared == 10
    assert not found.cells[0].different
    assert found.cells[1].equal
    assert "jointly for all 10 configurations compared (Bonferroni)" in about(found)


def test_equal_code_is_rarely_found_different() -> None:
    """Of 120 planted A/A pairs at most 14 are shown to differ; 6 are expected."""
    plan, draw = plan_of(), random.Random(0)
    cell_id = plan.cells[0].cell.cell_id
    runs = ({cell_id: [math.exp(draw.gauss(0, 0.05)) for _ in range(7)]} for _ in range(120))
    assert 1 <= sum(answer(run_of(ratios, plan)).cells[0].different for ratios in runs) <= 14


def test_a_control_that_leaves_out_1_is_said() -> None:
    plan = plan_of()
    found = answer(run_of({plan.cells[0].cell.cell_id: spread(1.2, 0.01)}, plan, control=1.05))
    assert found.cells[0].control_holds is False
    assert "excludes 1" in table_of(found).rows[0][6]
    assert any("the A / A control excludes 1" in line for line in sentences(found, None))
    ordinary = answer(run_of({plan.cells[0].cell.cell_id: spread(1.2, 0.01)}, plan, control=1.0012))
    assert ordinary.cells[0].control_holds  # 4 standard errors: outside an interval of 99 %, inside one of 99.9 %
    assert not any("the A / A control" in line for line in sentences(ordinary, None))


def test_a_cell_that_failed_in_one_revision_is_a_row_with_its_reason() -> None:
    plan = plan_of("17,18")
    good, bad = (planned.cell.cell_id for planned in plan.cells)
    run = run_of({good: spread(1.2, 0.01), bad: spread(1.2, 0.01)[:3]}, plan)
    last = CellRound(cell_id=bad, repeat=3, outcomes={**members(1.0, 1.0, 1.0), SECOND: FAILED})
    found = answer(run_of({}, plan, rounds=(*run.rounds, last)))
    assert [cell.verdict for cell in found.cells] == ["B slower", "B: failed: ValueError: an unknown option"]
    assert found.num_compared == 1
    assert found.cells[1].num_rounds == 3
    assert found.check(parse_bound("latency_ms>1.05")).num_judged == 1


def test_a_pilot_that_failed_is_of_the_first() -> None:
    plan = plan_of()
    (cell,) = answer(run_of({}, plan, pilots={plan.cells[0].cell.cell_id: FAILED})).cells
    assert (cell.verdict, cell.num_rounds, cell.latency_ms) == ("A: failed: ValueError: an unknown option", 0, (None, None))


@pytest.mark.parametrize(
    ("text", "ratio", "half", "failing"),
    [
        ("latency_ms>1.05", 1.2, 0.01, 1),
        ("latency_ms>1.05", 1.06, 0.06, 0),  # perhaps, not for certain
        ("latency_ms>1.05", 0.8, 0.01, 0),
        ("latency_ms<0.9", 0.8, 0.01, 1),
        ("latency_ms<0.9", 1.2, 0.01, 0),
    ],
)
def test_a_bound_fails_where_it_is_passed_for_certain(text: str, ratio: float, half: float, failing: int) -> None:
    plan = plan_of()
    found = answer(run_of({plan.cells[0].cell.cell_id: spread(ratio, half)}, plan)).check(parse_bound(text))
    assert (len(found.failing), found.num_judged) == (failing, 1)


def test_bounds_are_corrected_for_their_number() -> None:
    alone, many = plan_of(), plan_of(",".join(str(n) for n in range(17, 37)))
    faint, bound = spread(1.07, 0.022), Bound(column="latency_ms", above=True, value=1.05)
    ids = [planned.cell.cell_id for planned in many.cells]
    assert answer(run_of({alone.cells[0].cell.cell_id: faint}, alone)).check(bound).failing
    beside = answer(run_of({**dict.fromkeys(ids, spread(1.0, 0.005)), ids[0]: faint}, many)).check(bound)
    assert (beside.failing, beside.num_judged) == ((), 20)


def test_only_the_latency_has_a_bound() -> None:
    with pytest.raises(RequestError, match="not params"):
        require_latency(parse_bound("params>1.05"))


def test_what_limits_the_answer_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of()
    same = Revision(name=".", commit="c" * 40, dirty=True)
    found = answer(run_of({plan.cells[0].cell.cell_id: [1.0]}, plan, first=same, second=same, interrupted=True))
    assert found.cells[0].verdict == "undecided: 1 round; at least 2 are needed"
    show(found, None, "markdown")
    page = capsys.readouterr().out
    for words in (
        "the working tree, changed since cccccccccc",
        "the same code",
        "interrupted: not all 7 rounds",
        "measured on: a processor, 1 CPU thread, torch 2.14.1",
        "| configuration |",
    ):
        assert words in page


def test_the_document_holds_every_figure() -> None:
    plan = plan_of()
    found = answer(run_of({plan.cells[0].cell.cell_id: spread(1.2, 0.01)}, plan))
    document = json_of(found, found.check(parse_bound("latency_ms>1.05")))
    (cell,) = document["cells"]
    assert cell["ratio_low"] < cell["ratio"] < cell["ratio_high"]
    assert (document["fail_if"], len(document["failing"]), document["num_judged"]) == ("latency_ms>1.05", 1, 1)
    assert (document["first"], document["num_compared"]) == ({"name": "main", "commit": "a" * 40, "dirty": False}, 1)

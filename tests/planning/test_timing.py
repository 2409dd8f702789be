"""Bursts of how many calls, over how many blocks, and what fits the memory: from the plan and its pilots alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from bench.planning.jobs import control_cell, groups_of, jobs
from bench.planning.timing import (
    BETWEEN_BURSTS,
    BETWEEN_PAIRS,
    BURST_S,
    GROUP_LIMIT_S,
    MAX_BLOCKS,
    MEMORY_SHARE,
    START_S,
    Pilot,
    TimingGroup,
    calls_of_burst,
    noise_of,
    timing_groups,
    uncounted_calls,
)
from bench.spec import COMPARE, LATENCY, PILOT, Plan, Record, Settings
from tests.made_jobs import small_record
from tests.test_timing_groups import label, planned


def pilots(plan: Plan, call_s: float = 1e-3, **fields: Any) -> dict[str, Pilot]:
    return {p.cell.cell_id: Pilot(call_s=call_s, **fields) for p in plan.cells}


def members_of(group: TimingGroup) -> list[tuple[str, bool]]:
    return [(label(member.cell), member.control) for member in group.members]


def test_a_burst_lasts_a_hundredth_of_a_second_and_twice_its_uncounted_calls() -> None:
    assert [calls_of_burst("cpu", s) for s in (1e-6, 1e-3, 0.006, 0.03, 3.0)] == [10_000, 10, 2, 2, 1]
    assert [calls_of_burst("cuda", s) for s in (1e-3, 0.02)] == [20, 2]
    for call_s in (1e-6, 3e-5, 7e-4):
        assert BURST_S["cpu"] <= calls_of_burst("cpu", call_s) * call_s < BURST_S["cpu"] + call_s


def test_calls_are_left_out_while_caches_are_cold_but_not_where_they_are_lost_in_a_call() -> None:
    assert [uncounted_calls("cpu", s) for s in (3e-6, 1e-3, 0.005, 0.05)] == [1334, 4, 1, 1]
    assert uncounted_calls("cuda", 1e-3) == 5
    assert uncounted_calls("cpu", 0.051) == uncounted_calls("cuda", 10.0) == 0


@pytest.mark.parametrize("call_s", [1e-7, 1e-4, 0.05, 0.3, 5.0, 40.0])
def test_blocks_follow_from_the_pilot_within_their_bounds(call_s: float) -> None:
    """They weigh the costs of a block and of fresh processes by what each adds to the variance (Kalibera and Jones 2013)."""
    for sample_s in (0.05, 0.6, 10.0):
        plan = planned(Settings(rounds=2, sample_s=sample_s, limit_s=1e9))
        (group,) = timing_groups(plan, pilots(plan, call_s, setup_s=0.2), None)
        burst_s = call_s * (calls_of_burst("cpu", call_s) + uncounted_calls("cpu", call_s))
        assert group.block_s == pytest.approx(2 * burst_s)
        assert group.setup_s == pytest.approx(2 * (START_S["cpu"] + 0.2))
        assert all(member.num_calls == calls_of_burst("cpu", call_s) for member in group.members)
        best = math.ceil(math.sqrt(group.setup_s / group.block_s * 2) * BETWEEN_BURSTS / BETWEEN_PAIRS)
        most = min(2 * sample_s, GROUP_LIMIT_S) / group.block_s
        assert group.num_blocks == max(1, min(best, MAX_BLOCKS, math.floor(most)))


def test_a_noisy_pilot_asks_for_more_blocks_and_a_quiet_one_for_fewer() -> None:
    plan = planned(Settings(rounds=2, sample_s=10.0, limit_s=1e9))
    usual = BETWEEN_BURSTS * math.sqrt(2) * 0.6745  # the median change of such bursts
    noisy = (pilots(plan, 0.002, setup_s=0.2, changes=(change,) * 7) for change in (0.0, usual, 3 * usual))
    found = [timing_groups(plan, known, None)[0].num_blocks for known in noisy]
    assert found == sorted(set(found))
    assert noise_of([Pilot(call_s=1.0)]) == BETWEEN_BURSTS
    assert noise_of([Pilot(call_s=1.0, changes=(usual,) * 4)]) == pytest.approx(BETWEEN_BURSTS)
    assert noise_of([Pilot(call_s=1.0, changes=(10 * usual,))]) < 3 * BETWEEN_BURSTS  # one change says little


def test_fast_and_slow_cells_have_bursts_of_their_own() -> None:
    plan = planned()
    fast, slow = (p.cell.cell_id for p in plan.cells)
    (group,) = timing_groups(plan, {fast: Pilot(call_s=1e-4), slow: Pilot(call_s=1e-2)}, None)
    assert [member.num_calls for member in group.members] == [100, 2]
    assert group.block_s == pytest.approx(1e-4 * 140 + 1e-2 * 3)


def pilot_records(plan: Plan, call_s: float = 1e-3) -> list[Record]:
    values = {"call_s": call_s, "peak_bytes": 1, "available_bytes": None}
    return [small_record(PILOT, values, subject_id=p.cell.cell_id) for p in plan.cells]


def test_the_design_is_equal_for_all_rounds_and_later_records_change_nothing() -> None:
    plan = planned(Settings(rounds=4))
    known = pilot_records(plan)
    before = [job for job in jobs(plan, known) if job.metric == LATENCY]
    assert len({(job.group, job.num_blocks, job.num_calls) for job in before}) == 1
    assert {job.repeat for job in before} == {0, 1, 2, 3}
    slow = [small_record(LATENCY, {"latency_ms": 1e6}, job.repeat, subject_id=job.subject_id, group=job.group) for job in before[:3]]
    assert [job for job in jobs(plan, [*known, *slow]) if job.metric == LATENCY] == before
    assert [job for job in jobs(plan, pilot_records(plan, 0.5)) if job.metric == LATENCY] != before


def test_a_group_waits_for_all_its_pilots_and_goes_on_without_those_that_failed() -> None:
    plan = planned(models="gmlp,vit,transformer")
    first, second, third = (p.cell.cell_id for p in plan.cells)
    two = {cell_id: Pilot(call_s=1e-3) for cell_id in (first, third)}
    assert timing_groups(plan, two, None) == []
    (group,) = timing_groups(plan, two, None, frozenset({second}))
    assert members_of(group) == [("gmlp-17", False), ("transformer-17", False)]
    assert timing_groups(plan, {}, None, frozenset({first, second, third})) == []


def with_memory(plan: Plan, peaks: Iterable[int], available: int = 100) -> dict[str, Pilot]:
    return {
        p.cell.cell_id: Pilot(call_s=1e-3, peak_bytes=peak, available_bytes=available) for p, peak in zip(plan.cells, peaks, strict=True)
    }


THREE = "gmlp,vit,transformer"


def test_members_that_fit_the_memory_together_stay_together() -> None:
    plan = planned(models=THREE)
    room = int(MEMORY_SHARE * 100)
    assert [len(g.members) for g in timing_groups(plan, with_memory(plan, (20, 20, room - 40)), None)] == [3]
    assert [len(g.members) for g in timing_groups(plan, with_memory(plan, (20, 20, room - 39)), None)] == [2, 2]


def test_a_group_too_large_for_the_memory_splits_into_pairs_with_its_first() -> None:
    plan = planned(models=THREE)
    found = timing_groups(plan, with_memory(plan, (40, 40, 40)), None)
    assert [members_of(g) for g in found] == [
        [("gmlp-17", False), ("vit-17", False)],
        [("gmlp-17", False), ("transformer-17", False)],
    ]
    assert len({g.name for g in found}) == 2


def test_who_fits_with_nobody_is_timed_alone() -> None:
    plan = planned(models=THREE)
    assert [members_of(g) for g in timing_groups(plan, with_memory(plan, (30, 30, 60)), None)] == [
        [("gmlp-17", False), ("vit-17", False)],
        [("transformer-17", False)],
    ]
    alone = timing_groups(plan, with_memory(plan, (70, 70, 70)), None)
    assert sorted(label for g in alone for label, _ in members_of(g)) == ["gmlp-17", "transformer-17", "vit-17"]
    assert {len(g.members) for g in alone} == {1}


def test_memory_that_is_not_known_keeps_a_group_whole() -> None:
    plan = planned(models=THREE)
    assert [len(g.members) for g in timing_groups(plan, pilots(plan, peak_bytes=10**15), None)] == [3]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_control_takes_turns_with_its_cell(position: int) -> None:
    plan = planned(models=THREE, seq="17,65")
    control = plan.cells[position].cell
    for peaks in ((1,) * 6, (20,) * 6, (30,) * 6):  # together; the control in a pair; all in pairs
        groups = timing_groups(plan, with_memory(plan, peaks), control)
        (own,) = [g for g in groups if any(member.control for member in g.members)]
        assert {member.cell for member in own.members if member.control} == {control}
        assert any(member.cell == control and not member.control for member in own.members)


def test_a_control_has_one_second_process() -> None:
    plan = planned(seq="17,33,65")
    groups = timing_groups(plan, pilots(plan), control_cell(plan))
    (own,) = [g for g in groups if any(member.control for member in g.members)]
    assert own.name.startswith(COMPARE)
    assert len(groups) == 5


@pytest.mark.parametrize("call_s", [0.05, 0.5, 2.0, 9.0])
@pytest.mark.parametrize("limit_s", [20.0, 60.0])
def test_bursts_of_many_blocks_stay_well_within_the_limit_of_a_job(call_s: float, limit_s: float) -> None:
    """Warm-up counts too: a cell whose pilot was measured may not time out for the number of its blocks."""
    plan = planned(Settings(rounds=2, limit_s=limit_s))
    for group in timing_groups(plan, pilots(plan, call_s), None):
        burst_s = call_s * (calls_of_burst("cpu", call_s) + uncounted_calls("cpu", call_s))
        assert group.num_blocks == 1 or group.num_blocks * burst_s <= limit_s / 2


def test_what_is_estimated_without_records_has_the_same_groups() -> None:
    plan = planned(models=THREE, seq="17,65")
    assert {g.name for g in groups_of(plan)} == {g.name for g in groups_of(plan, pilot_records(plan))}

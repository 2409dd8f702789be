"""Plan interleaved timing: the bursts and blocks of each group.

In a timing group, configurations take turns. A burst is a series of calls of one configuration; a block has one burst of each.
`bench.timing_groups` says which configurations they are.

A pilot measures the time and memory of one call; its times are not reported. The pilot alone sets the calls per burst and the number of
blocks, so all rounds are equal and later data cannot change them. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.spec import MEASURED, PILOT, Cell, Plan, Record, Settings
from bench.timing_groups import cell_groups, timed_cells

BURST_S = 0.02
"""Target time of a burst.

It is long compared with the timer and a switch between processes, and so short that other work on the machine affects all members alike.
"""
SETTLE_S = {"cpu": 0.0, "cuda": 0.005}
"""Time of uncounted calls after the first call of a burst.

The first call finds cold caches and is never counted. On CUDA, a context switch precedes the burst.
"""
OWN_COLD_S = 0.5
"""Calls longer than this are all counted.

They refill their caches in less than a hundredth of their time.
"""
MIN_BLOCKS, MAX_BLOCKS = 5, 25
LONG_S, MIN_LONG_BLOCKS = 12.0, 3
"""If MIN_BLOCKS blocks would take longer than LONG_S, MIN_LONG_BLOCKS suffice."""
GROUP_LIMIT_S = 60.0
"""Limit on all bursts of one group in one round.

A group whose block takes longer has one block.
"""
LIMIT_SHARE = 0.5
"""Share of a job's time limit for its bursts, not for warm-up."""
MAX_CALLS = 100_000
MEMORY_SHARE = 0.8
"""Share of the available memory that a group's members may fill."""


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The pilot measurement of one cell.

    `call_s`: seconds per call.
    `peak_bytes`: memory used by its process; None if unknown.
    `available_bytes`: memory available at the time; None if unknown.
    """

    call_s: float
    peak_bytes: int | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Member:
    """A cell of a group.

    `control`: whether this is the second process of the A/A control, which times one cell under two names.
    `num_calls`: counted calls of a burst.
    """

    cell: Cell
    control: bool
    num_calls: int


@dataclass(frozen=True, kw_only=True)
class TimingGroup:
    """Cells that take turns in bursts.

    `members`: the first is the reference for the others.
    `num_blocks`: blocks of a round.
    `block_s`: estimated seconds of one block, uncounted calls included.
    """

    name: str
    members: tuple[Member, ...]
    num_blocks: int
    block_s: float


def pilots_of(records: Sequence[Record]) -> dict[str, Pilot]:
    """Return the measured pilots by cell id."""
    return {
        record.subject_id: Pilot(**{field.name: record.outcome.values[field.name] for field in dataclasses.fields(Pilot)})
        for record in records
        if record.metric == PILOT and record.outcome.status == MEASURED
    }


def timing_groups(plan: Plan, pilots: Mapping[str, Pilot], control: Cell | None, failed: frozenset[str] = frozenset()) -> list[TimingGroup]:
    """Return the plan's timing groups whose pilots are all available.

    `control`: the cell that also runs as the A/A control, in its first group.
    `failed`: ids of cells whose pilots failed; they are left out.
    """
    found: list[TimingGroup] = []
    groups = cell_groups(timed_cells(plan), plan)
    home = next((name for name, cells in groups if control in cells), "")
    for name, cells in groups:
        alive = [cell for cell in cells if cell.cell_id not in failed]
        if alive and all(cell.cell_id in pilots for cell in alive):
            second = control if name == home and control in alive else None
            found += _fitting(name, alive, second, pilots, plan.settings)
    return found


def _fitting(
    name: str, cells: Sequence[Cell], second: Cell | None, pilots: Mapping[str, Pilot], settings: Settings
) -> Iterator[TimingGroup]:
    """Yield the group, or parts of it that fit the memory.

    The parts are pairs of the first member with each other member, and a pair of the `second` cell with its control. If a pair
    does not fit, its other member runs alone.
    """
    control = [(second, True)] if second else []
    everyone = [*((cell, False) for cell in cells), *control]
    if len(everyone) == 1 or fits(everyone, pilots):
        yield designed(name, everyone, pilots, settings)
        return
    first, *others = cells
    fitting = [cell for cell in others if fits([(first, False), (cell, False)], pilots)]
    for number, other in enumerate(others, start=1):
        if other in fitting:
            yield designed(f"{name}/pair {number}", [(first, False), (other, False)], pilots, settings)
        else:
            yield designed(f"{name}/alone {number}", [(other, False)], pilots, settings)
    if not fitting:
        yield designed(f"{name}/alone 0", [(first, False)], pilots, settings)
    if second and fits(pair := [(second, False), *control], pilots):
        yield designed(f"{name}/pair control", pair, pilots, settings)


def fits(members: Sequence[tuple[Cell, bool]], pilots: Mapping[str, Pilot]) -> bool:
    """Return whether all members fit the memory together.

    True if the available memory is unknown.
    """
    found = [pilots[cell.cell_id] for cell, _ in members]
    headroom = [pilot.available_bytes for pilot in found if pilot.available_bytes is not None]
    return not headroom or sum(pilot.peak_bytes or 0 for pilot in found) <= MEMORY_SHARE * min(headroom)


def designed(name: str, members: Sequence[tuple[Cell, bool]], pilots: Mapping[str, Pilot], settings: Settings) -> TimingGroup:
    """Set calls per burst and number of blocks from the pilots.

    `members`: (cell, whether it is the second process of the A/A control).
    """
    calls = {cell.cell_id: calls_of_burst(pilots[cell.cell_id].call_s) for cell, _ in members}
    bursts_s = [
        pilots[cell.cell_id].call_s * (calls[cell.cell_id] + uncounted_calls(cell.workload.device, pilots[cell.cell_id].call_s))
        for cell, _ in members
    ]
    block_s = math.fsum(bursts_s)
    least = max(MIN_LONG_BLOCKS, min(MIN_BLOCKS, int(LONG_S / block_s)))
    wanted = max(least, min(MAX_BLOCKS, int(len(members) * settings.sample_s / block_s)))
    most = int(min(GROUP_LIMIT_S / block_s, LIMIT_SHARE * settings.limit_s / max(bursts_s)))
    return TimingGroup(
        name=name,
        members=tuple(Member(cell=cell, control=control, num_calls=calls[cell.cell_id]) for cell, control in members),
        num_blocks=max(1, min(wanted, most)),
        block_s=block_s,
    )


def calls_of_burst(call_s: float) -> int:
    """Return the number of counted calls of a burst, at least one."""
    return max(1, min(MAX_CALLS, math.ceil(BURST_S / max(call_s, 1e-9))))


def uncounted_calls(device: str, call_s: float) -> int:
    """Return the number of uncounted calls at the start of a burst.

    These find cold caches, or a GPU that has just switched contexts.
    """
    if call_s > OWN_COLD_S:
        return 0
    return 1 + min(MAX_CALLS, math.ceil(SETTLE_S[device] / max(call_s, 1e-9)))

"""Plan interleaved timing: the bursts and blocks of each group.

In a timing group, configurations take turns. A burst is a series of calls of one configuration; a block has one burst of each.
`bench.timing_groups` says which configurations they are.

A pilot measures the time and memory of one call; its times are not reported. The pilot alone sets the calls per burst and the number of
blocks, so all rounds are equal and later data cannot change them. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.spec import MEASURED, PILOT, Cell, Plan, Record, Settings
from bench.timing_groups import cell_groups, timed_cells

BURST_S = {"cpu": 0.01, "cuda": 0.02}
"""Target time of a burst.

It is long compared with the timer and a switch between processes, and so short that other work on the machine affects all members alike.
"""
COLD_S = {"cpu": 0.004, "cuda": 0.005}
"""Time of uncounted calls at the start of a burst, one at least.

On a CPU calls are slower for some 3 ms, by 0.5 to 1 ms in all, as caches fill again (docs/decisions/0020). On CUDA a context switch precedes
the burst.
"""
OWN_COLD_S = {"cpu": 0.05, "cuda": 0.5}
"""Calls longer than this are all counted: what is cold then adds a hundredth or two, to every member alike. On a GPU that was not measured."""
PILOT_S = 0.25
"""Time of a pilot's bursts."""
MAX_BLOCKS = 25
GROUP_LIMIT_S = 60.0
"""Limit on all bursts of one group in one round.

A group whose block takes longer has one block.
"""
BETWEEN_PAIRS, BETWEEN_BURSTS = 0.015, 0.022
"""Standard deviations of the log-ratio between fresh pairs of pinned processes, and of the log time of one burst.

Two quiet runs of 20 rounds had 0.013 to 0.027 and, from the 0.019 to 0.041 of a ratio, 0.013 to 0.029 (docs/decisions/0020).
"""
NOISE_WEIGHT = 20
"""What is known beforehand of the noise of bursts counts as much as so many changes in a pilot, which sees milliseconds alone."""
LIMIT_SHARE = 0.5
"""Share of a job's time limit for its bursts, not for warm-up."""
MAX_CALLS = 100_000
NORMAL_MEDIAN = 0.6745
"""Median of the absolute value of a standard normal variable."""
FIRST_CALLS = 1.2
"""Time of a first call, in calls."""
START_S, WARM_S = {"cpu": 0.05, "cuda": 1.0}, {"cpu": 0.06, "cuda": 0.4}
"""Time to start a process, and to build and warm up a small model in it besides the first call."""
MEMORY_SHARE = 0.8
"""Share of the available memory that a group's members may fill."""


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The pilot measurement of one cell.

    `call_s`: seconds per call, in the fastest call or burst.
    `setup_s`: seconds to build and warm up its process.
    `changes`: absolute log-ratios of neighbouring bursts.
    `peak_bytes`: memory used by its process; None if unknown.
    `available_bytes`: memory available at the time; None if unknown.
    """

    call_s: float
    setup_s: float = 0.0
    changes: tuple[float, ...] = ()
    peak_bytes: int | None = None
    available_bytes: int | None = None


PILOT_FIELDS = tuple(found.name for found in dataclasses.fields(Pilot))


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
    `setup_s`: estimated seconds to start, build and warm up all members.
    """

    name: str
    members: tuple[Member, ...]
    num_blocks: int
    block_s: float
    setup_s: float


def pilots_of(records: Sequence[Record]) -> dict[str, Pilot]:
    """Return the measured pilots by cell id."""
    return {
        record.subject_id: _pilot_of(record.outcome.values)
        for record in records
        if record.metric == PILOT and record.outcome.status == MEASURED
    }


def _pilot_of(values: Mapping[str, Any]) -> Pilot:
    known = {name: values[name] for name in PILOT_FIELDS if name in values}
    return Pilot(**{**known, "changes": tuple(known.get("changes", ()))})


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

    A round has as many blocks as give the narrowest interval for the time of all rounds (Kalibera and Jones 2013, "Rigorous benchmarking in
    reasonable time", Sec. 6): sqrt(c2 / c1) s1 / s2, with c1 and c2 the seconds of a block and of fresh members, and s1 and s2 the standard
    deviations of the log-ratio between blocks and between fresh members. It has no more than fit `sample_s` per member, but at least one.

    `members`: (cell, whether it is the second process of the A/A control).
    """
    found = [pilots[cell.cell_id] for cell, _ in members]
    device = members[0][0].workload.device
    calls = [calls_of_burst(device, pilot.call_s) for pilot in found]
    bursts_s = [pilot.call_s * (num + uncounted_calls(device, pilot.call_s)) for pilot, num in zip(found, calls, strict=True)]
    block_s, setup_s = math.fsum(bursts_s), math.fsum(setup_seconds(pilot, device) for pilot in found)
    best = math.sqrt(2 * setup_s / block_s) * noise_of(found) / BETWEEN_PAIRS
    fitting = max(1.0, len(members) * settings.sample_s / block_s)
    most = min(GROUP_LIMIT_S / block_s, LIMIT_SHARE * settings.limit_s / max(bursts_s))
    return TimingGroup(
        name=name,
        members=tuple(Member(cell=cell, control=control, num_calls=num) for (cell, control), num in zip(members, calls, strict=True)),
        num_blocks=max(1, int(min(math.ceil(best), fitting, most, MAX_BLOCKS))),
        block_s=block_s,
        setup_s=setup_s,
    )


def noise_of(pilots: Sequence[Pilot]) -> float:
    """Return the standard deviation of a burst's log time: BETWEEN_BURSTS, drawn to the median change between the pilots' bursts."""
    changes = [change for pilot in pilots for change in pilot.changes]
    seen = statistics.median(changes) / (math.sqrt(2) * NORMAL_MEDIAN) if changes else 0.0
    return math.sqrt((NOISE_WEIGHT * BETWEEN_BURSTS**2 + len(changes) * seen**2) / (NOISE_WEIGHT + len(changes)))


def setup_seconds(pilot: Pilot, device: str) -> float:
    """Estimate the time to start, build and warm up a process, in seconds."""
    return START_S[device] + (pilot.setup_s or WARM_S[device] + FIRST_CALLS * pilot.call_s)


def calls_of_burst(device: str, call_s: float) -> int:
    """Return the number of counted calls of a burst, at least one.

    After uncounted calls a burst counts for twice as long as they take.
    """
    wanted = math.ceil(BURST_S[device] / max(call_s, 1e-9))
    return max(1, min(MAX_CALLS, max(wanted, 2 * uncounted_calls(device, call_s))))


def uncounted_calls(device: str, call_s: float) -> int:
    """Return the number of uncounted calls at the start of a burst.

    These find cold caches, or a GPU that has just switched contexts.
    """
    return 0 if call_s > OWN_COLD_S[device] else min(MAX_CALLS, math.ceil(COLD_S[device] / max(call_s, 1e-9)))

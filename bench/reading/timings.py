"""Hold a run's times by round, and compute ratios between cells.

Cells of one timing group took turns: in each block of a round, every member ran one burst of calls. Imports no torch.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.intervals import Interval, SignedRanks, signed_ranks
from bench.spec import GROWTH, MEASURED, Record

CONTROL_MARK = "/control"
"""Suffix of a cell id that marks the control's second process."""
_Session = tuple[str, int]
"""Group and round."""


class Timings(Mapping[str, Mapping[int, float]]):
    """Latency in ms by cell id and round.

    `bursts`: by group and round, the times of each member in ms, one per block.

    To compare cells of one group, use `together`: it keeps the ratios within each block and cancels slowdowns common to all members.
    """

    def __init__(
        self,
        by_cell: Mapping[str, Mapping[int, float]] | None = None,
        bursts: Mapping[_Session, Mapping[str, Sequence[float]]] | None = None,
    ) -> None:
        self._by_cell = by_cell or {}
        self._ratios: dict[tuple[str, str], dict[int, float]] = {}
        self._centres: dict[tuple[str, str], SignedRanks | None] = {}
        self._bursts: dict[str, dict[str, dict[int, Sequence[float]]]] = defaultdict(lambda: defaultdict(dict))
        for (group, place), members in (bursts or {}).items():
            for cell_id, times in members.items():
                self._bursts[cell_id][group][place] = times

    def __getitem__(self, cell_id: str) -> Mapping[int, float]:
        return self._by_cell[cell_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_cell)

    def __len__(self) -> int:
        return len(self._by_cell)

    def together(self, cell_ids: Sequence[str]) -> list[dict[int, float]]:
        """Return the times of each cell in rounds common to all.

        Times are in ms, by round. Ratios between them are medians over the blocks of one group. If several groups hold all cells, the
        group with the most rounds is used; if none does, the plain times of the rounds.
        """
        group, rounds = self._common_bursts(cell_ids)
        if not rounds:
            return self._common_rounds(cell_ids)
        by_round = {place: _levelled([self._bursts[cell_id][group][place] for cell_id in cell_ids]) for place in rounds}
        return [{place: values[index] for place, values in by_round.items()} for index in range(len(cell_ids))]

    def log_ratios(self, first: str, second: str) -> dict[int, float]:
        """Return the log-ratio of two cells' times, by round.

        It is the first cell's time over the second's; for cells of one group, the median over blocks.
        """
        if (first, second) not in self._ratios:
            self._ratios[first, second] = self._log_ratios(first, second)
        return self._ratios[first, second]

    def centre(self, first: str, second: str) -> SignedRanks | None:
        """Return the centre of `log_ratios`, whose interval has any level; None with fewer than two rounds."""
        if (first, second) not in self._centres:
            self._centres[first, second] = signed_ranks(list(self.log_ratios(first, second).values()))
        return self._centres[first, second]

    def _log_ratios(self, first: str, second: str) -> dict[int, float]:
        group, rounds = self._common_bursts((first, second))
        if not rounds:
            times, others = self._common_rounds([first, second])
            return {place: math.log(times[place] / others[place]) for place in times}
        own, other = (self._bursts[cell_id][group] for cell_id in (first, second))
        return {place: statistics.median(math.log(ms / by) for ms, by in zip(own[place], other[place], strict=True)) for place in rounds}

    def are_interleaved(self, cell_ids: Sequence[str]) -> bool:
        """Return whether the cells took turns in at least one round."""
        return bool(self._common_bursts(cell_ids)[1])

    def num_blocks(self, cell_ids: Sequence[str]) -> int | None:
        """Return the number of blocks in which the cells took turns.

        The number is per round; None if they did not take turns.
        """
        group, rounds = self._common_bursts(cell_ids)
        return len(self._bursts[cell_ids[0]][group][rounds[0]]) if rounds else None

    def _common_bursts(self, cell_ids: Sequence[str]) -> tuple[str, list[int]]:
        """Return the group that timed all the cells together, and its rounds.

        Of several groups, the one with the most rounds is used; without any, there are no rounds.
        """
        members = [self._bursts.get(cell_id, {}) for cell_id in cell_ids]
        if len(members) < 2:
            return "", []
        groups = set(members[0]).intersection(*members[1:])
        found = [(group, sorted(set.intersection(*(set(member[group]) for member in members)))) for group in groups]
        return max(found, key=lambda one: (len(one[1]), one), default=("", []))

    def _common_rounds(self, cell_ids: Sequence[str]) -> list[dict[int, float]]:
        found = [self._by_cell.get(cell_id, {}) for cell_id in cell_ids]
        common = sorted(set.intersection(*(set(times) for times in found))) if found else []
        return [{place: times[place] for place in common} for times in found]


def _levelled(members: Sequence[Sequence[float]]) -> list[float]:
    """Return one time for each member: its median over the blocks, each relative to the block's level."""
    logs = [[math.log(ms) for ms in bursts] for bursts in members]
    levels = [statistics.fmean(block) for block in zip(*logs, strict=True)]
    middle = statistics.median(levels)
    return [math.exp(middle + statistics.median([log - level for log, level in zip(member, levels, strict=True)])) for member in logs]


def home_groups(records: Sequence[Record]) -> dict[str, str]:
    """Return the group that each cell's latency comes from, by cell id.

    A `compare` group takes precedence over a `growth` group.
    """
    groups: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if record.group and record.outcome.status == MEASURED:
            groups[record.subject_id].add(record.group)
    return {cell_id: min(names, key=lambda name: (name.startswith(GROWTH), name)) for cell_id, names in groups.items()}


def timings_of(records: Sequence[Record], *, with_control: bool = False) -> Timings:
    """Return the timings of the measured latencies.

    `with_control`: include the second process of the control, under its cell's id with `CONTROL_MARK`.
    """
    measured = [r for r in records if r.metric == "latency" and r.outcome.status == MEASURED and (with_control or not r.control)]
    home = home_groups(measured)
    by_cell: dict[str, dict[int, float]] = defaultdict(dict)
    started: dict[_Session, str] = {}
    bursts: dict[_Session, dict[str, Sequence[float]]] = defaultdict(dict)
    for record in measured:
        cell_id, session = f"{record.subject_id}{CONTROL_MARK if record.control else ''}", (record.group, record.repeat)
        if record.control or record.group == home.get(record.subject_id, ""):
            by_cell[cell_id][record.repeat] = float(record.outcome.values["latency_ms"])
        if record.group and started.setdefault(session, record.outcome.started_at) == record.outcome.started_at:
            bursts[session][cell_id] = record.outcome.samples["wall_ms"]
    return Timings(by_cell, bursts)


def ratio_of(first: str, second: str, timings: Timings, level: float) -> Interval | None:
    """Return the first cell's time over the second's, with its interval over rounds; None with fewer than two rounds."""
    found = timings.centre(first, second)
    return found.interval(level).exp() if found else None


def ratio_columns(cell_id: str, reference_id: str, label: str, timings: Timings, level: float) -> dict[str, Any]:
    """Return the columns of a cell's ratio to its reference.

    `label`: the name of the reference. Empty with fewer than two common rounds; without bounds if they are too few for the level.
    """
    found = ratio_of(cell_id, reference_id, timings, level)
    if found is None:
        return {}
    logs, (low, high) = timings.log_ratios(cell_id, reference_id).values(), found.bounds
    return {
        "ratio": found.estimate,
        "ratio_low": low,
        "ratio_high": high,
        "ratio_min": math.exp(min(logs)),
        "ratio_max": math.exp(max(logs)),
        "ratio_to": label,
        "num_blocks": timings.num_blocks([cell_id, reference_id]),
    }

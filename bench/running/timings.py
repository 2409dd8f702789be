"""The times of a run by cell and round, and ratios between cells whose bursts were interleaved. Imports no torch."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.intervals import Interval, ratio_over_rounds
from bench.planning.timing import home_groups
from bench.spec import MEASURED, Record

CONTROL_MARK = "/control"
"""Behind the id of a cell: the second process of the A/A control."""
_Session = tuple[str, int]
"""Group and round."""


class Timings(Mapping[str, Mapping[int, float]]):
    """Latency in ms by cell id and round. `bursts`: by group and round, the times of each member in ms, one per block.

    Between cells of one group, compare times of `together`: of each block they keep the ratios, and lose what slowed all members down alike.
    """

    def __init__(
        self,
        by_cell: Mapping[str, Mapping[int, float]] | None = None,
        bursts: Mapping[_Session, Mapping[str, Sequence[float]]] | None = None,
    ) -> None:
        self._by_cell = by_cell or {}
        self._bursts = bursts or {}
        self._sessions: dict[str, set[_Session]] = defaultdict(set)
        for session, members in self._bursts.items():
            for cell_id in members:
                self._sessions[cell_id].add(session)

    def __getitem__(self, cell_id: str) -> Mapping[int, float]:
        return self._by_cell[cell_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_cell)

    def __len__(self) -> int:
        return len(self._by_cell)

    def together(self, cell_ids: Sequence[str]) -> list[dict[int, float]]:
        """Times of each cell, in ms by round, in rounds that all have; ratios between them are medians over blocks of one group.

        Of several groups that hold all cells, the one with most rounds. Without one, the times of the rounds as they are.
        """
        sessions = self._common_sessions(cell_ids)
        if not sessions:
            return self._common_rounds(cell_ids)
        by_round = {session[1]: self._levelled(session, cell_ids) for session in sessions}
        return [{place: values[index] for place, values in by_round.items()} for index in range(len(cell_ids))]

    def log_ratios(self, first: str, second: str) -> dict[int, float]:
        """The logarithm of the first cell's time over the second's, by round, as `together` has them."""
        sessions = self._common_sessions([first, second])
        if not sessions:
            times, others = self._common_rounds([first, second])
            return {place: math.log(times[place] / others[place]) for place in times}
        blocks = {session[1]: zip(*(self._bursts[session][cell_id] for cell_id in (first, second)), strict=True) for session in sessions}
        return {place: statistics.median(math.log(ms / other) for ms, other in pairs) for place, pairs in blocks.items()}

    def are_interleaved(self, cell_ids: Sequence[str]) -> bool:
        """Were they timed in one group, in a round at least?"""
        return bool(self._common_sessions(cell_ids))

    def in_groups(self, kind: str) -> set[str]:
        """The cells that were timed in a group whose name begins so."""
        return {cell_id for cell_id, sessions in self._sessions.items() if any(group.startswith(kind) for group, _ in sessions)}

    def num_blocks(self, cell_ids: Sequence[str]) -> int | None:
        """Of each round in which they took turns; None where they did not."""
        sessions = self._common_sessions(cell_ids)
        return len(self._bursts[sessions[0]][cell_ids[0]]) if sessions else None

    def _common_sessions(self, cell_ids: Sequence[str]) -> list[_Session]:
        """Of one group, by round."""
        if len(cell_ids) < 2:
            return []
        by_group: dict[str, list[_Session]] = defaultdict(list)
        for session in set.intersection(*(self._sessions.get(cell_id, set()) for cell_id in cell_ids)):
            by_group[session[0]].append(session)
        return max(map(sorted, by_group.values()), key=lambda found: (len(found), found), default=[])

    def _common_rounds(self, cell_ids: Sequence[str]) -> list[dict[int, float]]:
        found = [self._by_cell.get(cell_id, {}) for cell_id in cell_ids]
        common = sorted(set.intersection(*(set(times) for times in found))) if found else []
        return [{place: times[place] for place in common} for times in found]

    def _levelled(self, session: _Session, cell_ids: Sequence[str]) -> list[float]:
        logs = [[math.log(ms) for ms in self._bursts[session][cell_id]] for cell_id in cell_ids]
        levels = [statistics.fmean(block) for block in zip(*logs, strict=True)]
        middle = statistics.median(levels)
        of_level = [[log - level for log, level in zip(member, levels, strict=True)] for member in logs]
        return [math.exp(middle + statistics.median(member)) for member in of_level]


def timings_of(records: Sequence[Record], *, with_control: bool = False) -> Timings:
    """From the measured latencies. `with_control`: the control's second process too, by its cell's id and `CONTROL_MARK`."""
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
    """The first cell's time over the second's, with its t-interval over rounds (`bench.intervals.round_mean`); None below two rounds."""
    return ratio_over_rounds(list(timings.log_ratios(first, second).values()), level)


def ratio_columns(cell_id: str, reference_id: str, label: str, timings: Timings, level: float) -> dict[str, Any]:
    """`ratio` and what goes with it, of a cell to its group's reference."""
    found = ratio_of(cell_id, reference_id, timings, level)
    if found is None:
        return {}
    blocks = timings.num_blocks([cell_id, reference_id])
    return {"ratio": found.estimate, "ratio_low": found.low, "ratio_high": found.high, "ratio_to": label, "num_blocks": blocks}

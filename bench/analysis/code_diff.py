"""Compare the latency of two revisions of the code, timed in turn.

Each cell becomes slower, faster, or equal within the margin. This module imports no torch.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.analysis.diff import LATENCY_COLUMN, Bound, BoundCheck
from bench.analysis.frame import cell_names
from bench.analysis.latency_tests import MIN_TEST_ROUNDS, CellComparison, LatencyDifference, cells_past
from bench.analysis.ranking import decided, rounds_needed
from bench.intervals import INTERLEAVED_CONTROL_LEVEL, Interval, ratio_over_rounds, round_mean
from bench.running.code_run import CONTROL, FIRST, NAMES, SECOND, CellRound, CodeRun
from bench.running.store import StoredRun
from bench.running.table import rows_of
from bench.running.timings import Timings
from bench.spec import MEASURED, RequestError


@dataclass(frozen=True, kw_only=True)
class CellAnswer:
    """One cell under revisions A and B.

    `num_rounds`: rounds in which both were timed.
    `latency_ms`, `first_call_ms`: medians over rounds of A and of B; None if not measured.
    `failed`: the revision that was not measured, with status and reason.
    `ratio`: time of B over time of A with its plain 95 % interval; None below two rounds.
    `control`: the second process of A over the first, with its 99.9 % interval.
    `different`, `equal`, `rounds_needed`: as in `bench.analysis.ranking.decided` and `rounds_needed`.
    `margin`: the relative difference within which two times are equal.
    """

    cell_id: str
    name: str
    num_rounds: int
    latency_ms: tuple[float | None, float | None]
    first_call_ms: tuple[float | None, float | None]
    failed: str = ""
    ratio: Interval | None = None
    control: Interval | None = None
    difference: LatencyDifference | None = None
    different: bool = False
    equal: bool = False
    rounds_needed: int | None = None
    margin: float = 0.0

    @property
    def verdict(self) -> str:
        """The answer in words."""
        if self.failed:
            return self.failed
        if self.ratio is None:
            return f"undecided: {self.num_rounds} round{'' if self.num_rounds == 1 else 's'}; at least {MIN_TEST_ROUNDS} are needed"
        found = [f"B {'slower' if self.ratio.estimate > 1 else 'faster'}"] if self.different else []
        found += [f"equal within {100 * self.margin:g} %"] if self.equal else []
        if found:
            return ", ".join(found)
        return f"undecided: {f'about {self.rounds_needed} rounds' if self.rounds_needed else 'not even 1,000 rounds'} would decide"

    @property
    def control_holds(self) -> bool | None:
        """Whether the control's interval contains 1; None without a control."""
        return self.control.contains(1.0) if self.control else None


@dataclass(frozen=True, kw_only=True)
class CodeAnswer:
    """The answers for all cells, in the order of the plan.

    Decisions hold jointly for `num_compared` cells (Bonferroni).
    """

    run: CodeRun
    cells: tuple[CellAnswer, ...]
    num_compared: int

    def check(self, bound: Bound) -> BoundCheck:
        """Hold ratios against a bound by one-sided t-tests.

        Holm's correction covers all judged cells.
        """
        judged = [cell for cell in self.cells if cell.difference]
        tested = [CellComparison(cell_id=cell.cell_id, verdict="", difference=cell.difference) for cell in judged]
        past = {found.cell_id for found in cells_past(tested, bound.value, above=bound.above)}
        failing = tuple(f"{c.name}: x {c.ratio.estimate:.3g}" for c in judged if c.ratio and c.cell_id in past)
        return BoundCheck(bound=bound, failing=failing, num_judged=len(judged))


def require_latency(bound: Bound) -> Bound:
    """Return the bound; raise RequestError unless it is on latency."""
    if bound.column != LATENCY_COLUMN:
        raise RequestError(f"--code measures latency, not {bound.column}", f"try --fail-if '{LATENCY_COLUMN}>1.05'")
    return bound


def answer(run: CodeRun) -> CodeAnswer:
    """Compare A and B cell by cell.

    A cell that failed in either revision decides nothing; its measured rounds are still shown.
    """
    names = cell_names(rows_of(StoredRun(folder=Path(), plan=run.plan, environment=run.environment, records=())))
    rounds: dict[str, list[CellRound]] = {planned.cell.cell_id: [] for planned in run.plan.cells}
    for done in run.rounds:
        rounds[done.cell_id].append(done)
    logs = {cell_id: _log_ratios(found, SECOND) for cell_id, found in rounds.items()}
    num_compared = sum(len(found) >= MIN_TEST_ROUNDS and not run.failure(cell_id) for cell_id, found in logs.items())
    cells = tuple(_cell_answer(cell_id, names[cell_id], found, logs[cell_id], num_compared, run) for cell_id, found in rounds.items())
    return CodeAnswer(run=run, cells=cells, num_compared=num_compared)


def _cell_answer(
    cell_id: str, name: str, rounds: Sequence[CellRound], logs: Sequence[float], num_compared: int, run: CodeRun
) -> CellAnswer:
    failure, margin = run.failure(cell_id), run.plan.settings.margin
    mean = round_mean(logs) if len(logs) >= MIN_TEST_ROUNDS and not failure else None
    different, equal = decided(mean, margin, num_compared) if mean else (False, False)
    return CellAnswer(
        cell_id=cell_id,
        name=name,
        num_rounds=len(logs),
        latency_ms=_medians(rounds, "latency_ms"),
        first_call_ms=_medians(rounds, "first_call_ms"),
        failed=f"{NAMES[failure[0]]}: {failure[1].status}: {failure[1].reason}" if failure else "",
        ratio=ratio_over_rounds(logs),
        control=ratio_over_rounds(_log_ratios(rounds, CONTROL), INTERLEAVED_CONTROL_LEVEL),
        difference=LatencyDifference(estimate=mean.mean, parts=[(mean.error**2, mean.degrees)]) if mean else None,
        different=different,
        equal=equal,
        rounds_needed=rounds_needed(mean, margin, num_compared) if mean and not (different or equal) else None,
        margin=margin,
    )


def _log_ratios(rounds: Sequence[CellRound], member: str) -> list[float]:
    """Return the log ratios of a member's time over the first member's.

    There is one per round in which both were measured: the median over blocks.
    """
    bursts = {
        ("", done.repeat): {name: outcome.samples["wall_ms"] for name, outcome in done.outcomes.items() if outcome.status == MEASURED}
        for done in rounds
    }
    return list(Timings(bursts=bursts).log_ratios(member, FIRST).values())


def _medians(rounds: Sequence[CellRound], value: str) -> tuple[float | None, float | None]:
    by_member = [[done.outcomes[member] for done in rounds] for member in (FIRST, SECOND)]
    first, second = ([float(found.values[value]) for found in outcomes if found.status == MEASURED] for outcomes in by_member)
    return statistics.median(first) if first else None, statistics.median(second) if second else None

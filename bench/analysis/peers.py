"""Our models beside the peers': ratios of times paired by round, by cell and over all cells of a part."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.significance import holm
from bench.intervals import LEVEL, Interval, ratio_over_rounds, round_mean
from bench.measure.engines import EAGER
from bench.running.timings import Timings
from bench.spec import FASTEST_PEER, MEASURED, Part

OURS = "ours"
BEST_ARM = "ours, best engine"
SHIPPED = "best engine / as shipped"
"""The kind of pair that the targets are about: ours with its best engine, the peer as a user gets it (eager)."""
Row = Mapping[str, Any]
LogRatios = Mapping[int, float]
"""By round: the logarithm of ours over the peer's time."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one implementation of a family stands beside another: equal sizes, input and workload but for the engine."""

    part: str
    family: str
    phase: str
    dtype: str
    device: str
    seq_len: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One cell of a place: whose it is (`ours`, or the peer's name), and whether it is ours with its best engine."""

    side: str
    engine: str
    is_best: bool
    row: Row

    @property
    def cell_id(self) -> str:
        return str(self.row["cell_id"])

    @property
    def is_reference(self) -> bool:
        """Is it what the answers of all others are compared with?"""
        return self.side == OURS and self.engine == EAGER

    @property
    def output_error(self) -> float | None:
        return self._error("output_error")

    @property
    def gradient_error(self) -> float | None:
        return self._error("gradient_error")

    def _error(self, column: str) -> float | None:
        value = self.row.get(column)
        return None if is_empty(value) else float(value)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A cell that is compared with nothing, and why."""

    place: Place
    contender: Contender
    reason: str


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Ours over a peer at one place. `kind`: `SHIPPED`, or with one engine on both sides (`both_with`). `ratio`: the geometric mean over rounds with
    its 95 % t-interval; None where fewer than two rounds have both. Of the pairs against the fastest peer: `joint`, the interval that holds for all
    of them together (Bonferroni), and `p_adjusted`, of equal times (Holm)."""

    place: Place
    peer: str
    kind: str
    ours: Contender
    theirs: Contender
    logs: LogRatios
    ratio: Interval | None
    joint: Interval | None = None
    p_adjusted: float | None = None

    @property
    def is_shown_faster(self) -> bool:
        """Ours takes less time, by Holm's test over all pairs against the fastest peer."""
        return self.joint is not None and self.joint.estimate < 1 and self.p_adjusted is not None and self.p_adjusted < 1 - LEVEL


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The geometric mean of a part's ratios over its places, with a t-interval over rounds; `peer` may be `FASTEST_PEER`, of each place its own.

    `num_places` went in, of `num_planned`. None where fewer than two rounds have all of them.
    """

    part: str
    phase: str
    peer: str
    kind: str
    ratio: Interval | None
    num_places: int
    num_planned: int


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A run's comparison with peers. `places`: all that were planned. `fastest`: ours with its best engine against the peer of the smallest median
    among those as shipped, one per place that has both."""

    places: tuple[Place, ...]
    contenders: Mapping[Place, tuple[Contender, ...]]
    pairs: tuple[Pair, ...]
    fastest: tuple[Pair, ...]
    means: tuple[Mean, ...]
    excluded: tuple[Excluded, ...]


def standing_of(parts: Sequence[Part], rows: Mapping[str, Row], timings: Timings) -> Standing | None:
    """From the parts that have an arm `BEST_ARM`; None where no part has. `rows` by cell id; arms are named `side` or `side, engine`.

    Cells whose answers differ (`equal` is False) or that were not measured in full are excluded and named.
    """
    contenders: dict[Place, tuple[Contender, ...]] = {}
    excluded: list[Excluded] = []
    for part in parts:
        if any(arm.name == BEST_ARM for arm in part.arms):
            for place, found in _contenders(part, rows).items():
                objections = {contender.cell_id: _objection(contender, timings) for contender in found}
                excluded += [Excluded(place=place, contender=c, reason=objections[c.cell_id]) for c in found if objections[c.cell_id]]
                contenders[place] = tuple(c for c in found if not objections[c.cell_id])
    if not contenders:
        return None
    pairs = [pair for place, found in contenders.items() for pair in _pairs(place, found, timings)]
    fastest = _jointly([pair for place in contenders if (pair := _against_fastest(place, pairs, timings))])
    return Standing(
        places=tuple(contenders),
        contenders=contenders,
        pairs=tuple(pairs),
        fastest=tuple(fastest),
        means=tuple(_means(tuple(contenders), pairs, fastest)),
        excluded=tuple(excluded),
    )


def both_with(engine: str) -> str:
    """The kind of pair in which both sides run with this engine."""
    return f"both {engine}"


def is_empty(value: Any) -> bool:
    return value is None or value == "" or bool(pandas.isna(value))


def mean_ratio(pairs: Sequence[Pair]) -> Interval | None:
    """The geometric mean over pairs, round by round, with a t-interval over the rounds that have all of them; None for fewer than two."""
    return mean_of_logs([pair.logs for pair in pairs])


def mean_of_logs(found: Sequence[LogRatios]) -> Interval | None:
    """As `mean_ratio`, of logarithms by round."""
    common = sorted(set.intersection(*(set(logs) for logs in found))) if found else []
    return ratio_over_rounds([statistics.fmean(logs[place] for logs in found) for place in common])


def _contenders(part: Part, rows: Mapping[str, Row]) -> dict[Place, list[Contender]]:
    """By place. A cell of two arms (the best engine is one of those compared) stands once, as the best."""
    found: dict[Place, dict[str, Contender]] = {}
    arms = sorted(part.arms, key=lambda arm: arm.name != BEST_ARM)
    for arm in arms:
        for row in (rows[cell_id] for cell_id in arm.cells if cell_id in rows):
            contender = Contender(side=arm.name.partition(", ")[0], engine=str(row["engine"]), is_best=arm.name == BEST_ARM, row=row)
            found.setdefault(_place(part, row, rows), {}).setdefault(contender.cell_id, contender)
    return {place: list(cells.values()) for place, cells in found.items()}


def _place(part: Part, row: Row, rows: Mapping[str, Row]) -> Place:
    """The family is ours, whatever the peer's cell says."""
    best = next(arm for arm in part.arms if arm.name == BEST_ARM)
    family = next((str(rows[cell_id]["family"]) for cell_id in best.cells if cell_id in rows), "")
    return Place(
        part=part.name,
        family=family,
        phase=str(row["phase"]),
        dtype=str(row["dtype"]),
        device=str(row["device"]),
        seq_len=int(row["seq_len"]),
        batch_size=int(row["batch_size"]),
    )


def _objection(contender: Contender, timings: Timings) -> str:
    """Why a cell must not be compared; "" where it may."""
    equal, errors = contender.row.get("equal"), {"output": contender.output_error, "gradient": contender.gradient_error}
    if not is_empty(equal) and not bool(equal):
        known = ", ".join(f"{name} error {error:.1e}" for name, error in errors.items() if error is not None)
        return f"its answers differ{f': {known}' if known else ''}"
    status, reason = contender.row.get("status"), contender.row.get("reason")
    if status != MEASURED:  # times of the rounds that did end would be those of the quick ones
        return f"not measured in full: {status}{'' if is_empty(reason) else f', {reason}'}"
    return "" if timings.get(contender.cell_id) else "it was not timed"


def _pairs(place: Place, found: Sequence[Contender], timings: Timings) -> Iterator[Pair]:
    """Ours with its best engine against each peer as shipped, then each engine that both sides ran with."""
    ours = [contender for contender in found if contender.side == OURS]
    theirs = [contender for contender in found if contender.side != OURS]
    for own in ours:
        for other in theirs:
            if own.is_best and other.engine == EAGER:
                yield _pair(place, SHIPPED, own, other, timings)
            if own.engine == other.engine:
                yield _pair(place, both_with(own.engine), own, other, timings)


def _pair(place: Place, kind: str, ours: Contender, theirs: Contender, timings: Timings) -> Pair:
    logs = timings.log_ratios(ours.cell_id, theirs.cell_id)
    return Pair(place=place, peer=theirs.side, kind=kind, ours=ours, theirs=theirs, logs=logs, ratio=mean_of_logs([logs]))


def _against_fastest(place: Place, pairs: Sequence[Pair], timings: Timings) -> Pair | None:
    """Choosing the smallest of several medians makes the peer look a little faster than it is: an error against ours, never for it."""
    shipped = [pair for pair in pairs if pair.place == place and pair.kind == SHIPPED]
    return min(shipped, key=lambda pair: statistics.median(timings[pair.theirs.cell_id].values()), default=None)


def _jointly(fastest: Sequence[Pair]) -> list[Pair]:
    """With intervals and p-values for all of them together."""
    means = {pair.place: mean for pair in fastest if (mean := round_mean(list(pair.logs.values())))}
    level = 1 - (1 - LEVEL) / max(1, len(means))
    p_values = dict(zip(means, holm([mean.p_value for mean in means.values()]), strict=True))
    return [
        dataclasses.replace(pair, joint=means[pair.place].interval(level).exp(), p_adjusted=p_values[pair.place])
        if pair.place in means
        else pair
        for pair in fastest
    ]


def _means(places: Sequence[Place], pairs: Sequence[Pair], fastest: Sequence[Pair]) -> Iterator[Mean]:
    for part in dict.fromkeys(place.part for place in places):
        planned = [place for place in places if place.part == part]
        own = [pair for pair in pairs if pair.place.part == part]
        yield _mean(FASTEST_PEER, SHIPPED, [pair for pair in fastest if pair.place.part == part], planned)
        for peer in dict.fromkeys(pair.peer for pair in own):
            for kind in dict.fromkeys(pair.kind for pair in own if pair.peer == peer):
                yield _mean(peer, kind, [pair for pair in own if (pair.peer, pair.kind) == (peer, kind)], planned)


def _mean(peer: str, kind: str, pairs: Sequence[Pair], planned: Sequence[Place]) -> Mean:
    measured = [pair for pair in pairs if pair.ratio is not None]
    return Mean(
        part=planned[0].part,
        phase=planned[0].phase,
        peer=peer,
        kind=kind,
        ratio=mean_ratio(measured),
        num_places=len(measured),
        num_planned=len(planned),
    )

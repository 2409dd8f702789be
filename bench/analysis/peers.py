"""Compare our models with peers by ratios of times.

A peer is another implementation of the same family. Ratios are paired by round, per cell and over all cells of a part.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.analysis.significance import holm
from bench.intervals import LEVEL, Interval, joint_level, ratio_over_rounds, round_mean
from bench.measure.engines import EAGER
from bench.numbers import is_empty
from bench.reading.timings import Timings
from bench.spec import MEASURED, Part

OURS = "ours"
BEST_ARM = "ours, best engine"
SHIPPED = "best engine / as shipped"
"""The first kind of pair.

Ours runs with its best engine; the peer runs eager, as a user gets it.
"""
FASTEST_PEER = "the fastest peer"
"""The peer with the shortest median time at each place."""
Row = Mapping[str, Any]
LogRatios = Mapping[int, float]
"""Log of our time over the peer's, by round."""


@dataclass(frozen=True, kw_only=True)
class PeerPlace:
    """The size, input and workload at which implementations are compared.

    Only the engine may differ.
    """

    part: str
    family: str
    phase: str
    dtype: str
    seq_len: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One implementation at a place.

    `side`: `ours`, or the peer's name.
    `is_best`: ours with its best engine.
    `row`: the row of the table.
    """

    side: str
    engine: str
    is_best: bool
    row: Row

    @property
    def cell_id(self) -> str:
        return str(self.row["cell_id"])

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
    """A cell that is not compared, and why."""

    place: PeerPlace
    contender: Contender
    reason: str


@dataclass(frozen=True, kw_only=True)
class PeerPair:
    """Our model over a peer at one place.

    `kind`: `SHIPPED`, or one engine on both sides (`both_with`).
    `logs`: log ratios by round.
    `ratio`: the geometric mean over rounds with its 95 % t-interval; None below two common rounds.
    `joint`: against the fastest peer, the interval that holds for all such pairs together (Bonferroni).
    `p_adjusted`: against the fastest peer, Holm's p-value for equal times.
    """

    place: PeerPlace
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
        """Whether ours is significantly faster (Holm over all fastest-peer pairs)."""
        return self.joint is not None and self.joint.estimate < 1 and self.p_adjusted is not None and self.p_adjusted < 1 - LEVEL


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The geometric mean of a part's ratios over places.

    `peer`: may be `FASTEST_PEER`, the fastest at each place.
    `ratio`: with a t-interval over rounds; None if fewer than two rounds include every place.
    `num_places`: the places that entered, of `num_planned`.
    """

    part: str
    phase: str
    peer: str
    kind: str
    ratio: Interval | None
    num_places: int
    num_planned: int


@dataclass(frozen=True, kw_only=True)
class PeerComparison:
    """A run's comparison with peers.

    `places`: all planned places.
    `contenders`: the implementations compared at each place.
    `pairs`: every pair.
    `fastest`: one pair per place, our best engine against the as-shipped peer with the smallest median.
    `means`: geometric means over places.
    `excluded`: the cells that are not compared.
    """

    places: tuple[PeerPlace, ...]
    contenders: Mapping[PeerPlace, tuple[Contender, ...]]
    pairs: tuple[PeerPair, ...]
    fastest: tuple[PeerPair, ...]
    means: tuple[Mean, ...]
    excluded: tuple[Excluded, ...]

    @property
    def shown_faster(self) -> Mapping[str, tuple[int, int]]:
        """By dtype, at how many places ours is shown to be faster than the fastest peer, and at how many it was compared."""
        found: dict[str, list[bool]] = {}
        for pair in self.fastest:
            found.setdefault(pair.place.dtype, []).append(pair.is_shown_faster)
        return {dtype: (sum(shown), len(shown)) for dtype, shown in found.items()}


def compare_peers(parts: Sequence[Part], rows: Mapping[str, Row], timings: Timings) -> PeerComparison | None:
    """Compare our models with peers; None if the run has no peers.

    Only parts with the arm `BEST_ARM` count. `rows` is by cell id; arms are named `side` or `side, engine`. Cells whose outputs differ (`equal` is
    False) or that were not fully measured are excluded and named.
    """
    contenders: dict[PeerPlace, tuple[Contender, ...]] = {}
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
    fastest = _with_joint_intervals([pair for place in contenders if (pair := _against_fastest(place, pairs, timings))])
    return PeerComparison(
        places=tuple(contenders),
        contenders=contenders,
        pairs=tuple(pairs),
        fastest=tuple(fastest),
        means=tuple(_means(tuple(contenders), pairs, fastest)),
        excluded=tuple(excluded),
    )


def both_with(engine: str) -> str:
    """Return the kind of pair in which both sides use one engine."""
    return f"both {engine}"


def mean_ratio(found: Sequence[LogRatios]) -> Interval | None:
    """Return the geometric mean ratio over pairs.

    Each round that has every pair gives one mean; the t-interval is over these rounds. None below two.
    """
    common = sorted(set.intersection(*(set(logs) for logs in found))) if found else []
    return ratio_over_rounds([statistics.fmean(logs[place] for logs in found) for place in common])


def _contenders(part: Part, rows: Mapping[str, Row]) -> dict[PeerPlace, list[Contender]]:
    """Return the contenders by place.

    A cell in two arms (the best engine is one of the compared engines) appears once, as the best.
    """
    found: dict[PeerPlace, dict[str, Contender]] = {}
    arms = sorted(part.arms, key=lambda arm: arm.name != BEST_ARM)
    for arm in arms:
        for row in (rows[cell_id] for cell_id in arm.cells if cell_id in rows):
            contender = Contender(side=arm.name.partition(", ")[0], engine=str(row["engine"]), is_best=arm.name == BEST_ARM, row=row)
            found.setdefault(_place(part, row, rows), {}).setdefault(contender.cell_id, contender)
    return {place: list(cells.values()) for place, cells in found.items()}


def _place(part: Part, row: Row, rows: Mapping[str, Row]) -> PeerPlace:
    """Return the place of a row, with our name for its family.

    The peer's cell may use another.
    """
    best = next(arm for arm in part.arms if arm.name == BEST_ARM)
    family = next((str(rows[cell_id]["family"]) for cell_id in best.cells if cell_id in rows), "")
    return PeerPlace(
        part=part.name,
        family=family,
        phase=str(row["phase"]),
        dtype=str(row["dtype"]),
        seq_len=int(row["seq_len"]),
        batch_size=int(row["batch_size"]),
    )


def _objection(contender: Contender, timings: Timings) -> str:
    """Say why a cell must not be compared; empty if it may."""
    equal, errors = contender.row.get("equal"), {"output": contender.output_error, "gradient": contender.gradient_error}
    if not is_empty(equal) and not bool(equal):
        known = ", ".join(f"{name} error {error:.1e}" for name, error in errors.items() if error is not None)
        return f"outputs differ{f': {known}' if known else ''}"
    status, reason = contender.row.get("status"), contender.row.get("reason")
    if status != MEASURED:  # the rounds that did finish were probably the fast ones
        return f"not fully measured: {status}{'' if is_empty(reason) else f', {reason}'}"
    return "" if timings.get(contender.cell_id) else "not timed"


def _pairs(place: PeerPlace, found: Sequence[Contender], timings: Timings) -> Iterator[PeerPair]:
    """Yield our best engine against each peer as shipped, then equal engines."""
    ours = [contender for contender in found if contender.side == OURS]
    theirs = [contender for contender in found if contender.side != OURS]
    for own in ours:
        for other in theirs:
            if own.is_best and other.engine == EAGER:
                yield _pair(place, SHIPPED, own, other, timings)
            if own.engine == other.engine:
                yield _pair(place, both_with(own.engine), own, other, timings)


def _pair(place: PeerPlace, kind: str, ours: Contender, theirs: Contender, timings: Timings) -> PeerPair:
    logs = timings.log_ratios(ours.cell_id, theirs.cell_id)
    return PeerPair(place=place, peer=theirs.side, kind=kind, ours=ours, theirs=theirs, logs=logs, ratio=mean_ratio([logs]))


def _against_fastest(place: PeerPlace, pairs: Sequence[PeerPair], timings: Timings) -> PeerPair | None:
    """Return the pair against the peer with the smallest median.

    The smallest of several medians is slightly too low, a bias against ours.
    """
    shipped = [pair for pair in pairs if pair.place == place and pair.kind == SHIPPED]
    return min(shipped, key=lambda pair: statistics.median(timings[pair.theirs.cell_id].values()), default=None)


def _with_joint_intervals(fastest: Sequence[PeerPair]) -> list[PeerPair]:
    """Add the intervals and p-values that hold for all pairs together."""
    means = {pair.place: mean for pair in fastest if (mean := round_mean(list(pair.logs.values())))}
    level = joint_level(LEVEL, len(means))
    p_values = dict(zip(means, holm([mean.p_value for mean in means.values()]), strict=True))
    return [
        dataclasses.replace(pair, joint=means[pair.place].interval(level).exp(), p_adjusted=p_values[pair.place])
        if pair.place in means
        else pair
        for pair in fastest
    ]


def _means(places: Sequence[PeerPlace], pairs: Sequence[PeerPair], fastest: Sequence[PeerPair]) -> Iterator[Mean]:
    for part in dict.fromkeys(place.part for place in places):
        planned = [place for place in places if place.part == part]
        own = [pair for pair in pairs if pair.place.part == part]
        yield _mean(FASTEST_PEER, SHIPPED, [pair for pair in fastest if pair.place.part == part], planned)
        for peer in dict.fromkeys(pair.peer for pair in own):
            for kind in dict.fromkeys(pair.kind for pair in own if pair.peer == peer):
                yield _mean(peer, kind, [pair for pair in own if (pair.peer, pair.kind) == (peer, kind)], planned)


def _mean(peer: str, kind: str, pairs: Sequence[PeerPair], planned: Sequence[PeerPlace]) -> Mean:
    measured = [pair for pair in pairs if pair.ratio is not None]
    return Mean(
        part=planned[0].part,
        phase=planned[0].phase,
        peer=peer,
        kind=kind,
        ratio=mean_ratio([pair.logs for pair in measured]),
        num_places=len(measured),
        num_planned=len(planned),
    )

"""Compare our models with peers: other implementations of the same family. Ratios are paired by round."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.intervals import Interval, joint_level, ratio_over_rounds
from bench.measure.engines import EAGER
from bench.numbers import is_empty
from bench.reading.timings import Timings, ratio_of
from bench.spec import MEASURED, Part

Row = Mapping[str, Any]
OURS = "ours"
BEST_ARM = "ours, best engine"
SHIPPED = "best engine / as shipped"
"""The first kind of pair.

Ours runs with its best engine; the peer runs eager, as a user gets it.
"""
FASTEST_PEER = "the fastest peer"
"""The peer with the shortest median time at each place."""
LogRatios = Mapping[int, float]
"""Log of our time over the peer's, by round."""


@dataclass(frozen=True, kw_only=True)
class PeerPlace:
    """The size and workload at which implementations are compared.

    Only the engine may differ.
    """

    part: str
    phase: str
    dtype: str
    seq_len: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A cell that is not compared, and why.

    `side`: `ours`, or the peer's name.
    """

    place: PeerPlace
    side: str
    row: Row
    reason: str


@dataclass(frozen=True, kw_only=True)
class PeerPair:
    """Our model over a peer at one place.

    `kind`: `SHIPPED`, or one engine on both sides (`both_with`).
    `ours`, `theirs`: rows of the table.
    `logs`: log ratios by round.
    `ratio`: the estimate over rounds; None below two common rounds. Its 95 % interval holds together with those of the place's other pairs of this
        kind.
    """

    place: PeerPlace
    peer: str
    kind: str
    ours: Row
    theirs: Row
    logs: LogRatios
    ratio: Interval | None

    @property
    def is_shown_faster(self) -> bool:
        """Whether ours is significantly faster."""
        return self.ratio is not None and self.ratio.high < 1


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The geometric mean of a part's ratios over places.

    `peer`: may be `FASTEST_PEER`, the fastest at each place.
    `ratio`: with an interval over rounds; None if fewer than two rounds include every place.
    `num_places`: the places that entered, of `num_planned`.
    """

    part: str
    phase: str
    dtype: str
    peer: str
    kind: str
    ratio: Interval | None
    num_places: int
    num_planned: int


@dataclass(frozen=True, kw_only=True)
class PeerComparison:
    """A run's comparison with peers.

    `pairs`: every pair.
    `fastest`: one pair per place, our best engine against the as-shipped peer with the smallest median.
    `means`: geometric means over places.
    `excluded`: the cells that are not compared.
    """

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
    planned: list[PeerPlace] = []
    pairs: list[PeerPair] = []
    excluded: list[Excluded] = []
    for part in parts:
        best = {cell_id for arm in part.arms if arm.name == BEST_ARM for cell_id in arm.cells}
        for place, sides in _sides(part, rows).items() if best else ():
            objections = {cell_id: _objection(rows[cell_id], timings) for cell_id in sides}
            excluded += [
                Excluded(place=place, side=sides[cell_id], row=rows[cell_id], reason=reason)
                for cell_id, reason in objections.items()
                if reason
            ]
            planned.append(place)
            pairs += _peer_pairs(place, {c: side for c, side in sides.items() if not objections[c]}, best, rows, timings)
    if not planned:
        return None
    fastest = _fastest(pairs, timings)
    return PeerComparison(
        pairs=tuple(pairs), fastest=tuple(fastest), means=tuple(_means(planned, pairs, fastest)), excluded=tuple(excluded)
    )


def both_with(engine: str) -> str:
    """Return the kind of pair in which both sides use one engine."""
    return f"both {engine}"


def mean_ratio(found: Sequence[LogRatios]) -> Interval | None:
    """Return the geometric mean ratio over pairs.

    Each round that has every pair gives one mean; the interval is over these rounds. None below two.
    """
    common = sorted(set.intersection(*(set(logs) for logs in found))) if found else []
    return ratio_over_rounds([statistics.fmean(logs[place] for logs in found) for place in common])


def _sides(part: Part, rows: Mapping[str, Row]) -> dict[PeerPlace, dict[str, str]]:
    """Return by place the side of each cell. A cell in two arms (the best engine is one of the compared engines) appears once."""
    found: dict[PeerPlace, dict[str, str]] = {}
    for arm in part.arms:
        for row in (rows[cell_id] for cell_id in arm.cells if cell_id in rows):
            sizes = {"seq_len": int(row["seq_len"]), "batch_size": int(row["batch_size"])}
            place = PeerPlace(part=part.name, phase=str(row["phase"]), dtype=str(row["dtype"]), **sizes)
            found.setdefault(place, {})[str(row["cell_id"])] = arm.name.partition(", ")[0]
    return found


def _objection(row: Row, timings: Timings) -> str:
    """Say why a cell must not be compared; empty if it may."""
    equal, status, reason = row.get("equal"), row.get("status"), row.get("reason")
    if not is_empty(equal) and not bool(equal):
        errors = {name: row.get(f"{name}_error") for name in ("output", "gradient")}
        known = ", ".join(f"{name} error {error:.1e}" for name, error in errors.items() if not is_empty(error))
        return f"outputs differ{f': {known}' if known else ''}"
    if status != MEASURED:  # the rounds that did finish were probably the fast ones
        return f"not fully measured: {status}{'' if is_empty(reason) else f', {reason}'}"
    return "" if timings.get(row["cell_id"]) else "not timed"


def _peer_pairs(
    place: PeerPlace, sides: Mapping[str, str], best: set[str], rows: Mapping[str, Row], timings: Timings
) -> Iterator[PeerPair]:
    """Yield our best engine against each peer as shipped, and equal engines."""
    found: dict[str, list[tuple[str, str]]] = {}
    for own, other in itertools.product(sides, sides):
        if sides[own] != OURS or sides[other] == OURS:
            continue
        engines = rows[own]["engine"], rows[other]["engine"]
        kinds = {SHIPPED: own in best and engines[1] == EAGER, both_with(engines[0]): engines[0] == engines[1]}
        for kind in (kind for kind, holds in kinds.items() if holds):
            found.setdefault(kind, []).append((own, other))
    for kind, pairs in found.items():
        level = joint_level(len(pairs))
        for own, other in pairs:
            logs, ratio = timings.log_ratios(own, other), ratio_of(own, other, timings, level)
            yield PeerPair(place=place, peer=sides[other], kind=kind, ours=rows[own], theirs=rows[other], logs=logs, ratio=ratio)


def _fastest(pairs: Sequence[PeerPair], timings: Timings) -> list[PeerPair]:
    """Return by place the pair against the peer with the smallest median, which is slightly too low, a bias against ours."""
    shipped = itertools.groupby((pair for pair in pairs if pair.kind == SHIPPED), key=lambda pair: pair.place)
    return [min(group, key=lambda pair: statistics.median(timings[pair.theirs["cell_id"]].values())) for _, group in shipped]


def _means(planned: Sequence[PeerPlace], pairs: Sequence[PeerPair], fastest: Sequence[PeerPair]) -> Iterator[Mean]:
    for part in dict.fromkeys(place.part for place in planned):
        places = [place for place in planned if place.part == part]
        groups = {(FASTEST_PEER, SHIPPED): [pair for pair in fastest if pair.place.part == part]}
        for pair in (pair for pair in pairs if pair.place.part == part):
            groups.setdefault((pair.peer, pair.kind), []).append(pair)
        for (peer, kind), found in groups.items():
            logs = [pair.logs for pair in found if pair.ratio]
            yield Mean(
                part=part,
                phase=places[0].phase,
                dtype=places[0].dtype,
                peer=peer,
                kind=kind,
                ratio=mean_ratio(logs),
                num_places=len(logs),
                num_planned=len(places),
            )

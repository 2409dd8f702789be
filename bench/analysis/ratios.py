"""Compare times: models ranked by latency, relative to fused attention at every length, and our models against peers.

A peer is another implementation of the same family. Ratios are paired by round.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.frame import FUSED, Scope, is_subject, mixes_all, scopes_of
from bench.intervals import Interval, joint_level, ratio_over_rounds
from bench.measure.engines import EAGER
from bench.numbers import is_empty
from bench.reading.table import NOT_ATTENTION, attention_rank, row_values
from bench.reading.timings import Timings, ratio_of
from bench.spec import EXPLICIT, MEASURED, NO_MATCH, Part

MAX_ROUNDS = 1000
"""The largest number of rounds that `Decision.rounds_needed` considers."""
VARIANT = re.compile(r"-(\w+)")
"""The size of a published model, as in `gmlp-s` and `deit-s`; only equal sizes are compared."""
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the ratio of two times shows.

    `ratio`: first time over second; of medians, with no width and `num` = 1, if rounds could not be paired.
    `margin`: the relative difference within which two times are equal.
    """

    ratio: Interval
    margin: float

    @property
    def is_paired(self) -> bool:
        """Whether the ratio is an estimate over rounds, with an interval."""
        return self.ratio.num > 1

    @property
    def differs(self) -> bool:
        """Whether a difference is shown: the interval excludes 1. `equal` may hold as well."""
        return self.is_paired and not self.ratio.contains(1.0)

    @property
    def equal(self) -> bool:
        """Whether equality is shown by inclusion in the margin (Schuirmann 1987, at a lower level than two one-sided tests need)."""
        bound = 1 + self.margin
        return self.is_paired and 1 / bound <= self.ratio.low and self.ratio.high <= bound

    @property
    def faster(self) -> bool:
        """Whether the first is shown to take less time, and the two are not equal."""
        return self.differs and not self.equal and self.ratio.estimate < 1

    @property
    def slower(self) -> bool:
        """Whether the first is shown to take more time, and the two are not equal."""
        return self.differs and not self.equal and self.ratio.estimate > 1

    @property
    def why(self) -> str:
        """The reason if no difference is shown."""
        if not self.is_paired:
            return "no round has both"
        return "" if self.differs else f"{self.ratio.num} rounds are too few" if self.ratio.is_open else "the interval contains 1"

    @property
    def rounds_needed(self) -> int | None:
        """About how many rounds would decide if mean and spread stay the same; None if it is decided, without an interval, and above 1,000.

        The interval narrows with the square root of the number of rounds.
        """
        if self.differs or self.equal or self.ratio.is_open or not self.is_paired:
            return None
        low, estimate, high = (math.log(value) for value in (self.ratio.low, self.ratio.estimate, self.ratio.high))
        distance = max(abs(estimate), math.log1p(self.margin) - abs(estimate))
        needed = self.ratio.num * ((high - low) / 2 / distance) ** 2
        return math.ceil(needed) if needed <= MAX_ROUNDS else None


@dataclass(frozen=True, kw_only=True)
class RankedModel(Decision):
    """A model, `other`, over the fastest one; the interval holds together for the pairs of the group."""

    other: str


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """One comparable group of models, fastest first.

    `group`: the values of the grouping columns.
    `others`: the rest, in order.
    `cells`: ids of the models' cells.
    """

    group: Mapping[str, Any]
    best: str
    others: tuple[RankedModel, ...]
    cells: tuple[str, ...] = ()

    @property
    def level(self) -> tuple[RankedModel, ...]:
        """The models that are equal to the fastest, or not shown to be slower."""
        return tuple(pair for pair in self.others if not pair.slower)

    @property
    def slower(self) -> tuple[RankedModel, ...]:
        """The models that are shown to be slower by more than the margin allows."""
        return tuple(pair for pair in self.others if pair.slower)


def rank_latency(
    rows: Iterable[Row], keys: Sequence[str], timings: Timings, contrasts: Mapping[str, int], margin: float = 0.03
) -> list[Ranking]:
    """Compare the fastest model of each group of timed rows, of equal `keys`, with the others.

    `rows` have `label`, one of each in a group, and the latency columns. Decisions hold together for the `contrasts` of a cell
    (`bench.timing_groups.num_contrasts`).

    If rounds cannot be paired the ratio is one of medians, and decides nothing.
    """
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if not is_empty(row["latency_ms"]):
            groups.setdefault(tuple(None if row[key] != row[key] else row[key] for key in keys), {}).setdefault(str(row["label"]), row)
    found = []
    for members in groups.values():
        best, *others = _fastest_first(list(members.values()), timings)
        cells = tuple(str(row["cell_id"]) for row in (best, *others))
        num_pairs = max(contrasts.get(cell, 1) for cell in cells)
        pairs = tuple(
            RankedModel(other=str(other["label"]), ratio=_ratio(other, best, timings, num_pairs), margin=margin) for other in others
        )
        found.append(Ranking(group={key: best[key] for key in keys}, best=str(best["label"]), others=pairs, cells=cells))
    return found


def _fastest_first(members: Sequence[Row], timings: Timings) -> list[Row]:
    """Sort models by paired ratio if possible, else by median.

    The ratio is to the model of lowest median. Medians decide if any model cannot be paired with that model.
    """
    by_median = sorted(members, key=lambda row: (row["latency_ms"], row["label"]))
    lowest = str(by_median[0]["cell_id"])
    found = {str(row["cell_id"]): timings.centre(str(row["cell_id"]), lowest) for row in by_median[1:]}
    if not all(found.values()):
        return by_median
    return sorted(by_median, key=lambda row: centre.estimate if (centre := found.get(str(row["cell_id"]))) else 0.0)


def _ratio(first: Row, second: Row, timings: Timings, num_pairs: int) -> Interval:
    """Return the first row's time over the second's; its interval holds together for so many pairs.

    Of medians, as `Decision` has it, if fewer than two rounds have both.
    """
    ratio = float(first["latency_ms"] / second["latency_ms"])
    of_medians = Interval(estimate=ratio, low=ratio, high=ratio, num=1)
    return ratio_of(str(first["cell_id"]), str(second["cell_id"]), timings, joint_level(num_pairs)) or of_medians


@dataclass(frozen=True, kw_only=True)
class RelativePoint(Decision):
    """A model's time over the reference's at length `n`; the interval holds together for the pairs of that length."""

    n: int


@dataclass(frozen=True, kw_only=True)
class RelativeLine:
    """The points of one model.

    `is_gmlp`: whether it is a gMLP.
    `mixes_all`: whether a token may learn what any other holds.
    """

    label: str
    is_gmlp: bool
    mixes_all: bool = True
    points: tuple[RelativePoint, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the model is shown to equal the reference at every length."""
        return all(point.equal for point in self.points)


@dataclass(frozen=True, kw_only=True)
class RelativeTimes:
    """The times of one scope, relative to attention.

    `reference`: label of the attention; of several sizes, the first one's.
    `lines`: gMLP first, then those that take the least time at their longest length.
    """

    scope: Scope
    reference: str
    lines: tuple[RelativeLine, ...]

    @property
    def lengths(self) -> list[int]:
        return sorted({point.n for line in self.lines for point in line.points})


def relative_times(
    frame: pandas.DataFrame, places: Mapping[str, int], timings: Timings, contrasts: Mapping[str, int], margin: float
) -> list[RelativeTimes]:
    """Return the times relative to attention in the primary scope, then in the one at the other matching.

    It is equal parameters if the primary scope has one shape, and the other way round. Intervals hold together for the `contrasts` of a cell
    (`bench.timing_groups.num_contrasts`).
    """
    found = [(scope, pairs) for scope in scopes_of(frame, "latency_ms", places) if (pairs := _pairs(scope))]
    chosen = [*found[:1], *[one for one in found if _complements(one[0], found[0][0])][:1]]
    return [_relative(scope, pairs, timings, contrasts, margin) for scope, pairs in chosen]


def main_rows(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows that a figure about gMLP and attention shows.

    Beside a gMLP these are models that mix all tokens, with explicit attention of one family only. Without a gMLP, all rows.
    """
    members = row_values(rows)
    if not any(is_subject(row, "gmlp") for row in members):
        return rows
    references = set(attentions(rows).values())
    families = {row["family"] for row in members if row["label"] in references}
    return rows[[mixes_all(row) and (row["attention"] != EXPLICIT or row["family"] in families) for row in members]]


def attentions(rows: pandas.DataFrame) -> dict[str, str]:
    """Return the label of the attention to compare with, by published size.

    Models that are not published have size "".
    """
    found: dict[str, tuple[int, str]] = {}
    for row in row_values(rows):
        rank = attention_rank(row["model"], row["family"], row["attention"]), str(row["label"])
        if rank[0] < NOT_ATTENTION:
            found[_variant(row)] = min(found.get(_variant(row), rank), rank, key=lambda one: one[0])
    return {variant: label for variant, (_, label) in found.items()}


def is_fused(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether all rows with a known attention kernel ran a fused one."""
    kernels = {row["attention_effective"] for row in rows} - {""}
    return bool(kernels) and kernels <= set(FUSED)


def _complements(scope: Scope, primary: Scope) -> bool:
    same_work = all(scope.keys[key] == primary.keys[key] for key in ("phase", "engine", "dtype", "device"))
    return same_work and {scope.keys["match"], primary.keys["match"]} == {"params", "shape"}


def _variant(row: Row) -> str:
    found = VARIANT.search(str(row["model"]).partition("+")[0].partition(":")[0])
    return found[1] if found else ""


def _pairs(scope: Scope) -> dict[str, list[tuple[Row, Row]]]:
    """Return each model's rows beside the attention's, for models that share two lengths with it."""
    rows = row_values(main_rows(scope.rows))
    labels = set(attentions(scope.rows).values())
    reference = {(_variant(row), row["place"]): row for row in row_values(scope.rows) if row["label"] in labels}
    found: dict[str, list[tuple[Row, Row]]] = {}
    is_matched = scope.keys["match"] not in (None, NO_MATCH)
    for row in rows:
        place = _variant(row), row["place"]
        # of sizes that were given, only the published ones are meant to be equal
        if (is_matched or place[0]) and place in reference and row["label"] not in labels:
            found.setdefault(str(row["label"]), []).append((row, reference[place]))
    return {label: pairs for label, pairs in found.items() if len(pairs) > 1}


def _relative(
    scope: Scope, pairs: Mapping[str, Sequence[tuple[Row, Row]]], timings: Timings, contrasts: Mapping[str, int], margin: float
) -> RelativeTimes:
    lines = [
        RelativeLine(
            label=label,
            is_gmlp=is_subject(found[0][0], "gmlp"),
            mixes_all=mixes_all(found[0][0]),
            points=tuple(
                RelativePoint(
                    n=int(row["place"]), ratio=_ratio(row, reference, timings, contrasts.get(str(row["cell_id"]), 1)), margin=margin
                )
                for row, reference in found
            ),
        )
        for label, found in pairs.items()
    ]
    return RelativeTimes(
        scope=scope,
        reference=next(iter(attentions(scope.rows).values())),
        lines=tuple(sorted(lines, key=lambda line: (not line.is_gmlp, line.points[-1].ratio.estimate))),
    )


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
            logs = timings.log_ratios(own, other)
            ratio = ratio_over_rounds(list(logs.values()), level)
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

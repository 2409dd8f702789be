"""Compare times: models ranked by latency, and times relative to fused attention at every length."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.frame import FUSED, Scope, is_subject, mixes_all, row_values, scopes_of
from bench.intervals import LEVEL, Interval, joint_level
from bench.numbers import is_empty
from bench.reading.table import NOT_ATTENTION, attention_rank
from bench.reading.timings import Timings
from bench.spec import EXPLICIT, NO_MATCH

MAX_ROUNDS = 1000
"""The largest number of rounds that `rounds_needed` considers."""
FIXED_SHAPE, SAME_PARAMETERS = "fixed shape", "same parameters"
VARIANT = re.compile(r"-(\w+)")
"""The size of a published model, as in `gmlp-s` and `deit-s`; only equal sizes are compared."""
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RankedModel:
    """A model compared with the fastest one.

    `ratio`: other over fastest.
    `low`, `high`: the 95 % interval, jointly for the pairs of the group; None if rounds could not be paired, or are too few for it.
    `span`: the range over rounds that are too few for an interval.
    `shown`: that interval excludes 1.
    `equal`: that interval lies within the margin; `shown` may hold as well.
    `rounds_needed`: for an undecided pair, the rounds that would decide it if mean and spread stay the same; None above 1,000.
    `interleaved`: the two cells took turns.
    `why`: the reason if no difference is shown.
    """

    other: str
    ratio: float
    low: float | None
    high: float | None
    span: tuple[float, float] | None = None
    shown: bool
    equal: bool = False
    rounds_needed: int | None = None
    interleaved: bool = False
    why: str = ""

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The interval, or the range over rounds that are too few for one."""
        return self.span or (self.low, self.high)

    @property
    def behind(self) -> bool:
        """Whether it is shown not to be the fastest."""
        return self.shown and not self.equal


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """One comparable group of models, fastest first.

    `group`: the values of the grouping columns.
    `others`: the rest, in order.
    `margin`: the relative difference within which two models are equal.
    `num_pairs`: the number of pairs for which decisions hold jointly.
    `cells`: ids of the models' cells.
    """

    group: Mapping[str, Any]
    best: str
    others: tuple[RankedModel, ...]
    margin: float = 0.03
    num_pairs: int = 1
    cells: tuple[str, ...] = ()

    @property
    def level(self) -> tuple[RankedModel, ...]:
        """The models that are equal to the fastest, or not shown to be slower."""
        return tuple(pair for pair in self.others if not pair.behind)

    @property
    def slower(self) -> tuple[RankedModel, ...]:
        """The models that are shown to be slower by more than the margin allows."""
        return tuple(pair for pair in self.others if pair.behind)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows of models that may be compared, fastest first.

    `keys`: the values that they share.
    """

    keys: Row
    rows: tuple[Row, ...]


def fastest_first(rows: Iterable[Row], keys: Sequence[str], timings: Timings) -> list[Group]:
    """Return the groups of timed rows with equal `keys`, each ordered by time.

    `rows` have `label`, one of each in a group, and the latency columns.
    """
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if not is_empty(row["latency_ms"]):
            groups.setdefault(tuple(None if row[key] != row[key] else row[key] for key in keys), {}).setdefault(str(row["label"]), row)
    found = [_fastest_first(list(members.values()), timings) for members in groups.values()]
    return [Group(keys={key: members[0][key] for key in keys}, rows=tuple(members)) for members in found]


def rank_latency(groups: Sequence[Group], timings: Timings, contrasts: Mapping[str, int], margin: float = 0.03) -> list[Ranking]:
    """Compare the fastest model of each group with the others.

    Decisions hold together for the `contrasts` of a cell (`bench.timing_groups.num_contrasts`).

    If rounds cannot be paired the ratio is a ratio of medians. A difference is then shown if the two 95 % intervals do not overlap and both
    cells are stable. Stability matters because instability mostly affects whole rounds, and only pairing cancels it.
    """
    found = []
    for group in groups:
        cells = tuple(str(row["cell_id"]) for row in group.rows)
        num_pairs = max(contrasts.get(cell, 1) for cell in cells)
        others = tuple(_latency_pair(group.rows[0], other, timings, margin, num_pairs) for other in group.rows[1:])
        best = str(group.rows[0]["label"])
        found.append(Ranking(group=group.keys, best=best, others=others, margin=margin, num_pairs=num_pairs, cells=cells))
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


def _latency_pair(best: Row, other: Row, timings: Timings, margin: float, num_pairs: int) -> RankedModel:
    cells = (other["cell_id"], best["cell_id"])
    found = timings.centre(*cells)
    if found is None:
        shown, why = _shown_unpaired(best, other)
        ratio = other["latency_ms"] / best["latency_ms"]
        return RankedModel(other=str(other["label"]), ratio=ratio, low=None, high=None, shown=shown, why=why)
    interval = found.interval(joint_level(LEVEL, num_pairs))
    different, equal = decided(interval, margin)
    ratio = interval.exp()
    return RankedModel(
        other=str(other["label"]),
        ratio=ratio.estimate,
        low=None if ratio.is_open else ratio.low,
        high=None if ratio.is_open else ratio.high,
        span=ratio.span,
        shown=different and interval.estimate > 0,
        equal=equal,
        rounds_needed=None if different or equal else rounds_needed(interval, margin),
        interleaved=timings.are_interleaved(cells),
        why="" if different else f"{interval.num} rounds are too few" if ratio.is_open else "the interval contains 1",
    )


def decided(interval: Interval, margin: float) -> tuple[bool, bool]:
    """Return whether a difference is shown, and whether equality within the margin is shown.

    `interval`: of a log-ratio. Equality is shown by inclusion (Schuirmann 1987, at a lower level than two one-sided tests need).
    """
    bound = math.log1p(margin)
    return not interval.contains(0.0), -bound <= interval.low and interval.high <= bound


def rounds_needed(interval: Interval, margin: float) -> int | None:
    """Return about how many rounds would decide a pair whose interval is this; None above 1,000, and if there is no interval.

    The interval narrows with the square root of the number of rounds.
    """
    half = (interval.high - interval.low) / 2
    distance = max(abs(interval.estimate), math.log1p(margin) - abs(interval.estimate))
    needed = interval.num * (half / distance) ** 2
    return math.ceil(needed) if needed <= MAX_ROUNDS else None


def _shown_unpaired(best: Row, other: Row) -> tuple[bool, str]:
    """Return whether unpaired intervals show a difference; if not, why."""
    if best["latency_stable"] is False or other["latency_stable"] is False:
        return False, "an unstable configuration"
    if any(pandas.isna(row[bound]) for row in (best, other) for bound in ("latency_low_ms", "latency_high_ms")):
        return False, "no interval"
    shown = best["latency_high_ms"] < other["latency_low_ms"]
    return shown, "" if shown else "the intervals overlap"


@dataclass(frozen=True, kw_only=True)
class RelativePoint:
    """A model's time over the reference's at one length.

    `ratio`: its interval holds together for the pairs of its length; of no width if rounds could not be paired.
    `faster`, `slower`: the difference is shown, and the two are not equal.
    `equal`: equality within the margin is shown.
    """

    n: int
    ratio: Interval
    faster: bool = False
    slower: bool = False
    equal: bool = False

    @property
    def is_paired(self) -> bool:
        """Whether the ratio is a mean over rounds, with an interval."""
        return self.ratio.num > 1


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

    @property
    def matching(self) -> str:
        """`FIXED_SHAPE`, `SAME_PARAMETERS` or "" for other policies."""
        return matching_of(self.scope)


@dataclass(frozen=True, kw_only=True)
class ComparedScope:
    """A scope with the rows to compare: each model's beside the attention's, by label."""

    scope: Scope
    rows: Mapping[str, Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]]


def compared_scopes(frame: pandas.DataFrame, places: Mapping[str, int]) -> list[ComparedScope]:
    """Return the primary scope, then the one at the other matching.

    It is same parameters if the primary scope has one shape, and the other way round.
    """
    found = [ComparedScope(scope=scope, rows=rows) for scope in scopes_of(frame, "latency_ms", places) if (rows := _pairs(scope))]
    return [*found[:1], *[one for one in found if _complements(one.scope, found[0].scope)][:1]]


def relative_times(compared: Sequence[ComparedScope], timings: Timings, contrasts: Mapping[str, int], margin: float) -> list[RelativeTimes]:
    """Return the times of each scope, relative to attention.

    Intervals hold together for the `contrasts` of a cell (`bench.timing_groups.num_contrasts`).
    """
    return [_relative(one, timings, contrasts, margin) for one in compared]


def matching_of(scope: Scope) -> str:
    """Return `FIXED_SHAPE`, `SAME_PARAMETERS` or "" for other policies."""
    return {"params": SAME_PARAMETERS, "shape": FIXED_SHAPE}.get(str(scope.keys["match"]), "")


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
    return same_work and {matching_of(scope), matching_of(primary)} == {SAME_PARAMETERS, FIXED_SHAPE}


def _variant(row: Mapping[str, Any]) -> str:
    found = VARIANT.search(str(row["model"]).partition("+")[0].partition(":")[0])
    return found[1] if found else ""


def _pairs(scope: Scope) -> dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """Return each model's rows beside the attention's, for models that share two lengths with it."""
    rows = row_values(main_rows(scope.rows))
    labels = set(attentions(scope.rows).values())
    reference = {(_variant(row), row["place"]): row for row in row_values(scope.rows) if row["label"] in labels}
    found: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    is_matched = scope.keys["match"] not in (None, NO_MATCH)
    for row in rows:
        place = _variant(row), row["place"]
        # of sizes that were given, only the published ones are meant to be equal
        if (is_matched or place[0]) and place in reference and row["label"] not in labels:
            found.setdefault(str(row["label"]), []).append((row, reference[place]))
    return {label: pairs for label, pairs in found.items() if len(pairs) > 1}


def _relative(compared: ComparedScope, timings: Timings, contrasts: Mapping[str, int], margin: float) -> RelativeTimes:
    labels = attentions(compared.scope.rows)
    lines = [
        RelativeLine(
            label=label,
            is_gmlp=is_subject(found[0][0], "gmlp"),
            mixes_all=mixes_all(found[0][0]),
            points=tuple(_point(*pair, timings, margin, contrasts.get(str(pair[0]["cell_id"]), 1)) for pair in found),
        )
        for label, found in compared.rows.items()
    ]
    return RelativeTimes(
        scope=compared.scope,
        reference=next(iter(labels.values())),
        lines=tuple(sorted(lines, key=lambda line: (not line.is_gmlp, line.points[-1].ratio.estimate))),
    )


def _point(row: Mapping[str, Any], reference: Mapping[str, Any], timings: Timings, margin: float, num_pairs: int) -> RelativePoint:
    found = timings.centre(row["cell_id"], reference["cell_id"])
    n = int(row["place"])
    if found is None:
        ratio = float(row["latency_ms"] / reference["latency_ms"])
        return RelativePoint(n=n, ratio=Interval(estimate=ratio, low=ratio, high=ratio, num=1))
    interval = found.interval(joint_level(LEVEL, num_pairs))
    shown, equal = decided(interval, margin)
    return RelativePoint(
        n=n,
        ratio=interval.exp(),
        faster=shown and not equal and interval.estimate < 0,
        slower=shown and not equal and interval.estimate > 0,
        equal=equal,
    )

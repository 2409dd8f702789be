"""Compare times: models ranked by latency, and relative to fused attention at every length. Ratios are paired by round."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.frame import FUSED, Scope, is_subject, mixes_all, scopes_of
from bench.intervals import Interval, exactly, joint_level
from bench.numbers import is_empty
from bench.reading.table import NOT_ATTENTION, attention_rank, row_values
from bench.reading.timings import Timings, ratio_of
from bench.spec import EXPLICIT, NO_MATCH

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
    found = ratio_of(str(first["cell_id"]), str(second["cell_id"]), timings, joint_level(num_pairs))
    return found or exactly(float(first["latency_ms"] / second["latency_ms"]))


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

"""Compare times with those of fused attention at every length, in the primary scopes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.evidence import FUSED, is_subject, mixes_all
from bench.analysis.ranking import decided
from bench.analysis.scope import Scope, scopes_of
from bench.analysis.series import row_values
from bench.intervals import LEVEL, Interval, joint_level, signed_ranks
from bench.reading.table import NOT_ATTENTION, attention_rank
from bench.reading.timings import Timings
from bench.same_size import is_one_width
from bench.spec import EXPLICIT, NO_MATCH

FIXED_SHAPE, SAME_WIDTH, SAME_PARAMETERS = "fixed shape", "same width", "same parameters"
VARIANT = re.compile(r"-(\w+)")
"""The size of a published model, as in `gmlp-s` and `deit-s`; only equal sizes are compared."""


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
    """

    label: str
    is_gmlp: bool
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
        """`FIXED_SHAPE`, `SAME_WIDTH`, `SAME_PARAMETERS` or "" for other policies."""
        return matching_of(self.scope)


@dataclass(frozen=True, kw_only=True)
class ComparedScope:
    """A scope with the rows to compare: each model's beside the attention's, by label."""

    scope: Scope
    rows: Mapping[str, Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]]


def compared_scopes(frame: pandas.DataFrame, places: Mapping[str, int]) -> list[ComparedScope]:
    """Return the primary scope, then the one at the other matching.

    It is same parameters if the primary scope has one shape or width, and the other way round.
    """
    found = [ComparedScope(scope=scope, rows=rows) for scope in scopes_of(frame, "latency_ms", places) if (rows := _pairs(scope))]
    return [*found[:1], *[one for one in found if _complements(one.scope, found[0].scope)][:1]]


def relative_times(compared: Sequence[ComparedScope], timings: Timings, contrasts: Mapping[str, int], margin: float) -> list[RelativeTimes]:
    """Return the times of each scope, relative to attention.

    Intervals hold together for the `contrasts` of a cell (`bench.reading.families.family_sizes`).
    """
    return [_relative(one, timings, contrasts, margin) for one in compared]


def matching_of(scope: Scope) -> str:
    """Return `FIXED_SHAPE`, `SAME_WIDTH`, `SAME_PARAMETERS` or "" for other policies."""
    match = str(scope.keys["match"])
    return SAME_WIDTH if is_one_width(match) else {"params": SAME_PARAMETERS, "shape": FIXED_SHAPE}.get(match, "")


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
    matchings = {matching_of(scope), matching_of(primary)}
    return same_work and matchings in ({SAME_PARAMETERS, FIXED_SHAPE}, {SAME_PARAMETERS, SAME_WIDTH})


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
    found = signed_ranks(list(timings.log_ratios(row["cell_id"], reference["cell_id"]).values()))
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

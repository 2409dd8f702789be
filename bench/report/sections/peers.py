"""Compare our models with peers, other people's models.

A run without peers has no such section. A place is one combination of part, length, batch size and workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench import numbers
from bench.analysis.peers import FASTEST_PEER, SHIPPED, Contender, Mean, PeerComparison, PeerPair, PeerPlace, both_with
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.measure.engines import EAGER
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.verdicts import interval_json, interval_text
from bench.report.sections.wording import configurations_text
from bench.report.tables import Table

MEANS_CAPTION = (
    "Our time over the peer's: geometric means, each with a 95 % t-interval over the means of single rounds, then the number of configurations. "
    "Peers run with our engine at some lengths only, so compare columns only if they cover the same configurations. In all columns but the "
    "first both sides run with one engine, which separates the effect of the code from the effect of the engine."
)
CELLS_CAPTION = (
    "Ours with its best engine against the fastest peer as shipped, the peer with the smallest median time in that row. Choosing the smallest "
    "median makes the peer look slightly faster than it is, a bias against ours. Intervals hold for all rows together (Bonferroni); p (Holm) tests "
    "equal times."
)
PAIRS_CAPTION = (
    "Our time over the peer's, for every peer and configuration. The output error is the peer's largest error with our weights, over the largest "
    "output."
)
EXCLUDED_CAPTION = "These configurations enter no ratio and no mean, because their answers differ or their measurements are incomplete."


def peer_blocks(study: Study) -> tuple[Block, ...]:
    """Return summary and tables; () without peers."""
    comparison = study.peers
    if comparison is None:
        return ()
    return (Paragraph(text=summary(comparison)), *_tables(comparison, study.caveat))


def summary(comparison: PeerComparison) -> str:
    """State each part's geometric mean, and how often ours is faster.

    The mean is against the fastest peer of each place.
    """
    means = []
    for mean in (mean for mean in comparison.means if mean.peer == FASTEST_PEER):
        text = interval_text(mean.ratio, "ratio") if mean.ratio else "unknown"
        lost = f"{mean.num_places} of " if mean.num_places < mean.num_planned else ""
        means.append(f"{mean.part} {text} over {lost}{mean.num_planned} configuration{'' if mean.num_planned == 1 else 's'}")
    lead = f"Time of ours with its best engine over the fastest peer as shipped, geometric mean: {'; '.join(means)}."
    return f"{lead} Ours is shown to take less time in {configurations_text(comparison.shown_faster)} (Holm)."


def _tables(comparison: PeerComparison, caveat: str) -> tuple[Block, ...]:
    """Return the tables that have rows."""
    found = (
        (mean_table(comparison.means), MEANS_CAPTION),
        (cell_table(comparison.fastest), " ".join(filter(None, (CELLS_CAPTION, caveat)))),
        (pair_table(comparison.pairs), " ".join((PAIRS_CAPTION, *differences(comparison)))),
        (excluded_table(comparison), EXCLUDED_CAPTION),
    )
    return tuple(TableBlock(table=table, caption=caption) for table, caption in found if table.rows)


def peer_json(study: Study) -> dict[str, Any]:
    """Return the comparison for `verdicts.json`; {} without peers.

    Unknown ratios have no numbers.
    """
    comparison = study.peers
    if comparison is None:
        return {}
    found = {
        "answer": summary(comparison),
        "means": [
            {
                "part": mean.part,
                "peer": mean.peer,
                "kind": mean.kind,
                "cells": mean.num_places,
                **(interval_json(mean.ratio) if mean.ratio else {}),
            }
            for mean in comparison.means
        ],
        "cells": [
            {**_place_json(pair.place), "peer": pair.peer, "engine": pair.ours.engine, **(interval_json(pair.ratio) if pair.ratio else {})}
            for pair in comparison.fastest
        ],
        "excluded": [
            {**_place_json(lost.place), "whose": lost.contender.side, "engine": lost.contender.engine, "reason": lost.reason}
            for lost in comparison.excluded
        ],
    }
    return {"standing": found}


def _place_json(place: PeerPlace) -> dict[str, Any]:
    return {"part": place.part, "phase": place.phase, "n": place.seq_len, "batch_size": place.batch_size}


Value = str | tuple[str, float]
"""The text of a table cell, optionally with a sort key."""


def mean_table(means: Sequence[Mean]) -> Table:
    """Return geometric means: a row per peer, a column per kind."""
    kinds = _in_order(mean.kind for mean in means)
    by_row: dict[tuple[str, str], dict[str, Value]] = {}
    for mean in means:
        coverage = f", {mean.num_places} of {mean.num_planned}"
        by_row.setdefault((mean.part, mean.peer), {})[mean.kind] = _ratio(mean.ratio, coverage)
    return _table(("part", "peer", *kinds), [(*names, *(found.get(kind, "") for kind in kinds)) for names, found in by_row.items()])


def cell_table(fastest: Sequence[PeerPair]) -> Table:
    """Return one row per place: our best engine against the fastest peer."""
    rows = [
        (
            *_place_values(pair.place),
            pair.ours.engine,
            _latency(pair.ours),
            pair.peer,
            _latency(pair.theirs),
            _ratio(pair.joint),
            _number(pair.p_adjusted, numbers.p_value),
        )
        for pair in fastest
    ]
    return _table(("part", "n", "batch", "engine", "ours", FASTEST_PEER, "time of peer", "ratio", "p (Holm)"), rows)


def pair_table(pairs: Sequence[PeerPair]) -> Table:
    """Return ratios: a row per place and peer, a column per kind."""
    kinds = _in_order(pair.kind for pair in pairs)
    by_row: dict[tuple[PeerPlace, str], dict[str, PeerPair]] = {}
    for pair in pairs:
        by_row.setdefault((pair.place, pair.peer), {})[pair.kind] = pair
    rows = [
        (
            *_place_values(place),
            peer,
            *(_ratio(found[kind].ratio) if kind in found else "" for kind in kinds),
            _number(found[SHIPPED].theirs.output_error, _error) if SHIPPED in found else "",
        )
        for (place, peer), found in by_row.items()
    ]
    return _table(("part", "n", "batch", "peer", *kinds, "output error"), rows)


def differences(comparison: PeerComparison) -> list[str]:
    """Write one sentence per peer that was changed to compare answers.

    It names the components removed for the comparison; timed peers keep them.
    """
    compared = [(contender.side, contender.row) for found in comparison.contenders.values() for contender in found]
    found = {(side, str(row["differences"])): None for side, row in compared if not numbers.is_empty(row.get("differences"))}
    return [f"{side}: {text}." for side, text in found]


def excluded_table(comparison: PeerComparison) -> Table:
    rows = [(*_place_values(lost.place), lost.contender.side, lost.contender.engine, lost.reason) for lost in comparison.excluded]
    return _table(("part", "n", "batch", "side", "engine", "why"), rows)


def _table(headers: tuple[str, ...], rows: Sequence[tuple[Value, ...]]) -> Table:
    """Build a table without empty columns; columns with sort keys are right-aligned."""
    pairs = [[(value, None) if isinstance(value, str) else value for value in row] for row in rows]
    kept = [i for i in range(len(headers)) if any(row[i][0] for row in pairs)]
    return Table(
        headers=tuple(headers[i] for i in kept),
        numeric=tuple(any(row[i][1] is not None for row in pairs) for i in kept),
        rows=tuple(tuple(row[i][0] for i in kept) for row in pairs),
        keys=tuple(tuple(row[i][1] for i in kept) for row in pairs),
    )


def _in_order(kinds: Iterable[str]) -> tuple[str, ...]:
    """Order kinds of pairs: best engine first, then both eager, then others."""
    return tuple(sorted(dict.fromkeys(kinds), key=lambda kind: (kind != SHIPPED, kind != both_with(EAGER))))


def _number(value: float | None, text: Callable[[float], str]) -> Value:
    return "" if value is None else (text(value), float(value))


def _error(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def _place_values(place: PeerPlace) -> tuple[Value, Value, Value]:
    return place.part, _number(place.seq_len, numbers.exact), _number(place.batch_size, numbers.exact)


def _ratio(ratio: Interval | None, more: str = "") -> Value:
    return "" if ratio is None else (f"{numbers.ratio(ratio.estimate, ratio.low, ratio.high)}{more}", ratio.estimate)


def _latency(contender: Contender) -> Value:
    value, low, high = (contender.row.get(name) for name in ("latency_ms", "latency_low_ms", "latency_high_ms"))
    mark = ", unstable" if contender.row.get("latency_stable") is False else ""
    return "" if numbers.is_empty(value) else (f"{numbers.interval_ms(value, low, high)}{mark}", float(value))  # type: ignore[arg-type]

"""Tables of the standing comparison: bounds, means, cells, pairs, kernel against architecture, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.analysis.kernel_share import KernelShare
from bench.analysis.standing import FASTEST, SHIPPED, Contender, Mean, Pair, Place, Standing, both_with, is_empty
from bench.analysis.standing_bounds import CELL_BOUND, Judgement, answer_below, is_bound, places_text
from bench.engines import EAGER
from bench.intervals import Interval
from bench.render import numbers
from bench.render.tables import Table

Value = tuple[str, float | None]
"""A cell's text, and the number to sort it by."""
EMPTY: Value = ("", None)
BADGES = ("outcome", "at most 1")


def judgement_table(judged: Sequence[Judgement]) -> Table:
    headers = ("outcome", "part", "bound", "measured", "fails at", "why")
    return _table(
        headers,
        [
            (_plain(j.answer), _plain(j.part), _plain(j.bound), _ratio(j.value), _plain(places_text(j.missed)), _plain(j.reason))
            for j in judged
        ],
    )


def mean_table(means: Sequence[Mean]) -> Table:
    """One row per part and peer, one column per kind of pair; the fastest peer of each place leads."""
    kinds = _in_order(mean.kind for mean in means)
    by_row: dict[tuple[str, str], dict[str, Mean]] = {}
    for mean in means:
        by_row.setdefault((mean.part, mean.peer), {})[mean.kind] = mean
    rows = [(_plain(part), _plain(peer), *(_mean(found.get(kind)) for kind in kinds)) for (part, peer), found in by_row.items()]
    return _table(("part", "peer", *kinds), rows)


def cell_table(fastest: Sequence[Pair], *, is_doubted: bool = False) -> Table:
    """Ours with its best engine against the fastest peer of each place, with both times. Doubt judges nothing."""
    rows = [
        (
            *_place(pair.place),
            _plain(pair.ours.engine),
            _latency(pair.ours),
            _plain(pair.peer),
            _latency(pair.theirs),
            _ratio(pair.ratio),
            _plain(answer_below(CELL_BOUND, pair.ratio) if is_bound(pair.place) and not is_doubted else ""),
        )
        for pair in fastest
    ]
    return _table(("part", "n", "batch", "engine", "ours", FASTEST, "its time", "ratio", "at most 1"), rows)


def pair_table(pairs: Sequence[Pair]) -> Table:
    """One row per place and peer, one column per kind of pair."""
    kinds = _in_order(pair.kind for pair in pairs)
    by_row: dict[tuple[Place, str], dict[str, Pair]] = {}
    for pair in pairs:
        by_row.setdefault((pair.place, pair.peer), {})[pair.kind] = pair
    rows = [
        (
            *_place(place),
            _plain(peer),
            *(_ratio(found[kind].ratio) if kind in found else EMPTY for kind in kinds),
            _error(found[SHIPPED].theirs) if SHIPPED in found else EMPTY,
        )
        for (place, peer), found in by_row.items()
    ]
    return _table(("part", "n", "batch", "peer", *kinds, "output error"), rows)


def differences(standing: Standing) -> list[str]:
    """By peer, what was taken out of it for the comparison of answers and is in it when it is timed: a sentence each."""
    compared = [(contender.side, contender.row) for found in standing.contenders.values() for contender in found]
    found = {(side, str(row["differences"])): None for side, row in compared if not is_empty(row.get("differences"))}
    return [f"{side}: {text}." for side, text in found]


def share_table(shares: Sequence[KernelShare]) -> Table:
    headers = ("phase", "peer", "n", "batch", "FLOPs", "as shipped", "ours, best engines", "kernels", "share of kernels")
    rows = [
        (
            *(_plain(share.phase), _plain(share.peer)),
            (numbers.exact(share.place.seq_len), float(share.place.seq_len)) if share.place else _plain(f"all {share.num_places}"),
            (numbers.exact(share.place.batch_size), float(share.place.batch_size)) if share.place else EMPTY,
            ("" if share.flops is None else numbers.significant(share.flops), share.flops),
            *(_ratio(share.shipped), _ratio(share.ours), _ratio(share.kernels)),
            ("" if share.share is None else f"{100 * share.share:.0f} %", share.share),
        )
        for share in shares
    ]
    return _table(headers, rows)


def excluded_table(standing: Standing) -> Table:
    rows = [(*_place(e.place), _plain(e.contender.side), _plain(e.contender.engine), _plain(e.reason)) for e in standing.excluded]
    return _table(("part", "n", "batch", "whose", "engine", "why"), rows)


def _table(headers: tuple[str, ...], rows: Sequence[tuple[Value, ...]]) -> Table:
    """Columns that are empty throughout are left out; those with numbers to sort by are set flush right."""
    kept = [i for i in range(len(headers)) if any(row[i][0] for row in rows)]
    return Table(
        headers=tuple(headers[i] for i in kept),
        numeric=tuple(any(row[i][1] is not None for row in rows) for i in kept),
        rows=tuple(tuple(row[i][0] for i in kept) for row in rows),
        keys=tuple(tuple(row[i][1] for i in kept) for row in rows),
        badges=tuple(headers[i] in BADGES for i in kept),
    )


def _in_order(kinds: Iterable[str]) -> tuple[str, ...]:
    """What the bounds are about, then both eager, then the other engines."""
    return tuple(sorted(dict.fromkeys(kinds), key=lambda kind: (kind != SHIPPED, kind != both_with(EAGER))))


def _plain(text: str) -> Value:
    return text, None


def _place(place: Place) -> tuple[Value, Value, Value]:
    n, batch = place.seq_len, place.batch_size
    return _plain(place.part), (numbers.exact(n), float(n)), (numbers.exact(batch), float(batch))


def _ratio(ratio: Interval | None) -> Value:
    return EMPTY if ratio is None else (numbers.ratio(ratio.estimate, ratio.low, ratio.high), ratio.estimate)


def _latency(contender: Contender) -> Value:
    value, low, high = (contender.row.get(name) for name in ("latency_ms", "latency_low_ms", "latency_high_ms"))
    mark = ", unstable" if contender.row.get("latency_stable") is False else ""
    return EMPTY if numbers.is_empty(value) else (f"{numbers.interval_ms(value, low, high)}{mark}", float(value))  # type: ignore[arg-type]


def _error(contender: Contender) -> Value:
    error = contender.output_error
    return EMPTY if error is None else (f"{error:.1e}" if error else "0", error)


def _mean(mean: Mean | None) -> Value:
    """With how many places went in, of how many."""
    if mean is None or mean.ratio is None:
        return EMPTY
    text, key = _ratio(mean.ratio)
    return f"{text}, {mean.num_places} of {mean.num_planned} cells", key

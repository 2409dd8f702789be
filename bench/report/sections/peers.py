"""Our models beside the peers', as a section: tables, a figure against n and JSON. Empty for a run that compares with none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.claims import UNDECIDED
from bench.analysis.kernel_shares import KernelShare
from bench.analysis.peer_bounds import BOUND_DEVICE, BOUND_DTYPE, CELL_BOUND, MET, MISSED, Judgement, answer_below, is_bound, places_text
from bench.analysis.peers import FASTEST, SHIPPED, Contender, Mean, Pair, Place, Standing, both_with, is_empty
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.measure.engines import EAGER
from bench.report.charts.matplotlib import Quantity, draw_lines
from bench.report.charts.sheets import draw_sheets, sheets
from bench.report.charts.style import series_styles
from bench.report.document import Block, FigureBlock, Paragraph, TableBlock
from bench.report.tables import Table

BOUNDS_CAPTION = (
    "The bounds were set before anything was measured, for fp32 on a CPU. One is met where the whole 95 % interval is within it, missed where it is "
    "wholly outside, and undecided otherwise, where cells or a peer as shipped are lost, and where the run has other places. That of every cell is "
    "judged by intervals that hold for all cells together."
)
MEANS_CAPTION = (
    "Geometric means of ours over the peer's time, over as many lengths and batch sizes of a part as stand behind each; intervals are 95 % "
    "t-intervals over rounds of the round's own mean. Peers run with our engine at some lengths only: columns over other places are not to be set "
    "against each other. Only the first column has a bound; the others run both sides with one engine and tell the code from the engine."
)
CELLS_CAPTION = (
    "Ours with its best engine against the fastest peer as shipped: the one with the smallest median there. To choose the smallest makes it look a "
    "little faster than it is: an error against ours, not for it. Intervals hold for all rows together (Bonferroni), p is Holm's, of equal times."
)
PAIRS_CAPTION = (
    "Every peer at every place: ours over the peer's time. The output error is the peer's with our weights, over the largest output."
)
SHARES_CAPTION = (
    "How much of the difference between spatial gating and attention is kernel: gMLP over ViT, as one peer ships both, and as built here with "
    "the best engines. Above 1 attention is faster. The first ratio is the second times the third. What remains between the best of both is put "
    "down to the architecture (FLOPs: gMLP's over ViT's), the rest to kernels. A share above 100 % means that with the best kernels gating is the "
    "faster one, a share below 0 that attention gained more from them; it is left out where attention is not shown to be faster as shipped, and "
    "where the interval of what kernels do contains 1."
)
EXCLUDED_CAPTION = "Left out of every ratio and mean, so that nothing unequal is compared."


def standing_blocks(study: Study) -> tuple[Block, ...]:
    """Show ours beside the peers; nothing for a run that compares with none. Call inside `style.figure_style`."""
    standing, judged = study.peers, study.peer_bounds
    if standing is None:
        return ()
    answer, figures = Paragraph(text=summary(standing, judged)), draw_standing(standing, study.frame)
    return (answer, *_bounds(judged), *figures, *_tables(standing, study.kernel_shares, study.doubt))


def summary(standing: Standing, judged: Sequence[Judgement]) -> str:
    """The geometric mean of every part against its fastest peers, and how many bounds are met."""
    means = [f"{mean.part} {_mean_text(mean)}" for mean in standing.means if mean.peer == FASTEST]
    counts = Counter(judgement.answer for judgement in judged)
    bounds = ", ".join(f"{counts[answer]} {answer}" for answer in (MET, MISSED, UNDECIDED) if counts[answer])
    lead = f"Ours with its best engine over the fastest peer as shipped, geometric mean of times: {'; '.join(means)}."
    pairs = [pair for pair in standing.fastest if is_bound(pair.place)] or standing.fastest
    shown = sum(pair.is_shown_faster for pair in pairs)
    lead += f" Shown to take less time in {shown} of {len(pairs)} cells (Holm)."
    elsewhere = f"The bounds were set for {BOUND_DTYPE} on {BOUND_DEVICE}: none is judged here."
    return f"{lead} {f'Of {len(judged)} bounds: {bounds}.' if judged else elsewhere}"


def _mean_text(mean: Mean) -> str:
    ratio = mean.ratio
    text = "not known" if ratio is None else numbers.ratio(ratio.estimate, ratio.low, ratio.high)
    whole = mean.num_places == mean.num_planned
    return f"{text} over {mean.num_planned} cells" if whole else f"{text} over {mean.num_places} of {mean.num_planned} cells"


def _bounds(judged: Sequence[Judgement]) -> tuple[Block, ...]:
    return (TableBlock(table=judgement_table(judged), caption=BOUNDS_CAPTION),) if judged else ()


def _tables(standing: Standing, shares: Sequence[KernelShare], doubt: str) -> tuple[Block, ...]:
    """Those that have rows."""
    found = (
        (mean_table(standing.means), MEANS_CAPTION),
        (cell_table(standing.fastest, is_doubted=bool(doubt)), " ".join(filter(None, (CELLS_CAPTION, doubt)))),
        (pair_table(standing.pairs), " ".join((PAIRS_CAPTION, *differences(standing)))),
        (share_table(shares), SHARES_CAPTION),
        (excluded_table(standing), EXCLUDED_CAPTION),
    )
    return tuple(TableBlock(table=table, caption=caption) for table, caption in found if table.rows)


VALUE, LOW, HIGH = "standing", "standing_low", "standing_high"
PANEL_KEYS = ("device", "dtype", "phase", "batching")
QUANTITY = Quantity(
    value=VALUE, low=LOW, high=HIGH, label="ours / peer, time", text=lambda value: f"{value:g}", limit=1.0, limit_label="equally fast"
)
CAPTION = (
    "Time of ours with its best engine over that of each peer as shipped: below the line at 1 ours is faster. Bars are 95 % t-intervals over rounds, "
    "paired within the round."
)


def draw_standing(standing: Standing, frame: pandas.DataFrame) -> Iterator[FigureBlock]:
    """Draw a panel per model, phase and batch, where pairs have a ratio. `frame` is prepared. Call inside `style.figure_style`."""
    shown = [pair for pair in standing.pairs if pair.kind == SHIPPED and pair.ratio is not None]
    rows = pandas.DataFrame([_row(pair) for pair in shown], columns=[*frame.columns, VALUE, LOW, HIGH])
    if rows.empty:
        return
    styles = series_styles(list(rows["label"]))
    yield from draw_sheets(
        sheets(rows, "model", str, PANEL_KEYS),
        lambda sheet: draw_lines(sheet, QUANTITY, styles),
        name="beside-peers",
        title="Ours beside the peers",
        caption=CAPTION,
        missing=lambda _: _missing(standing.pairs),
    )


def _row(pair: Pair) -> dict[str, Any]:
    """Our cell, under the peer's name."""
    assert pair.ratio is not None
    own = {"batching": f"batch {pair.place.batch_size}", "label": pair.peer}
    return {**pair.ours.row, **own, VALUE: pair.ratio.estimate, LOW: pair.ratio.low, HIGH: pair.ratio.high}


def _missing(pairs: Sequence[Pair]) -> tuple[str, ...]:
    lost = [pair for pair in pairs if pair.kind == SHIPPED and pair.ratio is None]
    return tuple(f"{p.place.part}, n = {p.place.seq_len}, batch {p.place.batch_size}, {p.peer}: fewer than two rounds" for p in lost)


def standing_json(study: Study) -> dict[str, Any]:
    """Return the comparison for `verdicts.json`, empty without peers; a ratio that is not known has no numbers."""
    standing, judged = study.peers, study.peer_bounds
    if standing is None:
        return {}
    found = {
        "answer": summary(standing, judged),
        "bounds": [
            {
                "part": judgement.part,
                "bound": judgement.bound,
                "answer": judgement.answer,
                "reason": judgement.reason,
                "measured": _interval(judgement.value),
                "missed": [_place_json(place) for place in judgement.missed],
            }
            for judgement in judged
        ],
        "means": [
            {"part": mean.part, "peer": mean.peer, "kind": mean.kind, "cells": mean.num_places, **(_interval(mean.ratio) or {})}
            for mean in standing.means
        ],
        "cells": [
            {**_place_json(pair.place), "peer": pair.peer, "engine": pair.ours.engine, **(_interval(pair.ratio) or {})}
            for pair in standing.fastest
        ],
        "kernel_shares": [
            {
                **(_place_json(share.place) if share.place else {"phase": share.phase}),
                "dtype": share.dtype,
                "peer": share.peer,
                "as_shipped": _interval(share.shipped),
                "ours": _interval(share.ours),
                "kernels": _interval(share.kernels),
                "share": share.share,
            }
            for share in study.kernel_shares
        ],
        "excluded": [
            {**_place_json(lost.place), "whose": lost.contender.side, "engine": lost.contender.engine, "reason": lost.reason}
            for lost in standing.excluded
        ],
    }
    return {"standing": found}


def _place_json(place: Place) -> dict[str, Any]:
    return {"part": place.part, "phase": place.phase, "n": place.seq_len, "batch_size": place.batch_size}


def _interval(found: Interval | None) -> dict[str, float] | None:
    return None if found is None else {"estimate": float(found.estimate), "low": float(found.low), "high": float(found.high)}


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
            *_place_text(pair.place),
            _plain(pair.ours.engine),
            _latency(pair.ours),
            _plain(pair.peer),
            _latency(pair.theirs),
            _ratio(pair.joint),
            EMPTY if pair.p_adjusted is None else (numbers.p_value(pair.p_adjusted), pair.p_adjusted),
            _plain(answer_below(CELL_BOUND, pair.joint) if is_bound(pair.place) and not is_doubted else ""),
        )
        for pair in fastest
    ]
    return _table(("part", "n", "batch", "engine", "ours", FASTEST, "its time", "ratio", "p (Holm)", "at most 1"), rows)


def pair_table(pairs: Sequence[Pair]) -> Table:
    """One row per place and peer, one column per kind of pair."""
    kinds = _in_order(pair.kind for pair in pairs)
    by_row: dict[tuple[Place, str], dict[str, Pair]] = {}
    for pair in pairs:
        by_row.setdefault((pair.place, pair.peer), {})[pair.kind] = pair
    rows = [
        (
            *_place_text(place),
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
    headers = ("phase", "dtype", "peer", "n", "batch", "FLOPs", "as shipped", "ours, best engines", "kernels", "share of kernels")
    rows = [
        (
            *(_plain(share.phase), _plain(share.dtype), _plain(share.peer)),
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
    rows = [(*_place_text(e.place), _plain(e.contender.side), _plain(e.contender.engine), _plain(e.reason)) for e in standing.excluded]
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


def _place_text(place: Place) -> tuple[Value, Value, Value]:
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

"""Compare our models with peers, other people's models.

A run without peers has no such section. A place is one combination of part, length, batch size and workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench import numbers
from bench.analysis.peers import SHIPPED, Mean, PeerComparison, PeerPlace
from bench.analysis.study import Study
from bench.report.document import TableBlock
from bench.report.tables import Table

MEANS_CAPTION = (
    "Our time over the peer's: geometric means over configurations, each with a 95 % interval over rounds, then their number. "
    "Peers run with our engine at some lengths only, so compare columns only if they cover the same configurations. In all columns but the "
    "first both sides run with one engine, which separates the effect of the code from the effect of the engine."
)
CELLS_CAPTION = (
    "Our time over the peer's, for every peer and configuration; 95 %, together for the peers of a configuration. The output error is the peer's "
    "largest error with our weights, over the largest output."
)
EXCLUDED_CAPTION = "These configurations enter no ratio and no mean, because their answers differ or their measurements are incomplete."


def peer_blocks(study: Study) -> tuple[TableBlock, ...]:
    """Return the tables that have rows; () without peers."""
    comparison = study.peers
    if comparison is None:
        return ()
    found = (
        (mean_table(comparison.means), MEANS_CAPTION),
        (cell_table(comparison), " ".join(filter(None, (CELLS_CAPTION, *differences(comparison), study.caveat)))),
        (excluded_table(comparison), EXCLUDED_CAPTION),
    )
    return tuple(TableBlock(table=table, caption=caption) for table, caption in found if table.rows)


def mean_table(means: Sequence[Mean]) -> Table:
    """Return geometric means: a row per peer, a column per kind."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for mean in (mean for mean in means if mean.ratio):
        text = f"{numbers.ratio_interval(mean.ratio)}, {mean.num_places} of {mean.num_planned}"
        rows.setdefault((mean.part, mean.peer), {})[mean.kind] = text
    return _table(("part", "peer"), rows)


def cell_table(comparison: PeerComparison) -> Table:
    """Return ratios: a row per place and peer, a column per kind."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for pair in comparison.pairs:
        row = rows.setdefault((*_place_texts(pair.place), pair.peer), {})
        row[pair.kind] = numbers.ratio_interval(pair.ratio)
        if pair.kind == SHIPPED:
            error = pair.theirs.get("output_error")
            row["output error"] = "" if numbers.is_empty(error) else f"{error:.1e}"
    return _table(("part", "n", "batch", "peer"), rows)


def differences(comparison: PeerComparison) -> list[str]:
    """Write one sentence per peer that was changed to compare answers.

    It names the components removed for the comparison; timed peers keep them.
    """
    found = {(pair.peer, pair.theirs.get("differences")): None for pair in comparison.pairs}
    return [f"{peer}: {text}." for peer, text in found if not numbers.is_empty(text)]


def excluded_table(comparison: PeerComparison) -> Table:
    found: dict[tuple[str, ...], dict[str, str]] = {
        (*_place_texts(lost.place), lost.side, str(lost.row["engine"])): {"why": lost.reason} for lost in comparison.excluded
    }
    return _table(("part", "n", "batch", "side", "engine"), found)


def _table(names: tuple[str, ...], rows: Mapping[tuple[str, ...], Mapping[str, str]]) -> Table:
    """Return a table of the columns that `names` heads, then those that the rows fill."""
    filled = dict.fromkeys(column for row in rows.values() for column, text in row.items() if text)
    return Table(
        headers=(*names, *filled),
        numeric=(*(name in ("n", "batch") for name in names), *(column != "why" for column in filled)),
        rows=tuple((*leading, *(row.get(column, "") for column in filled)) for leading, row in rows.items()),
    )


def _place_texts(place: PeerPlace) -> tuple[str, str, str]:
    return place.part, numbers.exact(place.seq_len), numbers.exact(place.batch_size)

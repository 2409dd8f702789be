"""Draw our times over the fastest peer's: means, and their configurations."""

from __future__ import annotations

from bench import numbers
from bench.analysis.peers import FASTEST_PEER, Mean, PeerComparison
from bench.analysis.study import Study
from bench.report.charts.forest import Row, draw_forest
from bench.report.charts.style import ROLES, TEAL, role_of
from bench.report.document import FigureBlock

CAPTION = (
    "Our best engine over the fastest peer as shipped. Large dots: geometric means, each with its 95 % interval. Small dots: single "
    "configurations of size and batch."
)


def draw_peers(study: Study) -> FigureBlock | None:
    """Draw one row per part with its configurations; None without peers."""
    comparison = study.peers
    means = [mean for mean in comparison.means if mean.peer == FASTEST_PEER and mean.ratio] if comparison else []
    if comparison is None or not means:
        return None
    figure = draw_forest(
        [_row(mean, comparison) for mean in means],
        neutral=1.0,
        band=0.0,
        axis_label="our time / fastest peer's (below 1: faster)",
        tick_text=lambda value: f"{value:g}",
    )
    return FigureBlock(name="peers", title=peers_title(means), caption=CAPTION, figure=figure)


def peers_title(means: list[Mean]) -> str:
    """State the range of the means, by dtype if several were compared."""
    by_dtype: dict[str, list[float]] = {}
    for mean in means:
        assert mean.ratio is not None
        by_dtype.setdefault(mean.dtype, []).append(mean.ratio.estimate)
    ranges = {dtype: numbers.span(found) for dtype, found in by_dtype.items()}
    if len(ranges) > 1:
        return f"Our mean time over the fastest peer's: {', '.join(f'{found} ({dtype})' for dtype, found in ranges.items())}"
    return f"Our models take on average {next(iter(ranges.values()))} of the fastest peer's time"


def _row(mean: Mean, comparison: PeerComparison) -> Row:
    assert mean.ratio is not None
    cells = [pair for pair in comparison.fastest if pair.place.part == mean.part and pair.ratio]
    return Row(
        label=mean.part,
        interval=mean.ratio,
        color=ROLES.get(role_of(cells[0].ours["family"]), TEAL),
        text=numbers.significant(mean.ratio.estimate),
        dots=tuple(pair.ratio.estimate for pair in cells if pair.ratio),
    )

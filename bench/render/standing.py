"""The section of a report that sets ours beside the peers; nothing for a run that compares with none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas
from matplotlib.figure import Figure

from bench.analysis.kernel_share import KernelShare, kernel_shares
from bench.analysis.quadratic import UNDECIDED
from bench.analysis.series import row_values, timings_of
from bench.analysis.standing import FASTEST, Mean, Standing, standing_of
from bench.analysis.standing_bounds import BOUND_DEVICE, BOUND_DTYPE, MET, MISSED, Judgement, judge_bounds, lacking_arms
from bench.render import numbers
from bench.render.document import Block, FigureBlock, Paragraph, TableBlock
from bench.render.drawing import Drawing
from bench.render.report_data import ReportData
from bench.render.standing_figure import draw_standing
from bench.render.standing_json import standing_json
from bench.render.standing_tables import cell_table, differences, excluded_table, judgement_table, mean_table, pair_table, share_table

BOUNDS_CAPTION = (
    "The bounds were set before anything was measured, for fp32 on a CPU. One is met where the whole 95 % interval is within it, missed where it is "
    "wholly outside, and undecided otherwise, where cells or a peer as shipped are lost, and where the run has other places. Intervals of "
    "single cells are not corrected for their number."
)
MEANS_CAPTION = (
    "Geometric means of ours over the peer's time, over as many lengths and batch sizes of a part as stand behind each; intervals are 95 % "
    "t-intervals over rounds of the round's own mean. Peers run with our engine at some lengths only: columns over other places are not to be set "
    "against each other. Only the first column has a bound; the others run both sides with one engine and tell the code from the engine."
)
CELLS_CAPTION = (
    "Ours with its best engine against the fastest peer as shipped: the one with the smallest median there. To choose the smallest makes it look a "
    "little faster than it is: an error against ours, not for it."
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


@dataclass(frozen=True, kw_only=True)
class StandingSection:
    """Blocks in reading order, by name the figures that they show, and the same as JSON; all empty where a run compares with no peers."""

    blocks: tuple[Block, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)


def standing_section(frame: pandas.DataFrame, data: ReportData, doubt: str) -> StandingSection:
    """`frame` is prepared; `doubt`: why nothing timed may be decided. Call inside `style.figure_style`."""
    timings = timings_of(data.rounds)
    standing = standing_of(data.plan.parts, {row["cell_id"]: row for row in row_values(frame)}, timings)
    if standing is None:
        return StandingSection()
    lacking = lacking_arms(data.plan.parts, data.plan.question.predictions if data.plan.question else ())
    judged, shares = judge_bounds(standing, doubt, lacking), kernel_shares(standing, timings)
    answer, drawings = summary(standing, judged), list(draw_standing(standing, frame))
    return StandingSection(
        blocks=(Paragraph(text=answer), *_bounds(judged), *map(_figure, drawings), *_tables(standing, shares, doubt)),
        figures={drawing.name: drawing.figure for drawing in drawings},
        told={"standing": standing_json(standing, judged, shares, answer)},
    )


def summary(standing: Standing, judged: Sequence[Judgement]) -> str:
    """The geometric mean of every part against its fastest peers, and how many bounds are met."""
    means = [f"{mean.part} {_mean_text(mean)}" for mean in standing.means if mean.peer == FASTEST]
    counts = Counter(judgement.answer for judgement in judged)
    bounds = ", ".join(f"{counts[answer]} {answer}" for answer in (MET, MISSED, UNDECIDED) if counts[answer])
    lead = f"Ours with its best engine over the fastest peer as shipped, geometric mean of times: {'; '.join(means)}."
    elsewhere = f"The bounds were set for {BOUND_DTYPE} on {BOUND_DEVICE}: none is judged here."
    return f"{lead} {f'Of {len(judged)} bounds: {bounds}.' if judged else elsewhere}"


def _mean_text(mean: Mean) -> str:
    ratio = mean.ratio
    text = "not known" if ratio is None else numbers.ratio(ratio.estimate, ratio.low, ratio.high)
    whole = mean.num_places == mean.num_planned
    return f"{text} over {mean.num_planned} cells" if whole else f"{text} over {mean.num_places} of {mean.num_planned} cells"


def _bounds(judged: Sequence[Judgement]) -> tuple[Block, ...]:
    return (TableBlock(table=judgement_table(judged), caption=BOUNDS_CAPTION),) if judged else ()


def _figure(drawing: Drawing) -> FigureBlock:
    return FigureBlock(
        name=drawing.name,
        title=drawing.title,
        caption=drawing.caption,
        missing=drawing.missing,
        wide=drawing.wide,
        chart=drawing.chart,
        table=drawing.table,
    )


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

"""Choose the figures of a report, the most important first."""

from __future__ import annotations

from collections.abc import Callable

from bench.analysis.study import Study
from bench.needs import depends_on_host, trains
from bench.report.charts.accuracy import draw_accuracy
from bench.report.charts.arm_fronts import draw_arm_fronts
from bench.report.charts.crossing import draw_crossing
from bench.report.charts.effects import draw_effects
from bench.report.charts.growth import draw_growth
from bench.report.charts.peers import draw_peers
from bench.report.charts.quality import draw_quality
from bench.report.charts.relative_time import draw_relative_time
from bench.report.charts.solved import draw_solved
from bench.report.charts.training_curves import draw_training_curves
from bench.report.document import FigureBlock
from bench.report.sections.findings import paying_from

MAX_FIGURES = 6
IN_ORDER: tuple[Callable[[Study], FigureBlock | None], ...] = (
    draw_solved,
    draw_growth,
    draw_arm_fronts,
    draw_accuracy,
    draw_effects,
    draw_peers,
    draw_relative_time,
    draw_crossing,
    draw_quality,
    draw_training_curves,
)
"""Figures by importance: which state solves a task, where that is the question; else how cost grows with n, then those of a run's own question.

A run that only trains asks for accuracy, and the growth of cost comes last. A question from which length on a mixer pays shows that first.
"""


def draw_figures(study: Study) -> list[FigureBlock]:
    """Draw the `MAX_FIGURES` most important figures that the data allow.

    Call inside `style.figure_style`.
    """
    # the arms of a small part answer a question beside the run's own
    aside = [draw_effects] if not _compares_arms(study) else []
    if trains(study.plan) and not depends_on_host(study.plan):
        aside.append(draw_growth)
    first = [draw_relative_time] if paying_from(study) else []
    found: list[FigureBlock] = []
    for draw in (*first, *(draw for draw in IN_ORDER if draw not in (*first, *aside)), *aside):
        if len(found) < MAX_FIGURES and (figure := draw(study)):
            found.append(figure)
    return found


def _compares_arms(study: Study) -> bool:
    """Return whether at least half of the cells belong to arms."""
    arms = {cell for part in study.plan.parts for arm in part.arms for cell in arm.cells}
    return 2 * len(arms) >= len(study.plan.cells)

"""Training curves: a title that the intervals allow, three panels, and every group in the fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from bench.analysis.accuracy import EPOCHS, FLOPS, TIME, CurvePair, Difference
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.report.charts.lines import label_width
from bench.report.charts.style import VERMILLION, figure_style
from bench.report.charts.training_curves import MIN_PANEL, _panels, curves_title, draw_training_curves
from bench.report.document import FigureBlock, TableBlock
from bench.report.page import build_document
from bench.spec import Outcome
from tests.made_jobs import training_record
from tests.report.conftest import MakeData

EPOCH_S = {"gmlp": 2.0, "vit": 1.0, "transformer": 1.0}
LEAD = {"gmlp": 0.1, "vit": 0.0, "transformer": 0.02}
NOISE = ((0.0, 0.001, 0.002), (0.001, 0.0, 0.002), (0.002, 0.001, 0.001), (0.001, 0.002, 0.0), (0.0, 0.002, 0.001))
"""By seed and model, beside an effect of the seed."""
TITLE = "Accuracy at equal epochs, training FLOPs and time"


def trained(make_data: MakeData, *, num_epochs: int = 4, num_seeds: int = 5) -> Study:
    """gMLP ends 10 points above ViT; its epoch takes twice as long and as many FLOPs."""
    data = make_data(lengths=(17,), budgets=(250_000, 1_000_000), works=({"task": "digits"},))
    records = []
    for planned in data.plan.cells:
        name = planned.cell.model.name
        for seed in range(num_seeds):
            start = 0.5 + LEAD[name] + 0.02 * seed + NOISE[seed][list(LEAD).index(name)]
            samples = {"validation": tuple(start + 0.02 * epoch for epoch in range(num_epochs)), "epoch_s": (EPOCH_S[name],) * num_epochs}
            values = {"train_flops": 1e9 * EPOCH_S[name] * num_epochs, "num_epochs": num_epochs}
            outcome = Outcome(status="measured", values=values, samples=samples)
            records.append(training_record(data.plan, planned.cell, outcome, seed))
    return replace(data, plan=replace(data.plan, settings=replace(data.plan.settings, seeds=num_seeds)), records=tuple(records))


def drawn(study: Study) -> FigureBlock:
    with figure_style():
        found = draw_training_curves(study)
    assert found is not None
    return found


def test_three_panels_share_the_scores_and_mark_the_budget(make_data: MakeData) -> None:
    block = drawn(trained(make_data, num_seeds=3))
    axes = block.figure.axes
    assert [axis.get_title("left") for axis in axes] == ["at 4 epochs", "at 4 G FLOPs", "at 4.00 s"]
    for axis, end in zip(axes, (4, 8e9, 8), strict=True):
        lines = {str(line.get_gid()).partition("-")[2]: line for line in axis.lines if str(line.get_gid()).startswith("series-")}
        assert len(lines) == 3
        gmlp = next(line for line in lines.values() if line.get_color() == VERMILLION)
        assert list(gmlp.get_ydata()) == pytest.approx([0.6 + 0.02 + 0.001 + 0.02 * epoch for epoch in range(4)])  # type: ignore[arg-type]
        assert gmlp.get_xdata()[-1] == end  # type: ignore[index]
        assert [str(band.get_gid())[:5] for band in axis.collections] == ["band-"] * 3
        assert sum(str(line.get_gid()).startswith("limit-") for line in axis.lines) == 1


def test_long_names_make_the_figure_wider_not_the_panels_narrower() -> None:
    for names in (["gMLP"], ["metaformer+mixer=delta_rule+heads=4+positions=learned"]):
        figure, axes = _panels(names)
        widths = [axis.get_position().width * figure.get_figwidth() for axis in axes]
        assert min(widths) >= MIN_PANEL - 1e-9
        last = axes[-1].get_position().x1 * figure.get_figwidth()
        assert last + label_width(names) <= figure.get_figwidth()


def test_one_seed_has_no_band_and_shows_nothing(make_data: MakeData) -> None:
    block = drawn(trained(make_data, num_seeds=1))
    assert block.title == "No lead of gMLP or ViT is significant at equal training FLOPs or time"
    assert not block.figure.axes[0].collections


def difference(points: float, half: float) -> Difference:
    low, high = (points - half) / 100, (points + half) / 100
    return Difference(epochs=(5, 5), interval=Interval(estimate=points / 100, low=low, high=high, num=5))


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ({FLOPS: (3.1, 1), TIME: (2.2, 1)}, "At equal training FLOPs, gMLP leads ViT by 3.1 points; at equal time by 2.2"),
        ({FLOPS: (3.1, 1), TIME: (-2.2, 1)}, "gMLP leads by 3.1 points at equal training FLOPs, ViT by 2.2 at equal time"),
        ({FLOPS: (3.1, 1), TIME: (2.2, 9)}, "At equal training FLOPs, gMLP leads ViT by 3.1 points; at equal time, none is significant"),
        ({FLOPS: (3.1, 9), TIME: (-2.2, 1)}, "At equal training time, ViT leads gMLP by 2.2 points; at equal FLOPs, none is significant"),
        ({EPOCHS: (-9, 1)}, "At equal epochs, ViT leads gMLP by 9.0 points; within all the FLOPs or time of one the other ends no epoch"),
        (
            {EPOCHS: (9, 10)},
            "No lead of gMLP or ViT is significant at equal epochs; within all the FLOPs or time of one the other ends no epoch",
        ),
        ({EPOCHS: (9, 1), FLOPS: (3.1, 9)}, "No lead of gMLP or ViT is significant at equal training FLOPs or time"),
    ],
)
def test_only_shown_leads_are_stated(at: Mapping[str, tuple[float, float]], words: str) -> None:
    pair = CurvePair(first="gmlp", second="vit", at={budget: difference(*found) for budget, found in at.items()})
    assert curves_title(pair, "accuracy") == words


def test_a_score_has_no_points() -> None:
    pair = CurvePair(first="gmlp", second="vit", at={FLOPS: difference(3.1, 1), TIME: difference(2.2, 1)})
    assert curves_title(pair, "score") == "At equal training FLOPs, gMLP leads ViT by 0.031; at equal time by 0.022"


def test_the_fold_has_every_group_and_the_figures_that_are_not_above(make_data: MakeData) -> None:
    with figure_style():
        document = build_document(trained(make_data, num_seeds=3))
    visible = [
        block.name for section in document.sections if not section.folded for block in section.blocks if isinstance(block, FigureBlock)
    ]
    (fold,) = [section for section in document.sections if section.title == TITLE]
    assert fold.folded
    table, *figures = fold.blocks
    assert "training-curves" in visible
    assert [figure.name for figure in figures if isinstance(figure, FigureBlock)] == ["training-curves-2"]
    assert isinstance(table, TableBlock)
    assert [row[:2] for row in table.table.rows] == [
        (f"digits, n = 17, {size}", pair) for size in ("250 k", "1 M") for pair in ("gMLP - ViT", "gMLP - Transformer", "ViT - Transformer")
    ]
    first, keys = table.table.rows[0], table.table.keys[0]
    assert [text.partition(" [")[0] for text in first[2:5]] == ["+10.0", "+6.0", "+6.0"]
    assert [text.rpartition("], ")[2] for text in first[2:5]] == ["4 : 4", "2 : 4", "2 : 4"]
    assert keys[2:5] == pytest.approx((0.1003, 0.0603, 0.0603), abs=1e-4)


def test_solved_tasks_have_no_tick_above_one(make_data: MakeData) -> None:
    study = trained(make_data)
    solved = tuple(
        replace(record, outcome=replace(record.outcome, samples={**record.outcome.samples, "validation": (1.0,) * 4}))
        for record in study.records
    )
    axis = drawn(replace(study, records=solved)).figure.axes[0]
    texts = [label.get_text() for label in axis.get_yticklabels()]
    assert texts[-1] == "100 %"
    assert len(set(texts)) == len(texts) > 1

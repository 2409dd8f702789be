"""What a report shows of fitted curves: which models, on which axes, which points."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.report.document import Block, FigureBlock
from bench.report.sections import curve_fits
from bench.report.sections.curve_fits import fits_blocks
from bench.spec import Outcome, Plan, PlannedCell, Record
from bench.training.curve_fits import MAX_POINTS, Fit, encode_fit
from tests.made_jobs import training_record
from tests.report.conftest import MakeData, page_text, plan_of, planned_cell

pytestmark = pytest.mark.usefixtures("styled")
POINTS = Fit(
    observed_x=(0.5, 2.5),
    observed_y=(1.25, -0.75),
    asked_x=(3.0, 1.0, 2.0),
    truth=(0.1411, 0.8415, 0.9093),
    prediction=(0.25, 0.75, 1.0),
    curve_x=(0.5, 1.75, 3.0),
    curve_y=(0.4794, 0.984, 0.1411),
)


def cell_of(model: str, seq_len: int = 6) -> PlannedCell:
    return planned_cell(model, seq_len, None, {"task": "curve_fitting"})


def record_of(planned: PlannedCell, plan: Plan, fit: Fit | None, repeat: int = 0) -> Record:
    samples = {name: tuple(series) for name, series in encode_fit(fit).items()}
    return training_record(plan, planned.cell, Outcome(status="measured", values={"score": 0.9}, samples=samples), repeat)


def shifted(by: float) -> Fit:
    """The same item as another model answers it."""
    return dataclasses.replace(POINTS, prediction=tuple(value + by for value in POINTS.prediction))


def section_of(models: Sequence[str]) -> tuple[Block, ...]:
    cells = [cell_of(model) for model in models]
    plan = plan_of(*cells)
    return fits_blocks([record_of(cell, plan, shifted(place)) for place, cell in enumerate(cells)], plan)


def figure_blocks(section: tuple[Block, ...]) -> list[FigureBlock]:
    return [block for block in section if isinstance(block, FigureBlock)]


def shown(figure: Figure) -> list[list[Line2D]]:
    return [list(axis.lines) for axis in figure.axes if axis.get_visible()]


def test_a_record_holds_five_digits_of_so_many_points() -> None:
    many = tuple(math.pi * place for place in range(MAX_POINTS + 5))
    stored = encode_fit(dataclasses.replace(POINTS, asked_x=many))["fit_asked_x"]
    assert len(stored) == MAX_POINTS
    assert stored[1] == 3.1416


def test_models_of_one_task_and_length_stand_side_by_side_on_the_same_axes() -> None:
    section = section_of(["gmlp", "vit"])
    (block,) = figure_blocks(section)
    first, second = block.figure.axes
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
    assert [axis.get_title("left").partition(":")[0] for axis in (first, second)] == ["gMLP", "ViT"]


def test_a_long_name_is_broken_before_its_options() -> None:
    (block,) = figure_blocks(section_of(["vit", "transformer+positions=sinusoidal+norm=post+head_hidden=64"]))
    lines = block.figure.axes[1].get_title("left").splitlines()
    assert lines[1].startswith("+")
    assert max(map(len, lines)) <= curve_fits.TITLE_CHARACTERS


def test_the_title_has_the_errors_of_the_best_and_the_worst() -> None:
    """gMLP is off by 0.1089, 0.0915 and 0.0907; each model after it by 1 more."""
    (block,) = figure_blocks(section_of(["gmlp", "vit", "transformer"]))
    assert block.title == "gMLP's answers are 0.097 off on average, Transformer's 2.0"


def test_a_panel_shows_the_curve_the_observed_points_and_the_answers() -> None:
    (block,) = figure_blocks(section_of(["gmlp"]))
    ((observed, curve, answers),) = shown(block.figure)
    for line, x, y in (
        (observed, POINTS.observed_x, POINTS.observed_y),
        (curve, POINTS.curve_x, POINTS.curve_y),
        (answers, POINTS.asked_x, POINTS.prediction),
    ):
        assert np.asarray(line.get_xdata()).tolist() == list(x)
        assert np.asarray(line.get_ydata()).tolist() == list(y)


def test_the_table_lists_the_places_by_x_with_every_models_answer() -> None:
    (block,) = figure_blocks(section_of(["gmlp", "vit"]))
    assert block.table is not None
    assert block.table.rows == (
        ("1.000", "0.842", "0.750", "1.750"),
        ("2.000", "0.909", "1.000", "2.000"),
        ("3.000", "0.141", "0.250", "1.250"),
    )


def test_other_lengths_have_a_figure_of_their_own() -> None:
    cells = cell_of("gmlp"), cell_of("gmlp", 8)
    plan = plan_of(*cells)
    section = fits_blocks([record_of(cell, plan, POINTS) for cell in cells], plan)
    assert len({block.name for block in figure_blocks(section)}) == len(section) - 1 == 2


def test_more_models_than_there_is_room_for_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_fits, "MAX_PANELS", 2)
    (block,) = figure_blocks(section_of(["gmlp", "vit", "transformer"]))
    assert len(shown(block.figure)) == 2
    assert block.missing[0].startswith("transformer")
    assert block.table is not None
    assert len(block.table.headers) == 5


def test_records_without_a_fit_give_none() -> None:
    """Cells that share a training share the panel, as in tests/report/test_trained.py."""
    cell = cell_of("gmlp")
    assert fits_blocks([record_of(cell, plan_of(cell), None)], plan_of(cell)) == ()


@pytest.mark.usefixtures("without_figures")
def test_a_report_has_the_section_where_there_are_fits(make_data: MakeData) -> None:
    data = make_data(models=["gmlp"], lengths=[6], works=[{"task": "curve_fitting"}], metrics=["accuracy"])
    fitted = dataclasses.replace(data, records=(record_of(data.plan.cells[0], data.plan, POINTS),))
    assert "## Fitted curves\n" in page_text(fitted)

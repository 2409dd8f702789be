"""What a report shows of training and validation, epoch by epoch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from bench.report.charts.style import GREY, slug
from bench.report.document import Block, FigureBlock, Paragraph
from bench.report.sections import epochs
from bench.report.sections.epochs import epochs_blocks
from bench.spec import Outcome
from tests.made_jobs import training_record
from tests.report.conftest import MakeData, page_text, plan_of, planned_cell

pytestmark = pytest.mark.usefixtures("styled")
FIRST = {"loss": (2.0, 1.0, 0.5), "validation_loss": (1.5, 0.75, 0.6), "train_accuracy": (0.2, 0.6, 0.9), "validation": (0.4, 0.7, 0.8)}
SECOND = {"loss": (3.0, 2.0, 0.25), "validation_loss": (2.5, 1.25, 0.8), "train_accuracy": (0.4, 0.7, 1.0), "validation": (0.5, 0.8, 0.7)}


def blocks_of(*seeds: Mapping[str, Sequence[float]], models: Sequence[str] = ("gmlp",)) -> tuple[Block, ...]:
    cells = tuple(planned_cell(model, 17, None, {"task": "digits"}) for model in models)
    plan = plan_of(*cells)
    outcomes = [Outcome(status="measured", samples={name: tuple(series) for name, series in seed.items()}) for seed in seeds]
    records = [training_record(plan, cell.cell, outcome, repeat) for cell in cells for repeat, outcome in enumerate(outcomes)]
    return epochs_blocks(records, plan)


def block_of(*seeds: Mapping[str, Sequence[float]]) -> FigureBlock:
    (block,) = blocks_of(*seeds)
    assert isinstance(block, FigureBlock)
    return block


def lines_of(block: FigureBlock) -> dict[str, dict[str, list[float]]]:
    return {
        axis.get_ylabel(): {
            str(line.get_gid()).removeprefix("series-"): np.asarray(line.get_ydata(), dtype=float).tolist()
            for line in axis.lines
            if str(line.get_gid()).startswith("series-")
        }
        for axis in block.figure.axes
    }


def test_two_panels_show_both_splits_with_names_beside_the_lines() -> None:
    block = block_of(FIRST)
    assert lines_of(block) == {
        "loss": {"training": [2.0, 1.0, 0.5], "validation": [1.5, 0.75, 0.6]},
        "accuracy": {"training": [0.2, 0.6, 0.9], "validation": [0.4, 0.7, 0.8]},
    }
    for axis in block.figure.axes:
        assert {text.get_text() for text in axis.texts} == {"training", "validation"}
        low, high = axis.get_ylim()
        for text, line in zip(axis.texts, axis.lines, strict=False):
            end = float(np.asarray(line.get_ydata(), dtype=float)[-1])
            assert text.get_position()[1] == pytest.approx((end - low) / (high - low), abs=0.1)
        assert [text.get_color() == GREY for text in axis.texts] == [True, False]
        assert list(np.asarray(axis.lines[0].get_xdata())) == [1, 2, 3]
        assert all(tick.is_integer() for tick in axis.get_xticks())
    assert block.title == "gMLP after 3 epochs: 90.0 % right in training, 80.0 % right in validation"
    assert "one seed" in block.caption
    assert "running mean over the epoch's batches" in block.caption


def test_lines_are_means_over_seeds_with_bands_from_the_lowest_to_the_highest() -> None:
    """The second seed stopped after two epochs."""
    block = block_of(FIRST, {name: series[:2] for name, series in SECOND.items()})
    assert lines_of(block)["loss"] == {"training": [2.5, 1.5], "validation": [2.0, 1.0]}
    band = np.asarray(block.figure.axes[0].collections[0].get_paths()[0].vertices, dtype=float)
    assert (band[:, 1].min(), band[:, 1].max()) == (1.0, 3.0)
    assert block.table is not None
    assert block.table.headers == ("epoch", "training loss", "validation loss", "training accuracy", "validation accuracy")
    assert block.table.rows[1] == ("2", "1.50", "1.00", "0.650", "0.750")


def test_values_have_losses_and_generated_answers_no_validation_loss() -> None:
    values = block_of({name: series for name, series in FIRST.items() if name != "train_accuracy"})
    assert set(lines_of(values)) == {"loss", "score"}
    assert values.title == "gMLP after 3 epochs: training loss 0.500, validation loss 0.600"
    generated = block_of({name: series for name, series in FIRST.items() if name != "validation_loss"})
    assert list(lines_of(generated)["loss"]) == ["training"]
    assert "are generated" in generated.caption
    assert "are generated" not in values.caption


def test_older_records_have_no_figure() -> None:
    assert blocks_of({name: FIRST[name] for name in ("loss", "validation")}) == ()
    assert blocks_of({}) == ()


def test_more_models_than_there_is_room_for_are_counted_and_the_largest_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "MAX_FIGURES", 1)
    drawn, note = blocks_of(FIRST, models=("gmlp", "vit", "transformer"))
    assert isinstance(drawn, FigureBlock)
    sizes = {model: planned_cell(model, 17, None, {"task": "digits"}).sizing.params for model in ("gmlp", "vit", "transformer")}
    assert drawn.name.startswith(f"epochs-{slug(max(sizes, key=lambda model: sizes[model]))}-")
    assert note == Paragraph(text="Not drawn: 2 other models, none of them larger.")


def test_one_epoch_has_one_tick() -> None:
    (drawn,) = blocks_of({name: values[:1] for name, values in FIRST.items()})
    assert isinstance(drawn, FigureBlock)
    for axis in drawn.figure.axes:
        low, high = axis.get_xlim()
        assert [tick for tick in axis.get_xticks() if low <= tick <= high] == [1]


@pytest.mark.usefixtures("without_figures")
def test_a_report_has_the_section_where_both_splits_are_known(make_data: MakeData) -> None:
    data = make_data(models=["gmlp"], lengths=[17], works=[{"task": "digits"}], metrics=["accuracy"])
    outcome = Outcome(status="measured", values={"train_flops": None}, samples=FIRST)
    trained = dataclasses.replace(data, records=(training_record(data.plan, data.plan.cells[0].cell, outcome),))
    assert "## Training and validation, epoch by epoch\n" in page_text(trained)

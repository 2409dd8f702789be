"""The figure of the argument: three quantities against n beside n and n², with the finding as its title."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas
import pytest

from bench.analysis.growth import FlopsGrowth
from bench.report.charts.growth import MAX_LINES, draw_growth, growth_title, memory_text
from bench.report.charts.style import GREY, figure_style
from bench.report.document import FigureBlock
from bench.spec import Part
from tests.report.conftest import MakeData

LENGTHS = (17, 65, 257, 1025)


def drawn(make_data: MakeData, **wanted: Any) -> FigureBlock:
    with figure_style():
        found = draw_growth(make_data(**wanted))
    assert found is not None
    return found


def test_each_measured_quantity_has_a_panel_with_guides_of_slope_one_and_two(make_data: MakeData) -> None:
    axes = drawn(make_data, metrics=("params", "flops", "memory")).figure.axes
    assert [axis.get_title(loc="left") for axis in axes] == ["FLOPs per sample", "peak memory"]
    for axis in axes:
        guides = [np.log(np.asarray(line.get_xydata())) for line in axis.lines if str(line.get_gid()).startswith("guide-")]
        assert [np.polyfit(guide[:, 0], guide[:, 1], 1)[0] for guide in guides] == pytest.approx([1, 2])


def test_the_title_names_the_share_of_n_squared_in_flops(make_data: MakeData) -> None:
    data = make_data()
    last = data.rows[data.rows["seq_len"] == 257].set_index("model")
    shares = [
        f"{100 * last.loc[model, 'flops_quadratic_share']:.1f} % of {name}'s FLOPs" for model, name in (("gmlp", "gMLP"), ("vit", "ViT"))
    ]
    assert drawn(make_data).title == f"At n = 257, n² is {' and '.join(shares)}"
    assert drawn(make_data, models=("gmlp",)).title == f"At n = 257, n² is {shares[0]}"


def test_a_model_of_several_widths_is_drawn_as_the_first_part_has_it(make_data: MakeData) -> None:
    """Where sizes are as given; without parts there is nothing to tell them apart by."""
    data = make_data(models=("gmlp", "vit"), lengths=(17, 65, 257))
    is_other = (data.rows["model"] == "gmlp") & (data.rows["seq_len"] == 257)
    rows = data.rows.assign(match="none", budget=None, width=data.rows["width"].where(~is_other, 999))
    chosen = [list(rows.loc[~is_other, "cell_id"]), list(rows.loc[is_other, "cell_id"])]
    parts = tuple(Part(name=f"{i}", match="none", batching="", cells=tuple(cells), baseline="") for i, cells in enumerate(chosen))
    for given, lengths in ((parts, [17, 65]), ((), [17, 65, 257])):
        changed = dataclasses.replace(data, rows=rows, plan=dataclasses.replace(data.plan, parts=given))
        found = changed.growth_rows
        assert sorted(found.loc[found["model"] == "gmlp", "place"]) == lengths


def test_one_length_shows_no_growth(make_data: MakeData) -> None:
    assert draw_growth(make_data(lengths=(17,))) is None


def test_of_many_models_the_first_are_in_colour_and_the_caption_names_the_grey_ones(make_data: MakeData) -> None:
    models = ["vit", *(f"mixer-of-kind{i}" for i in range(MAX_LINES + 1)), "gmlp"]
    found = drawn(make_data, models=models)
    colours = {str(line.get_gid()): line.get_color() for line in found.figure.axes[0].lines if str(line.get_gid()).startswith("series-")}
    assert sum(colour == GREY for colour in colours.values()) == len(models) - MAX_LINES
    assert found.caption.endswith("Grey: mixer-of-kind4, mixer-of-kind5 and mixer-of-kind6.")
    names = [text.get_text() for text in found.figure.axes[-1].texts if str(text.get_gid()).startswith("label-")]
    assert len(names) == MAX_LINES
    assert {"ViT", "gMLP"} <= set(names)


def memory_rows(bytes_by_label: dict[str, Sequence[float]]) -> pandas.DataFrame:
    rows: list[dict[str, Any]] = []
    for label, values in bytes_by_label.items():
        model, _, kernel = label.removesuffix(")").partition(" (")
        rows += [
            {
                "label": label,
                "model": model,
                "family": model,
                "attention": kernel or "none",
                "attention_effective": {"auto": "flash", "math": "math"}.get(kernel, "none"),
                "place": n,
                "peak_memory_bytes": value,
            }
            for n, value in zip(LENGTHS, values, strict=False)
        ]
    return pandas.DataFrame(rows)


def test_the_caption_compares_memory_where_most_models_were_measured() -> None:
    rows = memory_rows({"gmlp": (4, 8, 20, 60), "vit (auto)": (4, 8, 10), "vit (math)": (4, 8, 180)})
    assert memory_text(rows) == "At n = 257 gMLP takes 2.0× fused attention's memory, explicit 18×"
    assert memory_text(rows[rows["label"] != "gmlp"]) == "At n = 257 explicit attention takes 18× fused attention's memory"


def growing(model: str, share: float) -> FlopsGrowth:
    return FlopsGrowth(
        model=model, shortest=17, longest=257, times=16.0, share=share, has_weights=False, has_scores=True, attention=frozenset({"flash"})
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([("vit+pool=mean", 0.25), ("transformer+pool=mean", 0.2)], "25.0 % of ViT's FLOPs and 20.0 % of Transformer's FLOPs"),
        ([("vit+pool=mean", 0.25), ("vit+pool=cls", 0.2)], "25.0 % of ViT+pool=mean's FLOPs and 20.0 % of ViT+pool=cls's FLOPs"),
        ([("vit", 0.25), ("transformer", 0.25), ("causal", 0.25)], "25.0 % of each model's FLOPs"),
    ],
)
def test_the_title_names_models_by_what_tells_them_apart(found: list[tuple[str, float]], words: str) -> None:
    assert growth_title([growing(*each) for each in found]) == f"At n = 257, n² is {words}"

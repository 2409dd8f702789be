"""Figures against n: lines and titles say what the data say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas
import pytest

from bench.analysis.frame import Scope
from bench.analysis.ratios import RelativeLine, RelativePoint, RelativeTimes
from bench.intervals import Interval
from bench.reading.timings import Timings
from bench.report.charts.relative_time import (
    MAX_LINES,
    draw_relative_time,
    relative_lines,
    relative_title,
)
from bench.report.charts.style import ROLES, figure_style, series_styles
from tests.report.conftest import MakeData

LENGTHS = (17, 65, 257, 1025)
FAST, SLOW, EQUAL, OPEN = 0.8, 1.2, 1.0, 1.005


def interval(value: float) -> Interval:
    return Interval(estimate=value, low=0.99 * value, high=1.01 * value, num=7)


def line(label: str, ratios: Sequence[float]) -> RelativeLine:
    points = tuple(RelativePoint(n=n, ratio=interval(ratio), margin=0.0125) for n, ratio in zip(LENGTHS, ratios, strict=False))
    return RelativeLine(label=label, is_gmlp=label.startswith("gmlp"), points=points)


def times(*lines: RelativeLine, match: str = "shape", reference: str = "vit (auto)") -> RelativeTimes:
    keys = {"match": match, "budget": 250_000, "batching": "batch 4", "phase": "infer", "engine": "eager", "dtype": "fp32"}
    return RelativeTimes(scope=Scope(keys=keys, rows=pandas.DataFrame()), reference=reference, lines=lines)


@pytest.mark.parametrize(
    ("by_matching", "words"),
    [
        ({"shape": (SLOW, OPEN, FAST, FAST)}, f"gMLP takes {FAST:.2f}× fused ViT's time at n = 1025"),
        ({"shape": (FAST, FAST, OPEN)}, "No difference in time between gMLP and fused ViT is significant at n = 257"),
        ({"shape": (SLOW, SLOW, SLOW, EQUAL)}, "The times of gMLP and fused ViT are equal within 1.25 % at n = 1025"),
        (
            {"shape": (FAST, OPEN), "params": (SLOW,) * 3},
            f"gMLP takes {SLOW:.1f}× fused ViT's time at n = 257 (equal parameters); no difference is significant at n = 65 (fixed shape)",
        ),
    ],
)
def test_the_title_compares_gmlp_with_attention_at_the_longest_n(by_matching: Mapping[str, Sequence[float]], words: str) -> None:
    assert relative_title([times(line("gmlp", ratios), match=match) for match, ratios in by_matching.items()], "") == words


def test_the_title_claims_no_more_than_was_decided() -> None:
    undecided = "Time relative to fused ViT (differences are not decided)"
    assert relative_title([times(line("gmlp", (FAST,) * 4))], "A quick run decides nothing.") == undecided
    mixers = times(line("metaformer+mixer=gru", (SLOW, SLOW, OPEN, FAST)), line("metaformer+mixer=identity", (FAST,) * 3))
    assert relative_title([mixers], "") == "At n = 1025 gru takes 0.80× fused ViT's time"
    pays = {"metaformer+mixer=gru": 65, "metaformer+mixer=pool": 1025, "metaformer+mixer=identity": 257}
    assert relative_title([mixers], "", pays) == "Gru takes less time than fused ViT from n = 65 on, pool from 1025"
    undecided_mixers = times(line("metaformer+mixer=gru", (FAST, FAST, FAST, OPEN)), line("metaformer+mixer=identity", (SLOW,) * 4))
    assert relative_title([undecided_mixers], "") == "At n = 1025 no model is significantly faster than fused ViT"


def test_models_equal_everywhere_share_the_line_of_attention() -> None:
    found = times(line("gmlp", (SLOW,) * 4), line("transformer (auto)", (EQUAL,) * 4))
    reference, gmlp = relative_lines(found, series_styles(["gmlp", "vit (auto)", "transformer (auto)"]))
    assert (reference.label, reference.y, reference.style.color) == ("fused ViT = fused Transformer", [1.0] * 4, ROLES["fused"])
    assert (gmlp.label, gmlp.x, gmlp.y, gmlp.style.color) == ("gMLP", list(LENGTHS), [SLOW] * 4, ROLES["gmlp"])
    assert (gmlp.low, gmlp.high) == ([0.99 * SLOW] * 4, [1.01 * SLOW] * 4)


def test_ratios_of_medians_are_drawn_and_called_so(make_data: MakeData) -> None:
    with figure_style():
        drawn = draw_relative_time(make_data(timings=Timings()))
    assert drawn is not None
    assert "no rounds could be paired" in drawn.caption
    (axis,) = drawn.figure.axes
    lines = {str(artist.get_gid()): artist for artist in axis.lines}
    ratios = np.asarray(lines["series-gmlp-352440"].get_ydata())
    rows = make_data().rows.set_index(["model", "seq_len"])["latency_ms"]
    assert ratios.tolist() == pytest.approx([rows["gmlp", n] / rows["vit", n] for n in (17, 65, 257)])


def test_ratios_of_too_few_rounds_leave_the_axis_finite_and_are_counted(make_data: MakeData) -> None:
    """Three models of one length need 7 rounds."""
    data = make_data()
    rounds = {row["cell_id"]: {i: row["latency_ms"] * (1 + 0.001 * (i % 3)) for i in range(6)} for row in data.rows.to_dict("records")}
    with figure_style():
        drawn = draw_relative_time(replace(data, timings=Timings(rounds)))
    assert drawn is not None
    assert "; 6 without a band have too few rounds for one;" in drawn.caption
    assert all(math.isfinite(bound) for bound in drawn.figure.axes[0].get_ylim())


def test_of_too_many_relative_times_the_fastest_are_drawn_and_the_slowest(make_data: MakeData) -> None:
    mixers = [f"mixer-of-kind{i}" for i in range(MAX_LINES + 2)]
    data = make_data(models=["vit", *mixers])
    with figure_style():
        drawn = draw_relative_time(data)
    assert drawn is not None
    by_time = [line.label for line in data.relative_times[0].lines]
    assert drawn.missing == tuple(by_time[MAX_LINES - 1 : -1]) != ()
    drawn_lines = relative_lines(data.relative_times[0], series_styles(data.frame["label"]))
    assert [line.label for line in drawn_lines][1:] == [*by_time[: MAX_LINES - 1], by_time[-1]]
    asked = by_time[-2]
    drawn_lines = relative_lines(data.relative_times[0], series_styles(data.frame["label"]), {asked})
    assert [line.label for line in drawn_lines][1:] == [asked, *by_time[: MAX_LINES - 2], by_time[-1]]


@pytest.mark.parametrize(("num", "num_panels"), [(2, 2), (1, 1)])
def test_a_matching_of_few_lengths_has_no_panel(num: int, num_panels: int, make_data: MakeData) -> None:
    data = make_data()
    few = times(line("gmlp", (SLOW,) * num), match="params", reference="vit")
    data.__dict__["relative_times"] = [times(line("gmlp", (SLOW,) * 4), reference="vit"), few]
    with figure_style():
        drawn = draw_relative_time(data)
    assert drawn is not None
    assert len(drawn.figure.axes) == num_panels

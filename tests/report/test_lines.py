"""Lines with names at their ends: where names stand, bands, guides."""

from __future__ import annotations

import itertools

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.report.charts.lines import Line, draw_series, label_ends, panels, spread
from bench.report.charts.style import PAPER, series_styles, slug

PLACES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(PLACES)
def test_labels_keep_their_order_and_never_overlap(places: list[float]) -> None:
    heights = [0.05 + 0.03 * (i % 2) for i in range(len(places))]
    found = spread(places, heights)
    order = sorted(range(len(places)), key=lambda i: places[i])
    for below, above in itertools.pairwise(order):
        assert found[above] - found[below] >= (heights[below] + heights[above]) / 2 - 1e-9
    assert all(h / 2 - 1e-9 <= place <= 1 - h / 2 + 1e-9 for place, h in zip(found, heights, strict=True))


def test_a_long_name_leaves_room_for_the_plot_and_breaks_at_its_options() -> None:
    label = "gMLP+gating=identity+pool=mean+spatial_heads=4+tiny_attention=64"
    _, (axis,) = panels(1, [label])
    assert axis.get_position().width > 0.4
    label_ends(axis, [Line(label=label, style=series_styles(["gmlp"])["gmlp"], x=[1, 2], y=[1, 2])])
    (text,) = axis.texts
    assert text.get_text().replace("\n", "") == label
    assert all(part.startswith("+") for part in text.get_text().splitlines()[1:])


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("state space, state 64", ["state space,", "state 64"]),
        ("a name of very many words, and more", ["a name of very many", "words, and more"]),
    ],
)
def test_a_name_breaks_after_a_comma_if_that_suffices(label: str, lines: list[str]) -> None:
    _, (axis,) = panels(1, [label])
    label_ends(axis, [Line(label=label, style=series_styles(["gmlp"])["gmlp"], x=[1, 2], y=[1, 2])])
    assert axis.texts[0].get_text().splitlines() == lines


def test_labels_with_room_stay_at_their_lines() -> None:
    assert spread([0.2, 0.8, 0.5], [0.1, 0.1, 0.1]) == pytest.approx([0.2, 0.8, 0.5])
    assert spread([0.5, 0.5], [0.1, 0.1]) == pytest.approx([0.45, 0.55])


def test_a_line_has_its_band_and_hollow_points() -> None:
    style = series_styles(["gmlp"])["gmlp"]
    line = Line(label="gMLP", style=style, x=[1, 2, 4], y=[1, 2, 3], low=[0.9, 1.9, 2.9], high=[1.1, 2.1, 3.1], hollow=[False, True, False])
    _, (axis,) = panels(1, [line.label])
    draw_series(axis, [line])
    drawn = {artist.get_gid() for artist in axis.get_children()}
    assert {f"series-{slug(line.label)}", f"band-{slug(line.label)}"} <= drawn
    (hollow,) = [artist for artist in axis.lines if str(artist.get_gid()).startswith("hollow")]
    assert numpy.asarray(hollow.get_xdata()).tolist() == [2]
    assert hollow.get_markerfacecolor() == PAPER

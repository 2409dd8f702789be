"""Where n^2 lives: marks at the counted bytes, one model per role, and a title that names the places."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bench.analysis.quadratic_terms import HeldBytes, held_bytes
from bench.report.charts.quadratic_bytes import bytes_figure, bytes_title, draw_quadratic_bytes, shown_series
from bench.report.charts.style import figure_style
from tests.analysis.made_runs import Made, evidence
from tests.report.conftest import MakeData

BATCH = 4
LENGTHS = (17, 65, 257, 1025, 4097)


def series(model: str, attention: str, weights_n2: int, scores: int, lengths: tuple[int, ...] = LENGTHS) -> Made:
    """A model with 10^6 bytes of weights and 5,000 of activations per token, beside those in n^2."""
    costs = {
        "weight_bytes": lambda n: 1e6 + weights_n2 * n * n,
        "activation_bytes": lambda n: BATCH * (5000.0 * n + scores * n * n),
    }
    return Made(model=model, attention=attention, costs=costs, lengths=lengths)


def held(*made: Made) -> list[HeldBytes]:
    data = evidence(*made)
    return held_bytes(data.shaped)


ALL = (
    series("gmlp", "none", 8, 0),
    series("vit", "auto", 0, 0),
    series("vit", "math", 0, 24),
    series("transformer", "auto", 0, 0),
    series("transformer", "math", 0, 24),
    series("metaformer+mixer=window_attention", "none", 0, 0),
)


@pytest.fixture(scope="module")
def found() -> dict[str, HeldBytes]:
    return shown_series(held(*ALL))


def test_bytes_split_by_power_of_n_and_activations_follow_the_batch(found: dict[str, HeldBytes]) -> None:
    expected = {"weights": 1e6, "weights_n2": 8 * 1025**2, "activations": 32 * 5000.0 * 1025, "activations_n2": 0}
    assert found["gmlp"].parts(1025, 32) == pytest.approx(expected, abs=1)
    assert found["vit (math)"].parts(257, 1)["activations_n2"] == pytest.approx(24 * 257**2)


def test_one_model_stands_for_each_role(found: dict[str, HeldBytes]) -> None:
    assert list(found) == ["gmlp", "vit (auto)", "vit (math)"]


def test_eager_inference_at_a_fixed_batch_is_drawn_the_widest_range_first() -> None:
    compiled = dataclasses.replace(ALL[0], others={"engine": "compile"})
    short = dataclasses.replace(ALL[0], lengths=LENGTHS[:4], others={"batch_size": 1, "batching": "batch 1"})
    (chosen,) = shown_series(held(compiled, short, ALL[0])).values()
    assert (chosen.keys["engine"], chosen.keys["batching"]) == ("eager", "batch 4")
    for others in ({"phase": "train"}, {"batching": "16388 tokens per batch"}):
        assert shown_series(held(dataclasses.replace(ALL[0], others=others))) == {}


def test_the_title_names_the_place_of_each(found: dict[str, HeldBytes]) -> None:
    squared = "n\N{SUPERSCRIPT TWO}"
    assert bytes_title(found) == f"{squared} lives in gMLP's weights and explicit attention's activations; fused attention stores none"
    both = {label: found[label] for label in ("gmlp", "vit (math)")}
    assert bytes_title(both) == f"{squared} lives in gMLP's weights and explicit attention's activations"


def test_every_part_has_its_mark_and_n2_its_amount(found: dict[str, HeldBytes]) -> None:
    with figure_style():
        figure = bytes_figure(found)
    for axis, batch in zip(figure.axes[:2], (1, 32), strict=True):
        marks = sorted((str(line.get_gid()), float(np.asarray(line.get_xdata())[0])) for line in axis.get_lines() if line.get_gid())
        expected = sorted(
            (part, v) for n in (257, 1025, 4097) for each in found.values() for part, v in each.parts(n, batch).items() if v > 1
        )
        assert [part for part, _ in marks] == [part for part, _ in expected]
        assert [value for _, value in marks] == pytest.approx([value for _, value in expected], rel=1e-6)
        low, high = axis.get_xlim()
        assert all(low < value < high for _, value in expected)
    none = "no n\N{SUPERSCRIPT TWO}"
    texts = [text.get_text() for text in figure.axes[1].texts if "B" in text.get_text() or text.get_text() == none]
    assert texts == ["516 KiB", none, "48.4 MiB", "8.02 MiB", none, "770 MiB", "128 MiB", none, "12.0 GiB"]


def test_a_run_without_counted_bytes_has_no_figure(make_data: MakeData) -> None:
    assert draw_quadratic_bytes(make_data(lengths=(17, 65, 257, 1025))) is None

"""A variant's name, series that differ in n alone, a cell's row in each of its parts, and the rounds that are complete."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas
import pytest

from bench.analysis.frame import by_part, variant_names
from bench.analysis.growth import FLOPS, LATENCY, complete_rounds, samples_of, series_of, without_twins
from bench.reading.table import row_values
from bench.reading.timings import Timings
from bench.spec import Part, PlannedArm
from tests.analysis.made_runs import Made, evidence
from tests.analysis.planted import samples_of_rounds
from tests.timed import timings_of_rounds


def part(name: str, arms: Mapping[str, str]) -> Part:
    """A part by the cells of its arms, each named by a letter."""
    planned = tuple(PlannedArm(name=arm, cells=tuple(cells)) for arm, cells in arms.items())
    return Part(name=name, match="params", batching="", cells=tuple("".join(arms.values())), arms=planned)


LABELS = {"a": "mixer+x=1", "b": "mixer+x=1+short=2", "c": "mixer+x=2", "d": "vit"}


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([part("cost", {"one": "a", "same": "a"})], {}),
        ([part("cost", {"both": "ac"})], {}),
        ([part("cost", {"vit": "a", "plain": "d"})], {"mixer+x=1": "vit, cost"}),
        (
            [part("recall", {"one": "b"}), part("cost", {"one": "a"}), part("copy", {"one": "a"})],
            {"mixer+x=1": "one", "mixer+x=1+short=2": "one, recall"},
        ),
    ],
    ids=["two names", "two models", "another label", "another model in one part"],
)
def test_a_model_is_named_as_its_variant_where_that_is_unique(parts: list[Part], names: dict[str, str]) -> None:
    assert variant_names(LABELS, parts) == names


ROWS = pandas.DataFrame(
    {
        "cell_id": ["a", "b", "c"],
        "model": "vit",
        "seq_len": [17, 65, 65],
        "batch_size": [4, 4, 1],
        "match": "params",
        "latency_ms": [4.0, 8.0, 2.0],
    }
)
KEPT = Part(name="kept", match="shape", batching="", cells=("a", "b"))
TOKENS = Part(name="tokens", match="shape", batching="68 tokens per batch", cells=("a", "c"))


def test_without_parts_every_row_stands_for_itself() -> None:
    found = by_part(ROWS, ())
    assert list(found["cell_id"]) == ["a", "b", "c"]
    assert list(found["batching"]) == ["batch 4", "batch 4", "batch 1"]


def test_a_shared_cell_has_a_row_in_each_part_under_its_policy() -> None:
    found = by_part(ROWS, (KEPT, TOKENS))
    assert list(zip(found["cell_id"], found["match"], found["batching"], strict=True)) == [
        ("a", "shape", "batch 4"),
        ("b", "shape", "batch 4"),
        ("a", "shape", "68 tokens per batch"),
        ("c", "shape", "68 tokens per batch"),
    ]


def test_parts_that_ask_alike_share_their_row() -> None:
    assert len(by_part(ROWS, (KEPT, Part(name="again", match="shape", batching="", cells=("a",))))) == 2


def test_series_differ_in_their_length_alone() -> None:
    kept, tokens = series_of(row_values(by_part(ROWS, (KEPT, TOKENS))))
    assert (kept.keys["batching"], kept.lengths, kept.cell_ids) == ("batch 4", (17, 65), ("a", "b"))
    assert (tokens.keys["batching"], tokens.lengths, tokens.cell_ids) == ("68 tokens per batch", (17, 65), ("a", "c"))


def test_times_are_per_sample_so_that_shrinking_batches_do_not_hide_growth() -> None:
    rounds = pandas.DataFrame({"cell_id": ["a", "c", "b"], "round": 0, "latency_ms": [4.0, 2.0, 8.0]})
    _, tokens = series_of(row_values(by_part(ROWS, (KEPT, TOKENS))))
    assert samples_of(tokens, LATENCY, timings_of_rounds(rounds)) == {17: {0: 1.0}, 65: {0: 2.0}}


def test_counts_leave_out_what_is_empty() -> None:
    (series,) = series_of(evidence(Made(model="gmlp", costs={"flops": lambda n: 0.0 if n == 17 else 8.0 * n})).rows)
    samples = samples_of(series, FLOPS, Timings())
    assert 17 not in samples
    assert {by_round[0] / n for n, by_round in samples.items()} == {8.0}


SAMPLES = samples_of_rounds(np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]]), (17, 256, 257))


def test_rounds_that_lack_a_length_are_dropped_and_counted() -> None:
    values, num_dropped = complete_rounds(SAMPLES, (17, 256, 257))
    assert (values.tolist(), num_dropped) == ([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]], 0)
    values, num_dropped = complete_rounds({**SAMPLES, 257: {0: 4.0}}, (17, 256, 257))
    assert (values.tolist(), num_dropped) == ([[1.0, 2.0, 4.0]], 1)


def test_a_round_is_complete_without_the_lengths_that_do_not_enter() -> None:
    assert complete_rounds({**SAMPLES, 256: {1: 5.0}}, (17, 257))[0].tolist() == [[1.0, 4.0], [3.0, 9.0]]


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_values_that_are_no_costs_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        complete_rounds({17: {0: value}}, (17,))


def test_of_twins_the_larger_stays() -> None:
    assert without_twins((257, 17, 256, 16, 1025)) == (16, 17, 257, 1025)
    assert without_twins((100, 104, 105)) == (100, 105)

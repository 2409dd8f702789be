"""A variant's name, series that differ in n alone, a cell's row in each of its parts, and the rounds that are complete."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas
import pytest

from bench.analysis.frame import by_part, complete_rounds, counted_samples, latency_samples, series_of, variant_names, without_twins
from bench.spec import Part, PlannedArm
from tests.analysis.made_runs import Made, evidence
from tests.analysis.planted import frame
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
    kept, tokens = series_of(by_part(ROWS, (KEPT, TOKENS)))
    assert (kept.keys["batching"], kept.lengths, kept.cell_ids) == ("batch 4", (17, 65), ("a", "b"))
    assert (tokens.keys["batching"], tokens.lengths, tokens.cell_ids) == ("68 tokens per batch", (17, 65), ("a", "c"))
    assert kept.kept({"b"}).lengths == (65,)


def test_times_are_per_sample_so_that_shrinking_batches_do_not_hide_growth() -> None:
    rounds = pandas.DataFrame({"cell_id": ["a", "c", "b"], "round": 0, "latency_ms": [4.0, 2.0, 8.0]})
    _, tokens = series_of(by_part(ROWS, (KEPT, TOKENS)))
    samples = latency_samples(tokens, timings_of_rounds(rounds))
    assert list(zip(samples["n"], samples["value"], strict=True)) == [(17, 1.0), (65, 2.0)]


def test_counts_leave_out_what_is_empty() -> None:
    (series,) = series_of(evidence(Made(model="gmlp", costs={"flops": lambda n: 0.0 if n == 17 else 8.0 * n})).frame)
    samples = counted_samples(series, "flops", "batch_size")
    assert 17 not in set(samples["n"])
    assert set(samples["value"] / samples["n"]) == {2.0}


SAMPLES = frame(np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]]), (17, 256, 257))


def test_rounds_that_lack_a_length_are_dropped_and_counted() -> None:
    whole = complete_rounds(SAMPLES.iloc[::-1])
    assert (whole.lengths, whole.values.tolist(), whole.num_dropped) == ((17, 256, 257), [[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]], 0)
    partial = complete_rounds(SAMPLES.iloc[:-1])
    assert (partial.values.tolist(), partial.num_dropped) == ([[1.0, 2.0, 4.0]], 1)


def test_a_round_is_complete_without_the_lengths_that_do_not_enter() -> None:
    assert complete_rounds(SAMPLES.drop(index=1), lengths=(17, 257)).values.tolist() == [[1.0, 4.0], [3.0, 9.0]]


@pytest.mark.parametrize(
    ("samples", "is_exact", "why"),
    [
        (SAMPLES.assign(value=0.0), False, "positive and finite"),
        (SAMPLES.assign(value=float("nan")), False, "positive and finite"),
        (pandas.concat([SAMPLES, SAMPLES.iloc[:1]]), False, "is it one series"),
        (SAMPLES, True, "one round, not 2"),
    ],
)
def test_samples_that_are_no_costs_of_one_series_are_refused(samples: pandas.DataFrame, is_exact: bool, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        complete_rounds(samples, exact=is_exact)


def test_of_twins_the_larger_stays() -> None:
    assert without_twins((257, 17, 256, 16, 1025)) == (16, 17, 257, 1025)
    assert without_twins((100, 104, 105)) == (100, 105)

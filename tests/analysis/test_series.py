"""A cell that is in several parts has a row in each; a series differs in n alone."""

from __future__ import annotations

import pandas

from bench.analysis.series import by_part, counted_samples, latency_samples, series_of
from bench.spec import Part
from tests.analysis.made_runs import Made, evidence
from tests.timed import timings_of_rounds

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
    frame = by_part(ROWS, ())
    assert list(frame["cell_id"]) == ["a", "b", "c"]
    assert list(frame["batching"]) == ["batch 4", "batch 4", "batch 1"]


def test_a_shared_cell_has_a_row_in_each_part_under_its_policy() -> None:
    frame = by_part(ROWS, (KEPT, TOKENS))
    assert list(zip(frame["cell_id"], frame["match"], frame["batching"], strict=True)) == [
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

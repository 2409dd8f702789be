"""The roofline by hand: FLOPs and compulsory bytes of small models counted on paper, and shares paired with the ceilings of their own round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest

from bench.reading.roofline import COLUMNS, ITEM_BYTES, compulsory_bytes, roofline_of, step_flops
from bench.spec import DTYPES, Cell, ModelSpec, PlannedCell, Record, Sizing, Workload
from models.layers.cost import Cost, N, Term, constant, layer_norm, linear
from models.layers.shape import Interface, Shape
from tests.made_jobs import small_record

TABLE = Term(name="embedding.token_embedding", params=constant(100 * 8))
CLASS_TOKEN = Term(name="embedding.class_token", params=constant(8))
PROJECTION = linear("embedding.patch_projection", 6, 8, backward_products=1)
SPATIAL = Term(name="blocks.spatial_projection", params=N * N + N, macs=N * N * 8)
HEAD = linear("head.classify", 8, 10, tokens=constant(1))


def planned(*terms: Term, interface: Interface | None = None, **work: Any) -> PlannedCell:
    """Five tokens of width 8, two samples; six numbers per patch and ten classes."""
    shape = Shape(seq_len=5, width=8, depth=1, heads=1, ffn_width=16)
    model = ModelSpec(name="m", family="m", shape=shape, interface=interface or Interface(patch_dim=6))
    params = Cost(terms).params().at(5)
    sizing = Sizing(match="none", budget=None, budget_error=None, params=params, params_seq=0, params_blocks=0, heads=None, terms=terms)
    return PlannedCell(cell=Cell(model=model, workload=Workload(**{"batch_size": 2, **work})), sizing=sizing)


SMALL = planned(PROJECTION, SPATIAL, HEAD)


def records(metric: str, values: Sequence[dict[str, float] | None]) -> list[Record]:
    """One per round; None: not measured in that round."""
    return [small_record(metric, found, place) for place, found in enumerate(values) if found is not None]


def latencies(*times_ms: float | None) -> list[Record]:
    return records("latency", [None if ms is None else {"latency_ms": ms} for ms in times_ms])


def ceilings(*rates: tuple[float, float] | None) -> list[Record]:
    return records("ceiling", [None if r is None else {"ceiling_flops_per_s": r[0], "ceiling_bytes_per_s": r[1]} for r in rates])


def test_inference_reads_weights_and_batch_once_and_writes_the_answers() -> None:
    weights, batch, answers = 56 + 30 + 90, 2 * 5 * 6, 2 * 10
    assert compulsory_bytes(SMALL) == 4 * (weights + batch + answers)
    assert step_flops(SMALL) == 2 * 2 * (5 * 48 + 25 * 8 + 80)
    assert set(ITEM_BYTES) == set(DTYPES)
    assert compulsory_bytes(planned(HEAD, dtype="tf32")) == compulsory_bytes(planned(HEAD))
    assert compulsory_bytes(planned(PROJECTION, SPATIAL, HEAD, dtype="bf16")) == 2 * (weights + batch + answers)
    assert compulsory_bytes(planned(PROJECTION, SPATIAL, HEAD, dtype="bf16-autocast")) == 4 * (weights + batch) + 2 * answers


def test_training_passes_ten_times_over_the_weights_but_for_those_of_the_first_layer() -> None:
    """Forward and backward read them; then eight passes for weights, gradients and two moments. Nothing needs the patches' gradient."""
    norm = layer_norm("head.norm", 8)
    cell = planned(PROJECTION, SPATIAL, norm, HEAD, phase="train")
    assert compulsory_bytes(cell) == 4 * (9 * 56 + 10 * (30 + 16 + 90) + 2 * 5 * 6)
    assert step_flops(cell) == 2 * 2 * (2 * 5 * 48 + 3 * 25 * 8 + 3 * 80)


def test_a_class_token_does_not_come_from_the_data() -> None:
    assert compulsory_bytes(planned(CLASS_TOKEN)) == 4 * (8 + 2 * 4 * 6 + 2 * 10)
    assert compulsory_bytes(planned(dataclasses.replace(CLASS_TOKEN, params=constant(0)))) == 4 * (2 * 5 * 6 + 2 * 10)


@pytest.mark.parametrize(("batch_size", "rows"), [(2, 2 * 5), (30, 100)])
def test_of_a_table_only_the_rows_of_the_tokens_are_read(batch_size: int, rows: int) -> None:
    ids = Interface(input="tokens", vocab_size=100, output="tokens")
    cell = planned(TABLE, interface=ids, batch_size=batch_size)
    assert compulsory_bytes(cell) == 4 * 8 * rows + 8 * batch_size * 5 + 4 * batch_size * 5 * 10
    trained = planned(TABLE, interface=ids, batch_size=batch_size, phase="train")
    assert compulsory_bytes(trained) == 4 * 8 * rows + 4 * 8 * 800 + 8 * batch_size * 5


def test_the_slower_of_the_two_limits_is_the_roofline() -> None:
    flops, moved = step_flops(SMALL), compulsory_bytes(SMALL)
    assert moved is not None
    assert flops is not None
    by_compute = roofline_of(SMALL, latencies(10.0), ceilings((1e3 * flops, 1e6 * moved)))
    by_bandwidth = roofline_of(SMALL, latencies(10.0), ceilings((1e6 * flops, 500 * moved)))
    assert (by_compute["roofline_ms"], by_compute["roofline_share"]) == pytest.approx((1.0, 0.1))
    assert (by_bandwidth["roofline_ms"], by_bandwidth["roofline_share"]) == pytest.approx((2.0, 0.2))
    assert (by_compute["compulsory_bytes"], by_compute["roofline_share_low"]) == (moved, None)


def test_each_round_is_paired_with_its_own_ceilings() -> None:
    """Twice slowed down alike: the share stays, and its interval closes; the round without ceilings does not count."""
    rate = 1e3 * (step_flops(SMALL) or 0)
    found = roofline_of(SMALL, latencies(2.0, 4.0, 99.0, 8.0), ceilings((rate, 1e12), (rate / 2, 1e12), None, (rate / 4, 1e12)))
    assert [found[name] for name in COLUMNS[1:]] == pytest.approx([2.0, 0.5, 0.5, 0.5])


def test_the_interval_is_students_on_the_log_scale() -> None:
    """Shares of 0.5 and 0.125: log mean of 0.25, standard error of log 2, t of 12.706 at one degree of freedom."""
    rate = 1e3 * (step_flops(SMALL) or 0)
    found = roofline_of(SMALL, latencies(2.0, 8.0), ceilings((rate, 1e12), (rate, 1e12)))
    assert found["roofline_share"] == pytest.approx(0.25)
    assert found["roofline_share_low"] == pytest.approx(0.25 * math.exp(-12.7062 * math.log(2)), rel=1e-4)
    assert found["roofline_share_high"] == pytest.approx(0.25 * math.exp(12.7062 * math.log(2)), rel=1e-4)


@pytest.mark.parametrize("found", [(latencies(1.0), []), ([], ceilings((1.0, 1.0))), (latencies(1.0), ceilings(None, (1.0, 1.0)))])
def test_without_both_in_one_round_there_is_no_share(found: tuple[list[Record], list[Record]]) -> None:
    values = roofline_of(planned(HEAD), *found)
    assert [values[name] for name in COLUMNS[1:]] == [None] * 4
    assert values["compulsory_bytes"] == compulsory_bytes(planned(HEAD))


def test_what_has_no_known_size_or_cost_has_no_roofline() -> None:
    for cell in (planned(HEAD, dtype="fp4"), planned()):
        assert set(roofline_of(cell, latencies(1.0), ceilings((1.0, 1.0))).values()) == {None}

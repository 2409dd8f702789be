"""Times over attention's: which rows are compared, in which scope, and when a difference is shown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas
import pytest

from bench.analysis.frame import prepare
from bench.analysis.relative import FIXED_SHAPE, SAME_PARAMETERS, RelativeTimes, compared_scopes, is_fused, relative_times
from bench.reading.timings import Timings

MARGIN, ROUNDS = 0.03, 7
NOISE = (0.98, 1.0, 1.02, 1.0, 0.99, 1.01, 1.0)
"""What a round adds to a ratio: the same for all rounds would leave no interval."""
WORK = {"device": "cpu", "phase": "infer", "engine": "eager", "dtype": "fp32", "batch_size": 4, "match": "shape", "budget": 250_000}
FUSED = {"model": "vit", "family": "vit", "attention": "auto", "attention_effective": "flash"}
EXPLICIT = {**FUSED, "attention": "math", "attention_effective": "math"}
GMLP = {"model": "gmlp", "family": "gmlp", "attention": "none", "attention_effective": "none"}


def rows_of(*models: Mapping[str, Any], lengths: Iterable[int] = (17, 65), **work: Any) -> list[dict[str, Any]]:
    """`ms`: time at every length, 1.0 unless the model has another; `noise`: power of NOISE."""
    return [
        {
            **WORK,
            "ms": 1.0,
            "noise": 1,
            **work,
            **model,
            "seq_len": n,
            "cell_id": "-".join(map(str, (model["model"], model["attention"], n, *work.values()))),
        }
        for model, n in itertools.product(models, lengths)
    ]


def compared(
    rows: list[dict[str, Any]], places: Mapping[str, int] | None = None, *, timed: bool = True, num_rounds: int = ROUNDS, contrasts: int = 1
) -> list[RelativeTimes]:
    """`contrasts`: as many ratios are decided together."""
    frame = prepare(pandas.DataFrame([{**row, "latency_ms": row["ms"], "status": "measured"} for row in rows]))
    times = {
        row["cell_id"]: {i: row["ms"] * (1.0 if row["model"] == "vit" else NOISE[i] ** row["noise"]) for i in range(num_rounds)}
        for row in rows
        if timed
    }
    return relative_times(compared_scopes(frame, places or {}), Timings(times), dict.fromkeys(times, contrasts), MARGIN)


@pytest.mark.parametrize(
    ("ms", "noise", "faster", "slower", "equal"),
    [(0.5, 1, True, False, False), (2.0, 1, False, True, False), (1.001, 1, False, False, True), (1.001, 4, False, False, False)],
)
def test_a_difference_is_faster_or_slower_unless_it_is_equal_or_open(
    ms: float, noise: int, faster: bool, slower: bool, equal: bool
) -> None:
    (times,) = compared(rows_of(FUSED, {**GMLP, "ms": ms, "noise": noise}))
    (line,) = times.lines
    assert (times.reference, line.label, line.is_gmlp, line.is_equal) == ("vit", "gmlp", True, equal)
    for point in line.points:
        assert (point.faster, point.slower, point.equal) == (faster, slower, equal)
        assert point.ratio.estimate == pytest.approx(ms, rel=0.002)
        assert point.ratio.low < point.ratio.estimate < point.ratio.high


def test_intervals_hold_for_all_contrasts_of_a_length_together() -> None:
    (alone,), (longer,) = compared(rows_of(FUSED, GMLP)), compared(rows_of(FUSED, GMLP, lengths=(17, 65, 257, 1025)))
    (many,) = compared(rows_of(FUSED, GMLP), contrasts=3)
    few, same, wide = (times.lines[0].points[0].ratio for times in (alone, longer, many))
    assert (same.low, same.high) == (few.low, few.high)
    assert wide.low < few.low < few.high < wide.high


def test_rounds_that_are_too_few_for_an_interval_decide_nothing() -> None:
    (times,) = compared(rows_of(FUSED, {**GMLP, "ms": 0.5}), num_rounds=5)
    (point, _) = times.lines[0].points
    assert (point.faster, point.slower, point.equal, point.is_paired) == (False, False, False, True)
    assert (point.ratio.low, point.ratio.high) == (0.0, math.inf)
    assert point.ratio.span == pytest.approx((0.49, 0.51))


def test_the_primary_scope_comes_first_and_the_other_matching_beside_it() -> None:
    rows = [
        *rows_of(FUSED, GMLP, lengths=(17, 65, 257, 1025), phase="train"),
        *rows_of(FUSED, GMLP, lengths=(17, 65), batch_size=1),
        *rows_of(FUSED, GMLP, lengths=(17, 65, 257)),
        *rows_of(FUSED, GMLP, match="flops"),
        *rows_of(FUSED, GMLP, match="params"),
    ]
    found = compared(rows)
    assert [(times.matching, times.scope.keys["phase"], times.scope.keys["batching"]) for times in found] == [
        (FIXED_SHAPE, "infer", "batch 4"),
        (SAME_PARAMETERS, "infer", "batch 4"),
    ]
    assert [point.n for point in found[0].lines[0].points] == [17, 65, 257]


def test_beside_gmlp_only_attention_over_all_tokens_is_compared() -> None:
    window = {"model": "metaformer+mixer=window_attention", "family": "metaformer", "attention": "auto", "attention_effective": "flash"}
    transformer = {**FUSED, "model": "transformer", "family": "transformer"}
    other = {**transformer, "attention": "math", "attention_effective": "math"}
    (times,) = compared(rows_of(FUSED, {**EXPLICIT, "ms": 1.2}, GMLP, window, transformer, other))
    assert [line.label for line in times.lines] == ["gmlp", "transformer (auto)", "vit (math)"]  # gMLP first, then by time
    mixers = [{**window, "model": f"metaformer+mixer={name}"} for name in ("attention", "window_attention")]
    (times,) = compared(rows_of(*mixers))
    assert (times.reference, [line.label for line in times.lines]) == ("metaformer+mixer=attention", ["metaformer+mixer=window_attention"])
    (times,) = compared(rows_of(*mixers, transformer))
    assert times.reference == "metaformer+mixer=attention"  # in the block of the other mixers


def test_sizes_as_given_are_compared_only_if_published_as_equal() -> None:
    given: dict[str, Any] = {"match": "none", "budget": None}
    assert compared(rows_of(FUSED, GMLP, **given)) == []
    sizes = [{**model, "model": f"{name}-{size}"} for size in ("ti", "s") for name, model in (("deit", FUSED), ("gmlp", GMLP))]
    (times,) = compared(rows_of(*[{**model, "ms": 2.0 if model["model"].endswith("-s") else 1.0} for model in sizes], **given))
    assert {line.label: round(line.points[0].ratio.estimate, 2) for line in times.lines} == {"gmlp-ti": 1.0, "gmlp-s": 1.0}


def test_lengths_with_and_without_a_class_token_are_one_place() -> None:
    rows = [*rows_of(FUSED, lengths=(17, 65)), *rows_of(GMLP, lengths=(16, 64))]
    places = {row["cell_id"]: row["seq_len"] + 1 for row in rows if row["model"] == "gmlp"}
    (times,) = compared(rows, places)
    assert [point.n for point in times.lines[0].points] == [17, 65]


def test_without_rounds_a_ratio_of_medians_decides_nothing() -> None:
    (times,) = compared(rows_of(FUSED, {**GMLP, "ms": 0.5}), timed=False)
    (point, _) = times.lines[0].points
    assert (point.ratio.estimate, point.ratio.low, point.ratio.high, point.faster) == (0.5, 0.5, 0.5, False)


def test_attention_counts_as_fused_only_if_its_kernel_is_known_to_be() -> None:
    for kernel, known in (("flash", True), ("math", False), ("", False)):
        assert is_fused([{"attention_effective": kernel}, {"attention_effective": ""}]) is known


def test_without_attention_or_a_second_length_nothing_is_compared() -> None:
    assert compared(rows_of(GMLP)) == []
    assert compared(rows_of(FUSED, GMLP, lengths=(17,))) == []

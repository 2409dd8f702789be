from __future__ import annotations

from typing import Any

import pandas
import pytest

from bench.analysis.ranking import Pair, Ranking, rank_latency


def cell(label: str, ms: float, half: float, *, n: int = 17, stable: Any = True) -> dict[str, Any]:
    bounds = {"latency_low_ms": ms - half, "latency_high_ms": ms + half}
    return {"cell_id": f"{label}-{n}", "label": label, "seq_len": n, "latency_ms": ms, "latency_stable": stable, **bounds}


def latency(cells: list[dict[str, Any]], rounds: pandas.DataFrame | None = None) -> Ranking:
    return rank_latency(pandas.DataFrame(cells), ["seq_len"], rounds)[0]


def only_pair(ranking: Ranking) -> Pair:
    (pair,) = ranking.others
    return pair


def test_apart_intervals_show_a_difference() -> None:
    ranking = latency([cell("vit", 2.0, 0.1), cell("gmlp", 1.0, 0.1)])
    assert ranking.best == "gmlp"
    assert only_pair(ranking).shown
    assert only_pair(ranking).ratio == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (cell("vit", 1.1, 0.1), "the intervals overlap"),
        (cell("vit", 2.0, 0.1, stable=False), "an unstable cell"),
        (cell("vit", 2.0, float("nan")), "no interval"),
    ],
)
def test_overlap_instability_or_no_interval_show_none(second: dict[str, Any], why: str) -> None:
    pair = only_pair(latency([cell("gmlp", 1.0, 0.1), second]))
    assert (pair.shown, pair.why) == (False, why)


def test_rounds_pair_what_a_noisy_machine_hides() -> None:
    """Every round is slow or fast as a whole: the medians' intervals overlap, the paired ratio does not."""
    drift = [1.0, 2.0, 1.5, 3.0, 1.2]
    rounds = pandas.DataFrame(
        [(f"{label}-17", i, d * factor) for label, factor in (("gmlp", 1.0), ("vit", 1.05)) for i, d in enumerate(drift)],
        columns=["cell_id", "round", "latency_ms"],
    )
    pair = only_pair(latency([cell("gmlp", 1.5, 1.0), cell("vit", 1.575, 1.0)], rounds))
    assert pair.shown
    assert pair.ratio == pytest.approx(1.05)
    assert pair.low is not None
    assert pair.low > 1


def test_rounds_without_a_difference_show_none() -> None:
    rounds = pandas.DataFrame(
        [("gmlp-17", 0, 1.0), ("gmlp-17", 1, 1.1), ("vit-17", 0, 1.1), ("vit-17", 1, 1.0)], columns=["cell_id", "round", "latency_ms"]
    )
    pair = only_pair(latency([cell("gmlp", 1.0, 0.01), cell("vit", 1.1, 0.01)], rounds))
    assert (pair.shown, pair.why) == (False, "the interval of the ratio contains 1")


def test_groups_are_never_mixed_and_unmeasured_cells_do_not_compete() -> None:
    cells = [cell("gmlp", 1.0, 0.1), cell("vit", 9.0, 0.1, n=65), cell("vit", float("nan"), 0.1)]
    assert [(r.group["seq_len"], r.best, r.others) for r in rank_latency(pandas.DataFrame(cells), ["seq_len"], None)] == [
        (17, "gmlp", ()),
        (65, "vit", ()),
    ]

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas
import pytest
from scipy import stats

from bench.analysis.ranking import MAX_ROUNDS, RankedModel, Ranking, decided, fastest_first, rank_latency, rounds_needed
from bench.intervals import LEVEL, Interval, joint_level, signed_ranks
from bench.reading.timings import Timings
from bench.report.sections.pairs import _pair_texts
from bench.report.sections.winners import field_text, places_text
from tests.timed import timings_of_blocks, timings_of_rounds


def cell(label: str, ms: float, half: float, *, n: int = 17, stable: Any = True) -> dict[str, Any]:
    bounds = {"latency_low_ms": ms - half, "latency_high_ms": ms + half}
    return {"cell_id": f"{label}-{n}", "label": label, "seq_len": n, "latency_ms": ms, "latency_stable": stable, **bounds}


def latency(cells: list[dict[str, Any]], rounds: pandas.DataFrame | None = None) -> Ranking:
    return ranked(cells, Timings() if rounds is None else timings_of_rounds(rounds))[0]


def ranked(cells: list[dict[str, Any]], timings: Timings, margin: float = 0.03, contrasts: int = 1) -> list[Ranking]:
    """`contrasts`: as many ratios are decided together."""
    together = {found["cell_id"]: contrasts for found in cells}
    return rank_latency(fastest_first(pandas.DataFrame(cells), ["seq_len"], timings), timings, together, margin)


def only_pair(ranking: Ranking) -> RankedModel:
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
        (cell("vit", 2.0, 0.1, stable=False), "an unstable configuration"),
        (cell("vit", 2.0, float("nan")), "no interval"),
    ],
)
def test_overlap_instability_or_no_interval_show_none(second: dict[str, Any], why: str) -> None:
    pair = only_pair(latency([cell("gmlp", 1.0, 0.1), second]))
    assert (pair.shown, pair.why) == (False, why)


def test_rounds_pair_what_a_noisy_machine_hides() -> None:
    """Every round is slow or fast as a whole: the medians' intervals overlap, the paired ratio does not."""
    drift = [1.0, 2.0, 1.5, 3.0, 1.2, 0.9]
    rounds = pandas.DataFrame(
        [(f"{label}-17", i, d * factor) for label, factor in (("gmlp", 1.0), ("vit", 1.05)) for i, d in enumerate(drift)],
        columns=["cell_id", "round", "latency_ms"],
    )
    pair = only_pair(latency([cell("gmlp", 1.5, 1.0), cell("vit", 1.575, 1.0)], rounds))
    assert pair.shown
    assert pair.ratio == pytest.approx(1.05)
    assert pair.low is not None
    assert pair.low > 1


@pytest.mark.parametrize(("num", "why"), [(2, "2 rounds are too few"), (5, "5 rounds are too few"), (6, "the interval contains 1")])
def test_rounds_without_a_difference_show_none(num: int, why: str) -> None:
    rows = [(f"{label}-17", i, 1.0 + 0.1 * ((i + odd) % 2)) for odd, label in enumerate(("gmlp", "vit")) for i in range(num)]
    rounds = pandas.DataFrame(rows, columns=["cell_id", "round", "latency_ms"])
    pair = only_pair(latency([cell("gmlp", 1.0, 0.01), cell("vit", 1.1, 0.01)], rounds))
    assert (pair.shown, pair.equal, pair.why) == (False, False, why)
    assert (pair.low is None, pair.high is None) == (num < 6,) * 2
    assert pair.bounds == pytest.approx((1 / 1.1, 1.1))  # of the range too


def test_too_few_rounds_have_their_range_in_text() -> None:
    pair = only_pair(timed({"vit": (1.5, 0.01)}, num_rounds=3))
    assert not pair.shown
    assert _pair_texts(pair, 0.03) == ("vit", "1.500 (1.485 to 1.515)", "no significant difference: 3 rounds are too few")


def test_groups_are_never_mixed_and_unmeasured_cells_do_not_compete() -> None:
    cells = [cell("gmlp", 1.0, 0.1), cell("vit", 9.0, 0.1, n=65), cell("vit", float("nan"), 0.1)]
    assert [(r.group["seq_len"], r.best, r.others) for r in ranked(cells, Timings())] == [
        (17, "gmlp", ()),
        (65, "vit", ()),
    ]


def logs_of(mean: float, deviation: float, num: int) -> list[float]:
    """So many log-ratios of exactly this mean and sample standard deviation."""
    raw = np.arange(num, dtype=float)
    found: list[float] = (mean + deviation * (raw - raw.mean()) / raw.std(ddof=1)).tolist()
    return found


def drawn(mean: float, deviation: float, num: int) -> list[float]:
    """Without ties, unlike those above."""
    raw = np.random.default_rng(num).normal(size=num)
    found: list[float] = (mean + deviation * (raw - raw.mean()) / raw.std(ddof=1)).tolist()
    return found


def interval_of(logs: list[float], contrasts: int = 1) -> Interval:
    found = signed_ranks(logs)
    assert found is not None
    return found.interval(joint_level(LEVEL, contrasts))


def by_tests(logs: list[float], margin: float, contrasts: int) -> tuple[bool, bool]:
    """Signed-rank tests with Bonferroni: two-sided 5 % for a difference, one-sided 2.5 % against each end of the margin."""
    bound, values = math.log1p(margin), np.array(logs)
    different = stats.wilcoxon(values, method="exact").pvalue <= 0.05 / contrasts
    below = stats.wilcoxon(values - bound, alternative="less", method="exact").pvalue
    above = stats.wilcoxon(values + bound, alternative="greater", method="exact").pvalue
    return bool(different), bool(max(below, above) <= 0.025 / contrasts)


GRID = list(itertools.product([0.0, 0.004, 0.02, -0.02, 0.2], [0.001, 0.005, 0.02, 0.1], [3, 6, 12], [0.01, 0.03, 0.1], [1, 6]))


def test_differences_and_equality_are_decided_together_for_all_contrasts() -> None:
    logs = [(drawn(mean, spread, num), margin, contrasts) for mean, spread, num, margin, contrasts in GRID]
    answers = [decided(interval_of(found, contrasts), margin) for found, margin, contrasts in logs]
    assert answers == [by_tests(*one) for one in logs]
    assert set(answers) == {(True, True), (True, False), (False, True), (False, False)}
    assert decided(interval_of(drawn(0.02, 0.018, 8)), 0.03)[0]
    assert not decided(interval_of(drawn(0.02, 0.018, 8), 5), 0.03)[0]


@pytest.mark.parametrize("estimate", [0.0, 0.004, 0.02, -0.02, 0.029])
@pytest.mark.parametrize("half", [0.031, 0.053, 0.21])
def test_the_rounds_needed_are_the_first_at_which_it_would_be_decided(estimate: float, half: float) -> None:
    """As the interval narrows with the square root of the number of rounds."""

    def after(num: int) -> Interval:
        narrowed = half * math.sqrt(20 / num)
        return Interval(estimate=estimate, low=estimate - narrowed, high=estimate + narrowed, num=num)

    counted = next((num for num in range(20, MAX_ROUNDS + 1) if any(decided(after(num), 0.03))), None)
    assert rounds_needed(after(20), 0.03) == counted


def test_what_a_thousand_rounds_do_not_decide_has_no_number() -> None:
    at_the_margin = Interval(estimate=0.0005, low=-0.1, high=0.101, num=7)
    assert rounds_needed(at_the_margin, 0.0005) is None
    assert rounds_needed(interval_of([0.1, 0.2, 0.3]), 0.03) is None


def timed(ratios: dict[str, tuple[float, float]], margin: float = 0.03, num_rounds: int = 12) -> Ranking:
    """Cells by how many times the time of `gmlp` they take, and the deviation of that over rounds; all in turns, and all pairs together."""
    logs = {name: logs_of(math.log(ratio), deviation, num_rounds) for name, (ratio, deviation) in ratios.items()}
    blocks = {f"{name}-17": [[math.exp(log)] * 3 for log in found] for name, found in logs.items()}
    timings = timings_of_blocks({"gmlp-17": [[1.0] * 3] * num_rounds, **blocks})
    cells = [cell("gmlp", 1.0, 0.5), *(cell(name, ratio, 0.5) for name, (ratio, _) in ratios.items())]
    return ranked(cells, timings, margin, math.comb(len(cells), 2))[0]


def test_a_pair_may_differ_and_be_equal_within_the_margin() -> None:
    pair = only_pair(timed({"vit": (1.01, 0.002)}))
    assert (pair.shown, pair.equal, pair.rounds_needed, pair.interleaved, pair.why) == (True, True, None, True, "")
    assert only_pair(timed({"vit": (1.01, 0.002)}, margin=0.005)).equal is False


def test_the_fastest_is_the_one_that_is_faster_beside_the_others() -> None:
    """Absolute medians may say otherwise: what slowed one of them down hit the other too."""
    timings = timings_of_blocks({"gmlp-17": [[1.0] * 3] * 6, "vit-17": [[0.98] * 3] * 6})
    ranking = ranked([cell("gmlp", 1.00, 0.5), cell("vit", 1.01, 0.5)], timings)[0]
    assert ranking.best == "vit"
    assert only_pair(ranking).ratio == pytest.approx(1 / 0.98)


def test_the_interval_is_the_one_that_decides_for_all_pairs_together() -> None:
    pairs = {
        pair.other: pair for pair in timed({f"model {place}": (1.2 + 0.1 * place, 0.3 if place else 0.24) for place in range(4)}).others
    }
    assert {name: pair.shown for name, pair in pairs.items()} == {
        name: pair.low is not None and pair.low > 1 for name, pair in pairs.items()
    }
    assert not pairs["model 0"].shown
    assert pairs["model 0"].why == "the interval contains 1"


def test_an_open_pair_says_how_many_rounds_would_decide_it() -> None:
    ranking = timed({"vit": (1.02, 0.05), "transformer": (2.0, 0.01)})
    by_name = {pair.other: pair for pair in ranking.others}
    assert (by_name["vit"].shown, by_name["vit"].equal) == (False, False)
    assert by_name["vit"].rounds_needed == rounds_needed(interval_of(logs_of(math.log(1.02), 0.05, 12), 3), 0.03)
    assert (by_name["transformer"].shown, by_name["transformer"].rounds_needed) == (True, None)
    assert [pair.other for pair in ranking.level] == ["vit"]
    assert ranking.num_pairs == 3


def test_a_pair_alone_is_decided_more_easily_than_among_many() -> None:
    """Each brings a chance of its own to err."""
    alone = timed({"vit": (1.05, 0.04)})
    among = timed({"vit": (1.05, 0.04), **{f"other {i}": (2.0, 0.01) for i in range(9)}})
    assert only_pair(alone).shown
    assert not among.others[0].shown
    among_low, alone_low = among.others[0].low, only_pair(alone).low
    assert among_low is not None
    assert alone_low is not None
    assert among_low < 1 < alone_low


def test_who_is_faster_by_rounds_though_slower_by_medians_is_not_shown_to_be_slower() -> None:
    ranking = timed({"vit": (0.9, 0.001)})
    assert ranking.best == "vit"
    assert only_pair(ranking).shown


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ({"vit": (1.5, 0.001)}, "gMLP 1.50×"),
        ({"vit": (1.0, 0.001)}, "equal within 3 %"),
        ({"vit": (1.0, 0.001), "x": (1.5, 0.001)}, "gMLP = ViT 1.50×"),
        ({"vit": (1.02, 0.05), "x": (1.02, 0.05)}, "not significant"),
        ({"vit": (1.02, 0.05), "y": (1.5, 0.001)}, "gMLP or ViT 1.50×"),
        ({"vit": (1.0, 0.001), "x": (1.02, 0.05), "y": (1.5, 0.001)}, "3 lead 1.50×"),
        ({"vit (math)": (1.02, 0.05), "vit (auto)": (1.5, 0.001)}, "gMLP or explicit ViT 1.50×"),
        ({"vit": (1.01, 0.002)}, "equal within 3 %"),
        ({"vit (auto)": (1.0, 0.05), "vit (math)": (1.5, 0.001)}, "not significant"),
        ({"vit (auto)": (1.2, 0.001), "vit (math)": (1.5, 0.001)}, "gMLP 1.20×"),
    ],
)
def test_a_field_names_who_leads_and_by_how_much(ratios: dict[str, tuple[float, float]], text: str) -> None:
    assert field_text(timed(ratios)) == text


def test_the_table_of_pairs_says_of_a_slower_one_that_it_lies_within_the_margin() -> None:
    ranking = timed({"vit": (1.01, 0.002)})
    assert _pair_texts(ranking.others[0], ranking.margin)[2] == "vit is slower, equal within 3.00 %"


def test_an_open_pair_names_the_rounds_that_would_decide_it() -> None:
    ranking = timed({"vit": (1.02, 0.05)})
    assert _pair_texts(ranking.others[0], ranking.margin)[2].endswith("(about 37 rounds would decide)")


@pytest.mark.parametrize(
    ("xs", "text"), [([17], "17"), ([17, 65], "17 and 65"), ([65, 17, 257], "17 to 257"), ([17, 65, 257, 4097], "4 of 5")]
)
def test_neighbours_of_a_grid_are_a_range(xs: list[float], text: str) -> None:
    assert places_text(xs, [17, 65, 257, 1025, 4097]) == text

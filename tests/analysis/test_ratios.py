"""Who is fastest, by how much and whether that is shown; and times over attention's: which rows are compared, in which scope."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas
import pytest
from scipy import stats

from bench.analysis.frame import prepare
from bench.analysis.ratios import MAX_ROUNDS, Decision, RankedModel, Ranking, RelativeTimes, is_fused, rank_latency, relative_times
from bench.intervals import Interval, joint_level, ratio_over_rounds
from bench.reading.timings import Timings
from bench.report.sections.winners import _pair_texts, field_text, places_text
from tests.timed import timings_of_blocks

MARGIN = 0.03


def cell(label: str, ms: float, half: float = 0.5, *, n: int = 17, stable: bool = True) -> dict[str, Any]:
    bounds = {"latency_low_ms": ms - half, "latency_high_ms": ms + half}
    return {"cell_id": f"{label}-{n}", "label": label, "seq_len": n, "latency_ms": ms, "latency_stable": stable, **bounds}


def rounds_of(**times: Sequence[float]) -> Timings:
    """By label, at n = 17."""
    return Timings({f"{label}-17": dict(enumerate(found)) for label, found in times.items()})


def ranked(cells: list[dict[str, Any]], timings: Timings, margin: float = MARGIN, contrasts: int = 1) -> list[Ranking]:
    """`contrasts`: as many ratios are decided together."""
    together = {found["cell_id"]: contrasts for found in cells}
    return rank_latency(cells, ["seq_len"], timings, together, margin)


def only_pair(ranking: Ranking) -> RankedModel:
    (pair,) = ranking.others
    return pair


def test_without_a_round_of_both_nothing_is_shown() -> None:
    (ranking,) = ranked([cell("gmlp", 1.0, 0.1), cell("vit", 2.0, 0.1)], Timings())
    pair = only_pair(ranking)
    assert (ranking.best, pair.differs, pair.why, _pair_texts(pair)[1]) == ("gmlp", False, "no round has both", "2.00")


@pytest.mark.parametrize(("num", "why"), [(5, "5 rounds are too few"), (6, "the interval contains 1")])
def test_rounds_without_a_difference_show_none(num: int, why: str) -> None:
    timings = rounds_of(gmlp=([1.0, 1.1] * 3)[:num], vit=([1.1, 1.0] * 3)[:num])
    pair = only_pair(ranked([cell("gmlp", 1.0, 0.01), cell("vit", 1.1, 0.01)], timings)[0])
    assert (pair.differs, pair.equal, pair.why) == (False, False, why)
    assert pair.ratio.is_open == (num < 6)
    assert (pair.ratio.span or (pair.ratio.low, pair.ratio.high)) == pytest.approx((1 / 1.1, 1.1))


def test_groups_are_never_mixed_and_unmeasured_cells_do_not_compete() -> None:
    cells = [cell("gmlp", 1.0), cell("vit", 9.0, n=65), cell("vit", float("nan"))]
    assert [(r.group["seq_len"], r.best, r.others) for r in ranked(cells, Timings())] == [(17, "gmlp", ()), (65, "vit", ())]


def logs_of(mean: float, deviation: float, num: int, *, has_ties: bool = True) -> list[float]:
    """So many log-ratios of exactly this mean and sample standard deviation."""
    raw = np.arange(num, dtype=float) if has_ties else np.random.default_rng(num).normal(size=num)
    found: list[float] = (mean + deviation * (raw - raw.mean()) / raw.std(ddof=1)).tolist()
    return found


def decision_of(logs: list[float], contrasts: int = 1, margin: float = MARGIN) -> Decision:
    ratio = ratio_over_rounds(logs, joint_level(contrasts))
    assert ratio is not None
    return Decision(ratio=ratio, margin=margin)


def by_tests(logs: list[float], margin: float, contrasts: int) -> tuple[bool, bool]:
    """Signed-rank tests with Bonferroni: two-sided 5 % for a difference, one-sided 2.5 % against each end of the margin."""
    bound, values = math.log1p(margin), np.array(logs)
    different = stats.wilcoxon(values, method="exact").pvalue <= 0.05 / contrasts
    below = stats.wilcoxon(values - bound, alternative="less", method="exact").pvalue
    above = stats.wilcoxon(values + bound, alternative="greater", method="exact").pvalue
    return bool(different), bool(max(below, above) <= 0.025 / contrasts)


GRID = list(itertools.product([0.0, 0.004, 0.02, -0.02, 0.2], [0.001, 0.005, 0.02, 0.1], [3, 6, 12], [0.01, 0.03, 0.1], [1, 6]))


def test_differences_and_equality_are_decided_together_for_all_contrasts() -> None:
    logs = [(logs_of(mean, spread, num, has_ties=False), margin, contrasts) for mean, spread, num, margin, contrasts in GRID]
    decisions = [decision_of(found, contrasts, margin) for found, margin, contrasts in logs]
    answers = [(found.differs, found.equal) for found in decisions]
    assert answers == [by_tests(*one) for one in logs]
    assert set(answers) == {(True, True), (True, False), (False, True), (False, False)}


@pytest.mark.parametrize("estimate", [0.0, 0.004, 0.02, -0.02, 0.029])
@pytest.mark.parametrize("half", [0.031, 0.053, 0.21])
def test_the_rounds_needed_are_the_first_at_which_it_would_be_decided(estimate: float, half: float) -> None:
    """As the interval narrows with the square root of the number of rounds."""

    def after(num: int) -> Decision:
        narrowed = half * math.sqrt(20 / num)
        logs = Interval(estimate=estimate, low=estimate - narrowed, high=estimate + narrowed, num=num)
        return Decision(ratio=logs.exp(), margin=MARGIN)

    counted = next((num for num in range(20, MAX_ROUNDS + 1) if after(num).differs or after(num).equal), None)
    assert after(20).rounds_needed == counted


def test_what_a_thousand_rounds_do_not_decide_has_no_number() -> None:
    at_the_margin = Interval(estimate=0.0005, low=-0.1, high=0.101, num=7).exp()
    assert Decision(ratio=at_the_margin, margin=0.0005).rounds_needed is None
    assert decision_of([0.1, 0.2, 0.3]).rounds_needed is None


def timed(ratios: Mapping[str, tuple[float, float]], margin: float = MARGIN, num_rounds: int = 12) -> Ranking:
    """Cells by how many times the time of `gmlp` they take, and the deviation of that over rounds; all in turns, and all pairs together."""
    logs = {name: logs_of(math.log(ratio), deviation, num_rounds) for name, (ratio, deviation) in ratios.items()}
    blocks = {f"{name}-17": [[math.exp(log)] * 3 for log in found] for name, found in logs.items()}
    timings = timings_of_blocks({"gmlp-17": [[1.0] * 3] * num_rounds, **blocks})
    cells = [cell("gmlp", 1.0), *(cell(name, ratio) for name, (ratio, _) in ratios.items())]
    return ranked(cells, timings, margin, math.comb(len(cells), 2))[0]


def test_a_pair_may_differ_and_be_equal_within_the_margin() -> None:
    ranking = timed({"vit": (1.01, 0.002)})
    pair = only_pair(ranking)
    assert (pair.differs, pair.slower, pair.equal, pair.rounds_needed, pair.why) == (True, False, True, None, "")
    assert (ranking.level, ranking.slower) == ((pair,), ())
    assert only_pair(timed({"vit": (1.01, 0.002)}, margin=0.005)).equal is False


def test_the_fastest_is_the_one_that_is_faster_beside_the_others() -> None:
    """Absolute medians may say otherwise: what slowed one of them down hit the other too."""
    timings = timings_of_blocks({"gmlp-17": [[1.0] * 3] * 6, "vit-17": [[0.98] * 3] * 6})
    (ranking,) = ranked([cell("gmlp", 1.00), cell("vit", 1.01)], timings)
    assert ranking.best == "vit"
    assert only_pair(ranking).ratio.estimate == pytest.approx(1 / 0.98)


def test_an_open_pair_says_how_many_rounds_would_decide_it() -> None:
    ranking = timed({"vit": (1.02, 0.05), "transformer": (2.0, 0.01)})
    by_name = {pair.other: pair for pair in ranking.others}
    assert (by_name["vit"].differs, by_name["vit"].equal) == (False, False)
    assert by_name["vit"].rounds_needed == decision_of(logs_of(math.log(1.02), 0.05, 12), 3).rounds_needed
    assert (by_name["transformer"].slower, by_name["transformer"].rounds_needed) == (True, None)
    assert [pair.other for pair in ranking.level] == ["vit"]


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ({"vit": (1.5, 0.001)}, "gMLP 1.50×"),
        ({"vit": (1.0, 0.001)}, "equal within 3 %"),
        ({"vit": (1.0, 0.001), "x": (1.5, 0.001)}, "gMLP = ViT 1.50×"),
        ({"vit": (1.02, 0.05), "x": (1.02, 0.05)}, "not significant"),
        ({"vit": (1.0, 0.001), "x": (1.02, 0.05), "y": (1.5, 0.001)}, "3 lead 1.50×"),
        ({"vit (math)": (1.02, 0.05), "vit (auto)": (1.5, 0.001)}, "gMLP or explicit ViT 1.50×"),
        ({"vit (auto)": (1.0, 0.05), "vit (math)": (1.5, 0.001)}, "not significant"),
    ],
)
def test_a_field_names_who_leads_and_by_how_much(ratios: dict[str, tuple[float, float]], text: str) -> None:
    assert field_text(timed(ratios)) == text


@pytest.mark.parametrize(
    ("ratio", "num_rounds", "verdict"),
    [
        ((1.01, 0.002), 12, "vit is slower, equal within 3.00 %"),
        ((1.02, 0.05), 12, "no significant difference: the interval contains 1 (about 37 rounds would decide)"),
        ((1.5, 0.01), 3, "no significant difference: 3 rounds are too few"),
    ],
)
def test_the_table_of_pairs_says_what_is_decided_or_what_would_decide_it(ratio: tuple[float, float], num_rounds: int, verdict: str) -> None:
    assert _pair_texts(only_pair(timed({"vit": ratio}, num_rounds=num_rounds)))[2] == verdict


def test_a_model_ahead_of_the_first_by_paired_rounds_is_named_faster() -> None:
    """Medians rank the models if one of them has no round in common with the first."""
    pair = RankedModel(other="vit", ratio=Interval(estimate=0.9, low=0.88, high=0.92, num=20), margin=MARGIN)
    assert _pair_texts(pair)[2] == "vit is faster"


@pytest.mark.parametrize(("xs", "text"), [([17, 65], "17 and 65"), ([65, 17, 257], "17 to 257"), ([17, 65, 257, 4097], "4 of 5")])
def test_neighbours_of_a_grid_are_a_range(xs: list[float], text: str) -> None:
    assert places_text(xs, [17, 65, 257, 1025, 4097]) == text


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


def relative(
    rows: list[dict[str, Any]], places: Mapping[str, int] | None = None, *, num_rounds: int = len(NOISE), contrasts: int = 1
) -> list[RelativeTimes]:
    """`contrasts`: as many ratios are decided together."""
    frame = prepare(pandas.DataFrame([{**row, "latency_ms": row["ms"], "status": "measured"} for row in rows]))
    times = {
        row["cell_id"]: {i: row["ms"] * (1.0 if row["model"] == "vit" else NOISE[i] ** row["noise"]) for i in range(num_rounds)}
        for row in rows
    }
    return relative_times(frame, places or {}, Timings(times), dict.fromkeys(times, contrasts), MARGIN)


@pytest.mark.parametrize(
    ("ms", "noise", "faster", "slower", "equal"),
    [(0.5, 1, True, False, False), (2.0, 1, False, True, False), (1.001, 1, False, False, True), (1.001, 4, False, False, False)],
)
def test_a_difference_is_faster_or_slower_unless_it_is_equal_or_open(
    ms: float, noise: int, faster: bool, slower: bool, equal: bool
) -> None:
    (times,) = relative(rows_of(FUSED, {**GMLP, "ms": ms, "noise": noise}))
    (line,) = times.lines
    assert (times.reference, line.label, line.is_gmlp, line.is_equal) == ("vit", "gmlp", True, equal)
    for point in line.points:
        assert (point.faster, point.slower, point.equal) == (faster, slower, equal)
        assert point.ratio.estimate == pytest.approx(ms, rel=0.002)
        assert point.ratio.low < point.ratio.estimate < point.ratio.high


def test_intervals_hold_for_all_contrasts_of_a_length_together() -> None:
    (alone,), (longer,) = relative(rows_of(FUSED, GMLP)), relative(rows_of(FUSED, GMLP, lengths=(17, 65, 257, 1025)))
    (many,) = relative(rows_of(FUSED, GMLP), contrasts=3)
    few, same, wide = (times.lines[0].points[0].ratio for times in (alone, longer, many))
    assert (same.low, same.high) == (few.low, few.high)
    assert wide.low < few.low < few.high < wide.high


@pytest.mark.parametrize(("num_rounds", "bounds"), [(5, (0.0, math.inf)), (0, (0.5, 0.5))])
def test_rounds_that_are_too_few_for_an_interval_decide_nothing(num_rounds: int, bounds: tuple[float, float]) -> None:
    """Without any, the ratio is one of medians."""
    (times,) = relative(rows_of(FUSED, {**GMLP, "ms": 0.5}), num_rounds=num_rounds)
    (point, _) = times.lines[0].points
    assert (point.faster, point.slower, point.equal, point.is_paired) == (False, False, False, num_rounds > 0)
    assert (point.ratio.low, point.ratio.high) == bounds


def test_the_primary_scope_comes_first_and_the_other_matching_beside_it() -> None:
    rows = [
        *rows_of(FUSED, GMLP, lengths=(17, 65, 257, 1025), phase="train"),
        *rows_of(FUSED, GMLP, lengths=(17, 65), batch_size=1),
        *rows_of(FUSED, GMLP, lengths=(17, 65, 257)),
        *rows_of(FUSED, GMLP, match="flops"),
        *rows_of(FUSED, GMLP, match="params"),
    ]
    found = relative(rows)
    assert [[times.scope.keys[key] for key in ("match", "phase", "batching")] for times in found] == [
        ["shape", "infer", "batch 4"],
        ["params", "infer", "batch 4"],
    ]
    assert [point.n for point in found[0].lines[0].points] == [17, 65, 257]


def test_beside_gmlp_only_attention_over_all_tokens_is_compared() -> None:
    window = {"model": "metaformer+mixer=window_attention", "family": "metaformer", "attention": "auto", "attention_effective": "flash"}
    transformer = {**FUSED, "model": "transformer", "family": "transformer"}
    other = {**transformer, "attention": "math", "attention_effective": "math"}
    (times,) = relative(rows_of(FUSED, {**EXPLICIT, "ms": 1.2}, GMLP, window, transformer, other))
    assert [line.label for line in times.lines] == ["gmlp", "transformer (auto)", "vit (math)"]  # gMLP first, then by time
    mixers = [{**window, "model": f"metaformer+mixer={name}"} for name in ("attention", "window_attention")]
    (times,) = relative(rows_of(*mixers))
    assert (times.reference, [line.label for line in times.lines]) == ("metaformer+mixer=attention", ["metaformer+mixer=window_attention"])
    (times,) = relative(rows_of(*mixers, transformer))
    assert times.reference == "metaformer+mixer=attention"  # in the block of the other mixers


def test_sizes_as_given_are_compared_only_if_published_as_equal() -> None:
    given: dict[str, Any] = {"match": "none", "budget": None}
    assert relative(rows_of(FUSED, GMLP, **given)) == []
    sizes = [{**model, "model": f"{name}-{size}"} for size in ("ti", "s") for name, model in (("deit", FUSED), ("gmlp", GMLP))]
    (times,) = relative(rows_of(*[{**model, "ms": 2.0 if model["model"].endswith("-s") else 1.0} for model in sizes], **given))
    assert {line.label: round(line.points[0].ratio.estimate, 2) for line in times.lines} == {"gmlp-ti": 1.0, "gmlp-s": 1.0}


def test_lengths_with_and_without_a_class_token_are_one_place() -> None:
    rows = [*rows_of(FUSED, lengths=(17, 65)), *rows_of(GMLP, lengths=(16, 64))]
    places = {row["cell_id"]: row["seq_len"] + 1 for row in rows if row["model"] == "gmlp"}
    (times,) = relative(rows, places)
    assert [point.n for point in times.lines[0].points] == [17, 65]


def test_attention_counts_as_fused_only_if_its_kernel_is_known_to_be() -> None:
    for kernel, known in (("flash", True), ("math", False), ("", False)):
        assert is_fused([{"attention_effective": kernel}, {"attention_effective": ""}]) is known


def test_without_attention_or_a_second_length_nothing_is_compared() -> None:
    assert relative(rows_of(GMLP)) == []
    assert relative(rows_of(FUSED, GMLP, lengths=(17,))) == []

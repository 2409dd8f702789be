"""Answers one claim: how a series grows with n (quadratic, linear, hidden below some length), and gMLP beside ViT at one size (time, accuracy)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas

from bench.analysis.claims import MARGIN, MIN_SEEDS, REFUTED, SUPPORTED, UNDECIDED, Claim
from bench.analysis.evidence import SCOPE_KEYS, Evidence, Finding, label_of, scope_of
from bench.analysis.exponents import LocalExponent, local_exponents
from bench.analysis.growth import BY_COLUMN
from bench.analysis.scaling import MIN_ROUNDS, MIN_SHARE, Decomposition, QuadraticAnswer, answer_quadratic
from bench.analysis.series import Series, row_values
from bench.analysis.significance import compare_scores
from bench.intervals import LEVEL, Interval
from bench.planning.same_width import is_one_width
from bench.running.timings import Timings, ratio_of
from bench.spec import MEASURED, PREDICTED

FIRST, SECOND = "gmlp", "vit"
SHAPE_ONLY = "The shape is kept, so that sizes are matched at the shortest length only: not judged."
WIDTH_ONLY = "Widths are equal, not sizes: not judged."
Row = Mapping[str, Any]


def judge_speed(claim: Claim, evidence: Evidence) -> list[Finding]:
    """One finding per length and, over all lengths of a scope, one with `n` None. Bonferroni's correction over the lengths of a scope."""
    found = []
    for label, scope, pairs in _pairs(evidence.frame, wanted=_timed):
        level = 1 - (1 - LEVEL) / len(pairs)
        by_length = [_speed_at(claim, label, scope, first, second, evidence.timings, level) for first, second in pairs]
        found += [*by_length, _speed(claim, label, scope, by_length)]
    return found


def judge_accuracy(claim: Claim, evidence: Evidence) -> list[Finding]:
    """Per task, size and length: is gMLP not worse by more than the margin? Both sources of variation, seeds and items (`compare_scores`)."""
    return [
        _accuracy_at(claim, label, scope, first, second, evidence)
        for label, scope, pairs in _pairs(evidence.frame, wanted=_trained)
        for first, second in pairs
    ]


def _timed(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Nothing where nothing was timed; else every row, also one that failed: a length that one model cannot run is a length all the same."""
    return frame if "latency_ms" in frame and frame["latency_ms"].notna().any() else frame[:0]


def _trained(frame: pandas.DataFrame) -> pandas.DataFrame:
    return frame[frame["accuracy"].notna()] if "accuracy" in frame else frame[:0]


def _pairs(
    frame: pandas.DataFrame, wanted: Callable[[pandas.DataFrame], pandas.DataFrame]
) -> Iterator[tuple[str, dict[str, Any], list[tuple[Row, Row]]]]:
    """For every scope and attention kernel: the wanted rows of both models by length."""
    keys = [key for key in SCOPE_KEYS if key in frame]
    for _, members in wanted(frame).groupby(keys, sort=False, dropna=False):
        for (model, _), seconds in members[members["model"].map(_is_second)].groupby(["model", "attention"], sort=False):
            counterpart = members[members["model"] == FIRST + str(model).removeprefix(SECOND)]
            firsts = {row["seq_len"]: row for row in row_values(counterpart)}
            pairs: list[tuple[Row, Row]] = [
                (firsts[row["seq_len"]], row) for row in row_values(seconds.sort_values("seq_len")) if row["seq_len"] in firsts
            ]
            if pairs:
                yield f"{label_of(pairs[0][0])} / {label_of(pairs[0][1])}", scope_of(pairs[0][1]), pairs


def _is_second(model: str) -> bool:
    """The family itself, or with options, which its counterpart must then have as well."""
    return model.split("+")[0] == SECOND


def _speed_at(claim: Claim, label: str, scope: Row, first: Row, second: Row, timings: Timings, level: float) -> Finding:
    ratio = ratio_of(first["cell_id"], second["cell_id"], timings, level)
    answer, reason = _speed_answer(ratio, len(timings.log_ratios(first["cell_id"], second["cell_id"])))
    if failed := [f"{row['model']}: {row['status']}" for row in (first, second) if row.get("status", MEASURED) != MEASURED]:
        answer, reason = UNDECIDED, f"Not measured ({', '.join(failed)})."
    return Finding(
        claim=claim,
        subject=label,
        scope=scope,
        answer=answer,
        reason=reason,
        effect="ratio of times",
        estimate=ratio,
        cells=(first["cell_id"], second["cell_id"]),
        n=int(first["seq_len"]),
    )


CONTAINS_ONE = "The interval of the ratio contains 1."


def _speed_answer(ratio: Interval | None, num_rounds: int) -> tuple[str, str]:
    if ratio is None or num_rounds < MIN_ROUNDS:
        return UNDECIDED, f"{num_rounds} rounds that both have; at least {MIN_ROUNDS} are needed. Add --rounds."
    if ratio.high < 1:
        return SUPPORTED, "The interval of the ratio lies below 1."
    if ratio.low > 1:
        return REFUTED, "The interval of the ratio lies above 1."
    return UNDECIDED, CONTAINS_ONE


def _speed(claim: Claim, label: str, scope: Row, by_length: list[Finding]) -> Finding:
    """Over all lengths: faster at every one, slower at some one, or not known; with the lengths by outcome, and the ratio at the longest."""
    where = {answer: [finding.n for finding in by_length if finding.answer == answer] for answer in (SUPPORTED, REFUTED, UNDECIDED)}
    words = {SUPPORTED: "faster", REFUTED: "slower", UNDECIDED: "not told apart"}
    texts = [f"{words[answer]} at n = {', '.join(map(str, lengths))}" for answer, lengths in where.items() if lengths]
    decided = REFUTED if where[REFUTED] else (UNDECIDED if where[UNDECIDED] else SUPPORTED)
    doubts = dict.fromkeys(finding.reason for finding in by_length if finding.answer == UNDECIDED and finding.reason != CONTAINS_ONE)
    longest, reason = by_length[-1], " ".join((f"{FIRST} is {'; '.join(texts)}.", *doubts))
    policy = str(scope.get("match", ""))
    if policy == "shape" or is_one_width(policy):
        decided, reason = UNDECIDED, f"{SHAPE_ONLY if policy == 'shape' else WIDTH_ONLY} {reason}"
    return Finding(
        claim=claim,
        subject=label,
        scope=scope,
        answer=decided,
        reason=reason,
        effect=f"ratio of times at n = {longest.n}",
        estimate=longest.estimate,
        cells=tuple(cell for finding in by_length for cell in finding.cells),
    )


def _accuracy_at(claim: Claim, label: str, scope: Row, first: Row, second: Row, evidence: Evidence) -> Finding:
    answer, reason, difference = _accuracy_answer(first, second, evidence)
    return Finding(
        claim=claim,
        subject=label,
        scope=scope,
        answer=answer,
        reason=reason,
        effect="difference in accuracy" if difference else "",
        estimate=difference,
        cells=(first["cell_id"], second["cell_id"]),
        n=int(first["seq_len"]),
    )


def _accuracy_answer(first: Row, second: Row, evidence: Evidence) -> tuple[str, str, Interval | None]:
    scores = [evidence.scores.get(row["cell_id"]) for row in (first, second)]
    if scores[0] is None or scores[1] is None or scores[0].shape[1] != scores[1].shape[1]:
        return UNDECIDED, "The two were not scored on the same test items.", None
    seeds = min(len(scores[0]), len(scores[1]))
    found = compare_scores(scores[0], scores[1])
    difference = Interval(estimate=found.estimate, low=found.low, high=found.high, num=seeds)
    if seeds < MIN_SEEDS:
        return UNDECIDED, f"{seeds} seeds; at least {MIN_SEEDS} are needed. Add --seeds.", difference
    if found.low > -MARGIN:
        return SUPPORTED, f"Not worse by more than {MARGIN:.0%} of the items.", difference
    if found.high < -MARGIN:
        return REFUTED, f"Worse by more than {MARGIN:.0%} of the items.", difference
    return UNDECIDED, f"The interval holds {-MARGIN:.0%}. Add seeds.", difference


OPPOSITE = {SUPPORTED: REFUTED, REFUTED: SUPPORTED, UNDECIDED: UNDECIDED}


def judge_growth(claim: Claim, evidence: Evidence) -> list[Finding]:
    """Claims of the kinds `quadratic` and `linear`, one finding per series; counts that do not depend on the workload are judged once."""
    found: dict[tuple[str, tuple[float, ...]], Finding] = {}
    for series in evidence.series(claim.subject):
        samples = evidence.fits.samples(series, BY_COLUMN[claim.column], usable_only=claim.timed)
        finding = _growth(claim, series, evidence)
        key = (finding.subject, (float(len(found)),) if BY_COLUMN[claim.column].per_workload else tuple(samples["value"]))
        found.setdefault(key, finding)
    return list(found.values())


def judge_hidden(claim: Claim, evidence: Evidence) -> list[Finding]:
    """Up to which n is the quadratic term's share of the time below a tenth?"""
    return [_hidden(claim, series, _fit(claim, series, evidence), evidence) for series in evidence.series(claim.subject)]


def _fit(claim: Claim, series: Series, evidence: Evidence) -> Decomposition:
    """Of the times of usable cells alone; of all counts."""
    fit = evidence.fits.of_times if claim.timed else evidence.fits.of_counts
    return fit(series, BY_COLUMN[claim.column])


def _growth(claim: Claim, series: Series, evidence: Evidence) -> Finding:
    found = _fit(claim, series, evidence)
    answer, slope = answer_quadratic(found), _slope(claim, series, evidence, found)
    because = (_because(answer, found), _left_out(claim, series, evidence), _predicted(claim, series), _slope_text(slope, claim.timed))
    return Finding(
        claim=claim,
        subject=_label(claim, series),
        scope=scope_of(series.keys),
        answer=OPPOSITE[answer.answer] if claim.kind == "linear" else answer.answer,
        reason=" ".join(part for part in because if part),
        effect=f"share of n^2 at n = {answer.longest}" if answer.share else "",
        estimate=answer.share,
        cells=series.cell_ids,
        reach=series.reach,
        slope=slope,
    )


def _because(answer: QuadraticAnswer, found: Decomposition) -> str:
    """The reason; for exact counts also the coefficient, and from where on they follow the polynomial."""
    if not found.exact or found.c is None:
        return answer.reason
    start = f" From n = {found.lengths[0]} on." if found.lengths else ""
    return f"{answer.reason} The coefficient of n^2 is {found.c.estimate:,.6g} per n^2.{start}"


def _left_out(claim: Claim, series: Series, evidence: Evidence) -> str:
    """How many cells did not enter a fit of times."""
    num = len(set(series.cell_ids) - evidence.usable) if claim.timed else 0
    return f"{num} of {len(series.cell_ids)} lengths left out (unstable, launch-bound or not measured)." if num else ""


def _predicted(claim: Claim, series: Series) -> str:
    """At which lengths a memory was worked out instead of measured."""
    if claim.metric != "memory" or "memory_source" not in series.rows:
        return ""
    lengths = series.rows.loc[series.rows["memory_source"] == PREDICTED, "seq_len"]
    return f"Predicted, not measured, at n = {', '.join(f'{n:.0f}' for n in lengths)}." if len(lengths) else ""


def _slope(claim: Claim, series: Series, evidence: Evidence, found: Decomposition) -> LocalExponent | None:
    """Where there is no fit, the last local exponent says how fast the cost grows; paired by round, it can use every cell that was timed."""
    if found.fits:
        return None
    samples = evidence.fits.samples(series, BY_COLUMN[claim.column])
    slopes = local_exponents(samples, exact=not claim.timed).exponents if len(samples) else ()
    return slopes[-1] if slopes else None


def _slope_text(slope: LocalExponent | None, timed: bool) -> str:
    if slope is None:
        return ""
    bounds = f" [{slope.exponent.low:.2f}, {slope.exponent.high:.2f}]" if timed else ""
    return f"Local exponent between n = {slope.shorter} and {slope.longer}: {slope.exponent.estimate:.2f}{bounds}."


def _hidden(claim: Claim, series: Series, found: Decomposition, evidence: Evidence) -> Finding:
    answer, reason, estimate = _hidden_answer(found, shortest=series.lengths[0])
    return Finding(
        claim=claim,
        subject=_label(claim, series),
        scope=scope_of(series.keys),
        answer=answer,
        reason=" ".join(part for part in (reason, _left_out(claim, series, evidence)) if part),
        effect="n at which n^2 reaches 10 % of the time" if estimate else "",
        estimate=estimate,
        cells=series.cell_ids,
        reach=series.reach,
    )


def _hidden_answer(found: Decomposition, shortest: int) -> tuple[str, str, Interval | None]:
    """The n at which the share is a tenth, bounded by the lengths at which it is surely below and surely above."""
    if not found.fits:
        return UNDECIDED, found.reason, None
    below = [share.n for share in found.shares if share.quadratic.high < MIN_SHARE]
    above = [share.n for share in found.shares if share.quadratic.low > MIN_SHARE]
    crossing = _tenth(found)
    longest = found.shares[-1].n
    if below:
        text = "throughout" if below[-1] == longest else f"up to n = {below[-1]}"
        where = f"; it is above from n = {above[0]}" if above else ""
        interval = Interval(estimate=crossing, low=below[-1], high=above[0], num=found.num_rounds) if crossing and above else None
        return SUPPORTED, f"Below 10 % of the time {text}{where}.", interval
    if above and above[0] == shortest:
        return REFUTED, f"Above 10 % of the time from the shortest length, n = {above[0]}, on.", None
    if above and above[0] == found.shares[0].n:
        return UNDECIDED, f"Above 10 % of the time from n = {above[0]} on; shorter lengths did not enter the fit.", None
    return UNDECIDED, "No length has a share that is surely below 10 %. Add shorter lengths or rounds.", None


def _tenth(found: Decomposition) -> float | None:
    """The n that solves c n^2 = 0.1 (a + b n + c n^2)."""
    assert found.a is not None
    assert found.b is not None
    assert found.c is not None
    a, b, c = found.a.estimate, found.b.estimate, (1 / MIN_SHARE - 1) * found.c.estimate
    return (b + math.sqrt(b * b + 4 * a * c)) / (2 * c) if c > 0 else None


def _label(claim: Claim, series: Series) -> str:
    return label_of(series.keys) if BY_COLUMN[claim.column].per_workload else str(series.keys["model"])

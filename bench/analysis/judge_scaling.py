"""Claims about how one series grows with n: quadratic, linear, or hidden below some length."""

from __future__ import annotations

import math

import pandas

from bench.analysis.claims import Claim
from bench.analysis.evidence import Evidence, Finding, label_of, scope_of
from bench.analysis.exponents import LocalExponent, local_exponents
from bench.analysis.growth import BY_COLUMN, decompose_counts, samples_of
from bench.analysis.quadratic import MIN_SHARE, REFUTED, SUPPORTED, UNDECIDED, QuadraticAnswer, answer_quadratic
from bench.analysis.scaling import Decomposition, decompose
from bench.analysis.series import Series
from bench.intervals import Interval
from bench.spec import PREDICTED

OPPOSITE = {SUPPORTED: REFUTED, REFUTED: SUPPORTED, UNDECIDED: UNDECIDED}


def judge_growth(claim: Claim, evidence: Evidence) -> list[Finding]:
    """Claims of the kinds `quadratic` and `linear`, one finding per series; counts that do not depend on the workload are judged once."""
    found: dict[tuple[str, tuple[float, ...]], Finding] = {}
    for series in evidence.series(claim.subject):
        samples = _samples(claim, series, evidence)
        finding = _growth(claim, series, samples, evidence)
        key = (finding.subject, (float(len(found)),) if BY_COLUMN[claim.column].per_workload else tuple(samples["value"]))
        found.setdefault(key, finding)
    return list(found.values())


def judge_hidden(claim: Claim, evidence: Evidence) -> list[Finding]:
    """Up to which n is the quadratic term's share of the time below a tenth?"""
    return [_hidden(claim, series, decompose(_samples(claim, series, evidence)), evidence) for series in evidence.series(claim.subject)]


def _samples(claim: Claim, series: Series, evidence: Evidence) -> pandas.DataFrame:
    """Times of usable cells alone; counts of all."""
    return samples_of(series.kept(evidence.usable) if claim.timed else series, BY_COLUMN[claim.column], evidence.timings)


def _growth(claim: Claim, series: Series, samples: pandas.DataFrame, evidence: Evidence) -> Finding:
    found = decompose(samples) if claim.timed else decompose_counts(samples)
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
    samples = samples_of(series, BY_COLUMN[claim.column], evidence.timings)
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

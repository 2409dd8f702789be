"""Judge one claim about quadratic cost.

`judge_growth` and `judge_hidden` judge how a series grows with n; `judge_speed` and `judge_accuracy` compare gMLP with ViT at one size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED, Claim, Estimate, Verdict, answer_of, answer_to_all
from bench.analysis.evidence import Evidence, label_of
from bench.analysis.exponents import local_exponents
from bench.analysis.growth import BY_COLUMN
from bench.analysis.quadratic_claims import MARGIN, MIN_CLAIM_ROUNDS, MIN_CLAIM_SEEDS, in_words
from bench.analysis.scaling import MIN_SHARE, Decomposition, answer_quadratic
from bench.analysis.scope import SCOPE_KEYS, scope_of
from bench.analysis.series import Series, row_values
from bench.analysis.significance import compare_scores
from bench.intervals import LEVEL, Interval, joint_level
from bench.reading.timings import ratio_of
from bench.same_size import is_one_width
from bench.spec import MEASURED, PREDICTED

FIRST, SECOND = "gmlp", "vit"
SHAPE_ONLY = "Not judged: the shape is fixed, so sizes match at the shortest length only."
WIDTH_ONLY = "Not judged: widths match, sizes do not."
RATIO_REASONS = {
    SUPPORTED: "The interval of the ratio lies below 1.",
    REFUTED: "The interval of the ratio lies above 1.",
    UNDECIDED: "The interval of the ratio contains 1.",
}
SPEED_WORDS = {SUPPORTED: "faster", REFUTED: "slower", UNDECIDED: "not significantly different"}
OPPOSITE = {SUPPORTED: REFUTED, REFUTED: SUPPORTED, UNDECIDED: UNDECIDED}
Row = Mapping[str, Any]


def judge_speed(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge whether gMLP is faster, per length and over each scope.

    The verdict on a whole scope has no `n`. It shows the ratio at the longest length that has the same answer. Intervals hold
    together for the models of one length; a statement on every length holds if it holds at each.
    """
    found = []
    for label, scope, pairs in _pairs(evidence.frame, wanted=_timed):
        by_length = [_speed_at(claim, label, scope, first, second, evidence) for first, second in pairs]
        judged = [at for at in by_length if at.reason == RATIO_REASONS[at.answer]]
        lengths = {answer: [str(at.n) for at in judged if at.answer == answer] for answer in SPEED_WORDS}
        where = "; ".join(f"{SPEED_WORDS[answer]} at n = {', '.join(there)}" for answer, there in lengths.items() if there)
        gaps = dict.fromkeys(at.reason for at in by_length if at not in judged)
        other_reasons = [f"At n = {', '.join(str(at.n) for at in by_length if at.reason == gap)}: {gap}" for gap in gaps]
        policy = str(scope.get("match", ""))
        unmatched = SHAPE_ONLY if policy == "shape" else (WIDTH_ONLY if is_one_width(policy) else "")
        answer = UNDECIDED if unmatched else answer_to_all([at.answer for at in by_length])
        # a ratio at another length could contradict the answer
        shown = (
            by_length[-1] if unmatched else next((at for at in reversed(by_length) if at.answer == answer and at.estimates), by_length[-1])
        )
        whole = Verdict(
            claim=claim,
            about=label,
            scope=scope,
            answer=answer,
            reason=" ".join(filter(None, (unmatched, f"{in_words(FIRST)} is {where}." if where else "", *other_reasons))),
            estimates=tuple(
                Estimate(name=f"{estimate.name} at n = {shown.n}", value=estimate.value, unit=estimate.unit) for estimate in shown.estimates
            ),
            cells=tuple(cell for at in by_length for cell in at.cells),
        )
        found += [*by_length, whole]
    return found


def judge_accuracy(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge whether gMLP's accuracy matches ViT's, per task, size and length.

    Intervals include both sources of variation, seeds and test items (`compare_scores`).
    """
    return [
        _accuracy_at(claim, label, scope, first, second, evidence)
        for label, scope, pairs in _pairs(evidence.frame, wanted=_trained)
        for first, second in pairs
    ]


def _timed(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return all rows if any was timed, else no rows.

    Failed rows stay: a length that one model cannot run still counts as a length.
    """
    return frame if "latency_ms" in frame and frame["latency_ms"].notna().any() else frame[:0]


def _trained(frame: pandas.DataFrame) -> pandas.DataFrame:
    return frame[frame["accuracy"].notna()] if "accuracy" in frame else frame[:0]


def _pairs(
    frame: pandas.DataFrame, wanted: Callable[[pandas.DataFrame], pandas.DataFrame]
) -> Iterator[tuple[str, dict[str, Any], list[tuple[Row, Row]]]]:
    """Yield the label, scope and (gMLP row, ViT row) pairs per length.

    `wanted` selects rows of the frame. There is one entry per scope, ViT variant and attention kernel.
    """
    keys = [key for key in SCOPE_KEYS if key in frame]
    for _, members in wanted(frame).groupby(keys, sort=False, dropna=False):
        # a ViT with options is compared only with a gMLP that has the same options
        seconds_of_any = members[[str(model).split("+")[0] == SECOND for model in members["model"]]]
        for (model, _), seconds in seconds_of_any.groupby(["model", "attention"], sort=False):
            counterpart = members[members["model"] == FIRST + str(model).removeprefix(SECOND)]
            firsts = {row["seq_len"]: row for row in row_values(counterpart)}
            pairs: list[tuple[Row, Row]] = [
                (firsts[row["seq_len"]], row) for row in row_values(seconds.sort_values("seq_len")) if row["seq_len"] in firsts
            ]
            if pairs:
                yield f"{label_of(pairs[0][0])} / {label_of(pairs[0][1])}", scope_of(pairs[0][1]), pairs


def _speed_at(claim: Claim, label: str, scope: Row, first: Row, second: Row, evidence: Evidence) -> Verdict:
    cells = first["cell_id"], second["cell_id"]
    level = joint_level(LEVEL, evidence.contrasts.get(first["cell_id"], 1))
    ratio, num_rounds = ratio_of(*cells, evidence.timings, level), len(evidence.timings.log_ratios(*cells))
    if failed := [in_words(f"{row['model']}: {row['status']}") for row in (first, second) if row.get("status", MEASURED) != MEASURED]:
        answer, reason = UNDECIDED, f"not measured ({', '.join(failed)})."
    elif ratio is None or num_rounds < MIN_CLAIM_ROUNDS:
        answer, reason = (
            UNDECIDED,
            f"{num_rounds} round{'' if num_rounds == 1 else 's'} in common; at least {MIN_CLAIM_ROUNDS} are needed. Add --rounds.",
        )
    else:
        answer = answer_of(ratio, high=1.0)
        reason = RATIO_REASONS[answer]
    return Verdict(
        claim=claim,
        about=label,
        scope=scope,
        answer=answer,
        reason=reason,
        estimates=(Estimate(name="ratio of times", value=ratio, unit="ratio"),) if ratio else (),
        cells=cells,
        n=int(first["seq_len"]),
    )


def _accuracy_at(claim: Claim, label: str, scope: Row, first: Row, second: Row, evidence: Evidence) -> Verdict:
    scores = [evidence.scores.get(row["cell_id"]) for row in (first, second)]
    undecided = Verdict(
        claim=claim,
        about=label,
        scope=scope,
        answer=UNDECIDED,
        reason="The two models were not scored on the same test items.",
        cells=(first["cell_id"], second["cell_id"]),
        n=int(first["seq_len"]),
    )
    if scores[0] is None or scores[1] is None or scores[0].shape[1] != scores[1].shape[1]:
        return undecided
    seeds, found = min(len(scores[0]), len(scores[1])), compare_scores(scores[0], scores[1])
    difference = Interval(estimate=found.estimate, low=found.low, high=found.high, num=seeds)
    answer = answer_of(difference, low=-MARGIN)
    reason = {
        SUPPORTED: f"Not worse by more than {MARGIN:.0%} of the items.",
        REFUTED: f"Worse by more than {MARGIN:.0%} of the items.",
        UNDECIDED: f"The interval contains {-MARGIN:.0%}. Add --seeds.",
    }[answer]
    if seeds < MIN_CLAIM_SEEDS:
        answer, reason = UNDECIDED, f"{seeds} seeds; at least {MIN_CLAIM_SEEDS} are needed. Add --seeds."
    estimates = (Estimate(name="difference in accuracy", value=difference, unit="difference"),)
    return dataclasses.replace(undecided, answer=answer, reason=reason, estimates=estimates)


def judge_growth(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge claims of the kinds `quadratic` and `linear`, series by series.

    Counts that do not depend on the workload are judged once.
    """
    measure, found, seen = BY_COLUMN[claim.column], [], set()
    for series in evidence.series(claim.subject):
        key = (_label(claim, series), tuple(evidence.fits.samples(series, measure, usable_only=claim.timed)["value"]))
        if measure.per_workload or key not in seen:
            found.append(_growth(claim, series, evidence))
        seen.add(key)
    return found


def _growth(claim: Claim, series: Series, evidence: Evidence) -> Verdict:
    fit = _fit(claim, series, evidence)
    answer = answer_quadratic(fit)
    reasons = [answer.reason]
    if fit.exact and fit.c is not None:
        start = f", fitted from n = {fit.lengths[0]} on" if fit.lengths else ""
        reasons.append(f"The coefficient of n^2 is {fit.c.estimate:,.6g}{start}.")
    reasons.append(_left_out(claim, series, evidence))
    if claim.metric == "memory" and "memory_source" in series.rows:
        predicted = series.rows.loc[series.rows["memory_source"] == PREDICTED, "seq_len"]
        reasons.append(f"Predicted, not measured, at n = {', '.join(f'{n:.0f}' for n in predicted)}." if len(predicted) else "")
    estimates = [Estimate(name=f"share of n^2 at n = {answer.longest}", value=answer.share, unit="share")] if answer.share else []
    if not fit.fits:  # without a fit, the last local exponent still shows the growth: it is paired by round, so unstable cells may enter
        samples = evidence.fits.samples(series, BY_COLUMN[claim.column])
        steps = local_exponents(samples, exact=not claim.timed).exponents if len(samples) else ()
        estimates += [
            Estimate(name=f"local exponent between n = {step.shorter} and {step.longer}", value=step.exponent, unit="exponent")
            for step in steps[-1:]
        ]
    return Verdict(
        claim=claim,
        about=_label(claim, series),
        scope=scope_of(series.keys),
        answer=OPPOSITE[answer.answer] if claim.kind == "linear" else answer.answer,
        reason=" ".join(filter(None, reasons)),
        estimates=tuple(estimates),
        cells=series.cell_ids,
        reach=series.reach,
    )


def judge_hidden(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge whether some length has a quadratic share below 10 %."""
    found = []
    for series in evidence.series(claim.subject):
        answer, reason, crossing = _hidden_answer(_fit(claim, series, evidence), shortest=series.lengths[0])
        verdict = Verdict(
            claim=claim,
            about=_label(claim, series),
            scope=scope_of(series.keys),
            answer=answer,
            reason=" ".join(filter(None, (reason, _left_out(claim, series, evidence)))),
            estimates=(Estimate(name="n at which n^2 reaches 10 % of the time", value=crossing, unit="length"),) if crossing else (),
            cells=series.cell_ids,
            reach=series.reach,
        )
        found.append(verdict)
    return found


def _hidden_answer(found: Decomposition, shortest: int) -> tuple[str, str, Interval | None]:
    """Return the answer, the reason, and the crossing of 10 %.

    The crossing is the n at which the share is 10 %. The last length surely below and the first length surely above bound it.
    """
    if not found.fits:
        return UNDECIDED, found.reason, None
    below = [share.n for share in found.shares if share.quadratic.high < MIN_SHARE]
    above = [share.n for share in found.shares if share.quadratic.low > MIN_SHARE]
    longest = found.shares[-1].n
    if below:
        text = "at every length" if below[-1] == longest else f"up to n = {below[-1]}"
        where = f", above from n = {above[0]}" if above else ""
        crossing = _tenth(found) if above else None
        interval = Interval(estimate=crossing, low=below[-1], high=above[0], num=found.num_rounds) if crossing else None
        return SUPPORTED, f"Below 10 % of the time {text}{where}.", interval
    if above and above[0] == shortest:
        return REFUTED, f"Above 10 % of the time already at the shortest length, n = {above[0]}.", None
    if above and above[0] == found.shares[0].n:
        return UNDECIDED, f"Above 10 % of the time from n = {above[0]} on; shorter lengths did not enter the fit.", None
    return UNDECIDED, "No share is clearly below 10 %. Add shorter lengths or --rounds.", None


def _tenth(found: Decomposition) -> float | None:
    """Return the n at which the quadratic share is 10 %.

    It solves c n^2 = 0.1 (a + b n + c n^2).
    """
    assert found.a is not None
    assert found.b is not None
    assert found.c is not None
    a, b, c = found.a.estimate, found.b.estimate, (1 / MIN_SHARE - 1) * found.c.estimate
    return (b + math.sqrt(b * b + 4 * a * c)) / (2 * c) if c > 0 else None


def _fit(claim: Claim, series: Series, evidence: Evidence) -> Decomposition:
    """Fit the usable times or all counts of a series."""
    fit = evidence.fits.of_times if claim.timed else evidence.fits.of_counts
    return fit(series, BY_COLUMN[claim.column])


def _left_out(claim: Claim, series: Series, evidence: Evidence) -> str:
    """Say how many lengths a fit of times leaves out."""
    num = len(set(series.cell_ids) - evidence.usable) if claim.timed else 0
    return f"{num} of {len(series.cell_ids)} lengths left out (unstable, launch-bound or not measured)." if num else ""


def _label(claim: Claim, series: Series) -> str:
    return label_of(series.keys) if BY_COLUMN[claim.column].per_workload else str(series.keys["model"])

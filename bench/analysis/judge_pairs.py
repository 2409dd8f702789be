"""Claims about gMLP beside ViT at one size: which is faster where, and whether accuracy is matched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas

from bench.analysis.claims import MARGIN, MIN_SEEDS, Claim
from bench.analysis.evidence import SCOPE_KEYS, Evidence, Finding, label_of, scope_of
from bench.analysis.identifiability import MIN_ROUNDS
from bench.analysis.quadratic import REFUTED, SUPPORTED, UNDECIDED
from bench.analysis.series import Timings, common_times
from bench.analysis.significance import compare_scores
from bench.intervals import LEVEL, Interval, paired_ratio
from bench.spec import MEASURED

FIRST, SECOND = "gmlp", "vit"
SHAPE_ONLY = "The shape is kept, so that sizes are matched at the shortest length only: not judged."
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
            firsts = {row["seq_len"]: row for row in counterpart.to_dict("records")}
            pairs = [(firsts[row["seq_len"]], row) for row in seconds.sort_values("seq_len").to_dict("records") if row["seq_len"] in firsts]
            if pairs:
                yield f"{label_of(pairs[0][0])} / {label_of(pairs[0][1])}", scope_of(pairs[0][1]), pairs


def _is_second(model: str) -> bool:
    """The family itself, or with options, which its counterpart must then have as well."""
    return model.split("+")[0] == SECOND


def _speed_at(claim: Claim, label: str, scope: Row, first: Row, second: Row, timings: Timings, level: float) -> Finding:
    times, others = common_times(first["cell_id"], second["cell_id"], timings)
    ratio = paired_ratio(times, others, level)
    answer, reason = _speed_answer(ratio, len(times))
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


def _speed_answer(ratio: Interval | None, num_rounds: int) -> tuple[str, str]:
    if ratio is None or num_rounds < MIN_ROUNDS:
        return UNDECIDED, f"{num_rounds} rounds that both have; at least {MIN_ROUNDS} are needed. Add --rounds."
    if ratio.high < 1:
        return SUPPORTED, "The interval of the ratio lies below 1."
    if ratio.low > 1:
        return REFUTED, "The interval of the ratio lies above 1."
    return UNDECIDED, "The interval of the ratio contains 1."


def _speed(claim: Claim, label: str, scope: Row, by_length: list[Finding]) -> Finding:
    """Over all lengths: faster at every one, slower at some one, or not known; with the lengths by outcome, and the ratio at the longest."""
    where = {answer: [finding.n for finding in by_length if finding.answer == answer] for answer in (SUPPORTED, REFUTED, UNDECIDED)}
    words = {SUPPORTED: "faster", REFUTED: "slower", UNDECIDED: "not told apart"}
    texts = [f"{words[answer]} at n = {', '.join(map(str, lengths))}" for answer, lengths in where.items() if lengths]
    decided = REFUTED if where[REFUTED] else (UNDECIDED if where[UNDECIDED] else SUPPORTED)
    longest, reason = by_length[-1], f"{FIRST} is {'; '.join(texts)}."
    if scope.get("match") == "shape":
        decided, reason = UNDECIDED, f"{SHAPE_ONLY} {reason}"
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

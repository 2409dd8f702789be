"""The claims about quadratic cost, each with the results that would support or refute it, and their judges.

What is counted is exact: FLOPs and weights by closed forms, bytes by the polynomial of the counts. Times are judged by the local exponent between
the two longest lengths, and by the ratio of gMLP's time to ViT's at every length.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED, Claim, Estimate, Verdict, answer_of, answer_to_all, withheld
from bench.analysis.evidence import WITHOUT_PAIRS, Evidence, is_subject, label_of
from bench.analysis.growth import ACTIVATIONS, LATENCY, local_exponents, polynomial_of, samples_of
from bench.analysis.scope import SCOPE_KEYS, scope_of, scope_rank
from bench.analysis.series import row_values
from bench.analysis.significance import GROUP, MIN_DECIDED_SEEDS, compare_scores
from bench.intervals import LEVEL, Interval, joint_level
from bench.numbers import is_empty
from bench.reading.timings import ratio_of
from bench.same_size import is_one_width
from bench.spec import MEASURED

MARGIN = 0.02
"""The largest loss of accuracy that still counts as equal, as a fraction of the test items."""
MIN_CLAIM_ROUNDS = 5
FIRST, SECOND = "gmlp", "vit"
SHAPE_ONLY = "Not judged: the shape is fixed, so sizes match at the shortest length only."
WIDTH_ONLY = "Not judged: widths match, sizes do not."
SPEED_WORDS = {SUPPORTED: "faster", REFUTED: "slower", UNDECIDED: "not significantly different"}
Row = Mapping[str, Any]

_SHAPE = "one fixed shape at 4 or more lengths, the longest at least 16 times the shortest"
_HAS, _LACKS = "the closed form has a term in n^2", "the closed form has no term in n^2"
_STORES, _STORES_NONE = "the polynomial of the counted bytes has a term in n^2", "the polynomial of the counted bytes has no term in n^2"
_STEEP = "the interval of the local exponent between the two longest lengths lies above 1"
_FLAT = "that interval lies below 1"

CLAIMS = (
    Claim(
        name="attention_flops_quadratic",
        question="Are attention's FLOPs quadratic in n?",
        supported_by=_HAS,
        refuted_by=_LACKS,
        metric="flops",
        cells="ViT or Transformer",
        kind="flops",
        subject="attention",
    ),
    Claim(
        name="gmlp_flops_quadratic",
        question="Are gMLP's FLOPs quadratic in n too?",
        supported_by=_HAS,
        refuted_by=_LACKS,
        metric="flops",
        cells="gMLP",
        kind="flops",
        subject="gmlp",
    ),
    Claim(
        name="gmlp_weights_quadratic",
        question="Are gMLP's weights quadratic in n?",
        supported_by=_HAS,
        refuted_by=_LACKS,
        metric="params",
        cells="gMLP",
        kind="weights",
        subject="gmlp",
    ),
    Claim(
        name="explicit_attention_memory_quadratic",
        question="Is explicit attention's activation memory per sample quadratic in n?",
        supported_by=_STORES,
        refuted_by=_STORES_NONE,
        metric="memory",
        cells=f"ViT or Transformer with --attention math; {_SHAPE}",
        kind="quadratic bytes",
        subject="explicit",
    ),
    Claim(
        name="fused_attention_memory_linear",
        question="Does fused attention's activation memory per sample stay linear in n?",
        supported_by=_STORES_NONE,
        refuted_by=_STORES,
        metric="memory",
        cells=f"ViT or Transformer with a fused kernel; {_SHAPE}",
        kind="linear bytes",
        subject="fused",
    ),
    Claim(
        name="gmlp_activations_linear",
        question="Are gMLP's activations per sample linear in n?",
        supported_by=_STORES_NONE,
        refuted_by=_STORES,
        metric="memory",
        cells=f"gMLP; {_SHAPE}",
        kind="linear bytes",
        subject="gmlp",
    ),
    Claim(
        name="attention_time_steep",
        question="Does attention's time grow faster than n at the longest lengths?",
        supported_by=_STEEP,
        refuted_by=_FLAT,
        metric="latency",
        cells=f"ViT or Transformer; {_SHAPE}",
        kind="time",
        subject="attention",
    ),
    Claim(
        name="gmlp_time_steep",
        question="Does gMLP's time grow faster than n at the longest lengths?",
        supported_by=_STEEP,
        refuted_by=_FLAT,
        metric="latency",
        cells=f"gMLP; {_SHAPE}",
        kind="time",
        subject="gmlp",
    ),
    Claim(
        name="gmlp_faster_than_vit",
        question="Is gMLP faster than ViT at matched size, at every length?",
        supported_by="at every length, of two or more, the interval of gMLP's time over ViT's lies below 1",
        refuted_by="at some length, that interval lies above 1",
        metric="latency",
        cells="gMLP and ViT of one size, at the same two or more lengths",
        kind="faster",
    ),
    Claim(
        name="gmlp_matches_vit_accuracy",
        question="Does gMLP match ViT's accuracy at matched size?",
        supported_by=f"gMLP's accuracy minus ViT's has an interval above -{MARGIN:g}: gMLP loses at most {MARGIN:.0%} of the test items",
        refuted_by=f"that interval is below -{MARGIN:g}: gMLP loses more than {MARGIN:.0%}",
        metric="accuracy",
        cells=f"gMLP and ViT trained on one task at one size and length, with {MIN_DECIDED_SEEDS} or more seeds each",
        kind="accuracy",
    ),
)


def judge(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    """Return a verdict per claim and subject, in the order of `claims`; none for a claim about which the run has nothing."""
    found = []
    for claim in claims:
        own = [withheld(verdict, evidence.caveat, quick=evidence.quick) for verdict in JUDGES[claim.kind](claim, evidence)]
        found += _by_subject(own)
    return found


def _by_subject(found: Sequence[Verdict]) -> list[Verdict]:
    """Return one verdict per subject and length, of the scope that speaks for it; the others stand beside it."""
    groups: dict[tuple[str, int | None], list[Verdict]] = defaultdict(list)
    for verdict in found:
        groups[verdict.about, verdict.n].append(verdict)
    verdicts = []
    for members in groups.values():
        first = min(members, key=lambda verdict: scope_rank(verdict.scope, verdict.reach))
        verdicts.append(dataclasses.replace(first, others=tuple(verdict for verdict in members if verdict is not first)))
    return verdicts


def _closed(claim: Claim, evidence: Evidence, share_of: Callable[[Row, Row], float | None], where: str) -> list[Verdict]:
    """Judge each model of the claim's subject by its closed form at its longest length.

    `share_of`: of a home (`bench.analysis.quadratic_terms.quadratic_home`) and its row, the part in n^2; None if unknown.
    """
    homes: dict[str, Row] = {home["cell_id"]: home for home in evidence.homes.to_dict("records")}
    longest: dict[str, Row] = {}
    for row in row_values(evidence.frame.sort_values("seq_len")):
        if row["cell_id"] in homes and is_subject(row, claim.subject) and not WITHOUT_PAIRS.search(str(row["model"])):
            longest[str(row["model"])] = row
    found = []
    for model, chosen in longest.items():
        share, n = share_of(homes[chosen["cell_id"]], chosen), int(chosen["seq_len"])
        if share is None:
            continue
        found.append(
            Verdict(
                claim=claim,
                about=model,
                scope=scope_of(chosen),
                answer=SUPPORTED if share else REFUTED,
                reason=f"At n = {n} the term in n^2 is {share:.1%} of {where}." if share else f"No term in n^2: {where} are linear in n.",
                estimates=(_exact_share(share, n),),
                cells=(chosen["cell_id"],),
            )
        )
    return found


def _exact_share(share: float, n: int) -> Estimate:
    return Estimate(name=f"share of n^2 at n = {n}", value=Interval(estimate=share, low=share, high=share, num=1), unit="share")


def judge_flops(claim: Claim, evidence: Evidence) -> list[Verdict]:
    return _closed(claim, evidence, lambda home, _: home["flops_share"], "FLOPs")


def judge_weights(claim: Claim, evidence: Evidence) -> list[Verdict]:
    def share_of(home: Row, row: Row) -> float | None:
        params = row.get("params")
        return float(home["weights_coefficient"] * home["seq_len"] ** 2 / params) if params else None

    return _closed(claim, evidence, share_of, "the parameters")


def judge_bytes(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge activations per sample by the polynomial of the counted bytes."""
    found = []
    for series in evidence.series(claim.subject):
        counted = polynomial_of(samples_of(series, ACTIVATIONS, evidence.timings))
        if counted is None:
            continue
        n = counted.lengths[-1]
        share = counted.share(n)
        wanted = bool(share) == (claim.kind == "quadratic bytes")
        found.append(
            Verdict(
                claim=claim,
                about=label_of(series.keys),
                scope=scope_of(series.keys),
                answer=SUPPORTED if wanted else REFUTED,
                reason=f"At n = {n} the term in n^2 is {share:.1%} of the counted bytes.",
                estimates=(_exact_share(share, n),),
                cells=series.cell_ids,
                reach=series.reach,
            )
        )
    return found


def judge_time(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge by the local exponent between the two longest lengths, on rounds in which the lengths took turns."""
    found = []
    for series in evidence.series(claim.subject):
        samples = samples_of(series, LATENCY, evidence.timings)
        if samples.empty:
            continue
        exponents = local_exponents(samples)
        steps = exponents.exponents[-1:]
        answer = answer_of(steps[0].exponent, low=1.0) if steps else UNDECIDED
        reason = {
            SUPPORTED: "The interval of the exponent lies above 1.",
            REFUTED: "The interval of the exponent lies below 1.",
            UNDECIDED: "The interval of the exponent contains 1.",
        }[answer]
        found.append(
            Verdict(
                claim=claim,
                about=label_of(series.keys),
                scope=scope_of(series.keys),
                answer=answer,
                reason=reason if steps else exponents.refused,
                estimates=tuple(
                    Estimate(name=f"local exponent between n = {step.shorter} and {step.longer}", value=step.exponent, unit="exponent")
                    for step in steps
                ),
                cells=series.cell_ids,
                reach=series.reach,
            )
        )
    return found


def judge_speed(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge whether gMLP is faster than ViT at every length of a scope with two lengths or more.

    Shows the ratio at the longest length that has the same answer. Intervals hold together for the models of one length; a statement on every
    length holds if it holds at each.
    """
    found = []
    for label, scope, pairs in _pairs(evidence.frame, wanted=_timed):
        if len(pairs) < 2:
            continue
        by_length = [_speed_at(first, second, evidence) for first, second in pairs]
        lengths = {answer: [str(n) for n, given, _, gap in by_length if given == answer and not gap] for answer in SPEED_WORDS}
        where = "; ".join(f"{SPEED_WORDS[answer]} at n = {', '.join(there)}" for answer, there in lengths.items() if there)
        gaps: dict[str, list[str]] = {}
        for n, _, _, gap in by_length:
            if gap:
                gaps.setdefault(gap, []).append(str(n))
        policy = str(scope.get("match", ""))
        unmatched = SHAPE_ONLY if policy == "shape" else (WIDTH_ONLY if is_one_width(policy) else "")
        answer = UNDECIDED if unmatched else answer_to_all([given for _, given, _, _ in by_length])
        shown = next(((n, ratio) for n, given, ratio, _ in reversed(by_length) if ratio and (unmatched or given == answer)), None)
        texts = [unmatched, f"gMLP is {where}." if where else "", *(f"At n = {', '.join(there)}: {gap}" for gap, there in gaps.items())]
        found.append(
            Verdict(
                claim=claim,
                about=label,
                scope=scope,
                answer=answer,
                reason=" ".join(filter(None, texts)),
                estimates=(Estimate(name=f"ratio of times at n = {shown[0]}", value=shown[1], unit="ratio"),) if shown else (),
                cells=tuple(str(row["cell_id"]) for pair in pairs for row in pair),
            )
        )
    return found


def _speed_at(first: Row, second: Row, evidence: Evidence) -> tuple[int, str, Interval | None, str]:
    """Return the length, the answer there, the ratio, and why there is no answer."""
    cells = first["cell_id"], second["cell_id"]
    level = joint_level(LEVEL, evidence.contrasts.get(first["cell_id"], 1))
    ratio, num_rounds, n = ratio_of(*cells, evidence.timings, level), len(evidence.timings.log_ratios(*cells)), int(first["seq_len"])
    if failed := [f"{row['model']}: {row['status']}" for row in (first, second) if row.get("status", MEASURED) != MEASURED]:
        return n, UNDECIDED, ratio, f"not measured ({', '.join(failed)})."
    if ratio is None or num_rounds < MIN_CLAIM_ROUNDS:
        noun = "round" if num_rounds == 1 else "rounds"
        return n, UNDECIDED, ratio, f"{num_rounds} {noun} in common; at least {MIN_CLAIM_ROUNDS} are needed. Add --rounds."
    return n, answer_of(ratio, high=1.0), ratio, ""


def judge_accuracy(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge whether gMLP's accuracy matches ViT's, per task, size and length.

    Intervals include both sources of variation, seeds and test items (`compare_scores`), and hold together for the pairs of one task, size and
    length.
    """
    trained = _trained(evidence.frame).drop_duplicates(["model", *GROUP])
    found = []
    for label, scope, pairs in _pairs(evidence.frame, wanted=_trained):
        for first, second in pairs:
            is_beside = pandas.Series(data=True, index=trained.index)
            for key in GROUP:
                is_beside &= trained[key].isna() if is_empty(first[key]) else trained[key] == first[key]
            level = joint_level(LEVEL, math.comb(int(is_beside.sum()), 2))
            found.append(_accuracy_at(claim, label, scope, first, second, evidence, level))
    return found


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


def _accuracy_at(claim: Claim, label: str, scope: Row, first: Row, second: Row, evidence: Evidence, level: float) -> Verdict:
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
    seeds, found = min(len(scores[0]), len(scores[1])), compare_scores(scores[0], scores[1], level)
    difference = Interval(estimate=found.estimate, low=found.low, high=found.high, num=seeds)
    answer = answer_of(difference, low=-MARGIN)
    reason = {
        SUPPORTED: f"Not worse by more than {MARGIN:.0%} of the items.",
        REFUTED: f"Worse by more than {MARGIN:.0%} of the items.",
        UNDECIDED: f"The interval contains {-MARGIN:.0%}. Add --seeds.",
    }[answer]
    if seeds < MIN_DECIDED_SEEDS:
        answer, reason = UNDECIDED, f"{seeds} seeds; at least {MIN_DECIDED_SEEDS} are needed. Add --seeds."
    estimates = (Estimate(name="difference in accuracy", value=difference, unit="difference"),)
    return dataclasses.replace(undecided, answer=answer, reason=reason, estimates=estimates)


JUDGES: dict[str, Callable[[Claim, Evidence], list[Verdict]]] = {
    "flops": judge_flops,
    "weights": judge_weights,
    "quadratic bytes": judge_bytes,
    "linear bytes": judge_bytes,
    "time": judge_time,
    "faster": judge_speed,
    "accuracy": judge_accuracy,
}

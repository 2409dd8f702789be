"""Judge the claims about quadratic cost, with the results that would support or refute each.

A judge finds the relevant intervals; `answer_of` then answers supported, refuted or undecided. What is counted is exact: FLOPs and weights by closed
forms, bytes by the polynomial of the counts. Times are judged by the local exponent between the two longest lengths, and by the ratio of gMLP's time
to ViT's at every length.

Intervals hold jointly for the comparisons that a reader would choose from, so the correction depends on the kind:

- gMLP's speed against ViT's: Bonferroni over the models of one length. A claim about every length of a scope holds if it holds at each.
- Differences in accuracy: Bonferroni over the pairs of one task, size and length.
- Local exponents: plain 95 % intervals.

The ranking (`bench.analysis.ratios`) has the same intervals as the claims on speed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import numbers
from bench.analysis.accuracy import GROUP, MIN_DECIDED_SEEDS, Scores, compare_scores, seed_caveat
from bench.analysis.frame import SCOPE_KEYS, WITHOUT_PAIRS, is_subject, label_of, scope_of, scope_rank
from bench.analysis.growth import ACTIVATIONS, LATENCY, Series, local_exponents, polynomial_of, samples_of, series_of
from bench.analysis.sizes import SIZE_TOLERANCE
from bench.analysis.verdicts import REFUTED, SUPPORTED, UNDECIDED, Claim, Estimate, Verdict, answer_of, answer_to_all, withheld
from bench.intervals import Interval, exactly, joint_level
from bench.numbers import is_empty, known
from bench.reading.timings import Timings, ratio_of
from bench.spec import MEASURED

MARGIN = 0.02
"""The largest loss of accuracy that still counts as equal, as a fraction of the test items."""
MIN_CLAIM_ROUNDS = 5
FIRST, SECOND = "gmlp", "vit"
SHAPE_ONLY = "Not judged: the shape is fixed, so sizes match at the shortest length only."
GIVEN = "Not judged: the sizes were given, and are not equal."
SPEED_WORDS = {SUPPORTED: "faster", REFUTED: "slower", UNDECIDED: "not significantly different"}
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The data of a run that its claims are judged by.

    `rows`: by part of the plan (`bench.analysis.frame.by_part`).
    `timings`: latency by cell and round.
    `homes`: the n^2 terms of every cell (`bench.analysis.growth.quadratic_home`).
    `scores`: scores of trained models on the test items, by cell id.
    `planned_seeds`: the seeds planned, by cell id.
    `quick`: a quick run, which decides none of these claims but those about counts.
    `contrasts`: how many ratios of times are decided together with a cell's, by cell id.
    """

    rows: Sequence[Row]
    timings: Timings
    homes: Mapping[str, Row]
    scores: Mapping[str, Scores] = field(default_factory=dict)
    planned_seeds: Mapping[str, int] = field(default_factory=dict)
    quick: bool = False
    contrasts: Mapping[str, int] = field(default_factory=dict)

    def series(self, subject: str) -> list[Series]:
        """Return the series of one shape that match a claim's subject."""
        return [series for series in self.shaped if _is_about(series.rows, subject)]

    @functools.cached_property
    def shaped(self) -> list[Series]:
        """All series that keep one shape."""
        return [series for series in series_of(self.rows) if series.has_one_shape]


def _is_about(rows: Sequence[Row], subject: str) -> bool:
    """Return whether every row with a known kernel belongs to the subject, and may have n^2 terms.

    Without any known kernel, every row counts. A series that changes its attention kernel is neither `explicit` nor `fused`.
    """
    known = [row for row in rows if not is_empty(row.get("attention_effective"))] or rows
    return all(is_subject(row, subject) and not WITHOUT_PAIRS.search(str(row["model"])) for row in known)


_SHAPE = "one fixed shape at 4 or more lengths, the longest at least 16 times the shortest"
_HAS, _LACKS = "the closed form has a term in n^2", "the closed form has no term in n^2"
_STORES, _STORES_NONE = "the polynomial of the counted bytes has a term in n^2", "the polynomial of the counted bytes has no term in n^2"
_STEEP = "the interval of the local exponent between the two longest lengths lies above 1"
_FLAT = "that interval lies below 1"


CLAIMS = (
    Claim(
        name="attention_flops_quadratic",
        statement="Attention's FLOPs are quadratic in n",
        supported_by=_HAS,
        refuted_by=_LACKS,
        metric="flops",
        cells="ViT or Transformer",
        kind="flops",
        subject="attention",
    ),
    Claim(
        name="gmlp_flops_quadratic",
        statement="gMLP's FLOPs are quadratic in n too",
        supported_by=_HAS,
        refuted_by=_LACKS,
        metric="flops",
        cells="gMLP",
        kind="flops",
        subject="gmlp",
    ),
    Claim(
        name="gmlp_weights_quadratic",
        statement="gMLP's weights are quadratic in n",
        supported_by=_HAS,
        refuted_by=_LACKS,
        metric="params",
        cells="gMLP",
        kind="weights",
        subject="gmlp",
    ),
    Claim(
        name="explicit_attention_memory_quadratic",
        statement="Explicit attention's activation memory per sample is quadratic in n",
        supported_by=_STORES,
        refuted_by=_STORES_NONE,
        metric="memory",
        cells=f"ViT or Transformer with --attention math; {_SHAPE}",
        kind="quadratic bytes",
        subject="explicit",
    ),
    Claim(
        name="fused_attention_memory_linear",
        statement="Fused attention's activation memory per sample stays linear in n",
        supported_by=_STORES_NONE,
        refuted_by=_STORES,
        metric="memory",
        cells=f"ViT or Transformer with a fused kernel; {_SHAPE}",
        kind="linear bytes",
        subject="fused",
    ),
    Claim(
        name="gmlp_activations_linear",
        statement="gMLP's activations per sample are linear in n",
        supported_by=_STORES_NONE,
        refuted_by=_STORES,
        metric="memory",
        cells=f"gMLP; {_SHAPE}",
        kind="linear bytes",
        subject="gmlp",
    ),
    Claim(
        name="attention_time_steep",
        statement="Attention's time grows faster than n at the longest lengths",
        supported_by=_STEEP,
        refuted_by=_FLAT,
        metric="latency",
        cells=f"ViT or Transformer; {_SHAPE}",
        kind="time",
        subject="attention",
    ),
    Claim(
        name="gmlp_time_steep",
        statement="gMLP's time grows faster than n at the longest lengths",
        supported_by=_STEEP,
        refuted_by=_FLAT,
        metric="latency",
        cells=f"gMLP; {_SHAPE}",
        kind="time",
        subject="gmlp",
    ),
    Claim(
        name="gmlp_faster_than_vit",
        statement="gMLP is faster than ViT at matched size, at every length",
        supported_by="at every length, of two or more, the interval of gMLP's time over ViT's lies below 1",
        refuted_by="at some length, that interval lies above 1",
        metric="latency",
        cells="gMLP and ViT of one size, at the same two or more lengths",
        kind="faster",
    ),
    Claim(
        name="gmlp_matches_vit_accuracy",
        statement="gMLP matches ViT's accuracy at matched size",
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
        own = [withheld(verdict, quick=evidence.quick) for verdict in JUDGES[claim.kind](claim, evidence)]
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
    """Judge each model of the claim's subject by its closed form at its longest length, in every size that it has there.

    `share_of`: of a home (`bench.analysis.growth.quadratic_home`) and its row, the part in n^2; None if unknown.
    """
    homes = evidence.homes
    of_model: dict[str, list[Row]] = {}
    for row in evidence.rows:
        if row["cell_id"] in homes and is_subject(row, claim.subject) and not WITHOUT_PAIRS.search(str(row["model"])):
            of_model.setdefault(str(row["model"]), []).append(row)
    found = []
    for model, rows in of_model.items():
        n = int(max(row["seq_len"] for row in rows))
        shares = [(share, row) for row in rows if row["seq_len"] == n and (share := share_of(homes[row["cell_id"]], row)) is not None]
        if not shares:
            continue
        (least, _), (most, chosen) = (extreme(shares, key=operator.itemgetter(0)) for extreme in (min, max))
        estimates, spread = [_exact_share(most, n)], f"{most:.1%}"
        if f"{least:.1%}" != spread:
            estimates.append(dataclasses.replace(_exact_share(least, n), name="in the size with the least"))
            spread = f"{least:.1%} to {spread}"
        found.append(
            Verdict(
                claim=claim,
                about=model,
                scope=scope_of(chosen),
                answer=SUPPORTED if most else REFUTED,
                reason=f"At n = {n} the term in n^2 is {spread} of {where}." if most else f"No term in n^2: {where} are linear in n.",
                estimates=tuple(estimates),
                cells=tuple(dict.fromkeys(row["cell_id"] for _, row in shares)),
            )
        )
    return found


def _exact_share(share: float, n: int) -> Estimate:
    return Estimate(name=f"share of n^2 at n = {n}", value=exactly(share), unit="share")


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
        if not samples:
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
    for label, scope, pairs in _pairs(evidence.rows if any(map(_is_timed, evidence.rows)) else ()):
        if len(pairs) < 2:
            continue
        by_length = [_speed_at(first, second, evidence) for first, second in pairs]
        lengths = {answer: [str(at.n) for at in by_length if at.answer == answer and not at.gap] for answer in SPEED_WORDS}
        where = "; ".join(f"{SPEED_WORDS[answer]} at n = {', '.join(there)}" for answer, there in lengths.items() if there)
        gaps = {gap: [str(at.n) for at in by_length if at.gap == gap] for gap in dict.fromkeys(at.gap for at in by_length if at.gap)}
        unmatched = next(filter(None, (_unmatched(*pair) for pair in pairs)), "")
        answer = UNDECIDED if unmatched else answer_to_all([at.answer for at in by_length])
        shown = [(at.n, at.ratio) for at in by_length if at.ratio and (unmatched or at.answer == answer)][-1:]
        texts = [unmatched, f"gMLP is {where}." if where else "", *(f"At n = {', '.join(there)}: {gap}" for gap, there in gaps.items())]
        found.append(
            Verdict(
                claim=claim,
                about=label,
                scope=scope,
                answer=answer,
                reason=" ".join(filter(None, texts)),
                estimates=tuple(Estimate(name=f"ratio of times at n = {n}", value=ratio, unit="ratio") for n, ratio in shown),
                cells=tuple(str(row["cell_id"]) for pair in pairs for row in pair),
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class SpeedAt:
    """Whether the first of two models is faster at one length.

    `gap`: why there is no answer; empty if there is one.
    """

    n: int
    answer: str
    ratio: Interval | None
    gap: str = ""


def _unmatched(first: Row, second: Row) -> str:
    """Say why two models are not of one size; empty if they are. Matched ones are; of others it takes equal parameters."""
    policy = first.get("match")
    if policy in SIZE_TOLERANCE:
        return ""
    sizes = [float(row["params"]) for row in (first, second) if not is_empty(row.get("params"))]
    if len(sizes) == 2 and math.isclose(*sizes, rel_tol=SIZE_TOLERANCE["params"]):
        return ""
    return SHAPE_ONLY if policy == "shape" else GIVEN


def _speed_at(first: Row, second: Row, evidence: Evidence) -> SpeedAt:
    cells = first["cell_id"], second["cell_id"]
    ratio = ratio_of(*cells, evidence.timings, joint_level(evidence.contrasts.get(first["cell_id"], 1)))
    unanswered = SpeedAt(n=int(first["seq_len"]), answer=UNDECIDED, ratio=ratio)
    if failed := [f"{row['model']}: {row['status']}" for row in (first, second) if row.get("status", MEASURED) != MEASURED]:
        return dataclasses.replace(unanswered, gap=f"not measured ({', '.join(failed)}).")
    num_rounds = len(evidence.timings.log_ratios(*cells))
    if ratio is None or num_rounds < MIN_CLAIM_ROUNDS:
        common = f"{numbers.counted(num_rounds, 'round')} in common"
        return dataclasses.replace(unanswered, gap=f"{common}; at least {MIN_CLAIM_ROUNDS} are needed. Add --rounds.")
    return dataclasses.replace(unanswered, answer=answer_of(ratio, high=1.0))


def judge_accuracy(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Judge whether gMLP's accuracy matches ViT's, per task, size and length.

    Intervals include both sources of variation, seeds and test items (`compare_scores`), and hold together for the pairs of one task, size and
    length.
    """
    trained = [row for row in evidence.rows if not is_empty(row.get("accuracy"))]
    num_beside = Counter(group for _, group in {(row["model"], _group(row)) for row in trained})
    return [
        _accuracy_at(claim, label, scope, *pair, evidence, joint_level(math.comb(num_beside[_group(pair[0])], 2)))
        for label, scope, pairs in _pairs(trained)
        for pair in pairs
    ]


def _group(row: Row) -> tuple[Any, ...]:
    return tuple(known(row[key]) for key in GROUP)


def _is_timed(row: Row) -> bool:
    """Return whether a row has a time. If any has, rows that failed stay: a length that one model cannot run still counts as a length."""
    return not is_empty(row.get("latency_ms"))


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[str, dict[str, Any], list[tuple[Row, Row]]]]:
    """Yield the label, scope and (gMLP row, ViT row) pairs per length.

    There is one entry per scope, ViT variant and attention kernel.
    """
    scopes: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        scopes[tuple(known(row.get(key)) for key in SCOPE_KEYS)].append(row)
    for members in scopes.values():
        # a ViT with options is compared only with a gMLP that has the same options
        firsts: dict[str, dict[float, Row]] = defaultdict(dict)
        seconds: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in members:
            family, plus, options = str(row["model"]).partition("+")
            if family == FIRST:
                firsts[plus + options][row["seq_len"]] = row
            elif family == SECOND:
                seconds[plus + options, row["attention"]].append(row)
        for (options, _), found in seconds.items():
            by_length, ordered = firsts[options], sorted(found, key=lambda row: row["seq_len"])
            if pairs := [(by_length[row["seq_len"]], row) for row in ordered if row["seq_len"] in by_length]:
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
    difference = compare_scores(scores[0], scores[1], level)
    answer = answer_of(difference, low=-MARGIN)
    reason = {
        SUPPORTED: f"Not worse by more than {MARGIN:.0%} of the items.",
        REFUTED: f"Worse by more than {MARGIN:.0%} of the items.",
        UNDECIDED: f"The interval contains {-MARGIN:.0%}. Add --seeds.",
    }[answer]
    caveat = seed_caveat([(len(evidence.scores[cell]), evidence.planned_seeds.get(cell, 0)) for cell in undecided.cells])
    if unmatched := _unmatched(first, second):
        answer, reason = UNDECIDED, unmatched
    elif caveat:
        answer, reason = UNDECIDED, f"{caveat.capitalize()}."
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

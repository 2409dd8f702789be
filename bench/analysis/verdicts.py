"""Every claim answered: supported, refuted or undecided, with effect, interval and the rows behind it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from bench.analysis.claims import CLAIMS, Claim
from bench.analysis.evidence import SCOPE_KEYS, Evidence, Finding
from bench.analysis.judge_pairs import judge_accuracy, judge_speed
from bench.analysis.judge_scaling import judge_growth, judge_hidden
from bench.analysis.quadratic import REFUTED, SUPPORTED, UNDECIDED

SURVIVES = "survives"
JUDGES: dict[str, Callable[[Claim, Evidence], list[Finding]]] = {
    "quadratic": judge_growth,
    "linear": judge_growth,
    "hidden": judge_hidden,
    "faster": judge_speed,
    "accuracy": judge_accuracy,
}
PREFERRED: dict[str, tuple[str, ...]] = {
    "phase": ("infer",),
    "engine": ("eager",),
    "dtype": ("fp32", "bf16"),
    "match": ("params", "shape", "flops"),
}
"""Which scope speaks for a claim: the first of these that there is, a fixed batch before fixed tokens. Never the one with the nicest answer."""
MAX_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to one claim about one subject, taken from its scope of first choice; `others`: what the other scopes say."""

    finding: Finding
    others: tuple[Finding, ...] = ()

    @property
    def claim(self) -> Claim:
        return self.finding.claim

    @property
    def answer(self) -> str:
        return self.finding.answer


def judge(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    """A verdict per claim and subject, in the order of the claims; a claim for which there is nothing to judge has one as well, undecided."""
    found: list[Finding] = []
    verdicts: list[Verdict] = []
    for claim in claims:
        if claim.kind == SURVIVES:
            verdicts.append(Verdict(finding=_doubted(judge_survival(claim, found), evidence)))
            continue
        findings = [_doubted(finding, evidence) for finding in JUDGES[claim.kind](claim, evidence)]
        found += findings
        verdicts += _by_subject(findings) or [Verdict(finding=_unanswered(claim))]
    return verdicts


def judge_survival(claim: Claim, findings: Iterable[Finding]) -> Finding:
    """Do findings that differ along the claim's axis alone agree, wherever two of them are decided?"""
    same, different = _agreements(claim.axis, findings)
    answer = REFUTED if different else (SUPPORTED if same else UNDECIDED)
    return Finding(
        claim=claim,
        subject="all conclusions",
        scope={},
        answer=answer,
        reason=_survival_reason(claim, same, different),
        cells=tuple(dict.fromkeys(cell for pair in (*different, *same) for finding in pair for cell in finding.cells)),
    )


Pair = tuple[Finding, Finding]


def _agreements(axis: str, findings: Iterable[Finding]) -> tuple[list[Pair], list[Pair]]:
    groups: dict[tuple[Any, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        # answers about several lengths at once depend on which lengths were asked for
        if finding.decided and not (finding.claim.kind == "faster" and finding.n is None):
            groups[_place(finding, axis)].append(finding)
    pairs = [pair for members in groups.values() for pair in combinations(members, 2) if _value(pair[0], axis) != _value(pair[1], axis)]
    same = [pair for pair in pairs if pair[0].answer == pair[1].answer]
    return same, [pair for pair in pairs if pair[0].answer != pair[1].answer]


def _place(finding: Finding, axis: str) -> tuple[Any, ...]:
    return (finding.claim.name, finding.subject, finding.n, *(finding.scope.get(key) for key in SCOPE_KEYS if key != axis))


def _value(finding: Finding, axis: str) -> Any:
    """Batch sizes are one rule: what counts is whether the batch or its tokens are fixed."""
    value = finding.scope.get(axis)
    return str(value).partition(" ")[0] == "batch" if axis == "batching" else value


def _survival_reason(claim: Claim, same: Sequence[Pair], different: Sequence[Pair]) -> str:
    if not same and not different:
        return f"No conclusion was decided under two choices of {claim.axis}."
    named = "; ".join(_difference(pair, claim.axis) for pair in different[:MAX_NAMED])
    more = f"; {len(different) - MAX_NAMED} more" if len(different) > MAX_NAMED else ""
    lead = f"{len(same)} of {len(same) + len(different)} comparisons agree."
    return f"{lead} They differ in: {named}{more}." if different else lead


def _difference(pair: Pair, axis: str) -> str:
    first, second = pair
    where = f"{first.claim.name}, {first.subject}" + (f", n = {first.n}" if first.n is not None else "")
    return f"{where}: {first.answer} with {first.scope.get(axis)}, {second.answer} with {second.scope.get(axis)}"


def _by_subject(findings: Sequence[Finding]) -> list[Verdict]:
    """One verdict per subject; where a claim is judged by length and as a whole, the whole speaks, and trained lengths each for themselves."""
    whole = [finding for finding in findings if finding.n is None] or list(findings)
    groups: dict[tuple[str, int | None], list[Finding]] = defaultdict(list)
    for finding in whole:
        groups[finding.subject, finding.n].append(finding)
    verdicts = []
    for members in groups.values():
        first = min(members, key=lambda finding: _rank(finding.scope))
        verdicts.append(Verdict(finding=first, others=tuple(finding for finding in members if finding is not first)))
    return verdicts


def _rank(scope: Mapping[str, Any]) -> tuple[int, ...]:
    """Position in the order of preference, key by key; what is not listed comes last."""
    ranks = [wanted.index(scope[key]) if scope.get(key) in wanted else len(wanted) for key, wanted in PREFERRED.items()]
    return (*ranks, int(not str(scope.get("batching")).startswith("batch")))


def _doubted(finding: Finding, evidence: Evidence) -> Finding:
    """What would have been decided, where the run as a whole does not allow it."""
    doubtful = evidence.quick or (evidence.doubt and finding.claim.timed)
    if not doubtful or not finding.decided:
        return finding
    return dataclasses.replace(finding, answer=UNDECIDED, reason=f"{evidence.doubt} Taken by itself: {finding.answer}. {finding.reason}")


def _unanswered(claim: Claim) -> Finding:
    return Finding(
        claim=claim, subject="", scope={}, answer=UNDECIDED, reason=f"Not in this run. It needs {claim.metric} of {claim.cells}."
    )

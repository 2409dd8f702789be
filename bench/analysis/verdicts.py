"""Every claim answered: supported, refuted or undecided, with effect, interval and the rows behind it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from bench.analysis.claims import CLAIMS, REFUTED, SUPPORTED, UNDECIDED, Claim
from bench.analysis.evidence import SCOPE_KEYS, Evidence, Finding
from bench.analysis.judges import judge_accuracy, judge_growth, judge_hidden, judge_speed

SURVIVES = "survives"
JUDGES: dict[str, Callable[[Claim, Evidence], list[Finding]]] = {
    "quadratic": judge_growth,
    "linear": judge_growth,
    "hidden": judge_hidden,
    "faster": judge_speed,
    "accuracy": judge_accuracy,
}
PREFERRED: dict[str, tuple[str, ...]] = {"phase": ("infer",), "engine": ("eager",), "dtype": ("fp32", "bf16")}
"""Which scope speaks for a claim: the first of these that there is, a fixed batch before fixed tokens. Never the one with the nicest answer."""
POLICIES = ("params", "shape", "flops")
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
    found = list(findings)
    same, different = _agreements(claim.axis, found)
    answer = REFUTED if different else (SUPPORTED if same else UNDECIDED)
    return Finding(
        claim=claim,
        subject="all conclusions",
        scope={},
        answer=answer,
        reason=_survival_reason(claim, same, different) + _one_sided(claim.axis, found),
        cells=tuple(dict.fromkeys(cell for pair in (*different, *same) for finding in pair for cell in finding.cells)),
    )


Pair = tuple[Finding, Finding]


def _agreements(axis: str, findings: Iterable[Finding]) -> tuple[list[Pair], list[Pair]]:
    """The pairs that are decided on both sides: those with equal answers, those with different ones."""
    pairs = [pair for pair in _pairs(axis, findings) if pair[0].decided and pair[1].decided]
    same = [pair for pair in pairs if pair[0].answer == pair[1].answer]
    return same, [pair for pair in pairs if pair[0].answer != pair[1].answer]


def _pairs(axis: str, findings: Iterable[Finding]) -> list[Pair]:
    """Findings on one claim, subject and length that differ along the axis alone."""
    groups: dict[tuple[Any, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        # answers about several lengths at once depend on which lengths were asked for; one training is shared by all cells of its model
        several, shared = finding.claim.kind == "faster" and finding.n is None, finding.claim.kind == "accuracy" and axis != "match"
        if not several and not shared:
            groups[_place(finding, axis)].append(finding)
    return [pair for members in groups.values() for pair in combinations(members, 2) if _value(pair[0], axis) != _value(pair[1], axis)]


def _one_sided(axis: str, findings: Iterable[Finding]) -> str:
    num = sum(pair[0].decided != pair[1].decided for pair in _pairs(axis, findings))
    return f" {num} more are decided on one side only." if num else ""


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
    claims = ", ".join(dict.fromkeys(first.claim.name for first, _ in (*same, *different)))
    lead = f"{len(same)} of {len(same) + len(different)} comparisons agree ({claims})."
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
        first = min(members, key=_rank)
        verdicts.append(Verdict(finding=first, others=tuple(finding for finding in members if finding is not first)))
    return verdicts


def _rank(finding: Finding) -> tuple[float, ...]:
    """Position in the order of preference: workload, batching, then the longest grid, then the policy; what is not listed comes last."""
    scope = finding.scope
    work = [_place_in(wanted, scope.get(key)) for key, wanted in PREFERRED.items()]
    return (*work, int(not str(scope.get("batching")).startswith("batch")), -finding.reach, _place_in(POLICIES, scope.get("match")))


def _place_in(wanted: Sequence[str], value: Any) -> int:
    return wanted.index(value) if value in wanted else len(wanted)


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

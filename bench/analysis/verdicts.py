"""Judge every claim about quadratic cost: which scope speaks for it, and whether its answer survives another choice."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED, Claim, Verdict, withheld
from bench.analysis.evidence import SCOPE_KEYS, Evidence
from bench.analysis.judges import judge_accuracy, judge_growth, judge_hidden, judge_speed
from bench.analysis.quadratic_claims import CLAIMS

SURVIVES = "survives"
JUDGES: dict[str, Callable[[Claim, Evidence], list[Verdict]]] = {
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


def judge(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    """A verdict per claim and subject, in the order of the claims; a claim for which there is nothing to judge has one as well, undecided."""
    found: list[Verdict] = []
    verdicts: list[Verdict] = []
    for claim in claims:
        if claim.kind == SURVIVES:
            verdicts.append(withheld(judge_survival(claim, found), evidence.doubt, quick=evidence.quick))
            continue
        own = [withheld(verdict, evidence.doubt, quick=evidence.quick) for verdict in JUDGES[claim.kind](claim, evidence)]
        absent = Verdict(claim=claim, about="", answer=UNDECIDED, reason=f"Not in this run. It needs {claim.metric} of {claim.cells}.")
        found += own
        verdicts += _by_subject(own) or [absent]
    return verdicts


def judge_survival(claim: Claim, found: Sequence[Verdict]) -> Verdict:
    """Do verdicts that differ along the claim's axis alone agree, wherever two of them are decided?"""
    pairs = _pairs(claim.axis, found)
    decided = [pair for pair in pairs if pair[0].decided and pair[1].decided]
    same = [pair for pair in decided if pair[0].answer == pair[1].answer]
    different = [pair for pair in decided if pair[0].answer != pair[1].answer]
    if decided:
        names = ", ".join(dict.fromkeys(first.claim.name for first, _ in (*same, *different)))
        reason = f"{len(same)} of {len(decided)} comparisons agree ({names})."
    else:
        reason = f"No conclusion was decided under two choices of {claim.axis}."
    if different:
        more = f"; {len(different) - MAX_NAMED} more" if len(different) > MAX_NAMED else ""
        reason += f" They differ in: {'; '.join(_difference(pair, claim.axis) for pair in different[:MAX_NAMED])}{more}."
    if one_sided := sum(pair[0].decided != pair[1].decided for pair in pairs):
        reason += f" {one_sided} more are decided on one side only."
    return Verdict(
        claim=claim,
        about="all conclusions",
        answer=REFUTED if different else (SUPPORTED if same else UNDECIDED),
        reason=reason,
        cells=tuple(dict.fromkeys(cell for pair in (*different, *same) for verdict in pair for cell in verdict.cells)),
    )


Pair = tuple[Verdict, Verdict]


def _pairs(axis: str, found: Sequence[Verdict]) -> list[Pair]:
    """Verdicts on one claim, subject and length that differ along the axis alone."""
    groups: dict[tuple[Any, ...], list[Verdict]] = defaultdict(list)
    for verdict in found:
        # answers about several lengths at once depend on which lengths were asked for; one training is shared by all cells of its model
        several, shared = verdict.claim.kind == "faster" and verdict.n is None, verdict.claim.kind == "accuracy" and axis != "match"
        if not several and not shared:
            scope = (verdict.scope.get(key) for key in SCOPE_KEYS if key != axis)
            groups[(verdict.claim.name, verdict.about, verdict.n, *scope)].append(verdict)
    return [pair for members in groups.values() for pair in combinations(members, 2) if _value(pair[0], axis) != _value(pair[1], axis)]


def _value(verdict: Verdict, axis: str) -> Any:
    """Batch sizes are one rule: what counts is whether the batch or its tokens are fixed."""
    value = verdict.scope.get(axis)
    return str(value).partition(" ")[0] == "batch" if axis == "batching" else value


def _difference(pair: Pair, axis: str) -> str:
    first, second = pair
    where = f"{first.claim.name}, {first.about}" + (f", n = {first.n}" if first.n is not None else "")
    return f"{where}: {first.answer} with {first.scope.get(axis)}, {second.answer} with {second.scope.get(axis)}"


def _by_subject(found: Sequence[Verdict]) -> list[Verdict]:
    """One verdict per subject; where a claim is judged by length and as a whole, the whole speaks, and trained lengths each for themselves."""
    groups: dict[tuple[str, int | None], list[Verdict]] = defaultdict(list)
    for verdict in [verdict for verdict in found if verdict.n is None] or found:
        groups[verdict.about, verdict.n].append(verdict)
    verdicts = []
    for members in groups.values():
        first = min(members, key=_rank)
        verdicts.append(dataclasses.replace(first, others=tuple(verdict for verdict in members if verdict is not first)))
    return verdicts


def _rank(verdict: Verdict) -> tuple[float, ...]:
    """Position in the order of preference: workload, batching, then the longest grid, then the policy; what is not listed comes last."""
    scope = verdict.scope
    work = [_place_in(wanted, scope.get(key)) for key, wanted in PREFERRED.items()]
    return (*work, int(not str(scope.get("batching")).startswith("batch")), -verdict.reach, _place_in(POLICIES, scope.get("match")))


def _place_in(wanted: Sequence[str], value: Any) -> int:
    return wanted.index(value) if value in wanted else len(wanted)

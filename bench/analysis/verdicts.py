"""Judge every claim about quadratic cost.

Picks the scope that answers each claim, and compares answers across scopes.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pandas

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED, Claim, Verdict, withheld
from bench.analysis.evidence import Evidence
from bench.analysis.frame import work_text
from bench.analysis.judges import judge_accuracy, judge_growth, judge_hidden, judge_speed
from bench.analysis.quadratic_claims import CLAIMS, in_words
from bench.analysis.scope import SCOPE_KEYS, scope_rank

SURVIVES = "survives"
ALL_CONCLUSIONS = "all conclusions"
"""Subject of a claim about the other claims."""
JUDGES: dict[str, Callable[[Claim, Evidence], list[Verdict]]] = {
    "quadratic": judge_growth,
    "linear": judge_growth,
    "hidden": judge_hidden,
    "faster": judge_speed,
    "accuracy": judge_accuracy,
}
MAX_NAMED = 3


def judge(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    """Return verdicts per claim and subject, in the order of `claims`.

    A claim without evidence gets one undecided verdict.
    """
    found: list[Verdict] = []
    verdicts: list[Verdict] = []
    for claim in claims:
        if claim.kind == SURVIVES:
            verdicts.append(withheld(judge_survival(claim, found), evidence.caveat, quick=evidence.quick))
            continue
        own = [withheld(verdict, evidence.caveat, quick=evidence.quick) for verdict in JUDGES[claim.kind](claim, evidence)]
        absent = Verdict(claim=claim, about="", answer=UNDECIDED, reason=f"Not in this run. Needed: {claim.metric} of {claim.cells}.")
        found += own
        verdicts += _by_subject(own) or [absent]
    return verdicts


def judge_survival(claim: Claim, found: Sequence[Verdict]) -> Verdict:
    """Judge whether decided verdicts agree along the claim's axis.

    Two verdicts are compared if they differ along that axis alone.
    """
    pairs = _pairs(claim.axis, found)
    decided = [pair for pair in pairs if pair[0].decided and pair[1].decided]
    same = [pair for pair in decided if pair[0].answer == pair[1].answer]
    different = [pair for pair in decided if pair[0].answer != pair[1].answer]
    if decided:
        names = ", ".join(dict.fromkeys(in_words(first.claim.name) for first, _ in (*same, *different)))
        verb = "comparison agrees" if len(decided) == 1 else "comparisons agree"
        reason = f"{len(same)} of {len(decided)} {verb} ({names})."
    else:
        reason = f"No conclusion was decided under two choices of {claim.axis}."
    if different:
        more = f"; {len(different) - MAX_NAMED} more" if len(different) > MAX_NAMED else ""
        reason += f" Different: {'; '.join(_difference(pair, claim.axis) for pair in different[:MAX_NAMED])}{more}."
    if one_sided := sum(pair[0].decided != pair[1].decided for pair in pairs):
        reason += f" {one_sided} more {'is' if one_sided == 1 else 'are'} decided for one choice only."
    return Verdict(
        claim=claim,
        about=ALL_CONCLUSIONS,
        answer=REFUTED if different else (SUPPORTED if same else UNDECIDED),
        reason=reason,
        cells=tuple(dict.fromkeys(cell for pair in (*different, *same) for verdict in pair for cell in verdict.cells)),
    )


def _pairs(axis: str, found: Sequence[Verdict]) -> list[tuple[Verdict, Verdict]]:
    """Pair the verdicts on one claim, subject and length along one axis."""
    groups: dict[tuple[Any, ...], list[Verdict]] = defaultdict(list)
    for verdict in found:
        # an answer over several lengths depends on the lengths of the scope, which differ between scopes
        over_lengths = verdict.claim.kind == "faster" and verdict.n is None
        # one training is shared by every phase, engine and batch of its model, so those scopes would agree with themselves
        same_training = verdict.claim.kind == "accuracy" and axis != "match"
        if not over_lengths and not same_training:
            scope = (verdict.scope.get(key) for key in SCOPE_KEYS if key != axis)
            groups[(verdict.claim.name, verdict.about, verdict.n, *scope)].append(verdict)
    return [pair for members in groups.values() for pair in combinations(members, 2) if _value(pair[0], axis) != _value(pair[1], axis)]


def _value(verdict: Verdict, axis: str) -> Any:
    """Return the scope's value on the axis.

    Batching has two values: a fixed batch of any size, or fixed tokens per batch.
    """
    value = verdict.scope.get(axis)
    return str(value).partition(" ")[0] == "batch" if axis == "batching" else value


def _difference(pair: tuple[Verdict, Verdict], axis: str) -> str:
    first, second = pair
    where = in_words(f"{first.claim.name}, {first.about}") + (f", n = {first.n}" if first.n is not None else "")
    return f"{where}: {first.answer} with {_choice(first, axis)}, {second.answer} with {_choice(second, axis)}"


def _choice(verdict: Verdict, axis: str) -> str:
    value = work_text(axis, verdict.scope.get(axis))
    return f"match {value}" if axis == "match" else value


def lacks_data(verdict: Verdict, frame: pandas.DataFrame) -> bool:
    """Return whether the run holds nothing that could answer the claim."""
    claim = verdict.claim
    if verdict.decided or verdict.estimates:
        return False
    if claim.kind == SURVIVES:
        return claim.axis not in frame or frame[claim.axis].nunique() < 2
    rows = frame[frame["cell_id"].isin(verdict.cells)]
    return rows.empty or claim.column not in rows or bool(rows[claim.column].isna().all())


def _by_subject(found: Sequence[Verdict]) -> list[Verdict]:
    """Return one verdict per subject.

    If a claim has verdicts by length and over all lengths, only the latter count. Claims about accuracy have verdicts by length only.
    """
    groups: dict[tuple[str, int | None], list[Verdict]] = defaultdict(list)
    for verdict in [verdict for verdict in found if verdict.n is None] or found:
        groups[verdict.about, verdict.n].append(verdict)
    verdicts = []
    for members in groups.values():
        first = min(members, key=lambda verdict: scope_rank(verdict.scope, verdict.reach))
        verdicts.append(dataclasses.replace(first, others=tuple(verdict for verdict in members if verdict is not first)))
    return verdicts

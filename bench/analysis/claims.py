"""Claims and verdicts: one rule answers every claim as supported, refuted or undecided.

A claim comes from `bench.analysis.quadratic_claims` or is a prediction of the plan. A judge finds the intervals that bear on it; the rule does the
rest. Intervals hold jointly for the comparisons that a reader would pick from, so the correction differs by kind:

- gMLP's speed beside ViT's: all lengths of one scope (Bonferroni). The claim is about every length of a scope, and no other scope answers it.
- Predictions: all effects on one measure in the run (Bonferroni), since a reader scans the effects of all arms.
- Targets beside the peers: every cell of the run (Bonferroni); the geometric mean of a part has one plain 95 % interval.
- Fits to n and differences in accuracy: plain 95 % intervals.

The ranking (`bench.analysis.ranking`) corrects for all pairs of its table, since it names the fastest of many, which no claim does. One pair may
therefore be decided by a claim and open in the ranking.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.intervals import Interval

SUPPORTED, REFUTED, UNDECIDED = ANSWERS = ("supported", "refuted", "undecided")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement that a run supports, refutes or leaves open, written down before anything was measured.

    `question`: the claim in words. `metric`: the quantity that it is about; `cells`: the cells that it needs. `because`: why a plan predicts it.

    Of a claim about quadratic cost `kind` names the judge (`bench.analysis.verdicts.JUDGES`), `subject` the series, `column` the quantity (of a
    `bench.analysis.growth.Measure`). A claim of the kind `survives` asks whether the other answers stay the same along `axis`.
    """

    question: str
    metric: str
    name: str = ""
    supported_by: str = ""
    refuted_by: str = ""
    cells: str = ""
    because: str = ""
    kind: str = ""
    subject: str = ""
    column: str = ""
    axis: str = ""

    @property
    def timed(self) -> bool:
        return self.metric.startswith("latency")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A named figure behind a verdict. `unit`: ratio, difference, share, exponent, length or error."""

    name: str
    value: Interval
    unit: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to one claim about one subject, or about one n of it.

    `about`: the models or arms; `scope`: the workload and policy, or the part of the plan. `cells`: ids of the rows that it rests on; `reach`: the
    longest of their lengths over the shortest. `others`: verdicts on the same claim and subject in other scopes.
    """

    claim: Claim
    about: str
    answer: str
    reason: str
    scope: Mapping[str, Any] = field(default_factory=dict)
    n: int | None = None
    estimates: tuple[Estimate, ...] = ()
    cells: tuple[str, ...] = ()
    reach: float = 1.0
    others: tuple[Verdict, ...] = ()

    @property
    def decided(self) -> bool:
        return self.answer != UNDECIDED


def answer_of(estimate: Interval, low: float = -math.inf, high: float = math.inf, *, inclusive: bool = False) -> str:
    """Judge by the whole interval: supported between the bounds, refuted outside them. `inclusive`: a bound itself still supports."""
    if estimate.high < low or estimate.low > high:
        return REFUTED
    inside = low <= estimate.low and estimate.high <= high if inclusive else low < estimate.low and estimate.high < high
    return SUPPORTED if inside else UNDECIDED


def answer_to_all(answers: Collection[str], *, complete: bool = True) -> str:
    """Join the answers at several places: one refutes, all support. `complete`: no place that the claim needs is lost."""
    if REFUTED in answers:
        return REFUTED
    return SUPPORTED if complete and set(answers) == {SUPPORTED} else UNDECIDED


def withheld(verdict: Verdict, doubt: str, *, quick: bool) -> Verdict:
    """Leave undecided what the run as a whole cannot decide: anything in a quick run, times where there is `doubt` about them."""
    if not verdict.decided or not (quick or (doubt and verdict.claim.timed)):
        return verdict
    return dataclasses.replace(verdict, answer=UNDECIDED, reason=f"{doubt} Taken by itself: {verdict.answer}. {verdict.reason}".strip())

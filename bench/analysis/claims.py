"""Define claims and verdicts, and the rule that joins them.

Claims come from `bench.analysis.quadratic_claims` or are predictions of the plan. A judge finds the relevant intervals; `answer_of` then answers
supported, refuted or undecided. Intervals hold jointly for the comparisons that a reader would choose from, so the correction depends on the kind:

- gMLP's speed against ViT's: Bonferroni over the models of one length. A claim about every length of a scope holds if it holds at each.
- Predictions: Bonferroni over the effects on one measure at one place of a part (until 2026-11-27: of the whole run).
- Local exponents and differences in accuracy: plain 95 % intervals.

The ranking (`bench.analysis.ranking`) has the same intervals as the claims on speed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.intervals import Interval

COUNTED = ("params", "flops", "memory", "activation_bytes", "train_flops")
"""Quantities of claims and predictions that have no noise."""
SUPPORTED, REFUTED, UNDECIDED = ANSWERS = ("supported", "refuted", "undecided")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, fixed before measuring, that a run supports or refutes.

    `question`: the claim in words.
    `metric`: the quantity that the claim is about.
    `name`: the key of a claim about quadratic cost; empty for a prediction.
    `supported_by`, `refuted_by`: the conditions, in words.
    `cells`: the configurations that the claim needs, in words.
    `because`: why a plan predicts it.

    Only claims about quadratic cost have the fields below.
    `kind`: the judge (`bench.analysis.quadratic_claims.JUDGES`).
    `subject`: the series to judge (`bench.analysis.evidence.is_subject`).
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

    @property
    def timed(self) -> bool:
        """Whether the claim is about latency."""
        return self.metric.startswith("latency")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A named figure behind a verdict.

    `unit`: ratio, difference, share, exponent or length.
    """

    name: str
    value: Interval
    unit: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to one claim about one subject.

    `about`: the models or variants compared.
    `answer`: supported, refuted or undecided.
    `reason`: why, in words.
    `scope`: the workload and matching policy, or the part of the plan.
    `n`: the sequence length; None for all lengths together.
    `estimates`: the figures behind the answer.
    `cells`: ids of the rows used.
    `reach`: the longest length of those rows over the shortest.
    `others`: verdicts on the same claim and subject in other scopes.
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
        """Whether the claim is supported or refuted."""
        return self.answer != UNDECIDED


def answer_of(estimate: Interval, low: float = -math.inf, high: float = math.inf, *, inclusive: bool = False) -> str:
    """Judge by the whole interval: supported inside the bounds, refuted outside.

    `inclusive`: an interval that touches a bound still supports.
    """
    if estimate.high < low or estimate.low > high:
        return REFUTED
    inside = low <= estimate.low and estimate.high <= high if inclusive else low < estimate.low and estimate.high < high
    return SUPPORTED if inside else UNDECIDED


def answer_to_all(answers: Collection[str], *, complete: bool = True) -> str:
    """Join answers from several places: one refutation refutes, all must support.

    `complete`: every place that the claim needs has an answer; otherwise nothing is supported.
    """
    if REFUTED in answers:
        return REFUTED
    return SUPPORTED if complete and set(answers) == {SUPPORTED} else UNDECIDED


def withheld(verdict: Verdict, caveat: str, *, quick: bool) -> Verdict:
    """Make an answer undecided if the run may not decide it.

    A quick run decides nothing but counts, which are exact; another run with a `caveat` decides nothing timed.
    """
    withholds = (quick and verdict.claim.metric not in COUNTED) or (caveat and verdict.claim.timed)
    if not verdict.decided or not withholds:
        return verdict
    return dataclasses.replace(verdict, answer=UNDECIDED, reason=f"{caveat} Otherwise: {verdict.answer}. {verdict.reason}".strip())

"""A claim, the answer to it, and how an interval gives the answer: supported, refuted or undecided."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.intervals import Interval

COUNTED = ("params", "flops", "memory", "activation_bytes", "train_flops")
"""Quantities of claims and predictions that have no noise."""
QUICK = "A quick run decides nothing that is timed or trained: it has few rounds and short limits."
SUPPORTED, REFUTED, UNDECIDED = ANSWERS = ("supported", "refuted", "undecided")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement, fixed before measuring, that a run supports or refutes.

    `statement`: the claim in words.
    `metric`: the quantity that the claim is about.
    `because`: why a plan predicts it; empty for a claim about quadratic cost.

    Only claims about quadratic cost have the fields below.
    `name`: the key.
    `supported_by`, `refuted_by`: the conditions, in words.
    `cells`: the configurations that the claim needs, in words.
    `kind`: the judge (`bench.analysis.claims.JUDGES`).
    `subject`: the series to judge (`bench.analysis.frame.is_subject`).
    """

    statement: str
    metric: str
    because: str = ""
    name: str = ""
    supported_by: str = ""
    refuted_by: str = ""
    cells: str = ""
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


def withheld(verdict: Verdict, *, quick: bool) -> Verdict:
    """Make an answer of a quick run undecided, unless it is about counts, which are exact."""
    if not quick or not verdict.decided or verdict.claim.metric in COUNTED:
        return verdict
    return dataclasses.replace(verdict, answer=UNDECIDED, reason=f"{QUICK} Otherwise: {verdict.answer}. {verdict.reason}".strip())

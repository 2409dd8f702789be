"""Is a cost quadratic in n, as far as this grid reaches? One decomposition in, one answer out."""

from __future__ import annotations

from dataclasses import dataclass

from bench.analysis.scaling import Decomposition
from bench.intervals import Interval

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
MIN_SHARE = 0.10


@dataclass(frozen=True, kw_only=True)
class QuadraticAnswer:
    """`answer` is supported, refuted or undecided; `share` that of the quadratic term at `longest`, None where there is no fit."""

    answer: str
    reason: str
    share: Interval | None = None
    longest: int | None = None


def answer_quadratic(found: Decomposition) -> QuadraticAnswer:
    """Supported: c is above zero and its share at the longest n is 10 % or more. Refuted: the share is below 10 % for certain. Else undecided."""
    if not found.fits or found.c is None:
        return QuadraticAnswer(answer=UNDECIDED, reason=found.reason)
    share, longest = found.shares[-1].quadratic, found.shares[-1].n
    answer, reason = _judged(found.c, share)
    bounds = f" ({share.low:.1%} to {share.high:.1%})" if share.low < share.high else ""
    subject = f"The quadratic term's share at n = {longest} is {share.estimate:.1%}{bounds}"
    return QuadraticAnswer(answer=answer, reason=f"{subject}{reason}.", share=share, longest=longest)


def _judged(c: Interval, share: Interval) -> tuple[str, str]:
    if c.low > 0 and share.estimate >= MIN_SHARE:
        return SUPPORTED, f", at least {MIN_SHARE:.0%}, and its coefficient is above zero"
    if share.high < MIN_SHARE:
        return REFUTED, f", below {MIN_SHARE:.0%}"
    if c.low > 0:
        return UNDECIDED, f", not surely below {MIN_SHARE:.0%}: add longer lengths or rounds"
    return UNDECIDED, ", and its coefficient is not told from zero: add longer lengths or rounds"

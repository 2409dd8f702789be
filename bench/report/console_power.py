"""Show how many seeds or rounds would decide a question."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from bench import console, numbers
from bench.analysis.effects import place_text
from bench.analysis.power import MAX_ASKED, POWER, Need, PowerAnalysis
from bench.analysis.predictions import supporting_bounds
from bench.intervals import Interval
from bench.report.sections.verdicts import FIGURES, interval_json
from bench.spec import MEASURES

HEADERS = ("prediction", "estimate ± half-width", "margin", "now", "needed", "if no effect", "reason")
NUMERIC = (False, True, True, False, True, True, False)
AT_MARGIN, FEW_ITEMS, MANY = "too near the margin", "too few test items", f"more than {MAX_ASKED}"


def show_power(found: PowerAnalysis, seconds: float, as_json: bool) -> None:
    """Print a table per part and the answer, or one JSON document.

    `seconds`: the estimated time of the proposed run.
    """
    if as_json:
        console.print_json(power_json(found, seconds))
        return
    for part in dict.fromkeys(need.prediction.part for need in found.needs):
        needs = [need for need in found.needs if need.prediction.part == part]
        ((baseline, _),) = Counter(need.prediction.against for need in needs).most_common(1)
        console.print_table(HEADERS, [_row(need, baseline) for need in needs], NUMERIC, title=f"{part}: against {baseline}")
        console.print_lines("")
    console.print_lines(*answer(found, seconds))


def answer(found: PowerAnalysis, seconds: float) -> list[str]:
    """Return what is decided now, by the proposed numbers, and not then."""
    now, later = (sum(flags) for flags in zip(*((need.verdict.decided, need.decided_by(found.nums)) for need in found.needs), strict=True))
    units = found.proposed or dict.fromkeys(need.unit for need in found.needs if need.unit)
    nums = " and ".join(f"{found.nums[unit]} {unit}" for unit in units)
    lines = [f"Decided: {now} of {len(found.needs)} now, {later} by {nums} ({100 * POWER:.0f} % power each, effects as measured)."]
    if found.command:
        lines.append(f"About {console.duration_text(seconds)} by bench plan: {found.command}")
    left = Counter(_obstacle(need) for need in found.needs if not need.decided_by(found.nums))
    return [*lines, *([f"Not then: {', '.join(f'{why} ({num})' for why, num in left.most_common())}."] if left else [])]


def _obstacle(need: Need) -> str:
    """Return why the proposed numbers do not decide; empty if they do."""
    if need.obstacle or not need.unit:
        return need.obstacle
    if need.needed is None:
        return FEW_ITEMS if need.items else AT_MARGIN
    return MANY if need.needed > MAX_ASKED else ""


def _reason(need: Need) -> str:
    if need.unit and need.items:
        return f"needs ≥ {need.items:,} items"
    if need.verdict.decided or _obstacle(need) or need.effect is None or need.needed is None:
        return _obstacle(need)
    return f"too few {need.unit}" if need.needed > need.effect.estimate.num else "open by chance"


def _row(need: Need, baseline: str) -> tuple[str, ...]:
    needed, at_zero = (("never" if num is None else f"{num}") if need.unit else "" for num in (need.needed, need.needed_at_zero))
    return (
        _label(need, baseline),
        _estimate_text(need),
        _margin_text(need),
        need.verdict.answer if need.verdict.decided else "open",
        f"{needed} {need.unit}" if need.needed else needed,
        at_zero,
        _reason(need),
    )


def _label(need: Need, baseline: str) -> str:
    prediction, place = need.prediction, place_text(need.effect.contrast.place) if need.effect else ""
    against = f" against {prediction.against}" if prediction.against != baseline else ""
    return f"{prediction.arm}{against}: {MEASURES[prediction.measure].title} {prediction.expected}{f', {place}' if place else ''}"


def _estimate_text(need: Need) -> str:
    if need.effect is None:
        return ""
    found, is_ratio = need.effect.estimate, need.effect.measure.is_ratio
    half = half_width(found, is_ratio=is_ratio) if need.unit else None
    text = numbers.ratio(found.estimate) if is_ratio else FIGURES["difference"](found.estimate)
    return text if half is None else f"{text} ± {numbers.percent(half) if is_ratio else f'{half:.3f}'}"


def half_width(found: Interval, *, is_ratio: bool) -> float | None:
    """Return half the interval; None if it has no bounds.

    For a ratio it is the factor to either bound, less 1.
    """
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return None
    return math.sqrt(found.high / found.low) - 1 if is_ratio else (found.high - found.low) / 2


def _margin_text(need: Need) -> str:
    """Return the bounds that support: `> 0.02`, `< 0.909` or `± 0.02`."""
    low, high = (bound + 0.0 for bound in supporting_bounds(need.prediction))  # -0.0 becomes 0
    if math.isfinite(low) and math.isfinite(high):
        return f"± {numbers.percent(high - 1) if MEASURES[need.prediction.measure].is_ratio else f'{high:.3g}'}"
    return f"> {low:.3g}" if math.isfinite(low) else f"< {high:.3g}"


def power_json(found: PowerAnalysis, seconds: float) -> dict[str, Any]:
    """Return numbers and predictions as one JSON document."""
    return {
        "question": found.question,
        "runs": found.runs,
        "power": POWER,
        "most_proposed": MAX_ASKED,
        **found.nums,
        "estimated_s": seconds,
        "command": found.command,
        "answer": answer(found, seconds),
        "predictions": [_need_json(need) for need in found.needs],
    }


def _need_json(need: Need) -> dict[str, Any]:
    effect = need.effect
    return {
        "part": need.prediction.part,
        "about": need.verdict.about,
        "claim": need.verdict.claim.question,
        "answer": need.verdict.answer,
        "place": place_text(effect.contrast.place) if effect else "",
        **(interval_json(effect.estimate) if effect else {}),
        "half_width": half_width(effect.estimate, is_ratio=effect.measure.is_ratio) if effect else None,
        "bounds": [bound if math.isfinite(bound) else None for bound in supporting_bounds(need.prediction)],
        "num_comparisons": effect.num_comparisons if effect else None,
        "unit": need.unit,
        "num": effect.estimate.num if effect else None,
        "needed": need.needed,
        "needed_at_zero": need.needed_at_zero,
        "num_items": need.num_items or None,
        "items_needed": need.items,
        "reason": _reason(need),
    }

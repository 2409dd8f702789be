"""Write the verdicts on all claims as text, table and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import numbers
from bench.analysis.frame import scope_text
from bench.analysis.study import Study
from bench.analysis.verdicts import REFUTED, SUPPORTED, UNDECIDED, Estimate, Verdict
from bench.intervals import Interval
from bench.report.document import Claimed
from bench.report.sections.answer import answer_sentences
from bench.report.sections.wording import join_names, spell_out_model, spell_out_policy, spell_out_reason
from bench.serialize import to_json

ORDER = (REFUTED, SUPPORTED, UNDECIDED)
"""Claims in the order of their answers: what was not expected first."""
MAX_FIGURES = 2
"""Estimates on a prediction's line; the others are behind it."""


def claim_lines(verdicts: Sequence[Verdict]) -> tuple[Claimed, ...]:
    """Return a line per prediction, and one per claim and answer on all of its models; what was refuted first."""
    lines: dict[tuple[object, ...], list[Verdict]] = {}
    for place, verdict in enumerate(sorted(verdicts, key=lambda verdict: ORDER.index(verdict.answer))):
        alone = place if verdict.scope.get("part") and verdict.estimates else None
        lines.setdefault((verdict.answer, verdict.claim, alone), []).append(verdict)
    has_parts = len({part for verdict in verdicts if (part := verdict.scope.get("part"))}) > 1
    return tuple(_line(members, has_parts=has_parts) for members in lines.values())


def _line(verdicts: Sequence[Verdict], *, has_parts: bool) -> Claimed:
    first, subjects = verdicts[0], [_subject(verdict, has_parts=has_parts) for verdict in verdicts]
    reasons = [_more(verdict) for verdict in verdicts]
    if len(set(reasons)) > 1:
        reasons = [f"{subject}: {reason}" for subject, reason in zip(subjects, reasons, strict=True)]
    text, named = first.claim.statement, join_names(list(filter(None, dict.fromkeys(subjects))))
    if first.scope.get("part"):
        text, figure = f"{named}: {text}", "; ".join(estimate_text(estimate) for estimate in first.estimates[:MAX_FIGURES])
    else:
        figure = _figures(verdicts, subjects) or named
    return Claimed(
        answer=first.answer,
        text=text,
        figure=figure,
        more=". ".join(dict.fromkeys(filter(None, reasons))),
        cells=tuple(cell for verdict in verdicts for cell in verdict.cells),
    )


def _figures(verdicts: Sequence[Verdict], subjects: Sequence[str]) -> str:
    """Write the main estimate of each model of a claim, after what the models have in common: `share of n² at n = 257: ViT 29 %, gMLP 47 %`."""
    named: dict[str, list[str]] = {}
    for verdict, subject in zip(verdicts, subjects, strict=True):
        for estimate in verdict.estimates[:1]:
            named.setdefault(estimate.name, []).append(f"{subject} {interval_text(estimate.value, estimate.unit)}")
    return "; ".join(f"{name}: {', '.join(figures)}" for name, figures in named.items()).replace("n^2", "n²")


def _subject(verdict: Verdict, *, has_parts: bool) -> str:
    """Name the models of a claim, or the variants of a prediction, after their part where a run has several."""
    n = f"n = {verdict.n}" if verdict.n is not None else ""
    if part := verdict.scope.get("part"):
        return ", ".join(filter(None, (part if has_parts else "", verdict.about, n)))
    models = " / ".join(map(spell_out_model, verdict.about.split(" / ")))
    return " at ".join(filter(None, (models, n)))


def _more(verdict: Verdict) -> str:
    where = "" if verdict.scope.get("part") else spell_out_policy(scope_text(verdict.scope))
    others = "; ".join(estimate_text(estimate) for estimate in verdict.estimates[MAX_FIGURES if verdict.scope.get("part") else 1 :])
    because = f"Predicted because {verdict.claim.because}" if verdict.claim.because else ""
    texts = (_capital(spell_out_reason(verdict.reason)), f"Where: {where}" if where else "", others, because)
    return ". ".join(text.removesuffix(".") for text in texts if text)


def _capital(text: str) -> str:
    """Begin with a capital, except for a name such as gMLP."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].islower() else text


FIGURES: Mapping[str, Callable[[float], str]] = {
    "difference": lambda value: f"{value:+.3f}",
    "share": numbers.percent,
    "exponent": lambda value: f"{value:.2f}",
}


def estimate_text(estimate: Estimate) -> str:
    """Write an estimate as `n = 17: +0.021 [+0.010, +0.032]`."""
    figure = interval_text(estimate.value, estimate.unit)
    return f"{estimate.name}: {figure}".replace("n^2", "n²") if estimate.name else figure


def interval_text(found: Interval, unit: str) -> str:
    """Write an interval as `+0.021 [+0.010, +0.032]`.

    Exact figures and figures with an infinite bound have no brackets; exact differences keep theirs. A ratio of too few rounds has their range.
    """
    bounded = math.isfinite(found.high) and (found.low < found.high or unit == "difference")
    if unit == "ratio":
        return numbers.ratio_interval(found) if bounded or found.span else numbers.ratio(found.estimate)
    text = FIGURES[unit]
    return text(found.estimate) + (f" [{text(found.low)}, {text(found.high)}]" if bounded else "")


def verdicts_json(study: Study) -> dict[str, Any]:
    """Return `verdicts.json`: verdicts with claims, figures, row ids and other scopes."""
    return {
        "run": study.name,
        "created": study.plan.created,
        "command": study.plan.command,
        "quick": study.plan.settings.quick,
        "answer": " ".join(answer_sentences(study)),
        "verdicts": list(map(_claimed_json, study.verdicts)),
        "predictions": list(map(_claimed_json, study.prediction_verdicts)),
    }


def _claimed_json(verdict: Verdict) -> dict[str, Any]:
    return {"claim": {name: text for name, text in to_json(verdict.claim).items() if text}, **_verdict_json(verdict)}


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "answer": verdict.answer,
        "about": verdict.about,
        "n": verdict.n,
        "scope": {key: plain_value(value) for key, value in verdict.scope.items()},
        "estimates": [{"name": found.name, "unit": found.unit, **interval_json(found.value)} for found in verdict.estimates],
        "reason": verdict.reason,
        "cells": verdict.cells,
        "others": [_verdict_json(other) for other in verdict.others],
    }


def interval_json(found: Interval) -> dict[str, float | None]:
    """Return estimate and bounds; infinite bounds (of one seed, or too few rounds) become null."""
    bounds = {"estimate": found.estimate, "low": found.low, "high": found.high}
    return {name: float(value) if math.isfinite(value) else None for name, value in bounds.items()}


def plain_value(value: Any) -> Any:
    """Turn a numpy scalar into a plain Python value."""
    return value.item() if hasattr(value, "item") else value

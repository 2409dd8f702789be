"""The verdicts of a report: the answer in one sentence, the table, and the same as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas

from bench.analysis.evidence import Evidence, Finding
from bench.analysis.quadratic import SUPPORTED, UNDECIDED
from bench.analysis.regimes import usable_for_scaling
from bench.analysis.verdicts import Verdict
from bench.intervals import Interval
from bench.render import numbers
from bench.render.report_data import ReportData
from bench.render.scaling import scope_text
from bench.render.tables import Table

ROUNDS_COLUMNS = ("cell_id", "round", "latency_ms")
MAX_IDS = 2


def evidence_of(frame: pandas.DataFrame, data: ReportData) -> Evidence:
    """The run as its claims see it; `frame` is prepared."""
    rounds = data.rounds if data.rounds is not None else pandas.DataFrame(columns=list(ROUNDS_COLUMNS))
    return Evidence(
        frame=frame,
        rounds=rounds,
        usable=frozenset(usable_for_scaling(frame)["cell_id"]),
        scores=data.scores,
        doubt=_doubt(data),
        quick=data.plan.settings.quick,
    )


def sentence(verdicts: Sequence[Verdict]) -> str:
    """The whole answer in one sentence: what grows how, which is faster where, what it does to accuracy, as far as it is decided."""
    parts = [part for part in (_growth(verdicts), _hidden(verdicts), _speed(verdicts), _quality(verdicts)) if part]
    if not parts:
        return "This run decides none of the claims about quadratic cost; the table says what each of them needs."
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """One row per claim, subject and answer; subjects with equal answers to one claim share a row."""
    rows = [_row(members) for members in _grouped(verdicts)]
    headers = ("question", "answer", "about", "effect", "where", "why", "rows")
    return Table(headers=headers, numeric=(False,) * len(headers), rows=tuple(rows), badges=tuple(header == "answer" for header in headers))


def other_scopes_table(verdicts: Sequence[Verdict]) -> Table:
    """What the same claims come to elsewhere: the other phases, batchings, policies and engines."""
    found = [(verdict.claim.question, other) for verdict in verdicts for other in verdict.others]
    rows = [(question, other.answer, other.subject, _effect(other), scope_text(other.scope), other.reason) for question, other in found]
    headers = ("question", "answer", "about", "effect", "where", "why")
    return Table(headers=headers, numeric=(False,) * len(headers), rows=tuple(rows), badges=tuple(header == "answer" for header in headers))


def verdicts_json(data: ReportData, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """`verdicts.json`: every verdict with its claim, its figures and the ids of its rows, and what the other scopes say."""
    return {
        "run": data.name,
        "created": data.plan.created,
        "command": data.plan.command,
        "quick": data.plan.settings.quick,
        "answer": sentence(verdicts),
        "verdicts": [_verdict_json(verdict) for verdict in verdicts],
    }


def _doubt(data: ReportData) -> str:
    """Why nothing timed may be decided; "" where it may."""
    if data.plan.settings.quick:
        return "A quick run decides nothing: few rounds, short limits."
    if data.control is not None and not data.control.get("contains_one"):
        return "The A/A control leaves out 1: the machine was too noisy."
    return ""


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    words = {name: getattr(claim, name) for name in ("name", "question", "supported_by", "refuted_by", "metric", "cells")}
    return {"claim": words, **_finding_json(verdict.finding), "others": [_finding_json(other) for other in verdict.others]}


def _finding_json(finding: Finding) -> dict[str, Any]:
    estimate = finding.estimate
    return {
        "answer": finding.answer,
        "about": finding.subject,
        "n": finding.n,
        "scope": {key: value.item() if hasattr(value, "item") else value for key, value in finding.scope.items()},
        "effect": None if estimate is None else {"name": finding.effect, **_bounds(estimate)},
        "reason": finding.reason,
        "cells": list(finding.cells),
    }


def _bounds(estimate: Interval) -> dict[str, float]:
    return {"estimate": float(estimate.estimate), "low": float(estimate.low), "high": float(estimate.high)}


def _grouped(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.claim.name, verdict.answer), []).append(verdict)
    return list(groups.values())


def _row(members: Sequence[Verdict]) -> tuple[str, ...]:
    first = members[0]
    findings = [verdict.finding for verdict in members]
    several = len(findings) > 1
    cells = list(dict.fromkeys(cell for finding in findings for cell in finding.cells))
    return (
        first.claim.question,
        first.answer,
        "; ".join(_about(finding) for finding in findings),
        "; ".join(f"{_about(finding)}: {_effect(finding)}" if several else _effect(finding) for finding in findings if finding.estimate),
        "; ".join(dict.fromkeys(scope_text(finding.scope) for finding in findings if finding.scope)),
        " ".join(dict.fromkeys(f"{_about(finding)}: {finding.reason}" if several else finding.reason for finding in findings)),
        f"{len(cells)}: {', '.join(cells[:MAX_IDS])}{', ...' if len(cells) > MAX_IDS else ''}" if cells else "",
    )


def _about(finding: Finding) -> str:
    return finding.subject + (f", n = {finding.n}" if finding.n is not None else "")


def _effect(finding: Finding) -> str:
    if finding.estimate is None:
        return ""
    return f"{finding.effect} {_figure(finding.effect, finding.estimate)}"


def _figure(effect: str, estimate: Interval) -> str:
    text: Callable[[float], str] = numbers.percent if "share" in effect else (_whole if effect.startswith("n at") else _plain)
    if estimate.low == estimate.high:
        return text(estimate.estimate)
    return f"{text(estimate.estimate)} [{text(estimate.low)}, {text(estimate.high)}]"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _plain(value: float) -> str:
    return f"{value:.3f}"


def _of(verdicts: Sequence[Verdict], name: str) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.claim.name == name and verdict.finding.subject]


def _growth(verdicts: Sequence[Verdict]) -> str:
    """Which of the two have quadratic FLOPs, and where their n^2 lives."""
    names = {"attention": "attention_flops_quadratic", "gMLP": "gmlp_flops_quadratic"}
    shares = {model: [v.finding for v in _of(verdicts, name) if v.answer == SUPPORTED] for model, name in names.items()}
    texts = [f"{model}'s ({_shares(found)})" for model, found in shares.items() if found]
    if not texts:
        return ""
    lead = f"the FLOPs of both are quadratic in n, {' and '.join(texts)}" if len(texts) == 2 else f"{texts[0]} FLOPs are quadratic in n"
    return lead + _homes(verdicts)


def _shares(found: Sequence[Finding]) -> str:
    shares = sorted(finding.estimate.estimate for finding in found if finding.estimate)
    ends = dict.fromkeys(numbers.percent(share) for share in (shares[0], shares[-1]))
    return f"{' to '.join(ends)} of them {found[0].effect.removeprefix('share of n^2 ')}"


def _homes(verdicts: Sequence[Verdict]) -> str:
    explicit, weights = (
        any(v.answer == SUPPORTED for v in _of(verdicts, name))
        for name in ("explicit_attention_memory_quadratic", "gmlp_weights_quadratic")
    )
    fused = any(v.answer == SUPPORTED for v in _of(verdicts, "fused_attention_memory_linear"))
    parts = [
        "gMLP keeps its n^2 in weights" if weights else "",
        "explicit attention in activations" if explicit else "",
        "fused attention stores none" if fused else "",
    ]
    texts = [part for part in parts if part]
    return f"; {', '.join(texts)}" if texts else ""


def _hidden(verdicts: Sequence[Verdict]) -> str:
    texts = [f"{v.finding.subject} up to n = {length}" for v in _of(verdicts, "quadratic_hidden_below") if (length := _length(v))]
    return f"the quadratic term stays under 10 % of the time of {', '.join(texts)}" if texts else ""


def _length(verdict: Verdict) -> str:
    """The largest n with a share that is surely small."""
    estimate = verdict.finding.estimate
    return f"{estimate.low:.0f}" if verdict.answer == SUPPORTED and estimate is not None else ""


def _speed(verdicts: Sequence[Verdict]) -> str:
    found = [v for v in _of(verdicts, "gmlp_faster_than_vit") if "faster at" in v.finding.reason or "slower at" in v.finding.reason]
    if not found or found[0].finding.reason.startswith("A quick"):
        return ""
    finding = found[0].finding
    return f"at matched size ({scope_text(finding.scope)}) {finding.reason.rstrip('.')} compared with {finding.subject.partition(' / ')[2]}"


def _quality(verdicts: Sequence[Verdict]) -> str:
    texts = [
        f"{'matches' if v.answer == SUPPORTED else 'does not match'} ViT's accuracy on {v.finding.scope.get('task')} at n = {v.finding.n}"
        for v in _of(verdicts, "gmlp_matches_vit_accuracy")
        if v.answer != UNDECIDED
    ]
    return f"gMLP {', '.join(texts)}" if texts else ""

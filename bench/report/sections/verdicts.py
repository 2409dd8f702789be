"""The verdicts of a report: the answer in one sentence, the table, and the same as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench import numbers
from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED
from bench.analysis.evidence import Finding
from bench.analysis.frame import scope_text
from bench.analysis.study import Study
from bench.analysis.verdicts import Verdict
from bench.intervals import Interval
from bench.report.tables import Table

KEPT = "shape"


def sentence(verdicts: Sequence[Verdict], doubt: str = "") -> str:
    """The whole answer in one sentence: what grows how, which is faster where, what it does to accuracy, as far as it is decided.

    `doubt`: why nothing timed may be said.
    """
    counted = (_growth(verdicts), _quality(verdicts))
    timed = () if doubt else (_time(verdicts), _hidden(verdicts), _speed(verdicts))
    parts = [part for part in (counted[0], *timed, counted[1]) if part]
    if not parts:
        return "This run decides none of the claims about quadratic cost; the table says what each of them needs."
    text = "; ".join(parts)
    return f"{text if text.startswith('gMLP') else text[:1].upper() + text[1:]}."


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """One row per claim, subject and answer; subjects with equal answers to one claim share a row."""
    groups = _grouped(verdicts)
    headers = ("question", "answer", "about", "why", "rows")
    return _texts(headers, [_row(members) for members in groups], ["|".join(_cells(members)) for members in groups])


def other_scopes_table(verdicts: Sequence[Verdict]) -> Table:
    """What the same claims come to elsewhere: the other phases, batchings, policies and engines."""
    found = [(verdict.claim.question, other) for verdict in verdicts for other in verdict.others]
    rows = [(question, other.answer, other.subject, _effect(other), scope_text(other.scope), other.reason) for question, other in found]
    headers = ("question", "answer", "about", "effect", "where", "why")
    return _texts(headers, rows)


def _texts(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], row_ids: Sequence[str] = ()) -> Table:
    """A table without numbers, the column `answer` in colour."""
    badges = tuple(header == "answer" for header in headers)
    return Table(headers=headers, numeric=(False,) * len(headers), rows=tuple(rows), badges=badges, row_ids=tuple(row_ids))


def verdicts_json(study: Study) -> dict[str, Any]:
    """`verdicts.json`: every verdict with its claim, its figures and the ids of its rows, and what the other scopes say."""
    return {
        "run": study.name,
        "created": study.plan.created,
        "command": study.plan.command,
        "quick": study.plan.settings.quick,
        "answer": sentence(study.verdicts, study.doubt),
        "verdicts": [_verdict_json(verdict) for verdict in study.verdicts],
    }


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
    num_cells = len(_cells(members))
    several = len(findings) > 1
    reasons = dict.fromkeys(f"{_about(finding)}: {finding.reason}" if several else finding.reason for finding in findings)
    scopes = "; ".join(dict.fromkeys(scope_text(finding.scope) for finding in findings if finding.scope))
    return (
        first.claim.question,
        first.answer,
        "; ".join(f"{_about(finding)}: {_effect(finding)}" if finding.estimate else _about(finding) for finding in findings),
        f"{' '.join(reasons)}{f' ({scopes})' if scopes else ''}",
        f"{num_cells} rows" if num_cells else "",
    )


def _cells(members: Sequence[Verdict]) -> list[str]:
    return list(dict.fromkeys(cell for verdict in members for cell in verdict.finding.cells))


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
    texts = [f"{_shares(found)} of {model}'s FLOPs" for model, found in shares.items() if found]
    if not texts:
        return ""
    lead = "gMLP does not escape n^2, both are quadratic" if len(texts) == 2 else "its FLOPs are quadratic in n"
    return f"{lead}: n^2 holds {' and '.join(texts)}{_homes(verdicts)}"


def _shares(found: Sequence[Finding]) -> str:
    """Shares at the length where each grid ends, from the smallest."""
    by_end: dict[str, list[float]] = {}
    for finding in found:
        if finding.estimate:
            by_end.setdefault(finding.effect.removeprefix("share of n^2 "), []).append(finding.estimate.estimate)
    texts = [f"{_range(shares)} ({end})" for end, shares in by_end.items()]
    return ", ".join(texts)


def _range(shares: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(numbers.percent(share) for share in (min(shares), max(shares))))


def _homes(verdicts: Sequence[Verdict]) -> str:
    """Where n^2 is stored, as far as every model that was judged agrees."""
    texts = [
        text
        for names, text in (
            (("gmlp_weights_quadratic", "gmlp_activations_linear"), "gMLP keeps its n^2 in weights"),
            (("explicit_attention_memory_quadratic",), "explicit attention in activations"),
            (("fused_attention_memory_linear",), "fused attention stores next to none"),
        )
        if all(_all_supported(verdicts, name) for name in names)
    ]
    return f"; {', '.join(texts)}" if texts else ""


def _all_supported(verdicts: Sequence[Verdict], name: str) -> bool:
    found = _of(verdicts, name)
    return bool(found) and all(verdict.answer == SUPPORTED for verdict in found)


def _time(verdicts: Sequence[Verdict]) -> str:
    """Whose time is shown to be quadratic and whose not; where no polynomial fits, how fast it grows at the end of the grid."""
    found = [verdict for name in ("attention_time_quadratic", "gmlp_time_quadratic") for verdict in _of(verdicts, name)]
    named = {answer: [v.finding.subject for v in found if v.answer == answer] for answer in (SUPPORTED, REFUTED)}
    texts = [
        f"the time of {' and '.join(named[SUPPORTED])} is quadratic as well" if named[SUPPORTED] else "",
        f"that of {' and '.join(named[REFUTED])} is not, this far" if named[REFUTED] else "",
        _slopes([verdict.finding for verdict in found]),
    ]
    return ", ".join(text for text in texts if text)


def _slopes(found: Sequence[Finding]) -> str:
    by_step: dict[tuple[int, int], list[str]] = {}
    for finding in found:
        if (slope := finding.slope) is not None:
            by_step.setdefault((slope.shorter, slope.longer), []).append(f"n^{slope.exponent.estimate:.2f} for {finding.subject}")
    steps = [f"between n = {shorter} and {longer} it grows as {', '.join(texts)}" for (shorter, longer), texts in by_step.items()]
    return f"no polynomial is shown to fit the time, but {'; '.join(steps)}" if steps else ""


def _hidden(verdicts: Sequence[Verdict]) -> str:
    texts = [f"{v.finding.subject} up to n = {length}" for v in _of(verdicts, "quadratic_hidden_below") if (length := _length(v))]
    return f"the quadratic term stays under 10 % of the time of {', '.join(texts)}" if texts else ""


def _length(verdict: Verdict) -> str:
    """The largest n with a share that is surely small."""
    estimate = verdict.finding.estimate
    return f"{estimate.low:.0f}" if verdict.answer == SUPPORTED and estimate is not None else ""


def _speed(verdicts: Sequence[Verdict]) -> str:
    """Where gMLP is faster at matched size, and by how much at the longest length with the shape kept."""
    found = _of(verdicts, "gmlp_faster_than_vit")
    matched = [v.finding for v in found if v.finding.scope.get("match") != KEPT]
    texts = [
        f"at matched size ({scope_text(finding.scope)}) {finding.reason.partition('.')[0]}, compared with {_other(finding)}"
        for finding in matched[:1]
    ]
    kept = [finding for v in found if (finding := _first_kept(v)) is not None]
    if kept:
        ratios = [f"{_plain(finding.estimate.estimate)} times as long as {_other(finding)}" for finding in kept if finding.estimate]
        texts.append(f"with the shape kept it takes, {kept[0].effect.removeprefix('ratio of times ')}, {' and '.join(ratios)}")
    return "; ".join(texts)


def _first_kept(verdict: Verdict) -> Finding | None:
    """What the shape kept gives in the scope that speaks: inference, eager, fixed batch, the longest grid."""
    found = [finding for finding in (verdict.finding, *verdict.others) if finding.scope.get("match") == KEPT and finding.estimate]
    wanted = [finding for finding in found if finding.scope.get("phase") == "infer" and finding.scope.get("engine") == "eager"]
    return max(wanted, key=lambda finding: (str(finding.scope.get("batching")).startswith("batch"), len(finding.cells)), default=None)


def _other(finding: Finding) -> str:
    return finding.subject.partition(" / ")[2]


def _quality(verdicts: Sequence[Verdict]) -> str:
    texts = [
        f"{'matches' if v.answer == SUPPORTED else 'does not match'} ViT's accuracy on {v.finding.scope.get('task')} at n = {v.finding.n}"
        for v in _of(verdicts, "gmlp_matches_vit_accuracy")
        if v.answer != UNDECIDED
    ]
    return f"gMLP {', '.join(texts)}" if texts else ""

"""Write the verdicts on all claims as text, table and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import numbers
from bench.analysis.claims import ANSWERS, REFUTED, SUPPORTED, UNDECIDED, Estimate, Verdict
from bench.analysis.frame import scope_text
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.report.sections.wording import join_names, spell_out_policy
from bench.report.tables import Table
from bench.serialize import to_json

TABLE_ORDER = (REFUTED, SUPPORTED, UNDECIDED)
ONE_WIDTH = "shape"
"""The policy of matching with the same width at every n."""


def sentence(verdicts: Sequence[Verdict], caveat: str = "") -> str:
    """Answer the decided claims on quadratic cost in a few sentences.

    They cover growth, speed and accuracy. `caveat`: why times support no claim; if given, nothing timed is mentioned.
    """
    timed = () if caveat else (_time(verdicts), _hidden_quadratic(verdicts), _speed(verdicts))
    texts = (_growth(verdicts), *timed, _quality(verdicts))
    return " ".join(filter(None, texts)) or (
        "This run decides none of the claims about quadratic cost; the table lists the data that each claim needs."
    )


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return one row per verdict of any kind, decided ones first.

    Verdicts of one answer keep their order. Empty columns are left out.
    """
    verdicts = sorted(verdicts, key=lambda verdict: TABLE_ORDER.index(verdict.answer))
    columns: dict[str, list[str]] = {
        "answer": [v.answer for v in verdicts],
        "claim": [v.claim.question for v in verdicts],
        "about": [v.about + (f", n = {v.n}" if v.n is not None else "") for v in verdicts],
        "measured": ["; ".join(estimate_text(estimate) for estimate in v.estimates) for v in verdicts],
        "where": [v.scope.get("part") or spell_out_policy(scope_text(v.scope)) for v in verdicts],
        "why": [v.reason for v in verdicts],
        "predicted because": [v.claim.because for v in verdicts],
        "rows": [f"{len(v.cells)} rows" if v.cells else "" for v in verdicts],
    }
    kept = {header: texts for header, texts in columns.items() if any(texts)}
    return Table(
        headers=tuple(kept),
        numeric=(False,) * len(kept),
        rows=tuple(zip(*kept.values(), strict=True)),
        badges=tuple(header == "answer" for header in kept),
        row_ids=tuple("|".join(v.cells) for v in verdicts),
    )


FIGURES: Mapping[str, Callable[[float], str]] = {
    "difference": lambda value: f"{value:+.3f}",
    "share": numbers.percent,
    "exponent": lambda value: f"{value:.2f}",
    "length": lambda value: f"{value:,.0f}",
    "error": lambda value: f"{value:.1e}" if value else "0",
}


def estimate_text(estimate: Estimate) -> str:
    """Write an estimate as `n = 17: +0.021 [+0.010, +0.032]`."""
    figure = interval_text(estimate.value, estimate.unit)
    return f"{estimate.name}: {figure}" if estimate.name else figure


def interval_text(found: Interval, unit: str) -> str:
    """Write an interval as `+0.021 [+0.010, +0.032]`.

    Exact figures and figures with an infinite bound have no brackets; exact differences keep theirs.
    """
    bounded = math.isfinite(found.high) and (found.low < found.high or unit == "difference")
    if unit == "ratio":
        return numbers.ratio(found.estimate, *((found.low, found.high) if bounded else ()))
    text = FIGURES[unit]
    return text(found.estimate) + (f" [{text(found.low)}, {text(found.high)}]" if bounded else "")


def verdicts_json(study: Study) -> dict[str, Any]:
    """Return `verdicts.json`: verdicts with claims, figures, row ids and other scopes."""
    return {
        "run": study.name,
        "created": study.plan.created,
        "command": study.plan.command,
        "quick": study.plan.settings.quick,
        "answer": answer_sentence(study.prediction_verdicts) or sentence(study.verdicts, study.caveat),
        "verdicts": [{**_claim_json(verdict), **_verdict_json(verdict)} for verdict in study.verdicts],
        "predictions": [{**_claim_json(verdict), **_verdict_json(verdict)} for verdict in study.prediction_verdicts],
    }


def _claim_json(verdict: Verdict) -> dict[str, Any]:
    return {"claim": {name: text for name, text in to_json(verdict.claim).items() if text}}


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
    """Return estimate and bounds; infinite bounds (of one seed) become null."""
    bounds = {"estimate": found.estimate, "low": found.low, "high": found.high}
    return {name: float(value) if math.isfinite(value) else None for name, value in bounds.items()}


def plain_value(value: Any) -> Any:
    """Turn a numpy scalar into a plain Python value."""
    return value.item() if hasattr(value, "item") else value


MAX_NAMED = 6


def answer_sentence(verdicts: Sequence[Verdict]) -> str:
    """Count the answers to predictions and name the decided ones.

    Returns "" without predictions.
    """
    if not verdicts:
        return ""
    named = {answer: [verdict for verdict in verdicts if verdict.answer == answer] for answer in ANSWERS}
    counts = ", ".join(f"{len(found)} {answer}" for answer, found in named.items() if found)
    several = len({verdict.scope["part"] for verdict in verdicts}) > 1
    texts = [f"Of {len(verdicts)} {'prediction' if len(verdicts) == 1 else 'predictions'}: {counts}."]
    for answer, lead in ((SUPPORTED, "As predicted"), (REFUTED, "Against the prediction")):
        if found := named[answer]:
            more = f"; {len(found) - MAX_NAMED} more in the table" if len(found) > MAX_NAMED else ""
            texts.append(f"{lead}: {'; '.join(_in_words(verdict, several) for verdict in found[:MAX_NAMED])}{more}.")
    return " ".join(texts)


def _in_words(verdict: Verdict, several: bool) -> str:
    figures = "; ".join(interval_text(found.value, found.unit) for found in verdict.estimates[:2])
    more = f"; {len(verdict.estimates) - 2} more" if len(verdict.estimates) > 2 else ""
    part = f"{verdict.scope['part']}: " if several else ""
    return f"{part}{verdict.about}: {verdict.claim.question} ({figures}{more})"


def _claimed(verdicts: Sequence[Verdict], name: str) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.claim.name == name and verdict.about]


def _growth(verdicts: Sequence[Verdict]) -> str:
    """Say which models have quadratic FLOPs and where their n^2 terms live."""
    names = {"attention": "attention_flops_quadratic", "gMLP": "gmlp_flops_quadratic"}
    shares = {model: [v for v in _claimed(verdicts, name) if v.answer == SUPPORTED] for model, name in names.items()}
    found = {model: verdicts for model, verdicts in shares.items() if verdicts}
    if not found:
        return ""
    both = "gMLP does not escape n^2: its FLOPs are quadratic in n like attention's."
    lead = both if len(found) == 2 else _as_sentence(f"{next(iter(found))}'s FLOPs are quadratic in n")
    shares_text = join_names([_shares(f"{model}'s FLOPs", supported) for model, supported in found.items()])
    return " ".join(filter(None, (lead, f"The n^2 terms hold {shares_text}.", _storage(verdicts))))


def _shares(whole: str, found: Sequence[Verdict]) -> str:
    """Write `86 % to 87 % of WHOLE at n = 4097`.

    Grids that end at different n get separate texts.
    """
    by_end: dict[str, list[float]] = {}
    for share in (estimate for verdict in found for estimate in verdict.estimates if estimate.unit == "share"):
        by_end.setdefault(share.name.removeprefix("share of n^2 "), []).append(share.value.estimate)
    ranges = {end: dict.fromkeys(numbers.percent(share) for share in (min(shares), max(shares))) for end, shares in by_end.items()}
    return ", ".join(f"{' to '.join(texts)} of {whole} {end}" for end, texts in ranges.items())


def _storage(verdicts: Sequence[Verdict]) -> str:
    """Say where n^2 values are stored, if all judged models agree."""
    homes = (
        (("gmlp_weights_quadratic", "gmlp_activations_linear"), "gMLP stores n^2 weights"),
        (("explicit_attention_memory_quadratic",), "explicit attention stores n^2 activations"),
        (("fused_attention_memory_linear",), "fused attention stores almost no n^2 activations"),
    )
    answers = {name: {verdict.answer for verdict in _claimed(verdicts, name)} for names, _ in homes for name in names}
    texts = [text for names, text in homes if all(answers[name] == {SUPPORTED} for name in names)]
    return _as_sentence(join_names(texts)) if texts else ""


def _as_sentence(text: str) -> str:
    """Add a period, and a capital unless the text starts with gMLP."""
    return f"{text if text.startswith('gMLP') else text[:1].upper() + text[1:]}."


def _time(verdicts: Sequence[Verdict]) -> str:
    """Name the models with and without a time quadratic in n.

    Where no polynomial fits, give the last local exponent of the grid.
    """
    found = [verdict for name in ("attention_time_quadratic", "gmlp_time_quadratic") for verdict in _claimed(verdicts, name)]
    named = {answer: [v.about for v in found if v.answer == answer] for answer in (SUPPORTED, REFUTED)}
    by_step: dict[str, list[str]] = {}
    for verdict in found:
        for step in (estimate for estimate in verdict.estimates if estimate.unit == "exponent"):
            by_step.setdefault(step.name.removeprefix("local exponent "), []).append(f"n^{step.value.estimate:.2f} for {verdict.about}")
    texts = [
        f"The time of {join_names(named[SUPPORTED])} is quadratic in n." if named[SUPPORTED] else "",
        f"The time of {join_names(named[REFUTED])} is not quadratic at these n." if named[REFUTED] else "",
        *(
            _as_sentence(f"{step}, where no polynomial is shown to fit, time grows as {join_names(powers)}")
            for step, powers in by_step.items()
        ),
    ]
    return " ".join(filter(None, texts))


def _hidden_quadratic(verdicts: Sequence[Verdict]) -> str:
    """Name the largest n with a small quadratic share of time."""
    found = [v for v in _claimed(verdicts, "quadratic_hidden_below") if v.answer == SUPPORTED and v.estimates]
    texts = [f"of {verdict.about} up to n = {verdict.estimates[0].value.low:.0f}" for verdict in found]
    return f"The quadratic term stays under 10 % of the time {join_names(texts)}." if texts else ""


def _speed(verdicts: Sequence[Verdict]) -> str:
    """Compare gMLP's time at matched size, then at one width."""
    found = _claimed(verdicts, "gmlp_faster_than_vit")
    matched = [verdict for verdict in found if verdict.scope.get("match") != ONE_WIDTH]
    texts = [
        f"Compared with {_other(v)} at matched size ({spell_out_policy(scope_text(v.scope))}), {v.reason.partition('.')[0]}."
        for v in matched[:1]
    ]
    kept = [first for verdict in found if (first := _at_one_width(verdict)) is not None]
    if kept:
        ratios = [f"{verdict.estimates[0].value.estimate:.3f} times as long as {_other(verdict)}" for verdict in kept]
        place = kept[0].estimates[0].name.removeprefix("ratio of times ")
        texts.append(f"With the same width at every n, gMLP takes {join_names(ratios)} {place}.")
    return " ".join(texts)


def _at_one_width(verdict: Verdict) -> Verdict | None:
    """Return the verdict at one width; None without one.

    Only eager inference counts; a fixed batch is preferred, then the longest grid.
    """
    found = [v for v in (verdict, *verdict.others) if v.scope.get("match") == ONE_WIDTH and v.estimates]
    wanted = [v for v in found if (v.scope.get("phase"), v.scope.get("engine")) == ("infer", "eager")]
    return max(wanted, key=lambda v: (str(v.scope.get("batching")).startswith("batch"), len(v.cells)), default=None)


def _other(verdict: Verdict) -> str:
    return verdict.about.partition(" / ")[2]


def _quality(verdicts: Sequence[Verdict]) -> str:
    words = {SUPPORTED: "matches", REFUTED: "does not match"}
    texts = [
        f"{words[v.answer]} ViT's accuracy on {v.scope.get('task')} at n = {v.n}"
        for v in _claimed(verdicts, "gmlp_matches_vit_accuracy")
        if v.decided
    ]
    return f"gMLP {join_names(texts)}." if texts else ""

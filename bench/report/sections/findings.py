"""Fill the sentences by which a question is answered (`bench.questions.Finding`) with a run's effects."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bench import catalog, numbers
from bench.analysis.effects import Effect
from bench.analysis.study import Study
from bench.questions import Asked, Finding, LeastState, PaysFrom
from bench.report.sections.wording import effect_number, effect_text
from bench.spec import Part, Plan

LATENCY = "latency_ms"
NOT_SIGNIFICANT = "not significant"


def finding_sentences(study: Study) -> Iterator[str]:
    """Yield the sentences of the question's file for which the run has every effect."""
    for finding in findings_of(study.plan):
        values = [_text(one, study) for one in finding.about]
        if all(values):
            yield finding.text.format(*values)


def findings_of(plan: Plan) -> tuple[Finding, ...]:
    """Return the findings of the plan's question; () without a question of `ablations/`."""
    if plan.name not in catalog.names("ablations"):
        return ()
    found: tuple[Finding, ...] = catalog.load("ablations", plan.name).ABLATION.findings
    return found


def asked_pairs(study: Study, part: Part, measure: str) -> set[tuple[str, str]]:
    """Return the pairs of a part's variants that findings and predictions ask about; empty unless a finding names another one than the baseline.

    A question with a baseline for each family then shows what it asks, and no family against another's baseline.
    """
    about = [one for finding in findings_of(study.plan) for one in finding.about]
    named = [
        (one.arm, one.against or part.baseline)
        for one in about
        if isinstance(one, Asked) and (one.part, one.measure) == (part.name, measure)
    ]
    if all(against == part.baseline for _, against in named):
        return set()
    return {*named, *((found.arm, found.against) for found in study.predictions if (found.part, found.measure) == (part.name, measure))}


def _text(asked: Asked | PaysFrom | LeastState, study: Study) -> str:
    if isinstance(asked, PaysFrom):
        return pays_from_text(asked, study)
    return least_state_text(asked, study) if isinstance(asked, LeastState) else _effect_text(asked, study)


def least_state_text(asked: LeastState, study: Study) -> str:
    """Write `solves it from 4 KiB` or `does not with 33 KiB`; of the largest state that is open, how many seeds solve it.

    "" without every arm's seeds. They decide by the interval of their share (`bench.analysis.accuracy.Solved`).
    """
    part = next((part for part in study.plan.parts if part.name == asked.part), None)
    cells = {arm.name: arm.cells[0] for arm in part.arms if len(arm.cells) == 1} if part else {}
    if not all(cells.get(name) in study.solved for name in asked.arms):
        return ""
    states = sorted((float(study.row_by_cell[cells[name]]["state_bytes"]), name) for name in asked.arms)
    enough = [(state, name) for state, name in states if study.solved[cells[name]].is_by_most]
    if not enough:
        state, arm = next(((state, name) for state, name in reversed(states) if study.solved[cells[name]].is_by_most is None), states[-1])
        found, size = study.solved[cells[arm]], numbers.bytes_text(state)
        return f"does not with {size}" if found.is_by_most is False else f"is open ({found.num} of {found.of} seeds)"
    state, _ = enough[0]
    return f"solves it {'with' if enough[0] == states[0] else 'from'} {numbers.bytes_text(state)}"


def _effect_text(asked: Asked, study: Study) -> str:
    """Write `-8.4 points [-10.5, -6.2]` or `+0.1 points (not significant)`; "" without exactly one such effect."""
    found = [effect for effect in _effects(asked, study) if effect.measure.name == asked.measure]
    found = [effect for effect in found if asked.seq_len in (None, effect.contrast.seq_len)]
    for key, wanted in (("model", asked.model), ("phase", asked.phase)):
        found = [effect for effect in found if not wanted or effect.contrast.place.get(key) == wanted]
    if len(found) != 1:
        return ""
    (effect,) = found
    value, estimate = effect_text(effect), effect.estimate
    if effect.caveat:
        return f"{value} ({effect.caveat.partition(':')[0]})"
    if not effect.shown:
        return f"{value} ({NOT_SIGNIFICANT})"
    if estimate.low == estimate.high or math.isinf(estimate.high):
        return value
    return f"{value} [{', '.join(effect_number(bound, effect.measure) for bound in (estimate.low, estimate.high))}]"


def pays_from_text(asked: PaysFrom, study: Study) -> str:
    """Write `between 64 and 256`: the measured lengths between which the decision changes; "" where times decide none."""
    slower, faster = _turn(asked, study)
    if not faster:
        return f"beyond {slower}" if slower else ""
    return f"between {slower} and {faster}" if slower else f"at {faster} or less"


def paying_from(study: Study) -> dict[str, int]:
    """Return, by label, the length from which on a variant is faster than its baseline, of the variants that findings ask so about."""
    found: dict[str, int] = {}
    for asked in (one for finding in findings_of(study.plan) for one in finding.about if isinstance(one, PaysFrom)):
        _, faster = _turn(asked, study)
        cells = [
            cell for part in study.plan.parts if part.name == asked.part for arm in part.arms if arm.name == asked.arm for cell in arm.cells
        ]
        if faster and cells:
            found[str(study.row_by_cell[cells[0]]["label"])] = faster
    return found


def _turn(asked: PaysFrom, study: Study) -> tuple[int, int]:
    """Return the last length at which the variant is slower, and the first from which on it is faster, both significantly; 0 without one.

    Of a variant that is slower at the longest length that is the last; where nothing is decided there, both are 0.
    """
    found = sorted((effect for effect in _effects(asked, study) if effect.measure.name == LATENCY), key=lambda one: one.contrast.seq_len)
    if not found or any(effect.estimate.is_open for effect in found) or not found[-1].shown:
        return 0, 0
    start = len(found)
    while start and found[start - 1].shown and found[start - 1].distance < 0:
        start -= 1
    slower = [effect.contrast.seq_len for effect in found[:start] if effect.shown and effect.distance > 0]
    return (slower[-1] if slower else 0), (found[start].contrast.seq_len if start < len(found) else 0)


def _effects(asked: Asked | PaysFrom, study: Study) -> list[Effect]:
    baselines = {part.name: part.baseline for part in study.plan.parts}
    pair = (asked.part, asked.arm, asked.against or baselines.get(asked.part, ""))
    return [effect for effect in study.effects if (effect.contrast.part, effect.contrast.arm, effect.contrast.against) == pair]

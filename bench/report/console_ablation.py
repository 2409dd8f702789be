"""Show on the terminal how a run answers the question of its ablation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench import console
from bench.analysis.effects import QUALITIES, Effect, place_text
from bench.analysis.study import Study
from bench.questions import MEASURES, Question
from bench.report.sections.ablation import effect_table
from bench.report.sections.verdicts import interval_text

MAX_ROWS = 20
"""Most configurations of which each has a row."""
MAX_SHOWN = 6
"""Most effects on quality and on latency each that have a row."""


def show_ablation(question: Question, study: Study) -> None:
    """Print the question and the effects that are shown."""
    console.print_lines(question.text)
    parts = study.plan.parts
    if all(part.arms for part in parts) and sum(len(arm.cells) for part in parts for arm in part.arms) <= MAX_ROWS:
        _show_variants(study)
    _show_effects(study.effects)


def _show_variants(study: Study) -> None:
    for part in study.plan.parts:
        table = effect_table(part, [effect for effect in study.effects if effect.contrast.part == part.name], study)
        console.print_table(table.headers, table.rows, table.numeric, title=f"\n{part.name}: every variant against {part.baseline}")


def _show_effects(effects: Sequence[Effect]) -> None:
    """Print the largest effects on quality and latency that are shown, one per pair of variants."""
    measured = [effect for effect in effects if not effect.is_exact]
    largest: dict[tuple[bool, frozenset[str]], Effect] = {}
    for effect in sorted((effect for effect in measured if effect.shown), key=_rank):
        largest.setdefault((_is_quality(effect), frozenset((effect.contrast.arm, effect.contrast.against))), effect)
    kinds = [[effect for effect in largest.values() if _is_quality(effect) is kind] for kind in (True, False)]
    rows = [_row(effect) for kind in kinds for effect in kind[:MAX_SHOWN]]
    if not rows:
        if not measured:  # of counts alone, which are exact
            return
        console.print_lines("", f"No effect on quality or latency is significant{_commonest_caveat(measured)}.")
        return
    title = "\nSignificant effects, the largest of each pair; intervals: 95 %, together for the variants at one place"
    console.print_table(("measure", "effect", "variant", "against", "part", "where"), rows, (False, True, *[False] * 4), title=title)
    if num_more := sum(effect.shown for effect in measured) - len(rows):
        console.print_lines(f"{num_more} more on the page and in effects.json")


def _row(effect: Effect) -> tuple[str, ...]:
    found = effect.contrast
    size = interval_text(effect.estimate, effect.measure.unit)
    return (effect.measure.title, size, found.arm, found.against, found.part, place_text(found.place))


def _is_quality(effect: Effect) -> bool:
    return effect.measure.name in QUALITIES


def _rank(effect: Effect) -> tuple[int, float]:
    """Rank effects by measure, the first quality first, then by their size."""
    return list(MEASURES).index(effect.measure.name), -effect.size


def _commonest_caveat(effects: Sequence[Effect]) -> str:
    caveats = Counter(effect.caveat for effect in effects if effect.caveat).most_common(1)
    return f" ({caveats[0][0]})" if caveats else ""

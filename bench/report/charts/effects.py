"""Draw the effects of an ablation's variants on one measure.

In code a variant is an arm (`bench.spec.PlannedArm`).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis.effects import QUALITIES, Contrast, Effect, place_text
from bench.analysis.study import Study
from bench.questions import EQUAL, Measure
from bench.report.charts.forest import Row, draw_forest
from bench.report.charts.style import GREY, TEAL
from bench.report.document import FigureBlock
from bench.report.sections.findings import asked_pairs
from bench.report.sections.wording import effect_text, effects_title, join_names, variant_name

MAX_ROWS = 12
MEASURED_COSTS = ("latency_ms", "activation_bytes", "flops")


def draw_effects(study: Study) -> FigureBlock | None:
    """Draw the effects on the run's first measure; None without effects.

    A run with peers has a figure of its own.
    """
    effects = shown_effects(study) if study.peers is None else []
    if not effects:
        return None
    measure = effects[0].measure
    parts = [part.name for part in study.plan.parts]
    rows = sorted(largest(effects), key=lambda effect: (parts.index(effect.contrast.part), -effect.distance))
    several = len({effect.contrast.part for effect in rows}) > 1
    in_pairs = _has_pairs(study, effects)
    return FigureBlock(
        name="effects",
        title=effects_title(effects),
        caption=_caption(study, effects, len(rows)),
        figure=draw_forest(
            [_row(effect, several, in_pairs) for effect in rows],
            neutral=effects[0].neutral,
            band=_margin(study, measure),
            axis_label=f"{measure.title}, {measure.unit}{'' if in_pairs else ' to the baseline'}{' (points)' if measure.in_points else ''}",
            tick_text=lambda value: f"{100 * value:g}" if measure.in_points else f"{value:g}",
        ),
    )


def shown_effects(study: Study) -> list[Effect]:
    """Choose one measure, and one place per part, by rule.

    The measure is the first quality, else the first cost; the place the longest n, at inference if the phase varies, then the smallest batch.
    Where variants have several models, all of them are at that place. Variants are set against their part's baseline, or against those that the
    question's findings name.
    """
    measured = {effect.measure.name for effect in study.effects}
    name = next((name for name in (*QUALITIES, *MEASURED_COSTS) if name in measured), "")
    chosen = []
    for part in study.plan.parts:
        members = [effect for effect in study.effects if (effect.contrast.part, effect.measure.name) == (part.name, name)]
        if asked := asked_pairs(study, part, name):
            members = [effect for effect in members if (effect.contrast.arm, effect.contrast.against) in asked]
        else:
            members = [effect for effect in members if effect.contrast.against == part.baseline]
        if members:
            first = min((effect.contrast for effect in members), key=lambda contrast: _preference(contrast.seq_len, contrast.place))
            chosen += [effect for effect in members if _without_model(effect.contrast) == _without_model(first)]
    return chosen


def _without_model(contrast: Contrast) -> dict[str, Any]:
    """Return the place of an effect, whichever model of its variant it is of."""
    keys = ("model", "attention") if "model" in contrast.place else ()
    return {key: value for key, value in contrast.place.items() if key not in keys}


def largest(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects to draw, those that are shown first, then by size."""
    return sorted(effects, key=lambda effect: (not effect.shown, -effect.size))[:MAX_ROWS]


def _preference(seq_len: int, place: Mapping[str, Any]) -> tuple[bool, int, float, str]:
    return place.get("phase", "infer") != "infer", -seq_len, place.get("batch_size", 0.0), place_text(place)


def _has_pairs(study: Study, effects: Sequence[Effect]) -> bool:
    """Return whether some variant is set against another than its part's baseline, so that each row names both."""
    baselines = {part.name: part.baseline for part in study.plan.parts}
    return any(effect.contrast.against != baselines[effect.contrast.part] for effect in effects)


def _row(effect: Effect, several_parts: bool, in_pairs: bool) -> Row:
    group = effect.contrast.part if several_parts else ""
    against = f" / {_without_prefix(effect.contrast)}" if in_pairs else ""
    return Row(
        label=variant_name(effect) + against,
        interval=effect.estimate,
        color=TEAL if effect.shown else GREY,
        text=effect_text(effect).removesuffix(" points"),
        group=group,
    )


def _without_prefix(contrast: Contrast) -> str:
    """Return what tells the other variant from this one: `fp32` of `gMLP, fp32`, beside `gMLP, bf16`."""
    own, other = contrast.arm.split(", "), contrast.against.split(", ")
    alike = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(own, other, strict=False))))
    return ", ".join(other[min(alike, len(other) - 1) :])


def _caption(study: Study, effects: Sequence[Effect], num_rows: int) -> str:
    places = join_names(list(dict.fromkeys(filter(None, (place_text(_without_model(effect.contrast)) for effect in effects)))))
    named = join_names(list(dict.fromkeys(effect.contrast.against for effect in effects)))
    baselines = "the variant behind the stroke" if _has_pairs(study, effects) else named
    cut = f"; the {num_rows} largest of {len(effects)}" if num_rows < len(effects) else ""
    margin = _margin(study, effects[0].measure)
    by = f"{100 * margin:g} {'points' if effects[0].measure.in_points else '%'}"
    return (
        f"{f'At {places}, a' if places else 'A'}gainst {baselines}{cut}. "
        f"Bars are 95 % intervals, together for the variants at one place; grey: not significant{f'; band: equal within {by}' if margin else ''}."
    )


def _margin(study: Study, measure: Measure) -> float:
    """Return the commonest margin of the run's predictions of equality; 0 without any."""
    margins = [prediction.by for prediction in study.predictions if prediction.measure == measure.name and prediction.expected == EQUAL]
    return statistics.mode(margins) if margins else 0.0

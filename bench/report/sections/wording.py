"""Words shared by several sections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bench import numbers
from bench.analysis.effects import Effect
from bench.analysis.sizes import UnlikeSize
from bench.questions import Measure
from bench.report.charts.style import KERNELS, display_name
from bench.spec import AUTO, NO_ATTENTION

LINEAR, QUADRATIC = "n", "n\N{SUPERSCRIPT TWO}"
"""Growth, as guides and ticks of figures have it."""
SIZES = {"params": "equal parameters", "shape": "fixed shape", "flops": "equal FLOPs", "state": "equal state", "none": "sizes as given"}
"""Matching policies (`--match`) in words."""
POLICIES = {match: text if match == "none" else f"{text} at every n" for match, text in (SIZES | {"shape": "one shape"}).items()}
"""The same of models at several lengths."""
FEW = 2
"""So many shown effects are named in the title."""
SERIES = re.compile(rf"[\w.:=+-]+ \((?:{'|'.join(KERNELS)})\)")
"""A model with its attention kernel."""
POLICY_VALUE = re.compile(rf"\bmatch ({'|'.join(POLICIES)})\b")


def spell_out_policy(text: str) -> str:
    """Replace codes such as `match shape` by words."""
    return POLICY_VALUE.sub(lambda found: POLICIES[found[1]], text)


def spell_out_reason(text: str) -> str:
    """Replace the codes in a verdict's reason: `ViT (auto)` becomes `fused ViT`."""
    return SERIES.sub(lambda found: display_name(found[0]), spell_out_policy(text)).replace("n^2", "n²")


def spell_out_model(label: str) -> str:
    """Write a series as in prose: `fused ViT`, `depthwise convolution`, `DeiT-S at n = 197`."""
    series, _, n = label.partition(" (n = ")
    return display_name(series) + (f" at n = {n.removesuffix(')')}" if n else "")


def join_names(names: Sequence[str], word: str = "and") -> str:
    """Join names as `a, b and c`; "" without any."""
    return f" {word} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


MANY_TIMES = 2
"""A ratio of parameters above this is written as one."""


def size_note(found: Sequence[UnlikeSize]) -> str:
    """Write `net has 80 % fewer parameters than ViT`; "" if all sizes are alike."""
    return "; ".join(
        f"{spell_out_model(each.label)} has {_more_text(each.ratios)} {join_names([spell_out_model(label) for label in each.others])}"
        for each in found
    )


def _more_text(ratios: Sequence[float]) -> str:
    low, high = min(ratios), max(ratios)
    if (low < 1) != (high < 1) or high > MANY_TIMES:
        return f"{numbers.span(ratios)} times the parameters of"
    shares = sorted(100 * abs(ratio - 1) for ratio in (low, high))
    texts = dict.fromkeys(f"{share:.0f}" if share >= 10 else f"{share:.1f}" for share in shares)
    return f"{' to '.join(texts)} % {'fewer' if high < 1 else 'more'} parameters than"


def times_text(ratio: float) -> str:
    """Write a ratio for a title: `1.3×`."""
    return f"{numbers.significant(ratio, 2)}\N{MULTIPLICATION SIGN}"


def effect_text(effect: Effect) -> str:
    """Write an effect without its interval: `1.25×`, `-5.6 points` or `+0.012`."""
    unit = "\N{MULTIPLICATION SIGN}" if effect.measure.is_ratio else " points" if effect.measure.in_points else ""
    return effect_number(effect.estimate.estimate, effect.measure) + unit


def effect_number(value: float, measure: Measure) -> str:
    """Write a value of an effect without its unit."""
    if measure.is_ratio:
        return numbers.significant(value)
    return f"{100 * value:+.1f}" if measure.in_points else f"{value:+.3g}"


def variant_name(effect: Effect) -> str:
    """Name the variant, and the model where it has several: `2 blocks, ViT`."""
    place = effect.contrast.place
    if "model" not in place:
        return effect.contrast.arm
    kernel = "" if place.get("attention") in (None, AUTO, NO_ATTENTION) else f" ({place['attention']})"
    return f"{effect.contrast.arm}, {display_name(place['model'] + kernel)}"


def effects_title(effects: Sequence[Effect]) -> str:
    """Name the effects that are shown, or say how many are."""
    title, num = effects[0].measure.title, len(effects)
    shown = sorted((effect for effect in effects if effect.shown), key=lambda effect: effect.size, reverse=True)
    if not shown:
        return (
            f"None of {num} effects on {title} is significant"
            if num > 1
            else f"{variant_name(effects[0])} does not significantly change {title}"
        )
    if len(shown) <= FEW:
        names = join_names([f"{variant_name(effect)} ({effect_text(effect)})" for effect in shown])
        others = f"; {num - len(shown)} more open" if num > len(shown) else ""
        return f"{names} {'change' if len(shown) > 1 else 'changes'} {title}{others}"
    return f"{len(shown)} of {num} effects on {title} are significant; the largest is {variant_name(shown[0])} ({effect_text(shown[0])})"


def configurations_text(counts: Mapping[str, tuple[int, int]]) -> str:
    """Write `60 of 60 configurations in fp32 and 0 of 6 in bf16`.

    `counts`: by dtype, the configurations meant and all of them.
    """
    texts = [f"{found} of {num}{'' if i else ' configurations'} in {dtype}" for i, (dtype, (found, num)) in enumerate(counts.items())]
    return join_names(texts) or "no configuration"

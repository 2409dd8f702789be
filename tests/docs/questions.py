"""The smaller questions: effects that are shown, and how predictions fared."""

from __future__ import annotations

from collections.abc import Callable

from bench import numbers
from bench.analysis.effects import Effect
from tests.docs.reading import Figures, accuracy, arm_rows, arms, difference, outcomes, run, table

PRECISION = "2026-11-25_cpu_precision"
POSITIONS = "2026-11-26_cpu_positions"
RUNS = {
    "normalisation": "2026-11-25_cpu_normalisation",
}
"""By question, the run whose shown effects stand on the page."""


def shown_table(name: str) -> str:
    """Effects on accuracy that are shown against the part's baseline, largest first within a part."""
    known = run(name)
    baselines = {part.name: part.baseline for part in known.plan.parts}
    found = [effect for effect in known.effects if effect.measure.name == "accuracy" and effect.shown and _is_first(effect, baselines)]
    order = {part: place for place, part in enumerate(baselines)}
    found.sort(key=lambda effect: (order[effect.contrast.part], -effect.size))
    lines = [
        [part, effect.contrast.arm, effect.contrast.against, difference(name, part, effect.contrast.arm, effect.contrast.against)]
        for effect in found
        for part in [effect.contrast.part]
    ]
    return table(("part", "variant", "against", "accuracy"), lines, left=3)


def precision_table() -> str:
    part, lines = "photographs", []
    for title in ("gMLP", "ViT", "Transformer"):
        exact, rounded = (f"{title}, {name}" for name in ("fp32", "bf16"))
        scores = [accuracy(arm_rows(PRECISION, part, arm)[0]) for arm in (exact, rounded)]
        lines.append([title, *scores, difference(PRECISION, part, rounded, exact)])
    return table(("model", "fp32", "bf16", "difference"), lines)


def positions_table() -> str:
    parts = ("digits", "copy")
    lines = [[arm, *(accuracy(arm_rows(POSITIONS, part, arm)[0]) for part in parts)] for arm in arms(POSITIONS, parts[0])]
    return table(("mixer, positions", *parts), lines)


def _is_first(effect: Effect, baselines: dict[str, str]) -> bool:
    return effect.contrast.against == baselines[effect.contrast.part]


def num_compared(name: str) -> str:
    """Effects on accuracy that were estimated, all of them together at 95 %."""
    return numbers.whole(sum(effect.measure.name == "accuracy" for effect in run(name).effects))


def _of(name: str) -> dict[str, Callable[[], str]]:
    return {"shown": lambda: shown_table(name), "outcomes": lambda: outcomes(name), "compared": lambda: num_compared(name)}


FIGURES: Figures = {
    "precision": precision_table,
    "precision_outcomes": lambda: outcomes(PRECISION),
    "positions": positions_table,
    "positions_outcomes": lambda: outcomes(POSITIONS),
    **{f"{question}_{kind}": text for question, name in RUNS.items() for kind, text in _of(name).items()},
}

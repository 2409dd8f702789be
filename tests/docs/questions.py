"""The smaller questions: effects that are shown, and how predictions fared."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping

from bench import numbers
from bench.analysis.effects import Effect
from tests.docs.escape import ESCAPE, IMAGES_RUN
from tests.docs.reading import (
    ANSWER_WORDS,
    FAMILIES,
    Figures,
    Runs,
    accuracy,
    arm_rows,
    arms,
    difference,
    effect,
    exact,
    interval_text,
    num_outcomes,
    outcomes,
    run,
    table,
    together,
)

PRECISION = "2026-11-25_cpu_precision"
POSITIONS = "2026-11-26_cpu_positions"
SCALE = "2026-11-26_cpu_scale"
ATTENTION = ("2026-11-26_cpu_attention_cost", "2026-11-26_cpu_attention_accuracy")
TEXT = ("2026-11-26_cpu_text", "2026-11-26_cpu_text_masked", "2026-11-26_cpu_text_imdb")
MODES = ("2026-11-26_cpu_architecture_mode_cost", "2026-11-26_cpu_architecture_mode_accuracy")
KERNELS = (("backends", "auto"), ("masks", "no mask"))
"""Parts of the question about attention that are timed, and their baselines."""
FORMS = {"reverse": exact, "copy": exact, "shorter to longer": accuracy}
"""Parts of the question about forms that are trained, and what the page shows of each."""
RUNS = {
    "normalisation": "2026-11-25_cpu_normalisation",
}
"""By question, the run whose shown effects stand on the page."""
ANSWERS: Mapping[str, tuple[Runs, ...]] = {
    "sequence_length": ("2026-11-23_cpu_sequence_length",),
    "token_mixing": (("2026-11-26_cpu_token_mixing_cost", "2026-11-26_cpu_token_mixing_accuracy"),),
    "escape": (ESCAPE, IMAGES_RUN),
    "spatial_gating": ("2026-11-25_cpu_spatial_gating",),
    "vision_recipe": ("2026-11-21_cpu_vision_recipe", "2026-11-26_cpu_vision_recipe_whole"),
    "peers": ("2026-11-23_cpu_peers",),
    "precision": (PRECISION,),
    "attention": (ATTENTION,),
    "positions": (POSITIONS,),
    "normalisation": (RUNS["normalisation"],),
    "scale": (SCALE,),
    "architecture_mode": (MODES,),
    "text": (TEXT,),
}
"""By question, its current answers: each a run, or several that are read as one."""
TRAININGS = ("accuracy", "tuning")
"""The metrics that train a model."""


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


def answers_table() -> str:
    """How predictions fared, and what the answers took."""
    lines = []
    for question, answers in ANSWERS.items():
        counts = sum(map(num_outcomes, answers), Counter())
        records = [record for of in answers for record in together(of).records]
        trained = [record for record in records if record.metric in TRAININGS]
        # a training that was interrupted lasted only its last stretch, but took what its checkpoint knows
        hours = sum(max(record.outcome.duration_s or 0, record.outcome.values.get("train_s") or 0) for record in records) / 3600
        flops = sum(record.outcome.values.get("train_flops") or 0 for record in trained)
        fared = [str(counts[answer]) if counts else "" for answer in ANSWER_WORDS]
        lines.append([f"`{question}`", *fared, f"{hours:.1f}", str(len(trained)), numbers.count(flops) if flops else ""])
    return table(("question", *ANSWER_WORDS, "hours", "trainings", "their FLOPs"), lines)


def precision_table() -> str:
    part, lines = "photographs", []
    for title in ("gMLP", "ViT", "Transformer"):
        exact, rounded = (f"{title}, {name}" for name in ("fp32", "bf16"))
        scores = [accuracy(arm_rows(PRECISION, part, arm)[0]) for arm in (exact, rounded)]
        lines.append([title, *scores, difference(PRECISION, part, rounded, exact)])
    return table(("model", "fp32", "bf16", "difference"), lines)


def scores_table(of: Runs, first: str, parts: Mapping[str, str]) -> str:
    """Accuracies of variants, a column for each part and length; `parts` says by header which part it is."""
    names = arms(of, next(iter(parts.values())))
    lengths = {header: [row["seq_len"] for row in arm_rows(of, part, names[0])] for header, part in parts.items()}
    headers = [f"{header}, n = {n:.0f}" if len(found) > 1 else header for header, found in lengths.items() for n in found]
    lines = [[arm, *(accuracy(row) for part in parts.values() for row in arm_rows(of, part, arm))] for arm in names]
    return table((first, *headers), lines)


def kernels_table() -> str:
    """Time and activations of attention's kernels and masks at n = 1024, over the part's baseline."""
    lines = []
    for part, against in KERNELS:
        for arm in (name for name in arms(ATTENTION, part) if name != against):
            time, activations = (
                effect(ATTENTION, part, arm, against, measure, 1024).estimate for measure in ("latency_ms", "activation_bytes")
            )
            lines.append([arm, against, interval_text(time), f"{activations.estimate:.2f}"])
    return table(("variant", "against", "time", "activations"), lines, left=2)


def scale_table() -> str:
    lines = [
        [part, arm, *(accuracy(next(found for found in arm_rows(SCALE, part, arm) if found["model"] == family)) for family in FAMILIES)]
        for part in ("parameters", "depth at fixed parameters")
        for arm in arms(SCALE, part)
    ]
    return table(("part", "variant", "gMLP", "ViT", "Transformer"), lines, left=2)


def forms_table() -> str:
    """Answers by form and task, with the cost of one pass."""
    lines = []
    for arm in arms(MODES, "reverse"):
        scores = [form(arm_rows(MODES, part, arm)[0]) if arm in arms(MODES, part) else "" for part, form in FORMS.items()]
        costs = ["1", "1"]
        if arm != "encoder-decoder":
            flops, time = (effect(MODES, "cost against n", arm, "encoder-decoder", name, 512).estimate for name in ("flops", "latency_ms"))
            costs = [f"{flops.estimate:.2f}", interval_text(time)]
        lines.append([arm, *scores, *costs])
    return table(("form", *FORMS, "FLOPs", "time"), lines)


def curve_scores() -> str:
    """R2 of the three regressions, as planned."""
    first, second, third = (f"{arm_rows(MODES, 'curve', arm)[0]['score']:.4f}" for arm in arms(MODES, "curve"))
    return f"{first}, {second} and {third}"


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
    "positions": lambda: scores_table(POSITIONS, "mixer, positions", {"digits": "digits", "copy": "copy"}),
    "positions_outcomes": lambda: outcomes(POSITIONS),
    "attention": lambda: scores_table(ATTENTION, "variant", {"digits": "digits", "copy": "copy from n / 2 tokens away"}),
    "attention_outcomes": lambda: outcomes(ATTENTION),
    "kernels": kernels_table,
    "answers": answers_table,
    "text": lambda: scores_table(TEXT, "model", {part: part for part in ("nested expressions", "TREC", "SST-2")}),
    "imdb": lambda: scores_table(TEXT, "model", {"IMDb": "IMDb"}),
    "masked_tokens": lambda: scores_table(TEXT, "model", {"hidden tokens": "masked tokens"}),
    **{f"imdb_{n}": functools.partial(difference, TEXT, "IMDb", "gMLP", "Transformer", n) for n in (64, 128)},
    "masked_difference": lambda: difference(TEXT, "masked tokens", "Transformer", "gMLP"),
    "nested_difference": lambda: difference(TEXT, "nested expressions", "gMLP", "Transformer"),
    "text_outcomes": lambda: outcomes(TEXT),
    "scale": scale_table,
    "scale_outcomes": lambda: outcomes(SCALE),
    "forms": forms_table,
    "forms_outcomes": lambda: outcomes(MODES),
    "curve_scores": curve_scores,
    **{f"{question}_{kind}": text for question, name in RUNS.items() for kind, text in _of(name).items()},
}

"""List the claims about quadratic cost as data.

Each claim states in advance which result would support it and which would refute it.
"""

from __future__ import annotations

import re

from bench.analysis.claims import Claim

MARGIN = 0.02
"""The largest loss of accuracy that still counts as equal.

A fraction of the test items.
"""
MIN_CLAIM_ROUNDS, MIN_CLAIM_SEEDS = 5, 5
"""The least number of rounds for a claim on speed, and of seeds for one on accuracy."""

NAMES = {"gmlp": "gMLP", "vit": "ViT", "transformer": "Transformer", "flops": "FLOPs"}


def in_words(key: str) -> str:
    """Write a key as in prose: `gMLP faster than ViT` for `gmlp_faster_than_vit`."""
    return re.sub("|".join(rf"\b{name}\b" for name in NAMES), lambda found: NAMES[found[0]], key.replace("_", " "))


_SHAPE = "one fixed shape at 4 or more lengths, the longest at least 16 times the shortest"
_TIMED_SHAPE = (
    "one fixed shape at 5 or more stable lengths that are not launch-bound, the longest at least 16 times the shortest, in 5 or more rounds"
)
_QUADRATIC = "in the fit a + b n + c n^2, c is above zero and c n^2 is at least 10 % of the total at the longest length"
_NOT_QUADRATIC = "in the fit a + b n + c n^2, c n^2 is below 10 % of the total at the longest length"

CLAIMS = (
    Claim(
        name="attention_flops_quadratic",
        question="Are attention's FLOPs quadratic in n?",
        supported_by=_QUADRATIC,
        refuted_by=_NOT_QUADRATIC,
        metric="flops",
        cells=f"ViT or Transformer; {_SHAPE}",
        kind="quadratic",
        subject="attention",
        column="flops",
    ),
    Claim(
        name="gmlp_flops_quadratic",
        question="Are gMLP's FLOPs quadratic in n too?",
        supported_by=_QUADRATIC,
        refuted_by=_NOT_QUADRATIC,
        metric="flops",
        cells=f"gMLP; {_SHAPE}",
        kind="quadratic",
        subject="gmlp",
        column="flops",
    ),
    Claim(
        name="explicit_attention_memory_quadratic",
        question="Is explicit attention's activation memory per sample quadratic in n?",
        supported_by=_QUADRATIC,
        refuted_by=_NOT_QUADRATIC,
        metric="memory",
        cells=f"ViT or Transformer with --attention math; {_SHAPE}",
        kind="quadratic",
        subject="explicit",
        column="activation_bytes",
    ),
    Claim(
        name="fused_attention_memory_linear",
        question="Does fused attention's activation memory per sample stay linear in n?",
        supported_by=_NOT_QUADRATIC,
        refuted_by=_QUADRATIC,
        metric="memory",
        cells=f"ViT or Transformer with a fused kernel; {_SHAPE}",
        kind="linear",
        subject="fused",
        column="activation_bytes",
    ),
    Claim(
        name="gmlp_activations_linear",
        question="Are gMLP's activations per sample linear in n?",
        supported_by=_NOT_QUADRATIC,
        refuted_by=_QUADRATIC,
        metric="memory",
        cells=f"gMLP; {_SHAPE}",
        kind="linear",
        subject="gmlp",
        column="activation_bytes",
    ),
    Claim(
        name="gmlp_weights_quadratic",
        question="Are gMLP's weights quadratic in n?",
        supported_by=_QUADRATIC,
        refuted_by=_NOT_QUADRATIC,
        metric="memory",
        cells=f"gMLP; {_SHAPE}",
        kind="quadratic",
        subject="gmlp",
        column="weight_bytes",
    ),
    Claim(
        name="attention_time_quadratic",
        question="Is attention's time quadratic in n over the measured lengths?",
        supported_by=_QUADRATIC,
        refuted_by=_NOT_QUADRATIC,
        metric="latency",
        cells=f"ViT or Transformer; {_TIMED_SHAPE}",
        kind="quadratic",
        subject="attention",
        column="latency_ms",
    ),
    Claim(
        name="gmlp_time_quadratic",
        question="Is gMLP's time quadratic in n over the measured lengths?",
        supported_by=_QUADRATIC,
        refuted_by=_NOT_QUADRATIC,
        metric="latency",
        cells=f"gMLP; {_TIMED_SHAPE}",
        kind="quadratic",
        subject="gmlp",
        column="latency_ms",
    ),
    Claim(
        name="quadratic_hidden_below",
        question="Is the quadratic term below 10 % of the time at some measured length?",
        supported_by="at some measured length, the whole interval of the share of c n^2 is below 10 %",
        refuted_by="at the shortest measured length, the whole interval of the share of c n^2 is above 10 %",
        metric="latency",
        cells=f"any family with a global mixer; {_TIMED_SHAPE}",
        kind="hidden",
        subject="global",
        column="latency_ms",
    ),
    Claim(
        name="gmlp_faster_than_vit",
        question="Is gMLP faster than ViT at matched size, at every length?",
        supported_by="at every length, the interval of gMLP's time over ViT's (paired by round, corrected for the number of lengths) is below 1",
        refuted_by="at some length, that interval is above 1",
        metric="latency",
        cells="gMLP and ViT of one size, at the same lengths, in 5 or more rounds",
        kind="faster",
    ),
    Claim(
        name="gmlp_matches_vit_accuracy",
        question="Does gMLP match ViT's accuracy at matched size?",
        supported_by=f"gMLP's accuracy minus ViT's has an interval above -{MARGIN:g}: gMLP loses at most {MARGIN:.0%} of the test items",
        refuted_by=f"that interval is below -{MARGIN:g}: gMLP loses more than {MARGIN:.0%}",
        metric="accuracy",
        cells=f"gMLP and ViT trained on one task at one size and length, with {MIN_CLAIM_SEEDS} or more seeds each",
        kind="accuracy",
    ),
    Claim(
        name="survives_matching",
        question="Do the conclusions hold under every matching policy (params, flops, shape)?",
        supported_by="every conclusion decided under two policies is the same under both",
        refuted_by="a conclusion is supported under one policy and refuted under another",
        metric="latency",
        cells="the same models and lengths under two policies",
        kind="survives",
        axis="match",
    ),
    Claim(
        name="survives_batching",
        question="Do the conclusions hold both for a fixed batch size and for fixed tokens per batch?",
        supported_by="every conclusion decided for both is the same for both",
        refuted_by="a conclusion is supported for one and refuted for the other",
        metric="latency",
        cells="the same models and lengths with --batch and with --batch-tokens",
        kind="survives",
        axis="batching",
    ),
    Claim(
        name="survives_engine",
        question="Do the conclusions hold with every engine?",
        supported_by="every conclusion decided with two engines is the same with both",
        refuted_by="a conclusion is supported with one engine and refuted with another",
        metric="latency",
        cells="the same models and lengths with two engines",
        kind="survives",
        axis="engine",
    ),
    Claim(
        name="survives_phase",
        question="Do the conclusions hold both for inference and for training?",
        supported_by="every conclusion decided in both phases is the same in both",
        refuted_by="a conclusion is supported in one phase and refuted in the other",
        metric="latency",
        cells="the same models and lengths with --phase infer,train",
        kind="survives",
        axis="phase",
    ),
)

"""The claims under test, as data: each says what would support it and what would refute it, before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
"""The answers to a claim, a prediction or a bound."""
MARGIN = 0.02
"""Accuracy within which one model matches another."""
MIN_SEEDS = 5


@dataclass(frozen=True, kw_only=True)
class Claim:
    """`metric` and `cells`: what it needs. `kind`: how it is judged (`bench.analysis.verdicts.JUDGES`). `subject`: which series it is about, `column`
    what of them (of a `bench.analysis.growth.Measure`). A claim of the kind `survives` is about the other ones: do their answers stay the same
    along `axis`?

    `timed`: does it rest on timings, which need rounds?
    """

    name: str
    question: str
    supported_by: str
    refuted_by: str
    metric: str
    cells: str
    kind: str
    subject: str = ""
    column: str = ""
    axis: str = ""

    @property
    def timed(self) -> bool:
        return self.metric == "latency"


_SHAPE = "one shape kept over at least 4 lengths, the longest 16 times the shortest"
_TIMED_SHAPE = (
    "one shape kept over at least 5 stable lengths that are not launch-bound, the longest 16 times the shortest, in at least 5 rounds"
)
_QUADRATIC = "c of a + b n + c n^2 is above zero, and c n^2 is at least 10 % of the whole at the longest length"
_NOT_QUADRATIC = "c n^2 is below 10 % of the whole at the longest length"

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
        question="Is attention's time quadratic in n, as far as this grid reaches?",
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
        question="Is gMLP's time quadratic in n, as far as this grid reaches?",
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
        question="Is there a length up to which the quadratic term is under 10 % of the time?",
        supported_by="at some length of the grid the share of c n^2, with its whole interval, is below 10 %",
        refuted_by="at the shortest length of the grid that share, with its whole interval, is already above 10 %",
        metric="latency",
        cells=f"any family with a global mixer; {_TIMED_SHAPE}",
        kind="hidden",
        subject="global",
        column="latency_ms",
    ),
    Claim(
        name="gmlp_faster_than_vit",
        question="Is gMLP faster than ViT at matched size, at every length?",
        supported_by="the ratio of their times, paired by round and corrected for the number of lengths, is below 1 at every length",
        refuted_by="that ratio is above 1 at some length",
        metric="latency",
        cells="gMLP and ViT of one size, at the same lengths, in at least 5 rounds",
        kind="faster",
    ),
    Claim(
        name="gmlp_matches_vit_accuracy",
        question="Does gMLP match ViT's accuracy at matched size?",
        supported_by=f"gMLP is not worse by more than {MARGIN:.0%} of the test items: the interval of the difference lies above -{MARGIN:g}",
        refuted_by=f"gMLP is worse by more than {MARGIN:.0%}: the interval lies below -{MARGIN:g}",
        metric="accuracy",
        cells=f"gMLP and ViT trained on one task at one size and length, with at least {MIN_SEEDS} seeds each",
        kind="accuracy",
    ),
    Claim(
        name="survives_matching",
        question="Does each conclusion survive the choice of matching policy (params, flops, shape)?",
        supported_by="every conclusion that is decided under two policies is the same under both",
        refuted_by="a conclusion is supported under one policy and refuted under another",
        metric="latency",
        cells="the same models and lengths under two policies",
        kind="survives",
        axis="match",
    ),
    Claim(
        name="survives_batching",
        question="Does each conclusion survive the choice of a fixed batch or fixed tokens per batch?",
        supported_by="every conclusion that is decided both ways is the same both ways",
        refuted_by="a conclusion is supported one way and refuted the other",
        metric="latency",
        cells="the same models and lengths with --batch and with --batch-tokens",
        kind="survives",
        axis="batching",
    ),
    Claim(
        name="survives_engine",
        question="Does each conclusion survive the choice of engine?",
        supported_by="every conclusion that is decided with two engines is the same with both",
        refuted_by="a conclusion is supported with one engine and refuted with another",
        metric="latency",
        cells="the same models and lengths with two engines",
        kind="survives",
        axis="engine",
    ),
    Claim(
        name="survives_phase",
        question="Does each conclusion hold for training as for inference?",
        supported_by="every conclusion that is decided in both phases is the same in both",
        refuted_by="a conclusion is supported in one phase and refuted in the other",
        metric="latency",
        cells="the same models and lengths with --phase infer,train",
        kind="survives",
        axis="phase",
    ),
)

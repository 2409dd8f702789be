"""Which mixers escape n^2, from which length on does it pay, and what do they lose?

Prediction: gMLP as published does not escape: its W has n x n weights. With Toeplitz weights its product is a convolution,
which an FFT computes in n log n with 2 n - 1 weights; with W = A B of rank r it is linear in n. Linear attention, state
spaces and the gated delta rule keep a state of fixed size, low-rank attention a fixed number of keys, a long convolution
takes FFTs: all are linear in n, or nearly. Each has a price per token above fused attention's, so that each pays from some
length on: linear and low-rank attention from a few hundred tokens, since they are few large products; the recurrences later,
since chunks take many small ones; FFTs between them.

What is lost on generated tasks is another question (recall_state). On photographs, trained briefly, gates lead attention, linear
attention equals it, and a block without mixing trails it, with learned and with sinusoidal positions alike; on questions all
are about equal, because few words tell their class.

Every mixer stands in the same pre-norm block, at equal parameters and its own best learning rate of a search with equal trials.
On questions gMLP and the Transformer stand beside them as published, apart from the mean over tokens. Models of questions are
timed as well, so that `bench compare` sets their accuracy against time, FLOPs and memory. Time against n is compared at one
width, with fused attention in the same rounds.

Source: arXiv 2006.16236 (linear attention); 2405.21060 (state-space duality); 2412.06464 (gated delta rule); 2006.04768
(low-rank attention); 2302.10866 (long convolutions); 2105.08050, App. C (Toeplitz W).

Cost: twenty minutes of timing and some eight hours of training on one CPU thread (estimate); an hour on a GPU (estimate);
a minute with --quick on a CPU.
"""

import dataclasses
import functools

from bench.questions import Ablation, Arm, Asked, Finding, Grid, PaysFrom, predict

LEARNED, SINUSOIDAL, QUESTIONS, COST = "images, learned positions", "images, sinusoidal positions", "questions", "cost against n"
TIMED_AT = 4096


def arm(name: str, mixer: str, growth: str, memory: str) -> Arm:
    """Return one mixer's variant, with its growth and the memory that it has of earlier tokens."""
    return Arm(name=name, flags={"models": f"metaformer+mixer={mixer}"}, facts={"work per layer": growth, "remembers": memory})


FUSED = arm("attention, fused", "attention", "n^2", "all tokens")
GATING = arm("spatial gating", "gated_projection", "n^2", "all tokens, by position")
TOEPLITZ = arm("spatial gating, Toeplitz", "gated_projection:toeplitz=true:kernel=fft", "n log n", "all tokens, by distance")
LOW_RANK_GATING = arm("spatial gating, rank 16", "gated_projection:rank=16", "n r", "r sums of tokens")
LINEAR = arm("linear attention", "linear_attention", "n", "a state per head")
STATE_SPACE = arm("state space, state 64", "state_space:state=64", "n", "64 numbers per channel")
SMALL_STATE = arm("state space, state 16", "state_space:state=16", "n", "16 numbers per channel")
DELTA = arm("gated delta rule", "delta_rule", "n", "a state per head")
LOW_RANK = arm("low-rank attention, 16", "low_rank_attention:rank=16", "n r", "r sums of tokens")
LONG_CONVOLUTION = arm("long convolution", "long_convolution", "n log n", "all tokens, by distance")
NONE = arm("none", "identity", "0", "nothing")
MIXERS = (FUSED, GATING, TOEPLITZ, LOW_RANK_GATING, LINEAR, STATE_SPACE, SMALL_STATE, DELTA, LOW_RANK, LONG_CONVOLUTION, NONE)
FAMILIES = (
    Arm(name="gMLP", flags={"models": "gmlp+pool=mean"}, facts={"work per layer": "n^2", "remembers": "all tokens, by position"}),
    Arm(name="Transformer", flags={"models": "transformer+pool=mean"}, facts={"work per layer": "n^2", "remembers": "all tokens"}),
)
FEW = (FUSED, GATING, TOEPLITZ, LINEAR, STATE_SPACE, DELTA)
ON_PHOTOGRAPHS = (FUSED, GATING, TOEPLITZ, LINEAR, NONE)


BLOCKS = {"depth": "2", "params": "305k", "width": "96"}
"""The width is given because mixers differ in weights: at equal width and parameters only ffn_width can compensate."""
ON_IMAGES = {**BLOCKS, "params": "300k", "metrics": "params,flops,accuracy", "seq": "64", "recipe": "augment=flip"}
IN_BRIEF = {**ON_IMAGES, "task": "cifar10+items=20000", "epochs": "4"}
ON_QUESTIONS = {
    **BLOCKS,
    "metrics": "params,flops,latency,memory,accuracy",
    "task": "trec+tokenizer=bpe+vocab_size=1000",
    "seq": "32",
    "epochs": "10",
}
BLOCK = {"depth": "1", "params": "480k", "width": "192", "match": "shape", "batch": "1"}
AT_COST = (17, 64, 256, 1024, TIMED_AT, 16384)
ON_COST = {**BLOCK, "metrics": "params,flops,latency,memory", "seq": ",".join(map(str, AT_COST))}
LARGE = {**BLOCK, "params": "7M", "width": "768", "dtype": "bf16", "batch": "8"}


def near_crossing(mixer: Arm) -> Arm:
    """Return the variant with more lengths where it and fused attention cross, at ratios of 4/3."""
    crossed = {
        (85, 113, 151, 201): (GATING, TOEPLITZ, LOW_RANK_GATING),
        (340, 453, 604, 805): (LINEAR, STATE_SPACE, SMALL_STATE, LONG_CONVOLUTION),
        (1365, 1820, 2427, 3236): (DELTA,),
    }
    lengths = {n for near, mixers in crossed.items() for n in near if mixer in (FUSED, *mixers)}
    return dataclasses.replace(mixer, flags={**mixer.flags, "seq": ",".join(map(str, sorted({*AT_COST, *lengths})))})


def images(flags: dict[str, str]) -> tuple[Grid, ...]:
    """Return photographs in two parts, one for each kind of position, so that only the mixer differs within each."""
    kinds = {LEARNED: "learned", SINUSOIDAL: "sinusoidal"}
    return tuple(Grid(name=part, flags=flags, arms=tuple(placed(mixer, kind) for mixer in ON_PHOTOGRAPHS)) for part, kind in kinds.items())


def placed(mixer: Arm, positions: str) -> Arm:
    return dataclasses.replace(mixer, flags={"models": f"{mixer.flags['models']}+positions={positions}"})


predict_quality = functools.partial(predict, against=FUSED)
predict_time = functools.partial(predict, COST, by=0.1, seq_len=TIMED_AT, against=FUSED, measure="latency_ms")


ABLATION = Ablation(
    cpu=(
        *images(IN_BRIEF),
        Grid(name=QUESTIONS, flags=ON_QUESTIONS, arms=(*MIXERS, *FAMILIES)),
        Grid(name=COST, flags=ON_COST, arms=tuple(map(near_crossing, MIXERS))),
    ),
    cuda=(
        *images({**ON_IMAGES, "task": "cifar10", "epochs": "10"}),
        Grid(name=QUESTIONS, flags=ON_QUESTIONS, arms=(*MIXERS, *FAMILIES)),
        Grid(name=COST, flags={**ON_COST, **LARGE, "seq": "64,256,1024,4096,16384,65536"}, arms=MIXERS),
    ),
    quick=(Grid(name=COST, flags={**ON_COST, "seq": "64,256,1024"}, arms=FEW),),
    predictions=(
        predict_time(LINEAR, "lower", "few large products, linear in n", by=0.3, seq_len=1024),
        predict_time(LINEAR, "equal", "at this length the projections are nearly all of it", seq_len=64),
        predict_time(LOW_RANK, "lower", "16 keys in place of n", by=0.3, seq_len=1024),
        predict_time(STATE_SPACE, "higher", "many small products and element-wise steps", seq_len=64),
        predict_time(STATE_SPACE, "lower", "linear in n"),
        predict_time(DELTA, "higher", "many small products, chunk after chunk", seq_len=256),
        predict_time(DELTA, "lower", "linear in n", seq_len=16384),
        predict_time(GATING, "lower", "n^2, but with half the products of attention"),
        predict_time(TOEPLITZ, "lower", "n log n", by=0.3),
        predict_time(TOEPLITZ, "lower", "n log n in place of n^2", by=0.3, against=GATING),
        predict_time(TOEPLITZ, "higher", "FFTs cost more than a small product", seq_len=64, against=GATING),
        predict_time(LOW_RANK_GATING, "lower", "2 n r weights in place of n^2", by=0.3),
        predict_time(LONG_CONVOLUTION, "lower", "n log n"),
        predict(COST, GATING, "higher", "n x n weights", by=2.0, seq_len=TIMED_AT, against=TOEPLITZ, measure="params"),
        *(
            predict_quality(part, of, outcome, why, by=by)
            for part in (LEARNED, SINUSOIDAL)
            for of, outcome, by, why in (
                (GATING, "higher", 0.03, "its weights learn which patches are neighbours, soon"),
                (TOEPLITZ, "higher", 0.02, "neighbours lie at fixed distances"),
                (LINEAR, "equal", 0.03, "both look by content"),
                (NONE, "lower", 0.02, "a mean of single patches"),
            )
        ),
        *(predict_quality(QUESTIONS, of, "equal", "few words tell the class", by=0.05) for of in (GATING, LINEAR, DELTA, NONE)),
    ),
    findings=(
        Finding(
            text="Linear attention becomes faster than fused attention {} tokens, a state space of 64 {}, the gated delta rule {}, "
            "Toeplitz gates {}.",
            about=tuple(PaysFrom(part=COST, arm=of.name) for of in (LINEAR, STATE_SPACE, DELTA, TOEPLITZ)),
        ),
        Finding(
            text="On photographs, with learned positions, against attention, accuracy changes by {} with a gate, {} with Toeplitz "
            "weights, {} with linear attention and {} without mixing.",
            about=tuple(Asked(part=LEARNED, arm=of.name) for of in (GATING, TOEPLITZ, LINEAR, NONE)),
        ),
        Finding(
            text="With sinusoidal positions accuracy changes by {} with a gate, {} with Toeplitz weights, {} with linear attention and "
            "{} without mixing.",
            about=tuple(Asked(part=SINUSOIDAL, arm=of.name) for of in (GATING, TOEPLITZ, LINEAR, NONE)),
        ),
    ),
    rounds=20,
    seeds=5,
    sample_s=0.2,
    growth=False,
    lr_trials=3,
)

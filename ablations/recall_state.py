"""Which state does a mixer need to solve a task, and what does a step cost there?

Prediction: Causal attention carries every token and solves all six tasks, at every length. Linear attention, state spaces and the gated delta
rule carry a state of fixed size. They solve recall as long as a channel's state has clearly more numbers than there are pairs: 32 numbers do for 8
pairs, 128 for 32; 2 do not for 8, nor 32 for 64. The delta rule needs as many as pairs. A gate with fixed weights and a long convolution carry
every token too, but mix by position or by distance and not by content: they solve none of the recalls, nor selective copying, nor compression.
Memorisation asks the weights and not the state, so that every mixer solves it.

Every model is causal and has two blocks of width 32, behind a convolution over two tokens (four in fuzzy recall, whose keys and values are of
two tokens each). A training ends when 99 % of the answers on validation items are right, or after 2,000 steps (4,000 for selective copying),
of 2,048 tokens each or of one item. Each model has the best of three learning rates around 0.004, and of up to three more while some model's
best lies at an end. Ten seeds follow at that rate. Sizes, steps and rates were chosen by trials of attention, and of linear attention with
8 and 16 pairs, alone. Fuzzy recall is asked at width 64 too: at 32 attention stayed at 0.92 of the validation items at each of four rates, which was
seen before a seed of it was trained; at 64 attention alone was tried, with one seed of two kinds of heads.

Source: arXiv 2312.04927, Sec. 3 and 4 (attention solves multi-query recall at every width, gated convolutions need one that grows with n);
2402.18668, Sec. 3 (recall against the size of the state); 2403.17844, Sec. 3 (the six tasks); 2406.06484, Sec. 4 (the delta rule on recall).

Cost: sixteen hours on one core of an AMD EPYC (family 26); five hours on a GPU (estimate); a minute with --quick on a CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from bench.questions import FAILS, SOLVES, Ablation, Arm, Asked, Finding, Grid, LeastState, Prediction, predict

WIDTH = 32
FUZZY_WIDE = "fuzzy recall, width 64"
FUZZY, NOISY, SELECTIVE, COMPRESSION, MEMORISATION = "fuzzy recall", "noisy recall", "selective copying", "compression", "memorisation"
RECIPE = "schedule=cosine,warmup=0.05,weight_decay=0.01,label_smoothing=0,validation_fraction=0.02,learning_rate=4e-3,until_solved=true"
SIZES = (128, 32, 8, 2)
"""Numbers in the state of a channel. A head of linear attention or of the delta rule has no more than it has channels."""
BLOCKS = {"depth": "2", "metrics": "params,flops,latency,memory,accuracy", "epochs": "40"}


def arm(name: str, mixer: str, remembers: str, head_width: int = 16) -> Arm:
    heads = str(WIDTH // head_width)
    return Arm(name=name, flags={"models": f"metaformer+mixer={mixer}", "heads": heads}, facts={"remembers": remembers})


def by_head(name: str, mixer: str, *sizes: int) -> dict[int, Arm]:
    """Return one variant by the width of a head, which is the number of numbers in its state per channel."""
    return {size: arm(f"{name}, {size} per channel", f"{mixer}:causal=true", f"{size} numbers per channel", size) for size in sizes}


ATTENTION = arm("attention", "attention:causal=true", "every token, by content")
LINEAR = by_head("linear attention", "linear_attention", 32, 8)
DELTA = by_head("gated delta rule", "delta_rule", 32, 8)
STATE_SPACE = {
    size: arm(f"state space, {size} per channel", f"state_space:causal=true:state={size}", f"{size} numbers per channel") for size in SIZES
}
GATE = arm("spatial gating", "gated_projection:causal=true", "every token, by position")
CONVOLUTION = arm("long convolution", "long_convolution:causal=true", "every token, by distance")
RECURRENT = (LINEAR, STATE_SPACE, DELTA)


def arms(*sizes: int, more: Iterable[Arm] = (GATE, CONVOLUTION)) -> tuple[Arm, ...]:
    return (ATTENTION, *(mixer[size] for mixer in RECURRENT for size in sizes if size in mixer), *more)


def recall(n: int) -> str:
    return f"recall, n = {n}"


def grid(
    name: str, task: str, chosen: Iterable[Arm], *, n: int = 64, reach: int = 2, width: int = WIDTH, more: Mapping[str, str] | None = None
) -> Grid:
    """Return a part in which each step has 2,048 tokens, behind a convolution over `reach` tokens; heads are as wide at any width."""
    batch = max(1, 2048 // n)

    def variant(one: Arm) -> Arm:
        heads = str(int(one.flags["heads"]) * width // WIDTH)
        return Arm(
            name=one.name,
            flags={**one.flags, "models": f"{one.flags['models']}+short_convolution={reach}", "heads": heads},
            facts=one.facts,
        )

    variants = tuple(map(variant, chosen))
    flags = {"task": task, "seq": str(n), "width": str(width), "recipe": f"{RECIPE},batch_size={batch},epoch_items={50 * batch}"}
    return Grid(name=name, flags={**BLOCKS, **flags, **(more or {})}, arms=variants)


def recall_grid(n: int, chosen: Iterable[Arm]) -> Grid:
    return grid(recall(n), f"multi_query_recall+pairs={n // 8}+keys={n // 2}+values=32+test_items=1000", chosen, n=n)


OTHERS = (
    grid(FUZZY, "fuzzy_recall+test_items=1000", arms(32, more=(GATE,)), reach=4),
    grid(FUZZY_WIDE, "fuzzy_recall+test_items=1000", arms(32, more=(GATE,)), reach=4, width=64),
    grid(NOISY, "noisy_recall+test_items=1000", arms(32, more=(GATE,))),
    grid(SELECTIVE, "selective_copying+test_items=1000", arms(32), more={"epochs": "80"}),
    grid(COMPRESSION, "compression+test_items=1000", arms(32, 8, more=(GATE,))),
    grid(MEMORISATION, "memorisation+test_items=1000", arms(32, more=(GATE,))),
)
LONGER = {128: (128, 32), 256: (128, 32), 512: (128, 32)}
"""Sizes of a state per channel, by n."""
SHORTEST = recall(64)


def longer(sizes_of: Mapping[int, tuple[int, ...]]) -> tuple[Grid, ...]:
    return tuple(recall_grid(n, arms(*sizes, more=(GATE,))) for n, sizes in sizes_of.items())


def expect(expected: str, parts: Iterable[str], chosen: Iterable[Arm], because: str) -> tuple[Prediction, ...]:
    return tuple(predict(part, one, expected, because) for part, one in itertools.product(parts, chosen))


def of_size(size: int) -> tuple[Arm, ...]:
    return tuple(mixer[size] for mixer in RECURRENT if size in mixer)


def needed(part: str, sizes: Iterable[int]) -> tuple[LeastState, ...]:
    """Return the least states of attention, linear attention, a state space, the gated delta rule and a gate."""
    by_mixer = ((ATTENTION.name,), *(tuple(mixer[size].name for size in sizes if size in mixer) for mixer in RECURRENT), (GATE.name,))
    return tuple(LeastState(part=part, arms=names) for names in by_mixer)


RECALLS = tuple(map(recall, (64, *LONGER)))
NO_CONTENT = "it mixes without regard to content"
ABLATION = Ablation(
    cpu=(recall_grid(64, arms(*SIZES)), *longer(LONGER), *OTHERS),
    cuda=(recall_grid(64, arms(*SIZES)), *longer({**LONGER, 2048: (128, 32), 8192: (128, 32)}), *OTHERS),
    quick=(
        grid(
            "recall, n = 24",
            "multi_query_recall+pairs=4+keys=8+values=8+items=3000+test_items=300",
            (ATTENTION, LINEAR[32], GATE),
            n=24,
            more={"epochs": "4", "metrics": "params,flops,accuracy"},
        ),
    ),
    predictions=(
        *expect(SOLVES, (*RECALLS, *(one.name for one in OTHERS)), [ATTENTION], "it carries every token and reads it by content"),
        *expect(SOLVES, [SHORTEST], (*of_size(32), *of_size(128)), "32 numbers per channel or more for 8 pairs"),
        *expect(FAILS, [SHORTEST], of_size(2), "2 numbers per channel for 8 pairs"),
        *expect(SOLVES, [recall(256)], of_size(128), "128 numbers per channel for 32 pairs"),
        *expect(SOLVES, [recall(256)], [DELTA[32]], "as many numbers per channel as pairs, and a key overwrites what it held"),
        *expect(FAILS, [recall(512)], of_size(32), "32 numbers per channel for 64 pairs"),
        *expect(SOLVES, (FUZZY, FUZZY_WIDE, NOISY), of_size(32), "32 numbers per channel for 8 or 12 pairs"),
        *expect(FAILS, [COMPRESSION], of_size(8), "8 numbers per channel for 32 symbols"),
        *expect(SOLVES, [MEMORISATION], (*of_size(32), GATE), "the weights hold the map"),
        *expect(FAILS, (*RECALLS, FUZZY, FUZZY_WIDE, NOISY, SELECTIVE, COMPRESSION), [GATE], NO_CONTENT),
        *expect(FAILS, (SHORTEST, SELECTIVE), [CONVOLUTION], NO_CONTENT),
        *(
            predict(recall(512), mixer[32], "lower", "a state of fixed size, against 512 tokens", measure="latency_ms")
            for mixer in (LINEAR, STATE_SPACE)
        ),
    ),
    findings=(
        *(
            Finding(
                text=f"{part[0].upper()}{part[1:]}: attention {{}}, linear attention {{}}, state space {{}}, delta rule {{}}, gate {{}}.",
                about=needed(part, sizes),
            )
            for part, sizes in ((SHORTEST, SIZES), (recall(512), LONGER[512]), (FUZZY_WIDE, (32,)))
        ),
        Finding(
            text="At n = 512 inference takes {} of attention's time with linear attention, {} with a state space of 32, {} with the delta rule.",
            about=tuple(Asked(part=recall(512), arm=mixer[32].name, measure="latency_ms") for mixer in RECURRENT),
        ),
    ),
    rounds=20,
    seeds=10,
    sample_s=0.2,
    growth=False,
    lr_trials=3,
)

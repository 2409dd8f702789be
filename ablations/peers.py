"""Is each family at least as fast as its usual implementations?

Prediction: on a CPU in fp32 every family takes less time with its best engine than each of its peers as shipped, in every configuration. Peers run
the matrix products that torch picks by default, without a fused gate or packed weights. With the same engine they should come close, because the
architecture is the same.

Before timing, weights are copied from one side to the other, and outputs (in training also gradients) are compared; a configuration with different
answers is left out and reported. On a CPU, models have width 192 and depth 2. At depth 2, the embedding, the head and the cost of a call weigh more
than at depth 6. Both sides in eager mode, and both with our engine, are shown too: they separate the effects of code and engine.
In bf16, torch's own products already use oneDNN, so peers are also timed with our engine there.

Source: the implementations that people install: timm (huggingface/pytorch-image-models), torchvision, lucidrains' g-mlp-pytorch and vit-pytorch, and
torch.nn.TransformerEncoder. arXiv 2105.08050 (gMLP), 2010.11929 (ViT), 2012.12877 (DeiT), 1706.03762 (Transformer), 2105.01601 (MLP-Mixer).

Cost: one and a half to two hours on one CPU thread in twelve rounds, most of it first calls; nine rounds are the fewest that decide the seven
ratios of a place together. About three hours on a GPU, mostly compiling (estimate); three minutes with --quick on a CPU.
"""

from bench.questions import LOWER, Ablation, Arm, Grid, Prediction, predict

CPU_ENGINES = {"infer": "onednn", "train": "onednn"}
CUDA_ENGINES = {"infer": "graph", "train": "compile"}
"""Best engine of each phase, chosen before the run.

The best of several engines in one run would look better than it is.
"""
PHASES = ("infer", "train")
EAGER, COMPILE, GRAPH = "eager", "compile", "graph"
BEST = "ours, best engine"
TIMM, TORCHVISION, LUCIDRAINS, TORCH_NN = "timm", "torchvision", "lucidrains", "torch.nn"

METRICS = {"metrics": "params,flops,equality,latency,ceiling", "input": "images"}
WIDTH, DEPTH = 192, 2
SIZES = {"width": str(WIDTH), "depth": str(DEPTH)}
GMLP_SIZES = {**SIZES, "ffn_width": str(6 * WIDTH)}
VIT_SIZES = {**SIZES, "heads": "3", "ffn_width": str(4 * WIDTH)}
"""Three heads as in DeiT-Ti, which has the same width."""
TRANSFORMER_SIZES = {**VIT_SIZES, "heads": "6"}
"""Six heads, because torch's fused encoder layer refuses odd numbers.

With three heads, the peer would be needlessly slow.
"""
LENGTHS, BATCHES = "17,65,257", "1,32"
SHORT_BF16 = {"dtype": "bf16", "seq": "65,257", "batch": "32"}
ENGINE_LENGTHS = {"seq": "17,257"}
"""Lengths at which peers also run with our engine.

There are few, because all lengths would double the run.
"""
FAMILIES: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "gMLP": (
        "gmlp+pool=mean",
        GMLP_SIZES,
        {TIMM: "python:bench.peers.timm:gmlp", LUCIDRAINS: "python:bench.peers.g_mlp_pytorch:gmlp"},
    ),
    "ViT": (
        "vit",
        VIT_SIZES,
        {
            TIMM: "python:bench.peers.timm:vit",
            TORCHVISION: "python:bench.peers.torchvision:vit",
            LUCIDRAINS: "python:bench.peers.vit_pytorch:vit",
        },
    ),
    "Transformer": ("transformer", TRANSFORMER_SIZES, {TORCH_NN: "python:bench.peers.torch_nn:transformer"}),
}
"""By title: our model, its sizes, and its equally sized peers."""

BF16 = {**METRICS, "dtype": "bf16"}
MIXER_SIZES = {"width": "512", "depth": "8", "ffn_width": "2048"}
PUBLISHED: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "gMLP-S": ("gmlp-s", {"seq": "196", "batch": "32,256"}, {TIMM: "timm:gmlp_s16_224"}),
    "DeiT-S": ("deit-s", {"seq": "197", "batch": "32,256"}, {TIMM: "timm:deit_small_patch16_224"}),
    "Mixer-S/16": (
        "metaformer+mixer=token_mlp+positions=none",
        {"seq": "196", "batch": "32,256", **MIXER_SIZES},
        {TIMM: "python:bench.peers.timm:mixer"},
    ),
    "ViT-B/16": ("vit-b16", {"seq": "197", "batch": "32,256"}, {TORCHVISION: "torchvision:vit_b_16"}),
    "gMLP-S, longer": ("gmlp-s", {"seq": "784,1024,4096", "batch": "32"}, {TIMM: "timm:gmlp_s16_224"}),
    "DeiT-S, longer": ("deit-s", {"seq": "785,1025,4097", "batch": "32"}, {TIMM: "timm:deit_small_patch16_224"}),
}
"""By title: our model, its lengths, batches and sizes, its peers.

Lengths are square images, plus a class token for ViT.
"""


def arms(model: str, peers: dict[str, str], best: str, engines: tuple[str, ...], engine_flags: dict[str, str]) -> tuple[Arm, ...]:
    """Return the variants of one comparison.

    The first, ours with its best engine, is the baseline. Our model and every peer run with each of `engines`. A peer in eager mode runs as shipped.

    `engine_flags`: further flags of peers that do not run as shipped.
    """
    ours = [Arm(name=f"ours, {engine}", flags={"models": model, "engine": engine}) for engine in engines if engine != best]
    theirs = [
        Arm(name=peer, flags={"models": name, "engine": engine})
        if engine == EAGER
        else Arm(name=f"{peer}, {engine}", flags={"models": name, "engine": engine, **engine_flags})
        for peer, name in peers.items()
        for engine in engines
    ]
    return (Arm(name=BEST, flags={"models": model, "engine": best}), *ours, *theirs)


def grid(title: str, phase: str, flags: dict[str, str], chosen: tuple[Arm, ...]) -> Grid:
    return Grid(name=f"{title}, {phase}", flags={**flags, "phase": phase}, arms=chosen, baseline=BEST)


def same_sizes(lengths: str, batches: str, engine_flags: dict[str, str], *phases: str) -> tuple[Grid, ...]:
    return tuple(
        grid(
            title,
            phase,
            {**METRICS, **sizes, "seq": lengths, "batch": batches},
            arms(model, peers, CPU_ENGINES[phase], (EAGER, CPU_ENGINES[phase]), engine_flags),
        )
        for title, (model, sizes, peers) in FAMILIES.items()
        for phase in phases
    )


def in_bf16() -> tuple[Grid, ...]:
    best = CPU_ENGINES["infer"]
    return tuple(
        grid(f"{title}, bf16", "infer", {**METRICS, **sizes, **SHORT_BF16}, arms(model, peers, best, (EAGER, best), {}))
        for title, (model, sizes, peers) in FAMILIES.items()
    )


def faster(part: str, peer: str) -> Prediction:
    because = "the same products run in a faster kernel, and a large batch runs in pieces that fit a cache"
    return predict(part, BEST, LOWER, because, against=peer, measure="latency_ms", device="cpu")


ABLATION = Ablation(
    cpu=(*same_sizes(LENGTHS, BATCHES, ENGINE_LENGTHS, *PHASES), *in_bf16()),
    cuda=tuple(
        grid(title, phase, {**BF16, **flags}, arms(model, peers, CUDA_ENGINES[phase], (EAGER, COMPILE, GRAPH), {}))
        for title, (model, flags, peers) in PUBLISHED.items()
        for phase in PHASES
    ),
    quick=same_sizes("17,65", "1", {}, "infer"),
    predictions=tuple(faster(f"{title}, {phase}", peer) for title, (_, _, peers) in FAMILIES.items() for phase in PHASES for peer in peers),
    rounds=12,
    sample_s=0.3,
    growth=False,
)

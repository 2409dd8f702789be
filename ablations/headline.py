"""Is gMLP faster than attention of the same size on this host?

Prediction: gMLP takes less time than explicit attention at every length from 257 on. At n = 1025 and 4097, with the width
kept, it takes at least 30 % less, because explicit attention writes n^2 activations per head to memory. gMLP is not faster
than fused attention if the width is kept: the times are about equal up to n = 257, and gMLP's is longer from n = 1025 on,
because its n^2 term has one and a half times as many multiply-adds per unit of width. At equal parameters gMLP's n^2 weights
reduce its width, so at n = 1025 it is about as fast as fused attention. Hosts differ in vector units and caches. Ratios
therefore differ between host types, but the faster model should not.

Size is matched in two ways. Same width at every n: one shape per family, with 252k parameters at n = 17, is kept as n grows;
at n = 4097 gMLP has 53 times ViT's parameters, nearly all of them n^2 weights. Same parameters: 5M in two blocks, at n =
1025. A published pair of about 20M parameters, gMLP-S and DeiT-S, is timed too, each at its own length. `make replicate`
measures all of this on one thread, and `bench pool` lists the ratios of several hosts side by side.

Source: arXiv 2105.08050, Table 1 (gMLP-S); arXiv 2012.12877, Table 1 (DeiT-S).

Cost: five to ten minutes on one CPU thread; about two on a GPU (estimate); a minute with --quick on a CPU.
"""

from bench.questions import Ablation, Arm, Asked, Finding, Grid, Prediction, predict

SAME_WIDTH, SAME_PARAMETERS, PUBLISHED = "same width at every n", "same parameters", "published"
GMLP, FUSED, EXPLICIT = "gMLP", "fused attention", "explicit attention"
MEASURED = {"metrics": "params,flops,latency"}
KEPT = {**MEASURED, "params": "252k", "depth": "2", "match": "shape", "batch": "4"}
"""At 252k both families fit within 5 % of their nominal ffn_width."""
MATCHED = {**MEASURED, "params": "5M", "depth": "2", "batch": "1"}
"""At n = 1025, 42 % of 5M are gMLP's n^2 weights."""
ARMS = (
    Arm(name=GMLP, flags={"models": "gmlp"}),
    Arm(name=FUSED, flags={"models": "vit", "attention": "auto"}),
    Arm(name=EXPLICIT, flags={"models": "vit", "attention": "math"}),
)
GRIDS = (
    Grid(name=SAME_WIDTH, flags={**KEPT, "seq": "17,257,1025,4097"}, arms=ARMS, baseline=FUSED),
    Grid(name=SAME_PARAMETERS, flags={**MATCHED, "seq": "1025"}, arms=ARMS, baseline=FUSED),
    Grid(
        name=PUBLISHED,
        flags={**MEASURED, "batch": "1"},
        arms=(Arm(name="gMLP-S", flags={"models": "gmlp-s"}), Arm(name="DeiT-S", flags={"models": "deit-s"})),
        baseline="DeiT-S",
    ),
)


def faster_than_explicit(n: int, by: float, part: str = SAME_WIDTH) -> Prediction:
    return predict(
        part,
        GMLP,
        "lower",
        "explicit attention writes n^2 activations per head to memory",
        by=by,
        against=EXPLICIT,
        measure="latency_ms",
        seq_len=n,
    )


def slower_than_fused(n: int) -> Prediction:
    return predict(SAME_WIDTH, GMLP, "higher", "more multiply-adds in its n^2 term", by=0.03, measure="latency_ms", seq_len=n)


ABLATION = Ablation(
    cpu=GRIDS,
    cuda=GRIDS,
    quick=(Grid(name=SAME_WIDTH, flags={**KEPT, "seq": "17,257,1025"}, arms=ARMS, baseline=FUSED),),
    predictions=(
        faster_than_explicit(257, 0.03),
        faster_than_explicit(1025, 0.3),
        faster_than_explicit(4097, 0.3),
        slower_than_fused(1025),
        slower_than_fused(4097),
        faster_than_explicit(1025, 0.1, SAME_PARAMETERS),
        predict(
            SAME_PARAMETERS,
            GMLP,
            "equal",
            "fewer multiply-adds in total, because n^2 weights reduce the width",
            by=0.1,
            measure="latency_ms",
            seq_len=1025,
        ),
    ),
    findings=(
        Finding(
            text="With one shape at every n, gMLP takes {} fused attention's time at n = 257 and {} at 4097.",
            about=tuple(Asked(part=SAME_WIDTH, arm=GMLP, measure="latency_ms", seq_len=n) for n in (257, 4097)),
        ),
        Finding(
            text="At 5M parameters and n = 1025 it takes {} fused attention's time and {} explicit attention's.",
            about=tuple(Asked(part=SAME_PARAMETERS, arm=GMLP, against=other, measure="latency_ms") for other in ("", EXPLICIT)),
        ),
    ),
    rounds=20,
    sample_s=0.2,
    growth=False,
)

"""Does gMLP take less time than attention of the same size, on this host too?

Prediction: than explicit attention, yes, at every length from 257 on, by half and more at n = 1025 and 4097, where explicit attention writes n^2
activations per head to memory. Than fused attention, no: about equal up to n = 257, longer from n = 1025 on, since its n^2 multiply-adds per unit
of width are one and a half times as many. Explicit attention takes longer than fused at every length. Hosts differ in vector units and caches, so
the ratios differ between types of host; which of the two takes less time should not.

The cells are the README's: two blocks, 150k parameters at n = 17, the shape kept as n grows; and one published pair of about 20M parameters,
gMLP-S and DeiT-S, each at its own length. `bench replicate` measures them into a folder named after the host, `bench pool` pools the hosts.

Source: arXiv 2105.08050, Table 1 (gMLP-S); arXiv 2012.12877, Table 1 (DeiT-S); docs/hosts.md (pooling).

Cost: about four minutes on one thread of a CPU, by estimate; a GPU about two minutes, not run yet; --quick a minute on a CPU.
"""

from bench.spec import Ablation, Arm, Grid, Prediction

KEPT, PUBLISHED = "shape kept", "published"
GMLP, FUSED, EXPLICIT = "gMLP", "fused attention", "explicit attention"
FLAGS = {"params": "150k", "depth": "2", "match": "shape", "batch": "4", "metrics": "params,flops,latency"}
SEQ = "17,257,1025,4097"
ARMS = (
    Arm(name=GMLP, flags={"models": "gmlp"}),
    Arm(name=FUSED, flags={"models": "vit", "attention": "auto"}),
    Arm(name=EXPLICIT, flags={"models": "vit", "attention": "math"}),
)
PAIR = Grid(
    name=PUBLISHED,
    flags={"batch": "1", "metrics": "params,flops,latency"},
    arms=(Arm(name="gMLP-S", flags={"models": "gmlp-s"}), Arm(name="DeiT-S", flags={"models": "deit-s"})),
    baseline="DeiT-S",
)
GRIDS = (Grid(name=KEPT, flags={**FLAGS, "seq": SEQ}, arms=ARMS, baseline=FUSED), PAIR)


def faster_than_explicit(n: int, by: float) -> Prediction:
    return Prediction(
        part=KEPT,
        arm=GMLP,
        against=EXPLICIT,
        measure="latency_ms",
        expected="lower",
        by=by,
        seq_len=n,
        because="explicit attention writes n^2 activations per head to memory",
    )


def slower_than_fused(n: int) -> Prediction:
    return Prediction(
        part=KEPT, arm=GMLP, measure="latency_ms", expected="higher", by=0.03, seq_len=n, because="more multiply-adds in its n^2 term"
    )


ABLATION = Ablation(
    cpu=GRIDS,
    cuda=GRIDS,
    quick=(Grid(name=KEPT, flags={**FLAGS, "seq": "17,257,1025"}, arms=ARMS, baseline=FUSED),),
    predictions=(
        faster_than_explicit(257, 0.03),
        faster_than_explicit(1025, 0.3),
        faster_than_explicit(4097, 0.3),
        slower_than_fused(1025),
        slower_than_fused(4097),
    ),
    rounds=7,
    sample_s=0.2,
    growth=False,
)

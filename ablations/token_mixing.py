"""What does each token mixer cost, and how far does it reach?

Prediction: One block is compared with each mixer in turn, at equal parameters. Attention, spatial gating, additive and
kernel attention combine all n x n pairs and reach every token in one step. A GRU is linear in n, but takes n steps one after
another, through which its state must keep the requested symbols. Linear attention is linear in n and reaches every token in
one step, through a state of fixed size, which holds few symbols. Windows and convolutions are linear in n, and reach as far
as they are wide.

Copying from n / 2 tokens away (task copy; the distance grows with n) is solved by the mixers that reach that far and by no
others. Windows of 16 solve it while one window holds all tokens, where they equal attention. Convolutions of 9 copy from at
most 4 tokens away. The mean and no mixing never solve it. Causal attention always does, because the requested symbols lie
in the past. Associative recall, which finds tokens by content, needs two blocks, so this ablation only tests memory of
positions.

On images of 16 patches all mixers are about equally good, because the label depends little on position. Explicit attention
gives fused attention's results, more slowly and with n x n stored scores per head and sample. Additive scoring is by far the
slowest: it takes a tanh for every pair and channel, which no FLOP count includes.

Source: arXiv 1706.03762, Table 1 (work, sequential steps and path length per layer); arXiv 1409.0473 (additive scoring);
arXiv 2006.16236 (linear attention); Nadaraya 1964 and Watson 1964 (kernels); arXiv 2105.08050 (spatial gating); arXiv
2111.11418 (pooling; one block for all mixers).

Cost: three quarters of an hour on one CPU thread; about twenty minutes on a GPU (estimate); three minutes with --quick on
a CPU.
"""

import functools

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

IMAGES, MEMORY, COST = "images", "copy from n / 2 tokens away", "cost against n"
SHORT, MIDDLE, LONG = 16, 32, 64
LENGTHS = f"{SHORT},{MIDDLE},{LONG}"


def arm(name: str, mixer: str, work: str, steps: str, path: str, **flags: str) -> Arm:
    """Return one mixer's variant, with its row of the textbook table.

    Symbols: n tokens of width d; windows or kernels of k.
    """
    facts = {"work per layer": work, "sequential steps": steps, "longest path": path}
    return Arm(name=name, flags={"models": f"metaformer+mixer={mixer}", **flags}, facts=facts)


NONE = arm("none", "identity", "0", "1", "none")
FUSED = arm("attention, fused", "attention", "n^2 d", "1", "1")
EXPLICIT = arm("attention, explicit", "attention", "n^2 d", "1", "1", attention="math")
CAUSAL = arm("causal attention", "attention:causal=true", "n^2 d", "1", "1 (to the past)")
GATING = arm("spatial gating", "gated_projection", "n^2 d", "1", "1")
ADDITIVE = arm("additive attention", "additive_attention", "n^2 d", "1", "1")
KERNEL = arm("kernel attention, fixed", "kernel_attention", "n^2 d", "1", "1")
LEARNED_KERNEL = arm("kernel attention, learned", "kernel_attention:bandwidth=learned", "n^2 d", "1", "1")
WINDOW = arm("window attention, 16", "window_attention", "n k d", "1", "none beyond the window")
CONVOLUTION = arm("depthwise convolution, 9", "depthwise_convolution", "n k d (n k d^2 across channels)", "1", "n / k")
LINEAR = arm("linear attention", "linear_attention", "n d^2 / heads", "1", "1")
GRU = arm("GRU", "gru", "n d^2", "n", "n (to the past)")
POOLING = arm("mean pooling", "mean_pooling", "n d", "1", "1")
TRAINED = (NONE, FUSED, CAUSAL, GATING, ADDITIVE, KERNEL, LEARNED_KERNEL, WINDOW, CONVOLUTION, LINEAR, GRU, POOLING)
TIMED = (FUSED, EXPLICIT, CAUSAL, GATING, ADDITIVE, KERNEL, WINDOW, CONVOLUTION, LINEAR, GRU, POOLING, NONE)

BLOCK = {"depth": "1", "params": "120k", "width": "96"}
"""The width is given because some mixers have no weights.

At equal width and parameters only ffn_width can compensate for that.
"""
ON_IMAGES = {**BLOCK, "task": "digits", "seq": "16", "metrics": "params,flops,accuracy"}
ON_MEMORY = {**BLOCK, "task": "copy+items=6000+test_items=1000", "seq": LENGTHS, "metrics": "params,flops,accuracy", "epochs": "5"}
ON_COST = {**BLOCK, "match": "shape", "batch": "4", "metrics": "params,flops,latency,memory"}
LARGE = {"depth": "1", "params": "2M", "width": "384"}


predict_copy = functools.partial(predict, MEMORY, by=0.3, against=NONE)
predict_cost = functools.partial(predict, COST, against=FUSED, measure="latency_ms")


ABLATION = Ablation(
    cpu=(
        Grid(name=IMAGES, flags=ON_IMAGES, arms=TRAINED),
        Grid(name=MEMORY, flags=ON_MEMORY, arms=TRAINED),
        Grid(name=COST, flags={**ON_COST, "seq": "64,128,256,512,1024"}, arms=TIMED),
    ),
    cuda=(
        Grid(name=IMAGES, flags=ON_IMAGES, arms=TRAINED),
        Grid(name=MEMORY, flags={**ON_MEMORY, "task": "copy", "seq": "16,32,64,128,256"}, arms=TRAINED),
        Grid(name=COST, flags={**ON_COST, **LARGE, "batch": "8", "dtype": "bf16", "seq": "64,128,256,512,1024,2048,4096"}, arms=TIMED),
    ),
    quick=(
        Grid(name=IMAGES, flags={**ON_IMAGES, "epochs": "2"}, arms=TRAINED),
        Grid(
            name=MEMORY,
            flags={**ON_MEMORY, "task": "copy+items=1500+test_items=300", "seq": "16", "epochs": "2"},
            arms=(NONE, FUSED, GATING, WINDOW, CONVOLUTION, GRU),
        ),
        Grid(name=COST, flags={**ON_COST, "seq": "64,128,256"}, arms=TIMED),
    ),
    predictions=(
        predict_copy(FUSED, "higher", "every token is one step away"),
        predict_copy(GATING, "higher", "W can hold the shift by n / 2"),
        predict_copy(CAUSAL, "higher", "the requested symbols lie in the past"),
        predict_copy(ADDITIVE, "higher", "only the score differs from attention"),
        predict_copy(KERNEL, "higher", "only the score differs from attention"),
        predict_copy(WINDOW, "higher", "all tokens are in one window", seq_len=SHORT),
        predict_copy(WINDOW, "equal", "every answer is outside its window", by=0.05, seq_len=LONG),
        predict_copy(CONVOLUTION, "equal", "the kernel reaches 4 tokens, the answer is 8 or more away", by=0.05),
        predict_copy(LINEAR, "higher", "8 symbols fit a state of 32 x 32", seq_len=SHORT),
        predict_copy(POOLING, "equal", "the mean loses positions", by=0.1, seq_len=LONG),
        predict_copy(GRU, "lower", "32 symbols must survive in one state", seq_len=LONG, against=FUSED),
        predict_copy(LINEAR, "lower", "32 symbols must share states of 32 x 32", by=0.05, seq_len=LONG, against=FUSED),
        predict_copy(LEARNED_KERNEL, "equal", "queries and keys can be scaled instead", by=0.05, against=KERNEL),
        *(
            predict(IMAGES, of, "equal", "with 16 patches position matters little", by=0.03, against=FUSED)
            for of in (GATING, ADDITIVE, KERNEL, WINDOW, CONVOLUTION, LINEAR, GRU)
        ),
        predict(IMAGES, FUSED, "higher", "patches must be mixed", by=0.02, against=NONE),
        predict_cost(EXPLICIT, "higher", "scores are written and read again", by=0.1, seq_len=1024),
        predict_cost(EXPLICIT, "higher", "n x n scores are stored", by=0.5, seq_len=1024, measure="activation_bytes"),
        predict_cost(ADDITIVE, "higher", "a tanh per pair and channel", by=2.0, seq_len=1024),
        predict_cost(WINDOW, "lower", "linear in n", by=0.1, seq_len=1024),
        predict_cost(CONVOLUTION, "lower", "linear in n", by=0.1, seq_len=1024),
        predict_cost(LINEAR, "lower", "linear in n", by=0.1, seq_len=1024),
        predict_cost(GRU, "higher", "64 small products run one after another", by=0.1, seq_len=64),
    ),
    findings=(
        Finding(
            text="At n = 1024 linear attention takes {} fused attention's time, spatial gating {}, explicit attention {}.",
            about=tuple(Asked(part=COST, arm=of.name, measure="latency_ms", seq_len=1024) for of in (LINEAR, GATING, EXPLICIT)),
        ),
        Finding(
            text="Copying from 32 tokens away gains {} by fused attention, {} by spatial gating and {} by a GRU, against no mixing.",
            about=tuple(Asked(part=MEMORY, arm=of.name, seq_len=LONG) for of in (FUSED, GATING, GRU)),
        ),
    ),
    rounds=20,
    seeds=3,
    sample_s=0.2,
)

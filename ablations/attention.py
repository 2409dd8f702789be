"""Which details of attention matter for accuracy and for time?

Prediction: Images have 16 patches, so the number of heads hardly matters, and a single head copies as well as eight. Without
the division by sqrt(d) the softmax saturates early: training is slower, but reaches the same accuracy at this size. Products
grow with d: on photographs (CIFAR-10, needs --data-root) a head of 256 channels loses a point or more without it. A learned
scale ends near the usual one. Dropout on attention weights costs accuracy, because a small model does not overfit.
Additive scoring is as accurate as dot products, and keys of a quarter of the width are no worse. (The ablation token_mixing
measures its time; FLOP counts leave out its tanh.)

All backends give equal results. Explicit attention (math) writes n x n scores per head and sample: it is slower at long n,
and its activations are quadratic. A padding mask per sample, even one that masks nothing, takes the fused kernel off its
fastest path. A mask per query costs still more, although it equals the causal flag.

Canonical sizes have heads of 32 channels, published ones of 64, which halves the scores at equal products. So fused attention
with heads of 64 takes at least a tenth less time at 5M parameters and n = 1025, where attention is a third or more of it. gMLP
of equal parameters remains the faster one there, since it has a sixth fewer FLOPs, but by less.

Source: arXiv 1706.03762, Sec. 3.2 (scaling, heads), Table 3 (A, B); arXiv 2012.12877, Table 1 (heads of 64); arXiv 1409.0473,
appendix A.1.2 (additive); Dive into Deep Learning, Sec. 11.3 (masked softmax, additive scoring).

Cost: an hour on one CPU thread; about ten minutes on a GPU (estimate); two minutes with --quick on a CPU.
"""

import functools

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

IMAGES, MEMORY, BACKENDS, MASKS = "digits", "copy from n / 2 tokens away", "backends", "masks"
WIDE, WIDTHS = "a head of 256 channels", "width of a head at equal parameters"


def arm(name: str, mixer: str = "attention", **flags: str) -> Arm:
    return Arm(name=name, flags={"models": f"metaformer+mixer={mixer}", **flags})


USUAL = arm("4 heads", heads="4")
ONE, TWO, EIGHT = (arm(f"{num} head{'s' if num > 1 else ''}", heads=str(num)) for num in (1, 2, 8))
UNSCALED = arm("no scaling", "attention:scaling=none", heads="4")
LEARNED = arm("learned scaling", "attention:scaling=learned", heads="4")
DROPPED = arm("dropout on the weights", heads="4", recipe="dropout=0.1,dropout_at=attention")
ADDITIVE = arm("additive", "additive_attention", heads="4")
UNEQUAL = arm("additive, narrow keys", "additive_attention:key_width=16:query_width=64", heads="4")
TRAINED = (USUAL, ONE, TWO, EIGHT, UNSCALED, LEARNED, DROPPED, ADDITIVE, UNEQUAL)
WIDE_USUAL = arm("divided by sqrt(d)")
WIDE_UNSCALED, WIDE_LEARNED = (arm(f"{how} scaling", f"attention:scaling={kind}") for how, kind in (("no", "none"), ("learned", "learned")))
AUTO, EXPLICIT, FLASH = (arm(name, attention=kernel) for name, kernel in (("auto", "auto"), ("explicit", "math"), ("flash", "flash")))
EFFICIENT, CUDNN = (arm(name, attention=kernel) for name, kernel in (("memory-efficient", "efficient"), ("cuDNN", "cudnn")))
NO_MASK, PER_SAMPLE = arm("no mask"), arm("a mask per sample", "attention:mask=sample")
CAUSAL, PER_QUERY = arm("causal flag", "attention:causal=true"), arm("a mask per query", "attention:causal=true:mask=query")

HEADS_OF_32, HEADS_OF_64 = (
    Arm(name=f"ViT, heads of {448 // num}", flags={"models": "vit", "width": "448", "heads": str(num)}) for num in (14, 7)
)
GMLP = Arm(name="gMLP", flags={"models": "gmlp"})

SMALL = {"depth": "2", "params": "150k", "width": "64"}
"""The width is given because canonical sizes fix the number of heads."""
ON_DIGITS = {**SMALL, "task": "digits", "seq": "16", "metrics": "params,flops,accuracy"}
ON_COPY = {**SMALL, "task": "copy+items=6000+test_items=1000", "seq": "32", "metrics": "params,flops,accuracy", "epochs": "6"}
SIX_EPOCHS = "epochs=6,batch_size=32,learning_rate=1e-3"
ON_PHOTOGRAPHS = {**ON_DIGITS, "task": "cifar10+items=10000", "params": "1.2M", "width": "256", "heads": "1", "recipe": SIX_EPOCHS}
AT_5M = {"depth": "2", "params": "5M", "batch": "1", "metrics": "params,flops,latency,memory"}
TIMED = {**SMALL, "match": "shape", "batch": "4", "metrics": "params,flops,latency,memory"}
LARGE = {**TIMED, "params": "22M", "width": "384", "depth": "12", "batch": "8", "dtype": "bf16", "seq": "256,1024,4096"}


predict_cost = functools.partial(predict, measure="latency_ms", seq_len=1024)


ABLATION = Ablation(
    cpu=(
        Grid(name=IMAGES, flags=ON_DIGITS, arms=TRAINED),
        Grid(name=MEMORY, flags=ON_COPY, arms=TRAINED),
        Grid(name=WIDE, flags=ON_PHOTOGRAPHS, arms=(WIDE_USUAL, WIDE_UNSCALED, WIDE_LEARNED)),
        Grid(name=BACKENDS, flags={**TIMED, "seq": "64,256,1024"}, arms=(AUTO, EXPLICIT, FLASH)),
        Grid(name=MASKS, flags={**TIMED, "seq": "64,256,1024"}, arms=(NO_MASK, PER_SAMPLE, CAUSAL, PER_QUERY)),
        Grid(name=WIDTHS, flags={**AT_5M, "seq": "257,1025"}, arms=(HEADS_OF_32, HEADS_OF_64, GMLP)),
    ),
    cuda=(
        Grid(name=IMAGES, flags=ON_DIGITS, arms=TRAINED),
        Grid(name=MEMORY, flags=ON_COPY, arms=TRAINED),
        Grid(name=WIDE, flags=ON_PHOTOGRAPHS, arms=(WIDE_USUAL, WIDE_UNSCALED, WIDE_LEARNED)),
        Grid(name=BACKENDS, flags=LARGE, arms=(AUTO, EXPLICIT, FLASH, EFFICIENT, CUDNN)),
        Grid(name=MASKS, flags=LARGE, arms=(NO_MASK, PER_SAMPLE, CAUSAL, PER_QUERY)),
        Grid(name=WIDTHS, flags={**AT_5M, "dtype": "bf16", "seq": "257,1025"}, arms=(HEADS_OF_32, HEADS_OF_64, GMLP)),
    ),
    quick=(
        Grid(name=IMAGES, flags={**ON_DIGITS, "epochs": "2"}, arms=TRAINED),
        Grid(name=BACKENDS, flags={**TIMED, "seq": "64,256"}, arms=(AUTO, EXPLICIT, FLASH)),
        Grid(name=MASKS, flags={**TIMED, "seq": "64,256"}, arms=(NO_MASK, PER_SAMPLE, CAUSAL, PER_QUERY)),
    ),
    predictions=(
        *(predict(IMAGES, of, "equal", "16 patches need one kind of neighbourhood", by=0.02) for of in (ONE, EIGHT)),
        predict(MEMORY, ONE, "equal", "each output needs one position", by=0.02),
        predict(IMAGES, UNSCALED, "equal", "training is slower but reaches the same accuracy", by=0.02),
        predict(IMAGES, LEARNED, "equal", "it ends near the usual scale", by=0.02),
        predict(WIDE, WIDE_UNSCALED, "lower", "the softmax of products of 256 channels saturates", by=0.01),
        predict(WIDE, WIDE_LEARNED, "equal", "it ends near the usual scale", by=0.02),
        predict(IMAGES, DROPPED, "lower", "a small model does not overfit"),
        predict(IMAGES, ADDITIVE, "equal", "only the score differs", by=0.02),
        predict(IMAGES, UNEQUAL, "equal", "a score needs few channels", by=0.02, against=ADDITIVE),
        predict_cost(BACKENDS, EXPLICIT, "higher", "scores are written and read again", by=0.1, against=AUTO),
        predict_cost(BACKENDS, EXPLICIT, "higher", "n x n scores are stored", by=0.5, measure="activation_bytes", against=AUTO),
        predict_cost(BACKENDS, FLASH, "equal", "auto chooses flash where it can", by=0.05, against=AUTO),
        predict_cost(MASKS, PER_SAMPLE, "higher", "the mask is read for every score", by=0.02, against=NO_MASK),
        predict_cost(MASKS, PER_QUERY, "higher", "the flag skips pairs that a mask only hides", by=0.1, against=CAUSAL),
        predict(WIDTHS, HEADS_OF_64, "lower", "half as many scores", by=0.1, measure="latency_ms", seq_len=1025),
        predict(WIDTHS, GMLP, "lower", "a sixth fewer FLOPs", by=0.03, measure="latency_ms", seq_len=1025, against=HEADS_OF_64),
    ),
    findings=(
        Finding(
            text="At n = 1024 explicit attention takes {} the time of torch's choice of kernel; a mask per query takes {} the time of no mask.",
            about=(
                Asked(part=BACKENDS, arm=EXPLICIT.name, measure="latency_ms", seq_len=1024),
                Asked(part=MASKS, arm=PER_QUERY.name, measure="latency_ms", seq_len=1024),
            ),
        ),
        Finding(
            text="On digits, one head in place of four changes accuracy by {}, no scaling by {}, additive scores by {}.",
            about=tuple(Asked(part=IMAGES, arm=of.name) for of in (ONE, UNSCALED, ADDITIVE)),
        ),
        Finding(
            text="On photographs, with one head of 256 channels, no scaling changes accuracy by {}, a learned one by {}.",
            about=tuple(Asked(part=WIDE, arm=of.name) for of in (WIDE_UNSCALED, WIDE_LEARNED)),
        ),
        Finding(
            text="At equal parameters and n = 1025 ViT with heads of 64 takes {} the time of heads of 32, and gMLP {} that of heads of 64.",
            about=(
                Asked(part=WIDTHS, arm=HEADS_OF_64.name, measure="latency_ms", seq_len=1025),
                Asked(part=WIDTHS, arm=GMLP.name, against=HEADS_OF_64.name, measure="latency_ms", seq_len=1025),
            ),
        ),
    ),
    rounds=20,
    seeds=5,
    sample_s=0.3,
)

"""At equal size, when does attention's n^2 hurt, and does gMLP escape it?

Prediction: no family with global mixing escapes. Attention computes n^2 activations per head and sample (2 d n^2 multiply-adds per layer), gMLP
multiplies by n^2 weights (m/2 d n^2, with m = 6 one and a half times as many per unit of width). With a feed-forward layer of 4 d the quadratic
term passes a tenth of attention's FLOPs at n = 0.7 d and of gMLP's at n = 0.3 d, and of the time much later, where launching and moving cost more
than multiplying. Fused attention keeps its memory linear, explicit attention does not; gMLP's activations are linear and its weights quadratic.
Attention in windows and depthwise convolution, the references, stay linear in everything.

Two things confound: the size must be matched (gMLP's parameters grow with n), and the batch must follow some rule. So the question is put with
the shape kept, with parameters matched at every length and with FLOPs matched; with a fixed batch and with fixed tokens per batch; in `infer` and
`train`; eager and compiled. Lengths are patches and a class token (2^k + 1), with the twin 256 beside 257 for what alignment does.

Source: arXiv 1706.03762, Table 1 (complexity per layer); arXiv 2105.08050, Sec. 2 (gMLP); docs/decisions/0010 (how the answers are drawn).

Cost: about an hour on one thread of a CPU; a GPU many hours, not run yet; --quick about two minutes on a CPU.
"""

from bench.spec import Ablation, Grid

FAMILIES = "gmlp,vit,transformer"
ALL = f"{FAMILIES},metaformer+mixer=window_attention,metaformer+mixer=depthwise_convolution"
SHORT = "17,65,129,257,513"
LONG = f"{SHORT},1025,2049,4097"
TIMED = "params,flops,latency,memory"

SMALL = {"depth": "2", "metrics": TIMED}
SMALL_SHAPE = {**SMALL, "params": "150k", "match": "shape", "attention": "auto,math"}
SMALL_MATCHED = {**SMALL, "params": "1M", "models": FAMILIES, "batch": "4", "seq": SHORT}
ACCURACY = {"models": FAMILIES, "params": "150k", "depth": "2", "seq": "17", "task": "digits", "metrics": f"{TIMED},accuracy"}

LARGE = {"params": "22M", "depth": "12", "metrics": f"{TIMED},energy", "dtype": "bf16"}
LARGE_SHAPE = {**LARGE, "match": "shape", "attention": "auto,math", "phase": "infer,train", "models": ALL}
LARGE_MATCHED = {**LARGE, "models": FAMILIES, "batch": "32", "seq": f"{SHORT},1025"}

ABLATION = Ablation(
    cpu=(
        Grid(name="shape kept, fixed batch", flags={**SMALL_SHAPE, "models": ALL, "batch": "4", "seq": f"{LONG},256"}),
        Grid(
            name="shape kept, fixed batch, training",
            flags={**SMALL_SHAPE, "models": FAMILIES, "batch": "4", "phase": "train", "seq": "17,65,129,257,513,1025,2049"},
        ),
        Grid(name="shape kept, fixed tokens", flags={**SMALL_SHAPE, "models": FAMILIES, "batch_tokens": "16388", "seq": LONG}),
        Grid(name="parameters matched", flags={**SMALL_MATCHED, "match": "params"}),
        Grid(name="FLOPs matched", flags={**SMALL_MATCHED, "match": "flops"}),
        Grid(name="shape kept, as large", flags={**SMALL_MATCHED, "match": "shape"}),
        Grid(
            name="shape kept, compiled",
            flags={**SMALL_SHAPE, "models": "gmlp,vit", "attention": "auto", "batch": "4", "engine": "compile", "seq": "17,257,2049"},
        ),
        Grid(name="accuracy", flags=ACCURACY),
    ),
    cuda=(
        Grid(name="shape kept, fixed batch", flags={**LARGE_SHAPE, "batch": "8", "seq": f"{LONG},8193,16385,32769,65537,256,4096"}),
        Grid(name="shape kept, fixed tokens", flags={**LARGE_SHAPE, "batch_tokens": "65544", "seq": f"{LONG},8193,16385,32769,65537"}),
        Grid(name="parameters matched", flags={**LARGE_MATCHED, "match": "params", "phase": "infer,train"}),
        Grid(name="FLOPs matched", flags={**LARGE_MATCHED, "match": "flops"}),
        Grid(name="shape kept, as large", flags={**LARGE_MATCHED, "match": "shape"}),
        Grid(
            name="shape kept, compiled",
            flags={
                **LARGE_SHAPE,
                "models": FAMILIES,
                "attention": "auto",
                "phase": "infer",
                "batch": "8",
                "engine": "compile",
                "seq": LONG,
            },
        ),
        Grid(name="accuracy", flags=ACCURACY),
    ),
    quick=(
        Grid(name="shape kept, fixed batch", flags={**SMALL_SHAPE, "models": ALL, "batch": "4", "seq": "17,65,256,257,1025"}),
        Grid(name="parameters matched", flags={**SMALL_MATCHED, "match": "params", "models": "gmlp,vit", "seq": "17,65,257"}),
    ),
    rounds=12,
    seeds=5,
    sample_s=0.2,
)

"""At equal size, when does attention's n^2 hurt? Does gMLP escape it?

Prediction: No family with global mixing escapes. Attention computes n^2 activations per head and sample (2 d n^2
multiply-adds per layer at width d). gMLP multiplies by n^2 weights (m/2 d n^2 multiply-adds, with m = ffn_width / d; at m =
6 one and a half times as many per unit of width). With a feed-forward layer of 4 d the quadratic term exceeds a tenth of
attention's FLOPs at n = 0.7 d, and a tenth of gMLP's at n = 0.3 d. Its share of the time reaches a tenth much later, where
launches and memory traffic cost more than products. Fused attention keeps its memory linear in n; explicit attention does
not. gMLP's activations are linear and its weights quadratic. The references, window attention, depthwise convolution and
linear attention, stay linear in everything; linear attention alone of them reaches all tokens.

Two things confound the comparison: gMLP's parameters grow with n, so size must be matched, and the batch must follow a rule.
The parts therefore keep the width as n grows, match parameters at every length, or match FLOPs; they use a fixed batch or
fixed tokens per batch, `infer` and `train`, eager and compiled; and they time published pairs. Lengths are patches plus a
class token (2^k + 1); 256 beside 257 shows the effect of alignment. In two blocks of 5M, parameters cannot be matched at n =
4097, because gMLP's n^2 weights alone are 34M; in two blocks of 80M they can.

Source: arXiv 1706.03762, Table 1 (complexity per layer); arXiv 2105.08050, Sec. 2 (gMLP); arXiv 2006.16236 (linear
attention); docs/decisions/0010 (how the answers are drawn).

Cost: about an hour on one CPU thread; many hours on a GPU (estimate); about two minutes with --quick on a CPU.
"""

from bench.questions import Ablation, Arm, Grid

FAMILIES = "gmlp,vit,transformer"
ALL = f"{FAMILIES},metaformer+mixer=linear_attention,metaformer+mixer=window_attention,metaformer+mixer=depthwise_convolution"
SHORT = "17,65,129,257,513"
LONG = f"{SHORT},1025,2049,4097"
FEW = "17,65,257,1025,4097"
TIMED = "params,flops,latency,memory"

SMALL = {"params": "252k", "depth": "2", "metrics": TIMED}
"""At 252k, without a task, gMLP, ViT and the Transformer fit within 7 % of their nominal ffn_width, the convolution within 11 %."""
SMALL_KEPT = {**SMALL, "match": "shape", "attention": "auto,math"}
MATCHED = {"params": "5M", "depth": "2", "metrics": TIMED, "batch": "1"}
"""At n = 1025, 42 % of 5M are gMLP's n^2 weights."""
BOTH = {**MATCHED, "models": "gmlp,vit", "attention": "auto,math", "match": "params"}
ACCURACY = {**SMALL, "models": FAMILIES, "seq": "17", "task": "digits", "metrics": f"{TIMED},accuracy"}

LARGE = {"params": "22M", "depth": "12", "metrics": f"{TIMED},energy", "dtype": "bf16"}
LARGE_KEPT = {**LARGE, "match": "shape", "attention": "auto,math", "phase": "infer,train", "models": ALL}
LARGE_MATCHED = {**LARGE, "models": FAMILIES, "batch": "32", "seq": f"{SHORT},1025"}

KEPT, TOKENS, PARAMS, FLOPS = "same width at every n", "same width, fixed tokens", "same parameters", "same FLOPs"
PUBLISHED = tuple(
    Grid(
        name=f"published, {patches} patches",
        flags={"batch": "1", "metrics": TIMED},
        arms=(
            Arm(name="gMLP-S", flags={"models": "gmlp-s", "seq": str(patches)}),
            Arm(name="DeiT-S", flags={"models": "deit-s", "seq": str(patches + 1)}),
            Arm(name="DeiT-S, explicit attention", flags={"models": "deit-s", "seq": str(patches + 1), "attention": "math"}),
        ),
        baseline="DeiT-S",
    )
    for patches in (196, 1024)
)

ABLATION = Ablation(
    cpu=(
        Grid(name=KEPT, flags={**SMALL_KEPT, "models": ALL, "batch": "4", "seq": f"{LONG},256"}),
        Grid(
            name=f"{KEPT}, training",
            flags={**SMALL_KEPT, "models": "gmlp,vit", "batch": "4", "phase": "train", "seq": "17,65,257,1025,2049"},
        ),
        Grid(name=TOKENS, flags={**SMALL_KEPT, "models": "gmlp,vit", "batch_tokens": "16388", "seq": FEW}),
        Grid(name=PARAMS, flags={**BOTH, "seq": "17,65,257,513,1025"}),
        Grid(name=f"{PARAMS}, n = 4097", flags={**BOTH, "params": "80M", "depth": "2", "seq": "4097"}),
        Grid(name=FLOPS, flags={**MATCHED, "models": "gmlp,vit", "match": "flops", "seq": "17,65,257,513,1025"}),
        Grid(name="same width, as large", flags={**MATCHED, "models": "gmlp,vit", "match": "shape", "seq": "17,65,257,513,1025"}),
        *PUBLISHED,
        Grid(
            name="same width, compiled",
            flags={**SMALL_KEPT, "models": "gmlp,vit", "attention": "auto", "batch": "4", "engine": "compile", "seq": "17,257,2049"},
        ),
        Grid(name="accuracy", flags=ACCURACY),
    ),
    cuda=(
        Grid(name=KEPT, flags={**LARGE_KEPT, "batch": "8", "seq": f"{LONG},8193,16385,32769,65537,256,4096"}),
        Grid(name=TOKENS, flags={**LARGE_KEPT, "batch_tokens": "65544", "seq": f"{LONG},8193,16385,32769,65537"}),
        Grid(name=PARAMS, flags={**LARGE_MATCHED, "match": "params", "phase": "infer,train"}),
        Grid(name=FLOPS, flags={**LARGE_MATCHED, "match": "flops"}),
        Grid(name="same width, as large", flags={**LARGE_MATCHED, "match": "shape"}),
        *PUBLISHED,
        Grid(
            name="same width, compiled",
            flags={
                **LARGE_KEPT,
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
        Grid(name=KEPT, flags={**SMALL_KEPT, "models": ALL, "batch": "4", "seq": "17,65,256,257,1025"}),
        Grid(name=PARAMS, flags={**BOTH, "attention": "auto", "seq": "17,65,257"}),
    ),
    rounds=20,
    seeds=5,
    sample_s=0.2,
)

"""What changes on a GPU?

Prediction: Kernels and alignment decide more than architectures do. A first pass on an H200 (two rounds, docs/gpu.md) had gMLP at
2.1 to 3.7 times ViT's time at n = 2^k + 1, and its gate 2.7 times faster at n = 4096 than at 4097: rows of odd length cannot be
loaded in aligned pieces. Its gates had 1,324 channels or so as well, four more than a multiple of eight. So all models have a width
of 384 here, gMLP's gates 1,520 channels, and lengths are 256 and 4096: the sizes that a GPU likes, equal in parameters at n = 256
within 0.3 %. Predicted after that pass: gMLP is within 20 % of ViT at n = 4096, in inference more than twice as slow at 4097, and
slower at 256, where it moves one and a half times the bytes. Predicted before the second pass: gates of 1,324 channels cost
gMLP at least a tenth at n = 4096. Predicted before the third: with rows of W that are copied to aligned places gMLP takes less
than half of its time at n = 4097.

Predicted before any pass: in training, the batched product is the faster formulation of gMLP's gate at n = 257, since it is one
kernel and moves a third of the bytes, and the slower at n = 4097, where the gradient of its weight is the largest tensor. Explicit
attention takes at least three times as long as fused attention at n = 4097, and cuDNN's kernel is faster than the one that torch
chooses. gMLP leads on CIFAR-10 at 4M parameters, as it does on a CPU at 300k. Our gMLP-S takes less time than timm's, and our
DeiT-S as long, within 5 %. With a token for each pixel (n = 1024), where n² is half of gMLP's FLOPs and a third of ViT's, gMLP leads
at 4M parameters too: what it keeps in W it has learned for this length. At n = 16,384 linear attention and Toeplitz gates by FFT
take less than half of fused attention's time. Compilation saves gMLP at least a fifth: it fuses the element-wise work around the gate.

The parts are in order of value: with --minutes they run one after the other, as far as the time allows, and the same command
goes on. All models of a part have heads of 64 channels, as published ViTs have, unless they are trained at 17 tokens. Eight rounds
are the fewest that decide up to six effects of a place together.

Source: NVIDIA H100 data sheet (989 TFLOP/s in bf16, 3.35 TB/s); arXiv 2205.14135 (fused attention); timm's published
throughputs of gmlp_s16_224 and deit_small_patch16_224.

Cost: some half an hour on an H200 (estimate from the first pass); on a CPU small models rehearse it in three minutes, with --quick or
without, and no time of theirs says anything about a GPU.
"""

import functools

from bench.questions import Ablation, Arm, Asked, Finding, Grid, PaysFrom, predict

GATES, KERNELS, HEADLINE, ODD = "gates", "attention kernels", "headline", "odd sizes"
LARGE, CIFAR, PUBLISHED, EXPLICIT = "51M on CIFAR-10", "4M on CIFAR-10", "published", "explicit attention"
ESCAPE, ENERGY, FP32, COMPILED, TRACE = "escape", "energy", "fp32", "compiled", "trace"
PIXELS = "a token for each pixel"

GMLP, VIT, TRANSFORMER = "gMLP", "ViT", "Transformer"
FAMILIES = tuple(Arm(name=name, flags={"models": family}) for name, family in ((GMLP, "gmlp"), (VIT, "vit"), (TRANSFORMER, "transformer")))
ODD_GATES = "gMLP, gates of 1,324"
GMLP_S, VIT_S, TRANSFORMER_S = (
    Arm(name=name, flags={"models": family, "width": "384", "heads": "6", "ffn_width": ffn_width})
    for name, family, ffn_width in ((GMLP, "gmlp", "3040"), (VIT, "vit", "1584"), (TRANSFORMER, "transformer", "1600"))
)
ALIGNED_ROWS = "gMLP, aligned rows"
GMLP_ALIGNED = Arm(name=ALIGNED_ROWS, flags={**GMLP_S.flags, "models": "gmlp+kernel=aligned"})
GMLP_ODD = Arm(name=ODD_GATES, flags={"models": "gmlp", "width": "440", "ffn_width": "2648"})
"""22M parameters at n = 256 in twelve blocks; ODD_GATES is what matching in steps of eight gives."""
SHAPES = (GMLP_S, VIT_S, TRANSFORMER_S)
FORMULATIONS = tuple(Arm(name=kernel, flags={"models": f"gmlp+kernel={kernel}"}) for kernel in ("linear", "baddbmm", "matmul"))
AUTO, CUDNN, MATH = "torch's choice", "cuDNN", "explicit"
CHOICE, CUDNN_ONLY, SCORES = (
    Arm(name=name, flags={"attention": kernel}) for name, kernel in ((AUTO, "auto"), (CUDNN, "cudnn"), (MATH, "math"))
)
FLASH = Arm(name="flash", flags={"attention": "flash"})
MIXERS = {
    "attention": "attention",
    "dense gates": "gated_projection",
    "Toeplitz gates": "gated_projection:toeplitz=true:kernel=fft",
    "linear attention": "linear_attention",
}
MIXING = tuple(Arm(name=name, flags={"models": f"metaformer+mixer={mixer}"}) for name, mixer in MIXERS.items())
OURS_AND_TIMM = (
    Arm(name="our DeiT-S", flags={"models": "deit-s"}),
    Arm(name="timm's DeiT-S", flags={"models": "timm:deit_small_patch16_224"}, facts={"code": "timm"}),
    Arm(name="our gMLP-S", flags={"models": "gmlp-s"}),
    Arm(name="timm's gMLP-S", flags={"models": "timm:gmlp_s16_224"}, facts={"code": "timm"}),
)
EAGER_AND_COMPILED = tuple(
    Arm(name=f"{arm.name}{title}", flags={**arm.flags, "engine": engine})
    for engine, title in (("eager", ""), ("compile", ", compiled"))
    for arm in SHAPES
)

BF16 = {"dtype": "bf16", "metrics": "latency"}
BOTH = {**BF16, "phase": "infer,train"}
BLOCKS = {**BF16, "phase": "train", "width": "384", "depth": "2", "heads": "6", "batch_tokens": "32800"}
SHAPE = {"depth": "12", "batch_tokens": "65536"}
"""With SHAPES: ViT-S, six heads of 64, and two others of its width and depth."""
TEN_EPOCHS = "epochs=10,batch_size=32,learning_rate=1.25e-4,precision=bf16-autocast"
RECORDED = (Arm(name="gMLP, steps as a CUDA graph", flags={"models": "gmlp", "recipe": f"{TEN_EPOCHS},engine=graph"}),)
TRAINED = {"task": "cifar10", "seq": "17", "depth": "6", "metrics": "params,flops,accuracy"}
POOLED = tuple(Arm(name=arm.name, flags={"models": f"{arm.flags['models']}+pool=mean"}) for arm in FAMILIES)
"""Without a class token, so that n is 1024, which 8 divides."""

ON_CUDA = (
    Grid(
        name=HEADLINE,
        flags={**BOTH, **SHAPE, "seq": "256,4096", "metrics": "params,flops,latency,memory"},
        arms=SHAPES,
        baseline=VIT,
    ),
    Grid(name=ODD, flags={**BF16, **SHAPE, "seq": "4096,4097"}, arms=(GMLP_S, GMLP_ODD, GMLP_ALIGNED, VIT_S), baseline=GMLP),
    Grid(name=TRACE, flags={**BF16, **SHAPE, "phase": "train", "seq": "256", "metrics": "profile"}, arms=SHAPES, baseline=VIT),
    Grid(
        name=ESCAPE,
        flags={
            **BF16,
            "width": "384",
            "depth": "4",
            "heads": "6",
            "ffn_width": "1536",
            "batch_tokens": "65536",
            "seq": "1024,4096,16384",
        },
        arms=MIXING,
    ),
    Grid(
        name=PIXELS,
        flags={
            "task": "cifar10+items=10000",
            "seq": "1024",
            "params": "4M",
            "depth": "2",
            "heads": "6",
            "metrics": "params,flops,latency,accuracy",
            "dtype": "bf16",
            "recipe": "epochs=10,batch_size=64,learning_rate=1e-3,augment=crop+flip,precision=bf16-autocast",
        },
        arms=POOLED,
        baseline=VIT,
    ),
    Grid(name=LARGE, flags={**TRAINED, "params": "51M"}, arms=RECORDED),
    Grid(name=PUBLISHED, flags={**BF16, "input": "images", "batch": "128"}, arms=OURS_AND_TIMM),
    Grid(
        name=CIFAR,
        flags={**TRAINED, "params": "4M", "recipe": "epochs=10,batch_size=128,learning_rate=5e-4,precision=bf16-autocast"},
        arms=FAMILIES,
        baseline=VIT,
    ),
    # other batches than the headline's: parts that share a configuration are timed together
    Grid(
        name=EXPLICIT,
        flags={
            **BOTH,
            **SHAPE,
            **VIT_S.flags,
            "batch_tokens": "32800",
            "seq": "1025,4097",
            "metrics": "latency,memory",
        },
        arms=(CHOICE, CUDNN_ONLY, SCORES),
    ),
    Grid(name=ENERGY, flags={**BF16, **SHAPE, "phase": "train", "seq": "1024", "metrics": "energy"}, arms=SHAPES, baseline=VIT),
    Grid(name=FP32, flags={**BF16, **SHAPE, "dtype": "fp32", "seq": "256,1024"}, arms=SHAPES, baseline=VIT),
    Grid(name=COMPILED, flags={**BF16, **SHAPE, "batch_tokens": "32768", "seq": "256"}, arms=EAGER_AND_COMPILED, baseline=VIT),
    Grid(name=GATES, flags={**BLOCKS, "ffn_width": "2304", "seq": "257,1025,4096,4097"}, arms=FORMULATIONS),
    Grid(name=KERNELS, flags={**BLOCKS, "models": "vit", "seq": "257,1025,4097"}, arms=(CHOICE, FLASH, CUDNN_ONLY, SCORES)),
)

SMALL = {"dtype": "fp32", "metrics": "latency", "phase": "infer,train"}
TINY = {"width": "64", "depth": "1", "heads": "2", "batch_tokens": "514"}
SMALL_SHAPE = {"params": "100k", "depth": "2", "heads": "2", "match": "shape", "batch_tokens": "514"}
DIGITS = {
    "task": "digits",
    "seq": "17",
    "params": "100k",
    "depth": "2",
    "metrics": "params,flops,accuracy",
    "recipe": "epochs=1,batch_size=128",
}
REHEARSAL = (
    Grid(
        name=HEADLINE,
        flags={**SMALL, **SMALL_SHAPE, "seq": "17,65", "metrics": "params,flops,latency,memory"},
        arms=FAMILIES,
        baseline=VIT,
    ),
    Grid(name=ODD, flags={**SMALL, **TINY, "ffn_width": "256", "phase": "infer", "seq": "64,65"}, arms=FAMILIES[:2], baseline=GMLP),
    Grid(name=TRACE, flags={**SMALL, **SMALL_SHAPE, "phase": "train", "seq": "17", "metrics": "profile"}, arms=FAMILIES, baseline=VIT),
    Grid(
        name=ESCAPE,
        flags={**SMALL, "phase": "infer", "width": "64", "depth": "1", "heads": "2", "batch_tokens": "1024", "seq": "64"},
        arms=MIXING,
    ),
    Grid(name=LARGE, flags=DIGITS, arms=FAMILIES[:1]),
    Grid(name=PUBLISHED, flags={**SMALL, "phase": "infer", "input": "images", "batch": "1"}, arms=OURS_AND_TIMM[::2]),
    Grid(name=CIFAR, flags=DIGITS, arms=FAMILIES, baseline=VIT),
    Grid(
        name=EXPLICIT,
        flags={**SMALL, **SMALL_SHAPE, "models": "vit", "batch_tokens": "260", "seq": "17,65", "metrics": "latency,memory"},
        arms=(CHOICE, SCORES),
    ),
    Grid(name=ENERGY, flags={**SMALL, **SMALL_SHAPE, "seq": "17", "metrics": "energy"}, arms=FAMILIES, baseline=VIT),
    Grid(name=GATES, flags={**SMALL, **TINY, "ffn_width": "384", "seq": "17,64"}, arms=FORMULATIONS),
    Grid(name=KERNELS, flags={**SMALL, **TINY, "models": "vit", "seq": "17,65"}, arms=(CHOICE, SCORES)),
)
"""Small models through the same parts; what needs a GPU or minutes of compilation is left out."""


predict_time = functools.partial(predict, measure="latency_ms", device="cuda")


PREDICTIONS = (
    predict_time(GATES, "baddbmm", "lower", "one kernel, a third of the bytes", by=0.05, seq_len=257),
    predict_time(GATES, "baddbmm", "higher", "the gradient of its weight is a matrix per sample", seq_len=4097),
    predict_time(KERNELS, MATH, "higher", "scores are written to memory and read again", by=2.0, seq_len=4097),
    predict_time(KERNELS, CUDNN, "lower", "written for this generation of GPUs", by=0.05, seq_len=4097),
    predict_time(HEADLINE, GMLP, "higher", "one and a half times the bytes", by=0.1, seq_len=256),
    predict_time(HEADLINE, GMLP, "equal", "aligned rows", by=0.2, seq_len=4096),
    predict_time(ODD, VIT, "lower", "gMLP has more multiply-adds in its n^2 term, on unaligned rows", by=0.5, seq_len=4097),
    predict_time(ODD, ALIGNED_ROWS, "lower", "W's rows can be loaded in aligned pieces", by=0.5, seq_len=4097),
    predict_time(ODD, ODD_GATES, "higher", "half of its channels begin at an address that no 16 bytes divide", by=0.1, seq_len=4096),
    predict(CIFAR, GMLP, "higher", "as on a CPU at 300k", by=0.02, device="cuda"),
    predict(PIXELS, GMLP, "higher", "W is learned for this length", by=0.02, device="cuda"),
    predict_time(PUBLISHED, "our gMLP-S", "lower", "the batched product needs no transposed copies", against="timm's gMLP-S"),
    predict_time(PUBLISHED, "our DeiT-S", "equal", "the same operators", by=0.05, against="timm's DeiT-S"),
    predict_time(EXPLICIT, MATH, "higher", "scores are written to memory and read again", by=1.0, seq_len=4097),
    predict_time(ESCAPE, "linear attention", "lower", "linear in n", by=0.5, seq_len=16384),
    predict_time(ESCAPE, "Toeplitz gates", "lower", "n log n", by=0.5, seq_len=16384),
    predict_time(COMPILED, "gMLP, compiled", "lower", "element-wise work is fused", by=0.2, against=GMLP),
)


def _asked(part: str, arm: str, seq_len: int, phase: str = "") -> Asked:
    return Asked(part=part, arm=arm, measure="latency_ms", seq_len=seq_len, phase=phase)


FINDINGS = (
    Finding(
        text="At aligned sizes gMLP takes {} ViT's time in inference and {} in training at n = 256, {} and {} at n = 4096, at one shape.",
        about=tuple(_asked(HEADLINE, GMLP, n, phase) for n in (256, 4096) for phase in ("infer", "train")),
    ),
    Finding(
        text="A gMLP 440 wide with gates of 1,324 channels takes {} the time of one 384 wide with gates of 1,520 at n = 4096; "
        "at n = 4097 ViT takes {} gMLP's time.",
        about=(_asked(ODD, ODD_GATES, 4096), _asked(ODD, VIT, 4097)),
    ),
    Finding(
        text="Escaping n² begins to pay {} tokens with linear attention; at 16,384 it takes {} fused attention's time, Toeplitz gates {}, "
        "dense gates, which do not escape, {}.",
        about=(
            PaysFrom(part=ESCAPE, arm="linear attention"),
            *(_asked(ESCAPE, arm, 16384) for arm in ("linear attention", "Toeplitz gates", "dense gates")),
        ),
    ),
)

ABLATION = Ablation(
    cpu=REHEARSAL,
    cuda=ON_CUDA,
    quick=REHEARSAL,
    predictions=PREDICTIONS,
    findings=FINDINGS,
    rounds=8,
    seeds=1,
    sample_s=0.2,
    growth=False,
)

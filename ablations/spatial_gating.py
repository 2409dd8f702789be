"""Which parts of the spatial gating unit carry gMLP?

Prediction: The identity s(Z) = Z mixes nothing, and loses the information that image patches carry only together. A linear
s(Z) = W Z + b mixes all inputs in the same way, and loses a little. Adding Z back recovers part of that loss; multiplying by
Z, a second-order interaction, recovers all of it. Splitting the channels does the same with half of the products, so the
paper uses it.

Initialisation matters if it is far from the identity. W of 1e-6 to 1e-3 with b = 1 starts as a feed-forward layer, and so
does the additive form with b = 0. The linear form with b = 0 starts at zero, so it is also run with torch's default W. With
a product, b = 0 starts with a closed gate; with a sum, b = 1 adds one to every channel. W of 0.05 and torch's default start
as random mixing, which a small model survives at the usual learning rate, but hardly at five times that rate. LayerNorm on v
keeps the scale of W's input; without it training is less stable but not less accurate.

A Toeplitz W has 2 n - 1 weights instead of n^2; at n = 16 nothing is lost. On 16 tokens four heads, their average, or a GELU
after V make no notable difference. A tiny attention (aMLP) helps where tokens must be found by content, so hardly on digits.

All variants have the same width; ffn_width is adjusted to match parameters, including the tiny attention's.

Source: arXiv 2105.08050, Sec. 2.1 (gating, initialisation), Sec. 4.3 (aMLP), Table 3 (forms of gating), appendix C
(Toeplitz).

Cost: half an hour on one CPU thread; two hours on a GPU (estimate); both with CIFAR-10 (needs --data-root). A minute with
--quick on a CPU.
"""

import functools

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

IMAGES, PHOTOGRAPHS, HOT = "digits", "photographs", "five times the learning rate"


def arm(name: str, options: str = "", **flags: str) -> Arm:
    return Arm(name=name, flags={"models": f"gmlp+pool=mean{options}", **flags})


SPLIT = arm("multiplicative, split")
IDENTITY = arm("identity", "+gating=identity")
LINEAR = arm("linear, b = 0", "+gating=linear+bias_init=0")
ADDITIVE = arm("additive, b = 0", "+gating=additive+bias_init=0")
LINEAR_DEFAULT = arm("linear, b = 0, W as torch's default", "+gating=linear+bias_init=0+weight_init=default")
LINEAR_ONE = arm("linear, b = 1", "+gating=linear")
ADDITIVE_ONE = arm("additive, b = 1", "+gating=additive")
MULTIPLICATIVE = arm("multiplicative", "+gating=multiplicative")
HEADS = arm("4 heads", "+spatial_heads=4")
AVERAGED = arm("4 heads, averaged", "+spatial_heads=4+head_mix=mean")
SMALL_W = arm("W 1e-3", "+weight_init=1e-3")
LARGE_W = arm("W 0.05", "+weight_init=0.05")
DEFAULT_W = arm("W as torch's default", "+weight_init=default")
ZERO_B = arm("b = 0", "+bias_init=0")
LARGE_W_ZERO_B = arm("W 0.05, b = 0", "+weight_init=0.05+bias_init=0")
UNNORMED = arm("no LayerNorm on v", "+gate_norm=false")
TOEPLITZ = arm("Toeplitz W", "+toeplitz=true")
AFTER = arm("GELU after V", "+activation_after=true")
TINY_16 = arm("tiny attention, 16", "+tiny_attention=16")
TINY_64 = arm("tiny attention, 64", "+tiny_attention=64")
GATINGS = (SPLIT, IDENTITY, LINEAR, ADDITIVE, MULTIPLICATIVE)
STARTS = (SPLIT, SMALL_W, LARGE_W, DEFAULT_W, ZERO_B, LARGE_W_ZERO_B, UNNORMED)
ALL = (*GATINGS, LINEAR_DEFAULT, LINEAR_ONE, ADDITIVE_ONE, HEADS, AVERAGED, *STARTS[1:], TOEPLITZ, AFTER, TINY_16, TINY_64)

SMALL = {"depth": "4", "params": "170k", "width": "64", "metrics": "params,flops,accuracy"}
"""The width is given because of the tiny attention.

At equal width and parameters it reduces ffn_width more than canonical sizes allow.
"""
ON_DIGITS = {**SMALL, "task": "digits", "seq": "16"}
ON_CIFAR = {**SMALL, "task": "cifar10+items=6000", "seq": "16", "epochs": "8", "recipe": "augment=flip"}
HOTTER = {**ON_DIGITS, "recipe": "learning_rate=0.01"}


predict_digits, predict_photographs, predict_hot = (
    functools.partial(predict, part, by=0.02, against=SPLIT) for part in (IMAGES, PHOTOGRAPHS, HOT)
)


ABLATION = Ablation(
    cpu=(
        Grid(name=IMAGES, flags=ON_DIGITS, arms=ALL),
        Grid(name=HOT, flags=HOTTER, arms=STARTS),
        Grid(name=PHOTOGRAPHS, flags=ON_CIFAR, arms=(*GATINGS, LINEAR_DEFAULT, TOEPLITZ, TINY_64)),
    ),
    cuda=(
        Grid(name=IMAGES, flags=ON_DIGITS, arms=ALL),
        Grid(name=HOT, flags=HOTTER, arms=STARTS),
        Grid(
            name=PHOTOGRAPHS,
            flags={**ON_CIFAR, "params": "2M", "width": "192", "task": "cifar10", "seq": "64", "epochs": "30"},
            arms=ALL,
        ),
    ),
    quick=(
        Grid(name=IMAGES, flags={**ON_DIGITS, "epochs": "2"}, arms=ALL),
        Grid(name=HOT, flags={**HOTTER, "epochs": "2"}, arms=STARTS[:4]),
    ),
    predictions=(
        predict_digits(IDENTITY, "lower", "tokens are not mixed"),
        predict_photographs(IDENTITY, "lower", "tokens are not mixed"),
        predict_digits(LINEAR, "lower", "it mixes all inputs in the same way", by=0.0),
        predict_photographs(LINEAR, "lower", "it mixes all inputs in the same way", by=0.0),
        predict_photographs(LINEAR_DEFAULT, "lower", "the linear form is weaker from any initialisation", by=0.0),
        predict_photographs(ADDITIVE, "lower", "first-order interaction only", by=0.0),
        predict_digits(MULTIPLICATIVE, "equal", "second-order interaction, as with the split"),
        predict_photographs(MULTIPLICATIVE, "equal", "second-order interaction, as with the split"),
        predict_digits(ADDITIVE_ONE, "equal", "the next layer removes the added constant", against=ADDITIVE),
        predict_digits(HEADS, "equal", "16 tokens need one matrix"),
        predict_digits(AVERAGED, "equal", "an average of matrices is one matrix"),
        predict_digits(SMALL_W, "equal", "still starts near the identity"),
        predict_digits(ZERO_B, "lower", "the gate starts closed", by=0.0),
        predict_digits(LARGE_W, "equal", "random mixing is survived at the usual learning rate"),
        predict_hot(DEFAULT_W, "lower", "starts as random mixing, at a high learning rate", by=0.0),
        predict_digits(UNNORMED, "equal", "less stable but not less accurate"),
        predict_hot(UNNORMED, "lower", "nothing keeps the scale of v", by=0.0),
        predict_digits(TOEPLITZ, "equal", "relative offsets suffice for 16 tokens"),
        predict_photographs(TOEPLITZ, "equal", "relative offsets suffice for 16 tokens"),
        predict_digits(AFTER, "equal", "only one more activation per block"),
        predict_digits(TINY_64, "equal", "digits need no search by content"),
        predict_photographs(TINY_64, "higher", "photographs benefit from mixing by content", by=0.0),
    ),
    findings=(
        Finding(
            text="On photographs, against the multiplicative gate with a split, accuracy changes by {} without mixing, {} with a linear gate "
            "and {} with Toeplitz weights.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm=of.name) for of in (IDENTITY, LINEAR, TOEPLITZ)),
        ),
        Finding(text="A tiny attention beside the gate changes it by {}.", about=(Asked(part=PHOTOGRAPHS, arm=TINY_64.name),)),
    ),
    seeds=5,
)

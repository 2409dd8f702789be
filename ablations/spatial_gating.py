"""Which parts of the spatial gating unit carry gMLP?

Prediction: s(Z) = Z has no mixing and loses on images what patches tell together; a linear s(Z) = W Z + b mixes, but in the same way whatever the
tokens hold, and loses a little; adding Z back repairs part of that, multiplying (a second-order interaction) all of it, and splitting the
channels does the same with half of the products, so that the paper takes it. The start matters where it is far from the identity: W of 1e-6 to
1e-3 with b = 1 begins as a feed-forward layer, as does the additive form with b = 0 (the linear one begins with nothing, so it also has torch's
start); b = 0 with a product begins with a gate that is shut, and b = 1 with a sum adds one to every channel; 0.05 and torch's default begin as
random mixing, which a small model survives at the usual learning rate and hardly at five times that. LayerNorm on v keeps W's input at one scale:
without it training is less stable, not worse. A Toeplitz W has 2 n - 1 weights in place of n^2; at n = 16 nothing is lost. Four heads, or their
average, change nothing that counts on 16 tokens, nor does a GELU after V. A tiny attention (aMLP) helps where tokens must be found by content,
hardly on digits.

Every arm has the same width and is matched in parameters by its ffn_width; the tiny attention's are part of them.

Source: arXiv 2105.08050, Sec. 2.1 (gating, initialisation), Sec. 4.3 (aMLP), Table 3 (forms of gating), appendix C (Toeplitz).

Cost: half an hour on one thread of a CPU and two hours on a GPU, not run yet, both with CIFAR-10 (--data-root); --quick a minute on a CPU.
"""

from bench.spec import Ablation, Arm, Grid, Prediction

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

SMALL = {"depth": "4", "params": "170k", "fixed_width": "64", "metrics": "params,flops,accuracy", "sizing": "free"}
"""Free: at equal width and parameters the tiny attention takes more from ffn_width than a canonical size gives."""
ON_DIGITS = {**SMALL, "task": "digits", "seq": "16"}
ON_CIFAR = {**SMALL, "task": "cifar10+items=6000", "seq": "16", "epochs": "8", "recipe": "augment=flip"}
HOTTER = {**ON_DIGITS, "recipe": "learning_rate=0.01"}


def found(of: Arm, expected: str, because: str, *, by: float = 0.02, part: str = IMAGES, against: Arm = SPLIT) -> Prediction:
    return Prediction(part=part, arm=of.name, against=against.name, expected=expected, by=by, because=because)


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
            flags={**ON_CIFAR, "params": "2M", "fixed_width": "192", "task": "cifar10", "seq": "64", "epochs": "30"},
            arms=ALL,
        ),
    ),
    quick=(
        Grid(name=IMAGES, flags={**ON_DIGITS, "epochs": "2"}, arms=ALL),
        Grid(name=HOT, flags={**HOTTER, "epochs": "2"}, arms=STARTS[:4]),
    ),
    predictions=(
        found(IDENTITY, "lower", "no token meets another"),
        found(IDENTITY, "lower", "no token meets another", part=PHOTOGRAPHS),
        found(LINEAR, "lower", "mixes in one way, whatever the tokens hold", by=0.0),
        found(LINEAR, "lower", "mixes in one way, whatever the tokens hold", by=0.0, part=PHOTOGRAPHS),
        found(LINEAR_DEFAULT, "lower", "the form, not the start, is what linear lacks", by=0.0, part=PHOTOGRAPHS),
        found(ADDITIVE, "lower", "first order only", by=0.0, part=PHOTOGRAPHS),
        found(MULTIPLICATIVE, "equal", "second order, as with the split"),
        found(MULTIPLICATIVE, "equal", "second order, as with the split", part=PHOTOGRAPHS),
        found(ADDITIVE_ONE, "equal", "a constant that the next layer takes away", against=ADDITIVE),
        found(HEADS, "equal", "16 tokens need one matrix"),
        found(AVERAGED, "equal", "a sum of matrices is a matrix"),
        found(SMALL_W, "equal", "still near the identity"),
        found(ZERO_B, "lower", "the gate begins shut", by=0.0),
        found(LARGE_W, "equal", "survives at the usual learning rate"),
        found(DEFAULT_W, "lower", "random mixing at a high learning rate", part=HOT, by=0.0),
        found(UNNORMED, "equal", "less stable, not worse"),
        found(UNNORMED, "lower", "nothing holds the scale of v", part=HOT, by=0.0),
        found(TOEPLITZ, "equal", "16 tokens on a line"),
        found(TOEPLITZ, "equal", "16 tokens on a line", part=PHOTOGRAPHS),
        found(AFTER, "equal", "one more activation per block"),
        found(TINY_64, "equal", "digits need no search by content"),
        found(TINY_64, "higher", "photographs profit from content", part=PHOTOGRAPHS, by=0.0),
    ),
    seeds=5,
)

"""Where do norms and residuals belong, and does their kind matter?

Prediction: With two blocks pre-norm and post-norm train alike. With eight, the gradient of post-norm passes a norm at every
block, so post-norm needs a lower learning rate: at the usual rate it learns late or not at all, while pre-norm is
unaffected. A norm on the update alone (inside the residual) behaves like pre-norm. Without residuals eight blocks do not
train. On images BatchNorm is neither better nor worse than LayerNorm, and ReLU instead of GELU makes no notable difference.
All variants use the usual warm-up over a tenth of the steps and clip gradients; both are known to help post-norm.

Source: arXiv 2002.04745 (pre-norm and post-norm); arXiv 1706.03762, Sec. 3.1 (post-norm); arXiv 2111.09883, Sec. 3.2 (norm
inside the residual); Dive into Deep Learning, Sec. 11.7.

Cost: ten minutes on one CPU thread; about as long on a GPU (estimate); a minute with --quick on a CPU.
"""

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

SHALLOW, DEEP, KINDS = "2 blocks", "8 blocks", "kind of norm and activation"
LOW, USUAL, HIGH = "0.0005", "0.002", "0.008"


def arm(name: str, options: str = "", learning_rate: str = USUAL) -> Arm:
    return Arm(name=name, flags={"models": f"metaformer+mixer=attention{options}", "recipe": f"learning_rate={learning_rate}"})


PRE, POST, INNER, NONE = (
    arm(name, f"+residual={place}")
    for name, place in (("pre-norm", "pre"), ("post-norm", "post"), ("norm inside", "inner"), ("no residual", "none"))
)
PRE_LOW, PRE_HIGH = arm("pre-norm, low rate", "+residual=pre", LOW), arm("pre-norm, high rate", "+residual=pre", HIGH)
POST_LOW, POST_HIGH = arm("post-norm, low rate", "+residual=post", LOW), arm("post-norm, high rate", "+residual=post", HIGH)
LAYER, BATCH = arm("LayerNorm, GELU", "+norm=layer"), arm("BatchNorm, GELU", "+norm=batch")
RELU, BATCH_RELU = arm("LayerNorm, ReLU", "+activation=relu"), arm("BatchNorm, ReLU", "+norm=batch+activation=relu")
PLACES = (PRE, POST, INNER, NONE, PRE_LOW, PRE_HIGH, POST_LOW, POST_HIGH)

SMALL = {"width": "64", "task": "digits", "seq": "16", "metrics": "params,flops,accuracy"}
FULL = (
    Grid(name=SHALLOW, flags={**SMALL, "depth": "2", "params": "100k"}, arms=PLACES),
    Grid(name=DEEP, flags={**SMALL, "depth": "8", "params": "400k"}, arms=PLACES),
    Grid(name=KINDS, flags={**SMALL, "depth": "2", "params": "100k"}, arms=(LAYER, BATCH, RELU, BATCH_RELU)),
)

ABLATION = Ablation(
    cpu=FULL,
    cuda=FULL,
    quick=(
        Grid(name=SHALLOW, flags={**SMALL, "depth": "2", "params": "100k", "epochs": "2"}, arms=PLACES[:4]),
        Grid(name=DEEP, flags={**SMALL, "depth": "8", "params": "400k", "epochs": "2"}, arms=PLACES[:4]),
        Grid(name=KINDS, flags={**SMALL, "depth": "2", "params": "100k", "epochs": "2"}, arms=(LAYER, BATCH, RELU, BATCH_RELU)),
    ),
    predictions=(
        predict(SHALLOW, POST, "equal", "two norms on the gradient's path hardly matter", by=0.02),
        predict(DEEP, POST, "lower", "the gradient passes a norm at every block", by=0.02),
        predict(DEEP, POST_LOW, "equal", "a lower rate lets post-norm train", by=0.05, against=PRE),
        predict(DEEP, POST_HIGH, "lower", "the higher the rate, the worse for post-norm", by=0.1, against=PRE_HIGH),
        predict(DEEP, INNER, "equal", "the residual path has no norm, as with pre-norm", by=0.02),
        predict(DEEP, NONE, "lower", "the gradient has no direct path through eight blocks", by=0.1),
        predict(KINDS, BATCH, "equal", "patches of a batch are as similar as channels", by=0.02),
        predict(KINDS, RELU, "equal", "ReLU and GELU have nearly the same shape", by=0.02),
    ),
    findings=(
        Finding(
            text="In eight blocks, against pre-norm, post-norm changes accuracy by {}, at a low rate by {}, and no residual by {}.",
            about=(
                Asked(part=DEEP, arm=POST.name),
                Asked(part=DEEP, arm=POST_LOW.name, against=PRE.name),
                Asked(part=DEEP, arm=NONE.name),
            ),
        ),
        Finding(
            text="In two blocks post-norm changes it by {}; BatchNorm in place of LayerNorm by {}, ReLU in place of GELU by {}.",
            about=(Asked(part=SHALLOW, arm=POST.name), *(Asked(part=KINDS, arm=of.name) for of in (BATCH, RELU))),
        ),
    ),
    seeds=5,
)

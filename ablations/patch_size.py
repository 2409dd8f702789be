"""Are larger or smaller patches better for small images?

Prediction: Smaller ones, for every family: patches of 4 pixels in place of 8 give four times as many tokens and are worth five points or
more, patches of 16 pixels cost ten or more. The FLOPs grow with the tokens, so accuracy is bought by time, and by n^2.

Source: arXiv 2010.11929, Sec. 4.2 (patches of 14, 16 and 32 pixels); a tutorial says that larger patches are better for 32 x 32 pixels.

Cost: an hour on two cores (CIFAR-10, needs --data-root); half an hour on a GPU (estimate); a minute with --quick on a CPU.
"""

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

PHOTOGRAPHS, DIGITS = "photographs", "digits"
FAMILIES = ("gmlp", "vit", "transformer")
PATCHES = {"8 px": "17", "4 px": "65", "16 px": "5"}
SMALL = {"models": ",".join(FAMILIES), "depth": "4", "params": "300k", "width": "64", "metrics": "params,flops,accuracy"}
RECIPE = "batch_size=64,learning_rate=1e-3,augment=crop+flip"
FEW = {**SMALL, "task": "cifar10+items=7000", "epochs": "12", "recipe": RECIPE}
MANY = {**SMALL, "task": "cifar10", "epochs": "15", "params": "4M", "depth": "6", "width": "256", "recipe": RECIPE}


def arms(*names: str) -> tuple[Arm, ...]:
    return tuple(Arm(name=f"patches of {name}", flags={"seq": PATCHES[name]}) for name in names)


FINEST = Arm(name="patches of 2 px", flags={"seq": "257"})

ABLATION = Ablation(
    cpu=(Grid(name=PHOTOGRAPHS, flags=FEW, arms=arms(*PATCHES)),),
    cuda=(Grid(name=PHOTOGRAPHS, flags=MANY, arms=(*arms(*PATCHES), FINEST)),),
    quick=(Grid(name=DIGITS, flags={**SMALL, "task": "digits", "epochs": "2"}, arms=arms("8 px", "16 px")),),
    predictions=(
        predict(PHOTOGRAPHS, "patches of 4 px", "higher", "a patch of 4 pixels is nearly one colour and one edge", by=0.05),
        predict(PHOTOGRAPHS, "patches of 16 px", "lower", "four patches leave nothing to mix", by=0.1),
    ),
    findings=(
        Finding(
            text="Patches of 4 pixels in place of 8 change accuracy by {} for gMLP, {} for ViT and {} for the Transformer.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm="patches of 4 px", model=family) for family in FAMILIES),
        ),
        Finding(
            text="Patches of 16 pixels change it by {}, {} and {}.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm="patches of 16 px", model=family) for family in FAMILIES),
        ),
    ),
    seeds=5,
)

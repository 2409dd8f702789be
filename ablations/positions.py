"""Which mixers need positions?

Prediction: Attention ignores order: without positions it cannot copy from a distance, and an image is a bag of patches to
it. Learned and sinusoidal positions both solve this; sinusoidal ones need no parameters. gMLP's spatial weights belong to
positions, so adding positions makes no notable difference. Dropout on the sum of embedding and positions costs accuracy on
such small data, where nothing overfits.

A shift by k tokens rotates the sinusoidal positions by the same angle wherever it starts (arXiv 1706.03762, Sec. 3.5); a
test checks the table for this.

Source: arXiv 1706.03762, Sec. 3.5 and Table 3 (E); arXiv 2105.08050, Sec. 2 (gMLP without positions).

Cost: half an hour on one CPU thread; about as long on a GPU (estimate); a minute with --quick on a CPU.
"""

from bench.questions import Ablation, Arm, Asked, Finding, Grid, Prediction

IMAGES, MEMORY = "digits", "copy"
COMMON = {"depth": "2", "metrics": "params,flops,accuracy", "batch": "32"}
ON_DIGITS = {**COMMON, "params": "150k", "width": "64", "seq": "16", "task": "digits"}
ON_COPY = {**COMMON, "params": "150k", "width": "64", "seq": "16", "task": "copy+items=10000", "epochs": "6"}
"""The width is given because canonical sizes of attention and gMLP never have both equal width and equal parameters."""
ATTENTION, GMLP = "metaformer+mixer=attention", "gmlp+pool=mean"
ARMS = (
    Arm(name="attention, none", flags={"models": f"{ATTENTION}+positions=none"}),
    Arm(name="attention, learned", flags={"models": f"{ATTENTION}+positions=learned"}),
    Arm(name="attention, sinusoidal", flags={"models": f"{ATTENTION}+positions=sinusoidal"}),
    Arm(
        name="attention, learned, dropout on them",
        flags={"models": f"{ATTENTION}+positions=learned", "recipe": "dropout=0.1,dropout_at=embedding"},
    ),
    Arm(
        name="attention, sinusoidal, dropout on them",
        flags={"models": f"{ATTENTION}+positions=sinusoidal", "recipe": "dropout=0.1,dropout_at=embedding"},
    ),
    Arm(name="gMLP, none", flags={"models": f"{GMLP}+positions=none"}),
    Arm(name="gMLP, learned", flags={"models": f"{GMLP}+positions=learned"}),
    Arm(name="gMLP, sinusoidal", flags={"models": f"{GMLP}+positions=sinusoidal"}),
    Arm(
        name="gMLP, learned, dropout on them",
        flags={"models": f"{GMLP}+positions=learned", "recipe": "dropout=0.1,dropout_at=embedding"},
    ),
)
FULL = (Grid(name=IMAGES, flags=ON_DIGITS, arms=ARMS), Grid(name=MEMORY, flags=ON_COPY, arms=ARMS))

ABLATION = Ablation(
    cpu=FULL,
    cuda=FULL,
    quick=(
        Grid(name=IMAGES, flags={**ON_DIGITS, "params": "150k", "epochs": "2"}, arms=ARMS),
        Grid(name=MEMORY, flags={**ON_COPY, "params": "150k", "task": "copy+items=2000", "epochs": "2"}, arms=ARMS[:3]),
    ),
    predictions=(
        Prediction(part=MEMORY, arm="attention, learned", expected="higher", by=0.3, because="without positions all blanks are alike"),
        Prediction(part=MEMORY, arm="attention, sinusoidal", expected="higher", by=0.3, because="as with learned positions"),
        Prediction(part=IMAGES, arm="attention, learned", expected="higher", by=0.02, because="a bag of patches loses the layout"),
        Prediction(
            part=IMAGES,
            arm="attention, sinusoidal",
            against="attention, learned",
            expected="equal",
            by=0.02,
            because="both distinguish all positions",
        ),
        Prediction(
            part=IMAGES, arm="gMLP, learned", against="gMLP, none", expected="equal", by=0.02, because="W already depends on position"
        ),
        Prediction(part=MEMORY, arm="gMLP, learned", against="gMLP, none", expected="equal", by=0.02, because="as on images"),
        Prediction(
            part=IMAGES,
            arm="attention, learned, dropout on them",
            against="attention, learned",
            expected="lower",
            because="nothing overfits here, so dropout only slows training",
        ),
    ),
    findings=(
        Finding(
            text="Attention needs positions: learned ones add {} in copying and {} on digits.",
            about=(Asked(part=MEMORY, arm="attention, learned"), Asked(part=IMAGES, arm="attention, learned")),
        ),
        Finding(
            text="gMLP does not: they change its accuracy by {} in copying and {} on digits.",
            about=tuple(Asked(part=part, arm="gMLP, learned", against="gMLP, none") for part in (MEMORY, IMAGES)),
        ),
    ),
    seeds=5,
)

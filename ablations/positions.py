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

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

IMAGES, MEMORY = "digits", "copy"
COMMON = {"depth": "2", "metrics": "params,flops,accuracy"}
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
        predict(MEMORY, "attention, learned", "higher", "without positions all blanks are alike", by=0.3),
        predict(MEMORY, "attention, sinusoidal", "higher", "as with learned positions", by=0.3),
        predict(IMAGES, "attention, learned", "higher", "a bag of patches loses the layout", by=0.02),
        predict(IMAGES, "attention, sinusoidal", "equal", "both distinguish all positions", by=0.02, against="attention, learned"),
        predict(IMAGES, "gMLP, learned", "equal", "W already depends on position", by=0.02, against="gMLP, none"),
        predict(MEMORY, "gMLP, learned", "equal", "as on images", by=0.02, against="gMLP, none"),
        predict(
            IMAGES,
            "attention, learned, dropout on them",
            "lower",
            "nothing overfits here, so dropout only slows training",
            against="attention, learned",
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

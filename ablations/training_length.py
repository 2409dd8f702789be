"""Does gMLP's lead on photographs outlast longer training?

Prediction: After 5 epochs of CIFAR-10 gMLP leads ViT by some five points, and ViT answers its training images no better than its test images:
it has not learned what it could. After 40 epochs the lead is smaller, and still more than a point over either form of attention. Every length
has its own cosine schedule, by the weights of the best epoch on validation items.

All families train at one learning rate. Of five rates, each tried in three epochs of batches of 256 at n = 65, the one that corresponds to it was
best for each family (docs/accuracy.md).

Source: arXiv 2010.11929, Sec. 4 (ViT gains from long training); arXiv 2105.08050, Table 2 (gMLP and DeiT after 300 epochs).

Cost: four and a half hours of a core, with CIFAR-10 (needs --data-root); an hour on a GPU (estimate); a minute with --quick on a CPU.
"""

from collections.abc import Sequence

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

PHOTOGRAPHS, DIGITS = "photographs", "digits"
FAMILIES = {"gMLP": "gmlp", "ViT": "vit", "Transformer": "transformer"}
SMALL = {"depth": "4", "params": "300k", "seq": "17", "metrics": "params,flops,accuracy"}
RECIPE = "batch_size=64,learning_rate=1e-3,augment=crop+flip"
SHORT, LONG = 5, 40
ON_PHOTOGRAPHS = {**SMALL, "task": "cifar10", "recipe": RECIPE}


def named(title: str, epochs: int) -> str:
    return f"{title}, {epochs} epochs"


def arms(lengths: Sequence[int]) -> tuple[Arm, ...]:
    """Return one variant per length and family."""
    return tuple(
        Arm(name=named(title, epochs), flags={"models": family, "epochs": str(epochs)})
        for epochs in lengths
        for title, family in FAMILIES.items()
    )


ABLATION = Ablation(
    cpu=(Grid(name=PHOTOGRAPHS, flags=ON_PHOTOGRAPHS, arms=arms((SHORT, LONG))),),
    cuda=(Grid(name=PHOTOGRAPHS, flags={**ON_PHOTOGRAPHS, "seq": "65", "params": "4M"}, arms=arms((SHORT, LONG, 160))),),
    quick=(Grid(name=DIGITS, flags={**SMALL, "task": "digits"}, arms=arms((2, 8))),),
    predictions=tuple(
        predict(PHOTOGRAPHS, named("gMLP", epochs), "higher", because, by=by, against=named(other, epochs))
        for epochs, because, by in ((SHORT, "attention learns later", 0.02), (LONG, "the gap closes in part", 0.01))
        for other in ("ViT", "Transformer")
    ),
    findings=tuple(
        Finding(
            text=f"gMLP leads {title} by {{}} after {SHORT} epochs and {{}} after {LONG}.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm=named("gMLP", epochs), against=named(other, epochs)) for epochs in (SHORT, LONG)),
        )
        for other, title in (("ViT", "ViT"), ("Transformer", "the Transformer"))
    ),
    seeds=5,
)

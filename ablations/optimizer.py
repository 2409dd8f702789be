"""Does the optimizer decide between gMLP and attention?

Prediction: No. AdamW and Adam are equal within two points, since such short trainings hardly need decay; Muon is ahead of AdamW by a
point or more, for gMLP as for attention; SGD with momentum is behind, for attention by five points or more, for gMLP by less. Under each
optimizer gMLP leads. Each optimizer has its own learning rate, the best of five by validation items. AdamW and Muon shrink
weights by the default decay. Adam and SGD add the decay to the gradient, where it acts otherwise: Adam has none, as in its
paper, and SGD 0.0005, as ResNets on CIFAR-10 have.

Source: arXiv 1711.05101 (AdamW); arXiv 1412.6980 (Adam); https://kellerjordan.github.io/posts/muon/ (Muon); arXiv 1912.03194
(attention and SGD).

Cost: an hour on two cores (CIFAR-10, needs --data-root); half an hour on a GPU (estimate); a minute with --quick on a CPU.
"""

from collections.abc import Iterable

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

PHOTOGRAPHS, DIGITS = "photographs", "digits"
FAMILIES = {"gMLP": "gmlp", "ViT": "vit"}
RATES = {"AdamW": "1e-3", "Adam": "1e-3,weight_decay=0", "Muon": "1e-3", "SGD": "3e-2,weight_decay=5e-4"}
"""The rate in the middle of those tried, and the decay where it is not the default."""
SMALL = {"depth": "4", "params": "300k", "seq": "17", "metrics": "params,flops,accuracy"}
ON_PHOTOGRAPHS = {**SMALL, "task": "cifar10+items=7000", "epochs": "12"}


def arms(names: Iterable[str], *, more: str = "") -> tuple[Arm, ...]:
    """Return one variant per optimizer and family."""
    return tuple(
        Arm(name=f"{title}, {name}", flags={"models": family, "recipe": f"optimizer={name.lower()},learning_rate={RATES[name]}{more}"})
        for name in names
        for title, family in FAMILIES.items()
    )


CROPPED = ",batch_size=64,augment=crop+flip"

ABLATION = Ablation(
    cpu=(Grid(name=PHOTOGRAPHS, flags=ON_PHOTOGRAPHS, arms=arms(RATES, more=CROPPED)),),
    cuda=(
        Grid(name=PHOTOGRAPHS, flags={**ON_PHOTOGRAPHS, "seq": "65", "params": "4M", "task": "cifar10"}, arms=arms(RATES, more=CROPPED)),
    ),
    quick=(Grid(name=DIGITS, flags={**SMALL, "task": "digits", "epochs": "2"}, arms=arms(("AdamW", "Adam", "Muon"))),),
    predictions=(
        *(predict(PHOTOGRAPHS, f"{of}, Adam", "equal", "little decay in few steps", by=0.02, against=f"{of}, AdamW") for of in FAMILIES),
        *(predict(PHOTOGRAPHS, f"{of}, Muon", "higher", "fewer steps are enough", by=0.01, against=f"{of}, AdamW") for of in FAMILIES),
        predict(PHOTOGRAPHS, "gMLP, SGD", "lower", "layers need different rates", against="gMLP, AdamW"),
        predict(PHOTOGRAPHS, "ViT, SGD", "lower", "attention's gradients have heavy tails", by=0.05, against="ViT, AdamW"),
        *(predict(PHOTOGRAPHS, f"gMLP, {name}", "higher", "as under AdamW", against=f"ViT, {name}") for name in RATES),
    ),
    findings=(
        Finding(
            text="In place of AdamW, Adam changes gMLP's accuracy by {}, Muon by {} and SGD by {}.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm=f"gMLP, {name}", against="gMLP, AdamW") for name in ("Adam", "Muon", "SGD")),
        ),
        Finding(
            text="They change ViT's by {}, {} and {}.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm=f"ViT, {name}", against="ViT, AdamW") for name in ("Adam", "Muon", "SGD")),
        ),
        Finding(
            text="gMLP leads ViT by {} with AdamW, {} with Adam, {} with Muon and {} with SGD.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm=f"gMLP, {name}", against=f"ViT, {name}") for name in RATES),
        ),
    ),
    seeds=5,
    lr_trials=5,
)

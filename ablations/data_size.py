"""Does more data favour attention?

Prediction: With 1,000 photographs no family learns much, and the three are within three points of each other. From 7,000 on
gMLP leads both forms of attention by more than two points: its weights belong to positions, and where patches lie on a fixed
grid little data shows which ones belong together, while attention must first learn to find them. If attention gains more from data, the
lead is smaller with 50,000 photographs than with 7,000. Every size takes the same number of steps, by the weights of the best
epoch on validation items, so that a small set is not penalised for its length.

Source: arXiv 2010.11929, Fig. 3 and 4 (ViT needs more data than convolutions); arXiv 2105.08050, Sec. 3 (gMLP on ImageNet).

Cost: two hours on two cores, with CIFAR-10 (needs --data-root); an hour on a GPU (estimate); a minute with --quick on a CPU.
"""

from collections.abc import Mapping

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

PHOTOGRAPHS, DIGITS = "photographs", "digits"
FAMILIES = {"gMLP": "gmlp", "ViT": "vit", "Transformer": "transformer"}
SIZES = {"1,000": ("cifar10+items=1000", "250"), "7,000": ("cifar10+items=7000", "36"), "50,000": ("cifar10", "5")}
"""Task and epochs by the number of images; a tenth of them validates, and all sizes take about 3,500 steps of 64 images."""
FEW = {"200": ("digits+items=200", "20"), "1,390": ("digits+items=1390", "3")}
SMALL = {"depth": "4", "params": "300k", "seq": "17", "metrics": "params,flops,accuracy"}
RECIPE = "batch_size=64,learning_rate=1e-3,augment=crop+flip"


def arms(sizes: Mapping[str, tuple[str, str]]) -> tuple[Arm, ...]:
    """Return one variant per size and family."""
    return tuple(
        Arm(name=f"{title}, {size}", flags={"models": family, "task": task, "epochs": epochs})
        for size, (task, epochs) in sizes.items()
        for title, family in FAMILIES.items()
    )


def leads(other: str) -> tuple[Asked, ...]:
    return tuple(Asked(part=PHOTOGRAPHS, arm=f"gMLP, {size}", against=f"{other}, {size}") for size in ("1,000", "50,000"))


ABLATION = Ablation(
    cpu=(Grid(name=PHOTOGRAPHS, flags={**SMALL, "recipe": RECIPE}, arms=arms(SIZES)),),
    cuda=(Grid(name=PHOTOGRAPHS, flags={**SMALL, "seq": "65", "params": "4M", "recipe": RECIPE}, arms=arms(SIZES)),),
    quick=(Grid(name=DIGITS, flags=SMALL, arms=arms(FEW)),),
    predictions=tuple(
        predict(PHOTOGRAPHS, f"gMLP, {size}", expected, because, by=by, against=f"{other}, {size}")
        for other in ("ViT", "Transformer")
        for size, expected, because, by in (
            ("1,000", "equal", "a thousand photographs teach little", 0.03),
            ("7,000", "higher", "weights of positions need less data than weights of content", 0.02),
            ("50,000", "higher", "3,500 steps are too few for attention to catch up", 0.02),
        )
    ),
    findings=(
        Finding(text="gMLP leads ViT by {} with 1,000 photographs and {} with 50,000.", about=leads("ViT")),
        Finding(text="It leads the Transformer by {} and {}.", about=leads("Transformer")),
    ),
    seeds=5,
)

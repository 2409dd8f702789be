"""How much does size help, and does depth or width matter more?

Prediction: On a small task accuracy rises with parameters and then flattens, for every family alike. At fixed parameters a
few blocks are better than one, which mixes only once; four are as good as two; eight are too narrow. The Transformer is
post-norm, which suffers from depth for another reason (see the ablation normalisation). On photographs every tenfold of
parameters is worth several points to every family, and gMLP leads at each size. One recipe for all, but that 4M trains at half
the learning rate on a CPU: of three rates, tried with batches of 32, 2.5e-4 was best for each family at 4M (docs/accuracy.md).

Source: arXiv 2105.08050, Table 1 and Fig. 2 (scaling of gMLP); arXiv 2010.11929, Fig. 8 (depth and width of ViT).

Cost: half an hour on one CPU thread for digits and three hours of a core with bf16 products for photographs (CIFAR-10, needs
--data-root), longer without; two hours on a GPU (estimate); a minute with --quick on a CPU.
"""

from collections.abc import Mapping

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

SIZE, DEPTH, PHOTOGRAPHS = "parameters", "depth at fixed parameters", "photographs"
FAMILIES = ("gmlp", "vit", "transformer")
BUDGETS = ("120k", "250k", "500k", "1M")
DEPTHS = ("1", "2", "4", "8")
TRAINED = {"models": ",".join(FAMILIES), "task": "digits", "seq": "17", "metrics": "params,flops,accuracy"}


def sizes(budgets: tuple[str, ...]) -> tuple[Arm, ...]:
    return tuple(Arm(name=budget, flags={"params": budget}) for budget in budgets)


def depths(chosen: tuple[str, ...]) -> tuple[Arm, ...]:
    return tuple(Arm(name=f"{depth} blocks" if depth != "1" else "1 block", flags={"depth": depth}) for depth in chosen)


def blocks(depth_of: Mapping[str, str]) -> tuple[Arm, ...]:
    """Return one variant per budget, at a number of blocks that is usual for it."""
    return tuple(Arm(name=budget, flags={"params": budget, "depth": depth}) for budget, depth in depth_of.items())


CROPPED = "batch_size=64,augment=crop+flip,precision=bf16-autocast"
CIFAR = {**TRAINED, "task": "cifar10", "recipe": f"{CROPPED},learning_rate=1e-3", "epochs": "3"}
FEW_BLOCKS = {"105k": "2", "300k": "4", "1M": "6"}
FOUR_MILLION = Arm(name="4M", flags={"params": "4M", "depth": "6", "recipe": f"{CROPPED},learning_rate=5e-4"})
MORE_BLOCKS = {**FEW_BLOCKS, "4M": "6", "12M": "12", "51M": "12"}
LARGE = {**CIFAR, "seq": "65", "epochs": "15", "recipe": "batch_size=256,learning_rate=1e-3,augment=crop+flip,precision=bf16-autocast"}

ABLATION = Ablation(
    cpu=(
        Grid(name=SIZE, flags={**TRAINED, "depth": "2"}, arms=sizes(BUDGETS), baseline="250k"),
        Grid(name=DEPTH, flags={**TRAINED, "params": "600k"}, arms=depths(DEPTHS), baseline="2 blocks"),
        Grid(name=PHOTOGRAPHS, flags=CIFAR, arms=(*blocks(FEW_BLOCKS), FOUR_MILLION), baseline="300k"),
    ),
    cuda=(
        Grid(name=PHOTOGRAPHS, flags=LARGE, arms=blocks(MORE_BLOCKS), baseline="300k"),
        Grid(name=DEPTH, flags={**LARGE, "params": "2M"}, arms=depths(("1", "2", "4", "8", "16")), baseline="2 blocks"),
    ),
    quick=(
        Grid(name=SIZE, flags={**TRAINED, "depth": "2", "epochs": "2"}, arms=sizes(BUDGETS[1:3]), baseline="250k"),
        Grid(name=DEPTH, flags={**TRAINED, "params": "600k", "epochs": "2"}, arms=depths(DEPTHS[:3]), baseline="2 blocks"),
    ),
    predictions=(
        predict(SIZE, "120k", "lower", "accuracy rises steeply at small sizes"),
        predict(SIZE, "1M", "equal", "1,800 images of digits need no more", by=0.02),
        predict(PHOTOGRAPHS, "105k", "lower", "photographs are hard enough to need parameters", by=0.01),
        predict(PHOTOGRAPHS, "1M", "higher", "photographs are hard enough to use parameters", by=0.01),
        predict(PHOTOGRAPHS, "1M", "higher", "a tenfold of parameters is worth several points", by=0.02, against="105k"),
        predict(PHOTOGRAPHS, "4M", "higher", "more than a tenfold of parameters", by=0.02),
        predict(DEPTH, "1 block", "lower", "tokens are mixed only once"),
        predict(DEPTH, "4 blocks", "equal", "depth and width are interchangeable near the optimum", by=0.02),
        predict(DEPTH, "8 blocks", "lower", "the blocks are too narrow"),
    ),
    findings=(
        Finding(
            text="On photographs 4M parameters in place of 300k change accuracy by {} for gMLP, {} for ViT and {} for the Transformer.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm="4M", model=family) for family in FAMILIES),
        ),
        Finding(
            text="1M in place of 105k change it by {}, {} and {}.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm="1M", against="105k", model=family) for family in FAMILIES),
        ),
        Finding(
            text="From 250k to 1M parameters accuracy changes by {} for gMLP, {} for ViT and {} for the Transformer.",
            about=tuple(Asked(part=SIZE, arm="1M", model=family) for family in FAMILIES),
        ),
        Finding(
            text="At 600k, eight blocks in place of two change it by {} for gMLP, {} for ViT and {} for the Transformer.",
            about=tuple(Asked(part=DEPTH, arm="8 blocks", model=family) for family in FAMILIES),
        ),
    ),
    seeds=5,
)

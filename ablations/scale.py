"""How much does size help, and does depth or width matter more?

Prediction: On a small task accuracy rises with parameters and then flattens, for every family alike. At fixed parameters a
few blocks are better than one, which mixes only once; four are as good as two; eight are too narrow. The Transformer is
post-norm, which suffers from depth for another reason (see the ablation normalisation).

Source: arXiv 2105.08050, Table 1 and Fig. 2 (scaling of gMLP); arXiv 2010.11929, Fig. 8 (depth and width of ViT).

Cost: half an hour on one CPU thread; more than an hour on a GPU (CIFAR-10, needs --data-root; estimate); a minute with
--quick on a CPU.
"""

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

SIZE, DEPTH = "parameters", "depth at fixed parameters"
FAMILIES = ("gmlp", "vit", "transformer")
BUDGETS = ("120k", "250k", "500k", "1M")
DEPTHS = ("1", "2", "4", "8")
TRAINED = {"models": ",".join(FAMILIES), "task": "digits", "seq": "17", "metrics": "params,flops,accuracy"}


def sizes(budgets: tuple[str, ...]) -> tuple[Arm, ...]:
    return tuple(Arm(name=budget, flags={"params": budget}) for budget in budgets)


def depths(chosen: tuple[str, ...]) -> tuple[Arm, ...]:
    return tuple(Arm(name=f"{depth} blocks" if depth != "1" else "1 block", flags={"depth": depth}) for depth in chosen)


LARGE = {**TRAINED, "task": "cifar10", "seq": "65", "epochs": "15"}

ABLATION = Ablation(
    cpu=(
        Grid(name=SIZE, flags={**TRAINED, "depth": "2"}, arms=sizes(BUDGETS), baseline="250k"),
        Grid(name=DEPTH, flags={**TRAINED, "params": "600k"}, arms=depths(DEPTHS), baseline="2 blocks"),
    ),
    cuda=(
        Grid(name=SIZE, flags={**LARGE, "depth": "6"}, arms=sizes(("300k", "1.2M", "3M", "10M")), baseline="1.2M"),
        Grid(name=DEPTH, flags={**LARGE, "params": "2M"}, arms=depths(("1", "2", "4", "8", "16")), baseline="2 blocks"),
    ),
    quick=(
        Grid(name=SIZE, flags={**TRAINED, "depth": "2", "epochs": "2"}, arms=sizes(BUDGETS[1:3]), baseline="250k"),
        Grid(name=DEPTH, flags={**TRAINED, "params": "600k", "epochs": "2"}, arms=depths(DEPTHS[:3]), baseline="2 blocks"),
    ),
    predictions=(
        predict(SIZE, "120k", "lower", "accuracy rises steeply at small sizes"),
        predict(SIZE, "1M", "equal", "1,800 images of digits need no more", by=0.02),
        predict(DEPTH, "1 block", "lower", "tokens are mixed only once"),
        predict(DEPTH, "4 blocks", "equal", "depth and width are interchangeable near the optimum", by=0.02),
        predict(DEPTH, "8 blocks", "lower", "the blocks are too narrow"),
    ),
    findings=(
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

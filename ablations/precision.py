"""Does a training in bf16 reach the accuracy of one in fp32?

Prediction: Yes, within two points. Autocast keeps weights, their updates, norms and the loss in fp32; only matrix products
round to 8 bits of mantissa, and the noise of batches is larger than that of rounding. This holds for gMLP's spatial
products, whose weights start near zero, as for attention, whose softmax is in fp32 when it is explicit. So the precision
may be chosen by time alone.

Source: arXiv 1905.12322 (trainings in bf16 with fp32's recipes).

Cost: twenty minutes on one CPU thread, with CIFAR-10 (needs --data-root); some twenty minutes on a GPU (estimate); a minute
with --quick on a CPU.
"""

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

PHOTOGRAPHS, DIGITS = "photographs", "digits"
FAMILIES = {"gMLP": "gmlp", "ViT": "vit", "Transformer": "transformer"}
FP32, BF16 = (
    tuple(Arm(name=f"{title}, {name}", flags={"models": family, "recipe": f"precision={precision}"}) for title, family in FAMILIES.items())
    for name, precision in (("fp32", "fp32"), ("bf16", "bf16-autocast"))
)
ARMS = (*FP32, *BF16)
SMALL = {"depth": "4", "params": "300k", "seq": "17", "metrics": "params,flops,accuracy"}
ON_PHOTOGRAPHS = {**SMALL, "task": "cifar10+items=20000", "epochs": "4"}
ON_DIGITS = {**SMALL, "task": "digits", "epochs": "2"}

ABLATION = Ablation(
    cpu=(Grid(name=PHOTOGRAPHS, flags=ON_PHOTOGRAPHS, arms=ARMS),),
    cuda=(Grid(name=PHOTOGRAPHS, flags={**ON_PHOTOGRAPHS, "task": "cifar10", "params": "4M", "epochs": "10"}, arms=ARMS),),
    quick=(Grid(name=DIGITS, flags=ON_DIGITS, arms=ARMS),),
    predictions=tuple(
        predict(PHOTOGRAPHS, rounded, "equal", "noise of batches exceeds that of rounding", by=0.02, against=exact)
        for exact, rounded in zip(FP32, BF16, strict=True)
    ),
    findings=(
        Finding(
            text="On photographs, training in bf16 in place of fp32 changes accuracy by {} for gMLP, {} for ViT and {} for the Transformer.",
            about=tuple(Asked(part=PHOTOGRAPHS, arm=rounded.name, against=exact.name) for exact, rounded in zip(FP32, BF16, strict=True)),
        ),
    ),
    seeds=5,
)

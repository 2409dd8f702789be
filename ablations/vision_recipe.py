"""What makes a small ViT train on small images?

Prediction: A ViT of 80k parameters has no built-in notion of neighbouring patches, and learns little of it from a few
thousand photographs. The ingredients that provide it help most: first a convolutional stem, then flips and shifts of the
images, then a convolutional teacher. Mixing images (Mixup, CutMix) prevents overfitting, which such a small model hardly
shows in such a short run: it costs accuracy. RandAugment and erasing change little. Small patches help, but halving their side
makes four times as many tokens. A constant learning rate without warm-up loses a little. Larger batches at the same rate
lose by taking fewer steps. Dropout loses accuracy in the body, as does stochastic depth, and hardly any in the head; a hidden
layer in the head changes nothing. Two blocks are as good as four; eight are too narrow. Strong weight decay costs nothing with weak augmentation, and
a little with strong. If ingredients are removed from the full recipe one at a time, the stem is missed most.

The report shows the source's accuracy bands for CIFAR-10 beside the accuracy, training FLOPs and time of each variant. The
teacher has more parameters than its students, and takes most of its variant's FLOPs. On a CPU two parts learn from 5,000 of
the 50,000 images for 6 epochs: they show which ingredients help. How far they reach is a part of its own: 300k parameters,
all images, 20 epochs, batches of 128. There the basic recipe lies in its band and overfits, so crop and flip help; the stem
helps more, and both together most; the teacher adds little. All but the basic recipe stay below their bands, which take more
parameters and epochs. The strongest regularisation at once (RandAugment, Mixup, CutMix, erasing, dropout 0.25 in a head of 1,024,
batches of 2,048) leaves a sixteenth of the steps and a body of three quarters of the parameters: it loses.

Source: arXiv 2012.12877, Sec. 5 and 6 (DeiT: augmentation, distillation); arXiv 2106.14881 (convolutional stem); arXiv
2106.10270 (augmentation and regularisation by data and size). The bands are a tutorial's: basic 60 to 80 %, with
augmentation 85 to 90 %, with distillation and strong regularisation 90 to 95 %, with a convolutional stem up to 96 %.

Cost: twelve hours on one CPU thread, eleven of them for the whole training set (estimate; four with --seeds 1); four hours on a
GPU (estimate); both with CIFAR-10 (needs --data-root). A minute with --quick on a CPU, on digits.
"""

import dataclasses
import functools
from collections.abc import Mapping

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

ADDED, REMOVED, WHOLE = "added to the basic recipe", "removed from the full recipe", "the whole training set"
VIT, STEM = "vit", "vit+stem=convolution"
MILD = "augment=crop+flip"
TEACHER = "teacher=convolution,teacher_epochs=4"
BAND = "the source's band"


def arm(name: str, recipe: str = "", models: str = VIT, band: str = "", **flags: str) -> Arm:
    facts = {BAND: band} if band else {}
    return Arm(name=name, flags={"models": models, **({"recipe": recipe} if recipe else {}), **flags}, facts=facts)


BASIC = arm("basic", band="60 to 80 %")
MILDLY = arm("crop and flip", MILD, band="85 to 90 %")
STEMMED = arm("convolutional stem", models=STEM, band="up to 96 %, with all the rest")
TAUGHT = arm("convolutional teacher", TEACHER, band="90 to 95 %, with strong regularisation")
LARGE_PATCHES = arm("patches of 8", seq="17")
SMALL_PATCHES = arm("patches of 2", seq="257")
RANDOM, MIXED, CUT, ERASED = (
    arm(name, f"augment={word}")
    for name, word in (("RandAugment", "randaugment"), ("Mixup", "mixup"), ("CutMix", "cutmix"), ("erasing", "erasing"))
)
CONSTANT = arm("constant rate, no warm-up", "schedule=constant,warmup=0")
LARGE_BATCH = arm("batch of 256", "batch_size=256")
BODY, HEAD = arm("dropout in the body", "dropout=0.1"), arm("dropout in the head", "dropout=0.1,dropout_at=head")
SKIPPING = arm("stochastic depth 0.1", "stochastic_depth=0.1")
WIDE_HEAD = arm("hidden layer in the head", models="vit+head_hidden=64")
SHALLOW, DEEP = arm("2 blocks", depth="2"), arm("8 blocks", depth="8")
NO_DECAY, STRONG_DECAY = arm("no weight decay", "weight_decay=0"), arm("weight decay 0.3", "weight_decay=0.3")
STRONG_BOTH, WEAK_RANDOM, STRONG_RANDOM = (
    arm("weight decay 0.3, RandAugment", "weight_decay=0.3,augment=randaugment"),
    arm("RandAugment at 3 of 30", "augment=randaugment,magnitude=3"),
    arm("RandAugment at 15 of 30", "augment=randaugment,magnitude=15"),
)
DECAY_WEAK_RANDOM, DECAY_STRONG_RANDOM = (
    arm(f"weight decay 0.3, RandAugment at {strength} of 30", f"weight_decay=0.3,augment=randaugment,magnitude={strength}")
    for strength in (3, 15)
)
ARMS = (
    *(BASIC, MILDLY, STEMMED, TAUGHT, LARGE_PATCHES, RANDOM, MIXED, CUT, ERASED, CONSTANT, LARGE_BATCH),
    *(BODY, HEAD, SKIPPING, WIDE_HEAD, SHALLOW, DEEP, NO_DECAY, STRONG_DECAY, STRONG_BOTH),
    *(WEAK_RANDOM, STRONG_RANDOM, DECAY_WEAK_RANDOM, DECAY_STRONG_RANDOM),
)
FULL = arm("full recipe", f"{MILD},{TEACHER}", models=STEM, band="up to 96 %")
LESS = (
    FULL,
    arm("without the stem", f"{MILD},{TEACHER}"),
    arm("without crop and flip", TEACHER, models=STEM),
    arm("without the teacher", MILD, models=STEM),
    arm("without warm-up and cosine", f"{MILD},{TEACHER},schedule=constant,warmup=0", models=STEM),
    arm("without weight decay", f"{MILD},{TEACHER},weight_decay=0", models=STEM),
)
STEMMED_MILDLY = arm("convolutional stem, crop and flip", MILD, models=STEM)
TOGETHER = arm(
    "all together",
    "augment=randaugment+mixup+cutmix+erasing,dropout=0.25,dropout_at=head,accumulate=16",
    models="vit+head_hidden=1024",
    band="90 to 95 %, with a teacher",
)
"""A head of 1,024 with dropout 0.25, all that mixes and blanks images, and batches of 2,048: 16 of 128."""
FAR = (BASIC, MILDLY, STEMMED, STEMMED_MILDLY, FULL, TOGETHER)

SMALL = {"depth": "4", "params": "80k", "seq": "65", "metrics": "params,flops,accuracy"}
"""A ViT of four blocks with the heads of published models has 175k parameters or more, and trains twice as long: widths are given."""
AT_80K = ("32", {SHALLOW.name: "48", DEEP.name: "24", LARGE_PATCHES.name: "40"})
AT_200K = ("72", {STEM: "64", SHALLOW.name: "80", DEEP.name: "48"})
AT_300K = ("80", {STEM: "64", TOGETHER.name: "64"})
"""Widths at which the budget is met: the common one, and those of other models and variants."""
ON_CIFAR = {**SMALL, "task": "cifar10+items=5000", "epochs": "6"}
ON_DIGITS = {**SMALL, "params": "200k", "task": "digits", "seq": "17", "epochs": "2"}
ON_WHOLE = {**SMALL, "params": "300k", "task": "cifar10", "epochs": "20"}
LARGE = {**SMALL, "depth": "6", "params": "6M", "task": "cifar10", "epochs": "30"}


def at_widths(arms: tuple[Arm, ...], width: str, others: Mapping[str, str]) -> tuple[Arm, ...]:
    """Return the variants at this width; `others`: other widths by the name of the variant or its model."""
    widths = [others.get(one.name, others.get(one.flags["models"], width)) for one in arms]
    return tuple(dataclasses.replace(one, flags={**one.flags, "width": found}) for one, found in zip(arms, widths, strict=True))


def without_patch_sizes(arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
    return tuple(chosen for chosen in arms if "seq" not in chosen.flags)


def in_larger_batches(arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
    """Return the variants with batches of 128, in which a long training takes fewer and less noisy steps."""
    recipes = [",".join(filter(None, (one.flags.get("recipe", ""), "batch_size=128"))) for one in arms]
    return tuple(dataclasses.replace(one, flags={**one.flags, "recipe": recipe}) for one, recipe in zip(arms, recipes, strict=True))


def on_digits(arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
    """Return the variants that can train on digits.

    RandAugment needs images of bytes, unlike the digits. Variants with their own patch size are left out too.
    """
    return tuple(chosen for chosen in without_patch_sizes(arms) if "randaugment" not in chosen.flags.get("recipe", ""))


predict_added = functools.partial(predict, ADDED, against=BASIC)
predict_whole = functools.partial(predict, WHOLE, against=BASIC)


ABLATION = Ablation(
    cpu=(
        Grid(name=ADDED, flags=ON_CIFAR, arms=at_widths(ARMS, *AT_80K)),
        Grid(name=REMOVED, flags=ON_CIFAR, arms=at_widths(LESS, *AT_80K)),
        Grid(name=WHOLE, flags=ON_WHOLE, arms=at_widths(in_larger_batches(FAR), *AT_300K)),
    ),
    cuda=(Grid(name=ADDED, flags=LARGE, arms=(*ARMS, SMALL_PATCHES)), Grid(name=REMOVED, flags=LARGE, arms=LESS)),
    quick=(
        Grid(name=ADDED, flags=ON_DIGITS, arms=at_widths(on_digits(ARMS), *AT_200K)),
        Grid(name=REMOVED, flags=ON_DIGITS, arms=at_widths(LESS[:4], *AT_200K)),
    ),
    predictions=(
        predict_added(STEMMED, "higher", "the stem has neighbourhood built in", by=0.02),
        predict_added(MILDLY, "higher", "it teaches invariance to shifts and flips"),
        predict_added(TAUGHT, "higher", "the teacher has neighbourhood built in"),
        predict_added(STEMMED, "higher", "built-in structure need not be learned", against=TAUGHT),
        predict_added(LARGE_PATCHES, "lower", "16 patches carry little detail", by=0.02),
        *(predict_added(of, "lower", "too little training to overfit") for of in (MIXED, CUT)),
        *(predict_added(of, "equal", "the augmentation is mild", by=0.03) for of in (RANDOM, ERASED)),
        predict_added(CONSTANT, "lower", "training never settles"),
        predict_added(LARGE_BATCH, "lower", "an eighth of the steps", by=0.02),
        *(predict_added(of, "lower", "too little training to overfit") for of in (BODY, SKIPPING)),
        predict_added(HEAD, "equal", "it affects a single vector", by=0.02),
        predict_added(WIDE_HEAD, "equal", "the blocks determine the accuracy", by=0.02),
        predict_added(SHALLOW, "equal", "depth and width are interchangeable", by=0.02),
        predict_added(DEEP, "lower", "the blocks are too narrow"),
        predict_added(STRONG_DECAY, "equal", "few steps for the decay to act", by=0.02),
        predict_added(DECAY_STRONG_RANDOM, "lower", "both restrict the model", against=STRONG_RANDOM),
        predict(REMOVED, LESS[1], "lower", "the stem is missed most", by=0.02, against=FULL),
        predict(REMOVED, LESS[1], "lower", "the stem is missed more than the teacher", against=LESS[3]),
        predict_whole(MILDLY, "higher", "without it the model overfits in 20 epochs", by=0.02),
        predict_whole(STEMMED, "higher", "the stem has neighbourhood built in", by=0.05),
        predict_whole(STEMMED_MILDLY, "higher", "without crop and flip it overfits", by=0.03, against=STEMMED),
        predict_whole(TOGETHER, "lower", "a sixteenth of the steps, all of them on mixed images", by=0.1),
        predict_whole(FULL, "equal", "the stem has what the teacher would teach", by=0.02, against=STEMMED_MILDLY),
    ),
    findings=(
        Finding(
            text="Added to the basic recipe, a convolutional stem changes accuracy by {}, crop and flip by {}, a convolutional teacher by {}.",
            about=tuple(Asked(part=ADDED, arm=of.name) for of in (STEMMED, MILDLY, TAUGHT)),
        ),
        Finding(
            text="On the whole training set a convolutional stem changes accuracy by {}, crop and flip by {}, both together by {}.",
            about=tuple(Asked(part=WHOLE, arm=of.name) for of in (STEMMED, MILDLY, STEMMED_MILDLY)),
        ),
    ),
    seeds=3,
)

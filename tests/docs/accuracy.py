"""Figures about accuracy, training and mixers."""

from __future__ import annotations

import functools
import json
import statistics
from typing import Any

import pandas

from bench import numbers
from bench.analysis.equal_budget import BUDGETS, CurvePair
from bench.analysis.front import choose_axes, front_of
from bench.analysis.significance import Comparison
from bench.planning.tuning import trainings_of
from bench.report.charts.training_curves import place_text
from bench.report.sections.search import searched
from tests.docs.reading import (
    FAMILIES,
    RESULTS,
    Figures,
    accuracy,
    arm_rows,
    arms,
    budget,
    difference,
    effect,
    exponent,
    interval_text,
    outcomes,
    points,
    ratio,
    row,
    rows,
    run,
    span,
    table,
)

CIFAR_17, CIFAR_65 = "2026-11-20_cpu_cifar10_17", "2026-11-20_cpu_cifar10_65"
CIFAR_17_TIMES, CIFAR_65_TIMES = "2026-11-23_cpu_cifar10_17_times", "2026-11-23_cpu_cifar10_65_times"
CONTROL, CONTROL_CIFAR = "2026-11-20_cpu_control", "2026-11-20_cpu_control_cifar10"
DIGITS, RECALL, TREC = "2026-11-20_cpu_digits", "2026-11-20_cpu_recall", "2026-11-24_cpu_trec"
BF16_ATTENTION, BF16_GATE = "2026-11-25_cpu_bf16_attention", "2026-11-25_cpu_gate_bf16"
SOURCES_4M = "2026-11-25_cpu_sources_4m"
TRAINED_4M, TRAINED_51M = "2026-11-26_cpu_cifar10_4m", "2026-11-26_cpu_cifar10_51m_gmlp"
TRAINING_SPEED = "2026-11-20_cpu_training_speed"
TRAINING_SPEED_4M = "2026-11-26_cpu_training_speed_4m_bf16"
TRAINING_SPEED_OTHER_HOST = {"fp32": "2026-11-25_cpu_training_speed_4m", "bf16": "2026-11-25_cpu_training_speed_4m_bf16"}
TOKEN_MIXING = ("2026-11-26_cpu_token_mixing_cost", "2026-11-26_cpu_token_mixing_accuracy")
VISION, VISION_WHOLE = "2026-11-21_cpu_vision_recipe", "2026-11-26_cpu_vision_recipe_whole"
GATING = "2026-11-25_cpu_spatial_gating"


@functools.cache
def comparisons(name: str) -> tuple[Comparison, ...]:
    """`bench compare RUN --x params --y accuracy`."""
    return front_of(run(name), choose_axes("params", "accuracy"), {}).comparisons


def ahead(name: str, first: str, second: str, **group: Any) -> Comparison:
    (found,) = [
        c
        for c in comparisons(name)
        if (c.first, c.second) == (first, second) and all(c.group[key] == value for key, value in group.items())
    ]
    return found


def lead(name: str, first: str, second: str, **group: Any) -> str:
    """By how much the first is ahead; its interval is not corrected, its test is (Holm)."""
    found = ahead(name, first, second, **group)
    assert found.significant
    return points(found.difference.estimate, found.difference.low, found.difference.high)


def leads() -> str:
    """Of gMLP over both others in every group of CIFAR-10, in points; each is shown."""
    groups = ((CIFAR_17, 105e3), (CIFAR_17, 300e3), (CIFAR_65, 105e3))
    found = [ahead(name, "gmlp", other, budget=size) for name, size in groups for other in ("vit", "transformer")]
    assert all(comparison.significant for comparison in found)
    return span((100 * comparison.difference.estimate for comparison in found), "{:.1f}")


def cifar_table() -> str:
    cells = [(CIFAR_17, CIFAR_17_TIMES, b, model) for b in (105e3, 300e3) for model in FAMILIES]
    cells += [(CIFAR_65, CIFAR_65_TIMES, 105e3, model) for model in FAMILIES]
    lines = []
    for name, times, size, model in cells:
        found, timed = row(name, model=model, budget=size), row(times, model=model, budget=size)
        assert found["params"] == timed["params"]
        line = [model, budget(found), numbers.whole(found["seq_len"]), accuracy(found), numbers.fraction(found["train_accuracy"])]
        line += [
            numbers.count(found["flops"]),
            "1" if model == "gmlp" else numbers.ratio(timed["ratio"], timed["ratio_low"], timed["ratio_high"]),
            numbers.count(found["train_flops"]),
        ]
        lines.append(line)
    headers = ("model", "budget", "n", "accuracy", "on training data", "FLOPs per sample", "time over gMLP's", "training FLOPs")
    return table(headers, lines)


def digits_table() -> str:
    sizes = (105e3, 300e3, 1e6)
    lines = [[model, *(accuracy(row(DIGITS, model=model, budget=size)) for size in sizes)] for model in FAMILIES]
    return table(["model", *(numbers.count(size) for size in sizes)], lines)


def recall_table() -> str:
    lengths = (12, 20, 32)
    lines = [[model, *(accuracy(row(RECALL, model=model, seq_len=n)) for n in lengths)] for model in FAMILIES]
    return table(["model", *(f"n = {n}" for n in lengths)], lines)


def trec_table() -> str:
    lines = []
    for model in FAMILIES:
        found = row(TREC, model=model)
        line = [model, numbers.exact(found["params"]), accuracy(found), numbers.fraction(found["train_accuracy"])]
        line += [
            f"{found['tuned_learning_rate']:.1e}",
            f"{found['tried_learning_rate_low']:.1e} to {found['tried_learning_rate_high']:.1e}",
        ]
        lines.append([*line, numbers.count(found["flops"]), numbers.count(found["train_flops"])])
    headers = (
        "model",
        "params",
        "accuracy",
        "on training data",
        "learning rate",
        "tried",
        "FLOPs per sample",
        "training FLOPs",
    )
    return table(headers, lines)


def equal_budgets_table() -> str:
    """gMLP over ViT at equal epochs, training FLOPs and training time."""
    lines = []
    for name in (CIFAR_17, CIFAR_65):
        for group in run(name).equal_budgets:
            (pair,) = [pair for pair in group.pairs if (pair.first, pair.second) == ("gmlp", "vit")]
            lines.append([place_text(group), *at_equal_budgets(pair)])
    return table(("gMLP over ViT", *(f"equal {budget}" for budget in BUDGETS)), lines)


def at_equal_budgets(pair: CurvePair) -> list[str]:
    """By budget, the difference in points and the epochs of both."""
    found = [pair.at[budget] for budget in BUDGETS]
    return [f"{points(one.interval.estimate, one.interval.low, one.interval.high)}, {one.epochs[0]} : {one.epochs[1]}" for one in found]


def trec_lead() -> str:
    """The largest difference, which is not significant."""
    largest = max(comparisons(TREC), key=lambda found: abs(found.difference.estimate))
    assert not any(found.significant for found in comparisons(TREC))
    names = {"gmlp": "gMLP", "vit": "ViT", "transformer": "Transformer"}
    found = largest.difference
    return f"{names[largest.first]} over {names[largest.second]}, is {points(found.estimate, found.low, found.high)}"


def trec_trials() -> str:
    """Of each family; every best rate lies inside the range that was tried."""
    found = [row(TREC, model=model) for model in FAMILIES]
    assert all(row["tried_learning_rate_low"] < row["tuned_learning_rate"] < row["tried_learning_rate_high"] for row in found)
    (trials,) = {row["num_trials"] for row in found}
    return numbers.whole(trials)


def control_table() -> str:
    plain, bare = "gmlp+pool=mean", "gmlp+gating=identity+pool=mean"
    lines = []
    for title, name in (("CIFAR-10, 3 seeds", CONTROL_CIFAR), ("digits, 5 seeds", CONTROL)):
        lines.append([title, accuracy(row(name, model=plain)), accuracy(row(name, model=bare)), lead(name, plain, bare)])
    return table(("task", "gMLP", "without mixing", "difference"), lines)


@functools.cache
def loop_speeds(name: str) -> dict[str, dict[str, float]]:
    """The rows of a table that is kept as a file, by model."""
    found: dict[str, dict[str, float]] = pandas.read_csv(RESULTS / name / "table.csv").set_index("model").to_dict("index")
    return found


def training_speed_table() -> str:
    lines = []
    for model in FAMILIES:
        found = loop_speeds(TRAINING_SPEED)[model]
        pair = [[found[f"{column}{end}"] for end in ("", "_low", "_high")] for column in ("loop_of_bound", "loop_over_plain")]
        lines.append([model, *(numbers.ratio(*values) for values in pair)])
    return table(("model", "loop / bare steps", "loop / plain loop"), lines)


def trained_4m_table() -> str:
    lines = []
    for name, model in (*((TRAINED_4M, model) for model in FAMILIES), (TRAINED_51M, "gmlp")):
        found = row(name, model=model)
        line = [model, numbers.exact(found["params"]), numbers.whole(found["num_seeds"]), accuracy(found), top(name, found["cell_id"])]
        lines.append([*line, numbers.fraction(found["train_accuracy"]), numbers.count(found["train_flops"])])
    return table(("model", "params", "seeds", "accuracy", "top-2, 3, 4, 5", "on training data", "training FLOPs"), lines)


def top(name: str, cell_id: str) -> str:
    """How often the right class is among the first two, three, four and five; means over seeds."""
    trained = run(name)
    seeds = [record.outcome.values for record in trainings_of(trained.plan, trained.records)[cell_id]]
    return ", ".join(numbers.fraction(statistics.mean(values[f"accuracy_top{k}"] for values in seeds)) for k in (2, 3, 4, 5))


def equal_budgets_4m_table() -> str:
    """gMLP over the others on validation items, at equal epochs, training FLOPs and training time."""
    (group,) = run(TRAINED_4M).equal_budgets
    lines = [[pair.second, *at_equal_budgets(pair)] for pair in group.pairs if pair.first == "gmlp"]
    return table(("gMLP over", *(f"equal {budget}" for budget in BUDGETS)), lines)


def gain_51m() -> str:
    """In points of accuracy; one seed against the mean of five, so it has no interval."""
    return f"{100 * (row(TRAINED_51M)['accuracy'] - row(TRAINED_4M, model='gmlp')['accuracy']):.1f}"


def hours_4m() -> str:
    """Of one core, in all trainings of the run."""
    return numbers.significant(sum(found["train_s"] * found["num_seeds"] for found in rows(TRAINED_4M)) / 3600, 2)


def search_4m_table() -> str:
    """Validation score by learning rate; the best of each model is in bold, and none lies at an end."""
    lines, rates = [], [6.25e-5, 1.25e-4, 2.5e-4, 5e-4]
    for name in (SOURCES_4M, TRAINED_51M):
        for found in searched(run(name)):
            assert found.best is not None
            best = found.best.learning_rate
            assert min(found.scores) < best < max(found.scores)
            texts = {rate: f"{score:.3f}" for rate, score in found.scores.items()}
            texts[best] = f"**{texts[best]}**"
            lines.append([found.model, numbers.exact(row(name, model=found.model)["params"]), *(texts.get(rate, "") for rate in rates)])
    return table(("model", "params", *(f"{rate:g}" for rate in rates)), lines)


def explicit_in_bf16_table() -> str:
    """A step of training by explicit attention over one by torch's own choice."""
    lines = []
    for n in (17, 65, 257):
        places = [{"seq_len": n, "dtype": dtype} for dtype in ("fp32", "bf16-autocast")]
        lines.append([str(n), *(ratio(BF16_ATTENTION, {**place, "attention": "math"}, {**place, "attention": "auto"}) for place in places)])
    return table(("n", "fp32", "bf16 autocast"), lines)


def gate_in_bf16(n: int) -> str:
    """A step of training by the gate's batched product over one by its transposed one."""
    return ratio(BF16_GATE, {"model": "gmlp", "seq_len": n}, {"model": "gmlp+kernel=linear", "seq_len": n}, of=3)


def ten_epochs_4m() -> str:
    """Minutes of gMLP's training loop in bf16."""
    return numbers.significant(10 * 45_000 / loop_speeds(TRAINING_SPEED_4M)["gmlp"]["loop_images_per_s"] / 60)


def training_mfu_51m() -> str:
    """Share of the ceiling that the run of training speed measured, under the same boot."""
    boot = json.loads((RESULTS / TRAINING_SPEED_4M / "environment.json").read_text())["boot"]
    assert run(TRAINED_51M).environment["boot"] == boot
    found = row(TRAINED_51M)
    return numbers.percent(found["train_flops"] / found["train_s"] / loop_speeds(TRAINING_SPEED_4M)["gmlp"]["ceiling_flops_per_s"])


def training_speed_other_host() -> str:
    rates = {precision: loop_speeds(name)["gmlp"]["loop_images_per_s"] for precision, name in TRAINING_SPEED_OTHER_HOST.items()}
    fp32, bf16 = (numbers.whole(round(rate)) for rate in rates.values())
    return f"{fp32} images a second in fp32, {bf16} in bf16"


def training_speed_4m_table() -> str:
    lines = []
    for model in FAMILIES:
        found = loop_speeds(TRAINING_SPEED_4M)[model]
        rate = numbers.whole(round(found["loop_images_per_s"]))
        over = [[found[f"{column}{end}"] for end in ("", "_low", "_high")] for column in ("loop_over_plain", "loop_over_timm")]
        lines.append([model, rate, numbers.percent(found["training_mfu"]), *(numbers.ratio(*values) for values in over)])
    return table(("model", "images/s", "of the ceiling", "loop / plain loop", "loop / timm's"), lines)


COST, COPY, IMAGES, FUSED = "cost against n", "copy from n / 2 tokens away", "images", "attention, fused"


def mixer_cost(arm: str, measure: str) -> str:
    """At n = 1024, over fused attention."""
    if arm == FUSED:
        return "1"
    found = effect(TOKEN_MIXING, COST, arm, FUSED, measure, seq_len=1024)
    return interval_text(found.estimate) if measure == "latency_ms" else numbers.significant(found.estimate.estimate)


def token_mixing_table() -> str:
    trained, timed = arms(TOKEN_MIXING, COPY), arms(TOKEN_MIXING, COST)
    lines = []
    for arm in dict.fromkeys([*timed, *trained]):
        found = [*arm_rows(TOKEN_MIXING, COPY, arm), *arm_rows(TOKEN_MIXING, IMAGES, arm)] if arm in trained else []
        line = [numbers.fraction(row["accuracy"]) for row in found] or [""] * 4
        if arm in timed:
            cells = [row["cell_id"] for row in arm_rows(TOKEN_MIXING, COST, arm)]
            line += [mixer_cost(arm, "latency_ms"), mixer_cost(arm, "activation_bytes"), exponent(TOKEN_MIXING, 512, cells)]
        lines.append([arm, *line, *[""] * (7 - len(line))])
    return table(("mixer", "copy, n = 16", "32", "64", "digits", "time", "activations", "exponent of time"), lines)


VISION_PART, WHOLE = "added to the basic recipe", "the whole training set"


def vision_table() -> str:
    lines = []
    for arm in (
        "basic",
        "convolutional teacher",
        "2 blocks",
        "convolutional stem",
        "crop and flip",
        "RandAugment",
        "CutMix",
        "batch of 256",
    ):
        (found,) = arm_rows(VISION, VISION_PART, arm)
        against = "" if arm == "basic" else difference(VISION, VISION_PART, arm, "basic")
        lines.append([arm, accuracy(found), against, numbers.count(found["train_flops"])])
    return table(("variant", "accuracy", "against basic", "training FLOPs"), lines)


def whole_table() -> str:
    """How far the recipes reach on all photographs, beside the bands of their source."""
    (part,) = run(VISION_WHOLE).plan.parts
    lines = []
    for arm in part.arms:
        (found,) = arm_rows(VISION_WHOLE, part.name, arm.name)
        scores = (accuracy(found), numbers.fraction(found["train_accuracy"]))
        lines.append([arm.name, arm.facts.get("the source's band", ""), *scores, numbers.count(found["train_flops"])])
    return table(("variant", "the source's band", "accuracy", "on training data", "training FLOPs"), lines, left=2)


def gating_table() -> str:
    part, base = "photographs", "multiplicative, split"
    titles = {
        "multiplicative": "multiplicative, no split",
        "tiny attention, 64": "tiny attention of 64 beside",
        "identity": "identity (no mixing)",
    }
    found = {arm: arm_rows(GATING, part, arm)[0] for arm in arms(GATING, part)}
    order = sorted(found, key=lambda arm: (arm != base, -found[arm]["accuracy"]))
    lines = [[titles.get(arm, arm), accuracy(found[arm]), "" if arm == base else difference(GATING, part, arm, base)] for arm in order]
    return table(("s(Z), photographs", "accuracy", "against multiplicative with split"), lines)


FIGURES: Figures = {
    "cifar": cifar_table,
    "cifar_lead_vit_17": lambda: lead(CIFAR_17, "gmlp", "vit", budget=105e3),
    "cifar_lead_vit_65": lambda: lead(CIFAR_65, "gmlp", "vit", budget=105e3),
    "cifar_lead_transformer_17": lambda: lead(CIFAR_17, "gmlp", "transformer", budget=105e3),
    "cifar_lead_transformer_65": lambda: lead(CIFAR_65, "gmlp", "transformer", budget=105e3),
    "cifar_lead_vit_300k": lambda: lead(CIFAR_17, "gmlp", "vit", budget=300e3),
    "cifar_lead_transformer_300k": lambda: lead(CIFAR_17, "gmlp", "transformer", budget=300e3),
    "cifar_leads": leads,
    "digits": digits_table,
    "recall": recall_table,
    "equal_budgets": equal_budgets_table,
    "trec": trec_table,
    "trec_lead": trec_lead,
    "trec_trials": trec_trials,
    "control": control_table,
    "training_speed": training_speed_table,
    "trained_4m": trained_4m_table,
    "gain_51m": gain_51m,
    "hours_4m": hours_4m,
    "minutes_51m": lambda: f"{row(TRAINED_51M)['train_s'] / 60:.0f} minutes",
    "lead_4m_vit": lambda: lead(TRAINED_4M, "gmlp", "vit"),
    "lead_4m_transformer": lambda: lead(TRAINED_4M, "gmlp", "transformer"),
    "4m_transformer_over_vit": lambda: lead(TRAINED_4M, "transformer", "vit"),
    "equal_budgets_4m": equal_budgets_4m_table,
    "search_4m": search_4m_table,
    "training_speed_4m": training_speed_4m_table,
    "ten_epochs_4m": ten_epochs_4m,
    "training_mfu_51m": training_mfu_51m,
    "training_speed_other_host": training_speed_other_host,
    "explicit_in_bf16": explicit_in_bf16_table,
    "gate_in_bf16": lambda: ", ".join(gate_in_bf16(n) for n in (17, 65, 257)),
    "vision": vision_table,
    "vision_outcomes": lambda: outcomes(VISION),
    "vision_whole": whole_table,
    "vision_whole_outcomes": lambda: outcomes(VISION_WHOLE),
    **{
        f"whole_{name}": functools.partial(difference, VISION_WHOLE, WHOLE, arm, against)
        for name, arm, against in (
            ("crop", "crop and flip", "basic"),
            ("stem", "convolutional stem", "basic"),
            ("teacher", "full recipe", "convolutional stem, crop and flip"),
        )
    },
    "teacher_flops": lambda: numbers.significant(
        effect(VISION, VISION_PART, "convolutional teacher", "basic", "train_flops").estimate.estimate, 2
    ),
    "gating": gating_table,
    "gating_outcomes": lambda: outcomes(GATING),
    "identity_loss": lambda: difference(GATING, "photographs", "identity", "multiplicative, split"),
    "token_mixing": token_mixing_table,
    "token_mixing_outcomes": lambda: outcomes(TOKEN_MIXING, COPY, IMAGES),
    "token_mixing_cost_outcomes": lambda: outcomes(TOKEN_MIXING, COST),
    "additive_time": lambda: mixer_cost("additive attention", "latency_ms"),
    "additive_activations": lambda: mixer_cost("additive attention", "activation_bytes"),
    "explicit_time": lambda: mixer_cost("attention, explicit", "latency_ms"),
    "causal_time": lambda: mixer_cost("causal attention", "latency_ms"),
    "gating_time": lambda: mixer_cost("spatial gating", "latency_ms"),
    "linear_time": lambda: mixer_cost("linear attention", "latency_ms"),
    "gating_params": lambda: mixer_cost("spatial gating", "params"),
    "pooling_loss": lambda: difference(TOKEN_MIXING, IMAGES, "mean pooling", "none"),
}

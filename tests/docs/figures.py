"""Writes the measured figures of README and docs into their marked places, from results/.

python -m tests.docs.figures

A place is `<!--=name-->text<!--/-->`, invisible when rendered; `FIGURES` says by name how its text is computed. `tests/docs/test_figures.py` fails
where a page differs. Literature, versions, the log and decisions have no such places.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas

from bench import numbers
from bench.analysis.effects import Effect
from bench.analysis.front import choose_axes, front_of
from bench.analysis.peer_bounds import is_bound
from bench.analysis.peers import FASTEST, Mean, Standing, both_with
from bench.analysis.significance import Comparison
from bench.analysis.study import Study, study
from bench.intervals import LEVEL, Interval, round_mean
from bench.report.sections.answer import answer_text
from bench.running.store import read_run
from tests.benchmarks.harness import interleaved as interleaved_tables

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
EXEMPT = ("log.md",)
"""Of docs/: a record of what was found when, which later runs do not change."""
PLACE = re.compile(r"<!--=([a-z0-9_]+)-->(.*?)<!--/-->", re.DOTALL)

CIFAR_17, CIFAR_65 = "2026-11-20_cpu_cifar10_17", "2026-11-20_cpu_cifar10_65"
CIFAR_17_TIMES, CIFAR_65_TIMES = "2026-11-23_cpu_cifar10_17_times", "2026-11-23_cpu_cifar10_65_times"
CONTROL, CONTROL_CIFAR = "2026-11-20_cpu_control", "2026-11-20_cpu_control_cifar10"
DIGITS, RECALL, TREC = "2026-11-20_cpu_digits", "2026-11-20_cpu_recall", "2026-11-20_cpu_trec"
TRAINING_SPEED = "2026-11-20_cpu_training_speed"
TOKEN_MIXING, TOKEN_MIXING_TIMES = "2026-11-21_cpu_token_mixing", "2026-11-23_cpu_token_mixing"
VISION, GATING = "2026-11-21_cpu_vision_recipe", "2026-11-21_cpu_spatial_gating"
REVERSE, REVERSE_LONGER = "2026-11-21_cpu_reverse", "2026-11-21_cpu_reverse_longer"
FAMILIES = ("gmlp", "vit", "transformer")
Row = Mapping[str, Any]


def pages() -> list[Path]:
    """README and the pages of docs/ that hold measured figures."""
    return [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in EXEMPT)]


def filled(text: str) -> str:
    """The page with the text of every place computed. Raises KeyError for a place that has no figure."""
    return PLACE.sub(lambda place: f"<!--={place[1]}-->{FIGURES[place[1]]()}<!--/-->", text)


@functools.cache
def run(name: str) -> Study:
    return study(read_run(RESULTS / name))


def rows(name: str, **where: Any) -> list[Row]:
    """The rows of a run in which these columns have these values."""
    frame = run(name).frame
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return [row._asdict() for row in frame.itertuples(index=False)]


def row(name: str, **where: Any) -> Row:
    """The only such row. Raises LookupError for none or several."""
    found = {found["cell_id"]: found for found in rows(name, **where)}
    if len(found) != 1:
        raise LookupError(f"{name}: {len(found)} rows with {where}, not one")
    return next(iter(found.values()))


def ratio(name: str, first: Mapping[str, Any], second: Mapping[str, Any], *, of: int = 1) -> str:
    """The time of one cell over that of another, paired by round; its interval holds for `of` such ratios together (Bonferroni)."""
    logs = run(name).timings.log_ratios(row(name, **first)["cell_id"], row(name, **second)["cell_id"])
    mean = round_mean(list(logs.values()))
    assert mean is not None
    found = mean.interval(1 - (1 - LEVEL) / of).exp()
    return numbers.ratio(found.estimate, found.low, found.high)


def effect(name: str, part: str, arm: str, against: str, measure: str, **place: Any) -> Effect:
    """The only such effect of an ablation."""
    found = [
        effect
        for effect in run(name).effects
        if (effect.contrast.part, effect.contrast.arm, effect.contrast.against, effect.measure.name) == (part, arm, against, measure)
        and all(row_value == place[key] for key, row_value in (("seq_len", effect.contrast.seq_len),) if key in place)
    ]
    if len(found) != 1:
        raise LookupError(f"{name}: {len(found)} effects of {arm} against {against} in {part}, not one")
    return found[0]


def effect_text(found: Effect) -> str:
    return numbers.ratio(found.estimate.estimate, found.estimate.low, found.estimate.high)


def difference(name: str, part: str, arm: str, against: str, **place: Any) -> str:
    """`-4.2 points [-7.6, -0.9]`, with an interval that holds for all comparisons of the run on this measure together."""
    found = effect(name, part, arm, against, "accuracy", **place).estimate
    return f"{100 * found.estimate:+.1f} points {_bounds(found)}"


def own_bounds(name: str, part: str, arm: str, against: str) -> str:
    """`[-9.1, +0.7]`: of the same difference, from the two arms' own spreads over seeds."""
    found = effect(name, part, arm, against, "accuracy")
    return _bounds(found.own or found.estimate)


def _bounds(found: Interval) -> str:
    return f"[{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def arm_rows(name: str, part: str, arm: str) -> list[Row]:
    """The rows of one arm of a part, shortest first."""
    (cells,) = [found.cells for of in run(name).plan.parts if of.name == part for found in of.arms if found.name == arm]
    return sorted((run(name).row_by_cell[cell] for cell in cells), key=lambda found: found["seq_len"])


def arms(name: str, part: str) -> list[str]:
    return [arm.name for of in run(name).plan.parts if of.name == part for arm in of.arms]


def exponent(name: str, shorter: int, cells: Iterable[str], column: str = "latency_ms") -> str:
    """The local exponent from this length to the next, of the series that has these cells."""
    wanted = set(cells)
    (found,) = [
        step.exponent
        for growth in run(name).growth
        if growth.measure.column == column and wanted <= set(growth.series.cell_ids)
        for step in growth.exponents.exponents
        if step.shorter == shorter
    ]
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"


def outcomes(name: str) -> str:
    """`18 supported, 6 undecided`."""
    counts = Counter(found.answer for found in run(name).outcomes)
    return ", ".join(f"{counts[answer]} {answer}" for answer in ("supported", "refuted", "undecided") if counts[answer])


def table(headers: Sequence[str], lines: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table, on lines of its own; the first `left` columns are text."""
    rule = "|" + "".join("---|" if i < left else "---:|" for i in range(len(headers)))
    return "\n" + "\n".join(["| " + " | ".join(headers) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)]) + "\n"


def accuracy(found: Row) -> str:
    return numbers.fraction(found["accuracy"], found["accuracy_low"], found["accuracy_high"])


def exact(found: Row) -> str:
    return numbers.fraction(found["exact_accuracy"], found["exact_accuracy_low"], found["exact_accuracy_high"])


def budget(found: Row) -> str:
    return numbers.count(found["budget"]).replace(" ", "")


def points(estimate: float, low: float, high: float) -> str:
    """A difference of accuracies in percentage points."""
    return f"{100 * estimate:.1f} points [{100 * low:.1f}, {100 * high:.1f}]"


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


def cifar_table(*, wide: bool) -> str:
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
        ]
        if wide:
            line += [numbers.count(found["train_flops"]), numbers.whole(found["train_s"]), numbers.whole(found["num_seeds"])]
        lines.append(line)
    headers = ["model", "budget", "n", "accuracy", "on training data", "FLOPs per sample", "time, over gMLP's"]
    return table([*headers, *(["training FLOPs", "seconds per training", "seeds"] if wide else [])], lines)


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
        line += [f"{found['learning_rate']:.2e}", numbers.fraction(found["tuned_validation"])]
        lines.append([*line, numbers.count(found["flops"]), numbers.count(found["train_flops"])])
    headers = (
        "model",
        "params",
        "accuracy",
        "on training data",
        "learning rate chosen",
        "its validation score",
        "FLOPs per sample",
        "training FLOPs",
    )
    return table(headers, lines)


def trec_lead() -> str:
    """ViT over gMLP; not significant."""
    found = ahead(TREC, "vit", "gmlp").difference
    return points(found.estimate, found.low, found.high)


def control_table() -> str:
    plain, bare = "gmlp+pool=mean", "gmlp+gating=identity+pool=mean"
    lines = []
    for title, name in (("CIFAR-10, 3 seeds", CONTROL_CIFAR), ("digits, 5 seeds", CONTROL)):
        lines.append([title, accuracy(row(name, model=plain)), accuracy(row(name, model=bare)), lead(name, plain, bare)])
    return table(("task", "gMLP", "without mixing", "difference"), lines)


def training_speed_table() -> str:
    lines = []
    for model in FAMILIES:
        found = row(TRAINING_SPEED, model=model)
        pair = [[found[f"{column}{end}"] for end in ("", "_low", "_high")] for column in ("loop_of_bound", "loop_over_plain")]
        lines.append([model, *(numbers.ratio(*values) for values in pair)])
    return table(("model", "loop / bare steps", "loop / plain loop"), lines)


COST, COPY, IMAGES, FUSED = "cost against n", "copy from n / 2 tokens away", "images", "attention, fused"


def mixer_cost(arm: str, measure: str, name: str = TOKEN_MIXING_TIMES) -> str:
    """At n = 1024, over fused attention."""
    if arm == FUSED:
        return "1"
    found = effect(name, COST, arm, FUSED, measure, seq_len=1024)
    return effect_text(found) if measure == "latency_ms" else numbers.significant(found.estimate.estimate)


def token_mixing_table() -> str:
    trained, timed = arms(TOKEN_MIXING, COPY), arms(TOKEN_MIXING_TIMES, COST)
    lines = []
    for arm in dict.fromkeys([*timed, *trained]):
        found = [*arm_rows(TOKEN_MIXING, COPY, arm), *arm_rows(TOKEN_MIXING, IMAGES, arm)] if arm in trained else []
        line = [numbers.fraction(row["accuracy"]) for row in found] or [""] * 4
        if arm in timed:
            cells = [row["cell_id"] for row in arm_rows(TOKEN_MIXING_TIMES, COST, arm)]
            line += [mixer_cost(arm, "latency_ms"), mixer_cost(arm, "activation_bytes"), exponent(TOKEN_MIXING_TIMES, 512, cells)]
        lines.append([arm, *line, *[""] * (7 - len(line))])
    return table(("mixer", "copy, n = 16", "32", "64", "digits", "time", "activations", "exponent of time"), lines)


VISION_PART, FULL_PART = "added to the basic recipe", "removed from the full recipe"


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
        against = ["", ""] if arm == "basic" else [form(VISION, VISION_PART, arm, "basic") for form in (difference, own_bounds)]
        lines.append([arm, accuracy(found), *against, numbers.count(found["train_flops"])])
    return table(("arm", "accuracy", "against basic", "by own spreads", "training FLOPs"), lines)


def gating_table() -> str:
    part, base = "photographs", "multiplicative, split"
    titles = {
        "multiplicative": "multiplicative, no split",
        "tiny attention, 64": "tiny attention of 64 beside",
        "identity": "identity (no mixing)",
    }
    found = {arm: arm_rows(GATING, part, arm)[0] for arm in arms(GATING, part)}
    order = sorted(found, key=lambda arm: (arm != base, -found[arm]["accuracy"]))
    forms = (difference, own_bounds)
    lines = [
        [titles.get(arm, arm), accuracy(found[arm]), *("" if arm == base else form(GATING, part, arm, base) for form in forms)]
        for arm in order
    ]
    return table(("s(Z), photographs", "accuracy", "against multiplicative with split", "by own spreads"), lines)


def span(values: Iterable[float], form: str = "{:.2f}") -> str:
    """`0.98 to 1.00`."""
    found = sorted(values)
    return f"{form.format(found[0])} to {form.format(found[-1])}"


SEQ, CROSSING, PAIRS = "2026-11-23_cpu_sequence_length", "2026-11-23_cpu_memory_crossing", "2026-11-20_cpu_published_pairs"
REPLICATE = "2026-11-23_cpu_replicate-amd-epyc-26-2-1-avx2-avx512-bf16-10383e"
SEQ_BEFORE, SEQ_KEPT = "2026-11-20_cpu_sequence_length", "2026-11-22_cpu_growth_kept"
THREE = "2026-11-23_cpu_three_families"
LENGTHS = (17, 65, 129, 257, 513, 1025, 2049, 4097)
GMLP = {"model": "gmlp"}
FUSED_VIT, EXPLICIT_VIT = {"model": "vit", "attention": "auto"}, {"model": "vit", "attention": "math"}
CONTRASTS = ((GMLP, FUSED_VIT), (GMLP, EXPLICIT_VIT), (EXPLICIT_VIT, FUSED_VIT))
KEPT = {"match": "shape", "budget": 252e3, "batching": "batch 4", "phase": "infer", "engine": "eager"}
"""One shape each, kept as n grows."""
PARAMS = {"match": "params", "batching": "batch 1"}
"""A shape at each n; 5M, and 80M at n = 4097."""


def kept_table() -> str:
    """Times at one shape each; the intervals hold for all of the table together."""
    of = len(LENGTHS) * len(CONTRASTS)
    lines = []
    for n in LENGTHS:
        cells = [row(SEQ, **KEPT, **model, seq_len=n) for model in (GMLP, FUSED_VIT)]
        ratios = [ratio(SEQ, {**KEPT, **first, "seq_len": n}, {**KEPT, **second, "seq_len": n}, of=of) for first, second in CONTRASTS]
        lines.append([str(n), *(numbers.count(found["params"]) for found in cells), *ratios])
    return table(("n", "gMLP's params", "ViT's", "gMLP / fused", "gMLP / explicit", "explicit / fused"), lines, left=0)


def params_table() -> str:
    """Times at equal parameters; the intervals hold for all of the table together."""
    places = [(n, 5e6) for n in (17, 65, 257, 513, 1025)] + [(4097, 80e6)]
    lines = []
    for n, size in places:
        cells = [row(SEQ, **PARAMS, **model, seq_len=n, budget=size) for model in (GMLP, FUSED_VIT)]
        pairs = [[{**PARAMS, **model, "seq_len": n, "budget": size} for model in pair] for pair in CONTRASTS]
        ratios = [ratio(SEQ, *pair, of=len(places) * len(CONTRASTS)) if all(_timed(cell) for cell in pair) else "" for pair in pairs]
        share = numbers.percent(cells[0]["params_seq"] / cells[0]["params"])
        lines.append([str(n), numbers.count(size), share, *(numbers.whole(found["width"]) for found in cells), *ratios])
    headers = ("n", "params", "of gMLP's in n² weights", "gMLP's width", "ViT's", "gMLP / fused", "gMLP / explicit", "explicit / fused")
    return table(headers, lines, left=0)


def published_table() -> str:
    lines = []
    for patches in (196, 1024):
        gmlp, fused, explicit = (
            {"model": "gmlp-s", "seq_len": patches},
            *({"model": "deit-s", "seq_len": patches + 1, "attention": kernel} for kernel in ("auto", "math")),
        )
        pairs = ((gmlp, fused), (gmlp, explicit), (explicit, fused))
        params = [numbers.count(row(SEQ, **cell)["params"]) for cell in (gmlp, fused)]
        lines.append([f"{patches} / {patches + 1}", *params, *(ratio(SEQ, *pair, of=6) for pair in pairs)])
    return table(("n", "gMLP-S's params", "DeiT-S's", "gMLP-S / fused", "gMLP-S / explicit", "explicit / fused"), lines, left=0)


def crossing_table() -> str:
    lines = []
    for size in ("Ti", "S", "B"):
        (found,) = [c for c in run(PAIRS).closed_crossovers if (c.first, c.second) == (f"gmlp-{size.lower()}", f"deit-{size.lower()}")]
        crossings = [found.flops[scope].crossings[0].n for scope in ("blocks", "whole model")]
        ratios = [f"{found.ratios['blocks'][n]:.2f} ({found.ratios['whole model'][n]:.2f})" for n in (1025, 4097)]
        lines.append([f"gMLP-{size} / DeiT-{size}", f"{crossings[0]:.0f}", f"{crossings[1]:.1f}", *ratios])
    return table(("pair", "cross at n, blocks", "whole model", "gMLP / DeiT at 1025, blocks (whole)", "at 4097"), lines)


def time_claims(name: str) -> str:
    """`5 of 16`: verdicts on claims about time that are decided."""
    timed = [verdict for verdict in run(name).verdicts if verdict.claim.timed]
    found = [verdict.answer for verdict in timed if not verdict.finding.subject.startswith(("gmlp-s", "deit-s"))]
    return f"{sum(answer != 'undecided' for answer in found)} of {len(found)}"


def time_share(claim: str, subject: str) -> str:
    """Of the n^2 term at the longest length, as the verdict says it."""
    (found,) = [v.finding.reason for v in run(SEQ).verdicts if (v.claim.name, v.finding.subject) == (claim, subject)]
    share = re.search(r"is ([\d.]+)% \(([\d.]+)% to ([\d.]+)%\)", found)
    assert share is not None
    return f"{share[1]} % [{share[2]}, {share[3]}]"


def before(name: str, second: Mapping[str, Any]) -> str:
    """gMLP over ViT at n = 4097 in a run that is superseded."""
    cells = {"match": "shape", "budget": 150e3, "batching": "batch 4", "phase": "infer", "engine": "eager", "seq_len": 4097}
    return ratio(name, {**cells, **GMLP}, {**cells, **second})


def twin(model: Mapping[str, Any]) -> str:
    """Time per token at n = 257 over that at 256."""
    cells = {found["cell_id"] for found in rows(SEQ, **KEPT, **model)}
    (found,) = [
        twin.ratio
        for growth in run(SEQ).growth
        if growth.measure.column == "latency_ms" and cells <= set(growth.series.cell_ids)
        for twin in growth.twins
        if twin.n == 257
    ]
    return interval_text(found)


def headline() -> str:
    """Of `kept_table` and `params_table`, with their intervals."""
    lines = []
    for n, size in ((1025, 5e6), (4097, 80e6)):
        lines.append([str(n), "width, the same at every n", kept_ratio(n, FUSED_VIT), kept_ratio(n, EXPLICIT_VIT)])
        lines.append(
            [str(n), f"parameters ({numbers.count(size)})", *(params_ratio(n, size, model) for model in (FUSED_VIT, EXPLICIT_VIT))]
        )
    return table(("n", "matched by", "gMLP over fused attention", "over explicit attention"), lines, left=2)


def params_ratio(n: int, size: float, second: Mapping[str, Any]) -> str:
    """Empty where one of the two was not timed."""
    pair = [{**PARAMS, **model, "seq_len": n, "budget": size} for model in (GMLP, second)]
    return ratio(SEQ, *pair, of=6 * len(CONTRASTS)) if all(_timed(cell) for cell in pair) else "over the time limit"


def families_table() -> str:
    lines = []
    for found in sorted(rows(THREE), key=lambda found: (FAMILIES.index(found["model"]), found["seq_len"])):
        line = [found["model"], numbers.whole(found["seq_len"]), numbers.exact(found["params"]), numbers.count(found["flops"])]
        line += [numbers.percent(found["flops_quadratic_share"]), numbers.bytes_text(found["peak_memory_bytes"])]
        time = "1" if found["model"] == "gmlp" else numbers.ratio(found["ratio"], found["ratio_low"], found["ratio_high"])
        lines.append([*line, time, accuracy(found)])
    return table(
        ("model", "n", "params", "FLOPs per sample", "in n²", "peak memory", "time, over gMLP's", "accuracy (digits, 5 seeds)"), lines
    )


def _timed(cell: Mapping[str, Any]) -> bool:
    return bool(row(SEQ, **cell)["status"] == "measured")


def kept_ratio(n: int, second: Mapping[str, Any]) -> str:
    return ratio(SEQ, {**KEPT, **GMLP, "seq_len": n}, {**KEPT, **second, "seq_len": n}, of=len(LENGTHS) * len(CONTRASTS))


def quadratic_share(model: Mapping[str, Any]) -> str:
    return f"{100 * row(SEQ, **KEPT, **model, seq_len=4097)['flops_quadratic_share']:.0f} %"


def exponent_table() -> str:
    """Of time, from each length to the next; plain intervals."""
    models = (("gMLP", GMLP), ("ViT, fused", FUSED_VIT), ("ViT, explicit", EXPLICIT_VIT))
    references = [
        (name, {"model": f"metaformer+mixer={mixer}", "attention": attention})
        for name, mixer, attention in (("windows of 16", "window_attention", "auto"), ("convolution of 9", "depthwise_convolution", "none"))
    ]
    steps = list(itertools.pairwise(LENGTHS))
    lines = []
    for name, model in (*models, *references):
        cells = [found["cell_id"] for found in rows(SEQ, **KEPT, **model)]
        lines.append([name, *(exponent(SEQ, shorter, cells) for shorter, _ in steps[2:])])
    return table(("time", *(f"{shorter} to {longer}" for shorter, longer in steps[2:])), lines)


def memory_crossing() -> str:
    """The least n from which on gMLP's peak is below that of ViT with explicit attention, among neighbouring lengths."""
    peaks = {
        model: {int(found["seq_len"]): found["peak_memory_bytes"] for found in rows(CROSSING, model=model)} for model in ("gmlp", "vit")
    }
    below = {n: peaks["gmlp"][n] < peaks["vit"][n] for n in sorted(peaks["gmlp"])}
    n = min(n for n, is_below in below.items() if is_below)
    assert n - 1 in below
    assert all(is_below == (length >= n) for length, is_below in below.items())
    return str(n)


PEERS = "2026-11-22_cpu_peers"
TITLES = ("gMLP", "ViT", "Transformer")


def standing(name: str) -> Standing:
    found = run(name).peers
    assert found is not None
    return found


def peers_mean(title: str) -> Mean:
    """Of a part against the fastest peer of each of its cells."""
    return next(mean for mean in standing(PEERS).means if mean.part == title and mean.peer == FASTEST)


def interval_text(found: Interval | None) -> str:
    return numbers.ratio(found.estimate, found.low, found.high) if found else ""


def peers_means() -> str:
    answers = {(judged.part, judged.bound.split()[0]): judged.answer for judged in run(PEERS).peer_bounds}

    def text(part: str) -> str:
        return f"{interval_text(peers_mean(part).ratio)}, {answers[part, 'geometric']}"

    lines = [[title, *(text(f"{title}, {phase}") for phase in ("infer", "train"))] for title in TITLES]
    return table(("ours over the fastest peer, geometric mean", "inference (bound 0.6)", "training (bound 0.8)"), lines)


def peers_shown() -> str:
    """`60 of 60`: cells in fp32 that are below 1 by Holm's test."""
    found = [pair for pair in standing(PEERS).fastest if is_bound(pair.place)]
    below = sum(pair.joint is not None and pair.joint.estimate < 1 and (pair.p_adjusted or 0) < 1 - LEVEL for pair in found)
    return f"{below} of {len(found)}"


def peers_same_engine() -> str:
    engines = ("eager", "onednn")
    found = {(mean.part, mean.peer, mean.kind): mean for mean in standing(PEERS).means}
    lines = []
    for part, peer in dict.fromkeys((part, peer) for part, peer, _ in found if peer != FASTEST and "bf16" not in part):
        means = [found.get((part, peer, both_with(engine))) for engine in engines]
        lines.append([part, peer, *(f"{interval_text(mean.ratio)} ({mean.num_places} cells)" if mean else "" for mean in means)])
    return table(("part", "peer", *(f"both {engine}" for engine in engines)), lines, left=2)


def kernels(n: int, form: str) -> str:
    """At batch 32, inference: gMLP over ViT as timm ships both, as built here with the best engines, or the part that kernels account for."""
    (found,) = [
        share
        for share in run(PEERS).kernel_shares
        if share.place and (share.phase, share.peer, share.place.seq_len, share.place.batch_size) == ("infer", "timm", n, 32)
    ]
    return interval_text(getattr(found, form))


def ceiling_share(phase: str) -> str:
    """Of the best matrix product of this host, at n = 1025, batch 32: ours by the engine."""
    cells = {"gmlp": "gMLP", "vit": "ViT", "transformer": "Transformer"}
    found = rows(PEERS, phase=phase, engine="onednn", dtype="fp32", seq_len=1025, batch_size=32)
    return ", ".join(f"{cells[line['family']]} {100 * line['mfu']:.0f} %" for line in found if line["family"] in cells)


INTERLEAVED, SECONDS = RESULTS / "2026-11-23_cpu_harness_interleaved", RESULTS / "2026-11-23_cpu_harness_seconds"


def interleaved(name: str, column: str) -> list[str]:
    """A column of one of the harness's tables of what interleaved timing is worth."""
    _, tabulate = interleaved_tables.TABLES[name]
    return [str(value) for value in tabulate(pandas.read_csv(INTERLEAVED / f"{name}.csv"))[column]]


def seconds_of_bench() -> str:
    found = pandas.read_csv(SECONDS / "seconds.csv")
    return span(sorted(found["seconds"][found["protocol"] == "bench"])[:-1], "{:.1f}")


def seconds_gain() -> str:
    """The best other protocol over bench, of the pairs in which bench is faster."""
    found = pandas.read_csv(SECONDS / "seconds.csv")
    best = found[found["protocol"] != "bench"].groupby("pair")["over_bench"].min()
    return span(best[best > 1], "{:.0f}")


FIGURES: dict[str, Callable[[], str]] = {
    "cifar": lambda: cifar_table(wide=True),
    "cifar_short": lambda: cifar_table(wide=False),
    "cifar_lead_vit_17": lambda: lead(CIFAR_17, "gmlp", "vit", budget=105e3),
    "cifar_lead_vit_65": lambda: lead(CIFAR_65, "gmlp", "vit", budget=105e3),
    "cifar_lead_transformer_17": lambda: lead(CIFAR_17, "gmlp", "transformer", budget=105e3),
    "cifar_lead_transformer_65": lambda: lead(CIFAR_65, "gmlp", "transformer", budget=105e3),
    "cifar_lead_vit_300k": lambda: lead(CIFAR_17, "gmlp", "vit", budget=300e3),
    "cifar_lead_transformer_300k": lambda: lead(CIFAR_17, "gmlp", "transformer", budget=300e3),
    "digits": digits_table,
    "digits_seconds": lambda: span((found["train_s"] for found in rows(DIGITS)), "{:.0f}"),
    "recall": recall_table,
    "trec": trec_table,
    "trec_lead": trec_lead,
    "control": control_table,
    "training_speed": training_speed_table,
    "token_mixing": token_mixing_table,
    "token_mixing_outcomes": lambda: outcomes(TOKEN_MIXING),
    "token_mixing_cost_outcomes": lambda: outcomes(TOKEN_MIXING_TIMES),
    "additive_time": lambda: mixer_cost("additive attention", "latency_ms"),
    "additive_activations": lambda: mixer_cost("additive attention", "activation_bytes"),
    "additive_time_before": lambda: mixer_cost("additive attention", "latency_ms", TOKEN_MIXING),
    "explicit_time_before": lambda: mixer_cost("attention, explicit", "latency_ms", TOKEN_MIXING),
    "explicit_time": lambda: mixer_cost("attention, explicit", "latency_ms"),
    "causal_time": lambda: mixer_cost("causal attention", "latency_ms"),
    "gating_time": lambda: mixer_cost("spatial gating", "latency_ms"),
    "gating_params": lambda: mixer_cost("spatial gating", "params"),
    "pooling_loss": lambda: difference(TOKEN_MIXING, IMAGES, "mean pooling", "none"),
    "vision": vision_table,
    "vision_outcomes": lambda: outcomes(VISION),
    "teacher_flops": lambda: numbers.significant(
        effect(VISION, VISION_PART, "convolutional teacher", "basic", "train_flops").estimate.estimate, 2
    ),
    "gating": gating_table,
    "gating_outcomes": lambda: outcomes(GATING),
    "identity_loss": lambda: difference(GATING, "photographs", "identity", "multiplicative, split"),
    "reverse_recurrent": lambda: exact(row(REVERSE, model="recurrent_attention")),
    "reverse_recurrent_symbols": lambda: numbers.fraction(row(REVERSE, model="recurrent_attention")["accuracy"]),
    "longer_encoder_decoder": lambda: accuracy(row(REVERSE_LONGER, model="encoder_decoder")),
    "longer_recurrent": lambda: accuracy(row(REVERSE_LONGER, model="recurrent_attention")),
    "headline": headline,
    "families": families_table,
    "families_answer": lambda: answer_text(run(THREE)),
    "published": published_table,
    "crossings": crossing_table,
    "time_claims_before": lambda: time_claims(SEQ_BEFORE),
    "time_claims_kept": lambda: time_claims(SEQ_KEPT),
    "time_share_gmlp": lambda: time_share("gmlp_time_quadratic", "gmlp"),
    "time_share_vit": lambda: time_share("attention_time_quadratic", "vit (auto)"),
    "before_fused": lambda: before(SEQ_BEFORE, FUSED_VIT),
    "before_explicit": lambda: before(SEQ_BEFORE, EXPLICIT_VIT),
    "kept_before_fused": lambda: before(SEQ_KEPT, FUSED_VIT),
    "kept_before_explicit": lambda: before(SEQ_KEPT, EXPLICIT_VIT),
    "kept_fused": lambda: kept_ratio(4097, FUSED_VIT),
    "kept_explicit": lambda: kept_ratio(4097, EXPLICIT_VIT),
    "digits_gmlp": lambda: accuracy(row(SEQ, model="gmlp", task="digits")),
    "digits_vit": lambda: accuracy(row(SEQ, model="vit", task="digits")),
    "time_claims": lambda: time_claims(SEQ),
    "twin_gmlp": lambda: twin(GMLP),
    "twin_fused": lambda: twin(FUSED_VIT),
    "twin_explicit": lambda: twin(EXPLICIT_VIT),
    "kept": kept_table,
    "same_params": params_table,
    "share_vit": lambda: quadratic_share(FUSED_VIT),
    "share_gmlp": lambda: quadratic_share(GMLP),
    "exponents": exponent_table,
    "memory_crossing": memory_crossing,
    "peers_means": peers_means,
    "peers_same_engine": peers_same_engine,
    "kernels_shipped_257": lambda: kernels(257, "shipped"),
    "kernels_ours_257": lambda: kernels(257, "ours"),
    "kernels_share_257": lambda: kernels(257, "kernels"),
    "kernels_shipped_1025": lambda: kernels(1025, "shipped"),
    "kernels_ours_1025": lambda: kernels(1025, "ours"),
    "kernels_share_1025": lambda: kernels(1025, "kernels"),
    "ceiling_infer": lambda: ceiling_share("infer"),
    "ceiling_train": lambda: ceiling_share("train"),
    "peers_shown": peers_shown,
    "peers_outcomes": lambda: outcomes(PEERS),
    "planted_found": lambda: f"{sum(int(text.split()[0]) for text in interleaved('truth', 'found') if text)} of 40",
    "aa_quiet": lambda: interleaved("aa", "leave out 1")[0],
    "aa_busy": lambda: interleaved("aa", "leave out 1")[1],
    "bias_17": lambda: interleaved("bias", "quotient")[0],
    "bias_1025": lambda: interleaved("bias", "quotient")[1],
    "coverage": lambda: interleaved("coverage", "hold the mean of the others")[0],
    "seconds_bench": seconds_of_bench,
    "seconds_gain": seconds_gain,
    "loop_of_bound": lambda: span(found["loop_of_bound"] for found in rows(TRAINING_SPEED)),
    "loop_over_plain": lambda: span(found["loop_over_plain"] for found in rows(TRAINING_SPEED)),
}


def main() -> None:
    for page in pages():
        text = page.read_text()
        if (found := filled(text)) != text:
            page.write_text(found)
            print(f"written: {page.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    main()

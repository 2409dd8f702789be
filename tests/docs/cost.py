"""Figures about cost against n: gMLP, fused and explicit attention, at one width and at equal parameters."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

from bench import numbers
from bench.analysis.diff import compare_two
from bench.analysis.growth import Growth
from bench.report.sections.answer import answer_sentences
from bench.running.store import read_run
from tests.docs.reading import FAMILIES, RESULTS, Figures, accuracy, exponent, interval_text, ratio, row, rows, run, table

SEQ, CROSSING, PAIRS = "2026-11-23_cpu_sequence_length", "2026-11-23_cpu_memory_crossing", "2026-11-20_cpu_published_pairs"
EXPLICIT = "2026-11-23_cpu_explicit_4097"
THREE = "2026-11-23_cpu_three_families"
INTEL, INTEL_AGAIN = "2026-11-26_cpu_sequence_length", "2026-11-26_cpu_sequence_length_repeat"
LENGTHS = (17, 65, 129, 257, 513, 1025, 2049, 4097)
GMLP, LINEAR = {"model": "gmlp"}, {"model": "metaformer+mixer=linear_attention"}
FUSED_VIT, EXPLICIT_VIT = {"model": "vit", "attention": "auto"}, {"model": "vit", "attention": "math"}
CONTRASTS = ((GMLP, FUSED_VIT), (GMLP, EXPLICIT_VIT), (EXPLICIT_VIT, FUSED_VIT))
KEPT = {"match": "shape", "budget": 252e3, "batching": "batch 4", "phase": "infer", "engine": "eager"}
"""One shape each, kept as n grows."""
POLICIES = {"shape": "shape (and parameters at n = 17)", "flops": "FLOPs", "params": "parameters"}
FAMILY_COLUMNS = {"seq_len": numbers.whole, "flops": numbers.count, "peak_memory_bytes": numbers.bytes_text}
PARAMS = {"match": "params", "batching": "batch 1"}
"""A shape at each n."""
PARAMS_PLACES = {**dict.fromkeys((17, 65, 257, 513, 1025), (SEQ, 5e6)), 4097: (EXPLICIT, 80e6)}
"""By n, the run and the budget."""


def kept_ratio(n: int, first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """At one shape each; the intervals hold for the whole of `kept_table`."""
    cells = ({**KEPT, **model, "seq_len": n} for model in (first, second))
    return ratio(SEQ, *cells, of=len(LENGTHS) * len(CONTRASTS))


def kept_table() -> str:
    lines = []
    for n in LENGTHS:
        params = [numbers.count(row(SEQ, **KEPT, **model, seq_len=n)["params"]) for model in (GMLP, FUSED_VIT)]
        lines.append([str(n), *params, *(kept_ratio(n, *pair) for pair in CONTRASTS)])
    return table(("n", "gMLP's params", "ViT's", "gMLP / fused", "gMLP / explicit", "explicit / fused"), lines, left=0)


def params_ratio(n: int, first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """At equal parameters; the intervals hold for the whole of `params_table`."""
    name, size = PARAMS_PLACES[n]
    cells = [{**PARAMS, **model, "seq_len": n, "budget": size} for model in (first, second)]
    if any(row(name, **cell)["status"] != "measured" for cell in cells):
        return "over the time limit"
    return ratio(name, *cells, of=len(PARAMS_PLACES) * len(CONTRASTS))


def params_table() -> str:
    lines = []
    for n, (name, size) in PARAMS_PLACES.items():
        gmlp, vit = (row(name, **PARAMS, **model, seq_len=n, budget=size) for model in (GMLP, FUSED_VIT))
        share = numbers.percent(gmlp["params_seq"] / gmlp["params"])
        widths = (numbers.whole(found["width"]) for found in (gmlp, vit))
        lines.append([str(n), numbers.count(size), share, *widths, *(params_ratio(n, *pair) for pair in CONTRASTS)])
    headers = ("n", "params", "of gMLP's in n² weights", "gMLP's width", "ViT's", "gMLP / fused", "gMLP / explicit", "explicit / fused")
    return table(headers, lines, left=0)


def intel_table() -> str:
    """On another type of host: at one shape each, and at equal parameters. The intervals hold for the whole of the table."""
    kept = ((GMLP, FUSED_VIT), (GMLP, EXPLICIT_VIT), (LINEAR, FUSED_VIT))
    matched = {n: size for n, (_, size) in PARAMS_PLACES.items()}
    num = len(LENGTHS) * len(kept) + len(matched)
    lines = []
    for n in LENGTHS:
        ratios = [ratio(INTEL, *({**KEPT, **model, "seq_len": n} for model in pair), of=num) for pair in kept]
        pair = [{**PARAMS, **model, "seq_len": n, "budget": matched.get(n)} for model in (GMLP, FUSED_VIT)]
        lines.append([str(n), *ratios, ratio(INTEL, *pair, of=num) if n in matched else ""])
    headers = ("n", "gMLP / fused", "gMLP / explicit", "linear attention / fused", "gMLP / fused, equal parameters")
    return table(headers, lines, left=0)


def linear_time() -> str:
    """Linear attention's over fused attention's at the longest length, one shape each; plain interval."""
    return ratio(INTEL, *({**KEPT, **model, "seq_len": LENGTHS[-1]} for model in (LINEAR, FUSED_VIT)))


def repeat() -> str:
    """`1 of 151`: latencies that are shown to differ when the question is measured again on one host."""
    judged = [cell for cell in compare_two(*(read_run(RESULTS / name) for name in (INTEL, INTEL_AGAIN))).cells if cell.ratio is not None]
    return f"{sum(cell.verdict in ('faster', 'slower') for cell in judged)} of {len(judged)}"


def headline() -> str:
    """Of `kept_table` and `params_table`, with their intervals."""
    lines = []
    for n in (1025, 4097):
        name, size = PARAMS_PLACES[n]
        kept, matched = {**KEPT, "seq_len": n}, {**PARAMS, "seq_len": n, "budget": size}
        forms = (("shape (and parameters at n = 17)", SEQ, kept, kept_ratio), ("parameters", name, matched, params_ratio))
        for text, of, cell, form in forms:
            pair = [row(of, **cell, **model) for model in (GMLP, FUSED_VIT)]
            sizes = (numbers.count(found["params"]) for found in pair)
            ratios = (form(n, GMLP, model) for model in (FUSED_VIT, EXPLICIT_VIT))
            lines.append([str(n), text, numbers.whole(pair[0]["batch_size"]), *sizes, *ratios])
    headers = ("n", "equal", "batch", "gMLP's params", "ViT's", "gMLP / fused attention", "gMLP / explicit attention")
    return table(headers, lines, left=2)


def matched_cells(policy: str) -> list[dict[str, Any]]:
    return [{"match": policy, "budget": 5e6, "seq_len": 1025, **model} for model in (GMLP, FUSED_VIT)]


def matched_ratio(policy: str) -> str:
    """The intervals hold for the whole of `matched_table`."""
    return ratio(SEQ, *matched_cells(policy), of=len(POLICIES))


def matched_params(policy: str) -> str:
    """Of gMLP and ViT."""
    return " and ".join(numbers.count(row(SEQ, **cell)["params"]) for cell in matched_cells(policy))


def matched_table() -> str:
    """The same two families at n = 1025 and about 5M parameters, by what is matched."""
    lines = []
    for policy, text in POLICIES.items():
        pair = [row(SEQ, **cell) for cell in matched_cells(policy)]
        sizes = (f"{numbers.whole(found['width'])}, {numbers.count(found['params'])}, {numbers.count(found['flops'])}" for found in pair)
        lines.append([text, *sizes, matched_ratio(policy)])
    return table(("equal", "gMLP's width, params, FLOPs", "ViT's", "gMLP / fused"), lines)


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
        (found,) = [
            c for c in run(PAIRS).closed_crossovers if (c.first.model, c.second.model) == (f"gmlp-{size.lower()}", f"deit-{size.lower()}")
        ]
        crossings = [found.flops[scope].crossings[0].n for scope in ("blocks", "whole model")]
        ratios = [f"{found.ratios['blocks'][n]:.2f} ({found.ratios['whole model'][n]:.2f})" for n in (1025, 4097)]
        lines.append([f"gMLP-{size} / DeiT-{size}", f"{crossings[0]:.0f}", f"{crossings[1]:.1f}", *ratios])
    return table(("pair", "cross at n, blocks", "whole model", "gMLP / DeiT at 1025, blocks (whole)", "at 4097"), lines)


def time_claims() -> str:
    """`5 of 12`: verdicts on claims about time of the three families that are decided."""
    found = [
        verdict.answer
        for verdict in run(SEQ).verdicts
        if verdict.claim.timed and not verdict.claim.name.startswith("survives_") and not verdict.about.startswith(("gmlp-s", "deit-s"))
    ]
    return f"{sum(answer != 'undecided' for answer in found)} of {len(found)}"


def onset(label: str) -> str:
    """`73 [65, 129]`: the length at which n² takes a tenth of the time, in the shape that is kept."""
    (found,) = [verdict for verdict in run(SEQ).verdicts if (verdict.claim.name, verdict.about) == ("quadratic_hidden_below", label)]
    (place,) = found.estimates
    return f"{place.value.estimate:.0f} [{place.value.low:.0f}, {place.value.high:.0f}]"


def wide_times() -> str:
    """`29 of 142`: medians whose interval is wider than a tenth of them."""
    found = run(SEQ).frame.drop_duplicates("cell_id").dropna(subset=["latency_ms"])
    wide = found["latency_high_ms"] - found["latency_low_ms"] > 0.1 * found["latency_ms"]
    return f"{wide.sum()} of {len(found)}"


def kept_growth(model: Mapping[str, Any]) -> Growth:
    """Of time at one shape, as n grows."""
    cells = {found["cell_id"] for found in rows(SEQ, **KEPT, **model)}
    (found,) = [of for of in run(SEQ).growth if of.measure.column == "latency_ms" and cells <= set(of.series.cell_ids)]
    return found


def time_share(model: Mapping[str, Any]) -> str:
    """Of the n^2 term at the longest length."""
    share = kept_growth(model).decomposition.shares[-1].quadratic
    return f"{100 * share.estimate:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def twin(model: Mapping[str, Any]) -> str:
    """Time per token at n = 257 over that at 256."""
    return interval_text(next(twin.ratio for twin in kept_growth(model).twins if twin.n == 257))


def families_table() -> str:
    """Six rows: each family at the shortest and the longest length."""
    found = [row(THREE, model=model, seq_len=n) for n in (17, 257) for model in FAMILIES]
    lines = []
    for of in found:
        line = [of["model"], *(form(of[column]) for column, form in FAMILY_COLUMNS.items())]
        lines.append([*line, "1" if of["model"] == "gmlp" else numbers.ratio(of["ratio"], of["ratio_low"], of["ratio_high"]), accuracy(of)])
    return table(("model", "n", "FLOPs per sample", "peak memory", "time over gMLP's", "accuracy, digits"), lines)


def quadratic_share(model: Mapping[str, Any], *, at: int = 0) -> str:
    """The n² terms' share of FLOPs: at n = 4097 in the shape that is kept, or at this length with equal parameters."""
    place = {**PARAMS, "seq_len": at, "budget": PARAMS_PLACES[at][1]} if at else {**KEPT, "seq_len": 4097}
    return f"{100 * row(SEQ, **place, **model)['flops_quadratic_share']:.0f} %"


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


FIGURES: Figures = {
    "headline": headline,
    "families": families_table,
    "families_answer": lambda: " ".join(answer_sentences(run(THREE))),
    "published": published_table,
    "crossings": crossing_table,
    "time_share_gmlp": lambda: time_share(GMLP),
    "time_share_vit": lambda: time_share(FUSED_VIT),
    "digits_gmlp": lambda: accuracy(row(SEQ, model="gmlp", task="digits")),
    "digits_vit": lambda: accuracy(row(SEQ, model="vit", task="digits")),
    "time_claims": time_claims,
    "twin_gmlp": lambda: twin(GMLP),
    "twin_fused": lambda: twin(FUSED_VIT),
    "wide_times": wide_times,
    "matched": matched_table,
    **{f"matched_{policy}": functools.partial(matched_ratio, policy) for policy in POLICIES},
    "matched_shape_params": lambda: matched_params("shape"),
    "kept": kept_table,
    "intel": intel_table,
    "linear_4097": linear_time,
    "repeat": repeat,
    "same_params": params_table,
    "share_vit": lambda: quadratic_share(FUSED_VIT),
    "share_gmlp": lambda: quadratic_share(GMLP),
    "onset_gmlp": lambda: onset("gmlp"),
    "onset_vit": lambda: onset("vit (auto)"),
    "share_vit_5m": lambda: quadratic_share(FUSED_VIT, at=1025),
    "share_gmlp_5m": lambda: quadratic_share(GMLP, at=1025),
    "exponents": exponent_table,
    "memory_crossing": memory_crossing,
}

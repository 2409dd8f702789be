"""Figures of our models against the peers."""

from __future__ import annotations

import statistics

from bench import numbers
from bench.analysis.peers import FASTEST_PEER, SHIPPED, PeerComparison, PeerPair, both_with
from bench.intervals import ratio_over_rounds
from tests.docs.reading import Figures, interval_text, outcomes, ratio, ratio_of_cells, row, rows, run, span, table

PEERS, PEERS_AVX2, PEERS_BF16 = "2026-11-23_cpu_peers", "2026-11-23_cpu_peers_avx2", "2026-11-23_cpu_peers_bf16"
MAMBA2, DELTA_RULE = "2026-11-25_cpu_peers_mamba2", "2026-11-25_cpu_peers_delta_rule"
TITLES = {"gmlp": "gMLP", "vit": "ViT", "transformer": "Transformer"}


def standing(name: str = PEERS) -> PeerComparison:
    found = run(name).peers
    assert found is not None
    return found


def transformers_table(name: str, ours: str, theirs: str) -> str:
    """Our mixer over that of transformers, each by eager torch."""
    lines = []
    for n in (257, 1025, 4097):
        phases = ({"seq_len": n, "phase": phase} for phase in ("infer", "train"))
        lines.append([str(n), *(ratio(name, {"model": ours, **place}, {"model": theirs, **place}) for place in phases)])
    return table(("n", "inference", "training"), lines)


def state_space_table() -> str:
    return transformers_table(MAMBA2, "metaformer+mixer=state_space:causal=true+pool=mean", "python:bench.peers.transformers:mamba2")


def delta_rule_table() -> str:
    return transformers_table(
        DELTA_RULE, "metaformer+mixer=delta_rule:causal=true+pool=mean", "python:bench.peers.transformers:gated_delta_net"
    )


def fastest(part: str) -> dict[tuple[int, int], PeerPair]:
    """By n and batch size, ours against the fastest peer there."""
    return {(pair.place.seq_len, pair.place.batch_size): pair for pair in standing().fastest if pair.place.part == part}


def mean(part: str, name: str = PEERS) -> str:
    """Over the cells of a part, each against its fastest peer."""
    return interval_text(next(mean.ratio for mean in standing(name).means if (mean.part, mean.peer) == (part, FASTEST_PEER)))


def mean_over_families(phase: str) -> str:
    parts = [f"{title}, {phase}" for title in TITLES.values()]
    means = [mean.ratio for mean in standing().means if mean.part in parts and mean.peer == FASTEST_PEER]
    return f"{statistics.geometric_mean(ratio.estimate for ratio in means if ratio):.2f}"


def page_faults() -> str:
    """The most that a cell takes at every step."""
    return numbers.exact(round(run(PEERS).frame["page_faults"].max()))


def means() -> str:
    lines = [[title, *(mean(part) for part in (f"{title}, infer", f"{title}, train"))] for title in TITLES.values()]
    return table(("ours over the fastest peer, geometric mean", "inference", "training"), lines)


def means_avx2() -> str:
    """Beside the same cells of the whole run."""
    lines = []
    for title in TITLES.values():
        line = [title]
        for part in (f"{title}, infer", f"{title}, train"):
            places = {(pair.place.seq_len, pair.place.batch_size) for pair in standing(PEERS_AVX2).fastest if pair.place.part == part}
            line += [mean(part, PEERS_AVX2), *(interval_text(found.ratio) for place, found in fastest(part).items() if place in places)]
        lines.append(line)
    return table(("n = 257, batch 32", "inference, AVX2", "AVX-512", "training, AVX2", "AVX-512"), lines)


def ratios_avx2() -> str:
    """Of every model and phase in fp32, with the cap on vector instructions."""
    return span(pair.ratio.estimate for pair in standing(PEERS_AVX2).fastest if pair.place.dtype == "fp32" and pair.ratio)


def shown() -> str:
    """`60 of 60`: cells in fp32 that are shown to take less time."""
    found, num = standing().shown_faster["fp32"]
    return f"{found} of {num}"


def output_error() -> str:
    """The largest of all compared cells in fp32."""
    errors = (contender.output_error for place, found in standing().contenders.items() if place.dtype == "fp32" for contender in found)
    return f"{max(error for error in errors if error is not None):.1e}"


def same_engine() -> str:
    engines = ("eager", "onednn")
    found = {(mean.part, mean.peer, mean.kind): mean for mean in standing().means}
    lines = []
    for part, peer in dict.fromkeys((part, peer) for part, peer, _ in found if peer != FASTEST_PEER and "bf16" not in part):
        means = [found.get((part, peer, both_with(engine))) for engine in engines]
        lines.append([part, peer, *(f"{interval_text(mean.ratio)} ({mean.num_places} cells)" if mean else "" for mean in means)])
    return table(("part", "peer", *(f"both {engine}" for engine in engines)), lines, left=2)


def bf16() -> str:
    """Against the fastest peer as shipped: ours by the engine and eager; and the engine's own gain. The intervals are plain."""
    lines = []
    for pair in standing(PEERS_BF16).fastest:
        place = pair.place
        arms = {name: row(PEERS_BF16, model=pair.ours.row["model"], seq_len=place.seq_len, engine=name) for name in ("eager", "onednn")}
        against = [ratio_of_cells(PEERS_BF16, arms[name]["cell_id"], pair.theirs.cell_id) for name in ("eager", "onednn")]
        gain = ratio_of_cells(PEERS_BF16, arms["onednn"]["cell_id"], arms["eager"]["cell_id"])
        lines.append([TITLES[place.family], str(place.seq_len), pair.peer, *against, gain])
    return table(("model, bf16", "n, batch 32", "fastest peer", "ours, eager / it", "ours, onednn / it", "onednn / eager"), lines)


def products(name: str) -> str:
    """`119 by torch, 246 by oneDNN`: GFLOP/s of the best matrix product when the run began."""
    found = run(name).environment["ceilings_at_start"]
    return f"{found['torch_mm_flops_per_s'] / 1e9:.0f} by torch, {found['onednn_flops_per_s'] / 1e9:.0f} by oneDNN"


def kernels(n: int, form: str) -> str:
    """At batch 32, inference: gMLP over ViT as timm ships both, as built here with the best engines, or the part that kernels account for."""
    place = ("infer", "fp32", n, 32)
    pairs = {
        pair.place.family: pair
        for pair in standing().pairs
        if (pair.kind, pair.peer) == (SHIPPED, "timm")
        and (pair.place.phase, pair.place.dtype, pair.place.seq_len, pair.place.batch_size) == place
    }
    timings = run(PEERS).timings
    logs = {
        "shipped": timings.log_ratios(pairs["gmlp"].theirs.cell_id, pairs["vit"].theirs.cell_id),
        "ours": timings.log_ratios(pairs["gmlp"].ours.cell_id, pairs["vit"].ours.cell_id),
    }
    logs["kernels"] = {place: logs["shipped"][place] - own for place, own in logs["ours"].items()}
    return interval_text(ratio_over_rounds(list(logs[form].values())))


def ceiling_share(phase: str) -> str:
    """Of the best matrix product of this host, at n = 1025, batch 32: ours by the engine."""
    found = rows(PEERS, phase=phase, engine="onednn", dtype="fp32", seq_len=1025, batch_size=32)
    return ", ".join(f"{TITLES[line['family']]} {100 * line['mfu']:.0f} %" for line in found if line["family"] in TITLES)


FIGURES: Figures = {
    "state_space_peer": state_space_table,
    "delta_rule_peer": delta_rule_table,
    "peers_means": means,
    "peers_means_avx2": means_avx2,
    "peers_mean_infer": lambda: mean_over_families("infer"),
    "peers_mean_train": lambda: mean_over_families("train"),
    "peers_faults": page_faults,
    "peers_avx2": ratios_avx2,
    "peers_shown": shown,
    "peers_outcomes": lambda: outcomes(PEERS),
    "peers_output_error": output_error,
    "peers_same_engine": same_engine,
    "peers_bf16": bf16,
    "products_avx512": lambda: products(PEERS),
    "products_avx2": lambda: products(PEERS_AVX2),
    "kernels_shipped_257": lambda: kernels(257, "shipped"),
    "kernels_ours_257": lambda: kernels(257, "ours"),
    "kernels_share_257": lambda: kernels(257, "kernels"),
    "kernels_shipped_1025": lambda: kernels(1025, "shipped"),
    "kernels_ours_1025": lambda: kernels(1025, "ours"),
    "kernels_share_1025": lambda: kernels(1025, "kernels"),
    "ceiling_infer": lambda: ceiling_share("infer"),
    "ceiling_train": lambda: ceiling_share("train"),
}

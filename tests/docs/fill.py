"""Fills the marked places of README and docs from the stored tables of runs, from ratios of their times and from what their analysis says.

    python -m tests.docs.fill

A place is `<!--=name-->text<!--/-->`; its marks are invisible when rendered. `PLACES` says of each name which rows of which
`results/RUN/table.csv` it shows, and how, or which finding (`tests.docs.analysed`). All other numbers are written by hand, beside a link to
their run or report.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas

from bench import numbers
from bench.intervals import joint_level
from bench.reading.timings import ratio_of
from bench.timing_groups import num_contrasts
from tests.docs.analysed import (
    Fillable,
    answer,
    cells,
    effect,
    equal_training,
    exponent,
    known,
    lead,
    lead_over_variant,
    pays_from,
    peer_mean,
    score,
    state,
)

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r"<!--=([a-z0-9_]+)-->(.*?)<!--/-->")
CELL, RATIO = re.compile(r"\{(?:(\w+)\.)?(\w+):(\w+)\}"), re.compile(r"\{(\w+)/(\w+)\}")
INTERVALS: Mapping[str, Callable[..., str]] = {"fraction": numbers.fraction, "ratio": numbers.ratio}
"""Forms of a column that has `_low` and `_high` beside it."""
FORMS: Mapping[str, Callable[[Any], str]] = {
    "bytes": numbers.bytes_text,
    "count": numbers.count,
    "exact": numbers.exact,
    "percent": lambda share: f"{100 * share:.0f} %",
    "value": numbers.fraction,
    "whole": numbers.whole,
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A text with `{column:form}` for cells of the row of `run` that has the values of `where`.

    Of several rows, `{name.column:form}` are cells, and `{name/name}` is the ratio of two of their times. `rows`: the values that each has beside
    `where`, by the name that the text gives to it.
    """

    run: str
    text: str
    where: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def filled(self) -> str:
        """The text as it reads now. Raises LookupError unless exactly one row fits each name."""
        text = CELL.sub(lambda cell: _cell_text(self._row(cell[1]), cell[2], cell[3]), self.text)
        return RATIO.sub(lambda pair: ratio_text(self.run, self._row(pair[1])["cell_id"], self._row(pair[2])["cell_id"]), text)

    def _row(self, name: str | None) -> pandas.Series[Any]:
        frame, where = table(self.run), {**self.where, **(self.rows[name] if name else {})}
        for column, value in where.items():
            frame = frame[frame[column] == value]
        if len(frame) != 1:
            raise LookupError(f"{self.run}: {len(frame)} rows with {where}, not one")
        return frame.iloc[0]


def ratio_text(run: str, first: str, second: str) -> str:
    """Write the first cell's time over the second's, with the interval that the run's report gives it."""
    timed = known(run)
    num_pairs = max(num_contrasts(timed.plan).get(cell, 1) for cell in (first, second))
    found = ratio_of(first, second, timed.timings, joint_level(num_pairs))
    if found is None:
        raise LookupError(f"{run}: {first} and {second} have no rounds in common")
    return numbers.ratio_interval(found)


@functools.cache
def table(run: str) -> pandas.DataFrame:
    return pandas.read_csv(ROOT / "results" / run / "table.csv")


def _cell_text(row: pandas.Series[Any], column: str, form: str) -> str:
    if form in INTERVALS:
        return INTERVALS[form](*(row[f"{column}{end}"] for end in ("", "_low", "_high")))
    return FORMS[form](row[column])


def place(run: str, text: str, **where: Any) -> Place:
    return Place(run=run, text=text, where=where)


SEQ, THREE = "2026-11-27_cpu_sequence_length", "2026-11-27_cpu_three_families"
INTEL = "2026-11-26_cpu_sequence_length"
LONG, MIXING = "2026-11-28_cpu_equal_4097", "2026-11-27_cpu_token_mixing_cost"
DIGITS = "2026-11-30_cpu_digits"
GATING = "2026-11-25_cpu_spatial_gating"
RECIPE, WHOLE = "2026-11-28_cpu_vision_recipe", "2026-11-26_cpu_vision_recipe_whole"
ADDED, REMOVED = "added to the basic recipe", "removed from the full recipe"
NORMS, PRECISION, SCALE = "2026-11-25_cpu_normalisation", "2026-11-25_cpu_precision", "2026-11-26_cpu_scale"
PEERS, POSITIONS = "2026-12-01_cpu_peers", "2026-11-26_cpu_positions"
HEAD, HEADS = "2026-11-29_cpu_attention_head", "2026-11-29_cpu_attention_head_width"
ATTENTION, MODES = "2026-11-26_cpu_attention", "2026-11-29_cpu_architecture_mode"
RECALL_8 = "2026-11-30_cpu_recall"
ESCAPE_LEARNED, ESCAPE_SINUSOIDAL = "2026-11-30_cpu_escape_images_learned", "2026-11-30_cpu_escape_images_sinusoidal"
ESCAPE_COST = "2026-11-30_cpu_escape_cost"
ESCAPE_EVERYWHERE = (ESCAPE_COST, f"{ESCAPE_COST}_2", f"{ESCAPE_COST}_3", "2026-11-27_cpu_escape_cost", f"{ESCAPE_COST}_avx2")
"""Three occasions on one machine, then two other types of CPU."""
RECALL, RECALL_WIDE = "2026-11-29_cpu_recall_state", "2026-11-29_cpu_recall_state_wide"
CIFAR_4M, CIFAR_51M, TREC = "2026-11-26_cpu_cifar10_4m", "2026-11-26_cpu_cifar10_51m_gmlp", "2026-11-24_cpu_trec"
CNN = "2026-11-29_cpu_cnn"
ARTICLE, TOGETHER = "2026-11-29_cpu_article", "2026-11-29_cpu_vision_recipe_together"
DATA, OPTIMIZER = "2026-11-28_cpu_data_size", "2026-11-28_cpu_optimizer"
LONGER = "2026-11-29_cpu_training_length"
PATCHES, SIZES_OF_IMAGES, SPANS = "2026-11-28_cpu_patch_size", "2026-11-29_cpu_scale", "2026-11-28_cpu_text"
GPU, CIFAR_GPU = "2026-11-28_cuda_gpu", "2026-11-28_cuda_cifar10_65_tuned"
SHARE = "{flops_quadratic_share:percent}"
MEANS = "{gmlp.accuracy:fraction} | {vit.accuracy:fraction} | {transformer.accuracy:fraction}"
FAMILY_ROWS: Mapping[str, Mapping[str, Any]] = {family: {"model": family} for family in ("gmlp", "vit", "transformer")}
OURS = "{flops:count} | {peak_memory_bytes:bytes} | 1 | {accuracy:fraction}"
OTHERS = "{flops:count} | {peak_memory_bytes:bytes} | {ratio:ratio} | {accuracy:fraction}"
SMALL: Mapping[str, Any] = {"budget": 252e3, "batch_size": 4, "phase": "infer", "engine": "eager"}
LONGEST: Mapping[str, Any] = {"seq_len": 4097, **SMALL}
EQUAL: Mapping[str, Any] = {"seq_len": 1025, "budget": 5e6}
PAIR: Mapping[str, Mapping[str, Any]] = {
    "gmlp": {"model": "gmlp"},
    "fused": {"model": "vit", "attention": "auto"},
    "explicit": {"model": "vit", "attention": "math"},
    "linear": {"model": "metaformer+mixer=linear_attention"},
}
AT_EQUAL_FLOPS: Mapping[str, Mapping[str, Any]] = {
    "gmlp": {"model": "gmlp", "match": "flops"},
    "fused": {"model": "vit", "attention": "auto", "match": "params"},
}
THREE_RATIOS = "{gmlp/fused} | {gmlp/explicit} | {explicit/fused}"
SIZES = "{gmlp.params:count} | {fused.params:count}"
WIDE = f"{{gmlp.width:whole}} | {{fused.width:whole}} | {THREE_RATIOS}"
WIDTHS = "{gmlp.width:whole}, {gmlp.params:count}, {gmlp.flops:count} | {fused.width:whole}, {fused.params:count}, {fused.flops:count}"
TIMED_MIXERS = {
    "explicit": {"model": "metaformer+mixer=attention", "attention": "math"},
    **{
        name: {"model": f"metaformer+mixer={mixer}"}
        for name, mixer in {
            "causal": "attention:causal=true",
            "gating": "gated_projection",
            "additive": "additive_attention",
            "kernel": "kernel_attention",
            "window": "window_attention",
            "convolution": "depthwise_convolution",
            "linear": "linear_attention",
            "gru": "gru",
            "pooling": "mean_pooling",
            "none": "identity",
        }.items()
    },
}
"""Mixers of token_mixing, by the names of their places."""
MIXER_ARMS = {
    "fused": "attention, fused",
    "explicit": "attention, explicit",
    "causal": "causal attention",
    "gating": "spatial gating",
    "additive": "additive attention",
    "kernel": "kernel attention, fixed",
    "window": "window attention, 16",
    "convolution": "depthwise convolution, 9",
    "linear": "linear attention",
    "gru": "GRU",
    "pooling": "mean pooling",
    "none": "none",
}
"""The variants that they are in its plan."""


HOSTS = {
    "zen3": "2026-11-30_cpu_replicate-amd-epyc-25-1-1-avx2",
    "zen4": "2026-11-27_cpu_replicate-amd-epyc-25-17-1-avx2-avx512-bf16-3421e9",
    "zen5": "2026-11-29_cpu_replicate-amd-epyc-26-2-1-avx2-avx512-bf16",
    "xeon": "2026-12-01_cpu_replicate-intel-xeon-6-207-2-amx",
}
"""Runs of the headline, one per type of host."""
OLDER_HOSTS = {
    "zen4_avx2": "2026-11-25_cpu_replicate-amd-epyc-25-17-1-avx2-640a1c",
    "older_xeon": "2026-11-26_cpu_replicate-intel-xeon-processor-6-167-1-amx-c7d188",
}
"""The same in seven rounds, of other types."""
OCCASIONS = {"second": f"{HOSTS['zen5']}_2", "third": f"{HOSTS['zen5']}_3"}
"""The same on the machine of zen5, one and five hours later."""
MAMBA2, DELTA_RULE = "2026-11-25_cpu_peers_mamba2", "2026-11-25_cpu_peers_delta_rule"
PEERS_BF16 = "2026-11-23_cpu_peers_bf16"
PEERS_AVX2 = {"infer": "2026-11-30_cpu_peers_avx2", "train": "2026-11-30_cpu_peers_avx2_train"}
BF16_ATTENTION, BF16_GATE = "2026-11-25_cpu_bf16_attention", "2026-11-25_cpu_gate_bf16"
INFER_AND_TRAIN = "{our_infer/their_infer} | {our_train/their_train}"
BESIDE: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    name: {
        f"{whose}_{phase}": {"phase": phase, "model": model}
        for phase in ("infer", "train")
        for whose, model in (
            ("our", f"metaformer+mixer={mixer}:causal=true+pool=mean"),
            ("their", f"python:bench.peers.transformers:{peer}"),
        )
    }
    for name, mixer, peer in (("mamba2", "state_space", "mamba2"), ("delta_rule", "delta_rule", "gated_delta_net"))
}
"""Our causal mixer and that of transformers, in both phases."""
FASTEST_IN_BF16 = {
    ("gmlp", 65): ("g_mlp_pytorch:gmlp", "timm:gmlp"),
    ("gmlp", 257): ("g_mlp_pytorch:gmlp", "g_mlp_pytorch:gmlp"),
    ("vit", 65): ("vit_pytorch:vit", "vit_pytorch:vit"),
    ("vit", 257): ("timm:vit", "vit_pytorch:vit"),
    **{("transformer", n): ("torch_nn:transformer",) * 2 for n in (65, 257)},
}
"""By model and length, on Intel and on AMD."""


HEAD_WIDTHS = "width of a head at equal parameters"
COST, LEARNED, SINUSOIDAL = "cost against n", "images, learned positions", "images, sinusoidal positions"
"""Parts of escape."""
ESCAPING = {
    "gating": "spatial gating",
    "toeplitz": "spatial gating, Toeplitz",
    "rank_gating": "spatial gating, rank 16",
    "linear": "linear attention",
    "state_64": "state space, state 64",
    "state_16": "state space, state 16",
    "delta": "gated delta rule",
    "rank": "low-rank attention, 16",
    "convolution": "long convolution",
    "none": "none",
}
"""Mixers of escape beside fused attention, by the names of their places."""
TRAINED = {"attention": "attention, fused", **{name: ESCAPING[name] for name in ("gating", "toeplitz", "linear", "none")}}
"""Mixers of escape that are trained on photographs."""
RECALLING = {
    "attention": "attention",
    "linear": "linear attention, 32 per channel",
    "state_128": "state space, 128 per channel",
    "state_32": "state space, 32 per channel",
    "delta": "gated delta rule, 32 per channel",
    "gate": "spatial gating",
}
"""Mixers of recall_state that are trained at every n, by the names of their places; attention is the baseline."""
OF_PEERS = {"gMLP": ("timm", "lucidrains"), "ViT": ("timm", "torchvision", "lucidrains"), "Transformer": ("torch",)}
PEER_NAMES = {"torch": "torch.nn"}
FAMILIES = {"gmlp": "gMLP", "transformer": "Transformer"}
GATES = {
    "additive": "additive, b = 0",
    "unsplit": "multiplicative",
    "linear": "linear, b = 0",
    "linear_default": "linear, b = 0, W as torch's default",
    "tiny": "tiny attention, 64",
    "toeplitz": "Toeplitz W",
    "identity": "identity",
}
"""Variants of spatial_gating, by the names of their places."""
HEADLINE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{f"fused_{n}": ("{gmlp/fused}", {"match": "shape", "budget": 252e3, "seq_len": n}) for n in (17, 257, 1025, 4097)},
    **{f"explicit_{n}": ("{gmlp/explicit}", {"match": "shape", "budget": 252e3, "seq_len": n}) for n in (17, 257, 1025, 4097)},
    "equal_fused": ("{gmlp/fused}", {"budget": 5e6}),
    "equal_explicit": ("{gmlp/explicit}", {"budget": 5e6}),
}


def compared(run: str, text: str, rows: Mapping[str, Mapping[str, Any]] = PAIR, **where: Any) -> Place:
    return Place(run=run, text=text, where=where, rows=rows)


PLACES: Mapping[str, Fillable] = {
    **{
        f"shape_{n}": compared(SEQ, f"{SIZES} | {THREE_RATIOS}", match="shape", seq_len=n, **SMALL)
        for n in (17, 65, 129, 257, 513, 1025, 2049, 4097)
    },
    **{
        f"linear_{n}": compared(SEQ, "{linear/fused}", match="shape", seq_len=n, **SMALL) for n in (17, 65, 129, 257, 513, 1025, 2049, 4097)
    },
    **{f"params_{n}": compared(SEQ, WIDE, match="params", budget=5e6, seq_len=n) for n in (17, 65, 257, 513, 1025)},
    "params_4097": compared(LONG, WIDE, match="params", seq_len=4097),
    "flops_1025": cells(
        Place(run=SEQ, text=f"{WIDTHS} | {{gmlp/fused}}", where=EQUAL, rows=AT_EQUAL_FLOPS),
        Place(run=INTEL, text="{gmlp/fused}", where=EQUAL, rows=AT_EQUAL_FLOPS),
    ),
    **{
        f"{name}_1025": cells(
            compared(SEQ, f"{WIDTHS} | {{gmlp/fused}}", match=match, **EQUAL), compared(INTEL, "{gmlp/fused}", match=match, **EQUAL)
        )
        for name, match in (("shape_5m", "shape"), ("equal", "params"))
    },
    **{
        f"intel_{n}": compared(INTEL, "{gmlp/fused} | {gmlp/explicit} | {linear/fused}", match="shape", seq_len=n, **SMALL)
        for n in (17, 65, 129, 257, 513, 1025, 2049, 4097)
    },
    **{
        f"intel_params_{n}": compared(INTEL, "{gmlp/fused}", match="params", batch_size=1, seq_len=n)
        for n in (17, 65, 257, 513, 1025, 4097)
    },
    **{f"mixer_{name}": place(MIXING, "{ratio:ratio}", seq_len=1024, **where) for name, where in TIMED_MIXERS.items()},
    **{
        f"intel_mixer_{name}": place("2026-11-26_cpu_token_mixing_cost", "{ratio:ratio}", seq_len=1024, **TIMED_MIXERS[name])
        for name in ("explicit", "additive")
    },
    **{f"mixer_{name}_exponent": exponent(MIXING, "cost against n", arm) for name, arm in MIXER_ARMS.items()},
    **{f"{host}_{name}": compared(run, text, **where) for host, run in HOSTS.items() for name, (text, where) in HEADLINE.items()},
    **{
        f"{host}_published": compared(run, "{ours/theirs}", {"ours": {"model": "gmlp-s"}, "theirs": {"model": "deit-s"}})
        for host, run in {**HOSTS, **OLDER_HOSTS, **OCCASIONS}.items()
    },
    **{
        f"{occasion}_{name}": compared(run, text, **where)
        for occasion, run in OCCASIONS.items()
        for name, (text, where) in HEADLINE.items()
        if name in ("equal_fused", "fused_17", "fused_257", "fused_4097", "explicit_1025")
    },
    **{
        f"{host}_{name}": compared(run, text, **where)
        for host, run in OLDER_HOSTS.items()
        for name, (text, where) in HEADLINE.items()
        if name in ("equal_fused", "fused_4097", "explicit_4097")
    },
    "pays_linear_avx2": pays_from(ESCAPE_EVERYWHERE[-1], COST, ESCAPING["linear"]),
    **{f"small_{n}": place(THREE, "{ratio:ratio}", model="gmlp", seq_len=n) for n in (17, 257)},
    "families_accuracy": answer(THREE, -1),
    **{f"mamba2_{n}": Place(run=MAMBA2, text=INFER_AND_TRAIN, where={"seq_len": n}, rows=BESIDE["mamba2"]) for n in (257, 1025, 4097)},
    **{
        f"delta_rule_{n}": Place(run=DELTA_RULE, text=INFER_AND_TRAIN, where={"seq_len": n}, rows=BESIDE["delta_rule"])
        for n in (257, 1025, 4097)
    },
    **{
        f"bf16_{name}_{n}": cells(
            *(
                compared(
                    run,
                    "{eager/theirs} | {onednn/theirs}",
                    {
                        "theirs": {"model": f"python:bench.peers.{peer}", "engine": "eager"},
                        **{
                            engine: {"model": {"gmlp": "gmlp+pool=mean"}.get(name, name), "engine": engine}
                            for engine in ("eager", "onednn")
                        },
                    },
                    seq_len=n,
                    dtype="bf16",
                )
                for run, peer in zip((PEERS, PEERS_BF16), peers, strict=True)
            )
        )
        for (name, n), peers in FASTEST_IN_BF16.items()
    },
    **{
        f"bf16_attention_{n}": Place(
            run=BF16_ATTENTION,
            text="{explicit_fp32/fused_fp32} | {explicit_bf16/fused_bf16}",
            where={"seq_len": n},
            rows={
                f"{kernel}_{dtype[:4]}": {"attention": attention, "dtype": dtype}
                for kernel, attention in (("explicit", "math"), ("fused", "auto"))
                for dtype in ("fp32", "bf16-autocast")
            },
        )
        for n in (17, 65, 257)
    },
    **{
        f"bf16_gate_{n}": Place(
            run=BF16_GATE,
            text="{gmlp/linear}",
            where={"seq_len": n},
            rows={"gmlp": {"model": "gmlp"}, "linear": {"model": "gmlp+kernel=linear"}},
        )
        for n in (17, 65, 257)
    },
    "equal_ratio": compared(SEQ, "{gmlp/fused}", match="params", **EQUAL),
    "shape_ratio": compared(SEQ, "{gmlp/fused}", match="shape", **LONGEST),
    "shape_ratio_5m": compared(SEQ, "{gmlp/fused}", match="shape", **EQUAL),
    "flops_ratio": Place(run=SEQ, text="{gmlp/fused}", where=EQUAL, rows=AT_EQUAL_FLOPS),
    "equal_explicit_ratio": compared(SEQ, "{gmlp/explicit}", match="params", **EQUAL),
    "published_ratio": compared(
        SEQ,
        "{ours/theirs}",
        {"ours": {"model": "gmlp-s", "seq_len": 196}, "theirs": {"model": "deit-s", "seq_len": 197, "attention": "auto"}},
        phase="infer",
    ),
    "explicit_ratio_1025": compared(SEQ, "{gmlp/explicit}", match="shape", seq_len=1025, **SMALL),
    **{
        f"published_{n}": Place(
            run=SEQ,
            text=f"{SIZES} | {THREE_RATIOS}",
            where={"phase": "infer"},
            rows={
                "gmlp": {"model": "gmlp-s", "seq_len": n},
                "fused": {"model": "deit-s", "seq_len": n + 1, "attention": "auto"},
                "explicit": {"model": "deit-s", "seq_len": n + 1, "attention": "math"},
            },
        )
        for n in (196, 1024)
    },
    **{
        f"cost_{name}": cells(
            pays_from(ESCAPE_COST, COST, arm),
            *(effect(ESCAPE_COST, COST, arm, measure="latency_ms", seq_len=n) for n in (256, 1024, 4096, 16384)),
        )
        for name, arm in ESCAPING.items()
    },
    **{f"pays_{name}": pays_from(ESCAPE_COST, COST, ESCAPING[name]) for name in ("linear", "gating", "toeplitz", "state_64", "delta")},
    **{
        f"pays_{name}_again": cells(*(pays_from(run, COST, arm) for run in ESCAPE_EVERYWHERE))
        for name, arm in ESCAPING.items()
        if name not in ("rank", "none")
    },
    **{
        f"cost_{name}_again": cells(*(effect(run, COST, arm, measure="latency_ms", seq_len=1024) for run in ESCAPE_EVERYWHERE))
        for name, arm in ESCAPING.items()
        if name != "rank"
    },
    **{
        f"cost_{name}_16384": effect(ESCAPE_COST, COST, ESCAPING[name], measure="latency_ms", seq_len=16384)
        for name in ("gating", "toeplitz")
    },
    "cost_none_1024": effect(ESCAPE_COST, COST, ESCAPING["none"], measure="latency_ms", seq_len=1024),
    **{
        f"recall_{name}": cells(
            *(score(RECALL, f"recall, n = {n}", arm, n) for n in (64, 128, 256, 512)),
            state(RECALL, "recall, n = 512", arm),
            *([] if name == "attention" else [effect(RECALL, "recall, n = 512", arm, measure="latency_ms")]),
        )
        for name, arm in RECALLING.items()
    },
    **{
        f"task_{name}": cells(
            score(RECALL, "noisy recall", arm, 64),
            score(RECALL, "fuzzy recall", arm, 64),
            score(RECALL_WIDE, "fuzzy recall, width 64", arm, 64),
            *(score(RECALL, part, arm, 64) for part in ("selective copying", "compression", "memorisation")),
        )
        for name, arm in RECALLING.items()
        if name != "state_128"
    },
    **{
        f"{kind}_{name}": cells(score(run, part, arm, 64), *([] if name == "attention" else [effect(run, part, arm)]))
        for kind, run, part in (("learned", ESCAPE_LEARNED, LEARNED), ("sinusoidal", ESCAPE_SINUSOIDAL, SINUSOIDAL))
        for name, arm in TRAINED.items()
    },
    **{f"lost_{name}": effect(ESCAPE_SINUSOIDAL, SINUSOIDAL, TRAINED[name]) for name in ("gating", "none")},
    **{
        f"three_{name}": cells(
            compared(run, MEANS, FAMILY_ROWS, **where), *(lead(run, "gmlp", rival, **where) for rival in ("vit", "transformer"))
        )
        for name, run, where in (
            ("4m", CIFAR_4M, {}),
            ("digits_200k", DIGITS, {"budget": 200e3}),
            ("digits_300k", DIGITS, {"budget": 300e3}),
            ("digits_1m", DIGITS, {"budget": 1e6}),
            ("trec", TREC, {}),
        )
    },
    "recall_8": compared(RECALL_8, MEANS, FAMILY_ROWS),
    "three_300k": cells(
        compared(PRECISION, MEANS, FAMILY_ROWS, train_precision="fp32"),
        *(lead_over_variant(PRECISION, "photographs", f"{family}, fp32") for family in ("ViT", "Transformer")),
    ),
    **{
        f"data_{items.replace(',', '')}": cells(
            compared(DATA, MEANS, FAMILY_ROWS, task=task),
            *(effect(DATA, "photographs", f"gMLP, {items}", against=f"{family}, {items}") for family in ("ViT", "Transformer")),
        )
        for items, task in (("1,000", "cifar10+items=1000"), ("7,000", "cifar10+items=7000"), ("50,000", "cifar10"))
    },
    **{
        f"data_{items.replace(',', '')}_vit": effect(DATA, "photographs", f"gMLP, {items}", against=f"ViT, {items}")
        for items in ("1,000", "50,000")
    },
    **{
        f"longer_{epochs}": cells(
            *(score(LONGER, "photographs", f"{family}, {epochs} epochs", 17) for family in ("gMLP", "ViT", "Transformer")),
            *(
                effect(LONGER, "photographs", f"gMLP, {epochs} epochs", against=f"{family}, {epochs} epochs")
                for family in ("ViT", "Transformer")
            ),
        )
        for epochs in (5, 40)
    },
    **{
        f"longer_{epochs}_vit": effect(LONGER, "photographs", f"gMLP, {epochs} epochs", against=f"ViT, {epochs} epochs")
        for epochs in (5, 40)
    },
    **{
        f"patch_{pixels}": cells(
            compared(PATCHES, MEANS, FAMILY_ROWS, seq_len=n), *(lead(PATCHES, "gmlp", rival, seq_len=n) for rival in ("vit", "transformer"))
        )
        for pixels, n in ((16, 5), (8, 17), (4, 65))
    },
    **{
        f"patch_{pixels}_{family}": effect(PATCHES, "photographs", f"patches of {pixels} px", model=family)
        for pixels in (16, 4)
        for family in ("gmlp", "vit", "transformer")
    },
    "spans_gmlp_lead": effect(SPANS, "missing spans", "decoder, gMLP"),
    "spans_amlp_gain": effect(SPANS, "missing spans", "decoder, aMLP", against="decoder, gMLP"),
    "spans_transformer": score(SPANS, "missing spans", "decoder, Transformer", 128),
    **{
        f"spans_{name}": cells(score(SPANS, "missing spans", arm, 128), effect(SPANS, "missing spans", arm))
        for name, arm in (("gmlp", "decoder, gMLP"), ("amlp", "decoder, aMLP"), ("both", "encoder-decoder"))
    },
    **{
        f"scale_{name}{family}": effect(SIZES_OF_IMAGES, "photographs", arm, against=against, model=family)
        for name, arm, against in (("", "1M", "105k"), ("4m_", "4M", "300k"))
        for family in FAMILY_ROWS
    },
    **{
        f"scale_lead_{name}": lead(SIZES_OF_IMAGES, "gmlp", "vit", budget=budget)
        for name, budget in (("105k", 105e3), ("300k", 300e3), ("1m", 1e6), ("4m", 4e6))
    },
    **{
        f"optimizer_{name.lower()}": cells(
            *(score(OPTIMIZER, "photographs", f"{family}, {name}", 17) for family in ("gMLP", "ViT")),
            effect(OPTIMIZER, "photographs", f"gMLP, {name}", against=f"ViT, {name}"),
            *(
                effect(OPTIMIZER, "photographs", f"{family}, {name}", against=f"{family}, AdamW")
                for family in ("gMLP", "ViT")
                if name != "AdamW"
            ),
        )
        for name in ("AdamW", "Adam", "Muon", "SGD")
    },
    **{f"lead_4m_{rival}": lead(CIFAR_4M, "gmlp", rival) for rival in ("vit", "transformer")},
    "lead_4m_attention": lead(CIFAR_4M, "transformer", "vit"),
    **{
        f"equal_4m_{rival.lower()}": equal_training(CIFAR_4M, f"gMLP - {rival}", "cifar10, n = 17, 4 M") for rival in ("ViT", "Transformer")
    },
    **{f"gate_{name}": effect(GATING, "photographs", arm) for name, arm in GATES.items()},
    **{f"mixing_{part}": lead_over_variant(GATING, part, "identity") for part in ("photographs", "digits")},
    "teacher_worth": lead_over_variant(RECIPE, REMOVED, "without the teacher"),
    **{
        f"recipe_{name}": effect(RECIPE, part, arm)
        for name, part, arm in (
            ("teacher", ADDED, "convolutional teacher"),
            ("shallow", ADDED, "2 blocks"),
            ("stem", ADDED, "convolutional stem"),
            ("flip", ADDED, "crop and flip"),
            ("cutmix", ADDED, "CutMix"),
            ("strongest", ADDED, "weight decay 0.3, RandAugment at 15 of 30"),
            ("batch", ADDED, "batch of 256"),
            ("no_flip", REMOVED, "without crop and flip"),
            ("no_teacher", REMOVED, "without the teacher"),
        )
    },
    **{
        f"whole_{name}": effect(WHOLE, "the whole training set", arm, against=against)
        for name, arm, against in (
            ("flip", "crop and flip", ""),
            ("stem", "convolutional stem", ""),
            ("teacher", "full recipe", "convolutional stem, crop and flip"),
        )
    },
    **{
        f"norm_{name}": effect(NORMS, part, arm)
        for name, part, arm in (
            ("2_post_low", "2 blocks", "post-norm, low rate"),
            ("2_pre_low", "2 blocks", "pre-norm, low rate"),
            ("8_post_high", "8 blocks", "post-norm, high rate"),
            ("8_none", "8 blocks", "no residual"),
            ("batch", "kind of norm and activation", "BatchNorm, GELU"),
            ("batch_relu", "kind of norm and activation", "BatchNorm, ReLU"),
        )
    },
    "norm_8_high": effect(NORMS, "8 blocks", "post-norm, high rate", against="pre-norm, high rate"),
    **{f"unscaled_{kind}": effect(HEAD, "a head of 256 channels", f"{kind} scaling") for kind in ("no", "learned")},
    "heads_64": effect(HEADS, HEAD_WIDTHS, "ViT, heads of 64", measure="latency_ms", seq_len=1025),
    **{
        f"heads_{name}": effect(HEADS, HEAD_WIDTHS, "gMLP", against="ViT, heads of 64", measure="latency_ms", seq_len=n)
        for name, n in (("64_gmlp", 1025), ("257_gmlp", 257))
    },
    **{f"positions_{kind}": effect(POSITIONS, "digits", f"attention, {kind}") for kind in ("learned", "sinusoidal")},
    **{
        f"bf16_{name}": effect(PRECISION, "photographs", f"{arm}, bf16", against=f"{arm}, fp32")
        for name, arm in {"gmlp": "gMLP", "vit": "ViT", "transformer": "Transformer"}.items()
    },
    **{
        f"kernel_{name}": effect(ATTENTION, part, arm, against=against, measure="latency_ms", seq_len=1024)
        for name, part, arm, against in (
            ("explicit", "backends", "explicit", ""),
            ("flash", "backends", "flash", ""),
            ("mask", "masks", "a mask per sample", ""),
            ("causal", "masks", "causal flag", ""),
            ("query", "masks", "a mask per query", ""),
            ("query_causal", "masks", "a mask per query", "causal flag"),
        )
    },
    **{
        f"depth_{name}": effect(SCALE, "depth at fixed parameters", arm, model=model)
        for name, arm, model in (("gmlp", "1 block", "gmlp"), ("transformer", "8 blocks", "transformer"))
    },
    **{
        f"peers_{family.lower()}": cells(
            *(peer_mean(PEERS, f"{family}, {phase}") for phase in PEERS_AVX2),
            *(peer_mean(run, f"{family}, {phase}") for phase, run in PEERS_AVX2.items()),
        )
        for family in OF_PEERS
    },
    **{
        f"engine_{family.lower()}_{phase}_{peer}": cells(
            *(
                peer_mean(run, f"{family}, {phase}", PEER_NAMES.get(peer, peer), kind)
                for run in (PEERS, PEERS_AVX2[phase])
                for kind in ("both eager", "both onednn")
            ),
        )
        for family, peers in OF_PEERS.items()
        for phase in ("infer", "train")
        for peer in peers
    },
    "mode_longer_gmlp": effect(MODES, "shorter to longer", "decoder, gMLP", against="decoder"),
    "mode_gmlp_decoder": effect(MODES, COST, "decoder, gMLP", against="decoder", measure="latency_ms", seq_len=512),
    **{
        f"mode_{name}": effect(MODES, COST, arm, measure="latency_ms", seq_len=512)
        for name, arm in {"encoder": "encoder", "decoder": "decoder", "gmlp": "decoder, gMLP", "recurrent": "recurrent, Bahdanau"}.items()
    },
    **{
        f"gpu_{name}_{n}": cells(
            *(effect(GPU, "headline", arm, measure="latency_ms", seq_len=n, phase=phase) for phase in ("infer", "train"))
        )
        for name, arm in FAMILIES.items()
        for n in (256, 4096)
    },
    **{
        f"gpu_{name}": effect(GPU, "odd sizes", arm, measure="latency_ms", seq_len=n)
        for name, arm, n in (
            ("odd_gates", "gMLP, gates of 1,324", 4096),
            ("vit_4096", "ViT", 4096),
            ("odd_gates_4097", "gMLP, gates of 1,324", 4097),
            ("vit_4097", "ViT", 4097),
        )
    },
    **{
        f"gpu_escape_{name}": cells(
            *(effect(GPU, "escape", arm, measure="latency_ms", seq_len=n) for n in (1024, 4096, 16384)), pays_from(GPU, "escape", arm)
        )
        for name, arm in (("linear", "linear attention"), ("toeplitz", "Toeplitz gates"), ("dense", "dense gates"))
    },
    "gpu_ratio_256": effect(GPU, "headline", "gMLP", measure="latency_ms", seq_len=256, phase="infer"),
    "three_300k_gpu": cells(
        Place(run=CIFAR_GPU, text=MEANS, where={}, rows=FAMILY_ROWS),
        lead(CIFAR_GPU, "gmlp", "vit"),
        lead(CIFAR_GPU, "gmlp", "transformer"),
    ),
    "lead_300k_gpu_vit": lead(CIFAR_GPU, "gmlp", "vit"),
    "share_vit": place(SEQ, SHARE, model="vit", attention="auto", **LONGEST),
    "share_gmlp": place(SEQ, SHARE, model="gmlp", **LONGEST),
    "share_vit_5m": place(SEQ, SHARE, model="vit", attention="auto", match="params", **EQUAL),
    "share_gmlp_5m": place(SEQ, SHARE, model="gmlp", match="params", **EQUAL),
    "digits_gmlp": place(SEQ, "{accuracy:fraction}", model="gmlp", task="digits"),
    "digits_vit": place(SEQ, "{accuracy:fraction}", model="vit", task="digits"),
    **{
        f"families_{family}_{n}": place(THREE, OURS if family == "vit" else OTHERS, model=family, seq_len=n)
        for family in FAMILY_ROWS
        for n in (17, 257)
    },
    **{f"scale_51m_{name}": place(f"{SIZES_OF_IMAGES}_51m_{name}", "{accuracy:fraction}", model=name) for name in FAMILY_ROWS},
    **{f"cnn_{name}": place(CNN, "{accuracy:fraction}", model=model) for name, model in (("vit", "vit"), ("resnet", "timm:resnet18"))},
    "cnn_lead": lead(CNN, "timm:resnet18", "vit"),
    "whole_together": place(TOGETHER, "{accuracy:fraction}", model="vit+head_hidden=1024"),
    "cifar_article": place(ARTICLE, "{accuracy:fraction}", model="gmlp+head_hidden=256+positions=learned+weight_init=uniform"),
    "cifar_gmlp_51m": place(CIFAR_51M, "{accuracy:fraction}", model="gmlp"),
}


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text: str) -> str:
    """The page with every place filled. Raises KeyError for a place that is not in `PLACES`."""
    return MARKED.sub(lambda found: f"<!--={found[1]}-->{PLACES[found[1]].filled()}<!--/-->", text)


def main() -> None:
    for page in pages():
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()

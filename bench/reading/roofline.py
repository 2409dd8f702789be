"""Compute each cell's share of the roofline.

The share is the least possible time of a step over the measured time:

    least time = max(FLOPs of the step / ceiling_flops_per_s, compulsory bytes / ceiling_bytes_per_s)

The ceilings are measured in the same round as the time. Source: Williams, Waterman and Patterson, "Roofline: an insightful visual
performance model for multicore architectures", CACM 52(4), 2009; it also defines compulsory traffic.

FLOPs are model FLOPs. Compulsory bytes are the least that a step moves with a cold cache and a separate AdamW update, in closed form
from the plan. Intermediates are excluded, however large. An update fused into backward would move less. If weights stay in a cache
between steps, a step may be faster than its bandwidth limit. Imports no torch.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.intervals import geometric_interval
from bench.spec import MS_PER_S, PlannedCell, Record
from models.layers.cost import Term

COLUMNS = ("compulsory_bytes", "roofline_ms", "roofline_share", "roofline_share_low", "roofline_share_high")
ID_BYTES = 8
TOKEN_TABLE, CLASS_TOKEN = "token_embedding", "class_token"
"""Last words of the names of two cost terms.

Only some rows of the table are read; the class token is not part of the data.
"""
UPDATE_PASSES = 8
"""Passes of AdamW over the bytes of the weights.

Weights are read and written, gradients written and read, two moments read and written.
"""

ITEM_BYTES = {"fp32": (4, 4), "tf32": (4, 4), "bf16": (2, 2), "bf16-autocast": (4, 2)}
"""Bytes per number by dtype: weights and patches, model output."""


def step_flops(planned: PlannedCell) -> int | None:
    """Return the model FLOPs of one step on the whole batch; None if the backward pass of a model from outside was not counted.

    The train phase includes the backward pass. Values that a fused kernel recomputes are not counted.
    """
    cost, work = planned.sizing.cost, planned.cell.workload
    flops = cost.train_flops() if work.phase == "train" else cost.flops()
    if work.phase == "train" and planned.sizing.is_counted and flops == cost.flops():
        return None
    return flops.at(planned.cell.model.shape.seq_len) * work.batch_size


def compulsory_bytes(planned: PlannedCell) -> int | None:
    """Return the bytes one step must move with a cold cache.

    infer: weights read once, batch read once, output written once.
    train: weights read by forward and by backward, then `UPDATE_PASSES`; batch read once. Activations kept for backward are excluded,
    since they could be recomputed. Backward does not read the weights of a first layer, whose input needs no gradient.

    From a table of token vectors, forward reads one row per token of the batch, at most all rows; backward reads none of it. None for a
    dtype of unknown size, or for a model without a closed-form cost.
    """
    work, model, terms = planned.cell.workload, planned.cell.model, planned.sizing.terms
    if work.dtype not in ITEM_BYTES or not terms:
        return None
    stored_bytes, output_bytes = ITEM_BYTES[work.dtype]
    trains, n, interface = work.phase == "train", model.shape.seq_len, model.interface
    has_class_token = any(_last_word(term) == CLASS_TOKEN and term.params.coefficients for term in terms)
    tokens = work.batch_size * (n - has_class_token)
    moved = tokens * (ID_BYTES if interface.input == "tokens" else interface.patch_dim * stored_bytes)
    for term in terms:
        params = term.params.at(n)
        if _last_word(term) == TOKEN_TABLE:
            moved += min(params, tokens * model.shape.width) * stored_bytes
        else:
            is_first = bool(term.macs.coefficients) and term.backward_products < 2
            moved += params * (1 + (trains and not is_first)) * stored_bytes
    if trains:
        return moved + UPDATE_PASSES * planned.sizing.cost.params().at(n) * stored_bytes
    return moved + (tokens if interface.output == "tokens" else work.batch_size) * interface.num_classes * output_bytes


def roofline_of(planned: PlannedCell, latencies: Sequence[Record], ceilings: Sequence[Record]) -> Mapping[str, Any]:
    """Return the values of `COLUMNS`, empty without ceilings.

    Each latency is paired with the ceilings of its own round. The share is the geometric mean over these rounds, with a 95 % t-interval
    on the log scale (empty for a single round); `roofline_ms` is the median of the least times.
    """
    moved = compulsory_bytes(planned)
    by_round = {record.repeat: record.outcome.values for record in ceilings}
    pairs = [(record.outcome.values["latency_ms"], by_round[record.repeat]) for record in latencies if record.repeat in by_round]
    flops = step_flops(planned)
    if moved is None or flops is None or not pairs:
        return {**dict.fromkeys(COLUMNS), "compulsory_bytes": moved}
    allowed = [
        MS_PER_S * max(flops / float(ceiling["ceiling_flops_per_s"]), moved / float(ceiling["ceiling_bytes_per_s"])) for _, ceiling in pairs
    ]
    shares = [ms / latency_ms for ms, (latency_ms, _) in zip(allowed, pairs, strict=True)]
    interval = geometric_interval(shares)
    found = (interval.estimate, interval.low, interval.high) if interval else (shares[0], None, None)
    return dict(zip(COLUMNS, (moved, statistics.median(allowed), *found), strict=True))


def _last_word(term: Term) -> str:
    return term.name.rpartition(".")[2]

"""How near a cell came to the limits of its device: the time of a step by the ceilings of its round, over the measured time.

    roofline     max(FLOPs of the step / ceiling_flops_per_s, compulsory bytes / ceiling_bytes_per_s)

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM 52(4), 2009, which also
ties compulsory traffic to the operational intensity.

FLOPs are model FLOPs. Bytes are those that a step with a cold cache, and with a separate AdamW update, moves at least, in closed form from what the
plan stores: no intermediate is in them, however large. An update that is fused into backward would move fewer. A model whose
weights stay in a cache from one step to the next may take less than its bandwidth allows. Imports no torch.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.intervals import geometric_interval
from bench.spec import PlannedCell, Record
from models.layers.cost import Term

COLUMNS = ("compulsory_bytes", "roofline_ms", "roofline_share", "roofline_share_low", "roofline_share_high")
MS_PER_S = 1e3
ID_BYTES = 8
TOKEN_TABLE, CLASS_TOKEN = "token_embedding", "class_token"
"""Last words of the names of terms: a table of which only rows are read, and a token that does not come from the data."""
UPDATE_PASSES = 8
"""Of AdamW over the bytes of the weights: weights read and written, gradients written and read, two moments read and written."""


ITEM_BYTES = {"fp32": (4, 4), "tf32": (4, 4), "bf16": (2, 2), "bf16-autocast": (4, 2)}
"""By dtype, the bytes of a number among the weights and patches, and among the answers."""


def step_flops(planned: PlannedCell) -> int:
    """Model FLOPs of one step on the whole batch; in the train phase with the backward pass. What a fused kernel computes again is not in them."""
    cost, work = planned.sizing.cost, planned.cell.workload
    flops = cost.train_flops() if work.phase == "train" else cost.flops()
    return flops.at(planned.cell.model.shape.seq_len) * work.batch_size


def compulsory_bytes(planned: PlannedCell) -> int | None:
    """Count the bytes that one step must read and write once the cache is cold; None for a dtype of unknown size, or without a cost.

    infer   weights read once, batch read once, answers written once
    train   weights read by forward and by backward, then `UPDATE_PASSES`; batch read once. Activations kept for backward are left out: they
            could be computed again. The weights of a first layer, whose input needs no gradient, are not read by backward

    Of a table of token vectors as many rows are read as the batch has tokens, at most all; backward reads none.
    """
    work, model, terms = planned.cell.workload, planned.cell.model, planned.sizing.terms
    if work.dtype not in ITEM_BYTES or not terms:
        return None
    stored, answered = ITEM_BYTES[work.dtype]
    trains, n, interface = work.phase == "train", model.shape.seq_len, model.interface
    has_class_token = any(_last_word(term) == CLASS_TOKEN and term.params.coefficients for term in terms)
    tokens = work.batch_size * (n - has_class_token)
    moved = tokens * (ID_BYTES if interface.input == "tokens" else interface.patch_dim * stored)
    for term in terms:
        params = term.params.at(n)
        if _last_word(term) == TOKEN_TABLE:
            moved += min(params, tokens * model.shape.width) * stored
        else:
            is_first = bool(term.macs.coefficients) and term.backward_products < 2
            moved += params * (1 + (trains and not is_first)) * stored
    if trains:
        return moved + UPDATE_PASSES * planned.sizing.cost.params().at(n) * stored
    return moved + (tokens if interface.output == "tokens" else work.batch_size) * interface.num_classes * answered


def roofline_of(planned: PlannedCell, latencies: Sequence[Record], ceilings: Sequence[Record]) -> Mapping[str, Any]:
    """The values of `COLUMNS`, empty where there are no ceilings. The share is a geometric mean over the rounds that have both, each paired with the
    ceilings of its own round, with a 95 % t-interval on the log scale (none for one round); `roofline_ms` is the median of the same rounds."""
    moved = compulsory_bytes(planned)
    by_round = {record.repeat: record.outcome.values for record in ceilings}
    pairs = [(record.outcome.values["latency_ms"], by_round[record.repeat]) for record in latencies if record.repeat in by_round]
    if moved is None or not pairs:
        return {**dict.fromkeys(COLUMNS), "compulsory_bytes": moved}
    flops = step_flops(planned)
    allowed = [
        MS_PER_S * max(flops / float(ceiling["ceiling_flops_per_s"]), moved / float(ceiling["ceiling_bytes_per_s"])) for _, ceiling in pairs
    ]
    shares = [ms / latency_ms for ms, (latency_ms, _) in zip(allowed, pairs, strict=True)]
    interval = geometric_interval(shares)
    found = (interval.estimate, interval.low, interval.high) if interval else (shares[0], None, None)
    return dict(zip(COLUMNS, (moved, statistics.median(allowed), *found), strict=True))


def _last_word(term: Term) -> str:
    return term.name.rpartition(".")[2]

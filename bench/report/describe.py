"""Describe one model at one length: sizes, parameters and FLOPs by term."""

from __future__ import annotations

from typing import Any

from bench.spec import PlannedCell
from models.layers.cost import FLOPS_PER_MAC, ZERO, Polynomial


def description(planned: PlannedCell) -> dict[str, Any]:
    """Return a model's sizes, parameters and FLOPs as JSON data.

    FLOPs are forward FLOPs of one sample at this sequence length n. `fft_flops`: those of FFTs, if there are some; they are not in `flops`.
    `state_bytes`: what is carried from token to token, after n tokens; `state`: whether it grows with n. None where the model reads ahead.
    `quadratic_equals_linear_at`: the n at which the two terms are equal, by scope.
    Values unknown for third-party models are None.
    """
    model, sizing = planned.cell.model, planned.sizing
    cost, n = sizing.cost, model.shape.seq_len
    flops, state = cost.flops(), sizing.state
    return {
        "model": model.name,
        "seq_len": n,
        **{size: planned.size(size) for size in ("width", "depth", "heads", "ffn_width")},
        "params": sizing.params,
        "params_seq": sizing.params_seq,
        "params_blocks": sizing.params_blocks,
        "budget": sizing.budget,
        "budget_error": sizing.budget_error,
        "flops": flops.at(n),
        **({"fft_flops": cost.fft_flops()} if cost.fft_flops() else {}),
        "state_bytes": planned.state_bytes,
        "state": None if state is None else "grows with n" if state.varying() != ZERO else "fixed",
        "flops_by_degree": None if sizing.is_counted else {str(i): flops.degree(i) * n**i for i in range(3)},
        "terms": [{"name": "counted as a whole", "params": sizing.params, "flops": flops.at(n)}]
        if sizing.is_counted
        else [{"name": t.name, "params": t.params.at(n), "flops": FLOPS_PER_MAC * t.macs.at(n)} for t in cost.terms],
        "quadratic_equals_linear_at": None
        if sizing.is_counted
        else {
            "blocks": equal_terms_at(cost.flops("blocks")),
            "total": equal_terms_at(cost.flops()),
        },
    }


def equal_terms_at(cost: Polynomial) -> float | None:
    """Return the n at which the n^2 term equals the linear term; None if either is absent or negative."""
    return cost.degree(1) / cost.degree(2) if cost.degree(1) > 0 and cost.degree(2) > 0 else None

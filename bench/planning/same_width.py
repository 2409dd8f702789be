"""The same models at one width, beside sizes of equal cost whose shapes are very unequal: who is faster then hangs on what was matched."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from bench.planning.request import Request
from bench.spec import PlannedCell

MOST = 0.5
MATCHED = ("params", "flops")
"""Sizes of equal cost."""


def policy_of(width: int) -> str:
    """`width 288`: how sizes that are set outright are said to be matched."""
    return f"width {width}"


def is_one_width(policy: str) -> bool:
    return policy.startswith("width ")


def are_unequal(widths: Sequence[float], shares: Sequence[float]) -> bool:
    """Is one less than half as wide as another, or are most of one's parameters bound to the length? `shares`: of the parameters, by model."""
    return min(widths) < MOST * max(widths) or max(shares, default=0.0) > MOST


def same_width(request: Request, cells: Iterable[PlannedCell]) -> dict[int, Request]:
    """By width, the request for every length at which the shapes of `cells` are very unequal; none where nothing is timed."""
    if "latency" not in request.metrics or request.match not in MATCHED or request.climbs_batch or request.climbs_seq:
        return {}
    groups: dict[tuple[int, int], dict[str, PlannedCell]] = {}
    for planned in cells:
        if planned.sizing.budget is not None:
            place = planned.cell.model.shape.seq_len, planned.sizing.budget
            groups.setdefault(place, {}).setdefault(planned.cell.model.name, planned)
    lengths: dict[int, dict[int, None]] = {}
    for (n, _), members in groups.items():
        widths = [planned.cell.model.shape.width for planned in members.values()]
        shares = [(planned.sizing.params_seq or 0) / planned.sizing.params for planned in members.values()]
        if len(set(widths)) > 1 and are_unequal(widths, shares):
            lengths.setdefault(max(widths), {})[n] = None
    return {width: _at_width(request, width, tuple(seq_lens)) for width, seq_lens in lengths.items()}


def _at_width(request: Request, width: int, seq_lens: tuple[int, ...]) -> Request:
    """They read what the others read, and are not trained."""
    return dataclasses.replace(
        request,
        trains=False,
        models=tuple(model for model in request.models if not model.is_published),
        seq_lens=seq_lens,
        sizes=dataclasses.replace(request.sizes, width=width, fixed_width=None, ffn_width=None),
        accuracy_seq_lens=(),
    )

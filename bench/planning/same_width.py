"""Add models of one width if equal cost gives unequal shapes.

Which model is faster then depends on the quantity that was matched, so the plan measures both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from bench.planning.request import Request
from bench.same_size import MATCHED, are_unequal
from bench.spec import PlannedCell


def same_width(request: Request, cells: Iterable[PlannedCell]) -> dict[int, Request]:
    """Return further requests, by width, for lengths with very unequal shapes.

    Empty if latency is not measured or cost is not matched.
    """
    if "latency" not in request.metrics or request.match not in MATCHED:
        return {}
    groups: dict[tuple[int, int], dict[str, PlannedCell]] = {}
    for planned in cells:
        if planned.sizing.budget is not None and not planned.sizing.is_counted:  # a user's own width may mean anything
            place = planned.cell.model.shape.seq_len, planned.sizing.budget
            groups.setdefault(place, {}).setdefault(planned.cell.model.name, planned)
    lengths: dict[int, dict[int, None]] = {}
    for (n, _), members in groups.items():
        widths = [planned.cell.model.shape.width for planned in members.values()]
        shares = [(planned.sizing.params_seq or 0) / planned.sizing.params for planned in members.values()]
        if len(set(widths)) > 1 and are_unequal(widths, shares):
            lengths.setdefault(max(widths), {})[n] = None
    names = {name for members in groups.values() for name in members}
    return {width: _at_width(request, width, tuple(seq_lens), names) for width, seq_lens in lengths.items()}


def _at_width(request: Request, width: int, seq_lens: tuple[int, ...], names: Collection[str]) -> Request:
    """Return the request at one width: same inputs and outputs, no training.

    `names`: the models that were matched, without a user's own.
    """
    return dataclasses.replace(
        request,
        trains=False,
        models=tuple(model for model in request.models if model.name in names),
        seq=seq_lens,
        params=(),
        width=width,
        ffn_width=None,
        accuracy_seq=(),
    )

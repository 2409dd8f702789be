"""Find models that are compared with models of another size.

Models of this program are matched to their budget; a user's own model has the nearest size that its width allows, or the one that it came with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.peers.names import OWN_FAMILY, PEERS, PUBLISHERS
from bench.spec import NO_MATCH, Plan

SIZE_TOLERANCE = {"params": 0.01, "flops": 0.02, "state": 0.02}
"""The relative size difference of models that count as equally large, by what was matched.

It is twice the tolerance of a budget.
"""
TOLERANCE = 0.02
"""The largest relative difference in parameters of models of equal size."""


@dataclass(frozen=True, kw_only=True)
class UnlikeSize:
    """A user's own model, or a published convolutional network, beside others.

    `others`: labels of the models that it is compared with.
    `ratios`: its parameters over theirs, at each length and budget where they differ.
    """

    label: str
    others: tuple[str, ...]
    ratios: tuple[float, ...]


def unlike_sizes(rows: Iterable[Mapping[str, Any]]) -> tuple[UnlikeSize, ...]:
    """Return a user's own models and published convolutional networks that differ from the others in size.

    `rows`: with `label`, `model`, `family`, `params`, `budget_error`, and with `seq_len`, `budget` and `match`, in which compared rows agree. The
    others are models of this program; without any, the first of the rest. Parameters may differ where FLOPs are matched.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[key]) for key in ("seq_len", "budget", "match")), []).append(row)
    found: dict[str, tuple[dict[str, None], list[float]]] = {}
    for members in groups.values():
        own = [row for row in members if _is_own(row)]
        others = [row for row in members if not _is_own(row)] or own[:1]
        for row in own:
            ratios = [row["params"] / other["params"] for other in others if other is not row and other["params"]]
            far = max(ratios, key=lambda ratio: abs(ratio - 1), default=1.0)
            if abs(far - 1) > TOLERANCE and not _has_equal_flops(row):
                labels, values = found.setdefault(str(row["label"]), ({}, []))
                labels.update(dict.fromkeys(str(other["label"]) for other in others if other is not row))
                values.append(float(far))
    return tuple(UnlikeSize(label=label, others=tuple(labels), ratios=tuple(values)) for label, (labels, values) in found.items())


def _is_own(row: Mapping[str, Any]) -> bool:
    is_beside = row["family"] in PUBLISHERS and row["match"] != NO_MATCH
    return is_beside or (row["family"] == OWN_FAMILY and not str(row["model"]).startswith(PEERS))


def _has_equal_flops(row: Mapping[str, Any]) -> bool:
    return bool(row["match"] == "flops" and abs(row["budget_error"]) <= TOLERANCE)


def unlike_planned(plan: Plan) -> tuple[UnlikeSize, ...]:
    """Return those of a plan."""
    return unlike_sizes(
        {
            "label": planned.cell.model.name,
            "model": planned.cell.model.name,
            "family": planned.cell.model.family,
            "params": planned.sizing.params,
            "seq_len": planned.cell.model.shape.seq_len,
            "budget": planned.sizing.budget,
            "match": planned.sizing.match,
            "budget_error": planned.sizing.budget_error,
        }
        for planned in plan.cells
    )

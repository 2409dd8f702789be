"""Choose the scope that answers a question: comparable rows, by a rule fixed in advance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas

from bench.analysis.series import SERIES_KEYS

SCOPE_KEYS = tuple(key for key in SERIES_KEYS if key not in ("model", "attention"))
PREFERRED: dict[str, tuple[str, ...]] = {"phase": ("infer",), "engine": ("eager",), "dtype": ("fp32", "bf16")}
"""The values, best first, of the scope that answers a claim.

The order is fixed in advance, so that no scope is chosen for a favourable answer.
"""
POLICIES = ("params", "shape", "flops")


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Rows that may be compared at equal length.

    `keys`: their shared values, by SCOPE_KEYS; None if empty.
    `rows`: shortest first; `place` is the length under which a row is compared.
    """

    keys: Mapping[str, Any]
    rows: pandas.DataFrame

    @property
    def reach(self) -> float:
        """The longest length over the shortest."""
        return float(self.rows["place"].max() / self.rows["place"].min())


def scopes_of(frame: pandas.DataFrame, column: str, places: Mapping[str, int]) -> list[Scope]:
    """Group the rows with a value of `column`, the primary scope first.

    `places`: the length under which a cell is compared, by cell id, where it is not its own. Groups with one length are left out.
    """
    known = frame[frame[column] > 0]
    known = known.assign(place=[places.get(cell_id, int(n)) for cell_id, n in zip(known["cell_id"], known["seq_len"], strict=True)])
    # of two neighbours (256 and 257) one is enough to follow a model
    kept = known.groupby(["label", *SCOPE_KEYS], sort=False, dropna=False)["place"].transform(lambda of: ~(of + 1).isin(of))
    found = [
        Scope(keys=scope_of(dict(zip(SCOPE_KEYS, values, strict=True))), rows=rows.drop_duplicates(["label", "place"]).sort_values("place"))
        for values, rows in known[kept.astype(bool)].groupby(list(SCOPE_KEYS), sort=False, dropna=False)
        if rows["place"].nunique() > 1
    ]
    return sorted(found, key=lambda scope: scope_rank(scope.keys, scope.reach))


def scope_of(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scope of a series; empty values become None."""
    return {key: _plain(keys.get(key)) for key in SCOPE_KEYS}


def scope_rank(scope: Mapping[str, Any], reach: float) -> tuple[float, ...]:
    """Return the position of a scope in the order of preference.

    The order is phase, engine, dtype, a fixed batch, the longest grid (`reach`), the matching policy. Unlisted values come last.
    """
    work = [_place_in(wanted, scope.get(key)) for key, wanted in PREFERRED.items()]
    return (*work, int(not str(scope.get("batching")).startswith("batch")), -reach, _place_in(POLICIES, scope.get("match")))


def _place_in(wanted: tuple[str, ...], value: Any) -> int:
    return wanted.index(value) if value in wanted else len(wanted)


def _plain(value: Any) -> Any:
    return None if value is None or pandas.isna(value) or value == "" else value

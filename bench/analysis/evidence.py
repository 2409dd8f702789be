"""The evidence that a run offers to the claims about quadratic cost."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas

from bench.analysis.growth import Fits
from bench.analysis.series import SERIES_KEYS, Series, has_one_shape, row_values, series_of
from bench.analysis.significance import Scores
from bench.running.timings import Timings

ATTENTION_FAMILIES = ("vit", "transformer")
FUSED = ("flash", "efficient", "cudnn", "overrideable")
EXPLICIT = "math"
TELLING = ("family", "model", "attention", "attention_effective")
"""The columns that say what a claim may be about."""
SCOPE_KEYS = tuple(key for key in SERIES_KEYS if key not in ("model", "attention"))


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A run as its claims see it.

    `frame`: rows by part (`bench.analysis.series.by_part`). `timings`: latency by cell and round. `usable`: the cells whose time may enter a fit.
    `scores`: of trained models on test items, by cell id. `doubt`: why nothing timed may be decided, as in a quick run; `quick`: then nothing is.
    """

    frame: pandas.DataFrame
    timings: Timings
    usable: frozenset[str]
    scores: Mapping[str, Scores] = field(default_factory=dict)
    doubt: str = ""
    quick: bool = False

    def series(self, subject: str) -> list[Series]:
        """The series that a claim's subject names, of one shape each."""
        return [series for series in self.shaped if _is_about(series.rows, subject)]

    @functools.cached_property
    def fits(self) -> Fits:
        """The samples of its series and the fits to them."""
        return Fits(self.timings, self.usable)

    @functools.cached_property
    def shaped(self) -> list[Series]:
        """Every series of one shape."""
        return [series for series in series_of(self.frame) if has_one_shape(series.rows)]


def is_subject(row: Mapping[str, Any] | pandas.Series, subject: str) -> bool:
    """Is the model of this row one that the claim is about?"""
    gmlp = row["family"] == "gmlp" and "gating=identity" not in str(row["model"])
    attention = row["family"] in ATTENTION_FAMILIES
    return {
        "gmlp": gmlp,
        "attention": attention,
        "global": gmlp or attention,
        "explicit": attention and _kernel(row) == EXPLICIT,
        "fused": attention and _kernel(row) in FUSED,
    }[subject]


def _is_about(rows: pandas.DataFrame, subject: str) -> bool:
    """Every row whose kernel is known; a series that changes from one kernel to another is about neither."""
    effective = rows["attention_effective"] if "attention_effective" in rows else pandas.Series([None] * len(rows), index=rows.index)
    known = rows[effective.notna() & (effective != "")]
    telling = (known if len(known) else rows)[[name for name in TELLING if name in rows]].drop_duplicates()
    return all(is_subject(row, subject) for row in row_values(telling))


def label_of(keys: Mapping[str, Any] | pandas.Series) -> str:
    """The model, with the attention kernel that was asked for where it has one."""
    attention = keys.get("attention")
    return f"{keys['model']} ({attention})" if attention not in (None, "", "none") else str(keys["model"])


def scope_of(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(keys.get(key)) for key in SCOPE_KEYS}


def _kernel(row: Mapping[str, Any] | pandas.Series) -> str:
    """The kernel that ran, where that is known; else the one that was asked for."""
    effective = row.get("attention_effective")
    return str(row["attention"] if effective is None or pandas.isna(effective) or not effective else effective)


def _plain(value: Any) -> Any:
    return None if value is None or pandas.isna(value) or value == "" else value

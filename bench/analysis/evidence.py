"""Gather the evidence of a run for the claims about quadratic cost."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas

from bench.analysis.series import Series, has_one_shape, row_values, series_of
from bench.analysis.significance import Scores
from bench.reading.timings import Timings
from bench.spec import EXPLICIT

ATTENTION_FAMILIES = ("vit", "transformer")
FUSED = ("flash", "efficient", "cudnn", "overrideable")
WITHOUT_PAIRS = re.compile(r"kernel=fft|rank=[1-9]")
"""Options of gMLP that leave no product of all pairs of tokens: no claim about growth with n is about them."""
MIXER = re.compile(r"mixer=(\w+)")
REFERENCE_MIXERS = ("identity", "mean_pooling", "window_attention", "depthwise_convolution")
"""Mixers from which a token does not learn what another, far away, holds."""
SUBJECT_COLUMNS = ("family", "model", "attention", "attention_effective")
"""The columns that decide the subject of a row."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The data of a run that its claims are judged by.

    `frame`: rows by part of the plan (`bench.analysis.series.by_part`).
    `timings`: latency by cell and round.
    `homes`: the n^2 terms of every cell (`bench.analysis.quadratic_terms.quadratic_home`).
    `scores`: scores of trained models on the test items, by cell id.
    `caveat`: why nothing timed may be decided; empty if it may.
    `quick`: a quick run, which decides none of these claims but those about counts.
    `contrasts`: how many ratios of times are decided together with a cell's, by cell id.
    """

    frame: pandas.DataFrame
    timings: Timings
    homes: pandas.DataFrame
    scores: Mapping[str, Scores] = field(default_factory=dict)
    caveat: str = ""
    quick: bool = False
    contrasts: Mapping[str, int] = field(default_factory=dict)

    def series(self, subject: str) -> list[Series]:
        """Return the series of one shape that match a claim's subject."""
        return [series for series in self.shaped if _is_about(series.rows, subject)]

    @functools.cached_property
    def shaped(self) -> list[Series]:
        """All series that keep one shape."""
        return [series for series in series_of(self.frame) if has_one_shape(series.rows)]


def is_subject(row: Mapping[str, Any] | pandas.Series, subject: str) -> bool:
    """Return whether the row's model belongs to the claim's subject."""
    gmlp = row["family"] == "gmlp" and "gating=identity" not in str(row["model"])
    attention = row["family"] in ATTENTION_FAMILIES
    return {
        "gmlp": gmlp,
        "attention": attention,
        "global": gmlp or attention,
        "explicit": attention and _kernel(row) == EXPLICIT,
        "fused": attention and _kernel(row) in FUSED,
    }[subject]


def mixes_all(row: Mapping[str, Any] | pandas.Series) -> bool:
    """Return whether the row's model may carry what any token holds to any other: gMLP, attention, and mixers such as linear attention."""
    mixer = MIXER.search(str(row["model"])) if row["family"] == "metaformer" else None
    return is_subject(row, "global") or (mixer is not None and mixer[1] not in REFERENCE_MIXERS)


def _is_about(rows: pandas.DataFrame, subject: str) -> bool:
    """Return whether every row with a known kernel belongs to the subject, and may have n^2 terms.

    Without any known kernel, every row counts. A series that changes its attention kernel is neither `explicit` nor `fused`.
    """
    effective = rows["attention_effective"] if "attention_effective" in rows else pandas.Series([None] * len(rows), index=rows.index)
    known = rows[effective.notna() & (effective != "")]
    distinct = (known if len(known) else rows)[[name for name in SUBJECT_COLUMNS if name in rows]].drop_duplicates()
    return all(is_subject(row, subject) and not WITHOUT_PAIRS.search(str(row["model"])) for row in row_values(distinct))


def label_of(keys: Mapping[str, Any] | pandas.Series) -> str:
    """Return the model's name, with the requested attention kernel if any."""
    attention = keys.get("attention")
    return f"{keys['model']} ({attention})" if attention not in (None, "", "none") else str(keys["model"])


def _kernel(row: Mapping[str, Any] | pandas.Series) -> str:
    """Return the attention kernel that ran, or the requested one if unknown."""
    effective = row.get("attention_effective")
    return str(row["attention"] if effective is None or pandas.isna(effective) or not effective else effective)

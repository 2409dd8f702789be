"""Curve fits of one test item, as stored in records.

Imports no torch.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from bench.spec import Record

DIGITS = 5
MAX_POINTS = 512
"""Largest number of points of each kind in a record.

The first ones are kept.
"""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Points of one test item and the model's fit.

    `observed_x`, `observed_y`: points that the model reads.
    `asked_x`: points that the model predicts.
    `truth`, `prediction`: right and predicted values at `asked_x`.
    `curve_x`, `curve_y`: the curve without noise, over the range of the points.
    """

    observed_x: tuple[float, ...]
    observed_y: tuple[float, ...]
    asked_x: tuple[float, ...]
    truth: tuple[float, ...]
    prediction: tuple[float, ...]
    curve_x: tuple[float, ...]
    curve_y: tuple[float, ...]

    @property
    def mean_error(self) -> float:
        """The mean distance of predictions from the truth."""
        return statistics.fmean(abs(found - right) for found, right in zip(self.prediction, self.truth, strict=True))


def encode_fit(fit: Fit | None) -> dict[str, list[float]]:
    """Convert a fit to samples of a record; empty without a fit."""
    return {f"fit_{name}": _rounded(points) for name, points in asdict(fit).items()} if fit else {}


def decode_fit(record: Record) -> Fit | None:
    """Return the fit stored in a training record, or None.

    Records of other tasks and of seeds other than the first hold no fit.
    """
    samples = record.outcome.samples
    names = [field.name for field in fields(Fit)]
    if any(f"fit_{name}" not in samples for name in names):
        return None
    return Fit(**{name: tuple(samples[f"fit_{name}"]) for name in names})


def _rounded(points: Sequence[float]) -> list[float]:
    return [float(f"{point:.{DIGITS}g}") for point in points[:MAX_POINTS]]

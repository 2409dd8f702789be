"""The fit of a curve to one test item: what a training's record holds of it, written and read. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from bench.spec import Record

DIGITS = 5
MAX_POINTS = 512
"""Points of each kind in one record, the item's first."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The points of one item: `observed_x`, `observed_y`, as the model reads them; `asked_x`, each with the `truth` and the model's `prediction`.

    `curve_x`, `curve_y`: the curve itself, over the range of the points.
    """

    observed_x: tuple[float, ...]
    observed_y: tuple[float, ...]
    asked_x: tuple[float, ...]
    truth: tuple[float, ...]
    prediction: tuple[float, ...]
    curve_x: tuple[float, ...]
    curve_y: tuple[float, ...]


def encode_fit(fit: Fit | None) -> dict[str, list[float]]:
    """Samples of a record; nothing where there is no fit."""
    return {} if fit is None else {_key(name): _rounded(getattr(fit, name)) for name in _names()}


def decode_fit(record: Record) -> Fit | None:
    """The fit that a training's record holds; None for a record without one: of another task, an older one, or not the first seed's."""
    samples = record.outcome.samples
    if any(_key(name) not in samples for name in _names()):
        return None
    return Fit(**{name: tuple(samples[_key(name)]) for name in _names()})


def _rounded(points: Sequence[float]) -> list[float]:
    return [float(f"{point:.{DIGITS}g}") for point in points[:MAX_POINTS]]


def _key(name: str) -> str:
    return f"fit_{name}"


def _names() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Fit))

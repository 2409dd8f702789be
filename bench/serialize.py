"""Convert dataclasses to plain JSON data and back, and hash them.

Imports no torch.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from models.layers.cost import Polynomial

ID_LENGTH = 12
CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def to_json(value: Any, *, defaults: bool = True) -> Any:
    """Return a dataclass, container or scalar as plain JSON data.

    `defaults`: whether a field that has its default value is written, too.
    """
    if value is None or isinstance(value, (str, int, float)):  # first, because most values are scalars
        return value
    if isinstance(value, Polynomial):
        return list(value.coefficients)
    if fields := _defaults(value.__class__):
        # 1, 1.0 and True are written differently
        pairs = ((name, getattr(value, name), default) for name, default in fields)
        return {
            name: to_json(found, defaults=defaults)
            for name, found, default in pairs
            if defaults or found.__class__ is not default.__class__ or found != default
        }
    if isinstance(value, Mapping):
        return {str(k): to_json(v, defaults=defaults) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v, defaults=defaults) for v in value]
    return value


@functools.cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the names of a dataclass's fields with their default values, MISSING where there is none; () for other types."""
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple((f.name, f.default if f.default_factory is dataclasses.MISSING else f.default_factory()) for f in dataclasses.fields(kind))


def from_json(kind: Any, data: Any) -> Any:
    """Convert plain JSON data to an annotated type, the inverse of `to_json`.

    Missing fields take their defaults. Raises ValueError, naming the place, if data do not fit the type or a field is unknown.
    """
    found = msgspec.convert(data, kind, dec_hook=_polynomial)
    _reject_unknown(kind, data)
    return found


def _polynomial(kind: type, data: Any) -> Polynomial:
    if kind is not Polynomial or not isinstance(data, (list, tuple)) or not set(map(type, data)) <= {int}:
        raise ValueError(f"expected {kind.__name__}, found {data!r}")
    return Polynomial(tuple(data))


def _reject_unknown(kind: Any, data: Any) -> None:
    """Raise ValueError for a field that the dataclass lacks."""
    names, parts = _names_and_parts(kind)
    for entry in data if isinstance(data, (list, tuple)) else (data,):
        if entry is None or not names:
            continue
        if not entry.keys() <= names:
            raise ValueError(f"{_dataclass_in(kind).__name__} has no field {min(entry.keys() - names)!r}")
        for name, part in parts:
            if name in entry:
                _reject_unknown(part, entry[name])


@functools.cache
def _names_and_parts(kind: Any) -> tuple[frozenset[str], tuple[tuple[str, Any], ...]]:
    """Return a dataclass's field names, and its fields that hold dataclasses."""
    hints = typing.get_type_hints(_dataclass_in(kind)) if _dataclass_in(kind) else {}
    return frozenset(hints), tuple((name, hint) for name, hint in hints.items() if _dataclass_in(hint))


@functools.cache
def _dataclass_in(kind: Any) -> Any:
    """Return the dataclass X of `X`, `X | None` or `tuple[X, ...]`."""
    return next((part for part in (kind, *typing.get_args(kind)) if dataclasses.is_dataclass(part)), None)


def stored(value: float) -> float:
    """Return a number as files hold it: whole as it is, else to nine significant digits, and to six decimals at least, as a time of day needs.

    No clock has more, and the digits beyond, which are noise, take a third of the room of packed records.
    """
    if value.is_integer() or not math.isfinite(value):
        return float(value)
    return round(float(value), max(6, 8 - math.floor(math.log10(abs(value)))))


def canonical_json(value: Any, *, defaults: bool = False) -> str:
    """Return the value's unique JSON text, with sorted keys and no spaces.

    `defaults`: whether fields that have their default value are in it. Ids leave them out, so a field that is added later changes no id, if what was
    before is its default. Raises ValueError for NaN.
    """
    return CANONICAL.encode(to_json(value, defaults=defaults))


def content_id(value: Any) -> str:
    """Hash the value's canonical JSON to 12 hexadecimal digits."""
    return id_of_text(canonical_json(value))


def id_of_text(text: str) -> str:
    """Hash text to 12 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

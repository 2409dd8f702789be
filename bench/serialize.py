"""Typed values as plain JSON data and back; the one text of a value, and the id made from it. Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from models.layers.cost import Polynomial

ID_LENGTH = 12


def to_json(value: Any) -> Any:
    """Plain JSON data of a dataclass, container or scalar."""
    if value is None or isinstance(value, (str, int, float)):  # most values, and the cheapest to tell
        return value
    if isinstance(value, Polynomial):
        return list(value.coefficients)
    if fields := _fields(value.__class__):
        return {f.name: to_json(getattr(value, f.name)) for f in fields if not _is_unused(f, value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


@functools.cache
def _fields(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    """Those of a dataclass; none of any other type."""
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def _is_unused(added: dataclasses.Field[Any], value: Any) -> bool:
    """Is it a field that older plans lack, at its default?"""
    return bool(added.metadata.get("added_later")) and getattr(value, added.name) == added.default


def from_json(kind: Any, data: Any) -> Any:
    """The inverse of `to_json` for an annotated type. A field that is not there takes its default.

    Raises ValueError saying what was expected, what was found and where, or which field a dataclass does not know.
    """
    found = msgspec.convert(data, kind, dec_hook=_polynomial)
    _refuse_unknown(kind, data)
    return found


def _polynomial(kind: type, data: Any) -> Polynomial:
    if kind is not Polynomial or not isinstance(data, (list, tuple)) or not {type(v) for v in data} <= {int}:
        raise ValueError(f"expected {kind.__name__}, found {data!r}")
    return Polynomial(tuple(data))


def _refuse_unknown(kind: Any, data: Any) -> None:
    """Raise ValueError for a field that its dataclass does not know, in data that fit `kind` otherwise."""
    names, parts = _names_and_parts(kind)
    for entry in data if isinstance(data, (list, tuple)) else (data,):
        if entry is None or not names:
            continue
        if not names >= entry.keys():
            raise ValueError(f"{_dataclass_in(kind).__name__} has no field {min(entry.keys() - names)!r}")
        for name, part in parts:
            if name in entry:
                _refuse_unknown(part, entry[name])


@functools.cache
def _names_and_parts(kind: Any) -> tuple[frozenset[str], tuple[tuple[str, Any], ...]]:
    """The field names of the dataclass in a type, and which of its fields hold dataclasses."""
    hints = typing.get_type_hints(_dataclass_in(kind)) if _dataclass_in(kind) else {}
    return frozenset(hints), tuple((name, hint) for name, hint in hints.items() if _dataclass_in(hint))


@functools.cache
def _dataclass_in(kind: Any) -> Any:
    """That of `X`, `X | None` and `tuple[X, ...]`; else None."""
    return next((part for part in (kind, *typing.get_args(kind)) if dataclasses.is_dataclass(part)), None)


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_id(value: Any) -> str:
    return id_of_text(canonical_json(value))


def id_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

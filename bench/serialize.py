"""Typed values as plain JSON data and back; the one text of a value, and the id made from it. Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from models.layers.cost import Polynomial

ID_LENGTH = 12
PLAIN = (str, int, bool)
"""Types whose values are read as they are."""


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


@functools.cache
def _parts_of_type(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(kind), typing.get_args(kind)


@functools.cache
def _type_hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _is_unused(added: dataclasses.Field[Any], value: Any) -> bool:
    """Is it a field that older plans lack, at its default?"""
    return bool(added.metadata.get("added_later")) and getattr(value, added.name) == added.default


def from_json(kind: Any, data: Any) -> Any:
    """The inverse of `to_json` for an annotated type. Raises ValueError naming the type and what was found."""
    return _reader(kind)(data)


Reader = Callable[[Any], Any]


@functools.cache
def _reader(kind: Any) -> Reader:
    """What reads a type. Made once for each: a run has many records and few types."""
    if kind is Any:
        return lambda data: data
    origin, arguments = _parts_of_type(kind)
    if kind is Polynomial:
        return _polynomial_from_json
    if isinstance(kind, type) and _fields(kind):
        return _dataclass_reader(kind)
    if origin in (typing.Union, types.UnionType):
        return functools.partial(_union_from_json, arguments)
    if origin is tuple:
        return functools.partial(_tuple_from_json, arguments)
    if origin is not None and issubclass(origin, Mapping):
        return functools.partial(_mapping_from_json, kind, arguments[1])
    return functools.partial(_float_from_json if kind is float else _scalar_from_json, kind)


@functools.cache
def _field_readers(kind: type) -> Mapping[str, Reader]:
    return {name: _reader(hint) for name, hint in _type_hints(kind).items()}


def _polynomial_from_json(data: Any) -> Polynomial:
    _require(isinstance(data, (list, tuple)) and {type(v) for v in data} <= {int}, Polynomial, data)
    return Polynomial(tuple(data))


def _mapping_from_json(kind: Any, value_kind: Any, data: Any) -> dict[str, Any]:
    _require(isinstance(data, Mapping), kind, data)
    if value_kind is Any:
        return {str(k): v for k, v in data.items()}
    read = _reader(value_kind)
    return {str(k): read(v) for k, v in data.items()}


def _float_from_json(kind: Any, data: Any) -> float:
    _require(isinstance(data, (int, float)) and not isinstance(data, bool), kind, data)
    (found,) = _floats((data,))
    return found


def _floats(data: Iterable[int | float]) -> tuple[float, ...]:
    """Raises ValueError for what no float holds."""
    try:
        found = tuple(map(float, data))
    except OverflowError as error:
        raise ValueError(str(error)) from error
    if not all(map(math.isfinite, found)):
        raise ValueError("a number is not finite")
    return found


def _scalar_from_json(kind: Any, data: Any) -> Any:
    if type(data) is not kind:
        _require(kind is type(None) and data is None, kind, data)
    return data


def _dataclass_reader(kind: type) -> Reader:
    readers: Mapping[str, Reader] = {}
    plain: Mapping[str, type] = {}

    def read(data: Any) -> Any:
        nonlocal readers, plain
        if not readers:  # not before the first call: a type may name itself
            readers = _field_readers(kind)
            plain = {name: hint for name, hint in _type_hints(kind).items() if hint in PLAIN}
        _require(isinstance(data, Mapping), kind, data)
        try:
            # most fields are plain values, and their reader would hand them back
            found = {name: value if value.__class__ is plain.get(name) else readers[name](value) for name, value in data.items()}
        except KeyError:
            unknown = sorted(set(data) - readers.keys())
            raise ValueError(f"{kind.__name__} has no field {unknown[0]!r}") from None
        try:
            return kind(**found)
        except TypeError as error:
            raise ValueError(f"{kind.__name__}: {error}") from error

    return read


def _union_from_json(arguments: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in arguments:
        return None
    for choice in arguments:
        try:
            return _reader(choice)(data)
        except ValueError:
            continue
    names = " or ".join(getattr(choice, "__name__", str(choice)) for choice in arguments)
    raise ValueError(f"expected {names}, found {data!r}")


def _tuple_from_json(arguments: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    _require(isinstance(data, (list, tuple)), tuple, data)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        if arguments[0] is float and {type(v) for v in data} <= {float, int}:  # raw samples: many, and the same for all
            return _floats(data)
        return tuple(map(_reader(arguments[0]), data))
    _require(len(data) == len(arguments), tuple, data)
    return tuple(_reader(kind)(v) for kind, v in zip(arguments, data, strict=True))


def _require(holds: bool, kind: Any, data: Any) -> None:
    if not holds:
        raise ValueError(f"expected {getattr(kind, '__name__', kind)}, found {data!r}")


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_id(value: Any) -> str:
    return id_of_text(canonical_json(value))


def id_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

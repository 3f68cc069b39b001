"""Frozen data as JSON, and back.

`to_plain` gives what JSON takes: NaN and infinities become text, since JSON has none. `from_plain`
makes an attrs class of such data again by the types of its fields. A strict reader refuses what is
missing or of another kind. A lenient one takes the field's default instead, or an empty value ("",
0, NaN, no items): so files of older and newer versions, and files that others wrote, can be read.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, TypeVar

import attrs

Data = TypeVar("Data")

#: Integers must be smaller than this to be read: digits without end would fill a page.
_HUGE = 10**18
_MISSING: Any = object()
#: What stands for a value that is missing and has no default.
_NOTHING: dict[Any, Any] = {str: "", int: 0, float: math.nan, bool: False}


def to_plain(value: Any) -> Any:
    """Nested data as JSON takes it: NaN and infinities as text, tuples as lists."""
    match value:
        case dict():
            return {str(key): to_plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [to_plain(inner) for inner in value]
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


def from_plain(
    kind: type[Data],
    data: object,
    *,
    strict: bool = False,
    text: Callable[[str], str] = str,
) -> Data:
    """The object of the attrs class `kind` that `data` holds; every text goes through `text`.

    Where it is `strict`, a field that is missing raises `KeyError`, and a value of another kind
    `TypeError`.
    """
    return typing.cast(Data, _Reader(strict, text).object(kind, data))


def number(value: object) -> float | None:
    """A number, or text for nan, inf or -inf, as a float. None for any other `value`, infinity for
    an integer beyond all floats."""
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, str):
            found = float(value) if len(value) < 40 else None
            return None if found is not None and math.isfinite(found) else found
        return float(value) if isinstance(value, int | float) else None
    except (ValueError, OverflowError):
        return None if isinstance(value, str) else math.inf


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    """The types of a class's fields."""
    return typing.get_type_hints(kind)


@attrs.frozen
class _Reader:
    strict: bool
    text: Callable[[str], str]

    def object(self, kind: Any, data: object) -> Any:
        """An instance of the attrs class `kind` from a JSON object. Any other `data` counts as an
        empty object, or raises `TypeError` where the reader is strict."""
        given = data if isinstance(data, Mapping) else {}
        if self.strict and given is not data:
            raise TypeError(f"a JSON object is expected, not {data!r:.60}")
        found = {}
        for field in attrs.fields(kind):
            hint = _hints(kind)[field.name]
            if self.strict:
                given[field.name]  # KeyError
            value = _MISSING
            if field.name in given:
                value = self.value(hint, given[field.name])
                if value is _MISSING and self.strict:
                    raise TypeError(f"{field.name!r} is {given[field.name]!r:.60}")
            if value is not _MISSING:
                found[field.name] = value
            elif field.default is attrs.NOTHING:
                found[field.name] = self.nothing(hint)
        return kind(**found)

    def value(self, hint: Any, value: Any) -> Any:
        """`value` converted to the type `hint`; `_MISSING` where it is not of that type."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint is Any:
            return value
        if origin in (types.UnionType, typing.Union):
            if value is None:
                return None if type(None) in arguments else _MISSING
            return self.first(arguments, value)
        if origin is tuple:
            items = value if isinstance(value, list | tuple) else None
            return _MISSING if items is None else self.items(arguments[0], items)
        if origin is not None:
            return self.mapping(arguments, value) if isinstance(value, Mapping) else _MISSING
        if attrs.has(hint):
            return self.object(hint, value) if isinstance(value, Mapping) else _MISSING
        return self.plain(hint, value)

    def first(self, hints: tuple[Any, ...], value: Any) -> Any:
        """`value` converted to the first of the types `hints` that fits, its own type first."""
        order = sorted(hints, key=lambda hint: type(value) is not hint)
        found = (self.value(hint, value) for hint in order if hint is not type(None))
        return next((one for one in found if one is not _MISSING), _MISSING)

    def items(self, hint: Any, values: list[Any] | tuple[Any, ...]) -> Any:
        found = [self.value(hint, value) for value in values]
        if self.strict and _MISSING in found:
            return _MISSING
        return tuple(one for one in found if one is not _MISSING)

    def mapping(self, hints: tuple[Any, ...], values: Mapping[str, Any]) -> dict[Any, Any]:
        """A dict with keys and values of the types `hints`; JSON writes integer keys as text."""
        names: dict[str, Any] = {name: self.text(name) for name in values}
        if hints[0] is int:
            names = {name: int(name) for name in values if name.isdecimal()}
        pairs = ((names[name], self.value(hints[1], values[name])) for name in names)
        return {name: value for name, value in pairs if value is not _MISSING}

    def plain(self, hint: Any, value: Any) -> Any:
        if hint is str:
            return self.text(value) if isinstance(value, str) else _MISSING
        if hint is bool:
            return value if isinstance(value, bool) else _MISSING
        if hint is float:
            found = number(value)
            return _MISSING if found is None else found
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if hint is int and whole and abs(value) < _HUGE else _MISSING

    def nothing(self, hint: Any) -> Any:
        """The value of a missing field that has the type `hint` and no default."""
        arguments = typing.get_args(hint)
        if type(None) in arguments:
            return None
        match typing.get_origin(hint):
            case types.UnionType | typing.Union:
                return math.nan if float in arguments else self.nothing(arguments[0])
            case None if attrs.has(hint):
                return self.object(hint, {})
            case None:
                return _NOTHING.get(hint)
            case origin if origin is tuple:
                return ()
            case _:
                return {}

"""Reading JSON that others wrote: what is missing or of another kind is a default, never a crash.

Formats grow: a reader that asks for each field with what to do without it reads older and newer
files alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from sketchc.base.json_form import number
from sketchc.runtime.report.text import clean_line

#: No count is larger: digits without end would fill the page.
_HUGE = 10**18


@attrs.frozen
class Fields:
    """One JSON object. `data` may be anything: what is no object has no fields."""

    data: object

    @property
    def mapping(self) -> Mapping[str, Any]:
        return self.data if isinstance(self.data, Mapping) else {}

    def raw(self, *names: str) -> Any:
        """The first of these fields that is there and is not null; None without one."""
        return next(
            (self.mapping[name] for name in names if self.mapping.get(name) is not None), None
        )

    def within(self, *names: str) -> Fields:
        """An object inside."""
        return Fields(self.raw(*names))

    def each(self, name: str) -> list[Fields]:
        """The objects of a list inside; what is no object is left out."""
        found = self.raw(name)
        items = found if isinstance(found, list | tuple) else ()
        return [Fields(item) for item in items if isinstance(item, Mapping)]

    def text(self, *names: str) -> str:
        """Text in one harmless line; "" without it."""
        found = self.raw(*names)
        return "" if found is None or isinstance(found, Mapping | list) else clean_line(found)

    def long_text(self, name: str) -> str:
        """Text as it is, to be cleaned where it is shown."""
        found = self.raw(name)
        return found if isinstance(found, str) else ""

    def number(self, *names: str) -> float | None:
        """A number; NaN and infinities may be written as text. None for anything else."""
        return number(self.raw(*names))

    def integer(self, *names: str) -> int | None:
        """A whole number."""
        found = self.raw(*names)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return int(found) if abs(found) < _HUGE else None

    def truth(self, name: str) -> bool | None:
        """True, False, or None where it is neither."""
        found = self.raw(name)
        return found if isinstance(found, bool) else None

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers; what is none is left out."""
        found = self.raw(name)
        items = found if isinstance(found, list | tuple) else ()
        values = [number(item) for item in items]
        return tuple(value for value in values if value is not None and math.isfinite(value))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, each one harmless line."""
        found = self.raw(name)
        items = found if isinstance(found, list | tuple) else ()
        return tuple(clean_line(item) for item in items if isinstance(item, str | int | float))

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """The entries of an object inside as text."""
        return tuple(self.within(name).entries())

    def entries(self) -> Iterator[tuple[str, str]]:
        """The entries as text; those that hold objects or lists are left out."""
        for name, value in self.mapping.items():
            if not isinstance(value, Mapping | list | tuple) and value is not None:
                yield clean_line(name), clean_line(_plain(value))


def _plain(value: object) -> object:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return value

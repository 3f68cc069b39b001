"""Comments that say what a task is for: sizes, values, and what its arguments are.

    # @hint: M in [1, 4096]            a size, or the values of an argument
    # @hint: x: f32[M, N]              an argument's type and shape

`read_hints` finds them in a file's text without running it. A name that is an argument of the task
restricts its values; any other name is a size. docs/TASKS.md has every form.
"""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections.abc import Callable, Iterator

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import DType

_POWERS = (0, 20)
_FORMS = (
    "write `M in [1, 4096]` (both ends belong to it), `x in [0, 1)`, `M in [64, 128, 256]` (a "
    "choice), `M in range(16, 1024, step=16)`, `M in pow2(3, 12)`, `M = 64`, `x > 0`, or "
    "`x: f32[M, N]` for an argument's type and shape"
)


class TaskFailure(UsageError):
    """The task's file, or its code, does not do what a task must do."""


class TaskKilledError(TaskFailure):
    """Somebody killed the task's process, twice: that says nothing about the task."""


class HintError(TaskFailure):
    """A hint that cannot be read, or does not fit the task."""


@attrs.frozen
class Domain:
    """The numbers that a size or an input may have: `choices`, or those from `lower` to `upper`.

    `open_lower` and `open_upper` leave the end itself out. Whole numbers go in steps of `step`.
    """

    lower: float = -math.inf
    upper: float = math.inf
    open_lower: bool = False
    open_upper: bool = False
    step: int = 1
    choices: tuple[float, ...] = ()

    def holds(self, value: float) -> bool:
        """Whether a number is in it; NaN never is."""
        if self.choices:
            return value in self.choices
        above = value > self.lower if self.open_lower else value >= self.lower
        below = value < self.upper if self.open_upper else value <= self.upper
        aligned = self.step == 1 or (value - self.lower) % self.step == 0
        return above and below and aligned

    @property
    def whole(self) -> tuple[int, int]:
        """The least and the greatest whole number (at least 1, at most 2^40, for sizes)."""
        if self.choices:
            return int(min(self.choices)), int(max(self.choices))
        low, high = _whole(self.lower, math.ceil, 1), _whole(self.upper, math.floor, 1 << 40)
        low += self.open_lower and low == self.lower
        high -= self.open_upper and high == self.upper
        return low, high - (high - low) % self.step

    def at_least(self, size: int) -> int | None:
        """The smallest size of it that is not below `size`."""
        if self.choices:
            return min((int(c) for c in self.choices if c >= size), default=None)
        low, high = self.whole
        found = low + max(0, math.ceil((size - low) / self.step)) * self.step
        return found if found <= high else None

    def at_most(self, size: int) -> int | None:
        """The largest size of it that is not above `size`."""
        if self.choices:
            return max((int(c) for c in self.choices if c <= size), default=None)
        low, high = self.whole
        found = low + (min(size, high) - low) // self.step * self.step
        return found if found >= low else None

    def near(self, size: int) -> int:
        """`size`, or a size of it that is near."""
        found = self.at_least(size)
        found = self.at_most(size) if found is None else found
        assert found is not None, "a domain of sizes is never empty"
        return found


def _whole(value: float, rounded: Callable[[float], int], otherwise: int) -> int:
    return rounded(value) if math.isfinite(value) else otherwise


@attrs.frozen
class Declared:
    """An argument's type: a tensor of these extents (names or numbers), or a number (None)."""

    dtype: DType
    extents: tuple[str | int, ...] | None


@attrs.frozen
class Hint:
    """One hint: what is said of `name`, on which line of the file, in which words."""

    name: str
    line: int
    text: str
    domain: Domain | None = None
    declared: Declared | None = None


def read_hints(source: str, where: str) -> tuple[Hint, ...]:
    """All hints of a file, in order. Raises `HintError` with the line of one that is no hint."""
    found: list[Hint] = []
    for line, comment in _comments(source):
        for text in _texts(comment):
            hint = _parse(text, line)
            if hint is None:
                msg = f"{where}, line {line}: the hint `{text}` cannot be read; {_FORMS}"
                raise HintError(msg)
            found.append(hint)
    return tuple(found)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return  # whoever runs the file says what is wrong with it


_HINT = re.compile(r"#\s*@hint\s*:?\s*(.*)$")
_OLD = re.compile(r"#\s*@(range|elemwise|elem)_hint\s*\(\s*[\"'](\w+)[\"']\s*,(.*)\)\s*$")


def _texts(comment: str) -> list[str]:
    """What a comment says, hint by hint; the older forms are made into the newer ones."""
    if old := _OLD.match(comment):
        kind, name, rest = old.groups()
        if kind != "range":
            return [f"{name} in {rest.strip()}"]
        ends = re.findall(r"(?:\w+\s*=\s*)?(-?\d+)", rest)
        return [f"{name} in [{ends[0]}, {ends[1]}]" if len(ends) == 2 else f"{name} in {rest}"]
    if found := _HINT.match(comment):
        return [text.strip() for text in found.group(1).split(";")]
    return []


_NUMBER = r"[+-]?(?:inf|\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)"
_PATTERNS = {
    "interval": re.compile(rf"(\w+) in ([\[(])\s*({_NUMBER})\s*,\s*({_NUMBER})\s*([\])])"),
    "choice": re.compile(r"(\w+) in [\[{](.*)[\]}]"),
    "range": re.compile(
        r"(\w+) in range\(\s*(\d+)\s*,\s*(\d+)\s*(?:,\s*(?:step\s*=\s*)?(\d+)\s*)?\)"
    ),
    "powers": re.compile(r"(\w+) in pow2\(\s*(\d+)\s*,\s*(\d+)\s*\)"),
    "any power": re.compile(r"(\w+) in pow of 2"),
    "fixed": re.compile(rf"(\w+) ==? ({_NUMBER})"),
    "compared": re.compile(rf"(\w+) (<=|>=|<|>) ({_NUMBER})"),
}


def _parse(text: str, line: int) -> Hint | None:
    plain = re.sub(r"\s*(<=|>=|==|=|<|>)\s*", r" \1 ", re.sub(r"\s+", " ", text)).strip()
    plain = re.sub(r"step = ", "step=", plain)
    if ":" in plain:
        name, _, rest = plain.partition(":")
        declared = parse_declared(rest.strip())
        if declared is None or not name.strip().isidentifier():
            return None
        return Hint(name.strip(), line, text, declared=declared)
    for kind, pattern in _PATTERNS.items():
        if found := pattern.fullmatch(plain):
            domain = _domain(kind, found.groups()[1:])
            if domain is None or not found.group(1).isidentifier():
                return None
            return Hint(found.group(1), line, text, domain)
    return None


def _domain(kind: str, groups: tuple[str, ...]) -> Domain | None:
    """None for what holds no number."""
    match kind:
        case "interval":
            opening, lower, upper, closing = groups
            domain = Domain(float(lower), float(upper), opening == "(", closing == ")")
            hollow = domain.open_lower or domain.open_upper
            ordered = domain.lower < domain.upper or (domain.lower == domain.upper and not hollow)
            return domain if ordered else None
        case "choice":
            return _choices(groups[0])
        case "range":
            start, stop, step = int(groups[0]), int(groups[1]), int(groups[2] or 1)
            if step < 1 or stop <= start:
                return None
            return Domain(start, start + (stop - 1 - start) // step * step, step=step)
        case "powers" | "any power":
            low, high = (int(groups[0]), int(groups[1])) if groups else _POWERS
            powers = tuple(2.0**power for power in range(low, min(high, 40) + 1))
            return Domain(choices=powers) if powers else None
        case "fixed":
            return Domain(choices=(float(groups[0]),))
        case _:
            sign, end = groups[0], float(groups[1])
            if sign in ("<", "<="):
                return Domain(upper=end, open_upper=sign == "<")
            return Domain(lower=end, open_lower=sign == ">")


def _choices(text: str) -> Domain | None:
    try:
        values = ast.literal_eval(f"[{text}]")
    except (ValueError, SyntaxError):
        return None
    if not values or not all(isinstance(value, int | float) for value in values):
        return None
    return Domain(choices=tuple(float(value) for value in values))


_DTYPES = {name: dtype for dtype in DType for name in (dtype.value, dtype.numpy_name)} | {
    "float": DType.F64,
    "int": DType.I64,
}


def parse_declared(text: str) -> Declared | None:
    """`f32[M, 4]`, `float32[N]`, `i32[]` or `float`; None for other text."""
    found = re.fullmatch(r"([a-z]\w*)\s*(?:\[([\w\s,]*)\])?", text.strip())
    if found is None or found.group(1) not in _DTYPES:
        return None
    dtype, inner = _DTYPES[found.group(1)], found.group(2)
    if inner is None:
        return Declared(dtype, None)
    parts = [part.strip() for part in inner.split(",") if part.strip()]
    if not all(part.isdigit() or part.isidentifier() for part in parts):
        return None
    return Declared(dtype, tuple(int(part) if part.isdigit() else part for part in parts))

"""Names: what each stands for, where it is visible, and how it is spelt in generated code.

Blocks scope names as the indentation suggests: a name made inside a loop ends with it, and two
loops may each make their own. A name that is still visible is never made a second time.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.ir import nodes as ir

_CPP = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t
char16_t char32_t class compl concept const consteval constexpr constinit const_cast continue
co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit
export extern false float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
restrict return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
wchar_t while xor xor_eq linux unix major minor main std size_t ssize_t NULL NAN INFINITY EOF
assert errno stdin stdout stderr int8_t int16_t int32_t int64_t uint8_t uint32_t"""
_PYTHON = """tl triton torch math numpy np ctypes functools range min max int float bool len abs
round print tuple list dict set str type isinstance sum any all zip map object super self
_ Exception ValueError TypeError RuntimeError"""

#: Words that generated code cannot use as names.
RESERVED = frozenset((*_CPP.split(), *_PYTHON.split(), *keyword.kwlist, *keyword.softkwlist))


@records.define(eq=False)
class TileState:
    """A tile while its sketch is elaborated; `loops` are the identities of those around its
    alloc, outermost first."""

    name: str
    source_name: str
    extents: tuple[ir.Expr, ...]
    dtype: DType
    initial: int | float | bool | None
    hints: tuple[str, ...]
    loops: tuple[int, ...]
    phase: int
    span: Span


@records.frozen
class ScalarName:
    """A symbol, param, constant, let, loop variable or scalar binding."""

    name: str  # in the IR
    kind: ir.NameKind
    dtype: DType
    span: Span


@records.frozen
class IndexName:
    """A binding that is an index tile."""

    name: str
    dtype: DType
    extents: tuple[ir.Expr, ...]
    phase: int
    span: Span


@records.frozen
class TileName:
    tile: TileState

    @property
    def span(self) -> Span:
        return self.tile.span


@records.frozen
class TensorName:
    """A tensor, workspace or view."""

    name: str
    extents: tuple[ir.Expr, ...]
    dtype: DType
    base: str
    span: Span
    optional: bool = False


@records.frozen
class PoisonedName:
    """A name whose declaration was already reported: uses of it say nothing more."""

    span: Span


Entry: TypeAlias = ScalarName | IndexName | TileName | TensorName | PoisonedName


def describe(entry: Entry) -> str:
    """What a name is, for messages: "a tile", "a loop variable"."""
    match entry:
        case ScalarName(kind=kind):
            return {
                ir.NameKind.SYMBOL: "a symbol",
                ir.NameKind.PARAM: "a param",
                ir.NameKind.CONSTANT: "a constant",
                ir.NameKind.LET: "a host value",
                ir.NameKind.LOOP: "a loop variable",
                ir.NameKind.BINDING: "an integer binding",
                ir.NameKind.HOST: "a value of the host",
                ir.NameKind.PRESENT: "whether a tensor was given",
            }[kind]
        case IndexName():
            return "an index tile"
        case TileName():
            return "a tile"
        case TensorName(name=name, base=base):
            return "a tensor" if name == base else "a view"
        case PoisonedName():
            return "a name with an error"


@records.define(eq=False)
class Scopes:
    """The names visible at one place, innermost block last; `ended` remembers where names that are
    no longer visible were made."""

    blocks: list[dict[str, Entry]] = records.field(factory=lambda: [{}])
    ended: dict[str, Entry] = records.field(factory=dict)

    def find(self, name: str) -> Entry | None:
        for block in reversed(self.blocks):
            if name in block:
                return block[name]
        return None

    def add(self, name: str, entry: Entry) -> None:
        self.blocks[-1][name] = entry

    def open(self) -> None:
        self.blocks.append({})

    def close(self) -> None:
        self.ended.update(self.blocks.pop())

    def visible(self) -> list[str]:
        return [name for block in self.blocks for name in block]


@records.define(eq=False)
class Namer:
    """Gives every name of a sketch its own identifier, valid in Python and in C++."""

    taken: set[str] = records.field(factory=set)

    def fresh(self, wanted: str) -> str:
        name = identifier(wanted)
        candidate, count = name, 1
        while candidate in self.taken:
            count += 1
            candidate = f"{name}_{count}"
        self.taken.add(candidate)
        return candidate


def identifier(name: str) -> str:
    """`name` as an identifier that neither Python nor C++ reserves."""
    cleaned = re.sub(r"[^0-9A-Za-z_]", "_", name) or "_"
    if cleaned[0].isdigit():
        cleaned = f"_{cleaned}"
    return f"{cleaned}_" if cleaned in RESERVED else cleaned


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` was probably meant to be."""
    import difflib  # only mistakes need it, and it takes a millisecond to import

    found = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.7)
    return found[0] if found else None

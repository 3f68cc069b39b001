"""The syntax tree: what a sketch file says, before any name is resolved.

Nodes stand in grammar order (grammar/sketch.lark). Every node carries the span it was read from;
spans do not take part in equality, so that `parse(format(tree)) == tree` is a plain comparison.
Comments are kept beside the tree, for the formatter alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.types import DType
from sketchc.parsing import syntax


def _span() -> Span:
    return records.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


# ---------------------------------------------------------------- expressions


@records.frozen
class Name:
    id: str
    span: Span = _span()


@records.frozen
class Number:
    """A literal; `text` keeps the spelling ("1e-5"), `value` is int or float (inf, nan too)."""

    value: int | float = records.field(eq=False)  # `text` says it; nan differs from itself
    text: str
    span: Span = _span()


@records.frozen
class Boolean:
    value: bool
    span: Span = _span()


@records.frozen
class String:
    value: str
    span: Span = _span()


@records.frozen
class Unary:
    operator: str  # "-", "+", "not"
    operand: Expression
    span: Span = _span()


@records.frozen
class Binary:
    """Arithmetic `+ - * / // %`, comparison `< <= > >= == !=`, or `and` / `or`."""

    operator: str
    left: Expression
    right: Expression
    span: Span = _span()


@records.frozen
class Choice:
    """`then if condition else otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression
    span: Span = _span()


@records.frozen
class Keyword:
    """`name=value` in a call."""

    name: str
    value: Expression
    span: Span = _span()


@records.frozen
class Call:
    """A call in an expression: `ceil(M, T)`, `cdiv`, `min`, `sqrt(D)`, `iota(T)`, `present(X)`."""

    function: str
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...] = ()
    function_span: Span = _span()
    span: Span = _span()


@records.frozen
class Slice:
    """`lower:upper:step` in a subscript; a missing part is None."""

    lower: Expression | None
    upper: Expression | None
    step: Expression | None
    span: Span = _span()


@records.frozen
class NewAxis:
    """`None` in a subscript: `m[:, None]`."""

    span: Span = _span()


@records.frozen
class Subscript:
    """`X[...]`: an access in load / store / atomics, or an index tile with new axes."""

    base: Expression
    subscripts: tuple[Expression | Slice | NewAxis, ...]
    span: Span = _span()


@records.frozen
class List:
    items: tuple[Expression, ...]
    span: Span = _span()


Expression: TypeAlias = (
    Name | Number | Boolean | String | Unary | Binary | Choice | Call | Subscript | List
)

# ---------------------------------------------------------------- sections


@records.frozen
class SymbolDeclaration:
    name: str
    upper_bound: Expression | None
    span: Span = _span()


@records.frozen
class SymbolsSection:
    symbols: tuple[SymbolDeclaration, ...]
    span: Span = _span()


@records.frozen
class ParamDeclaration:
    name: str
    dtype: DType | None
    default: Expression | None
    span: Span = _span()


@records.frozen
class ParamsSection:
    params: tuple[ParamDeclaration, ...]
    span: Span = _span()


@records.frozen
class LetDeclaration:
    name: str
    value: Expression
    span: Span = _span()


@records.frozen
class LetSection:
    lets: tuple[LetDeclaration, ...]
    span: Span = _span()


@records.frozen
class Extent:
    """One extent of a tensor; `broadcastable` for `M|1`."""

    value: Expression
    broadcastable: bool = False
    span: Span = _span()


@records.frozen
class TensorDeclaration:
    """`X[M, N]: in f32 = 0`; `role` is "in", "out", "inout" or None, `optional` for `in f32?`."""

    name: str
    extents: tuple[Extent, ...]
    role: str | None
    dtype: DType
    initial: Expression | None
    optional: bool = False
    span: Span = _span()
    dtype_span: Span = _span()


@records.frozen
class TensorsSection:
    tensors: tuple[TensorDeclaration, ...]
    span: Span = _span()


@records.frozen
class WorkspaceSection:
    tensors: tuple[TensorDeclaration, ...]
    span: Span = _span()


@records.frozen
class ViewDeclaration:
    name: str
    extents: tuple[Extent, ...]
    base: str
    span: Span = _span()
    base_span: Span = _span()


@records.frozen
class ViewsSection:
    views: tuple[ViewDeclaration, ...]
    span: Span = _span()


@records.frozen
class ConstexprDeclaration:
    """`T: i64 = 128 in [64, 128]`; any part may be missing."""

    name: str
    dtype: DType | None
    value: Expression | None
    choices: tuple[Expression, ...]
    span: Span = _span()


@records.frozen
class ConstexprSection:
    """`from_tuple` when written `m0, k0 = 128, 256` (accepted, with a warning)."""

    constants: tuple[ConstexprDeclaration, ...]
    from_tuple: bool = records.field(default=False, eq=False)
    span: Span = _span()


@records.frozen
class RequireSection:
    conditions: tuple[Expression, ...]
    span: Span = _span()


Section: TypeAlias = (
    SymbolsSection
    | ParamsSection
    | LetSection
    | TensorsSection
    | WorkspaceSection
    | ViewsSection
    | ConstexprSection
    | RequireSection
)

# ---------------------------------------------------------------- statements


@records.frozen
class Alloc:
    """`name = alloc([extents], dtype, init=..., llm_hint=...)`."""

    name: str
    extents: tuple[Expression, ...]
    dtype: DType | None
    init: Expression | None
    hints: tuple[String, ...]
    span: Span = _span()
    name_span: Span = _span()


@records.frozen
class Load:
    """`load(T[...] -> tile, pad=, where=)`."""

    access: Subscript
    tile: Name
    keywords: tuple[Keyword, ...] = ()
    span: Span = _span()


@records.frozen
class Store:
    """`store(tile -> T[...], where=, unique=, covers=)`."""

    tile: Expression  # the name of a tile, or what a tile of its own is made for
    access: Subscript
    keywords: tuple[Keyword, ...] = ()
    span: Span = _span()


@records.frozen
class Atomic:
    """`atomic_add | atomic_max | atomic_min (tile -> T[...])`; `tile` as in Store."""

    operation: str
    tile: Expression  # the name of a tile, or what a tile of its own is made for
    access: Subscript
    keywords: tuple[Keyword, ...] = ()
    span: Span = _span()


@records.frozen
class Fetch:
    """`name = fetch(T[i])`."""

    name: str
    access: Subscript
    span: Span = _span()


@records.frozen
class Compute:
    """`op(operand, ..., destination, key=value)`: every other call statement.

    `late_positional` says that a positional argument followed a keyword, as in the public listings
    (`reduce_max(x, axis=0, m)`); `arguments` holds all positionals in order.
    """

    operation: str
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...] = ()
    late_positional: bool = records.field(default=False, eq=False)
    span: Span = _span()
    operation_span: Span = _span()


@records.frozen
class Binding:
    """`a = e`, or `a, b = e1, e2` (accepted, with a warning)."""

    names: tuple[Name, ...]
    values: tuple[Expression, ...]
    span: Span = _span()


@records.frozen
class Hint:
    """One `@llm_hint("parallel", "grididx", stages=3)` line."""

    words: tuple[String, ...]
    keywords: tuple[Keyword, ...] = ()
    span: Span = _span()


@records.frozen
class For:
    """`for variable in range(start, stop, step):` with its hints and body."""

    variable: Name
    arguments: tuple[Expression, ...]  # one to three, as in Python's range
    hints: tuple[Hint, ...]
    body: tuple[Statement, ...]
    span: Span = _span()  # the header line only
    range_span: Span = _span()  # `range(...)`


@records.frozen
class If:
    condition: Expression
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    span: Span = _span()


@records.frozen
class Pass:
    span: Span = _span()


Statement: TypeAlias = Alloc | Load | Store | Atomic | Fetch | Compute | Binding | For | If | Pass

# ---------------------------------------------------------------- files


@records.frozen
class TilingPoint:
    """One point of an `available_tiling:` block: names and values."""

    values: tuple[tuple[str, Expression], ...]
    span: Span = _span()


@records.frozen
class Sketch:
    name: str
    sections: tuple[Section, ...]
    body: tuple[Statement, ...]
    tilings: tuple[TilingPoint, ...] = ()
    misspelt_tiling: bool = records.field(default=False, eq=False)
    span: Span = _span()
    name_span: Span = _span()
    tiling_span: Span = _span()  # the whole block, from its keyword on


@records.frozen
class Comment:
    """`# text`; `own_line` when nothing but blanks precedes it."""

    text: str
    own_line: bool
    span: Span = _span()


@records.frozen
class File:
    sketches: tuple[Sketch, ...]
    comments: tuple[Comment, ...] = records.field(default=(), eq=False)
    span: Span = _span()


#: The sections of a sketch.
SECTIONS = frozenset(
    ("symbols", "params", "let", "tensors", "workspace", "views", "constexpr", "require")
)


def parts(node: object) -> Iterator[object]:
    """A node, or each of a tuple of nodes, and all nodes below it, in the order of their fields;
    nothing for None and for words."""
    if isinstance(node, tuple):
        for part in node:
            yield from parts(part)
    elif records.has(kind := type(node)) and not isinstance(node, Span):
        yield node
        for field in records.fields(kind):
            yield from parts(getattr(node, field.name))


def names(node: object) -> Iterator[str]:
    """Every name that an expression (or slice, or None) uses."""
    return (part.id for part in parts(node) if isinstance(part, syntax.Name))


def statements(body: Iterable[syntax.Statement]) -> Iterator[syntax.Statement]:
    """All statements, in the order of the text."""
    for statement in body:
        yield statement
        match statement:
            case syntax.For(body=inner):
                yield from statements(inner)
            case syntax.If(body=inner, orelse=other):
                yield from statements((*inner, *other))
            case _:
                pass

"""The syntax tree: what a sketch file says, before any name is resolved.

Nodes stand in grammar order (grammar/sketch.lark). Every node carries the span it was read from;
spans do not take part in equality, so that `parse(format(tree)) == tree` is a plain comparison.
Comments are kept beside the tree, for the formatter alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import NOWHERE, Diagnostic, Placed, Span
from sketchc.base.types import DType


def _span() -> Span:
    return records.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


def _type_name() -> Any:
    """The name by which the sketch's `types:` declare a node's `dtype`; None for a type of its
    own."""
    return records.field(default=None, eq=False, repr=False, kw_only=True)


# ---------------------------------------------------------------- expressions


@records.frozen
class Name(Placed):
    """A name."""

    id: str


@records.frozen
class Number(Placed):
    """A literal; `text` keeps the spelling ("1e-5"), `value` is int or float (inf, nan too)."""

    value: int | float = records.field(eq=False)  # `text` says it; nan differs from itself
    text: str


@records.frozen
class Boolean(Placed):
    """`True` or `False`."""

    value: bool


@records.frozen
class String(Placed):
    """A word in quotes."""

    value: str


@records.frozen
class Unary(Placed):
    """`-x`, `+x` or `not x`."""

    operator: str  # "-", "+", "not"
    operand: Expression


@records.frozen
class Binary(Placed):
    """Arithmetic `+ - * / // %`, comparison `< <= > >= == !=`, or `and` / `or`."""

    operator: str
    left: Expression
    right: Expression


@records.frozen
class Choice(Placed):
    """`then if condition else otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression


@records.frozen
class Keyword(Placed):
    """`name=value` in a call."""

    name: str
    value: Expression


@records.frozen
class Call(Placed):
    """A call in an expression: `ceil(M, T)`, `cdiv`, `min`, `sqrt(D)`, `iota(T)`, `present(X)`."""

    function: str
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...] = ()
    function_span: Span = _span()


@records.frozen
class Slice(Placed):
    """`lower:upper:step` in a subscript; a missing part is None."""

    lower: Expression | None
    upper: Expression | None
    step: Expression | None


@records.frozen
class NewAxis(Placed):
    """`None` in a subscript: `m[:, None]`."""


@records.frozen
class Subscript(Placed):
    """`X[...]`: an access in load / store / atomics, or an index tile with new axes."""

    base: Expression
    subscripts: tuple[Expression | Slice | NewAxis, ...]


@records.frozen
class List(Placed):
    """`[a, b]`."""

    items: tuple[Expression, ...]


Expression: TypeAlias = (
    Name | Number | Boolean | String | Unary | Binary | Choice | Call | Subscript | List
)

# ---------------------------------------------------------------- sections


@records.frozen
class TypeDeclaration(Placed):
    """`E in [f16, f32]`, an element type that the arguments of a launch decide."""

    name: str
    choices: tuple[DType, ...]


@records.frozen
class SymbolDeclaration(Placed):
    """`M <= 1024`; the bound may be missing."""

    name: str
    upper_bound: Expression | None


@records.frozen
class ParamDeclaration(Placed):
    """`p: f32 = 1.0`; type and default may be missing."""

    name: str
    dtype: DType | None
    default: Expression | None
    type_name: str | None = _type_name()


@records.frozen
class LetDeclaration(Placed):
    """`h = ceil(M, 2)`, a value of the host."""

    name: str
    value: Expression


@records.frozen
class Extent(Placed):
    """One extent of a tensor; `broadcastable` for `M|1`."""

    value: Expression
    broadcastable: bool = False


@records.frozen
class TensorDeclaration(Placed):
    """`X[M, N]: in f32 = 0`; `role` is "in", "out", "inout" or None, `optional` for `in f32?`."""

    name: str
    extents: tuple[Extent, ...]
    role: str | None
    dtype: DType
    initial: Expression | None
    optional: bool = False
    dtype_span: Span = _span()
    type_name: str | None = _type_name()


@records.frozen
class ViewDeclaration(Placed):
    """`XF[M*N] = X`."""

    name: str
    extents: tuple[Extent, ...]
    base: str
    base_span: Span = _span()


@records.frozen
class ConstexprDeclaration(Placed):
    """`T: i64 = 128 in [64, 128]`; any part may be missing."""

    name: str
    dtype: DType | None
    value: Expression | None
    choices: tuple[Expression, ...]
    type_name: str | None = _type_name()


@records.frozen
class Section(Placed):
    """A section by its keyword: its declarations, or the conditions of a `require`.

    `from_tuple` where constants are written `m0, k0 = 128, 256` (accepted, with a warning).
    """

    keyword: str
    items: tuple[Any, ...]
    from_tuple: bool = records.field(default=False, eq=False)


# ---------------------------------------------------------------- statements


@records.frozen
class Alloc(Placed):
    """`name = alloc([extents], dtype, init=..., llm_hint=...)`."""

    name: str
    extents: tuple[Expression, ...]
    dtype: DType | None
    init: Expression | None
    hints: tuple[String, ...]
    name_span: Span = _span()
    type_name: str | None = _type_name()


@records.frozen
class Transfer(Placed):
    """`load(T[...] -> tile, pad=, where=)`, `store(tile -> T[...], where=, unique=, covers=)`, or
    `atomic_add | atomic_max | atomic_min (tile -> T[...])`."""

    operation: str
    tile: Expression  # unless it is loaded, also an expression that gets a tile of its own
    access: Subscript
    keywords: tuple[Keyword, ...] = ()


@records.frozen
class Fetch(Placed):
    """`name = fetch(T[i])`."""

    name: str
    access: Subscript


@records.frozen
class Compute(Placed):
    """`op(operand, ..., destination, key=value)`: every other call statement.

    `late_positional` says that a positional argument followed a keyword, as in the public listings
    (`reduce_max(x, axis=0, m)`); `arguments` holds all positionals in order.
    """

    operation: str
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...] = ()
    late_positional: bool = records.field(default=False, eq=False)
    operation_span: Span = _span()


@records.frozen
class Invoke(Placed):
    """`sketch(X, W -> Y, eps=1e-5)` in a program: a call of a sketch. `inputs` stand before the
    arrow, `outputs` behind it; tensors, sizes and numbers may be given by name as well."""

    sketch: str
    inputs: tuple[Expression, ...]
    outputs: tuple[Expression, ...]
    keywords: tuple[Keyword, ...] = ()
    sketch_span: Span = _span()


@records.frozen
class Binding(Placed):
    """`a = e`, or `a, b = e1, e2` (accepted, with a warning)."""

    names: tuple[Name, ...]
    values: tuple[Expression, ...]


@records.frozen
class Hint(Placed):
    """One `@llm_hint("parallel", "grididx", stages=3)` line."""

    words: tuple[String, ...]
    keywords: tuple[Keyword, ...] = ()


@records.frozen
class For(Placed):
    """`for variable in range(start, stop, step):` with its hints and body; its span is that of the
    header line alone."""

    variable: Name
    arguments: tuple[Expression, ...]  # one to three, as in Python's range
    hints: tuple[Hint, ...]
    body: tuple[Statement, ...]


@records.frozen
class If(Placed):
    """`if condition:` with its body, and that of its `else`. A `block` is a call of a program: its
    condition always holds, and its statements are phases of their own."""

    condition: Expression
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    block: bool = False


@records.frozen
class Pass(Placed):
    """A statement that does nothing."""


Statement: TypeAlias = Alloc | Transfer | Fetch | Compute | Invoke | Binding | For | If | Pass

# ---------------------------------------------------------------- files


@records.frozen
class TilingPoint(Placed):
    """One point of an `available_tiling:` block: names and values."""

    values: tuple[tuple[str, Expression], ...]


@records.frozen
class Program(Placed):
    """One program: sketches that are called in order."""

    name: str
    sections: tuple[Section, ...]
    body: tuple[Statement, ...]
    name_span: Span = _span()


@records.frozen
class Generic:
    """The sketch with `types:` of which a sketch is one instance (see `generics`): its name, and
    what its type names stand for here. `first`: this is the first instance."""

    name: str
    types: tuple[tuple[str, DType], ...]
    first: bool


@records.frozen
class Sketch(Placed):
    """One sketch, with the tuning points behind it; `program`: the program that it stands for;
    `generic`: the sketch with `types:` of which it is one instance."""

    name: str
    sections: tuple[Section, ...]
    body: tuple[Statement, ...]
    tilings: tuple[TilingPoint, ...] = ()
    misspelt_tiling: bool = records.field(default=False, eq=False)
    name_span: Span = _span()
    tiling_span: Span = _span()  # the whole block, from its keyword on
    program: Program | None = records.field(default=None, repr=False, kw_only=True)
    generic: Generic | None = records.field(default=None, repr=False, kw_only=True)

    @property
    def written_name(self) -> str:
        """The name in the text: that of the sketch with `types:` for each of its instances."""
        return self.name if self.generic is None else self.generic.name

    @property
    def composed(self) -> bool:
        """Whether this is a program without constants of its own: all are those of the sketches
        that it calls, and it depends on them no more than those sketches do."""
        program = self.program
        return program is not None and not any(s.keyword == "constexpr" for s in program.sections)

    @property
    def called(self) -> frozenset[str]:
        """The names of the sketches that a program calls; none for a sketch."""
        body = statements(() if self.program is None else self.program.body)
        return frozenset(each.sketch for each in body if isinstance(each, Invoke))


@records.frozen
class Comment(Placed):
    """`# text`; `own_line` when nothing but blanks precedes it."""

    text: str
    own_line: bool


@records.frozen
class File(Placed):
    """All sketches of a file; a program is the sketch that it means (see `programs`), and a sketch
    with `types:` is one sketch for each choice of them (see `generics`)."""

    sketches: tuple[Sketch, ...]
    comments: tuple[Comment, ...] = records.field(default=(), eq=False)

    @property
    def entries(self) -> tuple[Sketch, ...]:
        """The sketches that no program of the file calls."""
        called = frozenset[str]().union(*(sketch.called for sketch in self.sketches))
        return tuple(s for s in self.sketches if called.isdisjoint((s.name, s.written_name)))


#: A tree in which a form is expanded, and what is wrong with its uses.
Expanded: TypeAlias = tuple[File, list[Diagnostic]]

#: The sections of a sketch.
SECTIONS = frozenset(
    ("types", "symbols", "params", "let", "tensors", "workspace", "views", "constexpr", "require")
)
#: The sections of a program: its memory between calls is `buffers`.
PROGRAM_SECTIONS = SECTIONS - {"workspace", "types"} | {"buffers"}


def children(node: object) -> Iterator[object]:
    """The values of a node's fields, in their order, or the items of a tuple of nodes; nothing for
    None, text and numbers."""
    if isinstance(node, tuple):
        yield from node
    elif records.has(kind := type(node)) and not isinstance(node, Span):
        yield from (getattr(node, field.name) for field in records.fields(kind))


def parts(node: object) -> Iterator[object]:
    """A node, or each of a tuple of nodes, and all nodes below it, in the order of their fields."""
    if records.has(type(node)) and not isinstance(node, Span):
        yield node
    for part in children(node):
        yield from parts(part)


def declared(sketch: Sketch | Program, *keywords: str) -> Iterator[Any]:
    """The items of all sections with one of these keywords, in the order of the text."""
    for section in sketch.sections:
        if section.keyword in keywords:
            yield from section.items


def names(node: object) -> Iterator[str]:
    """Every name that an expression (or slice, or None) uses."""
    return (part.id for part in parts(node) if isinstance(part, Name))


def statements(body: Iterable[Statement]) -> Iterator[Statement]:
    """All statements of `body` and of the blocks in it, in the order of the text."""
    for statement in body:
        yield statement
        match statement:
            case For(body=inner):
                yield from statements(inner)
            case If(body=inner, orelse=other):
                yield from statements((*inner, *other))

"""Parse-tree conversion: one function per rule of grammar/sketch.lark, building syntax nodes.

The driver in sketchc.parsing.parser calls `Converter.convert` at every reduction with the values of
the rule's symbols (tokens included). What the grammar accepts too widely is narrowed here; a wrong
part leaves a diagnostic and a harmless stand-in, since a file with errors has no tree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from sketchc.base import records
from sketchc.base.diagnostics import (
    Diagnostic,
    InternalError,
    Label,
    More,
    Placed,
    Source,
    Span,
    error,
)
from sketchc.base.types import SPELLINGS, DType
from sketchc.parsing import syntax
from sketchc.parsing.errors import nearest, replace
from sketchc.parsing.lexer import Token

_LARGEST = 2**63 - 1
_ROLES = ("in", "out", "inout")
_ROLE_ALIASES = {
    "input": "in",
    "inputs": "in",
    "const": "in",
    "read": "in",
    "output": "out",
    "outputs": "out",
    "result": "out",
    "write": "out",
    "in_out": "inout",
    "input_output": "inout",
    "readwrite": "inout",
}
_DTYPES = {dtype.value: dtype for dtype in DType}


@records.frozen
class Tiling(Placed):
    """An `available_tiling` block before it joins its sketch."""

    points: tuple[syntax.TilingPoint, ...]
    misspelt: bool


@records.frozen
class TupleValue(Placed):
    """A bare value in a `constexpr` section: one of `128, 256` behind `m0, k0 =`."""

    value: syntax.Expression


@records.frozen
class Type(Placed):
    """`in f32?`: a role, an element type, and whether the tensor may be absent."""

    role: str | None
    dtype: DType
    optional: bool
    dtype_span: Span
    name: str | None = None  # of a type that `types:` declare


@records.frozen
class Arrow(Placed):
    """`left -> right` among the arguments of a call."""

    left: syntax.Expression
    right: syntax.Expression


class Conversion:
    """Builds the tree of one source; `diagnostics` collects what is wrong."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []
        #: the types that the sketch being read declares by name
        self.types: dict[str, tuple[DType, ...]] = {}

    def convert(self, rule: str, children: list[Any]) -> Any:
        """The value of one reduction; raises InternalError for a rule without a method."""
        function = getattr(self, f"_on_{rule}", None) or RULES.get(rule)
        if function is None:
            raise InternalError(f"no conversion for the grammar rule `{rule}`")
        return function(children, self.span(children))

    # ------------------------------------------------------------ helpers

    def span_of(self, child: Any) -> Span:
        """The span of a token or a node."""
        span: Span = child.span(self.source.name) if isinstance(child, Token) else child.span
        return span

    def span(self, children: Sequence[Any]) -> Span:
        """The span from the first child through the last; blocks (tuples of statements) are
        passed over, for they have no span."""
        placed = [child for child in children if not isinstance(child, tuple)]
        if not placed:
            return self.source.start
        return self.span_of(placed[0]).to(self.span_of(placed[-1]))

    def error(
        self, span: Span, code: str, message: str, label: str = "", **more: Unpack[More]
    ) -> None:
        """Report an error."""
        self.diagnostics.append(error(span, code, message, label, **more))

    def name(self, token: Token) -> syntax.Name:
        """A token as a name."""
        return syntax.Name(token.text, span=token.span(self.source.name))

    def text(self, span: Span) -> str:
        """The source text at a span."""
        return self.source.text[span.start : span.end]

    # ------------------------------------------------------------ file and sketch

    def _on_file(self, children: list[Any], span: Span) -> syntax.File:
        sketches: list[syntax.Sketch] = []
        for child in children:
            if isinstance(child, syntax.Sketch):
                sketches.append(child)
            elif not sketches or sketches[-1].tilings:
                self.error(
                    child.span,
                    "SK0125",
                    "an `available_tiling` block follows its sketch, once",
                    label="no sketch for this block",
                )
            else:
                sketches[-1] = records.evolve(
                    sketches[-1],
                    tilings=child.points,
                    misspelt_tiling=child.misspelt,
                    tiling_span=child.span,
                )
        return syntax.File(tuple(sketches), span=span)

    def _on_sketch(self, children: list[Any], span: Span) -> syntax.Sketch:
        name, sections, body = self._unit(children)
        self.types = {}
        for section in sections:
            if section.keyword not in syntax.SECTIONS:
                self.error(
                    section.span,
                    "SK0140",
                    f"`{section.keyword}` is a section of programs",
                    label="in a sketch",
                    help="memory between the phases of a sketch is its `workspace:`",
                )
        for statement in syntax.statements(body):
            if isinstance(statement, syntax.Invoke):
                self.error(
                    statement.span,
                    "SK0115",
                    f"`{statement.sketch}` is not a memory access: "
                    "`->` stands in `load`, `store` and atomics only",
                    help="the destination of an operation is its last argument; "
                    "sketches are called in a `program`",
                )
        return syntax.Sketch(
            name.text,
            sections,
            body,
            span=span,
            name_span=self.span_of(name),
        )

    def _on_program(self, children: list[Any], span: Span) -> syntax.Sketch:
        """A program, as a sketch that `programs.expand` fills in."""
        name, sections, body = self._unit(children)
        self.types = {}
        for section in sections:
            if section.keyword not in syntax.PROGRAM_SECTIONS:
                self.error(
                    section.span,
                    "SK0140",
                    f"a program has no `{section.keyword}` of its own",
                    label="in a program",
                    help="what its sketches hand to one another are its `buffers:`",
                )
        body = tuple(map(self._call_only, body))
        place = self.span_of(name)
        program = syntax.Program(name.text, sections, body, span=span, name_span=place)
        return syntax.Sketch(name.text, (), (), span=span, name_span=place, program=program)

    def _call_only(self, statement: syntax.Statement) -> syntax.Statement:
        """A statement of a program, with calls as `Invoke`; anything but calls, and loops and
        branches around them, is reported."""
        match statement:
            case syntax.Invoke() | syntax.Pass():
                return statement
            case syntax.Compute(arguments=()) if not statement.late_positional:
                # Everything by name: a call without an arrow.
                return syntax.Invoke(
                    statement.operation,
                    (),
                    (),
                    statement.keywords,
                    span=statement.span,
                    sketch_span=statement.operation_span,
                )
            case syntax.For():
                for hint in statement.hints:
                    self.error(
                        hint.span,
                        "SK0140",
                        "the loops of a program run on the host, one turn after the other",
                        label="says nothing here",
                        help="hints stand before the loops of sketches",
                    )
                body = tuple(map(self._call_only, statement.body))
                return records.evolve(statement, body=body)
            case syntax.If():
                body, orelse = (
                    tuple(map(self._call_only, part)) for part in (statement.body, statement.orelse)
                )
                return records.evolve(statement, body=body, orelse=orelse)
            case syntax.Compute():
                helped = (
                    f"write `{statement.operation}(X, ... -> Y)`: what it writes stands behind `->`"
                )
            case _:
                helped = "move it into a sketch, which the program calls"
        self.error(
            statement.span,
            "SK0140",
            "a program calls sketches, and computes nothing itself",
            label="not a call of a sketch",
            help=helped,
        )
        return statement

    def _unit(
        self, children: list[Any]
    ) -> tuple[Token, tuple[syntax.Section, ...], tuple[syntax.Statement, ...]]:
        """The name, the sections and the statements of a sketch or a program."""
        sections: list[Any] = []
        body: list[Any] = []
        for child in children[2:]:
            if isinstance(child, Token):
                continue
            if not isinstance(child, syntax.Section):
                body.append(child)
                continue
            if body:
                self.error(
                    child.span,
                    "SK0113",
                    "a section stands behind a statement",
                    label="this section",
                    labels=(Label(body[0].span, "the first statement"),),
                    help="move it to the top of the sketch",
                )
            sections.append(child)
        return children[1], tuple(sections), tuple(body)

    def _on_tiling(self, children: list[Any], span: Span) -> Tiling:
        points = tuple(child for child in children if isinstance(child, syntax.TilingPoint))
        misspelt = children[0].text != "available_tiling"
        ends = [children[0], *(points[-1:] if points else children[-1:])]
        return Tiling(points, misspelt, span=self.span(ends))

    def _on_point(self, children: list[Any], span: Span) -> syntax.TilingPoint:
        values = nodes(children)
        self.unique([(value.name, value.span) for value in values])
        pairs = tuple((value.name, value.value) for value in values)
        return syntax.TilingPoint(pairs, span=span)

    def unique(self, names: Sequence[tuple[str, Span]]) -> None:
        """Report names that are given twice."""
        seen: dict[str, Span] = {}
        for name, span in names:
            if name in seen:
                self.error(
                    span,
                    "SK0126",
                    f"`{name}` is given twice",
                    label="again here",
                    labels=(Label(seen[name], "first given here"),),
                )
            seen.setdefault(name, span)

    # ------------------------------------------------------------ sections

    def _on_section(self, children: list[Any], span: Span) -> syntax.Section:
        """A section; constants as in `m0, k0 = 128, 256` (the public listings) are spread over
        their names. A final separator is not part of it."""
        given = nodes(children[2:])
        items: list[Any] = []
        for bare, group in itertools.groupby(given, lambda item: isinstance(item, TupleValue)):
            if bare:
                self.spread(items, [item.value for item in group])
            else:
                items += group
        from_tuple = any(isinstance(item, TupleValue) for item in given)
        span = self.span([children[0], *(given[-1:] or children[1:2])])
        return syntax.Section(children[0].text, tuple(items), from_tuple, span=span)

    def spread(self, constants: list[syntax.ConstexprDeclaration], values: list[Any]) -> None:
        """Spread `m0, k0 = 128, 256`: the last `constants` get, in order, the value that was read
        for the last name (here 128) and `values` (here 256)."""
        count = len(values) + 1
        named = constants[-count:]
        bare = all(c.value is None and c.dtype is None and not c.choices for c in named[:-1])
        if len(named) < count or not bare or named[-1].value is None or named[-1].choices:
            self.error(
                values[0].span,
                "SK0124",
                "the numbers of names and values differ",
                label="a value without its name",
                help="write `m0 = 128, k0 = 256`",
            )
            return
        everything = [named[-1].value, *values]
        constants[-count:] = [
            records.evolve(constant, value=value)
            for constant, value in zip(named, everything, strict=True)
        ]

    def _on_type_choices(self, children: list[Any], span: Span) -> syntax.TypeDeclaration:
        """`E in [f16, f32]`; from here on, `E` is a type of the sketch. Until `generics` makes a
        sketch for each choice, it stands for the first one."""
        name, choices = children[0], after(children, "in").items
        place = self.span_of(name)
        if name.text in SPELLINGS or name.text in _ROLES:
            message = f"`{name.text}` means something else in types"
            self.error(place, "SK0119", message, help="choose another name, such as `E`")
        self.unique([*((other, place) for other in self.types), (name.text, place)])
        self.types.pop(name.text, None)
        plain = [c for c in choices if isinstance(c, syntax.Name) and c.id not in self.types]
        dtypes = tuple(dtype for each in plain if (dtype := self.dtype(each)) is not None)
        if not choices or len(plain) < len(choices) or len(set(dtypes)) < len(dtypes):
            self.error(
                span,
                "SK0119",
                f"`{name.text}` needs a list of different element types",
                help=f"write `{name.text} in [f16, bf16, f32]`",
            )
        self.types[name.text] = dtypes or (DType.F32,)
        return syntax.TypeDeclaration(name.text, dtypes, span=span)

    def _on_param(self, children: list[Any], span: Span) -> syntax.ParamDeclaration:
        kind = after(children, ":")
        return syntax.ParamDeclaration(
            children[0].text,
            self.dtype(kind),
            after(children, "="),
            span=span,
            type_name=self.type_name(kind),
        )

    def _on_tensor(self, children: list[Any], span: Span) -> syntax.TensorDeclaration:
        kind: Type = next(child for child in children if isinstance(child, Type))
        initial = after(children, "=")
        return syntax.TensorDeclaration(
            children[0].text,
            _extents(children),
            kind.role,
            kind.dtype,
            initial,
            kind.optional,
            span=span,
            dtype_span=kind.dtype_span,
            type_name=kind.name,
        )

    def _on_type(self, children: list[Any], span: Span) -> Type:
        """The type written by two words at most and a `?`."""
        words = [child for child in children if child.type != "?"]
        role = None
        if len(words) == 2:
            role = words[0].text
            if role not in _ROLES:
                place = self.span_of(words[0])
                meant = _ROLE_ALIASES.get(role.lower())
                known = _ROLES if meant is None else (meant,)
                advice = self.misspelt(role, known, place, sure=meant is not None)
                self.error(place, "SK0119", f"`{role}` is no role of a tensor", **advice)
                role = None
        elif words[0].text in _ROLES:
            self.error(
                self.span_of(words[0]),
                "SK0119",
                "a tensor needs its element type",
                label="a role without a type",
                help=f"write `{words[0].text} f32`",
            )
            return Type(None, DType.F32, False, span, span=span)
        dtype = self.dtype(words[-1]) or DType.F32
        optional = children[-1].type == "?"
        named = self.type_name(words[-1])
        return Type(role, dtype, optional, self.span_of(words[-1]), named, span=span)

    def type_name(self, token: Any) -> str | None:
        """The word of a NAME token (or a syntax.Name) that `types:` declare; else None."""
        word = token.id if isinstance(token, syntax.Name) else getattr(token, "text", "")
        return word if word in self.types else None

    def dtype(self, token: Any) -> DType | None:
        """The element type that a NAME token (or a syntax.Name) spells; None, reported, if it is
        none. A missing token gives None."""
        if token is None:
            return None
        word = token.id if isinstance(token, syntax.Name) else token.text
        dtype = self.types[word][0] if word in self.types else _DTYPES.get(word)
        if dtype is None:
            span = self.span_of(token)
            meant = SPELLINGS.get(word.lower())
            if meant is not None and meant.value != word.lower():
                known: tuple[str, ...] = (meant.value,)
                # `float32` says its width; `float` is another one in NumPy than in PyTorch.
                fixes = replace(f"write `{known[0]}`", span, known[0], word[-1].isdigit())
                advice: More = {"help": f"write `{known[0]}`", "fixes": fixes}
            else:
                advice = self.misspelt(word, (*_DTYPES, *self.types), span)
            self.error(
                span, "SK0119", f"`{word}` is no element type", label="unknown type", **advice
            )
        return dtype

    def _on_extent(self, children: list[Any], span: Span) -> syntax.Extent:
        if len(children) == 3 and children[2].text != "1":
            self.error(
                self.span_of(children[2]),
                "SK0119",
                "only `M|1` marks an extent that may be 1",
                label="write 1",
                fixes=replace("write `1`", self.span_of(children[2]), "1"),
            )
        return syntax.Extent(children[0], len(children) == 3, span=span)

    def _on_view(self, children: list[Any], span: Span) -> syntax.ViewDeclaration:
        base = children[-1]
        return syntax.ViewDeclaration(
            children[0].text,
            _extents(children),
            base.text,
            span=span,
            base_span=self.span_of(base),
        )

    def _on_constant(self, children: list[Any], span: Span) -> syntax.ConstexprDeclaration:
        choices, kind = after(children, "in"), after(children, ":")
        return syntax.ConstexprDeclaration(
            children[0].text,
            self.dtype(kind),
            after(children, "="),
            () if choices is None else choices.items,
            span=span,
            type_name=self.type_name(kind),
        )

    def _on_tuple_value(self, children: list[Any], span: Span) -> TupleValue:
        value: syntax.Expression = self.convert("number", children[-1:])
        if len(children) == 2:
            value = syntax.Unary("-", value, span=span)
        return TupleValue(value, span=value.span)

    # ------------------------------------------------------------ expressions

    def _on_slice(self, children: list[Any], span: Span) -> syntax.Slice:
        parts: list[Any] = [None]
        for child in children:
            if isinstance(child, Token):
                parts.append(None)
            else:
                parts[-1] = child
        lower, upper, step = (*parts, None, None)[:3]
        return syntax.Slice(lower, upper, step, span=span)

    def _on_number(self, children: list[Any], span: Span) -> syntax.Number:
        text = children[0].text
        value = _number(text)
        if value is None:
            self.error(
                span,
                "SK0103",
                "the number is too large",
                label="does not fit",
                notes=("integers have 64 bits (up to 9223372036854775807), floats are f64",),
            )
            value = 0
        return syntax.Number(value, text, span=span)

    def misspelt(self, word: str, known: Sequence[str], span: Span, sure: bool = False) -> More:
        """The help and the fix for a misspelt word, as arguments of `error`; `sure` where the
        only known word is another name for it, however it is spelt."""
        meant = known[0] if sure else nearest(word, known)
        if meant is None:
            return {"help": "one of " + ", ".join(known)}
        title = f"write `{meant}`"
        return {"help": f"did you mean `{meant}`?", "fixes": replace(title, span, meant)}


def nodes(children: Sequence[Any]) -> tuple[Any, ...]:
    """The children that are not tokens."""
    return tuple(child for child in children if not isinstance(child, Token))


def _extents(children: Sequence[Any]) -> tuple[syntax.Extent, ...]:
    return tuple(child for child in children if isinstance(child, syntax.Extent))


#: The rules whose nodes take their children unchanged. Parentheses leave no node; the span of the
#: expression includes them, so that its text is a whole operand.
RULES: dict[str, Callable[[list[Any], Span], Any]] = {
    "symbol": lambda c, span: syntax.SymbolDeclaration(c[0].text, after(c, "<="), span=span),
    "let": lambda c, span: syntax.LetDeclaration(c[0].text, c[2], span=span),
    "keyword": lambda c, span: syntax.Keyword(c[0].text, c[2], span=span),
    "assignment": lambda c, span: syntax.Keyword(c[0].text, c[2], span=span),
    "transfer": lambda c, span: Arrow(c[0], c[2], span=span),
    "pass": lambda c, span: syntax.Pass(span=span),
    "block": lambda c, span: nodes(c),
    "choice": lambda c, span: syntax.Choice(c[2], c[0], c[4], span=span),
    "binary": lambda c, span: syntax.Binary(c[1].text, c[0], c[2], span=span),
    "unary": lambda c, span: syntax.Unary(c[0].text, c[1], span=span),
    "access": lambda c, span: syntax.Subscript(c[0], nodes(c[1:]), span=span),
    "list": lambda c, span: syntax.List(nodes(c), span=span),
    "group": lambda c, span: records.evolve(c[1], span=span),
    "name": lambda c, span: syntax.Name(c[0].text, span=span),
    "string": lambda c, span: syntax.String(c[0].text[1:-1], span=span),
    "boolean": lambda c, span: syntax.Boolean(c[0].text in ("True", "true"), span=span),
    "new_axis": lambda c, span: syntax.NewAxis(span=span),
}


def after(children: Sequence[Any], separator: str) -> Any:
    """The child behind the token of type `separator`, or None."""
    for index, child in enumerate(children):
        if isinstance(child, Token) and child.type == separator:
            return children[index + 1]
    return None


def _number(text: str) -> int | float | None:
    """The value of a literal, or None when it fits neither i64 nor f64."""
    if text in ("inf", "nan"):
        return float(text)
    if text[:2].lower() in ("0x", "0o", "0b"):
        integer = int(text, 0)
        return integer if integer <= _LARGEST else None
    if any(character in ".eE" for character in text):
        value = float(text)
        return value if math.isfinite(value) else None
    digits = text.replace("_", "").lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > _LARGEST:
        return None
    return int(digits)

"""Parse-tree conversion: one function per rule of grammar/sketch.lark, building syntax nodes.

The driver in sketchc.parsing.parser calls `Converter.convert` at every reduction with the values of
the rule's symbols (tokens included). What the grammar accepts too widely is narrowed here; a wrong
part leaves a diagnostic and a harmless stand-in, since a file with errors has no tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, InternalError, Label, Source, Span
from sketchc.parsing import conversion_statements as statements
from sketchc.parsing import syntax
from sketchc.parsing.conversion_types import Tiling, TupleValue, Type, read_dtype
from sketchc.parsing.errors import Problem, nearest, replace
from sketchc.parsing.lexer import Token

_LARGEST = 2**63 - 1
_SECTIONS = (
    syntax.SymbolsSection,
    syntax.ParamsSection,
    syntax.LetSection,
    syntax.TensorsSection,
    syntax.WorkspaceSection,
    syntax.ViewsSection,
    syntax.ConstexprSection,
    syntax.RequireSection,
)


class Converter:
    """Builds the tree of one source; `diagnostics` collects what is wrong."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []
        self.rules: dict[str, Callable[[list[Any]], Any]] = {
            "file": self.file,
            "sketch": self.sketch,
            "symbols": self.symbols,
            "params": self.params,
            "lets": self.lets,
            "tensors": self.tensors,
            "workspace": self.workspace,
            "views": self.views,
            "constants": self.constants,
            "requirements": self.requirements,
            "symbol": self.symbol,
            "param": self.param,
            "let": self.let,
            "tensor": self.tensor,
            "type": self.type,
            "extent": self.extent,
            "view": self.view,
            "constant": self.constant,
            "tuple_value": self.tuple_value,
            "binding": lambda children: statements.binding(self, children),
            "command": lambda children: statements.command(self, children),
            "pass": lambda children: syntax.Pass(span=self.span(children)),
            "for": lambda children: statements.loop(self, children),
            "hint": lambda children: statements.hint(self, children),
            "if": lambda children: statements.branch(self, children),
            "block": statements.block,
            "keyword": self.keyword,
            "transfer": lambda children: statements.transfer(self, children),
            "binary": self.binary,
            "unary": self.unary,
            "choice": self.choice,
            "access": self.access,
            "name": lambda children: self.name(children[0]),
            "number": self.number,
            "string": self.string,
            "boolean": self.boolean,
            "call": lambda children: statements.call(self, children),
            "group": self.group,
            "list": self.list,
            "new_axis": lambda children: syntax.NewAxis(span=self.span(children)),
            "slice": self.slice,
            "tiling": self.tiling,
            "point": self.point,
            "assignment": self.keyword,
        }

    def convert(self, rule: str, children: list[Any]) -> Any:
        """The value of one reduction; raises InternalError for a rule without a function."""
        function = self.rules.get(rule)
        if function is None:
            message = f"no conversion for the grammar rule `{rule}`"
            raise InternalError(message)
        return function(children)

    # ------------------------------------------------------------ helpers

    def span_of(self, child: Any) -> Span:
        span: Span = child.span(self.source.name) if isinstance(child, Token) else child.span
        return span

    def span(self, children: Sequence[Any]) -> Span:
        """From the first child through the last; only what has a place may stand at the ends."""
        first = self.span_of(children[0])
        return first if len(children) == 1 else first.to(self.span_of(children[-1]))

    def report(self, problem: Problem, span: Span) -> None:
        self.diagnostics.append(problem.at(span))

    def name(self, token: Token) -> syntax.Name:
        return syntax.Name(token.text, span=token.span(self.source.name))

    def text(self, span: Span) -> str:
        return self.source.text[span.start : span.end]

    # ------------------------------------------------------------ file and sketch

    def file(self, children: list[Any]) -> syntax.File:
        sketches: list[syntax.Sketch] = []
        for child in children:
            if isinstance(child, syntax.Sketch):
                sketches.append(child)
            elif not sketches or sketches[-1].tilings:
                problem = Problem(
                    "SK0125",
                    "an `available_tiling` block follows its sketch, once",
                    label="no sketch for this block",
                )
                self.report(problem, child.span)
            else:
                sketches[-1] = records.evolve(
                    sketches[-1],
                    tilings=child.points,
                    misspelt_tiling=child.misspelt,
                    tiling_span=child.span,
                )
        span = self.span(children) if children else Span(self.source.name, 0, 0, 1, 1, 1, 1)
        return syntax.File(tuple(sketches), span=span)

    def sketch(self, children: list[Any]) -> syntax.Sketch:
        name = children[1]
        sections: list[Any] = []
        body: list[Any] = []
        for child in children[2:]:
            if isinstance(child, Token):
                continue
            if not isinstance(child, _SECTIONS):
                body.append(child)
                continue
            if body:
                problem = Problem(
                    "SK0113",
                    "a section stands behind a statement",
                    label="this section",
                    labels=(Label(body[0].span, "the first statement"),),
                    help="move it to the top of the sketch",
                )
                self.report(problem, child.span)
            sections.append(child)
        return syntax.Sketch(
            name.text,
            tuple(sections),
            tuple(body),
            span=self.span(children),
            name_span=self.span_of(name),
        )

    def tiling(self, children: list[Any]) -> Tiling:
        points = tuple(child for child in children if isinstance(child, syntax.TilingPoint))
        misspelt = children[0].text != "available_tiling"
        ends = [children[0], *(points[-1:] if points else children[-1:])]
        return Tiling(points, misspelt, self.span(ends))

    def point(self, children: list[Any]) -> syntax.TilingPoint:
        values = [child for child in children if not isinstance(child, Token)]
        self.unique([(value.name, value.span) for value in values])
        pairs = tuple((value.name, value.value) for value in values)
        return syntax.TilingPoint(pairs, span=self.span([values[0], values[-1]]))

    def unique(self, names: Sequence[tuple[str, Span]]) -> None:
        """Report names given twice."""
        seen: dict[str, Span] = {}
        for name, span in names:
            if name in seen:
                problem = Problem(
                    "SK0126",
                    f"`{name}` is given twice",
                    label="again here",
                    labels=(Label(seen[name], "first given here"),),
                )
                self.report(problem, span)
            seen.setdefault(name, span)

    # ------------------------------------------------------------ sections

    def items(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(child for child in children[2:] if not isinstance(child, Token))

    def section_span(self, children: list[Any]) -> Span:
        """Up to the last item or the colon: a final separator is not part of it."""
        ends = [child for child in children[2:] if not isinstance(child, Token)]
        return self.span([children[0], *(ends[-1:] or children[1:2])])

    def symbols(self, children: list[Any]) -> syntax.SymbolsSection:
        return syntax.SymbolsSection(self.items(children), span=self.section_span(children))

    def params(self, children: list[Any]) -> syntax.ParamsSection:
        return syntax.ParamsSection(self.items(children), span=self.section_span(children))

    def lets(self, children: list[Any]) -> syntax.LetSection:
        return syntax.LetSection(self.items(children), span=self.section_span(children))

    def tensors(self, children: list[Any]) -> syntax.TensorsSection:
        return syntax.TensorsSection(self.items(children), span=self.section_span(children))

    def workspace(self, children: list[Any]) -> syntax.WorkspaceSection:
        return syntax.WorkspaceSection(self.items(children), span=self.section_span(children))

    def views(self, children: list[Any]) -> syntax.ViewsSection:
        return syntax.ViewsSection(self.items(children), span=self.section_span(children))

    def requirements(self, children: list[Any]) -> syntax.RequireSection:
        return syntax.RequireSection(self.items(children), span=self.section_span(children))

    def constants(self, children: list[Any]) -> syntax.ConstexprSection:
        """Constants, with `m0, k0 = 128, 256` (the public listings) spread over its names."""
        constants: list[syntax.ConstexprDeclaration] = []
        from_tuple = False
        items = self.items(children)
        index = 0
        while index < len(items):
            item = items[index]
            index += 1
            if not isinstance(item, TupleValue):
                constants.append(item)
                continue
            values = [item.value]
            while index < len(items) and isinstance(items[index], TupleValue):
                values.append(items[index].value)
                index += 1
            from_tuple = True
            self.spread(constants, values)
        return syntax.ConstexprSection(
            tuple(constants), from_tuple, span=self.section_span(children)
        )

    def spread(self, constants: list[syntax.ConstexprDeclaration], values: list[Any]) -> None:
        """Give the last names the first name's value and `values`, in order."""
        count = len(values) + 1
        named = constants[-count:]
        bare = all(c.value is None and c.dtype is None and not c.choices for c in named[:-1])
        if len(named) < count or not bare or named[-1].value is None or named[-1].choices:
            problem = Problem(
                "SK0124",
                "the numbers of names and values differ",
                label="a value without its name",
                help="write `m0 = 128, k0 = 256`",
            )
            self.report(problem, values[0].span)
            return
        everything = [named[-1].value, *values]
        constants[-count:] = [
            records.evolve(constant, value=value)
            for constant, value in zip(named, everything, strict=True)
        ]

    def symbol(self, children: list[Any]) -> syntax.SymbolDeclaration:
        bound = children[2] if len(children) > 1 else None
        return syntax.SymbolDeclaration(children[0].text, bound, span=self.span(children))

    def param(self, children: list[Any]) -> syntax.ParamDeclaration:
        name = children[0]
        dtype = read_dtype(self, after(children, ":"))
        return syntax.ParamDeclaration(
            name.text, dtype, after(children, "="), span=self.span(children)
        )

    def let(self, children: list[Any]) -> syntax.LetDeclaration:
        return syntax.LetDeclaration(children[0].text, children[2], span=self.span(children))

    def extents(self, children: list[Any]) -> tuple[syntax.Extent, ...]:
        return tuple(child for child in children if isinstance(child, syntax.Extent))

    def tensor(self, children: list[Any]) -> syntax.TensorDeclaration:
        kind: Type = next(child for child in children if isinstance(child, Type))
        initial = after(children, "=")
        return syntax.TensorDeclaration(
            children[0].text,
            self.extents(children),
            kind.role,
            kind.dtype,
            initial,
            kind.optional,
            span=self.span(children),
            dtype_span=kind.dtype_span,
        )

    def type(self, children: list[Any]) -> Type:
        return Type.read(self, children)

    def extent(self, children: list[Any]) -> syntax.Extent:
        if len(children) == 3 and children[2].text != "1":
            problem = Problem(
                "SK0119",
                "only `M|1` marks an extent that may be 1",
                label="write 1",
                fixes=replace("write `1`", self.span_of(children[2]), "1"),
            )
            self.report(problem, self.span_of(children[2]))
        return syntax.Extent(children[0], len(children) == 3, span=self.span(children))

    def view(self, children: list[Any]) -> syntax.ViewDeclaration:
        base = children[-1]
        return syntax.ViewDeclaration(
            children[0].text,
            self.extents(children),
            base.text,
            span=self.span(children),
            base_span=self.span_of(base),
        )

    def constant(self, children: list[Any]) -> syntax.ConstexprDeclaration:
        choices = after(children, "in")
        return syntax.ConstexprDeclaration(
            children[0].text,
            read_dtype(self, after(children, ":")),
            after(children, "="),
            () if choices is None else choices.items,
            span=self.span(children),
        )

    def tuple_value(self, children: list[Any]) -> TupleValue:
        value: syntax.Expression = self.number(children[-1:])
        if len(children) == 2:
            value = syntax.Unary("-", value, span=self.span(children))
        return TupleValue(value, value.span)

    # ------------------------------------------------------------ expressions

    def keyword(self, children: list[Any]) -> syntax.Keyword:
        return syntax.Keyword(children[0].text, children[2], span=self.span(children))

    def binary(self, children: list[Any]) -> syntax.Binary:
        left, operator, right = children
        return syntax.Binary(operator.text, left, right, span=left.span.to(right.span))

    def unary(self, children: list[Any]) -> syntax.Unary:
        return syntax.Unary(children[0].text, children[1], span=self.span(children))

    def choice(self, children: list[Any]) -> syntax.Choice:
        then, _, condition, _, otherwise = children
        return syntax.Choice(condition, then, otherwise, span=then.span.to(otherwise.span))

    def access(self, children: list[Any]) -> syntax.Subscript:
        subscripts = tuple(child for child in children[1:] if not isinstance(child, Token))
        return syntax.Subscript(children[0], subscripts, span=self.span(children))

    def slice(self, children: list[Any]) -> syntax.Slice:
        parts: list[Any] = [None]
        for child in children:
            if isinstance(child, Token):
                parts.append(None)
            else:
                parts[-1] = child
        lower, upper, step = (*parts, None, None)[:3]
        return syntax.Slice(lower, upper, step, span=self.span(children))

    def number(self, children: list[Any]) -> syntax.Number:
        token = children[0]
        span = token.span(self.source.name)
        text = token.text
        value = _number(text)
        if value is None:
            problem = Problem(
                "SK0103",
                "the number is too large",
                label="does not fit",
                notes=("integers have 64 bits (up to 9223372036854775807), floats are f64",),
            )
            self.report(problem, span)
            value = 0
        return syntax.Number(value, text, span=span)

    def string(self, children: list[Any]) -> syntax.String:
        return syntax.String(children[0].text[1:-1], span=self.span(children))

    def boolean(self, children: list[Any]) -> syntax.Boolean:
        return syntax.Boolean(children[0].text in ("True", "true"), span=self.span(children))

    def group(self, children: list[Any]) -> syntax.Expression:
        """Parentheses leave no node; the span keeps them, so that its text is a whole operand."""
        inner: syntax.Expression = records.evolve(children[1], span=self.span(children))
        return inner

    def list(self, children: list[Any]) -> syntax.List:
        items = tuple(child for child in children if not isinstance(child, Token))
        return syntax.List(items, span=self.span(children))

    def misspelt(
        self, word: str, known: Sequence[str], span: Span, sure: bool = False
    ) -> dict[str, Any]:
        """The help and the fix for a misspelt word, as arguments of a Problem; `sure` where the
        only known word is another name for it, however it is spelt."""
        meant = known[0] if sure else nearest(word, known)
        if meant is None:
            return {"help": "one of " + ", ".join(known)}
        title = f"write `{meant}`"
        return {"help": f"did you mean `{meant}`?", "fixes": replace(title, span, meant)}


def after(children: Sequence[Any], separator: str) -> Any:
    """The child behind the token of type `separator`, or None."""
    for index, child in enumerate(children):
        if isinstance(child, Token) and child.type == separator:
            return children[index + 1]
    return None


def _number(text: str) -> int | float | None:
    """The value of a literal, or None when it fits neither i64 nor f64."""
    if text == "inf":
        return math.inf
    if text == "nan":
        return math.nan
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

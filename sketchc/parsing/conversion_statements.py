"""Conversion of statements and calls, on top of the conversion of declarations and expressions.

The grammar reads every call alike; here `load(X[...] -> tile)`, `alloc([...], f32, init=0)`, loops
and hints get their own nodes, and what does not fit gets its own message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.ops.host_functions import INTEGER_FUNCTIONS
from sketchc.parsing import syntax
from sketchc.parsing.conversion import Arrow, Conversion, nodes
from sketchc.parsing.errors import replace
from sketchc.parsing.lexer import Token

#: Functions of integer expressions; any other call that is assigned is an operation.
_INTEGER_FUNCTIONS = INTEGER_FUNCTIONS | {"iota", "present"}
_ATOMICS = ("atomic_add", "atomic_max", "atomic_min")
_TRANSFERS = ("load", "store", *_ATOMICS)
_ALLOC_KEYWORDS = ("dtype", "init", "llm_hint")


@records.frozen
class Arguments:
    """The arguments of one call, sorted out."""

    positional: tuple[syntax.Expression, ...]
    keywords: tuple[syntax.Keyword, ...]
    transfers: tuple[Arrow, ...]
    late: syntax.Expression | None  # a positional argument behind a keyword


class Converter(Conversion):
    """Builds the tree of one source: adds statements and calls to `Conversion`."""

    def _arguments(self, children: Sequence[Any]) -> Arguments:
        positional: list[syntax.Expression] = []
        keywords: list[syntax.Keyword] = []
        transfers: list[Arrow] = []
        late = None
        for child in children:
            match child:
                case Token():
                    continue
                case syntax.Keyword():
                    keywords.append(child)
                case Arrow():
                    transfers.append(child)
                case _:
                    late = late or (child if keywords else None)
                    positional.append(child)
        self.unique([(keyword.name, keyword.span) for keyword in keywords])
        return Arguments(tuple(positional), tuple(keywords), tuple(transfers), late)

    def _without_arrow(self, arguments: Arguments) -> None:
        if arguments.transfers:
            span = arguments.transfers[0].span
            self.error(span, "SK0115", "`->` stands in `load`, `store` and atomics only")

    def _on_call(self, children: list[Any], span: Span) -> syntax.Call:
        """A call inside an expression."""
        arguments = self._arguments(children[2:-1])
        self._without_arrow(arguments)
        if arguments.late is not None:
            self.error(arguments.late.span, "SK0126", "positional arguments stand before keywords")
        return syntax.Call(
            children[0].text,
            arguments.positional,
            arguments.keywords,
            function_span=self.span_of(children[0]),
            span=span,
        )

    # ------------------------------------------------------------ commands

    def _on_command(self, children: list[Any], span: Span) -> syntax.Statement:
        """A call as a statement."""
        name = children[0].text
        arguments = self._arguments(children[2:-1])
        if name in _TRANSFERS:
            return self._transfer_command(name, arguments, span)
        if arguments.transfers:
            return self._invoke(children[0], arguments, span)
        if name in ("alloc", "fetch"):
            self.error(
                span,
                "SK0116",
                f"the result of `{name}` needs a name",
                label="bound to nothing",
                help=f"write `tile = {name}(...)`",
            )
            return syntax.Pass(span=span)
        return syntax.Compute(
            name,
            arguments.positional,
            arguments.keywords,
            arguments.late is not None,
            span=span,
            operation_span=self.span_of(children[0]),
        )

    def _invoke(self, name: Token, arguments: Arguments, span: Span) -> syntax.Statement:
        """`sketch(X, W -> Y, eps=1e-5)`; `_on_sketch` reports one outside a program."""
        if len(arguments.transfers) > 1:
            place = arguments.transfers[1].span
            self.error(place, "SK0115", "a call has one `->`", label="the second one")
        if arguments.late is not None:
            self.error(arguments.late.span, "SK0126", "positional arguments stand before keywords")
        pair = arguments.transfers[0]
        # `->` joins what is on its sides: the last input and the first output.
        inputs = [each for each in arguments.positional if each.span.start < pair.span.start]
        outputs = [each for each in arguments.positional if each.span.start > pair.span.start]
        return syntax.Invoke(
            name.text,
            (*inputs, pair.left),
            (pair.right, *outputs),
            arguments.keywords,
            span=span,
            sketch_span=self.span_of(name),
        )

    def _transfer_command(self, name: str, arguments: Arguments, span: Span) -> syntax.Statement:
        """`load(X[...] -> tile)`, or `store(tile -> X[...])` and the atomics."""
        form = "load(X[...] -> tile)" if name == "load" else f"{name}(tile -> X[...])"
        if len(arguments.transfers) != 1 or arguments.positional:
            self.error(
                span,
                "SK0115",
                f"`{name}` needs one `->` between its source and its destination",
                label="`->` is missing" if not arguments.transfers else "one access only",
                help=f"write `{form}`",
                fixes=self._arrow(arguments),
            )
            return syntax.Pass(span=span)
        pair = arguments.transfers[0]
        access, tile = (pair.left, pair.right) if name == "load" else (pair.right, pair.left)
        if isinstance(access, syntax.Name) and isinstance(tile, syntax.Subscript):
            text = f"{self.text(pair.right.span)} -> {self.text(pair.left.span)}"
            self.error(
                pair.span,
                "SK0115",
                f"the sides of `->` are exchanged: it is written `{form}`",
                label="the wrong way round",
                fixes=replace("exchange the sides", pair.span, text, safe=True),
            )
            return syntax.Pass(span=span)
        if not isinstance(access, syntax.Subscript) or not isinstance(access.base, syntax.Name):
            self.error(
                access.span,
                "SK0115",
                "a memory access names its tensor and every subscript",
                label="not an access",
                help=f"write `{form}`, with `0:N` for a whole axis",
            )
            return syntax.Pass(span=span)
        if name == "load" and not isinstance(tile, syntax.Name):
            self.error(
                tile.span,
                "SK0115",
                "a whole tile is loaded: its name stands alone",
                label="not the name of a tile",
                help=f"write `{form}`",
            )
            return syntax.Pass(span=span)
        return syntax.Transfer(name, tile, access, arguments.keywords, span=span)

    def _arrow(self, arguments: Arguments) -> Any:
        """The fix for `load(X[...], tile)`."""
        if arguments.transfers or len(arguments.positional) != 2:
            return ()
        left, right = arguments.positional
        between = left.span.after.to(right.span.before)
        return replace("write `->`", between, " -> ", safe=True)

    # ------------------------------------------------------------ bindings

    def _on_binding(self, children: list[Any], span: Span) -> syntax.Statement:
        """`name = ...`: a tile, a fetched value, or immutable integers."""
        split = next(
            index
            for index, child in enumerate(children)
            if isinstance(child, Token) and child.type == "="
        )
        names = tuple(self.name(child) for child in children[:split] if child.type == "NAME")
        values = nodes(children[split + 1 :])
        if len(names) != len(values):
            self.error(
                span,
                "SK0124",
                f"{len(names)} names on the left, {len(values)} values on the right",
                label="the numbers differ",
            )
            return syntax.Pass(span=span)
        if len(names) == 1 and isinstance(values[0], syntax.Call):
            value = values[0]
            if value.function == "alloc":
                return self._alloc(names[0], value, span)
            if value.function == "fetch":
                return self._fetch(names[0], value, span)
        for name, value in zip(names, values, strict=True):
            self._check_value(name, value, span if len(names) == 1 else None)
        return syntax.Binding(names, values, span=span)

    def _check_value(self, name: syntax.Name, value: syntax.Expression, span: Span | None) -> None:
        """Report an operation that is bound to a name: it returns no value, but writes to its last
        argument."""
        if not isinstance(value, syntax.Call) or value.function in _INTEGER_FUNCTIONS:
            return
        inner = ", ".join(
            self.text(part.span) for part in (*value.arguments, name, *value.keywords)
        )
        better = f"{value.function}({inner})"
        known = value.function not in ("alloc", "fetch", *_TRANSFERS) and span is not None
        self.error(
            value.span,
            "SK0116",
            f"`{value.function}` does not return a value",
            label="only `alloc`, `fetch` and integers are bound to a name",
            help=f"write `{better}`, with `{name.id}` allocated before" if known else "",
            fixes=replace("make it a statement", span, better, safe=True) if known and span else (),
        )

    def _alloc(self, name: syntax.Name, value: syntax.Call, span: Span) -> syntax.Statement:
        """`name = alloc([extents], dtype, init=, llm_hint=)`."""
        form = "alloc([extents], dtype, init=..., llm_hint=...)"
        arguments = value.arguments
        if not arguments or not isinstance(arguments[0], syntax.List) or len(arguments) > 2:
            self.error(
                value.span, "SK0117", "`alloc` takes a list of extents", help=f"write `{form}`"
            )
            return syntax.Pass(span=span)
        keywords = {keyword.name: keyword for keyword in value.keywords}
        for keyword in value.keywords:
            if keyword.name not in _ALLOC_KEYWORDS:
                place = keyword.span.first(len(keyword.name))
                advice = self.misspelt(keyword.name, _ALLOC_KEYWORDS, place)
                self.error(
                    keyword.span, "SK0117", f"`alloc` has no argument `{keyword.name}`", **advice
                )
        written = arguments[1] if len(arguments) == 2 else None
        if written is not None and "dtype" in keywords:
            self.error(keywords["dtype"].span, "SK0126", "the element type is given twice")
        elif "dtype" in keywords:
            written = keywords["dtype"].value
        dtype = None
        if isinstance(written, syntax.Name):
            dtype = self.dtype(written)
        elif written is not None:
            self.error(
                written.span,
                "SK0117",
                "an element type such as `f32` was expected",
                help=f"write `{form}`",
            )
        initial = keywords["init"].value if "init" in keywords else None
        hints = keywords["llm_hint"].value if "llm_hint" in keywords else None
        return syntax.Alloc(
            name.id,
            arguments[0].items,
            dtype,
            initial,
            () if hints is None else self._words((hints,)),
            span=span,
            name_span=name.span,
            type_name=self.type_name(written),
        )

    def _fetch(self, name: syntax.Name, value: syntax.Call, span: Span) -> syntax.Statement:
        """`name = fetch(T[i])`."""
        arguments = value.arguments
        if len(arguments) == 1 and not value.keywords:
            access = arguments[0]
            if isinstance(access, syntax.Subscript) and isinstance(access.base, syntax.Name):
                return syntax.Fetch(name.id, access, span=span)
        self.error(
            value.span, "SK0117", "`fetch` reads one element", help="write `n = fetch(T[i])`"
        )
        return syntax.Pass(span=span)

    # ------------------------------------------------------------ loops, branches, hints

    def _words(self, values: Sequence[Any]) -> tuple[syntax.String, ...]:
        """The hint words among `values`, which hold them one by one or in lists."""
        words: list[syntax.String] = []
        for value in values:
            parts = value.items if isinstance(value, syntax.List) else (value,)
            for part in parts:
                if isinstance(part, syntax.String):
                    words.append(part)
                    continue
                self.error(
                    part.span,
                    "SK0120",
                    "a hint is a word in quotes",
                    label="not a string",
                    help='write "parallel"',
                )
        return tuple(words)

    def _on_hint(self, children: list[Any], span: Span) -> syntax.Hint:
        """One `@llm_hint(...)` line."""
        name = children[1]
        if name.text != "llm_hint":
            place = self.span_of(name)
            self.error(
                place,
                "SK0120",
                f"there is no decorator `@{name.text}`",
                label="only `@llm_hint(...)` stands before a loop",
                fixes=replace("write `llm_hint`", place, "llm_hint", safe=True),
            )
        arguments = self._arguments(children[3:-2])
        self._without_arrow(arguments)
        words = self._words(arguments.positional)
        return syntax.Hint(words, arguments.keywords, span=self.span(children[:-1]))

    def _on_for(self, children: list[Any], span: Span) -> syntax.For:
        """`for variable in range(...)` with its hints and body."""
        start = next(index for index, child in enumerate(children) if isinstance(child, Token))
        hints = tuple(children[:start])
        head = children[start:-1]
        variable, function = head[1], head[3]
        arguments = self._arguments(head[5:-2])
        if function.text != "range":
            place = self.span_of(function)
            self.error(
                place,
                "SK0118",
                f"a loop runs over `range(...)`, not `{function.text}(...)`",
                label="not a range",
                fixes=replace("write `range`", place, "range"),
            )
        elif arguments.keywords or arguments.transfers or not 1 <= len(arguments.positional) <= 3:
            self.error(
                self.span(head[3:-1]),
                "SK0118",
                "`range` takes a stop, a start and a stop, or a start, a stop and a step",
                label="one to three expressions",
                help="write `range(N)`, `range(start, stop)` or `range(start, stop, step)`",
            )
        return syntax.For(
            self.name(variable),
            arguments.positional,
            hints,
            children[-1],
            span=self.span(head),
        )

    def _on_if(self, children: list[Any], span: Span) -> syntax.If:
        """`if condition:` with its body, and the body of its `else`."""
        orelse = children[6] if len(children) > 4 else ()
        return syntax.If(children[1], children[3], orelse, span=self.span(children[:3]))

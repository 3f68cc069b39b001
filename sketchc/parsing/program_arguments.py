"""The tensors that a program calls a sketch with: their number, types, ranks, roles and order."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Unpack

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, More, Span, error
from sketchc.parsing import syntax
from sketchc.parsing.calls import Argument, role_of, split
from sketchc.parsing.errors import guess
from sketchc.parsing.program_scope import Scope
from sketchc.parsing.unparse import expression_text


class InvalidCallError(Exception):
    """Raised to leave a call of the program whose mistake has been reported."""


@records.define(eq=False)
class Matching:
    """Matches the tensors of calls with those of sketches. `later` are, for each loop around the
    call, the tensors that calls in it may write."""

    scope: Scope
    known: Mapping[str, syntax.Sketch]
    programs: Container[str]  # all of the file
    diagnostics: list[Diagnostic]
    written: set[str] = records.field(factory=set)
    later: list[frozenset[str]] = records.field(factory=list)

    def error(
        self, span: Span, code: str, message: str, label: str = "", **more: Unpack[More]
    ) -> InvalidCallError:
        """Report an error; returns the exception for the caller to raise."""
        self.diagnostics.append(error(span, code, message, label, **more))
        return InvalidCallError(message)

    def callee(self, call: syntax.Invoke) -> syntax.Sketch:
        """The sketch that `call` names, of one with `types:` the instance for the types of the
        arguments; an unknown one is reported, and raises."""
        found = self.known.get(call.sketch)
        if found is not None:
            return found
        instances = [each for each in self.known.values() if each.written_name == call.sketch]
        if instances:
            # Where none has these types, the first one shows which argument does not fit.
            return next((i for i in instances if self._same_types(call, i)), instances[0])
        if call.sketch in self.programs:
            raise self.error(
                call.sketch_span,
                "SK0141",
                f"the program `{call.sketch}` ends behind this call",
                "not complete here",
                help="a program calls sketches of its file, and the programs above it",
            )
        label, fixes = guess("call", call.sketch, self.known, call.sketch_span, "not known")
        raise self.error(
            call.sketch_span,
            "SK0141",
            f"the file has no sketch `{call.sketch}`",
            label,
            help="a program calls sketches of its file, and the programs above it",
            fixes=fixes,
        )

    def _same_types(self, call: syntax.Invoke, callee: syntax.Sketch) -> bool:
        """Whether the tensors that `call` names have the types of those of `callee`."""
        inputs, outputs = split(callee)
        formals = {t.name: t for t in (*inputs, *outputs)}
        pairs = [
            *zip(inputs, call.inputs, strict=False),
            *zip(outputs, call.outputs, strict=False),
            *((formals[k.name], k.value) for k in call.keywords if k.name in formals),
        ]
        for formal, node in pairs:
            base = node.base if isinstance(node, syntax.Subscript) else node
            name = base.id if isinstance(base, syntax.Name) else ""
            view = self.scope.views.get(name)
            tensor = self.scope.tensors.get(name if view is None else view.base)
            if tensor is not None and tensor.dtype is not formal.dtype:
                return False
        return True

    def arguments(self, call: syntax.Invoke, callee: syntax.Sketch) -> dict[str, Argument]:
        """The argument for each tensor of `callee`, by name; optional ones may be missing."""
        formals = {t.name: t for t in syntax.declared(callee, "tensors")}
        inputs, outputs = split(callee)
        given: dict[str, syntax.Expression] = {}
        for sort, several, nodes in (
            ("input", inputs, call.inputs),
            ("output", outputs, call.outputs),
        ):
            if len(nodes) > len(several):
                raise self._count(callee, sort, len(several), nodes[len(several)].span)
            given |= {t.name: node for t, node in zip(several, nodes, strict=False)}
        for keyword in call.keywords:
            if keyword.name in formals:
                if keyword.name in given:
                    raise self.error(keyword.span, "SK0142", f"`{keyword.name}` is given twice")
                given[keyword.name] = keyword.value
        for tensor in formals.values():
            if tensor.name not in given and not tensor.optional:
                sort, side = ("input", inputs) if tensor in inputs else ("output", outputs)
                raise self._count(callee, sort, len(side), call.span, tensor.name)
        self._keywords(call, callee)
        found = {
            name: self._argument(given[name], tensor)
            for name, tensor in formals.items()
            if name in given
        }
        self._aliases(callee, found)
        self._order(callee, found)
        return found

    def _count(
        self, callee: syntax.Sketch, sort: str, count: int, span: Span, missing: str = ""
    ) -> InvalidCallError:
        plural = "" if count == 1 else "s"
        return self.error(
            span,
            "SK0142",
            f"`{callee.name}` has {count or 'no'} {sort}{plural}",
            f"`{missing}` is missing" if missing else "one too many",
            labels=(Label(callee.name_span, "the sketch that is called"),),
            help=f"call it as `{form(callee)}`",
        )

    def _keywords(self, call: syntax.Invoke, callee: syntax.Sketch) -> None:
        """Report the keyword arguments of `call` that `callee` does not declare."""
        keywords = ("tensors", "symbols", "params", "constexpr")
        known = [item.name for item in syntax.declared(callee, *keywords)]
        for keyword in call.keywords:
            if keyword.name in known:
                continue
            place = keyword.span.first(len(keyword.name))
            otherwise = "no tensor, size, param or constant"
            label, fixes = guess("write", keyword.name, known, place, otherwise)
            self.error(
                place,
                "SK0142",
                f"`{callee.name}` has no `{keyword.name}`",
                label,
                help=f"call it as `{form(callee)}`",
                fixes=fixes,
            )

    def _argument(self, node: syntax.Expression, formal: syntax.TensorDeclaration) -> Argument:
        """The argument that `node` gives for `formal`: a tensor, a view, or a part of one by its
        first indices."""
        indices: tuple[Any, ...] = ()
        base: object = node
        if isinstance(node, syntax.Subscript):
            base, indices = node.base, node.subscripts
        ranges = any(isinstance(each, syntax.Slice | syntax.NewAxis) for each in indices)
        if not isinstance(base, syntax.Name) or ranges:
            raise self.error(
                node.span,
                "SK0142",
                f"`{formal.name}` is a tensor",
                "no tensor",
                help="pass a tensor, a buffer or a view by its name, or what is at its first "
                "indices, as in `W[i]`; other parts of a tensor are a sketch's to make",
            )
        view = self.scope.views.get(base.id)
        tensor = self.scope.tensors.get(base.id if view is None else view.base)
        if tensor is None:
            known = [*self.scope.tensors, *self.scope.views]
            label, fixes = guess("use", base.id, known, base.span, "no tensor of the program")
            message = f"unknown name `{base.id}`"
            raise self.error(base.span, "SK0201", message, label, fixes=fixes)
        if not self.scope.names_known(indices):
            raise InvalidCallError(base.id)
        extents = (tensor if view is None else view).extents[len(indices) :]
        argument = Argument(base.id, tensor, indices, tuple(extents), node.span)
        self._fits(argument, node, formal)
        return argument

    def _fits(
        self, argument: Argument, node: syntax.Expression, formal: syntax.TensorDeclaration
    ) -> None:
        """Check that `argument` has the rank and the type of `formal`, and is not absent where
        `formal` is required."""
        tensor = argument.tensor
        if tensor.optional and (argument.indices or not formal.optional):
            raise self.error(
                node.span,
                "SK0142",
                f"`{tensor.name}` may be absent",
                f"`{formal.name}` has to be there" if not formal.optional else "a part of it",
                labels=(Label(tensor.span, "declared here"),),
                help="call the sketch in a branch `if present(...)` of another one, or make both "
                "required or both optional",
            )
        rank, own = len(formal.extents), len(argument.extents)
        if own != rank:
            axes = "1 axis" if rank == 1 else f"{rank} axes"
            raise self.error(
                node.span,
                "SK0143",
                f"`{formal.name}` has {axes}, `{expression_text(node)}` has {own or 'none'}",
                "another number of axes",
                labels=(Label(formal.span, f"`{formal.name}` is declared here"),),
            )
        if tensor.dtype is not formal.dtype:
            advice = "convert it in a sketch, or write one for this type"
            if formal.type_name is not None:
                advice = f"add {tensor.dtype.value} to the choices of `{formal.type_name}`"
            raise self.error(
                node.span,
                "SK0143",
                f"`{formal.name}` holds {formal.dtype.value}, `{tensor.name}` {tensor.dtype.value}",
                "another type",
                labels=(Label(formal.dtype_span, "the type that the sketch has"),),
                help=advice,
            )

    # ------------------------------------------------------------ roles and order

    def _aliases(self, callee: syntax.Sketch, arguments: Mapping[str, Argument]) -> None:
        """Check that no tensor that a call writes is an input of the program, or given to the call
        a second time."""
        for formal in syntax.declared(callee, "tensors"):
            if role_of(callee, formal) == "in" or formal.name not in arguments:
                continue
            own = arguments[formal.name]
            if self.scope.role(own.tensor) == "in" or own.tensor.optional:
                raise self.error(
                    own.span,
                    "SK0144",
                    f"`{own.tensor.name}` is an input of the program",
                    "written by this call",
                    labels=(Label(own.tensor.span, "declared here"),),
                    help="write into a buffer, or declare it `inout`",
                )
            for name, other in arguments.items():
                if name != formal.name and other.tensor.name == own.tensor.name:
                    raise self.error(
                        own.span,
                        "SK0144",
                        f"`{own.tensor.name}` is written by this call, and given to it as well",
                        f"written as `{formal.name}`",
                        labels=(Label(other.span, f"given as `{name}`"),),
                        help="use another buffer, or a sketch with an `inout` tensor",
                    )

    def _order(self, callee: syntax.Sketch, arguments: Mapping[str, Argument]) -> None:
        """Check that no tensor is read before a call has written it. In a loop, an earlier
        iteration may have: that is left to the checker."""
        for formal in syntax.declared(callee, "tensors"):
            argument = arguments.get(formal.name)
            if argument is None or role_of(callee, formal) == "out":
                continue
            tensor = argument.tensor
            # A tensor has its first value where the caller gives it one, or the declaration does.
            begun = self.scope.role(tensor) != "out" or tensor.initial is not None
            if begun or any(tensor.name in some for some in (self.written, *self.later)):
                continue
            raise self.error(
                argument.span,
                "SK0145",
                f"`{tensor.name}` is read before any call has written it",
                f"read as `{formal.name}`",
                labels=(Label(tensor.span, "declared here"),),
                help="call the sketch that writes it first, or give it an initial value, `= 0`",
            )
        for formal in syntax.declared(callee, "tensors"):
            if formal.name in arguments and role_of(callee, formal) != "in":
                self.written.add(arguments[formal.name].tensor.name)


def form(callee: syntax.Sketch) -> str:
    """The text of a call of a sketch, for messages."""
    inputs, outputs = split(callee)
    told, behind = [t.name for t in inputs], [t.name for t in outputs]
    params = syntax.declared(callee, "params")
    needed = [f"{param.name}=..." for param in params if param.default is None]
    parts = [f"{name}=..." for name in told + behind]
    if told and behind:
        parts = [*told[:-1], f"{told[-1]} -> {behind[0]}", *behind[1:]]
    return f"{callee.name}({', '.join([*parts, *needed])})"

"""Programs: sketches that are called in order, and the one sketch that a program means.

A program computes nothing itself. It means the sketch in which every call is the body of the
called sketch: its tensors are the arguments, its sizes are theirs, its params are the values given,
its constants are shared by all calls of it, and its workspaces and host values are the program's.
Each call is a block, whose statements are phases of their own. So everything that reads sketches
(the checker, the interpreter, the targets, the verifier) reads programs, and a file's tree has a
program as that sketch, beside what was written.

Here is what concerns calls themselves: who is called, with how many tensors of which types and
shapes, that nothing is read before it is written, and that no output of a call is an input of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, More, Span, error
from sketchc.base.types import DType, rounded
from sketchc.parsing import syntax
from sketchc.parsing.calls import (
    Argument,
    Replacement,
    difference,
    filling,
    free,
    literal,
    local_names,
    numeral,
    replaced,
    role_of,
    split,
    type_of,
)
from sketchc.parsing.errors import nearest, replace
from sketchc.parsing.unparse import expression_text


class _InvalidError(Exception):
    """Unwinds to the enclosing call, whose mistake was reported."""


def expand(tree: syntax.File) -> tuple[syntax.File, list[Diagnostic]]:
    """The file with every program as the sketch that it means, and what is wrong with calls."""
    known: dict[str, syntax.Sketch] = {}
    for sketch in tree.sketches:
        if sketch.program is None:
            known.setdefault(sketch.name, sketch)
    programs = {sketch.name for sketch in tree.sketches if sketch.program is not None}
    found: list[Diagnostic] = []
    units = []
    for unit in tree.sketches:
        if unit.program is not None:
            expansion = _Expansion(unit, unit.program, known, programs)
            unit = expansion.sketch()
            found += expansion.diagnostics
            known.setdefault(unit.name, unit)
        units.append(unit)
    return records.evolve(tree, sketches=tuple(units)), found


@records.define(eq=False)
class _Expansion:
    """The expansion of one program; `added` are the declarations that calls bring along."""

    unit: syntax.Sketch
    program: syntax.Program
    known: Mapping[str, syntax.Sketch]
    programs: Container[str]  # all of the file
    diagnostics: list[Diagnostic] = records.field(factory=list)
    added: dict[str, list[Any]] = records.field(factory=dict)
    taken: set[str] = records.field(factory=set)
    params: dict[str, DType] = records.field(factory=dict)
    tensors: dict[str, syntax.TensorDeclaration] = records.field(factory=dict)
    views: dict[str, syntax.ViewDeclaration] = records.field(factory=dict)
    buffers: frozenset[str] = frozenset()
    constants: dict[str, dict[str, syntax.Expression]] = records.field(factory=dict)
    tilings: list[tuple[syntax.TilingPoint, ...]] = records.field(factory=list)
    written: set[str] = records.field(factory=set)
    loops: list[syntax.For] = records.field(factory=list)

    def error(
        self, span: Span, code: str, message: str, label: str = "", **more: Unpack[More]
    ) -> _InvalidError:
        """Report an error; returns what unwinds to the call."""
        self.diagnostics.append(error(span, code, message, label, **more))
        return _InvalidError(message)

    # ------------------------------------------------------------ the whole

    def sketch(self) -> syntax.Sketch:
        """The sketch that the program means."""
        self._declared()
        body = self._block(self.program.body)
        sections = [
            records.evolve(section, keyword="workspace")
            if section.keyword == "buffers"
            else section
            for section in self.program.sections
        ]
        sections += [
            syntax.Section(keyword, tuple(items), span=self.program.name_span)
            for keyword, items in self.added.items()
        ]
        tilings = self.unit.tilings or _points(self.tilings)
        return records.evolve(self.unit, sections=tuple(sections), body=body, tilings=tilings)

    def _declared(self) -> None:
        for section in self.program.sections:
            for item in section.items:
                name = getattr(item, "name", None)
                if name is not None:
                    self.taken.add(name)
                match item:
                    case syntax.TensorDeclaration():
                        self.tensors.setdefault(item.name, item)
                    case syntax.ViewDeclaration():
                        self.views.setdefault(item.name, item)
                    case syntax.ParamDeclaration():
                        self.params[item.name] = item.dtype or type_of(literal(item.default))
            if section.keyword == "buffers":
                self._check_buffers(section)
        # A tensor has its first value where the caller gives it one, or the declaration does.
        for tensor in self.tensors.values():
            given = tensor.name not in self.buffers and tensor.role != "out"
            if given or tensor.initial is not None:
                self.written.add(tensor.name)
        for each in syntax.parts(self.program.body):
            if isinstance(each, syntax.For):
                self.taken.add(each.variable.id)

    def _check_buffers(self, section: syntax.Section) -> None:
        self.buffers |= {item.name for item in section.items}
        for item in section.items:
            if item.role is not None or item.optional:
                self.error(
                    item.dtype_span,
                    "SK0140",
                    f"the buffer `{item.name}` is the program's own",
                    "a role",
                    help=f"write `{item.dtype.value}` alone; what the caller gives are `tensors:`",
                )

    def _block(self, body: Iterable[syntax.Statement]) -> tuple[syntax.Statement, ...]:
        made: list[syntax.Statement] = []
        for statement in body:
            match statement:
                case syntax.Invoke():
                    try:
                        made += self._call(statement)
                    except _InvalidError:
                        # What it would have written counts as written.
                        self.written |= set(syntax.names(statement.outputs))
                case syntax.For():
                    self.loops.append(statement)
                    made.append(records.evolve(statement, body=self._block(statement.body)))
                    self.loops.pop()
                case syntax.If():
                    parts = self._block(statement.body), self._block(statement.orelse)
                    made.append(records.evolve(statement, body=parts[0], orelse=parts[1]))
                case _:
                    made.append(statement)
        return tuple(made)

    # ------------------------------------------------------------ one call

    def _call(self, call: syntax.Invoke) -> tuple[syntax.Statement, ...]:
        """The block that a call is."""
        callee = self._callee(call)
        arguments = self._arguments(call, callee)
        self._aliases(call, callee, arguments)
        self._order(call, callee, arguments)
        names: dict[str, Replacement] = {}
        for tensor in syntax.declared(callee, "tensors"):
            names[tensor.name] = arguments.get(tensor.name, False)
        names |= self._symbols(call, callee, arguments)
        names |= self._constants(call, callee)
        names |= self._params(call, callee, names)
        before = [*self._lets(callee, names)]
        self._workspaces(call, callee, names)
        self._views(call, callee, arguments, names)
        self._agree(call, callee, arguments, names)
        self._requires(call, callee, names)
        names |= self._locals(callee)
        before += self._initial_values(call, callee, arguments, names)
        body = (*before, *replaced(callee.body, names))
        whole = syntax.Boolean(True, span=call.sketch_span)
        return (syntax.If(whole, body, span=call.span),)

    def _callee(self, call: syntax.Invoke) -> syntax.Sketch:
        found = self.known.get(call.sketch)
        if found is not None:
            return found
        if call.sketch in self.programs:
            raise self.error(
                call.sketch_span,
                "SK0141",
                f"the program `{call.sketch}` ends behind this call",
                "not complete here",
                help="a program calls sketches of its file, and the programs above it",
            )
        meant = nearest(call.sketch, self.known)
        raise self.error(
            call.sketch_span,
            "SK0141",
            f"the file has no sketch `{call.sketch}`",
            "not known" if meant is None else f"did you mean `{meant}`?",
            help="a program calls sketches of its file, and the programs above it",
            fixes=() if meant is None else replace(f"call `{meant}`", call.sketch_span, meant),
        )

    def _arguments(self, call: syntax.Invoke, callee: syntax.Sketch) -> dict[str, Argument]:
        """The tensor that stands for each tensor of the sketch; optional ones may be missing."""
        formals = {t.name: t for t in syntax.declared(callee, "tensors")}
        inputs = [t for t in formals.values() if role_of(callee, t) == "in"]
        outputs = [t for t in formals.values() if role_of(callee, t) != "in"]
        given: dict[str, syntax.Expression] = {}
        for sort, several, written in (
            ("input", inputs, call.inputs),
            ("output", outputs, call.outputs),
        ):
            if len(written) > len(several):
                raise self._number(call, callee, sort, len(several), written[len(several)].span)
            given |= {t.name: node for t, node in zip(several, written, strict=False)}
        for keyword in call.keywords:
            if keyword.name in formals:
                if keyword.name in given:
                    raise self.error(keyword.span, "SK0142", f"`{keyword.name}` is given twice")
                given[keyword.name] = keyword.value
        for tensor in formals.values():
            if tensor.name not in given and not tensor.optional:
                sort = "input" if tensor in inputs else "output"
                side = inputs if sort == "input" else outputs
                raise self._number(call, callee, sort, len(side), call.span, tensor.name)
        self._keywords(call, callee)
        return {
            name: self._argument(given[name], tensor)
            for name, tensor in formals.items()
            if name in given
        }

    def _number(
        self,
        call: syntax.Invoke,
        callee: syntax.Sketch,
        sort: str,
        count: int,
        span: Span,
        missing: str = "",
    ) -> _InvalidError:
        what = f"`{missing}` is missing" if missing else "one too many"
        plural = "" if count == 1 else "s"
        return self.error(
            span,
            "SK0142",
            f"`{callee.name}` has {count or 'no'} {sort}{plural}",
            what,
            labels=(Label(callee.name_span, "the sketch that is called"),),
            help=f"call it as `{_form(callee)}`",
        )

    def _keywords(self, call: syntax.Invoke, callee: syntax.Sketch) -> None:
        """Every name that is given is one of the sketch."""
        keywords = ("tensors", "symbols", "params", "constexpr")
        known = [item.name for item in syntax.declared(callee, *keywords)]
        for keyword in call.keywords:
            if keyword.name in known:
                continue
            place = keyword.span.first(len(keyword.name))
            meant = nearest(keyword.name, known)
            self.error(
                place,
                "SK0142",
                f"`{callee.name}` has no `{keyword.name}`",
                "no tensor, size, param or constant"
                if meant is None
                else f"did you mean `{meant}`?",
                help=f"call it as `{_form(callee)}`",
                fixes=() if meant is None else replace(f"write `{meant}`", place, meant),
            )

    def _argument(self, node: syntax.Expression, formal: syntax.TensorDeclaration) -> Argument:
        """A tensor, a view, or what is at the first indices of one."""
        indices: tuple[Any, ...] = ()
        base: object = node
        if isinstance(node, syntax.Subscript):
            base, indices = node.base, node.subscripts
        if not isinstance(base, syntax.Name) or any(
            isinstance(each, syntax.Slice | syntax.NewAxis) for each in indices
        ):
            raise self.error(
                node.span,
                "SK0142",
                f"`{formal.name}` is a tensor",
                "no tensor",
                help="pass a tensor, a buffer or a view by its name, or what is at its first "
                "indices, as in `W[i]`; other parts of a tensor are a sketch's to make",
            )
        view = self.views.get(base.id)
        tensor = self.tensors.get(base.id if view is None else view.base)
        if tensor is None:
            known = [*self.tensors, *self.views]
            meant = nearest(base.id, known)
            raise self.error(
                base.span,
                "SK0201",
                f"unknown name `{base.id}`",
                "no tensor of the program" if meant is None else f"did you mean `{meant}`?",
                fixes=() if meant is None else replace(f"use `{meant}`", base.span, meant),
            )
        extents = (tensor if view is None else view).extents[len(indices) :]
        rank = len(formal.extents)
        if len(extents) != rank or (indices and tensor.optional):
            axes = "1 axis" if rank == 1 else f"{rank} axes"
            raise self.error(
                node.span,
                "SK0143",
                f"`{formal.name}` has {axes}, `{expression_text(node)}` has {len(extents)}",
                "another number of axes",
                labels=(Label(formal.span, f"`{formal.name}` is declared here"),),
            )
        if tensor.dtype is not formal.dtype:
            raise self.error(
                node.span,
                "SK0143",
                f"`{formal.name}` holds {formal.dtype.value}, `{base.id}` {tensor.dtype.value}",
                "another type",
                labels=(Label(formal.dtype_span, "the type that the sketch has"),),
                help="convert it in a sketch, or write one for this type",
            )
        return Argument(base.id, tensor, indices, tuple(extents), node.span)

    # ------------------------------------------------------------ roles

    def _aliases(
        self, call: syntax.Invoke, callee: syntax.Sketch, arguments: Mapping[str, Argument]
    ) -> None:
        """What a call writes is no input of the program, and nothing else of the call."""
        for formal in syntax.declared(callee, "tensors"):
            if role_of(callee, formal) == "in" or formal.name not in arguments:
                continue
            own = arguments[formal.name]
            if own.tensor.role == "in" or own.tensor.optional:
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

    def _order(
        self, call: syntax.Invoke, callee: syntax.Sketch, arguments: Mapping[str, Argument]
    ) -> None:
        """Nothing is read before it is written. In a loop, a turn before may have written it: there
        the checker asks."""
        for formal in syntax.declared(callee, "tensors"):
            argument = arguments.get(formal.name)
            if argument is None or role_of(callee, formal) == "out":
                continue
            name = argument.tensor.name
            later = {name for loop in self.loops for name in _outputs(loop.body)}
            if name in self.written or name in later:
                continue
            raise self.error(
                argument.span,
                "SK0145",
                f"`{name}` is read before any call has written it",
                f"read as `{formal.name}`",
                labels=(Label(argument.tensor.span, "declared here"),),
                help="call the sketch that writes it first, or give it an initial value, `= 0`",
            )
        for formal in syntax.declared(callee, "tensors"):
            if formal.name in arguments and role_of(callee, formal) != "in":
                self.written.add(arguments[formal.name].tensor.name)

    # ------------------------------------------------------------ names of the sketch

    def _given(self, call: syntax.Invoke, name: str) -> syntax.Expression | None:
        return next((each.value for each in call.keywords if each.name == name), None)

    def _symbols(
        self, call: syntax.Invoke, callee: syntax.Sketch, arguments: Mapping[str, Argument]
    ) -> dict[str, Replacement]:
        """Sizes: those given by name, else the extents that stand in their places."""
        sizes: dict[str, Replacement] = {}
        for symbol in syntax.declared(callee, "symbols"):
            value = self._given(call, symbol.name)
            for formal in syntax.declared(callee, "tensors"):
                argument = arguments.get(formal.name)
                if value is not None or argument is None:
                    continue
                for extent, own in zip(formal.extents, argument.extents, strict=True):
                    plain = isinstance(extent.value, syntax.Name) and not extent.broadcastable
                    if plain and extent.value.id == symbol.name:
                        value = own.value
                        break
            if value is None:
                raise self.error(
                    call.span,
                    "SK0142",
                    f"no argument says what the size `{symbol.name}` of `{callee.name}` is",
                    "not known",
                    labels=(Label(symbol.span, "the size"),),
                    help=f"give it by name: `{symbol.name}=...`",
                )
            sizes[symbol.name] = value
        return sizes

    def _constants(self, call: syntax.Invoke, callee: syntax.Sketch) -> dict[str, Replacement]:
        """Constants that the call gives are these; others are the program's, one for all calls."""
        declared = list(syntax.declared(callee, "constexpr"))
        own: dict[str, Replacement] = {}
        for constant in declared:
            value = self._given(call, constant.name)
            if value is not None:
                own[constant.name] = value
        rest = [constant for constant in declared if constant.name not in own]
        shared = self.constants.setdefault(callee.name, {})
        new = [constant for constant in rest if constant.name not in shared]
        for constant in new:
            name = (
                constant.name
                if constant.name not in self.taken
                else f"{callee.name}_{constant.name}"
            )
            name = free(name, self.taken)
            shared[constant.name] = syntax.Name(name, span=constant.span)
        for constant in new:
            made = replaced(constant, {**shared, **own})
            name = shared[constant.name]
            assert isinstance(name, syntax.Name)
            self._add("constexpr", records.evolve(made, name=name.id))
        if new and callee.tilings:
            renamed = {old: new.id for old, new in shared.items() if isinstance(new, syntax.Name)}
            self.tilings.append(
                tuple(
                    records.evolve(
                        point,
                        values=tuple(
                            (renamed[name], value)
                            for name, value in point.values
                            if name in renamed
                        ),
                    )
                    for point in callee.tilings
                )
            )
        return {**shared, **own}

    def _params(
        self, call: syntax.Invoke, callee: syntax.Sketch, names: Mapping[str, Replacement]
    ) -> dict[str, Replacement]:
        """Params: the values given, else the defaults."""
        values: dict[str, Replacement] = {}
        for param in syntax.declared(callee, "params"):
            value = self._given(call, param.name)
            if value is None and param.default is not None:
                value = replaced(param.default, names)
            if value is None:
                raise self.error(
                    call.span,
                    "SK0142",
                    f"the param `{param.name}` of `{callee.name}` has no value",
                    "not given",
                    labels=(Label(param.span, "without a default"),),
                    help=f"give it by name: `{param.name}=...`",
                )
            values[param.name] = self._value(param, value)
        return values

    def _value(self, param: syntax.ParamDeclaration, value: syntax.Expression) -> syntax.Expression:
        """What stands for a param: of its type, and no part of a kernel's text, so that calls with
        other numbers share their kernels."""
        number = literal(value)
        kind = param.dtype or type_of(literal(param.default))
        if number is None:
            other = isinstance(value, syntax.Name) and self.params.get(value.id) is kind
            if kind.is_integer and kind is not DType.I64 and not other:
                raise self.error(
                    value.span,
                    "SK0142",
                    f"the param `{param.name}` is {kind.value}",
                    "may be larger",
                    labels=(Label(param.span, "declared here"),),
                    help="give it a number or a param of that type: sizes and turns are i64",
                )
            return value
        if kind is DType.BOOL or isinstance(number, bool):
            return value
        limits = kind.limits
        if kind.is_integer and (
            isinstance(number, float) or (limits and not limits[0] <= number <= limits[1])
        ):
            raise self.error(
                value.span,
                "SK0142",
                f"the param `{param.name}` is {kind.value}",
                "not such a number",
                labels=(Label(param.span, "declared here"),),
            )
        if kind is not DType.I64 and kind.is_integer:
            typed = syntax.ConstexprDeclaration(param.name, kind, value, (), span=value.span)
            return self._shared("constexpr", typed, value.span)
        exact = rounded(float(number), kind) if kind.is_float else number
        told = (
            value if exact == number and isinstance(number, float) else numeral(exact, value.span)
        )
        return self._shared("let", syntax.LetDeclaration(param.name, told), value.span)

    def _shared(self, keyword: str, item: Any, span: Span) -> syntax.Name:
        """The name of a declaration; one that says the same is there once."""
        for other in self.added.get(keyword, ()):
            if records.evolve(other, name=item.name) == item:
                return syntax.Name(other.name, span=span)
        made = records.evolve(item, name=free(item.name, self.taken))
        self._add(keyword, made)
        return syntax.Name(made.name, span=span)

    def _add(self, keyword: str, item: Any) -> None:
        """Declare something that a call brings along, once."""
        items = self.added.setdefault(keyword, [])
        if item not in items:
            items.append(item)
        name = getattr(item, "name", None)
        if name is not None:
            self.taken.add(name)

    def _looping(self, node: object) -> bool:
        """Whether something depends on the turn of a loop of the program."""
        variables = {loop.variable.id for loop in self.loops}
        return bool(variables & set(syntax.names(node)))

    def _lets(
        self, callee: syntax.Sketch, names: dict[str, Replacement]
    ) -> Iterator[syntax.Statement]:
        """Host values: the program's, or bindings where they depend on the turn of a loop."""
        for let in syntax.declared(callee, "let"):
            value = replaced(let.value, names)
            if self._looping(value):
                name = syntax.Name(free(let.name, self.taken), span=let.span)
                self.taken.add(name.id)
                names[let.name] = name
                yield syntax.Binding((name,), (value,), span=let.span)
                continue
            names[let.name] = self._shared("let", records.evolve(let, value=value), let.span)

    def _workspaces(
        self, call: syntax.Invoke, callee: syntax.Sketch, names: dict[str, Replacement]
    ) -> None:
        for space in syntax.declared(callee, "workspace"):
            made = replaced(space, names)
            self._whole_program(call, made.extents, f"the size of `{space.name}`", space.span)
            name = free(space.name, self.taken)
            made = records.evolve(made, name=name, initial=None)
            self._add("workspace", made)
            names[space.name] = Argument(name, made, (), made.extents, call.span)

    def _views(
        self,
        call: syntax.Invoke,
        callee: syntax.Sketch,
        arguments: Mapping[str, Argument],
        names: dict[str, Replacement],
    ) -> None:
        for view in syntax.declared(callee, "views"):
            base = names.get(view.base)
            if not isinstance(base, Argument):
                continue  # of a tensor that is not there
            if base.indices:
                raise self.error(
                    base.span,
                    "SK0143",
                    f"`{callee.name}` views `{view.base}` under other extents",
                    "a part of a tensor",
                    labels=(Label(view.span, "the view"),),
                    help="pass a whole tensor",
                )
            made = replaced(view, {**names, view.base: False})
            self._whole_program(call, made.extents, f"the size of `{view.name}`", view.span)
            name = free(view.name, self.taken)
            made = records.evolve(made, name=name, base=base.tensor.name)
            self._add("views", made)
            names[view.name] = Argument(name, base.tensor, (), made.extents, call.span)

    def _whole_program(self, call: syntax.Invoke, node: object, what: str, place: Span) -> None:
        """Refuse what has to be known before the first launch, and is not."""
        if self._looping(node):
            raise self.error(
                call.span,
                "SK0146",
                f"{what} depends on the turn of a loop of the program",
                "not known before the first launch",
                labels=(Label(place, "asked for here"),),
                help="give the call what does not change from turn to turn",
            )

    def _agree(
        self,
        call: syntax.Invoke,
        callee: syntax.Sketch,
        arguments: Mapping[str, Argument],
        names: Mapping[str, Replacement],
    ) -> None:
        """The shapes of arguments are those that the sketch has; what only the sizes of a launch
        tell is a condition of it."""
        for formal in syntax.declared(callee, "tensors"):
            argument = arguments.get(formal.name)
            if argument is None:
                continue
            for extent, own in zip(formal.extents, argument.extents, strict=True):
                wanted = replaced(extent.value, names)
                apart = difference(wanted, own.value)
                if apart == 0:
                    continue
                if apart is not None:
                    raise self.error(
                        argument.span,
                        "SK0143",
                        f"`{formal.name}` has an axis of {expression_text(wanted)}, "
                        f"`{argument.name}` one of {expression_text(own.value)}",
                        "another shape",
                        labels=(
                            Label(formal.span, f"`{formal.name}` is declared here"),
                            Label(argument.tensor.span, f"`{argument.tensor.name}` here"),
                        ),
                    )
                self._whole_program(call, wanted, f"the shape of `{formal.name}`", formal.span)
                same = syntax.Binary("==", wanted, own.value, span=argument.span)
                self._add("require", same)

    def _requires(
        self, call: syntax.Invoke, callee: syntax.Sketch, names: Mapping[str, Replacement]
    ) -> None:
        conditions = list(syntax.declared(callee, "require"))
        for symbol in syntax.declared(callee, "symbols"):
            if symbol.upper_bound is not None:
                size = syntax.Name(symbol.name, span=symbol.span)
                conditions.append(syntax.Binary("<=", size, symbol.upper_bound, span=symbol.span))
        for condition in conditions:
            made = replaced(condition, names)
            what = f"`require: {expression_text(condition)}` of `{callee.name}`"
            self._whole_program(call, made, what, condition.span)
            self._add("require", made)

    def _locals(self, callee: syntax.Sketch) -> dict[str, Replacement]:
        """New names for what the sketch makes, where the program has those names."""
        own = list(local_names(callee.body))
        return {
            name: syntax.Name(free(name, {*self.taken, *own})) for name in own if name in self.taken
        }

    def _initial_values(
        self,
        call: syntax.Invoke,
        callee: syntax.Sketch,
        arguments: Mapping[str, Argument],
        names: Mapping[str, Replacement],
    ) -> Iterator[syntax.Statement]:
        """What begins each call with a value: `= 0` of an output or a workspace."""
        for tensor in syntax.declared(callee, "tensors", "workspace"):
            argument = names[tensor.name]
            if tensor.initial is None or not isinstance(argument, Argument):
                continue
            extents = [extent.value for extent in argument.extents]
            taken = {*self.taken, *local_names(callee.body)}
            yield filling(argument, extents, replaced(tensor.initial, names), taken)


def _outputs(body: Sequence[syntax.Statement]) -> Iterator[str]:
    """The names behind the arrows of calls, and those given by name."""
    for each in syntax.statements(body):
        if isinstance(each, syntax.Invoke):
            yield from syntax.names(each.outputs)
            yield from syntax.names(tuple(keyword.value for keyword in each.keywords))


def _form(callee: syntax.Sketch) -> str:
    """How a sketch is called."""
    inputs, outputs = split(callee)
    told = [t.name for t in inputs]
    behind = [t.name for t in outputs]
    needed = [
        f"{param.name}=..." for param in syntax.declared(callee, "params") if param.default is None
    ]
    arrow = [f"{told[-1]} -> {behind[0]}"] if told and behind else []
    parts = (
        [*told[:-1], *arrow, *behind[1:]] if arrow else [f"{name}=..." for name in told + behind]
    )
    return f"{callee.name}({', '.join([*parts, *needed])})"


def _points(several: Sequence[tuple[syntax.TilingPoint, ...]]) -> tuple[syntax.TilingPoint, ...]:
    """The tuning points of a program: those of its sketches, of one after the other, the others at
    their first."""
    if not several:
        return ()
    first = [points[0] for points in several]
    rows = [first]
    for place, points in enumerate(several):
        rows += [[*first[:place], point, *first[place + 1 :]] for point in points[1:]]
    return tuple(
        syntax.TilingPoint(
            tuple(value for point in row for value in point.values), span=first[0].span
        )
        for row in rows
    )

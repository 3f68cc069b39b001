"""Programs: sketches that are called in order, and the one sketch that a program means.

A program computes nothing itself. It means the sketch in which every call is the body of the called
sketch, whose tensors are the arguments, whose sizes are theirs, whose params are the values given,
whose constants are shared by all its calls, and whose workspaces and host values are the program's.
Each call is a block, whose statements are phases of their own. So everything that reads sketches
(the checker, the interpreter, the targets, the verifier) reads programs, and a file's tree has a
program as that sketch, beside what was written.

`program_arguments` matches the tensors of calls; this module handles their sizes, params and
constants, and the declarations that a call adds to the program.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Span
from sketchc.base.types import DType, rounded
from sketchc.parsing import syntax
from sketchc.parsing.calls import (
    FILLING_NAMES,
    Argument,
    Replacement,
    difference,
    filling,
    free,
    literal,
    local_names,
    numeral,
    replaced,
    type_of,
)
from sketchc.parsing.program_arguments import InvalidCallError, Matching
from sketchc.parsing.program_scope import Scope, written
from sketchc.parsing.unparse import expression_text

#: A program may call programs that call programs, and so on, this deep.
MAXIMUM_LEVELS = 16
#: More statements than this are no sketch that anything could check.
MAXIMUM_STATEMENTS = 20_000


def expand(tree: syntax.File) -> syntax.Expanded:
    """The file with every program as the sketch that it means, and the diagnostics of its calls."""
    known: dict[str, syntax.Sketch] = {}
    for sketch in tree.sketches:
        if sketch.program is None:
            known.setdefault(sketch.name, sketch)
    programs = {sketch.name for sketch in tree.sketches if sketch.program is not None}
    levels: dict[str, int] = {}
    found: list[Diagnostic] = []
    units = []
    for unit in tree.sketches:
        if unit.program is not None:
            expansion = _Expansion(unit, unit.program, known, programs, levels)
            unit = expansion.sketch()
            found += expansion.diagnostics
            known.setdefault(unit.name, unit)
            levels[unit.name] = 1 + max((levels.get(name, 0) for name in unit.called), default=0)
        units.append(unit)
    return records.evolve(tree, sketches=tuple(units)), found


@records.define(eq=False)
class _Expansion:
    """The expansion of one program; `added` are the declarations that calls bring along."""

    unit: syntax.Sketch
    program: syntax.Program
    known: Mapping[str, syntax.Sketch]
    programs: Container[str]  # all of the file
    levels: Mapping[str, int]  # how deep the programs above call one another
    diagnostics: list[Diagnostic] = records.field(factory=list)
    added: dict[str, list[Any]] = records.field(factory=dict)
    taken: set[str] = records.field(factory=set)
    #: names that called sketches make: declarations that calls bring along have other names
    local: set[str] = records.field(factory=lambda: set(FILLING_NAMES))
    renamed: dict[str, str] = records.field(factory=dict)  # those that the program declares, too
    turning: set[str] = records.field(factory=set)  # names that differ between a loop's iterations
    constants: dict[str, dict[str, syntax.Name]] = records.field(factory=dict)
    typed: dict[tuple[DType, str], syntax.Name] = records.field(factory=dict)
    size: int = 0  # statements so far
    scope: Scope = records.field(init=False)
    matching: Matching = records.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.scope = Scope(self.program, diagnostics=self.diagnostics)
        self.matching = Matching(self.scope, self.known, self.programs, self.diagnostics)

    # ------------------------------------------------------------ the whole

    def sketch(self) -> syntax.Sketch:
        """The sketch that the program means."""
        self.scope.read()
        for section in self.program.sections:
            self.taken |= {item.name for item in section.items if hasattr(item, "name")}
        for each in syntax.statements(self.program.body):
            if isinstance(each, syntax.For):
                self.taken.add(each.variable.id)
            if isinstance(each, syntax.Invoke) and each.sketch in self.known:
                self.local |= set(local_names(self.known[each.sketch].body))
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
        tilings = self.unit.tilings or self._points()
        return records.evolve(self.unit, sections=tuple(sections), body=body, tilings=tilings)

    def _block(self, body: Iterable[syntax.Statement]) -> tuple[syntax.Statement, ...]:
        made: list[syntax.Statement] = []
        for statement in body:
            match statement:
                case syntax.Invoke():
                    try:
                        made.append(self._call(statement))
                    except InvalidCallError:
                        # What it would have written counts as written.
                        self.matching.written |= set(syntax.names(statement.outputs))
                case syntax.For():
                    made.append(self._loop(statement))
                case syntax.If():
                    self.scope.names_known(statement.condition)
                    parts = self._block(statement.body), self._block(statement.orelse)
                    made.append(records.evolve(statement, body=parts[0], orelse=parts[1]))
                case _:
                    made.append(statement)
        return tuple(made)

    def _loop(self, loop: syntax.For) -> syntax.For:
        self.scope.names_known(loop.arguments)
        name = loop.variable.id
        before, turns = self.scope.kinds.get(name), name in self.turning
        self.scope.kinds[name] = DType.I64
        self.turning.add(name)
        self.matching.later.append(frozenset(written(loop.body)))
        body = self._block(loop.body)
        self.matching.later.pop()
        # A loop within a loop of the same name is an error that is reported elsewhere.
        if not turns:
            self.turning.discard(name)
        if before is None:
            del self.scope.kinds[name]
        else:
            self.scope.kinds[name] = before
        return records.evolve(loop, body=body)

    # ------------------------------------------------------------ one call

    def _call(self, call: syntax.Invoke) -> syntax.Statement:
        """The block that stands for a call: the callee's body with the call's names."""
        callee = self.matching.callee(call)
        self._room(call, callee)
        arguments = self.matching.arguments(call, callee)
        names: dict[str, Replacement] = {}
        for tensor in syntax.declared(callee, "tensors"):
            names[tensor.name] = arguments.get(tensor.name, False)
        names |= self._symbols(call, callee, arguments)
        names |= self._constants(call, callee)
        before = [*self._params(call, callee, names), *self._lets(call, callee, names)]
        self._workspaces(call, callee, names)
        self._views(call, callee, names)
        self._agree(call, callee, arguments, names)
        self._requires(call, callee, names)
        names |= self._locals(callee)
        before += self._initial_values(callee, names)
        body = (*before, *replaced(callee.body, names))
        whole = syntax.Boolean(True, span=call.sketch_span)
        return syntax.If(whole, body, block=True, span=call.span)

    def _room(self, call: syntax.Invoke, callee: syntax.Sketch) -> None:
        if self.levels.get(callee.name, 0) >= MAXIMUM_LEVELS:
            raise self.matching.error(
                call.span,
                "SK0121",
                f"programs call one another more than {MAXIMUM_LEVELS} deep",
                "too deep here",
                help="call the sketches themselves",
            )
        told = self.size > MAXIMUM_STATEMENTS
        self.size += sum(1 for _ in syntax.statements(callee.body))
        if self.size > MAXIMUM_STATEMENTS:
            if not told:
                message = f"the program means more than {MAXIMUM_STATEMENTS:,} statements"
                self.matching.error(
                    call.span,
                    "SK0132",
                    message,
                    "too many with this call",
                    help="put a loop around calls that are alike, or split the program",
                )
            raise InvalidCallError(callee.name)

    # ------------------------------------------------------------ numbers

    def _given(self, call: syntax.Invoke, name: str) -> syntax.Expression | None:
        """The number that a call gives for `name`, or None; it uses names of the program alone."""
        value = next((each.value for each in call.keywords if each.name == name), None)
        if value is None:
            return None
        if not self.scope.names_known(value):
            raise InvalidCallError(name)
        if self.scope.kind(value) is None:
            raise self.matching.error(value.span, "SK0142", f"`{name}` is a number", "no number")
        return value

    def _misfit(
        self, place: Span, item: Any, kind: DType, label: str, help: str = ""
    ) -> InvalidCallError:
        what = "a param" if isinstance(item, syntax.ParamDeclaration) else "a constant"
        return self.matching.error(
            place,
            "SK0142",
            f"`{item.name}` is {what} of type {kind.value}",
            label,
            labels=(Label(item.span, "declared here"),),
            help=help,
        )

    def _check_kind(self, item: Any, kind: DType, value: syntax.Expression) -> None:
        """Report a value that a param or a constant of the type `kind` may not have, by the rules
        of a launch or of `--set`."""
        found, number = self.scope.kind(value), literal(value)
        assert found is not None
        if (kind is DType.BOOL) != (found is DType.BOOL):
            raise self._misfit(value.span, item, kind, f"this is {found.value}")
        if kind.is_integer and found.is_float:
            raise self._misfit(value.span, item, kind, "this is a float")
        if kind.is_integer and number is not None and kind.limits:
            low, high = kind.limits
            if not low <= number <= high:
                raise self._misfit(value.span, item, kind, f"not within {low} .. {high}")
        elif kind.is_integer and kind not in (DType.I64, DType.BOOL) and found is not kind:
            advice = "give it a number or a param of that type: sizes and turns are i64"
            raise self._misfit(value.span, item, kind, "may be larger", advice)
        params = {param.name for param in syntax.declared(self.program, "params")}
        named = isinstance(value, syntax.Name) and value.id in params
        if kind.is_float and kind is not DType.F64 and named and found not in (kind, DType.I64):
            advice = f"declare it {kind.value}, too, or pass what is computed of it"
            raise self._misfit(value.span, item, kind, f"this is {found.value}", advice)

    def _symbols(
        self, call: syntax.Invoke, callee: syntax.Sketch, arguments: Mapping[str, Argument]
    ) -> dict[str, Replacement]:
        """The callee's sizes: given by keyword, else the extents of arguments in their places."""
        sizes: dict[str, Replacement] = {}
        for symbol in syntax.declared(callee, "symbols"):
            value = self._given(call, symbol.name)
            if value is not None:
                sizes[symbol.name] = self._given_size(call, symbol, value)
                continue
            formals = list(syntax.declared(callee, "tensors"))
            asked = [t for t in formals if symbol.name in set(syntax.names(t.extents))]
            found = next(self._extents_of(symbol.name, asked, arguments), None)
            if found is None and asked and not any(t.name in arguments for t in asked):
                found = numeral(0, call.span)  # of optional tensors that are not there
            if found is None:
                raise self.matching.error(
                    call.span,
                    "SK0142",
                    f"no argument says what the size `{symbol.name}` of `{callee.name}` is",
                    "not known",
                    labels=(Label(symbol.span, "the size"),),
                    help=f"give it by name: `{symbol.name}=...`",
                )
            sizes[symbol.name] = found
        return sizes

    def _given_size(
        self, call: syntax.Invoke, symbol: syntax.SymbolDeclaration, value: syntax.Expression
    ) -> syntax.Expression:
        number = literal(value)
        if self.scope.kind(value) is not DType.I64 or (number is not None and number < 0):
            raise self.matching.error(
                value.span,
                "SK0142",
                f"`{symbol.name}` is a size",
                "sizes are integers, 0 or more",
                labels=(Label(symbol.span, "the size"),),
            )
        self._whole_program(call, value, f"the size `{symbol.name}`", symbol.span)
        if number is not None or isinstance(value, syntax.Name):
            return value
        zero = numeral(0, value.span)
        self._add("require", syntax.Binary(">=", value, zero, span=value.span))
        return self._let(symbol.name, value)

    def _extents_of(
        self,
        symbol: str,
        formals: Sequence[syntax.TensorDeclaration],
        arguments: Mapping[str, Argument],
    ) -> Iterator[syntax.Expression]:
        """The extents of arguments on the axes where a tensor of the sketch has just `symbol`."""
        for formal in formals:
            if formal.name in arguments:
                pairs = zip(formal.extents, arguments[formal.name].extents, strict=True)
                for extent, own in pairs:
                    match extent:
                        case syntax.Extent(syntax.Name(id=name), False) if name == symbol:
                            yield own.value

    def _constants(self, call: syntax.Invoke, callee: syntax.Sketch) -> dict[str, Replacement]:
        """The callee's constants: those that the call gives, and those that depend on them, are the
        call's own; the others are added to the program, once for all calls."""
        own: dict[str, Replacement] = {}
        shared = self.constants.setdefault(callee.name, {})
        for constant in syntax.declared(callee, "constexpr"):
            value = self._given(call, constant.name)
            if value is not None:
                own[constant.name] = self._constant(constant, value)
            elif constant.value is not None and own.keys() & set(syntax.names(constant.value)):
                own[constant.name] = replaced(constant.value, {**shared, **own})
            elif constant.name not in shared:
                taken = self.taken | self.local
                name = (
                    constant.name
                    if constant.name not in taken
                    else f"{callee.name}_{constant.name}"
                )
                name = free(name, taken)
                made = replaced(constant, {**shared, **own})
                self._add("constexpr", records.evolve(made, name=name))
                shared[constant.name] = syntax.Name(name, span=constant.span)
        return {**shared, **own}

    def _constant(
        self, constant: syntax.ConstexprDeclaration, value: syntax.Expression
    ) -> syntax.Expression:
        """The value that a call gives for a constant, checked, and of the constant's type."""
        kind = constant.dtype or self.scope.kind(constant.value)
        if kind is not None:
            self._check_kind(constant, kind, value)
        if not set(syntax.names(value)) <= self.scope.constants:
            advice = "give it a number, or a `constexpr` of the program"
            raise self._misfit(value.span, constant, kind or DType.I64, "known at launch", advice)
        if constant.dtype is None or literal(value) is None:
            return value
        return self._typed(constant.name, constant.dtype, value)

    def _typed(self, name: str, kind: DType, value: syntax.Expression) -> syntax.Name:
        """A constant of the program for a number that must have the type `kind`; constants of
        sketches do not serve, because they may be set."""
        key = kind, expression_text(value)
        if key not in self.typed:
            name = free(name, self.taken | self.local)
            made = syntax.ConstexprDeclaration(name, kind, value, (), span=value.span)
            self._add("constexpr", made)
            self.typed[key] = syntax.Name(name, span=value.span)
        return self.typed[key]

    def _params(
        self, call: syntax.Invoke, callee: syntax.Sketch, names: dict[str, Replacement]
    ) -> Iterator[syntax.Statement]:
        """Add the callee's params to `names`: the values given, else the defaults. A value that
        depends on a loop's iteration is bound in the call's block: its binding is yielded."""
        for param in syntax.declared(callee, "params"):
            kind = param.dtype or type_of(literal(param.default))
            value = self._given(call, param.name)
            if value is not None:
                self._check_kind(param, kind, value)
            elif param.default is not None:
                value = replaced(param.default, names)
            else:
                raise self.matching.error(
                    call.span,
                    "SK0142",
                    f"the param `{param.name}` of `{callee.name}` has no value",
                    "not given",
                    labels=(Label(param.span, "without a default"),),
                    help=f"give it by name: `{param.name}=...`",
                )
            number = literal(value)
            if number is not None:
                names[param.name] = self._number(param.name, kind, number, value)
                continue
            if kind.is_float and self.scope.kind(value) is DType.I64:
                one = syntax.Number(1.0, "1.0", span=value.span)
                value = syntax.Binary("*", value, one, span=value.span)
            if isinstance(value, syntax.Name):
                names[param.name] = value
            elif not self._turns(value):
                names[param.name] = self._let(param.name, value)
            elif kind.is_float:
                self._whole_program(call, value, f"the float `{param.name}`", param.span)
            else:
                yield self._bound(param.name, value, names)

    def _number(
        self, name: str, kind: DType, number: float, value: syntax.Expression
    ) -> syntax.Expression:
        """The expression for a number that a param is given: of the type `kind`, and (but for
        bools) behind a name, so that calls with other numbers share their kernels."""
        if kind is DType.BOOL:
            return value
        if kind.is_integer:
            return self._let(name, value) if kind is DType.I64 else self._typed(name, kind, value)
        exact = rounded(float(number), kind)
        same = exact == number and isinstance(number, float)
        return self._let(name, value if same or exact != exact else numeral(exact, value.span))

    def _let(self, name: str, value: syntax.Expression) -> syntax.Name:
        """The name of a host value of the program; equal values have one name."""
        lets = [*syntax.declared(self.program, "let"), *self.added.get("let", ())]
        known = next((let.name for let in lets if let.value == value), None)
        if known is None:
            known = free(name, self.taken | self.local)
            self._add("let", syntax.LetDeclaration(known, value, span=value.span))
        return syntax.Name(known, span=value.span)

    def _bound(
        self, name: str, value: syntax.Expression, names: dict[str, Replacement]
    ) -> syntax.Statement:
        """A binding of `value` in the block of the call, under a new name that `names` gets."""
        made = syntax.Name(free(name, self.taken | self.local), span=value.span)
        self.taken.add(made.id)
        self.turning.add(made.id)
        names[name] = made
        return syntax.Binding((made,), (value,), span=value.span)

    # ------------------------------------------------------------ what a call brings along

    def _add(self, keyword: str, item: Any) -> None:
        """Add a declaration that a call brings along to a section, once."""
        items = self.added.setdefault(keyword, [])
        if item not in items:
            items.append(item)
        name = getattr(item, "name", None)
        if name is not None:
            self.taken.add(name)

    def _turns(self, node: object) -> bool:
        """Whether a node depends on the iteration of a loop of the program."""
        return bool(self.turning & set(syntax.names(node)))

    def _lets(
        self, call: syntax.Invoke, callee: syntax.Sketch, names: dict[str, Replacement]
    ) -> Iterator[syntax.Statement]:
        """Add the callee's lets to `names`: as host values of the program, or as bindings, which
        are yielded, where they depend on a loop's iteration."""
        floats = {p.name for p in syntax.declared(callee, "params") if p.dtype and p.dtype.is_float}
        scope = Scope(self.program, kinds={**self.scope.kinds})
        scope.kinds |= dict.fromkeys(self.turning, DType.I64)
        for let in syntax.declared(callee, "let"):
            value = replaced(let.value, names)
            if not self._turns(value):
                names[let.name] = self._let(let.name, value)
                continue
            found = scope.kind(value)
            if found is DType.F64 or floats & set(syntax.names(let.value)):
                what = f"`let: {let.name}` of `{callee.name}`, a float,"
                self._whole_program(call, value, what, let.span)
            yield self._bound(let.name, value, names)

    def _workspaces(
        self, call: syntax.Invoke, callee: syntax.Sketch, names: dict[str, Replacement]
    ) -> None:
        for space in syntax.declared(callee, "workspace"):
            made = replaced(space, names)
            self._whole_program(call, made.extents, f"the size of `{space.name}`", space.span)
            name = free(space.name, self.taken | self.local)
            made = records.evolve(made, name=name, initial=None)
            self._add("workspace", made)
            names[space.name] = Argument(name, made, (), made.extents, call.span)

    def _views(
        self, call: syntax.Invoke, callee: syntax.Sketch, names: dict[str, Replacement]
    ) -> None:
        for view in syntax.declared(callee, "views"):
            base = names.get(view.base)
            if not isinstance(base, Argument):
                continue  # of a tensor that is not there
            if base.indices:
                raise self.matching.error(
                    base.span,
                    "SK0143",
                    f"`{callee.name}` views `{view.base}` under other extents",
                    "a part of a tensor",
                    labels=(Label(view.span, "the view"),),
                    help="pass a whole tensor",
                )
            made = replaced(view, {**names, view.base: False})
            self._whole_program(call, made.extents, f"the size of `{view.name}`", view.span)
            name = free(view.name, self.taken | self.local)
            made = records.evolve(made, name=name, base=base.tensor.name)
            self._add("views", made)
            names[view.name] = Argument(name, base.tensor, (), made.extents, call.span)

    def _whole_program(self, call: syntax.Invoke, node: object, what: str, place: Span) -> None:
        """Refuse a node that must be known before the first launch, but depends on an iteration."""
        if self._turns(node):
            raise self.matching.error(
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
        """Check that arguments have the shapes that the callee declares; an equality that only the
        sizes of a launch decide becomes a `require`."""
        for formal in syntax.declared(callee, "tensors"):
            argument = arguments.get(formal.name)
            if argument is None:
                continue
            for extent, own in zip(formal.extents, argument.extents, strict=True):
                wanted = replaced(extent.value, names)
                apart = difference(wanted, own.value)
                single = extent.broadcastable and literal(own.value) == 1
                if apart == 0:
                    continue
                if apart is not None or single:
                    text = expression_text(own.value)
                    told = f"declare the axis `{expression_text(wanted)}|1`" if single else ""
                    raise self.matching.error(
                        argument.span,
                        "SK0143",
                        f"`{formal.name}` has an axis of {expression_text(wanted)}, "
                        f"`{argument.name}` one of {text}",
                        "another shape",
                        labels=(
                            Label(formal.span, f"`{formal.name}` is declared here"),
                            Label(argument.tensor.span, f"`{argument.tensor.name}` here"),
                        ),
                        help=told,
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
        """New names for those that the callee's statements make and the program has, too."""
        found: dict[str, Replacement] = {}
        for name in local_names(callee.body):
            if name in self.taken:
                if name not in self.renamed:
                    self.renamed[name] = free(name, self.taken | self.local)
                    self.local.add(self.renamed[name])
                found[name] = syntax.Name(self.renamed[name])
        return found

    def _initial_values(
        self, callee: syntax.Sketch, names: Mapping[str, Replacement]
    ) -> Iterator[syntax.Statement]:
        """The loops that fill tensors with an initial value, such as `= 0`, at each call."""
        for tensor in syntax.declared(callee, "tensors", "workspace"):
            argument = names[tensor.name]
            if tensor.initial is None or not isinstance(argument, Argument):
                continue
            extents = [extent.value for extent in argument.extents]
            yield filling(argument, extents, replaced(tensor.initial, names), self.taken)

    def _points(self) -> tuple[syntax.TilingPoint, ...]:
        """The tuning points of the called sketches: each sketch's points in turn, with the other
        sketches at their first."""
        several = []
        for name, shared in self.constants.items():
            points = [
                tuple((shared[old].id, value) for old, value in point.values if old in shared)
                for point in self.known[name].tilings
            ]
            if points:
                several.append(points)
        first = [points[0] for points in several]
        rows = [first] if first else []
        for place, points in enumerate(several):
            rows += [[*first[:place], point, *first[place + 1 :]] for point in points[1:]]
        span = self.program.name_span
        made = (tuple(pair for part in row for pair in part) for row in rows)
        return tuple(syntax.TilingPoint(values, span=span) for values in made if values)

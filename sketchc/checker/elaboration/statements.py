"""Statements of the body: allocs, loads and stores, bindings, branches and loops; and phases (R8).

A function here takes a syntax node and gives the IR statements for it (usually one). A statement
with an error is reported and left out; the rest of its block is still elaborated.

A phase is an outermost parallel nest, or a run of statements between such nests. The host launches
them in order; a sequential loop or an `if` around a parallel nest, a `fetch` outside all phases and
integers made from these run on the host. An integer bound in a run of statements is a host value
too, known before the launch of that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, InternalError, Label, Span
from sketchc.base.types import DType
from sketchc.checker.calls.expressions import (
    condition,
    evaluate_constant,
    expression,
    integer,
    is_constant,
    is_loaded,
)
from sketchc.checker.calls.memory import fetch, transfer
from sketchc.checker.calls.operations import compute
from sketchc.checker.context.context import (
    Context,
    IndexName,
    Interval,
    InvalidError,
    ScalarName,
    Typed,
    in_phase,
    is_host,
)
from sketchc.checker.context.fixits import tile_index_fixes, tile_index_slices
from sketchc.checker.context.hints import loop_hints
from sketchc.checker.context.lets import add_let, present_where, without_functions
from sketchc.checker.context.shapes import bounds, signs
from sketchc.checker.elaboration.declarations import alloc
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.ir.walk import expressions, has_lanes
from sketchc.parsing import syntax
from sketchc.parsing.prepass import is_parallel
from sketchc.parsing.syntax import names
from sketchc.parsing.unparse import expression_text, line_edit, statement_text

#: The errors reported in a branch that is not taken: others may depend on the constants.
_ALWAYS_WRONG = frozenset(["SK0201", "SK0210"])

_Made = TypeVar("_Made", bound=tuple[object, ...])


def uniform(context: Context, node: syntax.Expression) -> ir.Expr:
    """The condition of an `if`, without the parts known at compile time; raises `InvalidError`
    after reporting a condition with lanes, or what is no condition."""
    context.asking = True
    try:
        typed = condition(context, node)
    finally:
        context.asking = False
    if typed.extents is not None:
        raise context.error(
            node.span,
            "SK0324",
            "the condition of an `if` is the same for all lanes",
            "has lanes",
            help="choose lane by lane with `where(condition, a, b, dst)`, or mask a load or store "
            "with `where=`",
        )
    value = _reduced(context, typed.value, node)
    return without_functions(context, Typed(value, DType.BOOL), node.span)


def decided(value: ir.Expr) -> bool | None:
    """The truth of a reduced condition where it is known at compile time."""
    return bool(value.value) if isinstance(value, ir.Literal) else None


def _reduced(context: Context, value: ir.Expr, node: syntax.Expression) -> ir.Expr:
    match value:
        case ir.Unary("not", operand):
            operand = _reduced(context, operand, node)
            known = decided(operand)
            if known is not None:
                return ir.Literal(not known, span=value.span)
            return ir.Unary("not", operand, span=value.span)
        case ir.Binary("and" | "or" as operator, left, right):
            left, right = (_reduced(context, side, node) for side in (left, right))
            for side, other in ((left, right), (right, left)):
                known = decided(side)
                if known is not None:
                    settles = known == (operator == "or")
                    return side if settles else other
            return ir.Binary(operator, left, right, span=value.span)
        case _:
            asks = any(one.kind is ir.NameKind.PRESENT for one in walk.references(value))
            if has_lanes(value, {}) or asks or not walk.names(value) <= context.values.keys():
                return value
            return ir.Literal(bool(evaluate_constant(context, value, node.span)), span=value.span)


def look_over(context: Context, body: tuple[syntax.Statement, ...]) -> None:
    """Report the unknown names of a branch that is not taken, and note the tensors it accesses."""
    trial = context.trial()
    trial.present.update(tensor.name for tensor in context.tensors)
    with trial.branch(frozenset()):
        block(trial, body)
    context.asked.append((lambda values: values.trial().again(trial.asked), True))
    known = [found for found in trial.diagnostics if found.code in _ALWAYS_WRONG]
    context.diagnostics.extend(known)


def block(context: Context, body: tuple[syntax.Statement, ...]) -> tuple[ir.Statement, ...]:
    """Elaborate the statements of one block, in the current scope."""
    result: list[ir.Statement] = []
    for node in body:
        try:
            made = statement(context, node)
            result.extend((*context.before, *made))
        except InvalidError:
            _poison(context, node)
        context.before.clear()
    return tuple(result)


def _poison(context: Context, node: syntax.Statement) -> None:
    """Mark the names that a failed statement would have defined: uses of them report nothing."""
    made: list[str] = []
    match node:
        case syntax.Alloc(name=name) | syntax.Fetch(name=name):
            made = [name]
        case syntax.Binding(names=bound):
            made = [item.id for item in bound]
    for name in made:
        context.poison(name, node.span)


def statement(context: Context, node: syntax.Statement) -> tuple[ir.Statement, ...]:
    """Elaborate one statement; raises `InvalidError` after reporting what is wrong."""
    match node:
        case syntax.Alloc():
            return _alloc(context, node)
        case syntax.Transfer():
            return transfer(context, node)
        case syntax.Compute():
            return compute(context, node)
        case syntax.Binding():
            return _binding(context, node)
        case syntax.For():
            return (_loop(context, node),)
        case syntax.Pass():
            return ()
        case syntax.If():
            return _branch(context, node)
        case syntax.Fetch():
            return (fetch(context, node, ir.NameKind.BINDING),)
        case syntax.Invoke():
            raise InternalError("the calls of a program are expanded before")
        case _:
            assert_never(node)


def _alloc(context: Context, node: syntax.Alloc) -> tuple[ir.Statement, ...]:
    """The alloc of a tile, then a `fill` where the initial value is no compile-time constant."""
    made = alloc(context, node)
    if node.init is None or is_constant(context, node.init):
        return (made,)
    tile = syntax.Name(node.name, span=node.name_span)
    fill = syntax.Compute("fill", (node.init, tile), span=node.span, operation_span=node.init.span)
    return (made, *compute(context, fill))


# ---------------------------------------------------------------- bindings


def _binding(context: Context, node: syntax.Binding) -> tuple[ir.Statement, ...]:
    result: list[ir.Statement] = []
    constants = 0
    for name, value in zip(node.names, node.values, strict=True):
        try:
            made, is_constant = _bind(context, name, value, node)
        except InvalidError:
            context.poison(name.id, name.span)
            continue
        result.extend(made)
        constants += is_constant
    if constants or len(node.names) > 1:
        _warn_binding(context, node, constants == len(node.names))
    return tuple(result)


def _warn_binding(context: Context, node: syntax.Binding, constants: bool) -> None:
    lines = [
        f"{name.id} = {expression_text(value)}"
        for name, value in zip(node.names, node.values, strict=True)
    ]
    fixes: tuple[Fix, ...] = ()
    if not constants:
        fixes = (Fix("one binding a line", (line_edit(node, lines),), safe=True),)
    elif context.tree.body[0] is node:  # a section may stand here
        edit = Edit(node.span, f"constexpr: {', '.join(lines)};")
        fixes = (Fix("declare constants", (edit,), safe=True),)
    context.warn(
        node.span,
        "SK0604",
        "constants belong in a `constexpr:` section" if constants else "names are bound one by one",
        "accepted, as a constant with one fixed value" if constants else "accepted",
        fixes=fixes,
    )


def _bind(
    context: Context, name: syntax.Name, node: syntax.Expression, whole: syntax.Binding
) -> tuple[list[ir.Statement], bool]:
    """The statements that bind one name, and whether it became a compile-time constant."""
    typed = expression(context, node)
    context.check_assignable(name.id, name.span)
    if typed.dtype.is_float:
        raise context.error(
            node.span,
            "SK0302",
            "a binding holds integers or a condition",
            "a float",
            help="use a `let:` or `constexpr:` section for host floats, and tiles for data",
        )
    outside = not context.loops and typed.extents is None and not in_phase(typed.value)
    host = outside and is_host(typed.value)  # becomes a `let`, which may call
    value = typed.value if host else without_functions(context, typed, node.span)
    spelt = context.fresh(name.id)
    text = f"{name.id} = {expression_text(node)}"
    if typed.extents is not None:
        context.index_ranks[spelt] = len(typed.extents)
        if is_loaded(context, value):
            context.loaded.add(spelt)
        context.scopes.add(
            name.id, IndexName(spelt, typed.dtype, typed.extents, context.phase, name.span)
        )
        return [ir.Bind(spelt, value, text=text, span=whole.span)], False
    if host:
        return [], _host_binding(context, name, spelt, value, typed.dtype)
    kind = ir.NameKind.HOST if outside else ir.NameKind.BINDING
    context.scopes.add(name.id, ScalarName(spelt, kind, typed.dtype, name.span))
    if typed.dtype.is_integer:
        context.define(spelt, value)
        context.note_interval(spelt, lambda values: bounds(values, value))
    if context.tunable_in(value):
        context.tunable.add(spelt)
    bound = ir.Bind(spelt, value, text=text, span=whole.span)
    if outside:  # depends on a host loop or on what the host fetched
        context.host_steps.append(bound)
        return [], False
    return [bound], False


def _host_binding(
    context: Context, name: syntax.Name, spelt: str, value: ir.Expr, dtype: DType
) -> bool:
    """Bind a scalar outside all loops: as a constant if possible (then True), else as a `let`."""
    references = walk.names(value)
    given = context.binding(name.id, spelt)
    fixed = references <= context.values.keys() - context.tunable
    if not fixed or dtype is DType.BOOL:
        add_let(context, name.id, spelt, value, dtype, name.span)
        return False
    number = evaluate_constant(context, value, name.span)
    if isinstance(given, int) and not isinstance(given, bool):
        number = given
    chosen_by = "sketch" if given is None else "user"
    context.constants.append(
        ir.Constant(spelt, DType.I64, number, tunable=False, chosen_by=chosen_by, span=name.span)
    )
    context.values[spelt] = number
    context.define(spelt, ir.Literal(number))
    context.scopes.add(name.id, ScalarName(spelt, ir.NameKind.CONSTANT, DType.I64, name.span))
    return True


# ---------------------------------------------------------------- branches


def _branch(context: Context, node: syntax.If) -> tuple[ir.Statement, ...]:
    condition, body, orelse = _branches(context, node, partial(block, context))
    if condition is None or not (body or orelse):
        return body
    return (ir.If(condition, body, orelse, text=statement_text(node), span=node.span),)


def _branches(
    context: Context, node: syntax.If, block_of: Callable[[tuple[syntax.Statement, ...]], _Made]
) -> tuple[ir.Expr | None, _Made, _Made]:
    """The condition of an `if` and what `block_of` makes of its branches: blocks with names of
    their own, where more optional tensors are present. Where the condition is known already, it is
    None, and the branch taken stands first."""

    def inner(
        body: tuple[syntax.Statement, ...],
        present: frozenset[str] = frozenset(),
        condition: ir.Expr | None = None,
        holds: bool = True,
    ) -> _Made:
        with context.branch(present, condition, holds):
            return block_of(body)

    try:
        condition = uniform(context, node.condition)
    except InvalidError:  # go on with the branches: their own mistakes are worth reporting
        context.present.update(names(node.condition))
        inner(node.body)
        inner(node.orelse)
        raise
    known = decided(condition)
    if known is not None:
        taken, other = (node.body, node.orelse) if known else (node.orelse, node.body)
        look_over(context, other)
        return None, inner(taken), block_of(())
    body = inner(node.body, present_where(condition, True), condition)
    orelse = inner(node.orelse, present_where(condition, False), condition, holds=False)
    return condition, body, orelse


# ---------------------------------------------------------------- loops


def _loop(context: Context, node: syntax.For) -> ir.For:
    parallel = is_parallel(node)

    def inside(variable: str) -> tuple[ir.Statement, ...]:
        context.loops.append(node)
        body = block(context, node.body)
        context.loops.pop()
        return body

    bounds, (hints, stages), variable, body = _looped(context, node, ir.NameKind.LOOP, inside)
    text = statement_text(node)
    loop = ir.For(variable, *bounds, body, parallel, hints, stages, text=text, span=node.span)
    if not parallel:
        _warn_tile_index(context, loop)
    return loop


def _looped(
    context: Context, node: syntax.For, kind: ir.NameKind, block_of: Callable[[str], _Made]
) -> tuple[tuple[ir.Expr, ir.Expr, ir.Expr], tuple[tuple[str, ...], int | None], str, _Made]:
    """The range and the hints of a loop, the name of its variable, of this kind, and what
    `block_of` makes of its body; raises `InvalidError` for a wrong range or variable, after the
    body is read."""
    failed = False
    try:
        bounds = loop_range(context, node)
    except InvalidError:  # go on with the body: its own mistakes are worth reporting
        failed = True
        bounds = (ir.Literal(1), ir.Literal(1), ir.Literal(1))
    hints = loop_hints(context, node)
    with context.branch(frozenset()):
        try:
            context.check_assignable(node.variable.id, node.variable.span)
        except InvalidError:
            failed = True
        variable = context.fresh(node.variable.id)
        entry = ScalarName(variable, kind, DType.I64, node.variable.span)
        context.scopes.add(node.variable.id, entry)
        note_loop(context, variable, *bounds)
        body = block_of(variable)
    if failed:
        raise InvalidError(node.variable.id)
    return bounds, hints, variable, body


def _warn_tile_index(context: Context, loop: ir.For) -> None:
    """Warn of a sequential loop over tiles that slices elements: it reads overlapping parts of its
    tensor. In a parallel loop the proofs refute it; here it is only unlikely to be meant."""
    slices = tile_index_slices(loop)
    if not slices:
        return
    variable = loop.text.split()[1]
    first = slices[0]
    context.warn(
        first.lower.span.to(first.upper.span),
        "SK0613",
        f"`{variable}` counts tiles, and the slice counts elements",
        "overlaps the slice of the next iteration",
        labels=(Label(loop.span, f"`{variable}` goes up by 1"),),
        fixes=tile_index_fixes((loop,)),
    )


def loop_range(context: Context, node: syntax.For) -> tuple[ir.Expr, ir.Expr, ir.Expr]:
    """(start, stop, step) of a loop; raises `InvalidError` after reporting what is wrong."""
    parts = [integer(context, argument) for argument in node.arguments]
    start: ir.Expr = ir.Literal(0)
    step: ir.Expr = ir.Literal(1)
    match parts:
        case [stop]:
            pass
        case [start, stop]:
            pass
        case [start, stop, step]:
            _check_step(context, step, node.arguments[2].span)
    return start, stop, step


def _check_step(context: Context, step: ir.Expr, span: Span) -> None:
    """Report a step of 0; for a step of unknown sign, require at launch that it is at least 1."""
    low, high = signs(context, step)
    if low >= 1 or high <= -1:
        return
    if high < 1:
        raise context.error(span, "SK0315", f"the step is {show(step)}", "must not be 0")
    host = context.host_form(step)
    if host is None:
        raise context.error(
            span, "SK0315", "a step must be known at launch", "depends on a loop variable"
        )
    context.require(ir.Binary(">=", host, ir.Literal(1)), span)


def note_loop(
    context: Context, variable: str, start: ir.Expr, stop: ir.Expr, step: ir.Expr
) -> None:
    """Record the interval of a loop variable, as the loop's bounds give it, for later questions."""

    def found(values: Context) -> Interval:
        first, last = bounds(values, start), bounds(values, stop)
        if bounds(values, step)[1] < 0:
            return last[0] + 1, first[1]
        return first[0], last[1] - 1

    context.note_interval(variable, found)


def phases_of(context: Context) -> tuple[tuple[ir.Phase, ...], tuple[ir.HostStep, ...]]:
    """The phases of a sketch, and the steps of the host in order."""
    host = _Host(context)
    steps = host.block(context.tree.body)
    return tuple(host.phases), steps


@records.define(eq=False)
class _Host:
    context: Context
    phases: list[ir.Phase] = records.field(factory=list)

    def block(self, body: tuple[syntax.Statement, ...]) -> tuple[ir.HostStep, ...]:
        """The host steps of one block, in the current scope."""
        steps: list[ir.HostStep] = []
        run: list[syntax.Statement] = []
        for node in body:
            if not self.on_host(node):
                run.append(node)
                continue
            steps.extend(self.launch(tuple(run)))
            run = []
            try:
                steps.extend(self.step(node))
            except InvalidError:
                _poison(self.context, node)
        steps.extend(self.launch(tuple(run)))
        return tuple(steps)

    def on_host(self, node: syntax.Statement) -> bool:
        """Whether a statement ends the run before it: a parallel nest, or a step of the host."""
        match node:
            case syntax.Fetch():
                return True
            case syntax.For():
                return is_parallel(node) or id(node) in self.context.prepass.parallel
            case syntax.If(block=True):
                return True
            case syntax.If():
                return id(node) in self.context.prepass.parallel
            case _:
                return False

    def step(self, node: syntax.Statement) -> tuple[ir.HostStep, ...]:
        match node:
            case syntax.Fetch():
                return (fetch(self.context, node, ir.NameKind.HOST),)
            case syntax.For() if not is_parallel(node):
                return (self.loop(node),)
            case syntax.If():
                return self.branch(node)
            case _:
                return self.launch((node,))

    def launch(self, nodes: tuple[syntax.Statement, ...]) -> tuple[ir.HostStep, ...]:
        """The steps that launch `nodes` as one phase; allocs and bindings alone launch nothing."""
        if not nodes:
            return ()
        body = block(self.context, nodes)
        self.context.phase += 1
        steps = list(self.context.host_steps)
        self.context.host_steps.clear()
        if any(not isinstance(statement, ir.Alloc | ir.Bind) for statement in body):
            steps.append(ir.Launch(len(self.phases)))
            self.phases.append(ir.Phase(body, tuple(dict.fromkeys(_scalars(body)))))
        return tuple(steps)

    def loop(self, node: syntax.For) -> ir.HostFor:
        """A sequential loop around launches."""
        bounds, _, variable, body = _looped(
            self.context, node, ir.NameKind.HOST, lambda _: self.block(node.body)
        )
        return ir.HostFor(variable, *bounds, body, text=statement_text(node), span=node.span)

    def branch(self, node: syntax.If) -> tuple[ir.HostStep, ...]:
        """An `if` around launches."""
        condition, body, orelse = _branches(self.context, node, self.block)
        if condition is None or not (body or orelse):
            return body
        return (ir.HostIf(condition, body, orelse, text=statement_text(node), span=node.span),)


def _scalars(body: tuple[ir.Statement, ...]) -> Iterator[str]:
    """The host's names that a block uses, in order, repeats included."""
    for statement in walk.statements(body):
        for value in expressions(statement):
            for reference in walk.references(value):
                if reference.kind is ir.NameKind.HOST:
                    yield reference.name

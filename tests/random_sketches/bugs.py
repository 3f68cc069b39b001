"""Compiler bugs to be found: each is what a faulty pass or emitter would make of a finished plan.

A bug changes the plan between planning and emission, so that the code that comes out is wrong in
just that way; or returns the plan as it is, where it has nothing to spoil.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.plan import Plan

Rewrite = Callable[[ir.Statement], tuple[ir.Statement, ...]]


def rewritten(plan: Plan, change: Rewrite) -> Plan:
    """The plan with every statement replaced, innermost first. Positions stay where each statement
    becomes one."""

    def body(statements: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
        found: list[ir.Statement] = []
        for statement in statements:
            match statement:
                case ir.For():
                    statement = attrs.evolve(statement, body=body(statement.body))
                case ir.If():
                    statement = attrs.evolve(
                        statement, body=body(statement.body), orelse=body(statement.orelse)
                    )
                case _:
                    pass
            found.extend(change(statement))
        return tuple(found)

    phases = tuple(attrs.evolve(phase, body=body(phase.body)) for phase in plan.phases)
    return attrs.evolve(plan, phases=phases)


def _evolving(kind: type, change: Callable[[Any], dict[str, Any]]) -> Callable[[Plan], Plan]:
    """A bug that changes attributes of the statements of one kind."""

    def one(statement: ir.Statement) -> tuple[ir.Statement, ...]:
        if not isinstance(statement, kind):
            return (statement,)
        return (attrs.evolve(statement, **change(statement)),)

    return lambda plan: rewritten(plan, one)


def _later(bound: ir.Expr) -> ir.Expr:
    return ir.Binary("-", bound, ir.Literal(1))


def _shorter(domain: ir.Domain) -> ir.Domain:
    return tuple(
        ir.AxisDomain(axis.lower, tuple(_later(bound) for bound in axis.upper)) for axis in domain
    )


def _without_lower(domain: ir.Domain) -> ir.Domain:
    return tuple(ir.AxisDomain((), axis.upper) for axis in domain)


def _attribute(statement: ir.Compute, **wrong: object) -> dict[str, Any]:
    kept = {name: value for name, value in wrong.items() if name in statement.attributes}
    return {"attributes": {**statement.attributes, **kept}}


def _unit_steps(access: ir.Access) -> ir.Access:
    subscripts = tuple(
        attrs.evolve(part, step=ir.Literal(1)) if isinstance(part, ir.SliceSubscript) else part
        for part in access.subscripts
    )
    return attrs.evolve(access, subscripts=subscripts)


def _lost_carry(plan: Plan) -> Plan:
    """Accumulators start anew in every iteration."""
    initial = {tile.name for tile in plan.sketch.tiles if tile.initial is not None}

    def one(statement: ir.Statement) -> tuple[ir.Statement, ...]:
        match statement:
            case ir.For(parallel=False, carried=carried) if initial & set(carried):
                again = tuple(ir.Alloc(name) for name in carried if name in initial)
                return (attrs.evolve(statement, body=(*again, *statement.body)),)
            case _:
                return (statement,)

    return attrs.evolve(rewritten(plan, one), fills={}, neutral={})


def _full(operand: ir.Operand) -> ir.Operand:
    if isinstance(operand, ir.TileOperand):
        return attrs.evolve(operand, domain=tuple(ir.FULL for _ in operand.domain))
    return operand


def _dropped_identity(plan: Plan) -> Plan:
    """Void lanes of what a loop reduces hold 7 and count, where they should be left out."""

    def one(statement: ir.Statement) -> tuple[ir.Statement, ...]:
        match statement:
            case ir.Load(pad=None) if any(not axis.full for axis in statement.domain):
                full = tuple(ir.FULL for _ in statement.domain)
                return (attrs.evolve(statement, domain=full, pad=7),)
            case ir.Compute(operation="reduce_sum" | "reduce_max", operands=operands):
                return (attrs.evolve(statement, operands=tuple(map(_full, operands))),)
            case _:
                return (statement,)

    loops = [s for s in walk.in_phases(plan.phases) if isinstance(s, ir.For)]
    reduced = any(
        isinstance(inner, ir.Compute) and inner.operation in ("reduce_sum", "reduce_max")
        for loop in loops
        for inner in loop.body
    )
    return rewritten(plan, one) if reduced else plan


def _last_block_dropped(plan: Plan) -> Plan:
    def one(statement: ir.Statement) -> tuple[ir.Statement, ...]:
        if isinstance(statement, ir.For) and not statement.parallel:
            return (attrs.evolve(statement, stop=_later(statement.stop)),)
        return (statement,)

    return rewritten(plan, one)


def _else_dropped(plan: Plan) -> Plan:
    return _evolving(ir.If, lambda branch: {"orelse": ()})(plan)


def _atomics_as_stores(plan: Plan) -> Plan:
    def one(statement: ir.Statement) -> tuple[ir.Statement, ...]:
        if isinstance(statement, ir.Atomic):
            stored = ir.Store(
                statement.tile, statement.access, statement.domain, guards=statement.guards
            )
            return (stored,)
        return (statement,)

    return rewritten(plan, one)


def _swapped_operands(plan: Plan) -> Plan:
    names = ("sub", "div", "lt", "le", "pow", "atan2", "floordiv", "mod", "shl")

    def one(statement: ir.Statement) -> tuple[ir.Statement, ...]:
        if isinstance(statement, ir.Compute) and statement.operation in names:
            return (attrs.evolve(statement, operands=statement.operands[::-1]),)
        return (statement,)

    return rewritten(plan, one)


def _other_operation(wrong: str, right: str) -> Callable[[Plan], Plan]:
    def one(statement: ir.Statement) -> tuple[ir.Statement, ...]:
        if isinstance(statement, ir.Compute) and statement.operation == right:
            return (attrs.evolve(statement, operation=wrong),)
        return (statement,)

    return lambda plan: rewritten(plan, one)


def _once(plan: Plan) -> Plan:
    """The host's loops run their body once."""

    def steps(body: tuple[ir.HostStep, ...]) -> tuple[ir.HostStep, ...]:
        found: list[ir.HostStep] = []
        for step in body:
            if isinstance(step, ir.HostFor):
                last = ir.Binary("+", step.start, ir.Literal(1))
                step = attrs.evolve(step, stop=last, body=steps(step.body))
            found.append(step)
        return tuple(found)

    schedule = steps(plan.sketch.schedule)
    return attrs.evolve(plan, sketch=attrs.evolve(plan.sketch, schedule=schedule))


#: What is wrong, in words, and the bug.
BUGS: dict[str, Callable[[Plan], Plan]] = {
    "a mask that ends one lane early": _evolving(
        ir.Store, lambda s: {"domain": _shorter(s.domain)}
    ),
    "a load without its lower bounds": _evolving(
        ir.Load,
        lambda s: {"domain": _without_lower(s.domain), "read": _without_lower(s.read)},
    ),
    "a load without its guards": _evolving(ir.Load, lambda s: {"guards": ()}),
    "a store without its guards": _evolving(ir.Store, lambda s: {"guards": ()}),
    "padding with zero": _evolving(ir.Load, lambda s: {"pad": s.pad if s.pad is None else 0}),
    "steps of slices forgotten in loads": _evolving(
        ir.Load, lambda s: {"access": _unit_steps(s.access)}
    ),
    "steps of slices forgotten in stores": _evolving(
        ir.Store, lambda s: {"access": _unit_steps(s.access)}
    ),
    "a dropped identity": _dropped_identity,
    "a lost carry": _lost_carry,
    "the last block of a loop dropped": _last_block_dropped,
    "scans that run forward only": _evolving(ir.Compute, lambda s: _attribute(s, reverse=False)),
    "factors that are not transposed": _evolving(
        ir.Compute, lambda s: _attribute(s, trans_a=False, trans_b=False)
    ),
    "casts that always round to nearest": _evolving(
        ir.Compute, lambda s: _attribute(s, round="nearest")
    ),
    "order turned round": _evolving(
        ir.Compute, lambda s: _attribute(s, descending=False, largest=True)
    ),
    "truncating division": _other_operation("div", "floordiv"),
    "operands exchanged": _swapped_operands,
    "atomics that only store": _atomics_as_stores,
    "branches without else": _else_dropped,
    "a host loop that runs once": _once,
    "minimum for maximum": _other_operation("reduce_min", "reduce_max"),
}

"""Roles of tensors (LANGUAGE section 1), and where each symbol gets its value at launch.

A tensor that is only loaded is an input, one that is only stored an output; one that is loaded
before any phase wrote it must be declared `inout`. Workspaces and outputs may be loaded only where
an earlier phase wrote them, or `= c` did. Where a loop of the host is around both, an earlier
iteration may have written what is loaded: `coverage` looks whether it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, Label, Span
from sketchc.checker.context.context import Context, at_start
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.symbol_sources import symbol_sources


@records.define(eq=False)
class _Accesses:
    """First places where a tensor is loaded and stored, as (phase, span), and the loops of the host
    around the first load and around all stores."""

    load: tuple[int, Span] | None = None
    store: tuple[int, Span] | None = None
    atomic: tuple[int, Span] | None = None
    read_in: frozenset[str] = frozenset()
    stored_in: set[str] = records.field(factory=set)


def settle_roles(
    context: Context, phases: tuple[ir.Phase, ...], schedule: tuple[ir.HostStep, ...]
) -> tuple[ir.Tensor, ...]:
    """Give every tensor its role, and report accesses that contradict it."""
    bases = {view.name: view.base for view in context.views}
    accesses = {tensor.name: _Accesses() for tensor in context.tensors}
    for index, phase in enumerate(phases):
        before = {name: seen.load for name, seen in accesses.items()}
        steps = walk.around(schedule, index)
        around = frozenset(step.variable for step in steps if isinstance(step, ir.HostFor))
        _collect(phase.body, index, bases, accesses)
        for name, seen in accesses.items():
            if seen.load != before[name]:
                seen.read_in = around
        for name in _stored(phase.body):
            accesses[bases.get(name, name)].stored_in |= around
    _collect_fetches(schedule, 0, bases, accesses)
    return tuple(_settle(context, tensor, accesses[tensor.name]) for tensor in context.tensors)


def _stored(body: tuple[ir.Statement, ...]) -> Iterator[str]:
    """The tensors and views that a block stores."""
    for statement in walk.statements(body):
        if isinstance(statement, ir.Store):
            yield statement.access.tensor


def _collect(
    body: tuple[ir.Statement, ...],
    phase: int,
    bases: dict[str, str],
    accesses: dict[str, _Accesses],
) -> None:
    for statement in walk.statements(body):
        match statement:
            case ir.Load(access=access) | ir.Fetch(access=access):
                seen = accesses[bases.get(access.tensor, access.tensor)]
                seen.load = seen.load or (phase, access.span)
            case ir.Atomic(access=access):
                seen = accesses[bases.get(access.tensor, access.tensor)]
                seen.atomic = seen.atomic or (phase, access.span)
            case ir.Store(access=access):
                seen = accesses[bases.get(access.tensor, access.tensor)]
                seen.store = seen.store or (phase, access.span)
            case _:
                pass


def _collect_fetches(
    steps: tuple[ir.HostStep, ...],
    launched: int,
    bases: dict[str, str],
    accesses: dict[str, _Accesses],
    around: frozenset[str] = frozenset(),
) -> int:
    """Note what the host reads; returns the number of phases up to the end of these steps."""
    for step in steps:
        match step:
            case ir.Launch(phase):
                launched = phase + 1
            case ir.Fetch(access=access):
                seen = accesses[bases.get(access.tensor, access.tensor)]
                if seen.load is None or seen.load[0] >= launched:
                    seen.load, seen.read_in = (launched, access.span), around
            case ir.HostFor(variable, body=inner):
                inside = around | {variable}
                launched = _collect_fetches(inner, launched, bases, accesses, inside)
            case ir.HostIf(body=inner, orelse=orelse):
                launched = _collect_fetches((*inner, *orelse), launched, bases, accesses, around)
            case ir.Bind():
                pass
            case _:
                assert_never(step)
    return launched


def _settle(context: Context, tensor: ir.Tensor, seen: _Accesses) -> ir.Tensor:
    declared = tensor.name in context.declared_roles
    role = tensor.role
    writes = [place for place in (seen.store, seen.atomic) if place is not None]
    write = min(writes, key=lambda place: place[0], default=None)
    if not declared:
        role = ir.Role.IN if write is None else ir.Role.OUT
    if seen.load is None and write is None and tensor.name not in context.mentioned:
        context.warn(
            tensor.span, "SK0611", f"`{tensor.name}` is never loaded or stored", "not used"
        )
    early = (
        seen.load is not None
        and tensor.initial is None
        and (write is None or write[0] >= seen.load[0])
    )
    if role is ir.Role.IN and tensor.initial is not None:
        _contradiction(context, tensor, tensor.span, "is an input, and has an initial value", ())
    if tensor.optional and write is not None:
        _contradiction(context, tensor, write[1], "is optional, hence an input, and stored", ())
    elif role is ir.Role.IN and write is not None:
        _contradiction(context, tensor, write[1], "is declared `in`, and stored", ())
    elif role in (ir.Role.OUT, ir.Role.WORKSPACE) and early and seen.load is not None:
        if (declared or role is ir.Role.WORKSPACE) and seen.read_in & seen.stored_in:
            return records.evolve(tensor, role=role)
        fixes: tuple[Fix, ...] = ()
        if not declared:
            edit = Edit(at_start(context.dtype_spans[tensor.name]), "inout ")
            fixes = (Fix(f"declare `{tensor.name}` as `inout`", (edit,)),)
        early_help = (
            f"write it in an earlier phase, or give it an initial value: `{tensor.name}"
            f"[...]: {tensor.dtype.value} = 0`"
        )
        what = "is loaded before any phase has written it"
        _contradiction(context, tensor, seen.load[1], what, fixes, "" if fixes else early_help)
        role = ir.Role.INOUT if role is ir.Role.OUT else role  # as it would be mended
    elif role in (ir.Role.OUT, ir.Role.WORKSPACE):
        _check_atomic(context, tensor, seen)
    broadcast = any(tensor.broadcast)
    if broadcast and write is not None:
        _contradiction(context, tensor, write[1], "may have extent 1, so it is load-only", ())
    return records.evolve(tensor, role=role)


def _check_atomic(context: Context, tensor: ir.Tensor, seen: _Accesses) -> None:
    """An atomic combines with what is there: `= c`, `inout`, or stores of an earlier phase."""
    if seen.atomic is None or tensor.initial is not None:
        return
    if seen.store is not None and seen.store[0] < seen.atomic[0]:
        return
    context.error(
        seen.atomic[1],
        "SK0220",
        f"`{tensor.name}` has no value that this could be combined with",
        "not initialised",
        labels=(Label(tensor.span, f"`{tensor.name}` is declared here"),),
        help="give it an initial value, as in `= 0`, or declare it `inout`",
    )


def _contradiction(
    context: Context,
    tensor: ir.Tensor,
    span: Span,
    what: str,
    fixes: tuple[Fix, ...],
    help: str = "",
) -> None:
    context.error(
        span,
        "SK0207",
        f"`{tensor.name}` {what}",
        "against its role",
        labels=(Label(tensor.span, f"`{tensor.name}` is declared here"),),
        help=help,
        fixes=fixes,
    )


def check_symbols(context: Context, tensors: tuple[ir.Tensor, ...]) -> None:
    """Every symbol must follow from the shapes of inputs: launches bind it from there."""
    constants = {constant.name: constant.value for constant in context.constants}
    names = [symbol.name for symbol in context.symbols]
    bound = symbol_sources(names, tensors, constants)
    for symbol in context.symbols:
        if symbol.name not in bound:
            context.error(
                symbol.span,
                "SK0205",
                f"no input's shape says what `{symbol.name}` is",
                "cannot be bound at launch",
                notes=(
                    "a symbol takes its value from the shape of an input: from an extent that is "
                    f"just `{symbol.name}`, or a multiple of it plus what other extents say",
                ),
                help=f"use `{symbol.name}` as an input's extent, or make it a param: "
                f"`params: {symbol.name}: i64;`",
            )

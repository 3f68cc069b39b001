"""From a plan to its loop programs, for every target that prints loops.

`build_phases` takes a plan whose phases are mapped and returns the loop program of each phase,
`host_program` what the host does around them; `storages` says what memory they take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import assert_never

import attrs

from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import children, declared_names, substitute
from sketchc.launch.conditions import fetch_conditions, fetched_conditions
from sketchc.lowering.loops import nodes as loops
from sketchc.lowering.loops.forwarding import Versions, find_versions
from sketchc.lowering.loops.fusion import (
    BranchNode,
    FetchNode,
    Leaf,
    LoopNode,
    Node,
    SerialNode,
    build_tree,
    leaves,
    place,
)
from sketchc.lowering.loops.nest_maker import NestMaker
from sketchc.lowering.loops.nests import Kind, LaneSource, Nest, lane_variable
from sketchc.lowering.loops.reads import Calls, Scope, converted, divides, fetch, host_element
from sketchc.lowering.loops.transformations import (
    add_rows,
    add_streams,
    unread_outputs,
    unroll_and_jam,
    without_dead_stores,
)
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan, Storage, literals

#: Names of lane variables by the number of loops that remain, innermost first.
LANE_NAMES = ("lane", "row", "plane", "cube")


@attrs.frozen
class BuiltPhase:
    """A phase of a plan with its loop program; `versions` tells which tile a storage is of."""

    plan: PhasePlan
    versions: Versions
    program: loops.Program


def build_phases(plan: Plan, reserved: Collection[str]) -> tuple[BuiltPhase, ...]:
    """The loop programs of a plan's phases; no local of them has a name of the sketch or one of the
    `reserved` names."""
    constants = literals(plan.sketch)
    built = []
    for phase in _fused(plan, reserved):
        fresh = phase.versions.fresh
        body = add_rows(unroll_and_jam(phase.program.body, fresh, constants), fresh)
        memory = tuple(storage.settled(constants) for storage in phase.program.storages)
        built.append(attrs.evolve(phase, program=loops.Program(memory, body)))
    return tuple(built)


def storages(plan: Plan, reserved: Collection[str]) -> tuple[tuple[Storage, ...], ...]:
    """What each phase reserves for one program after fusion, at whatever values of constants."""
    return tuple(phase.program.storages for phase in _fused(plan, reserved))


def _fused(plan: Plan, reserved: Collection[str]) -> Iterator[BuiltPhase]:
    """The phases as they are whatever the values of constants are: nothing is unrolled, and no
    storage has its memory."""
    sketch, names = plan.sketch, {*reserved, *declared_names(plan.sketch)}
    for phase in plan.phases:
        versions = find_versions(sketch, phase.body, set(names))
        yield BuiltPhase(phase, versions, _lower_phase(phase.body, NestMaker(sketch, versions)))


def host_program(plan: Plan, reserved: Collection[str]) -> tuple[loops.Statement, ...]:
    """What the host does in order, its launches with the loop programs of the phases; loops write
    large outputs past the caches."""
    sketch = plan.sketch
    phases = build_phases(plan, reserved)
    outputs = unread_outputs(sketch, [phase.program for phase in phases])
    launches: dict[int, list[loops.Statement]] = {}
    for phase in phases:
        body = add_streams(phase.program.body, outputs, phase.versions.fresh)
        grid = [grid_loop(axis, sketch) for axis in phase.plan.grid]
        launch = loops.Launch(
            tuple(loop for loop, _ in grid),
            tuple(variable for _, variable in grid if variable is not None),
            attrs.evolve(phase.program, body=body),
            alone=len(phases) == 1,
        )
        text = f"Phase {phase.plan.index + 1} of {len(phases)}."
        launches[phase.plan.index] = [launch] if launch.alone else [loops.Note(text), launch]
    return _host_steps(sketch, sketch.steps, launches)


def _host_steps(
    sketch: ir.Sketch,
    steps: tuple[ir.HostStep, ...],
    launches: Mapping[int, list[loops.Statement]],
) -> tuple[loops.Statement, ...]:
    """The statements of the host's steps; a phase that is not in `launches` is left out."""
    found: list[loops.Statement] = []
    for step in steps:
        made: list[loops.Statement]
        match step:
            case ir.Launch(index):
                found += launches.get(index, ())
                continue
            case ir.HostFor():
                inner = _host_steps(sketch, step.body, launches)
                made = [_serial_loop(step, inner, sketch)]
            case ir.HostIf(condition):
                body, orelse = (_host_steps(sketch, b, launches) for b in (step.body, step.orelse))
                made = [loops.Branch(condition, body, orelse, step.text)]
            case ir.Fetch(name, access, dtype, text=text):
                after = fetched_conditions(sketch).get(name)
                made = [
                    *_noted(text),
                    *map(loops.Refusal, fetch_conditions(sketch).get(name, ())),
                    attrs.evolve(fetch(name, dtype, host_element(sketch, access)), spare=True),
                    *([] if after is None else [loops.Refusal(after)]),
                ]
            case ir.Bind(name, value, text=text):
                made = [*_noted(text), loops.bound(name, value, (step.span,), spare=True)]
            case _:
                assert_never(step)
        found += _traced(made, (step.span,))
    return tuple(found)


def _noted(text: str) -> list[loops.Note]:
    return [loops.Note(text)] if text else []


def _serial_loop(
    loop: ir.For | ir.HostFor, body: tuple[loops.Statement, ...], sketch: ir.Sketch
) -> loops.SerialLoop:
    bounds = (loop.start, loop.stop, loop.step)
    direction = step_sign(loop.step, sketch)
    return loops.SerialLoop(
        loop.variable, *bounds, body, loop.text, direction, origins=(loop.span,)
    )


def grid_loop(axis: GridAxis, sketch: ir.Sketch) -> tuple[loops.SerialLoop, loops.Define | None]:
    """The loop over one grid axis, without its body, and what derives the axis' variable inside.

    The loop runs over the variable itself where the bounds of the sketch's loop are known, else
    over the programs, numbered by a variable of its own.
    """
    zero, one, origins = ir.Literal(0), ir.Literal(1), (axis.span,)

    def upwards(variable: str, stop: ir.Expr, step: ir.Expr = one) -> loops.SerialLoop:
        return loops.SerialLoop(variable, zero, stop, step, (), origins=origins)

    if axis.start == zero and axis.step == one:
        return upwards(axis.variable, axis.count), None
    if axis.start == zero and step_sign(axis.step, sketch) == 1:
        match axis.count:
            case ir.Binary("cdiv", stop, step) if step == axis.step:
                return upwards(axis.variable, stop, step), None
            case _:
                pass
    index = f"{axis.variable}_index"
    step = ir.Binary("*", axis.step, ir.Ref(index, ir.NameKind.LOOP))
    start = loops.Scalar(ir.Binary("+", axis.start, step), DType.I64)
    variable = loops.Define(axis.variable, DType.I64, start, origins=origins)
    return upwards(index, axis.count), variable


def _lower_phase(body: tuple[ir.Statement, ...], maker: NestMaker) -> loops.Program:
    nodes = build_tree(body, maker)
    homes, found = place(nodes, maker)
    lowering = _Lowering(maker, homes)
    statements = lowering.nodes(nodes, Scope())
    # Locals that no single write can declare.
    first = [
        loops.Define(home.name, home.dtype, loops.Number(0, home.dtype), mutable=True)
        for home in homes.values()
        if home.local and home.defined_by is None
    ]
    whole = (*first, *statements)
    return without_dead_stores(loops.Program((*found, *lowering.packs), whole))


@attrs.define
class _Lowering(Calls):
    _partials: dict[int, loops.Local] = attrs.field(factory=dict)

    # ------------------------------------------------------------ structure

    def nodes(self, nodes: list[Node], scope: Scope) -> list[loops.Statement]:
        """The statements of a fused tree, in order."""
        found: list[loops.Statement] = []
        for node in nodes:
            match node:
                case Leaf():
                    found += _traced(self._carried_out(node, scope), (node.nest.origin,))
                case LoopNode():
                    found += self._loop(node, scope)
                    for nest in node.members:
                        self.forget(nest.target, scope)
                case SerialNode():
                    found.append(self._serial(node, scope))
                case BranchNode(branch, body, orelse):
                    # Either side may change what was read before.
                    self._forget_changed(node, scope)
                    then, otherwise = (
                        tuple(self.nodes(arm.children, scope.inner(None))) for arm in (body, orelse)
                    )
                    made = loops.Branch(branch.condition, then, otherwise, branch.text)
                    found += _traced([made], (branch.span,))
                case FetchNode(statement, read):
                    element = self.element(read, scope)
                    fetched = fetch(statement.name, statement.dtype, element)
                    found += _traced([*_noted(statement.text), fetched], (statement.span,))
                case loops.Note() | loops.Define():
                    found.append(node)
                case _:
                    assert_never(node)
        return found

    def _serial(self, node: SerialNode, scope: Scope) -> loops.SerialLoop:
        # Iterations may change what was read before the loop.
        self._forget_changed(node, scope)
        body = tuple(self.nodes(node.children, scope.inner(None)))
        return _serial_loop(node.loop, body, self.maker.sketch)

    def _forget_changed(self, node: SerialNode | BranchNode, scope: Scope) -> None:
        """Forget all reads, and the index calculations of tiles that are written inside."""
        scope.values.clear()
        for leaf in leaves([node]):
            for target in leaf.nest.targets:
                self.forget(target, scope)

    def _loop(self, node: LoopNode, scope: Scope) -> list[loops.Statement]:
        depth = max(len(nest.axes) for nest in node.members) - node.level
        name = LANE_NAMES[depth - 1] if depth <= len(LANE_NAMES) else f"axis_{depth}"
        while name in self.maker.versions.taken:  # by the sketch
            name += "_"
        variable = ir.Ref(name, ir.NameKind.LOOP)
        # In other loops each nest carries its own comment.
        notes = _notes(leaves([node])) if node.innermost else []
        before: list[loops.Statement] = [*notes, *self._hoisted(node, scope)]
        inner = scope.inner(variable)
        scattered = any(nest.scattered for nest in node.members)
        if not node.innermost or node.axis.single or scattered:
            body = tuple(self.nodes(node.children, inner))
            turns = loops.Loop(variable.name, node.axis.lower, node.axis.upper, body)
            return [*before, *_traced([turns], _origins(node))]
        opened, reductions, closed = self._reductions(node, inner)
        body = tuple(self.nodes(node.children, inner))
        bounds = (node.axis.lower, node.axis.upper)
        lanes = loops.LaneLoop(variable.name, *bounds, body, tuple(reductions))
        return _traced([*before, *opened, lanes, *closed], _origins(node))

    # ------------------------------------------------------------ reductions

    def _reductions(
        self, node: LoopNode, scope: Scope
    ) -> tuple[list[loops.Statement], list[loops.Reduction], list[loops.Statement]]:
        """Locals that the lanes combine; an accumulator in memory gets a partial local."""
        opened: list[loops.Statement] = []
        closed: list[loops.Statement] = []
        reductions = []
        for child in node.children:
            if not isinstance(child, Leaf) or child.nest.kind is not Kind.ACCUMULATE:
                continue
            nest = child.nest
            if node.level in nest.target.axes:
                continue
            target = self.place(nest.target, nest.stored, scope)
            if isinstance(target, loops.Element):
                name = self.maker.versions.fresh(f"{nest.target.name}_part")
                partial = loops.Local(name, nest.stored)
                opened.append(loops.Define(name, nest.stored, target, mutable=True))
                closed.append(loops.Write(target.buffer, target.index, partial))
                self._partials[id(nest)] = partial
                target = partial
            reductions.append(loops.Reduction(target.name, nest.operation, nest.stored))
        return opened, reductions, closed

    # ------------------------------------------------------------ leaves

    def _carried_out(self, leaf: Leaf, scope: Scope) -> list[loops.Statement]:
        nest = leaf.nest
        notes = [] if leaf.path and leaf.path[-1].innermost else _notes([leaf])
        if nest.product is not None:
            return [*notes, self.product(nest, nest.product)]
        if nest.library_call is not None:
            return [*notes, self.call(nest, nest.library_call, scope)]
        found: list[loops.Statement] = [*notes]
        for source in (*nest.sources, *nest.target.lanes, *nest.guards):
            found += self.prepared(source, scope)
        found += self.named_indices(nest.target, scope)
        value = self._value(nest, scope)
        if nest.kind is Kind.ACCUMULATE:
            target = self._partials.get(id(nest)) or self.place(nest.target, nest.stored, scope)
            return [*found, loops.Accumulate(nest.operation, target, value)]
        changed = tuple(self._assign(leaf, value, scope))
        condition = self.conjunction(nest.guards, scope)
        if condition is None:
            return [*found, *changed]
        return [*found, loops.Branch(self.shown(condition, scope), changed)]

    def _assign(self, leaf: Leaf, value: loops.Value, scope: Scope) -> list[loops.Statement]:
        nest = leaf.nest
        target = self.place(nest.target, nest.stored, scope)
        if isinstance(target, loops.Local):
            home = self.homes[target.name]
            if home.defined_by is leaf:
                return [loops.Define(target.name, target.dtype, value, home.mutable)]
            self.forget(nest.target, scope)
            return [loops.Assign(target.name, value)]
        if nest.kind is Kind.ATOMIC:
            self.forget(nest.target, scope)
            return [
                loops.AtomicUpdate(nest.operation, target.buffer, target.index, value, nest.stored)
            ]
        key = self.key(nest.target, scope)
        self.forget(nest.target, scope)
        if nest.target.tensor or isinstance(value, loops.Number):
            return [loops.Write(target.buffer, target.index, value)]
        # Tiles kept in locals may change; other locals keep their values.
        tiles = {home.name for home in self.homes.values()}
        if isinstance(value, loops.Local) and value.name not in tiles:
            scope.values[key] = value
            return [loops.Write(target.buffer, target.index, value)]
        # Later readers in this loop take the local, not the memory.
        name = self.local_name(nest.target.name, scope)
        local = loops.Local(name, nest.stored)
        scope.values[key] = local
        return [
            loops.Define(name, nest.stored, value),
            loops.Write(target.buffer, target.index, local),
        ]

    # ------------------------------------------------------------ reads

    def _hoisted(self, node: LoopNode, scope: Scope) -> list[loops.Statement]:
        """Reads inside that do not depend on this loop, made before it."""
        found: list[loops.Statement] = []
        written = {target.name for member in node.members for target in member.targets}
        for leaf in leaves([node]):
            for read in leaf.nest.reads:
                if read.fixed or any(axis >= node.level for axis in read.axes):
                    continue
                parts = [each.reference for each in (*read.inner, read)]
                if any(not part.tensor and part.name in written for part in parts):
                    continue
                found += _traced(self.read(read, scope), (leaf.nest.origin,))
            for lanes in leaf.nest.lanes:
                for part in _steady_parts(lanes.value, node.level):
                    variables = {
                        lane_variable(axis).name: variable
                        for axis, variable in enumerate(scope.variables)
                    }
                    named = self.named(substitute(part, variables), "part", scope)
                    found += _traced(named, (leaf.nest.origin,))
        return found

    # ------------------------------------------------------------ values

    def _value(self, nest: Nest, scope: Scope) -> loops.Value:
        """The value of a nest, in the type of its target."""
        values = [self.source(source, scope) for source in nest.sources]
        if nest.operation == "cast":
            rounding = str(nest.attributes.get("round", "nearest"))
            saturate = bool(nest.attributes.get("sat", False))
            return loops.Convert(values[0], nest.stored, rounding, saturate)
        if nest.operation == "copy" or nest.kind in (Kind.ACCUMULATE, Kind.ATOMIC):
            return converted(values[0], nest.stored)
        name, dtype = nest.operation, nest.dtype.compute
        arguments = []
        for position, value in enumerate(values):
            truth = name.startswith("logical_") or (name == "where" and position == 0)
            arguments.append(converted(value, DType.BOOL if truth else dtype))
        result = nest.result.compute
        applied = loops.Apply(name, tuple(arguments), dtype, result, nest.attributes)
        return converted(applied, nest.stored)


def _steady_parts(value: ir.Expr, level: int) -> list[ir.Expr]:
    """The largest parts of an index calculation that take divisions and are the same in all turns
    of the loops from `level` on."""
    if not divides(value):
        return []
    lanes = LaneSource(value, DType.I64)
    if not lanes.loaded and all(axis < level for axis in lanes.axes):
        return [value]
    return [part for child in children(value) for part in _steady_parts(child, level)]


def _traced(statements: list[loops.Statement], origins: tuple[Span, ...]) -> list[loops.Statement]:
    """The statements, those that do not know where they come from with these origins."""
    return [
        statement if statement.origins else attrs.evolve(statement, origins=origins)
        for statement in statements
    ]


def _origins(node: LoopNode) -> tuple[Span, ...]:
    """Where the nests inside a loop come from."""
    found = [
        origin
        for leaf in leaves([node])
        for origin in (*(read.origin for read in leaf.nest.reads), leaf.nest.origin)
    ]
    return tuple(span for span in dict.fromkeys(found) if span != NOWHERE)


def _notes(carried_out: Iterable[Leaf]) -> list[loops.Statement]:
    """The statements of the sketch that nests carry out: one comment for each text, which comes
    from wherever it stands."""
    found: dict[str, tuple[Span, ...]] = {}
    for nest in (leaf.nest for leaf in carried_out):
        for text, origin in (*((r.note, r.origin) for r in nest.reads), (nest.note, nest.origin)):
            if text:
                found[text] = (*found.get(text, ()), origin)
    return [loops.Note(text, origins=origins) for text, origins in found.items()]


def step_sign(step: ir.Expr, sketch: ir.Sketch) -> int:
    """The sign of a loop's step: 1, -1, or 0 where it is only known when the kernel runs."""
    resolved = substitute(step, literals(sketch))
    value = constant_value(resolved)
    if value is not None:
        return 1 if value > 0 else -1
    symbols = {symbol.name for symbol in sketch.symbols}
    if isinstance(resolved, ir.Ref) and resolved.name in symbols:
        return 1
    return 0

"""From a plan to its loop programs, for every target that prints loops.

`build_phases` takes a plan whose phases are mapped and returns the loop program of each phase,
`host_program` what the host does around them; `storages` gives the memory that they reserve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

import attrs

from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value, simplify
from sketchc.ir.walk import children, declared_names, substitute
from sketchc.ir.walk import names as names_in
from sketchc.launch.conditions import fetch_conditions, fetched_conditions
from sketchc.lowering.loops import nodes as loops
from sketchc.lowering.loops import transformations
from sketchc.lowering.loops.forwarding import Versions, find_versions
from sketchc.lowering.loops.fusion import (
    Control,
    ControlNode,
    Leaf,
    LoopNode,
    Node,
    arms,
    build_tree,
    fuse,
    leaves,
    place,
)
from sketchc.lowering.loops.intervals import split_guards
from sketchc.lowering.loops.narrowing import changing_names, narrow
from sketchc.lowering.loops.nest_maker import NestMaker
from sketchc.lowering.loops.nests import (
    ZERO,
    Kind,
    LaneSource,
    LibraryCall,
    Nest,
    Product,
    Read,
    lane_variable,
    row_major,
    strides,
)
from sketchc.lowering.loops.panels import keep_panels
from sketchc.lowering.loops.reads import Reads, Scope, converted, divides, fetch, host_element
from sketchc.lowering.loops.tables import add_tables
from sketchc.lowering.plan import (
    ARENA,
    GridAxis,
    LoopStyle,
    PhasePlan,
    Plan,
    Storage,
    literals,
)
from sketchc.ops.table import OPS, Fact

#: Names of lane variables by the number of loops that remain, innermost first.
LANE_NAMES = ("lane", "row", "plane", "cube")


@attrs.frozen
class BuiltPhase:
    """A phase of a plan with its loop program; `versions` tells which tile a storage is of."""

    plan: PhasePlan
    versions: Versions
    program: loops.Program


def build_phases(plan: Plan) -> tuple[BuiltPhase, ...]:
    """The loop programs of a plan's phases; no local of them has a name of the sketch or of the
    emitter."""
    constants, style = literals(plan.sketch), style_of(plan)
    built = []
    for phase in _fused(plan):
        fresh, body = phase.versions.fresh, phase.program.body
        if style.on_cores:
            body = transformations.unroll_and_jam(body, fresh, constants)
            tensors = frozenset(tensor.name for tensor in plan.sketch.tensors)
            body = split_guards(body, fresh, tensors)
        body = transformations.add_rows(body, fresh)
        memory = style.settled(phase.program.storages, plan.sketch, plan.hardware.facts)
        built.append(attrs.evolve(phase, program=loops.Program(memory, body)))
    return tuple(built)


def style_of(plan: Plan) -> LoopStyle:
    """How the plan's target runs loops; it is one that does."""
    assert plan.capabilities.loops is not None
    return plan.capabilities.loops


def storages(plan: Plan) -> tuple[tuple[Storage, ...], ...]:
    """The storages of each phase for one program after fusion, for any values of the constants."""
    return tuple(phase.program.storages for phase in _fused(plan))


def _fused(plan: Plan) -> Iterator[BuiltPhase]:
    """The phases with fused loop programs that hold for any values of the constants: nothing is
    unrolled, and storages of tiles have no memory yet."""
    sketch, style = plan.sketch, style_of(plan)
    names = {*style.names, *declared_names(plan.sketch)}
    for phase in plan.phases:
        versions = find_versions(sketch, phase.body, set(names))
        maker = NestMaker(sketch, versions)
        yield BuiltPhase(phase, versions, _lower_phase(phase.body, maker, style))


def host_program(plan: Plan) -> tuple[loops.Statement, ...]:
    """The statements of the host in order, with the loop programs of the phases in its launches."""
    sketch, on_cores = plan.sketch, style_of(plan).on_cores
    phases = build_phases(plan)
    programs = [phase.program for phase in phases]
    outputs = transformations.unread_outputs(sketch, programs) if on_cores else frozenset()
    launches: dict[int, list[loops.Statement]] = {}
    for phase in phases:
        body = phase.program.body
        if on_cores:
            body = transformations.add_streams(body, outputs, phase.versions.fresh)
        grid = [grid_loop(axis, sketch) for axis in phase.plan.grid]
        launch = loops.Launch(
            tuple(loop for loop, _ in grid),
            tuple(variable for _, variable in grid if variable is not None),
            attrs.evolve(phase.program, body=body),
            alone=len(phases) == 1,
            phase=phase.plan.index,
        )
        text = f"Phase {phase.plan.index + 1} of {len(phases)}."
        if on_cores:
            launch = keep_panels(launch, sketch)
        launches[phase.plan.index] = [launch] if launch.alone else [loops.Note(text), launch]
    return _host_steps(sketch, sketch.steps, launches)


def _host_steps(
    sketch: ir.Sketch,
    steps: tuple[ir.HostStep, ...],
    launches: Mapping[int, list[loops.Statement]],
) -> tuple[loops.Statement, ...]:
    """The statements of the host's steps; a phase that is not in `launches` is left out."""
    scope = Scope()
    for step in steps:
        if isinstance(step, ir.Launch):
            scope.body += launches.get(step.phase, ())
            continue
        scope.origins = (step.span,)
        match step:
            case ir.HostFor() | ir.HostIf():
                bodies = [_host_steps(sketch, arm, launches) for arm in arms(step)]
                scope.write(_control(step, bodies, sketch))
            case ir.Fetch(name, access, dtype, text=text):
                before = fetch_conditions(sketch).get(name, ())
                after = fetched_conditions(sketch).get(name)
                fetched = fetch(name, dtype, host_element(sketch, access))
                scope.write(*_noted(text), *map(loops.Refusal, before))
                scope.write(attrs.evolve(fetched, spare=True))
                scope.write(*([] if after is None else [loops.Refusal(after)]))
            case ir.Bind(name, value, text=text):
                scope.write(*_noted(text), loops.bound(name, value, (step.span,), spare=True))
            case _:
                assert_never(step)
    return tuple(scope.body)


def _noted(text: str) -> list[loops.Note]:
    return [loops.Note(text)] if text else []


def _control(
    statement: Control, bodies: list[tuple[loops.Statement, ...]], sketch: ir.Sketch
) -> loops.Statement:
    """A loop or branch of the sketch around its bodies, which are already lowered."""
    match statement:
        case ir.For(variable, start, stop, step) | ir.HostFor(variable, start, stop, step):
            direction = step_sign(step, sketch)
            bounds = (start, stop, step)
            return loops.SerialLoop(variable, *bounds, bodies[0], statement.text, direction)
        case ir.If(condition) | ir.HostIf(condition):
            return loops.Branch(condition, bodies[0], bodies[1], statement.text)
        case _:
            assert_never(statement)


def grid_loop(axis: GridAxis, sketch: ir.Sketch) -> tuple[loops.SerialLoop, loops.Define | None]:
    """The loop over a grid axis, without its body, and the definition of the axis' variable in it.

    The loop runs over the variable itself where the bounds of the sketch's loop are known, else
    over the programs, numbered by a variable of its own; the definition is None in the first case.
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
    index = f"{axis.variable}_index"
    step = ir.Binary("*", axis.step, ir.Ref(index, ir.NameKind.LOOP))
    start = loops.Scalar(ir.Binary("+", axis.start, step), DType.I64)
    variable = loops.Define(axis.variable, DType.I64, start, origins=origins)
    return upwards(index, axis.count), variable


def _lower_phase(
    body: tuple[ir.Statement, ...], maker: NestMaker, style: LoopStyle
) -> loops.Program:
    tree = build_tree(body, maker)
    if style.on_cores:
        narrow(tree, maker, frozenset(changing_names(body)))
    fuse(tree)
    nodes = tree.children
    homes, found = place(nodes, maker)
    lowering = _Lowering(maker, homes, style.on_cores)
    statements = lowering.body(nodes, Scope())
    # Locals that no single write can declare.
    first = [
        loops.Define(home.name, home.dtype, loops.Number(0, home.dtype), mutable=True)
        for home in homes.values()
        if home.local and home.defined_by is None
    ]
    whole = (*first, *statements)
    program = loops.Program((*found, *lowering.packs), whole)
    program = transformations.without_dead_stores(program)
    if not style.on_cores:
        return program
    sketch = maker.sketch
    groups = (sketch.symbols, sketch.params, sketch.constants, sketch.lets)
    host = frozenset(each.name for group in groups for each in group)
    return add_tables(program, maker.versions.fresh, host)


#: Rows, columns and depth by which packed panels may exceed a tile (see `matrix.hpp`).
PACK_MARGIN = (16, 64)
PACK_DEPTH = 256


@attrs.define
class _Lowering(Reads):
    """Writes the statements of one phase; `packs` are the storages for packed panels, where
    operands of products are `packed`."""

    packed: bool
    packs: list[Storage] = attrs.field(factory=list)
    _partials: dict[int, loops.Local] = attrs.field(factory=dict)

    # ------------------------------------------------------------ structure

    def body(self, nodes: list[Node], scope: Scope) -> tuple[loops.Statement, ...]:
        """The statements of a fused tree, in order."""
        for node in nodes:
            match node:
                case Leaf(nest):
                    scope.origins = (nest.origin,)
                    self._carry_out(node, scope)
                case LoopNode():
                    self._loop(node, scope)
                    for nest in node.members:
                        self.forget(nest.target, scope)
                case ControlNode(statement, blocks):
                    self._forget_changed(node, scope)
                    bodies = [self.body(block.children, scope.inner()) for block in blocks]
                    scope.origins = (statement.span,)
                    scope.write(_control(statement, bodies, self.maker.sketch))
                case ir.Fetch(name, _, dtype):
                    scope.origins = (node.span,)
                    element = self.element(self.maker.fetched(node), scope)
                    scope.write(*_noted(node.text), fetch(name, dtype, element))
                case loops.Note() | loops.Define():
                    scope.write(node)
                case _:
                    assert_never(node)
        return tuple(scope.body)

    def _forget_changed(self, node: ControlNode, scope: Scope) -> None:
        """Forget all reads, and the index calculations of tiles that are written inside: other
        turns, or either side of a branch, may change what was read before."""
        scope.values.clear()
        for leaf in leaves([node]):
            for target in leaf.nest.targets:
                self.forget(target, scope)

    def _loop(self, node: LoopNode, scope: Scope) -> None:
        depth = max(len(nest.axes) for nest in node.members) - node.level
        name = LANE_NAMES[depth - 1] if depth <= len(LANE_NAMES) else f"axis_{depth}"
        while name in self.maker.versions.taken:  # by the sketch
            name += "_"
        # In other loops each nest carries its own comment.
        if node.innermost:
            scope.write(*_notes(leaves([node])))
        self._hoist(node, scope)
        scope.origins = _origins(node)
        inner = scope.inner(ir.Ref(name, ir.NameKind.LOOP))
        bounds = (node.axis.lower, node.axis.upper)
        scattered = any(nest.scattered for nest in node.members)
        if not node.innermost or node.axis.single or scattered:
            body = self.body(node.children, inner)
            independent = _independent(node, name, body)
            scope.write(loops.Loop(name, *bounds, body, independent=independent))
            return
        reductions, closed = self._reductions(node, scope, inner)
        body = self.body(node.children, inner)
        scope.write(loops.LaneLoop(name, *bounds, body, tuple(reductions)), *closed)

    def _reductions(
        self, node: LoopNode, scope: Scope, inner: Scope
    ) -> tuple[list[loops.Reduction], list[loops.Write]]:
        """The reductions of a lane loop, and the writes behind it: an accumulator in memory gets a
        partial local, which the lanes combine and which is then written back."""
        closed: list[loops.Write] = []
        reductions = []
        for child in node.children:
            if not isinstance(child, Leaf) or child.nest.kind is not Kind.ACCUMULATE:
                continue
            nest = child.nest
            if node.level in nest.target.axes:
                continue
            target = self.place(nest.target, nest.stored, inner)
            if isinstance(target, loops.Element):
                name = self.maker.versions.fresh(f"{nest.target.name}_part")
                partial = loops.Local(name, nest.stored)
                scope.write(loops.Define(name, nest.stored, target, mutable=True))
                closed.append(loops.Write(target.buffer, target.index, partial))
                self._partials[id(nest)] = partial
                target = partial
            reductions.append(loops.Reduction(target.name, nest.operation, nest.stored))
        return reductions, closed

    # ------------------------------------------------------------ leaves

    def _carry_out(self, leaf: Leaf, scope: Scope) -> None:
        nest = leaf.nest
        if not (leaf.path and leaf.path[-1].innermost):
            scope.write(*_notes([leaf]))
        if isinstance(nest.call, Product):
            scope.write(self._product(nest, nest.call))
            return
        if nest.call is not None:
            scope.write(self._call(nest, nest.call, scope))
            return
        for source in (*nest.sources, *nest.target.lanes, *nest.guards):
            self.source(source, scope)
        self.name_indices(nest.target, scope)
        value = self._value(nest, scope)
        if nest.kind is Kind.ACCUMULATE:
            target = self._partials.get(id(nest)) or self.place(nest.target, nest.stored, scope)
            scope.write(loops.Accumulate(nest.operation, target, value))
            return
        changed = self._assigned(leaf, value, scope)
        condition = self.conjunction(nest.guards, scope)
        if condition is not None:
            changed = [loops.Branch(self.shown(condition, scope), tuple(changed))]
        scope.write(*changed)

    def _assigned(self, leaf: Leaf, value: loops.Value, scope: Scope) -> list[loops.Statement]:
        nest = leaf.nest
        target = self.place(nest.target, nest.stored, scope)
        if isinstance(target, loops.Local):
            home = self.homes[target.name]
            if home.defined_by is leaf:
                return [loops.Define(target.name, target.dtype, value, home.mutable)]
            self.forget(nest.target, scope)
            return [loops.Assign(target.name, value)]
        key = self.key(nest.target, scope)
        self.forget(nest.target, scope)
        place = (target.buffer, target.index)
        if nest.kind is Kind.ATOMIC:
            return [loops.AtomicUpdate(nest.operation, *place, value, nest.stored)]
        if nest.target.tensor or isinstance(value, loops.Number):
            return [loops.Write(*place, value)]
        # Tiles kept in locals may change; other locals keep their values.
        tiles = {home.name for home in self.homes.values()}
        if isinstance(value, loops.Local) and value.name not in tiles:
            scope.values[key] = value
            return [loops.Write(*place, value)]
        # Later readers in this loop take the local, not the memory.
        local = loops.Local(self.local_name(nest.target.name, scope), nest.stored)
        scope.values[key] = local
        return [loops.Define(local.name, nest.stored, value), loops.Write(*place, local)]

    # ------------------------------------------------------------ reads

    def _hoist(self, node: LoopNode, scope: Scope) -> None:
        """Write the reads and indices inside that do not depend on this loop before it."""
        written = {target.name for member in node.members for target in member.targets}
        variables = {lane_variable(n).name: lane for n, lane in enumerate(scope.variables)}
        for leaf in leaves([node]):
            scope.origins = (leaf.nest.origin,)
            for read in leaf.nest.reads:
                if read.fixed or any(axis >= node.level for axis in read.axes):
                    continue
                parts = [each.reference for each in (*read.inner, read)]
                if any(not part.tensor and part.name in written for part in parts):
                    continue
                self.read(read, scope)
            for lanes in leaf.nest.lanes:
                for part in _steady_parts(lanes.value, node.level):
                    self.name(substitute(part, variables), "part", scope)

    # ------------------------------------------------------------ values

    def _value(self, nest: Nest, scope: Scope) -> loops.Value:
        """The value of a nest, in the type of its target."""
        values = [self.source(source, scope) for source in nest.sources]
        row = OPS[nest.operation]
        if Fact.CONVERTS in row.facts:
            rounding = str(nest.attributes.get("round", "nearest"))
            saturate = bool(nest.attributes.get("sat", False))
            return loops.Convert(values[0], nest.stored, rounding, saturate)
        if Fact.HANDS_ON in row.facts or nest.kind in (Kind.ACCUMULATE, Kind.ATOMIC):
            return converted(values[0], nest.stored)
        dtype, result = nest.dtype.compute, nest.result.compute
        arguments = tuple(
            converted(value, DType.BOOL if row.asks(position) else dtype)
            for position, value in enumerate(values)
        )
        applied = loops.Apply(row.name, arguments, dtype, result, nest.attributes)
        return converted(applied, nest.stored)

    # ------------------------------------------------------------ calls of the library on tiles

    def _call(self, nest: Nest, call: LibraryCall, scope: Scope) -> loops.Call:
        """The call of a library's function on tiles in memory."""
        views: list[loops.TileView] = []
        for block in call.blocks:
            home = self.homes[block.name]
            lower, upper = zip(*((axis.lower, axis.upper) for axis in block.lanes), strict=True)
            steps = strides(home.extents, None)
            written = len(views) in call.written
            views.append(loops.TileView(home.name, home.dtype, lower, upper, steps, written))
        for target in nest.targets:
            self.forget(target, scope)
        return loops.Call(call.name, tuple(views), call.parameters)

    # ------------------------------------------------------------ matrix products

    def _product(self, nest: Nest, product: Product) -> loops.Call:
        """A matrix product on strided views, with storage for its packed panels."""
        left, right = (source for source in nest.sources if isinstance(source, Read))
        rows, columns, inner = product.extents
        target = Read(nest.target, nest.stored, nest.stored, nest.target.name)
        bounds = (product.rows, product.columns, product.depth)
        row, column, term = (axis.lower for axis in bounds)
        result = self._view(target, False, row, column)
        views = (
            self._view(left, product.trans_a, row, term),
            self._view(right, product.trans_b, term, column),
            attrs.evolve(result, writable=True),
        )
        packs: tuple[str, ...] = ()
        if self.packed:
            packs = (
                self._pack(f"{left.tile}_panels", rows, inner, PACK_MARGIN[0], nest.dtype),
                self._pack(f"{right.tile}_panels", columns, inner, PACK_MARGIN[1], nest.dtype),
            )
        spans = (
            axis.upper if axis.lower == ZERO else ir.Binary("-", axis.upper, axis.lower)
            for axis in bounds
        )
        floor = product.precision
        return loops.Call("multiply", views, extents=tuple(spans), packs=packs, precision=floor)

    def _view(
        self, read: Read, transposed: bool, first: ir.Expr, second: ir.Expr
    ) -> loops.MatrixView:
        """A rank-2 tile, or the slice of a tensor that stands for it, as a strided matrix whose
        first valid element is (first, second)."""
        reference = read.reference
        window: tuple[ir.Expr, ...] = ()
        axes: tuple[int, ...] = ()
        shape: tuple[ir.Expr, ...] = ()
        if reference.tensor:
            base = self.maker.sketch.tensor(reference.name)
            extents = self.maker.sketch.extents(reference.name)
            origin = row_major(tuple(term.offset for term in reference.terms), extents, base)
            load = self.maker.versions.source(read.tile)
            assert load is not None  # a tensor is read only through a forwarded load
            steps = zip(strides(extents, base), load.access.subscripts, strict=True)
            row, column = (step for step, at in steps if isinstance(at, ir.SliceSubscript))
            buffer = base.name
            if not any(base.broadcast or ()):
                shape = extents
                subscripts = enumerate(load.access.subscripts)
                axes = tuple(n for n, at in subscripts if isinstance(at, ir.SliceSubscript))
                axes = axes[::-1] if transposed else axes
                starts = dict(zip(axes, (first, second), strict=True))
                window = tuple(
                    simplify(ir.Binary("+", term.offset, starts.get(number, ZERO)))
                    for number, term in enumerate(reference.terms)
                )
        else:
            home = self.homes[reference.name]
            row, column = strides(home.extents, None)
            origin, buffer = ir.Literal(0), home.name
        if transposed:
            row, column = column, row
        offset = ir.Binary("+", ir.Binary("*", first, row), ir.Binary("*", second, column))
        return loops.MatrixView(
            buffer,
            read.stored,
            simplify(ir.Binary("+", origin, offset)),
            row,
            column,
            window=window,
            shape=shape,
            axes=axes,
        )

    def _pack(self, stem: str, extent: ir.Expr, depth: ir.Expr, margin: int, dtype: DType) -> str:
        name = self.maker.versions.fresh(stem)
        limited = ir.Binary("min", depth, ir.Literal(PACK_DEPTH))
        extents = (limited, simplify(ir.Binary("+", extent, ir.Literal(margin))))
        self.packs.append(Storage(name, "", dtype, extents, ARENA))
        return name


def _steady_parts(value: ir.Expr, level: int) -> list[ir.Expr]:
    """The largest parts of an index calculation that take divisions and do not vary in the loops
    from number `level` on."""
    if not divides(value):
        return []
    lanes = LaneSource(value, DType.I64)
    if not lanes.loaded and all(axis < level for axis in lanes.axes):
        return [value]
    return [part for child in children(value) for part in _steady_parts(child, level)]


def _independent(node: LoopNode, variable: str, body: tuple[loops.Statement, ...]) -> bool:
    """Whether no turn of a loop needs another one: each nest inside writes lanes of its own, which
    fusion has others read in the same turn, to places that no other turn uses (the memory of a tile
    may have no room for more than one turn)."""
    if any(
        nest.scattered or any(node.level not in target.axes for target in nest.targets)
        for nest in node.members
    ):
        return False
    own = {variable}
    for statement in loops.walk(body):
        match statement:
            case loops.Define(name, _, loops.Scalar(value)) if own & names_in(value):
                own.add(name)
            case loops.Write(_, index) | loops.Accumulate(_, loops.Element(_, index)):
                if not own & names_in(index):
                    return False
            case loops.Call():
                return False
    return True


def _origins(node: LoopNode) -> tuple[Span, ...]:
    """The spans of the sketch that the nests inside a loop implement."""
    found = [
        origin
        for leaf in leaves([node])
        for origin in (*(read.origin for read in leaf.nest.reads), leaf.nest.origin)
    ]
    return tuple(span for span in dict.fromkeys(found) if span != NOWHERE)


def _notes(carried_out: Iterable[Leaf]) -> list[loops.Statement]:
    """The statements of the sketch that nests implement: one comment for each text, with the spans
    of all statements that have this text."""
    found: dict[str, tuple[Span, ...]] = {}
    for nest in (leaf.nest for leaf in carried_out):
        for text, origin in (*((r.note, r.origin) for r in nest.reads), (nest.note, nest.origin)):
            if text:
                found[text] = (*found.get(text, ()), origin)
    return [loops.Note(text, origins=origins) for text, origins in found.items()]


def step_sign(step: ir.Expr, sketch: ir.Sketch) -> int:
    """The sign of a loop's step: 1, -1, or 0 where it is only known when the kernel runs. A symbol
    counts as positive; what else `never_negative` could prove is not worth a simpler loop."""
    resolved = substitute(step, literals(sketch))
    value = constant_value(resolved)
    if value is not None:
        return 1 if value > 0 else -1
    symbols = {symbol.name for symbol in sketch.symbols}
    if isinstance(resolved, ir.Ref) and resolved.name in symbols:
        return 1
    return 0

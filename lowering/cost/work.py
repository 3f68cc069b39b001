"""What one launch of a plan does at given sizes: loops, accesses to memory and operations, each
with its mean over the launch.

Loop bounds and the lanes that are valid may depend on loop variables (triangular loops, tiles that
stick out). They are evaluated at `_SAMPLES` points of the launch that cover the range of each
variable evenly, and the means count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

import attrs

from sketchc.base.types import DType, Scalar
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.lowering.launches import GROUP, runs_in_groups, stages_at, warps_of
from sketchc.lowering.loop_bounds import trip_count
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan
from sketchc.lowering.precisions import precision_class
from sketchc.lowering.sample_sizes import Values
from sketchc.ops.table import OPS, Category

#: Hints that ask for loads ahead of their use.
_STREAMING = {"pipeline", "async"}
#: Points at which a launch is looked at. A prime: a variable's points are a permutation of the
#: same evenly spaced ones for each variable.
_SAMPLES = 7


@attrs.frozen
class Access:
    """A statement's access to a tensor, or to a tile that takes memory: `lanes` elements of
    `element` bytes, in runs of `run` elements that lie side by side, of `size` bytes in all. It
    moves with the loop variables `variables`, and along its runs with those in `along`. `gathers`:
    each lane has an index of its own, on `indexed` axes of the tensor."""

    memory: str
    lanes: float
    element: int
    run: float
    size: float
    variables: frozenset[str]
    along: frozenset[str] = frozenset()
    writes: bool = False
    atomic: bool = False
    gathers: bool = False
    tile: bool = False
    indexed: int = 0


@attrs.frozen
class Operation:
    """A computation: `lanes` results (of a cross-lane operation: lanes read) in rows of `run`
    lanes; `depth` multiply-adds for each lane of a matrix product, whose other two sides are
    `rows` and `run`. `kind` is its precision class ("integer" for others). `alone`: its result
    takes memory, so that it is a loop nest of its own. `transposed`: a matrix product that reads an
    operand across its rows; `padded`: what it multiplies of a whole block for each multiply-add of
    valid lanes."""

    name: str
    dtype: DType
    kind: str
    lanes: float
    run: float
    rows: float = 1.0
    depth: float = 0.0
    alone: bool = False
    transposed: bool = False
    padded: float = 1.0


@attrs.frozen
class Loop:
    """A loop, or an axis of the grid, with the mean number of its iterations for each time that it
    is entered; an `if` is a loop without a variable, of at most one iteration. `streams`: the
    sketch asks for loads of later iterations to be on their way; `stages`: how many iterations are
    under way with the one that is worked on (None where the target's compiler decides)."""

    variable: str
    trips: float
    body: tuple[Node, ...]
    streams: bool = False
    stages: int | None = None


Node = Access | Operation | Loop


def accesses(node: Node) -> Iterable[Access]:
    """All accesses in `node`."""
    match node:
        case Operation():
            return ()
        case Access():
            return (node,)
        case Loop():
            return [access for inner in node.body for access in accesses(inner)]


@attrs.frozen
class LaunchWork:
    """The work of one launch: `grid` axes around `body`, each program of which runs once for each
    grid point. `times`: how often the host launches it. `tile_bytes`: of the tiles that one
    program holds at the fullest moment, by memory. `warps` of a program: None where they are not
    told when a kernel is launched."""

    name: str
    grid: tuple[Loop, ...]
    body: tuple[Node, ...]
    times: float
    tile_bytes: Mapping[str, int]
    warps: int | None = None

    @property
    def programs(self) -> float:
        """The number of programs of the launch."""
        return math.prod(axis.trips for axis in self.grid)

    def operations(self) -> Iterator[tuple[Operation, float]]:
        """The operations, each with the number of times that one launch runs it."""
        pending: list[tuple[Node, float]] = [(node, self.programs) for node in self.body]
        while pending:
            node, times = pending.pop()
            match node:
                case Operation():
                    yield node, times
                case Loop(_, trips, body):
                    pending += [(inner, times * trips) for inner in body]


def work_of(plan: Plan, values: Values) -> tuple[LaunchWork, ...]:
    """The work of each launch of a plan whose tiles are placed; `values` of the host's scalars by
    name (`ir.evaluate.host_values`)."""
    return tuple(_Counter(plan, phase, values).work() for phase in plan.phases)


@attrs.define
class _Mean:
    """How often something ran, and the sums of what it did, over all samples."""

    times: float = 0.0
    trips: float = 0.0
    parts: list[float] = attrs.field(factory=list)


class _Counter:
    """Looks at one launch at `_SAMPLES` points, then makes the tree of its means."""

    def __init__(self, plan: Plan, phase: PhasePlan, values: Values) -> None:
        self._plan, self._phase, self._values = plan, phase, values
        self._means: dict[int, _Mean] = {}
        self._variables: dict[str, int] = {}
        self._sides: dict[str, tuple[float, ...]] = {}
        #: what a name that is bound in the body depends on
        self._bound: dict[str, frozenset[str]] = {}
        self._tensors = {t.name: t for t in plan.sketch.tensors}
        self._bases = {view.name: view.base for view in plan.sketch.views}

    def work(self) -> LaunchWork:
        """The launch's work."""
        phase = self._phase
        for sample in range(_SAMPLES):
            values, times = self._hosted(sample), 1.0  # one launch is looked at
            for axis in phase.grid:
                times *= self._enter(axis, axis.count, values, times, sample)
            self._body(phase.body, values, times, sample)
        host = 1.0
        for step in walk.around(self._plan.sketch.steps, phase.index):
            if isinstance(step, ir.HostFor):
                host *= self._trips(step)
        warps = warps_of(self._plan, phase, self._values)
        grid = tuple(Loop(axis.variable, self._trips(axis), ()) for axis in phase.grid)
        if warps is not None and runs_in_groups(phase) and grid[-2].trips > GROUP:
            groups = attrs.evolve(grid[-2], trips=grid[-2].trips / GROUP)
            grid = (*grid[:-2], groups, grid[-1], attrs.evolve(groups, trips=float(GROUP)))
        held = {use.memory: use.bytes for use in phase.memory_use}
        return LaunchWork(phase.name, grid, self._tree(phase.body), host, held, warps)

    # ------------------------------------------------------------ samples

    def _hosted(self, sample: int) -> dict[str, Scalar]:
        """The values of the host's scalars, with those of the loops around the launch."""
        values = dict(self._values)
        for step in walk.around(self._plan.sketch.steps, self._phase.index):
            match step:
                case ir.HostFor():
                    self._enter(step, trip_count(step), values, 1.0, sample)
                case ir.Bind(name, value):
                    values[name] = self._number(value, values, 0.0)
        return values

    def _body(
        self, body: tuple[ir.Statement, ...], values: dict[str, Scalar], times: float, sample: int
    ) -> None:
        for statement in body:
            match statement:
                case ir.For():
                    inner = dict(values)
                    trips = self._enter(statement, trip_count(statement), inner, times, sample)
                    self._body(statement.body, inner, times * trips, sample)
                case ir.If(condition, then, orelse):
                    taken = self._number(condition, values, 0.5)
                    self._mean(statement, times, float(taken))
                    self._body(then, dict(values), times * float(taken), sample)
                    self._body(orelse, dict(values), times * (1.0 - float(taken)), sample)
                case ir.Bind(name, value):
                    self._bound[name] = self._depends(value)
                    if walk.has_lanes(value, {}):
                        continue
                    found = self._number(value, values, math.nan)
                    if not math.isnan(found):
                        values[name] = int(found)
                case ir.Load() | ir.Store() | ir.Atomic():
                    lanes = self._valid(statement.tile, statement.domain, values)
                    self._mean(statement, times, 0.0, lanes)
                case ir.Compute():
                    self._mean(statement, times, 0.0, self._shape(statement, values))
                case ir.Alloc() | ir.Fetch():
                    self._mean(statement, times, 0.0)
                case _:
                    assert_never(statement)

    def _enter(
        self,
        loop: ir.For | ir.HostFor | GridAxis,
        count: ir.Expr,
        values: dict[str, Scalar],
        times: float,
        sample: int,
    ) -> float:
        """The `count` of iterations of a loop; `values` gets its variable's, at this sample's
        place."""
        trips = max(self._number(count, values, 1.0), 0.0)
        self._mean(loop, times, trips)
        at = math.floor(self._place(loop.variable, sample) * trips)
        start = self._number(loop.start, values, 0.0)
        values[loop.variable] = int(start + at * self._number(loop.step, values, 1.0))
        return trips

    def _place(self, variable: str, sample: int) -> float:
        """The place of `sample` in the range of a variable, from 0 to 1: each variable comes to the
        same places, in another order."""
        number = self._variables.setdefault(variable, len(self._variables) + 1)
        return (sample * (number % (_SAMPLES - 1) + 1) % _SAMPLES + 0.5) / _SAMPLES

    def _mean(
        self, node: object, times: float, trips: float, parts: tuple[float, ...] = ()
    ) -> None:
        mean = self._means.setdefault(id(node), _Mean(parts=[0.0] * len(parts)))
        mean.times += times
        mean.trips += times * trips
        for index, part in enumerate(parts):
            mean.parts[index] += times * part

    def _number(self, expression: ir.Expr, values: Values, otherwise: float) -> float:
        """The value of a scalar expression; `otherwise` where it depends on what is read."""
        try:
            return float(evaluate(expression, values))
        except (KeyError, ArithmeticError, ValueError):
            return otherwise

    def _valid(self, tile: str, domain: ir.Domain, values: Values) -> tuple[float, ...]:
        """The number of valid lanes of a tile along each axis."""
        if not domain:
            return self._extents(tile)
        found = []
        for axis, high in enumerate(self._extents(tile)):
            low = 0.0
            if axis < len(domain):
                high = min([high, *(self._number(e, values, high) for e in domain[axis].upper)])
                low = max([low, *(self._number(e, values, 0.0) for e in domain[axis].lower)])
            found.append(max(high - low, 0.0))
        return tuple(found)

    def _extents(self, tile: str) -> tuple[float, ...]:
        """The extents of a tile, which the host knows."""
        if tile not in self._sides:
            extents = self._plan.sketch.tile(tile).extents
            self._sides[tile] = tuple(self._number(e, self._values, 1.0) for e in extents)
        return self._sides[tile]

    def _shape(self, statement: ir.Compute, values: Values) -> tuple[float, ...]:
        """The extents that the work of a computation is counted by; with the depth of a matrix
        product at the end."""
        row = OPS[statement.operation]
        source = statement.operands[0] if statement.operands else None
        if isinstance(source, ir.TileOperand) and source.layout is None:
            read = self._valid(source.tile, source.domain, values)
            if row.category is Category.MATRIX:
                other = statement.operands[1]
                assert isinstance(other, ir.TileOperand)
                columns = self._valid(other.tile, other.domain, values)
                if statement.attributes.get("trans_a"):
                    read = (*read[:-2], read[-1], read[-2])
                if statement.attributes.get("trans_b"):
                    columns = (*columns[:-2], columns[-1], columns[-2])
                return (*read[:-1], columns[-1], read[-1])
            if row.category is not Category.ELEMENTWISE:
                return read
        return self._valid(statement.destination, statement.written or statement.domain, values)

    # ------------------------------------------------------------ the tree of means

    def _trips(self, loop: object) -> float:
        mean = self._means[id(loop)]
        return mean.trips / mean.times if mean.times else 0.0

    def _parts(self, node: object) -> list[float]:
        mean = self._means[id(node)]
        return [part / mean.times if mean.times else 0.0 for part in mean.parts]

    def _tree(self, body: tuple[ir.Statement, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for statement in body:
            match statement:
                case ir.For():
                    trips, inner = self._trips(statement), self._tree(statement.body)
                    streams = statement.stages is not None or bool(_STREAMING & {*statement.hints})
                    stages = stages_at(self._plan, self._phase, statement)
                    found.append(Loop(statement.variable, trips, inner, streams, stages))
                case ir.If(_, then, orelse):
                    taken = self._trips(statement)
                    found.append(Loop("", taken, self._tree(then)))
                    if orelse:
                        found.append(Loop("", 1.0 - taken, self._tree(orelse)))
                case ir.Load() | ir.Store() | ir.Atomic():
                    found.append(self._access(statement))
                    found.extend(self._touched(statement))
                case ir.Compute():
                    found.append(self._operation(statement))
                    found.extend(self._touched(statement))
                case ir.Alloc() | ir.Fetch() | ir.Bind():
                    pass
                case _:
                    assert_never(statement)
        return tuple(found)

    def _access(self, statement: ir.Load | ir.Store | ir.Atomic) -> Access:
        access = statement.access
        tensor = self._tensors[self._bases.get(access.tensor, access.tensor)]
        extents = [self._number(extent, self._values, 1.0) for extent in tensor.extents]
        lanes = self._parts(statement)
        last = access.subscripts[-1] if access.subscripts else None
        run = lanes[-1] if lanes and not isinstance(last, ir.ScalarSubscript) else 1.0
        stepped = isinstance(last, ir.SliceSubscript) and last.step != ir.Literal(1)
        # Indices of lanes along one axis are added up before lanes of all axes have them.
        indexed = min(sum(isinstance(s, ir.IndexSubscript) for s in access.subscripts), len(lanes))
        loaded = any(isinstance(s, ir.IndexSubscript) and s.loaded for s in access.subscripts[-1:])
        used = [
            frozenset().union(*(self._depends(e) for e in walk.subscript_parts(s)))
            for s in access.subscripts
        ]
        return Access(
            tensor.name,
            math.prod(lanes),
            tensor.dtype.bytes,
            1.0 if stepped or loaded else max(run, 1.0),
            math.prod(extents) * tensor.dtype.bytes,
            frozenset().union(*used),
            used[-1] if used else frozenset(),
            writes=not isinstance(statement, ir.Load),
            atomic=isinstance(statement, ir.Atomic),
            gathers=indexed > 0,
            indexed=indexed,
        )

    def _depends(self, expression: ir.Expr) -> frozenset[str]:
        """The loop variables that the value of an expression depends on. What is read from memory
        depends on all that its tile does, which is not followed: on the variables by name."""
        found: set[str] = set()
        for name in walk.names(expression):
            found |= self._bound.get(name, {name} if name in self._variables else frozenset())
        return frozenset(found)

    def _touched(self, statement: ir.Statement) -> list[Access]:
        """The accesses to tiles that take memory which a statement makes."""
        found = []
        for name, writes in (
            *((name, False) for name in walk.reads(statement)),
            *((name, True) for name in walk.writes(statement)),
        ):
            tile = self._plan.tiles[name]
            if tile.memory in ("fused", "register"):
                continue
            extents = self._extents(name)
            lanes, element = math.prod(extents), tile.tile.dtype.bytes
            run = max(extents[-1], 1.0) if extents else 1.0
            size = lanes * element
            where = f"tile {name}"
            found.append(
                Access(where, lanes, element, run, size, frozenset(), writes=writes, tile=True)
            )
        return found

    def _operation(self, statement: ir.Compute) -> Operation:
        shape = self._parts(statement)
        row = OPS[statement.operation]
        depth = 0.0
        if row.category is Category.MATRIX:
            *shape, depth = shape
        lanes = math.prod(shape)
        run = shape[-1] if shape else 1.0
        rows = shape[-2] if len(shape) > 1 else 1.0
        alone = self._plan.tiles[statement.destination].memory not in ("fused", "register")
        kind = precision_class(self._plan, statement)
        sides = (lanes, run, rows, depth)
        turned = any(statement.attributes.get(name) for name in ("trans_a", "trans_b"))
        return Operation(
            *(statement.operation, statement.dtype, kind, *sides),
            alone=alone,
            transposed=turned,
            padded=self._block(statement) / (lanes * depth) if lanes * depth else 1.0,
        )

    def _block(self, product: ir.Compute) -> float:
        """The multiply-adds of a matrix product's whole block, void lanes included."""
        left = product.operands[0]
        assert isinstance(left, ir.TileOperand)
        depth = self._extents(left.tile)[-2 if product.attributes.get("trans_a") else -1]
        return depth * math.prod(self._extents(product.destination))

"""Which values an integer input may have: those at which every index read from it is in range.

An index that comes from memory is the caller's promise (R13), and so is what a store says with
`unique=True` or `covers=True` of the places it writes (R7). Random inputs must keep both, so this
module reads off the sketch where an input's elements end up: as subscripts, and as the bounds of
host loops. It follows copies and conversions of tiles, and sums with literals; what it cannot
follow stays unbounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sketchc.base import records
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, evaluate, host_values
from sketchc.ops.table import OPS, Fact

#: Trips granted to a loop of the host whose bound comes from memory.
MOST_TRIPS = 4
#: A range without a bound on either side.
UNBOUNDED = (-(2**63), 2**63)


@records.frozen
class _Use:
    """Elements of the input `tensor`, plus `offset`, must lie in [0, `limit`)."""

    tensor: str
    offset: int
    limit: ir.Expr


@records.frozen
class Promise:
    """What a store says of the places that it writes: no two are equal (`unique`), all are there
    (`covers`). The elements of the inputs `tensors`, side by side, choose the places."""

    tensors: tuple[str, ...]
    unique: bool
    covers: bool


def promises(sketch: ir.Sketch) -> tuple[Promise, ...]:
    """The promises of all stores whose places are read from inputs."""
    reader = _Reader(sketch, _index_inputs(sketch))
    for _ in reader.steps(sketch.steps):
        pass  # the walk notes them
    return tuple(dict.fromkeys(reader.promises))


def index_ranges(
    sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Value]
) -> dict[str, tuple[int, int]]:
    """The half-open range of valid elements of every input whose elements serve as indices.

    A range may be empty: no index fits an axis without elements.
    """
    values = host_values(sketch, symbols, params)
    found: dict[str, tuple[int, int]] = {}
    for use in _uses(sketch):
        lower, upper = found.get(use.tensor, UNBOUNDED)
        limit = int(evaluate(use.limit, values))
        found[use.tensor] = (max(lower, -use.offset), min(upper, limit - use.offset))
    return found


def _uses(sketch: ir.Sketch) -> Iterator[_Use]:
    """Every use of an input's elements as indices or as the bound of a host loop."""
    reader = _Reader(sketch, _index_inputs(sketch))
    yield from reader.steps(sketch.steps)


def _index_inputs(sketch: ir.Sketch) -> set[str]:
    """The inputs that can hold indices."""
    return {
        tensor.name
        for tensor in sketch.tensors
        if tensor.role in (ir.Role.IN, ir.Role.INOUT) and tensor.dtype.is_integer
    }


class _Reader:
    """Walks a sketch in program order; `origin` says which input's elements a name holds."""

    def __init__(self, sketch: ir.Sketch, inputs: set[str]) -> None:
        self.sketch = sketch
        self.inputs = inputs
        self.origin: dict[str, tuple[str, int]] = {}
        self.promises: list[Promise] = []

    def steps(self, steps: Iterable[ir.HostStep]) -> Iterator[_Use]:
        for step in steps:
            match step:
                case ir.Launch(phase):
                    yield from self.statements(self.sketch.phases[phase].body)
                case ir.HostFor():
                    for bound in (step.start, step.stop):
                        if source := self._source(bound):
                            yield _Use(*source, ir.Literal(MOST_TRIPS + 1))
                    yield from self.steps(step.body)
                case ir.HostIf():
                    yield from self.steps(step.body)
                    yield from self.steps(step.orelse)
                case ir.Fetch() | ir.Bind():
                    yield from self.statements((step,))

    def statements(self, body: Iterable[ir.Statement]) -> Iterator[_Use]:
        for statement in body:
            match statement:
                case ir.Load():
                    yield from self._access(statement.access)
                    self._set(statement.tile, statement.access.tensor)
                case ir.Store():
                    uses = tuple(self._access(statement.access))
                    if uses and (statement.unique or statement.covers):
                        tensors = tuple(dict.fromkeys(use.tensor for use in uses))
                        promise = Promise(tensors, statement.unique, statement.covers)
                        self.promises.append(promise)
                    yield from uses
                case ir.Atomic():
                    yield from self._access(statement.access)
                case ir.Fetch():
                    yield from self._access(statement.access)
                    self._set(statement.name, statement.access.tensor)
                case ir.Bind():
                    if source := self._source(statement.value):
                        self.origin[statement.name] = source
                case ir.Compute():
                    self._compute(statement)
                case ir.For():
                    yield from self.statements(statement.body)
                case ir.If():
                    yield from self.statements(statement.body)
                    yield from self.statements(statement.orelse)
                case ir.Alloc():
                    pass

    def _set(self, name: str, tensor: str) -> None:
        base = self.sketch.tensor(tensor).name
        self.origin.pop(name, None)
        if base in self.inputs:
            self.origin[name] = (base, 0)

    def _compute(self, statement: ir.Compute) -> None:
        """A copy or conversion hands the elements on; everything else makes new ones."""
        source = statement.operands[0] if statement.operands else None
        kept = None
        if Fact.HANDS_ON in OPS[statement.operation].facts and isinstance(source, ir.TileOperand):
            kept = self.origin.get(source.tile)
        for destination in statement.destinations:
            self.origin.pop(destination, None)
            if kept is not None:
                self.origin[destination] = kept

    def _access(self, access: ir.Access) -> Iterator[_Use]:
        extents = self.sketch.extents(access.tensor)
        for subscript, extent in zip(access.subscripts, extents, strict=True):
            match subscript:
                case ir.ScalarSubscript(index) | ir.IndexSubscript(index):
                    if source := self._source(index):
                        yield _Use(*source, extent)
                case ir.SliceSubscript():
                    pass

    def _source(self, value: ir.Expr) -> tuple[str, int] | None:
        """The input whose elements, plus an offset, `value` is."""
        match value:
            case ir.Ref(name) | ir.TileLanes(name):
                return self.origin.get(name)
            case ir.Binary("+", left, ir.Literal(int(step))) | ir.Binary(
                "+", ir.Literal(int(step)), left
            ):
                source = self._source(left)
                return source and (source[0], source[1] + step)
            case ir.Binary("-", left, ir.Literal(int(step))):
                source = self._source(left)
                return source and (source[0], source[1] - step)
            case _:
                return None

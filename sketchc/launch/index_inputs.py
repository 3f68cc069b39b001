"""Which values an integer input may have: those at which every index read from it is in range.

An index that comes from memory is the caller's promise (R13), and so is what a store says with
`unique=True` or `covers=True` of the places it writes (R7). Random inputs must keep both, so this
module reads off the sketch where an input's elements end up: as subscripts, and as the bounds of
host loops. It follows copies and conversions of tiles, and sums with literals; what it cannot
follow stays unbounded.
"""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.base import records
from sketchc.ir import nodes as ir
from sketchc.ir import walk
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
    reader = _Reader(sketch)
    reader.read()
    return tuple(dict.fromkeys(reader.promises))


def index_ranges(
    sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Value]
) -> dict[str, tuple[int, int]]:
    """The half-open range of valid elements of every input whose elements serve as indices.

    A range may be empty: no index fits an axis without elements.
    """
    values = host_values(sketch, symbols, params)
    reader = _Reader(sketch)
    reader.read()
    found: dict[str, tuple[int, int]] = {}
    for use in reader.uses:
        lower, upper = found.get(use.tensor, UNBOUNDED)
        limit = int(evaluate(use.limit, values))
        found[use.tensor] = (max(lower, -use.offset), min(upper, limit - use.offset))
    return found


class _Reader:
    """Walks a sketch in program order, and finds every use of an input's elements as indices or as
    the bound of a host loop; `origin` says which input's elements a name holds."""

    def __init__(self, sketch: ir.Sketch) -> None:
        self.sketch = sketch
        self.inputs = {
            tensor.name
            for tensor in sketch.tensors
            if tensor.role in (ir.Role.IN, ir.Role.INOUT) and tensor.dtype.is_integer
        }
        self.origin: dict[str, tuple[str, int]] = {}
        self.uses: list[_Use] = []
        self.promises: list[Promise] = []

    def read(self) -> None:
        """Note the uses and promises of the whole sketch."""
        for step in walk.steps(self.sketch.steps):
            if isinstance(step, ir.Launch):
                for statement in walk.statements(self.sketch.phases[step.phase].body):
                    self._note(statement)
            else:
                self._note(step)

    def _note(self, statement: ir.Statement | ir.HostStep) -> None:
        match statement:
            case ir.Load(access, name) | ir.Fetch(name, access):
                self._access(access)
                self.origin.pop(name, None)
                base = self.sketch.tensor(access.tensor).name
                if base in self.inputs:
                    self.origin[name] = (base, 0)
            case ir.Store(access=access):
                uses = self._access(access)
                if uses and (statement.unique or statement.covers):
                    tensors = tuple(dict.fromkeys(use.tensor for use in uses))
                    self.promises.append(Promise(tensors, statement.unique, statement.covers))
            case ir.Atomic(access=access):
                self._access(access)
            case ir.Bind(name, value):
                if source := self._source(value):
                    self.origin[name] = source
            case ir.Compute():
                self._compute(statement)
            case ir.HostFor(start=start, stop=stop):
                for source in filter(None, map(self._source, (start, stop))):
                    self.uses.append(_Use(*source, ir.Literal(MOST_TRIPS + 1)))
            case _:
                pass

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

    def _access(self, access: ir.Access) -> list[_Use]:
        """Note the uses of inputs in an access; returns them."""
        extents = self.sketch.extents(access.tensor)
        found = []
        for subscript, extent in zip(access.subscripts, extents, strict=True):
            if isinstance(subscript, ir.ScalarSubscript | ir.IndexSubscript):
                (index, *_) = walk.subscript_parts(subscript)
                if source := self._source(index):
                    found.append(_Use(*source, extent))
        self.uses += found
        return found

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

"""Symbols from the shapes of a launch's inputs, and the ranges of inputs that hold indices.

A symbol that stands by itself as an extent of an input is that extent. One that stands nowhere by
itself is solved from an extent `2*N + 1`, or `N + K` where K is known already; that some N gives
this extent is checked with the shape. One that only optional inputs have is bound by the first of
them that is given, and 0 where none is.

An integer input may have the values at which every index read from it is in range. An index that
comes from memory is the caller's promise (R13), and so is what a store says with `unique=True` or
`covers=True` of the places it writes (R7). Random inputs must keep both, so this module reads off
the sketch where an input's elements end up: as subscripts, and as the bounds of host loops. It
follows copies and conversions of tiles, and sums with literals; what it cannot follow stays
unbounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sketchc.base import records
from sketchc.base.diagnostics import refuse
from sketchc.base.memo import per_sketch
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, constants_of, evaluate, host_values
from sketchc.ir.show import show
from sketchc.ir.symbolic import normalize, rebuild
from sketchc.ir.walk import references, substitute
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
    """The promise of a store about the places that it writes: no two are equal (`unique`), all are
    written (`covers`). The elements of the inputs `tensors`, side by side, are their indices."""

    tensors: tuple[str, ...]
    unique: bool
    covers: bool


def promises(sketch: ir.Sketch) -> tuple[Promise, ...]:
    """The promises of all stores whose indices are read from inputs."""
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
    the bound of a host loop; `origin` has the input whose elements a name holds, and the offset."""

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
        for step in walk.statements(self.sketch.steps):
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

    def _compute(self, statement: ir.Compute) -> None:
        """Note the origin of an operation's destinations: a copy or a conversion keeps its
        source's, any other operation has none."""
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
        """The input and the offset for which `value` is an element plus the offset, or None."""
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


@records.frozen
class SymbolSource:
    """An axis whose extent is `step * symbol + offset`, `step` being at least 1; `offset` uses
    symbols that are bound before."""

    symbol: str
    tensor: ir.Tensor
    axis: int
    step: int = 1
    offset: ir.Expr = records.field(default=ir.Literal(0))

    @property
    def bare(self) -> bool:
        """Whether the extent is the symbol itself."""
        return self.step == 1 and self.offset == ir.Literal(0)

    def value(self, size: int, known: Mapping[str, Value]) -> int:
        """The symbol's value for an extent of `size`. Raises `UsageError` where there is none."""
        value, rest = divmod(size - int(evaluate(self.offset, known)), self.step)
        if rest or value < 0:
            extent = show(self.tensor.extents[self.axis])
            refuse(
                f"axis {self.axis} of {self.tensor.name} is {size}, and no {self.symbol} gives "
                f"{extent} = {size}"
            )
        return value


def symbol_sources(
    names: Iterable[str], tensors: Iterable[ir.Tensor], constants: Mapping[str, Value]
) -> dict[str, tuple[SymbolSource, ...]]:
    """The sources of each symbol that has any, in an order in which they can be bound: one in a
    tensor that is always given, or all those in optional ones. An axis `M|1` does not count."""
    wanted = list(names)
    inputs = [t for t in tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
    literals = {name: ir.Literal(value) for name, value in constants.items()}
    found: dict[str, tuple[SymbolSource, ...]] = {}
    for optional in (False, True):
        given = [tensor for tensor in inputs if tensor.optional == optional]
        axes = [
            (tensor, axis)
            for tensor in given
            for axis in range(len(tensor.extents))
            if not (tensor.broadcast and tensor.broadcast[axis])
        ]
        while True:
            ways = [
                source
                for tensor, axis in axes
                for source in _solved(tensor, axis, wanted, literals, found)
            ]
            plain = [source for source in ways if source.bare] or ways
            if not plain:
                break
            if optional:
                symbol = plain[0].symbol
                found[symbol] = tuple(source for source in plain if source.symbol == symbol)
            else:
                for source in plain:
                    found.setdefault(source.symbol, (source,))
    return found


def _solved(
    tensor: ir.Tensor,
    axis: int,
    wanted: Sequence[str],
    literals: Mapping[str, ir.Expr],
    known: Mapping[str, object],
) -> Iterator[SymbolSource]:
    """The source of the only symbol of an extent that is not known yet, if the extent gives it."""
    polynomial = normalize(substitute(tensor.extents[axis], literals))
    used = {ref.name for ref in references(rebuild(polynomial))}
    missing = [name for name in wanted if name in used and name not in known]
    if len(missing) != 1 or not used <= {*known, *missing}:
        return
    (symbol,) = missing
    rest = dict(polynomial)
    step = 0
    for monomial, coefficient in polynomial.items():
        if len(monomial) == 1 and monomial[0].expression == ir.Ref(symbol, ir.NameKind.SYMBOL):
            step = coefficient
            del rest[monomial]
    offset = rebuild(rest)
    if step >= 1 and symbol not in {ref.name for ref in references(offset)}:
        yield SymbolSource(symbol, tensor, axis, step, offset)


@per_sketch
def sources_of(sketch: ir.Sketch) -> dict[str, tuple[SymbolSource, ...]]:
    """`symbol_sources` of a whole sketch."""
    names = (symbol.name for symbol in sketch.symbols)
    return symbol_sources(names, sketch.tensors, constants_of(sketch))


def absent_symbols(sketch: ir.Sketch, given: Iterable[str]) -> dict[str, int]:
    """The symbols, 0 each, whose sources are all in optional tensors that are not `given`."""
    present = set(given)
    return {
        symbol: 0
        for symbol, sources in sources_of(sketch).items()
        if all(s.tensor.optional and s.tensor.name not in present for s in sources)
    }


def solve_symbols(
    sketch: ir.Sketch, shapes: Mapping[str, Sequence[int]], known: Mapping[str, int]
) -> dict[str, int]:
    """`known` with the symbols that it lacks, as far as `shapes` (of the tensors that are given)
    determine them. Raises `UsageError` for an extent that no value of its symbol gives."""
    values = dict(known)
    for symbol, sources in sources_of(sketch).items():
        if symbol in values:
            continue
        for source in sources:
            shape = shapes.get(source.tensor.name, ())
            offset = {ref.name for ref in references(source.offset)}
            if source.axis < len(shape) and offset <= values.keys():
                values[symbol] = source.value(shape[source.axis], values)
                break
    return values

"""Where a launch finds the value of each symbol: in the shapes of its inputs.

A symbol that stands by itself as an extent of an input is that extent. One that stands nowhere by
itself is solved from an extent `2*N + 1`, or `N + K` where K is known already; that some N gives
this extent is checked with the shape. One that only optional inputs have is bound by the first of
them that is given, and 0 where none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sketchc.base import records
from sketchc.base.diagnostics import UsageError
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, constants_of, evaluate
from sketchc.ir.show import show
from sketchc.ir.symbolic import normalize, rebuild
from sketchc.ir.walk import references, substitute


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
            msg = (
                f"axis {self.axis} of {self.tensor.name} is {size}, and no {self.symbol} gives "
                f"{extent} = {size}"
            )
            raise UsageError(msg)
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
        axes = [place for t in inputs if t.optional == optional for place in _axes(t)]
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


def _axes(tensor: ir.Tensor) -> Iterator[tuple[ir.Tensor, int]]:
    for axis in range(len(tensor.extents)):
        if not (tensor.broadcast and tensor.broadcast[axis]):
            yield tensor, axis


def _solved(
    tensor: ir.Tensor,
    axis: int,
    wanted: Sequence[str],
    literals: Mapping[str, ir.Expr],
    known: Mapping[str, object],
) -> Iterator[SymbolSource]:
    """The one symbol not known yet that an extent determines."""
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


def sources_of(sketch: ir.Sketch) -> dict[str, tuple[SymbolSource, ...]]:
    """`symbol_sources` of a whole sketch."""
    names = (symbol.name for symbol in sketch.symbols)
    return symbol_sources(names, sketch.tensors, constants_of(sketch))


def absent_symbols(sketch: ir.Sketch, given: Iterable[str]) -> dict[str, int]:
    """The symbols, 0 each, that only optional tensors have of which none is among those `given`."""
    present = set(given)
    return {
        symbol: 0
        for symbol, sources in sources_of(sketch).items()
        if all(s.tensor.optional and s.tensor.name not in present for s in sources)
    }


def solve_symbols(
    sketch: ir.Sketch, shapes: Mapping[str, Sequence[int]], known: Mapping[str, int]
) -> dict[str, int]:
    """`known` with the symbols that it lacks, as far as the shapes of the tensors given say them.
    Raises `UsageError` for an extent that no value of its symbol gives."""
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

"""Prints what is done to the accumulators of products in fragments, and the tiles around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.loops import nodes
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.wrapping import PythonLines
from sketchc.lowering.tilelang_cuda.deliveries import Delivery, delivery
from sketchc.lowering.tilelang_cuda.expressions import TYPES, Expressions, cast
from sketchc.lowering.tilelang_cuda.products import MatrixProduct, alone, rectangles

ZERO = Code("0")


@attrs.define
class Fragments(Expressions, PythonLines):
    """Prints the lanes around accumulators in fragments."""

    #: products of tiles, by the `id` of their calls
    products: Mapping[int, MatrixProduct] = attrs.field(factory=dict, kw_only=True)
    #: the tensors that tiles are streamed from, or delivered to: the parameter for the tensor in
    #: its own shape, by name and shape
    matrices: dict[tuple[str, tuple[ir.Expr, ...]], str] = attrs.field(factory=dict, kw_only=True)
    targets: dict[tuple[str, tuple[ir.Expr, ...]], str] = attrs.field(factory=dict, kw_only=True)
    #: the tensors that one statement of the program touches, to write them, with their shapes
    outputs: Mapping[str, tuple[ir.Expr, ...]] = attrs.field(factory=dict, kw_only=True)
    #: rows that are elements of a fragment, of a tile or of what a thread holds
    _cells: dict[str, str] = attrs.field(factory=dict)
    _in_lane: bool = False

    def line(self, text: str, deeper: str = "") -> None:
        """Append the assignments that are pending, then a statement."""
        pending, self.pending = self.pending, []
        for assignment in pending:
            PythonLines.line(self, assignment)
        PythonLines.line(self, text, deeper)

    def statements(self, body: tuple[nodes.Statement, ...]) -> None:
        """Print statements in order."""
        raise NotImplementedError

    def element(self, buffer: str, index: ir.Expr) -> Code:
        """See `Expressions`; the rows of a fragment have one element for each lane."""
        if buffer in self._cells:
            return Code(self._cells[buffer])
        return Expressions.element(self, buffer, index)

    @contextmanager
    def lane(self) -> Iterator[None]:
        """What is printed in this context one thread does for itself."""
        before, self._in_lane = self._in_lane, True
        yield
        self._in_lane = before

    def _rows(self, rows: tuple[nodes.Row, ...]) -> None:
        for row in rows:
            memory, first = self.places.get(row.buffer, (row.buffer, ZERO))
            self.buffers[memory] = None
            start = self.scalar(row.base)
            if first != ZERO:
                start = PYTHON.binary("+", first, start)
            self.places[row.name] = memory, self.bind(f"{row.name}_start", start, None)

    def bound(self, expression: ir.Expr) -> int | None:
        """What an expression is at most, where that is known when the kernel is compiled."""
        value = self.constant(expression)
        if value is not None:
            return int(value)
        match expression:
            case ir.Binary("min", left, right):
                known = [b for b in (self.bound(left), self.bound(right)) if b is not None]
                return min(known, default=None)
            case _:
                return None

    def _of_fragment(self, loop: nodes.Loop) -> nodes.LaneLoop | None:
        """The inner loop of a rectangle that touches an accumulator in a fragment."""
        for _, lanes in rectangles((loop,)):
            if any(row.buffer in self.kept for row in lanes.rows):
                return lanes
        return None

    @property
    def kept(self) -> dict[str, tuple[int, int]]:
        """The accumulators in fragments, with the extents of these."""
        return {each.result: each.extents for each in self.products.values() if each.kept}

    def _fragment(self, loop: nodes.Loop, lanes: nodes.LaneLoop) -> None:
        """The lanes of a rectangle, dealt out as those of the accumulators in it are; where they
        are delivered as a tile, another form does that."""
        found = self.delivery(loop, lanes)
        if found is None:
            self._fragment_lanes(loop, lanes, {})
            return
        row = found.row
        tile = self.names.fresh(f"{self.names[row.buffer]}_tile")
        extents = ", ".join(map(str, self._extents(lanes)))
        self.line(f"if {self.word('delivered')}:")
        with self.block():
            self.line(f'{tile} = T.alloc_shared(({extents}), "{TYPES[row.dtype]}")')
            self._fragment_lanes(loop, lanes, {row.name: tile})
            self.line(f"T.copy({tile}, {self._window(row.buffer, found.shape, found.window)})")
        self.line("else:")
        with self.block():
            self._fragment_lanes(loop, lanes, {})

    def delivery(self, loop: nodes.Loop, lanes: nodes.LaneLoop) -> Delivery | None:
        """What a rectangle around an accumulator of matrix units delivers as a tile."""
        rows = {row.buffer for row in lanes.rows}
        made = [p for p in self.products.values() if p.kept and p.result in rows]
        if not made or not all(each.streamed and each.on_units for each in made):
            return None
        return delivery(loop, lanes, self.outputs, made[0].extents, self.bound)

    def _extents(self, lanes: nodes.LaneLoop) -> tuple[int, int]:
        """Of the accumulators that a rectangle touches."""
        return next(self.kept[row.buffer] for row in lanes.rows if row.buffer in self.kept)

    def _fragment_lanes(
        self, loop: nodes.Loop, lanes: nodes.LaneLoop, tiles: Mapping[str, str]
    ) -> None:
        """The lanes of a rectangle, dealt out as those of the accumulators in it are; `tiles` are
        the tiles in shared memory that rows are of."""
        extents = ", ".join(map(str, self._extents(lanes)))
        row, lane = self.define(loop.variable), self.define(lanes.variable)
        self.known |= {loop.variable: True, lanes.variable: True}
        memories = {r.name: self.names[r.buffer] for r in lanes.rows if r.buffer in self.kept}
        memories |= tiles
        cells = {name: f"{memory}[{row}, {lane}]" for name, memory in memories.items()}
        others = tuple(r for r in lanes.rows if r.name not in memories)
        # Elements of a fragment or tile alone may be written beyond the valid ones, too.
        inside = nodes.walk(lanes.body)
        own = not others and all(
            isinstance(each, nodes.Note | nodes.Define if tiles else nodes.Note)
            or (isinstance(each, nodes.Write) and (tiles or isinstance(each.value, nodes.Number)))
            for each in inside
        )
        if tiles and any(
            isinstance(part, nodes.Element) and part.buffer not in cells
            for each in nodes.walk(lanes.body)
            for part in nodes.parts(each)
        ):
            own = False
        self.statements(tuple(s for s in loop.body if isinstance(s, nodes.Note)))
        self.line(f"for {row}, {lane} in T.Parallel({extents}):")
        outer = self.indent
        self.indent += "    "
        body, asked = alone(lanes.body)
        # One condition: of several inside of each other, the compiler asks the first alone where it
        # converts and writes several lanes at once.
        bounds = () if own else ((row, loop.upper), (lane, lanes.upper))
        guards = [PYTHON.binary("<", Code(name), self.wide(upper)) for name, upper in bounds] + [
            self.truth(condition) for condition in asked
        ]
        if guards:
            self.line(f"if {reduce(partial(PYTHON.call, 'T.And'), guards)}:")
            self.indent += "    "
        self._cells = cells
        with self.lane():
            self._rows(others)
            self.statements(body)
        self._cells = {}
        self.indent = outer

    def tiles(self) -> None:
        """Print the allocation of the tiles and fragments of products."""
        for product in self.products.values():
            for operand in (product.left, product.right):
                extents = ", ".join(map(str, operand.extents))
                self.line(f'{operand.name} = T.alloc_shared(({extents}), "{TYPES[operand.dtype]}")')
        fragments = {each.result: each for each in self.products.values()}
        for name, product in fragments.items():
            spelled = self.define(name) if product.kept else name
            extents = ", ".join(map(str, product.extents))
            self.line(f'{spelled} = T.alloc_fragment(({extents}), "{TYPES[product.dtype]}")')

    def _window(self, buffer: str, shape: tuple[ir.Expr, ...], window: tuple[ir.Expr, ...]) -> str:
        """An element of a tensor in its own shape."""
        key = buffer, shape
        known = self.targets if buffer in self.outputs else self.matrices
        if key not in known:
            known[key] = self.names.fresh(f"{self.names[buffer]}_matrix")
        at = ", ".join(str(cast(self.wide(index), DType.I32)) for index in window)
        return f"{known[key]}[{at}]"

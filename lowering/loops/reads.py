"""Values at the lanes of a loop: what has been read into locals, and what must be read.

A local holds each element that a loop's body reads, once; later readers take the local. Operations
on memory as a whole (matrix products, functions on tiles) take views of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import attrs

from sketchc.base.diagnostics import NOWHERE
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import changed, names, parts, substitute
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.fusion import Home
from sketchc.lowering.loops.nest_maker import NestMaker
from sketchc.lowering.loops.nests import (
    ONE,
    ZERO,
    LaneSource,
    LibraryCall,
    Nest,
    Product,
    Read,
    Reference,
    ScalarSource,
    Source,
    Term,
    lane_variable,
    read_variable,
)
from sketchc.lowering.loops.nodes import scalar_dtype
from sketchc.lowering.loops.tiles import row_major, strides
from sketchc.lowering.plan import Storage


@attrs.frozen
class Key:
    """What makes two reads one: the element, the condition, and what stands there if it fails.
    `as_index`: the value as an i64."""

    name: str
    tensor: bool
    indices: tuple[ir.Expr, ...]
    condition: ir.Expr | None = None
    pad: object = 0
    as_index: bool = False


@attrs.define
class Scope:
    """What is known at one place: variables of the loops around it, values already read."""

    variables: tuple[ir.Ref, ...] = ()
    values: dict[Key, nodes.Local] = attrs.field(factory=dict)
    names: set[str] = attrs.field(factory=set)
    #: index calculations that have a local of their own
    known: dict[ir.Expr, ir.Ref] = attrs.field(factory=dict)

    def inner(self, variable: ir.Ref | None) -> Scope:
        """What is known in the body of a loop over `variable`, or of a branch."""
        variables = self.variables if variable is None else (*self.variables, variable)
        return Scope(variables, dict(self.values), set(self.names), dict(self.known))


@attrs.define
class Reads:
    """Reads of one phase; `homes` says where each tile's version lives."""

    maker: NestMaker
    homes: Mapping[str, Home]

    def forget(self, written: Reference, scope: Scope) -> None:
        """Forget what was read from memory that changes, and what was found by its value."""
        home = "" if written.tensor else self.homes[written.name].name

        def changed(key: Key) -> bool:
            if key.tensor and written.tensor:
                return self.maker.sketch.tensor(key.name).name == written.base
            places = key.indices if key.condition is None else (*key.indices, key.condition)
            same = key.tensor == written.tensor and key.name == written.name
            return same or any(home in names(place) for place in places)

        scope.values = {k: local for k, local in scope.values.items() if not changed(k)}
        scope.known = {v: name for v, name in scope.known.items() if home not in names(v)}

    def local_name(self, stem: str, scope: Scope) -> str:
        """A local's name: free here and in the loops around."""
        name = f"{stem}_value" if stem in self.homes else stem
        count = 2
        candidate = name
        while candidate in scope.names or (
            candidate != stem and candidate in self.maker.versions.taken
        ):
            candidate = f"{name}_{count}"
            count += 1
        scope.names.add(candidate)
        return candidate

    def prepared(self, source: Source, scope: Scope) -> list[nodes.Statement]:
        """Locals for what a source reads from memory."""
        match source:
            case Read():
                return self.read(source, scope)
            case LaneSource():
                return self.prepared_lanes(source, scope)
            case ScalarSource():
                return []
            case _:
                assert_never(source)

    def prepared_lanes(self, lanes: LaneSource, scope: Scope) -> list[nodes.Statement]:
        """Locals for the elements of tiles that an index tile is made of."""
        return [s for read in lanes.reads for s in self.read_index(read, scope)]

    def named_indices(self, reference: Reference, scope: Scope) -> list[nodes.Statement]:
        """Locals for indices that take divisions: guards use them again."""
        found: list[nodes.Statement] = []
        for lanes in reference.lanes:
            if divides(lanes.value):
                value = self.lane_value(lanes, scope)
                found += self.named(value, f"{reference.name}_index", scope)
        return found

    def named(self, value: ir.Expr, stem: str, scope: Scope) -> list[nodes.Statement]:
        """A local for an index calculation, unless it has one."""
        if value in scope.known:
            return []
        shown = self.shown(value, scope)
        name = self.local_name(stem, scope)
        scope.known[value] = ir.Ref(name, ir.NameKind.BINDING)
        return [nodes.Define(name, DType.I64, nodes.Scalar(shown, DType.I64))]

    def shown(self, value: ir.Expr, scope: Scope) -> ir.Expr:
        """The expression with locals for what is calculated already."""
        return replaced(value, scope.known) if scope.known else value

    def read(self, read: Read, scope: Scope) -> list[nodes.Statement]:
        """Read memory into a local, unless it is one or has been read."""
        found: list[nodes.Statement] = []
        for lanes in (*read.reference.lanes, *read.guards):
            found += self.prepared_lanes(lanes, scope)
        found += self.named_indices(read.reference, scope)
        place = self.place(read.reference, read.stored, scope)
        if isinstance(place, nodes.Local):
            return found
        key = self.read_key(read, scope)
        if key in scope.values:
            return found
        name = self.local_name(read.tile, scope)
        value = self.element(read, scope)
        scope.values[key] = nodes.Local(name, read.held)
        origins = () if read.origin == NOWHERE else (read.origin,)
        return [*found, nodes.Define(name, read.held, value, origins=origins)]

    def element(self, read: Read, scope: Scope) -> nodes.Value:
        """The element, read only where the guards hold."""
        place = self.place(read.reference, read.stored, scope)
        condition = self.conjunction(read.guards, scope)
        if condition is None:
            return place
        condition = self.shown(condition, scope)
        held = read.held
        value = ir.Literal(read.pad) if isinstance(read.pad, int | float) else read.pad
        pad = scalar_value(value, held)
        return nodes.Select(condition, converted(place, held), pad, held)

    def local(self, read: Read, scope: Scope) -> nodes.Local:
        """The local that holds what was read."""
        place = self.place(read.reference, read.stored, scope)
        if isinstance(place, nodes.Local):
            return place
        return scope.values[self.read_key(read, scope)]

    def read_index(self, read: Read, scope: Scope) -> list[nodes.Statement]:
        """Read memory into a local of the type in which indices are calculated."""
        found = self.read(read, scope)
        local = self.local(read, scope)
        key = attrs.evolve(self.read_key(read, scope), as_index=True)
        if local.dtype in (DType.I64, DType.BOOL) or key in scope.values:
            return found
        index = nodes.Local(self.local_name(f"{read.tile}_index", scope), DType.I64)
        scope.values[key] = index
        return [*found, nodes.Define(index.name, DType.I64, nodes.Convert(local, DType.I64))]

    def lane_value(self, source: LaneSource, scope: Scope) -> ir.Expr:
        """An index tile's value, over lane variables and locals."""
        names: dict[str, ir.Expr] = {
            lane_variable(axis).name: scope.variables[axis] for axis in source.axes
        }
        for number, read in enumerate(source.reads):
            key = attrs.evolve(self.read_key(read, scope), as_index=True)
            local = scope.values.get(key) or self.local(read, scope)
            kind = DType.BOOL if local.dtype is DType.BOOL else DType.I64
            variable = read_variable(number, local.dtype)
            names[variable.name] = ir.Ref(local.name, ir.NameKind.BINDING, kind)
        return substitute(source.value, names)

    def conjunction(self, guards: tuple[LaneSource, ...], scope: Scope) -> ir.Expr | None:
        """The conjunction of guards, None for no condition."""
        found: ir.Expr | None = None
        for guard in guards:
            condition = self.lane_value(guard, scope)
            found = condition if found is None else ir.Binary("and", found, condition)
        return found

    def key(self, reference: Reference, scope: Scope) -> Key:
        """What makes reads of an element one."""
        indices = tuple(self.index(term, scope) for term in reference.terms)
        return Key(reference.name, reference.tensor, indices)

    def read_key(self, read: Read, scope: Scope) -> Key:
        """What makes reads one that test the same guards."""
        key = self.key(read.reference, scope)
        if not read.guards:
            return key
        return attrs.evolve(key, condition=self.conjunction(read.guards, scope), pad=read.pad)

    def index(self, term: Term, scope: Scope) -> ir.Expr:
        """The index that a term gives at the lanes of the loops around."""
        if term.lanes is not None:
            return self.lane_value(term.lanes, scope)
        if term.axis is None:
            return term.offset
        lane: ir.Expr = scope.variables[term.axis]
        if term.step != ONE:
            lane = ir.Binary("*", lane, term.step)
        return lane if term.offset == ZERO else ir.Binary("+", term.offset, lane)

    def place(
        self, reference: Reference, stored: DType, scope: Scope
    ) -> nodes.Local | nodes.Element:
        """The local or the element of memory behind a reference."""
        indices = tuple(self.shown(self.index(term, scope), scope) for term in reference.terms)
        if reference.tensor:
            extents = self.maker.sketch.extents(reference.name)
            base = self.maker.sketch.tensor(reference.name)
            index = row_major(indices, extents, base)
            return nodes.Element(base.name, index, stored)
        home = self.homes[reference.name]
        if home.local:
            return nodes.Local(home.name, home.dtype)
        kept = tuple(indices[axis] for axis in home.kept)
        extents = tuple(home.extents[axis] for axis in home.kept)
        return nodes.Element(home.name, row_major(kept, extents, None), stored)

    def source(self, source: Source, scope: Scope) -> nodes.Value:
        """The value of a source, which `prepared` has read."""
        match source:
            case Read(dtype=dtype):
                return converted(self.local(source, scope), dtype)
            case ScalarSource(value, dtype):
                return scalar_value(value, dtype)
            case LaneSource(dtype=dtype):
                resolved = self.shown(self.lane_value(source, scope), scope)
                return converted(nodes.Scalar(resolved, scalar_dtype(resolved)), dtype)
            case _:
                assert_never(source)


def divides(value: ir.Expr) -> bool:
    """Whether a calculation takes divisions."""
    return any(
        isinstance(part, ir.Binary) and part.operator in ("//", "%", "cdiv")
        for part in parts(value)
    )


def replaced(value: ir.Expr, known: Mapping[ir.Expr, ir.Ref]) -> ir.Expr:
    """The expression with the largest known parts replaced."""
    if value in known:
        return known[value]
    return changed(value, lambda part: replaced(part, known))


def converted(value: nodes.Value, dtype: DType) -> nodes.Value:
    """The value in a type."""
    if value.dtype is dtype:
        return value
    if isinstance(value, nodes.Number):
        return typed_number(value.value, dtype)
    return nodes.Convert(value, dtype)


def typed_number(value: int | float | bool, dtype: DType) -> nodes.Number:
    """A number as its type holds it."""
    kind = bool if dtype is DType.BOOL else float if dtype.is_float else int
    return nodes.Number(kind(value), dtype)


def scalar_value(value: ir.Expr, dtype: DType) -> nodes.Value:
    """A scalar expression in a type."""
    match value:
        case ir.Literal(number):
            return typed_number(number, dtype)
        case ir.Unary("-", ir.Literal(number)):
            return typed_number(-number, dtype)
        case _:
            return converted(nodes.Scalar(value, scalar_dtype(value)), dtype)


def fetch(name: str, dtype: DType, element: nodes.Value) -> nodes.Define:
    """A fetched scalar: i64, bool, or, for any float, double, which holds it exactly."""
    kind = DType.F64 if dtype.is_float else (DType.BOOL if dtype is DType.BOOL else DType.I64)
    return nodes.Define(name, kind, converted(element, kind))


def host_element(sketch: ir.Sketch, access: ir.Access) -> nodes.Element:
    """An element of a tensor at scalar subscripts, which are in range."""
    indices = tuple(s.index for s in access.subscripts if isinstance(s, ir.ScalarSubscript))
    base = sketch.tensor(access.tensor)
    index = row_major(indices, sketch.extents(access.tensor), base)
    return nodes.Element(base.name, index, base.dtype)


#: Rows, columns and depth by which packed panels may exceed a tile (see `matrix.hpp`).
PACK_MARGIN = (16, 64)
PACK_DEPTH = 256


@attrs.define
class Calls(Reads):
    """Makes the calls of one phase; `packs` are the storages for packed panels."""

    packs: list[Storage] = attrs.field(factory=list)

    # ------------------------------------------------------------ calls of the library on tiles

    def call(self, nest: Nest, call: LibraryCall, scope: Scope) -> nodes.TileCall:
        """The call of a library's function on tiles in memory."""
        views = []
        for block in call.blocks:
            home = self.homes[block.name]
            lower, upper = zip(*((axis.lower, axis.upper) for axis in block.lanes), strict=True)
            steps = strides(home.extents, None)
            views.append(nodes.TileView(home.name, home.dtype, lower, upper, steps))
        targets = {target.name for target in nest.targets}
        written = [n for n, block in enumerate(call.blocks) if block.name in targets]
        for target in nest.targets:
            self.forget(target, scope)
        return nodes.TileCall(call.name, tuple(views), tuple(written), call.parameters)

    # ------------------------------------------------------------ matrix products

    def product(self, nest: Nest, product: Product) -> nodes.MatrixProduct:
        """A matrix product on strided views, with storage for its packed panels."""
        left, right = (source for source in nest.sources if isinstance(source, Read))
        rows, columns, inner = product.extents
        left_view = self._view(left, product.trans_a, product.rows.lower, product.depth.lower)
        right_view = self._view(right, product.trans_b, product.depth.lower, product.columns.lower)
        target = Read(nest.target, nest.stored, nest.stored, nest.target.name)
        result = self._view(target, False, product.rows.lower, product.columns.lower)
        packs = (
            self._pack(f"{left.tile}_panels", rows, inner, PACK_MARGIN[0], nest.dtype),
            self._pack(f"{right.tile}_panels", columns, inner, PACK_MARGIN[1], nest.dtype),
        )
        return nodes.MatrixProduct(
            left_view,
            right_view,
            result,
            _span(product.rows.lower, product.rows.upper),
            _span(product.columns.lower, product.columns.upper),
            _span(product.depth.lower, product.depth.upper),
            nest.dtype,
            packs,
        )

    def _view(
        self, read: Read, transposed: bool, first: ir.Expr, second: ir.Expr
    ) -> nodes.MatrixView:
        """A rank-2 tile, or the slice of a tensor that stands for it, as a strided matrix whose
        first valid element is (first, second)."""
        reference = read.reference
        if reference.tensor:
            base = self.maker.sketch.tensor(reference.name)
            extents = self.maker.sketch.extents(reference.name)
            origin = row_major(tuple(term.offset for term in reference.terms), extents, base)
            load = self.maker.versions.source(read.tile)
            assert load is not None  # a tensor is read only through a forwarded load
            steps = zip(strides(extents, base), load.access.subscripts, strict=True)
            row, column = (step for step, at in steps if isinstance(at, ir.SliceSubscript))
            buffer = base.name
        else:
            home = self.homes[reference.name]
            row, column = strides(home.extents, None)
            origin, buffer = ir.Literal(0), home.name
        if transposed:
            row, column = column, row
        offset = ir.Binary("+", ir.Binary("*", first, row), ir.Binary("*", second, column))
        return nodes.MatrixView(
            buffer, read.stored, simplify(ir.Binary("+", origin, offset)), row, column
        )

    def _pack(self, stem: str, extent: ir.Expr, depth: ir.Expr, margin: int, dtype: DType) -> str:
        name = self.maker.versions.fresh(stem)
        limited = ir.Binary("min", depth, ir.Literal(PACK_DEPTH))
        extents = (limited, simplify(ir.Binary("+", extent, ir.Literal(margin))))
        self.packs.append(Storage(name, "", dtype, extents, "arena"))
        return name


def _span(lower: ir.Expr, upper: ir.Expr) -> ir.Expr:
    return upper if lower == ir.Literal(0) else ir.Binary("-", upper, lower)

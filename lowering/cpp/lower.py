"""From the fused tree to the loop IR: lane variables, element indices, locals, hoisted reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import attrs

from sketchc import ir
from sketchc.lowering import loops
from sketchc.lowering.cpp.clean import clean
from sketchc.lowering.cpp.expressions import scalar_dtype
from sketchc.lowering.cpp.fusion import (
    BindNode,
    Leaf,
    LoopNode,
    Node,
    SerialNode,
    build_tree,
    leaves,
)
from sketchc.lowering.cpp.indices import resolve_index, row_major, strides
from sketchc.lowering.cpp.jam import jam_sums
from sketchc.lowering.cpp.nest_maker import NestMaker
from sketchc.lowering.cpp.nests import (
    Kind,
    LaneSource,
    Nest,
    Product,
    Read,
    Reference,
    ScalarSource,
    Source,
    Term,
)
from sketchc.lowering.cpp.rows import add_rows
from sketchc.lowering.cpp.storage import Home, place
from sketchc.symbolic import simplify
from sketchc.types import DType

#: Names of lane variables by the number of loops that remain, innermost first.
LANE_NAMES = ("lane", "row", "plane", "cube")

#: Rows, columns and depth by which packed panels may exceed a tile (see the matrix prelude).
PACK_MARGIN = (16, 64)
PACK_DEPTH = 256

_Key = tuple[str, bool, tuple[tuple[str, ir.Expr], ...]]


def lower_phase(
    body: tuple[ir.Statement, ...],
    maker: NestMaker,
    constants: Mapping[str, ir.Expr],
) -> loops.Program:
    """The loop program of one phase; `constants` gives the compile-time values by name."""
    nodes = build_tree(body, maker)
    homes, storages = place(nodes, maker, constants)
    lowering = _Lowering(maker, homes)
    statements = lowering.nodes(nodes, _Scope())
    whole = (*lowering.declared_first(), *statements)
    program = clean(loops.Program((*storages, *lowering.packs), whole))
    jammed = jam_sums(program.body, maker.versions.fresh, constants)
    return loops.Program(program.storages, add_rows(jammed, maker.versions.fresh))


@attrs.define
class _Scope:
    """What is known at one place: variables of the loops around it, values already read."""

    variables: tuple[ir.Ref, ...] = ()
    values: dict[_Key, loops.Local] = attrs.field(factory=dict)
    names: set[str] = attrs.field(factory=set)

    def inner(self, variable: ir.Ref | None) -> _Scope:
        variables = self.variables if variable is None else (*self.variables, variable)
        return _Scope(variables, dict(self.values), set(self.names))


@attrs.define
class _Lowering:
    maker: NestMaker
    homes: Mapping[str, Home]
    packs: list[loops.Storage] = attrs.field(factory=list)
    _partials: dict[int, loops.Local] = attrs.field(factory=dict)

    # ------------------------------------------------------------ structure

    def declared_first(self) -> list[loops.Statement]:
        """Locals that no single write can declare."""
        return [
            loops.Define(home.name, home.dtype, loops.Number(0, home.dtype), mutable=True)
            for home in self.homes.values()
            if home.local and home.defined_by is None
        ]

    def nodes(self, nodes: list[Node], scope: _Scope) -> list[loops.Statement]:
        found: list[loops.Statement] = []
        for node in nodes:
            match node:
                case Leaf():
                    found += self._leaf(node, scope)
                case LoopNode():
                    found += self._loop(node, scope)
                    for nest in node.members:
                        self._forget(nest.target, scope)
                case SerialNode(loop, children):
                    # Iterations may change what was read before the loop.
                    scope.values.clear()
                    body = tuple(self.nodes(children, scope.inner(None)))
                    found.append(
                        loops.SerialLoop(
                            loop.variable, loop.start, loop.stop, loop.step, body, loop.text
                        )
                    )
                case BindNode(name, value, text):
                    found.append(loops.Note(text))
                    found.append(loops.Define(name, DType.I64, loops.Scalar(value, DType.I64)))
                case _:
                    assert_never(node)
        return found

    def _loop(self, node: LoopNode, scope: _Scope) -> list[loops.Statement]:
        depth = max(len(nest.axes) for nest in node.members) - node.level
        name = LANE_NAMES[depth - 1] if depth <= len(LANE_NAMES) else f"axis_{depth}"
        variable = ir.Ref(self._free(name), ir.NameKind.LOOP)
        notes = [loops.Note(text) for text in _loop_notes(node)]
        before: list[loops.Statement] = [*notes, *self._hoisted(node, scope)]
        inner = scope.inner(variable)
        if not node.innermost or node.axis.single:
            body = tuple(self.nodes(node.children, inner))
            return [*before, loops.Loop(variable.name, node.axis.lower, node.axis.upper, body)]
        opened, reductions, closed = self._reductions(node, inner)
        body = tuple(self.nodes(node.children, inner))
        lanes = loops.LaneLoop(
            variable.name,
            node.axis.lower,
            node.axis.upper,
            body,
            tuple(reductions),
        )
        return [*before, *opened, lanes, *closed]

    def _free(self, name: str) -> str:
        """A lane variable's name that the sketch does not use."""
        while name in self.maker.versions.taken:
            name += "_"
        return name

    # ------------------------------------------------------------ reductions

    def _reductions(
        self, node: LoopNode, scope: _Scope
    ) -> tuple[list[loops.Statement], list[loops.Reduction], list[loops.Statement]]:
        """Locals that the lanes combine; an accumulator in memory gets a partial local."""
        opened: list[loops.Statement] = []
        closed: list[loops.Statement] = []
        reductions = []
        for child in node.children:
            if not isinstance(child, Leaf) or child.nest.kind is not Kind.ACCUMULATE:
                continue
            nest = child.nest
            if any(term.axis == node.level for term in nest.target.terms):
                continue
            target = self._place(nest.target, nest.stored, scope)
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

    def _leaf(self, leaf: Leaf, scope: _Scope) -> list[loops.Statement]:
        nest = leaf.nest
        notes = [loops.Note(text) for text in _leaf_notes(leaf)]
        if nest.product is not None:
            return [*notes, self._product(nest, nest.product)]
        found: list[loops.Statement] = [*notes]
        for read in nest.reads:
            found += self._read(read, scope)
        value = self._value(nest, scope)
        if nest.kind is Kind.ACCUMULATE:
            target = self._partials.get(id(nest)) or self._place(nest.target, nest.stored, scope)
            return [*found, loops.Accumulate(nest.operation, target, value)]
        return found + self._assign(leaf, value, scope)

    def _assign(self, leaf: Leaf, value: loops.Value, scope: _Scope) -> list[loops.Statement]:
        nest = leaf.nest
        target = self._place(nest.target, nest.stored, scope)
        if isinstance(target, loops.Local):
            home = self.homes[target.name]
            if home.defined_by is leaf:
                return [loops.Define(target.name, target.dtype, value, home.mutable)]
            return [loops.Assign(target.name, value)]
        key = self._key(nest.target, scope)
        self._forget(nest.target, scope)
        if nest.target.tensor or isinstance(value, loops.Number):
            return [loops.Write(target.buffer, target.index, value)]
        # Later readers in this loop take the local, not the memory.
        name = self._local_name(nest.target.name, scope)
        local = loops.Local(name, nest.stored)
        scope.values[key] = local
        return [
            loops.Define(name, nest.stored, value),
            loops.Write(target.buffer, target.index, local),
        ]

    def _forget(self, written: Reference, scope: _Scope) -> None:
        base = written.base if written.tensor else written.name
        for key in [k for k in scope.values if k[1] == written.tensor]:
            name = self._base(key[0]) if key[1] else key[0]
            if name == base:
                del scope.values[key]

    def _base(self, tensor: str) -> str:
        return self.maker.sketch.tensor(tensor).name

    def _local_name(self, stem: str, scope: _Scope) -> str:
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

    # ------------------------------------------------------------ reads

    def _hoisted(self, node: LoopNode, scope: _Scope) -> list[loops.Statement]:
        """Reads inside that do not depend on this loop, made before it."""
        found: list[loops.Statement] = []
        for leaf in leaves([node]):
            for read in leaf.nest.reads:
                axes = [t.axis for t in read.reference.terms if t.axis is not None]
                if read.pinned or any(axis >= node.level for axis in axes):
                    continue
                if not read.reference.tensor and read.reference.name in {
                    member.target.name for member in node.members
                }:
                    continue
                found += self._read(read, scope)
        return found

    def _read(self, read: Read, scope: _Scope) -> list[loops.Statement]:
        """Read memory into a local, unless it is one or has been read."""
        place = self._place(read.reference, read.stored, scope)
        if isinstance(place, loops.Local):
            return []
        key = self._key(read.reference, scope)
        if key in scope.values:
            return []
        name = self._local_name(read.tile, scope)
        scope.values[key] = loops.Local(name, read.stored)
        return [loops.Define(name, read.stored, place)]

    def _key(self, reference: Reference, scope: _Scope) -> _Key:
        resolved = tuple(
            ("" if term.axis is None else scope.variables[term.axis].name, term.offset)
            for term in reference.terms
        )
        return (reference.name, reference.tensor, resolved)

    def _place(
        self, reference: Reference, stored: DType, scope: _Scope
    ) -> loops.Local | loops.Element:
        indices = tuple(_index(term, scope) for term in reference.terms)
        if reference.tensor:
            extents = self.maker.sketch.extents(reference.name)
            base = self.maker.sketch.tensor(reference.name)
            index = row_major(indices, extents, base)
            return loops.Element(base.name, index, stored)
        home = self.homes[reference.name]
        if home.local:
            return loops.Local(home.name, home.dtype)
        kept = tuple(indices[axis] for axis in home.kept)
        extents = tuple(home.extents[axis] for axis in home.kept)
        return loops.Element(home.name, row_major(kept, extents, None), stored)

    # ------------------------------------------------------------ values

    def _value(self, nest: Nest, scope: _Scope) -> loops.Value:
        """The value of a nest, in the type of its target."""
        values = [self._source(source, scope) for source in nest.sources]
        if nest.operation == "cast":
            rounding = str(nest.attributes.get("round", "nearest"))
            saturate = bool(nest.attributes.get("sat", False))
            return loops.Convert(values[0], nest.stored, rounding, saturate)
        if nest.operation == "copy" or nest.kind is Kind.ACCUMULATE:
            return _converted(values[0], nest.stored)
        arguments = tuple(
            _converted(value, _argument_dtype(nest, position))
            for position, value in enumerate(values)
        )
        applied = loops.Apply(
            nest.operation, arguments, nest.dtype.compute, nest.result.compute, nest.attributes
        )
        return _converted(applied, nest.stored)

    def _source(self, source: Source, scope: _Scope) -> loops.Value:
        match source:
            case Read(reference, stored, dtype):
                place = self._place(reference, stored, scope)
                if not isinstance(place, loops.Local):
                    place = scope.values[self._key(reference, scope)]
                return _converted(place, dtype)
            case ScalarSource(value, dtype):
                return _scalar(value, dtype)
            case LaneSource(value, dtype, axes):
                lanes = tuple(
                    ir.Literal(0) if axis is None else scope.variables[axis] for axis in axes
                )
                resolved = resolve_index(value, lanes, self.maker.bindings)
                return _converted(loops.Scalar(resolved, scalar_dtype(resolved)), dtype)
            case _:
                assert_never(source)

    # ------------------------------------------------------------ matrix products

    def _product(self, nest: Nest, product: Product) -> loops.MatrixProduct:
        left, right = nest.reads
        rows, columns, inner = product.extents
        left_view = self._view(left, product.trans_a, product.rows.lower, product.depth.lower)
        right_view = self._view(right, product.trans_b, product.depth.lower, product.columns.lower)
        target = Read(nest.target, nest.stored, nest.stored, nest.target.name)
        result = self._view(target, False, product.rows.lower, product.columns.lower)
        packs = (
            self._pack(f"{left.tile}_panels", rows, inner, PACK_MARGIN[0], nest.dtype),
            self._pack(f"{right.tile}_panels", columns, inner, PACK_MARGIN[1], nest.dtype),
        )
        return loops.MatrixProduct(
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
    ) -> loops.MatrixView:
        """A rank-2 tile, or the slice of a tensor that stands for it, as a strided matrix whose
        first valid element is (first, second)."""
        reference = read.reference
        if reference.tensor:
            base = self.maker.sketch.tensor(reference.name)
            all_strides = strides(self.maker.sketch.extents(reference.name), base)
            origin = row_major(
                tuple(term.offset for term in reference.terms),
                self.maker.sketch.extents(reference.name),
                base,
            )
            load = self.maker.versions.source(read.tile)
            assert load is not None  # a tensor is read only through a forwarded load
            sliced = [
                stride
                for stride, subscript in zip(all_strides, load.access.subscripts, strict=True)
                if isinstance(subscript, ir.SliceSubscript)
            ]
            row, column = sliced
            buffer = base.name
        else:
            home = self.homes[reference.name]
            row, column = strides(home.extents, None)
            origin, buffer = ir.Literal(0), home.name
        if transposed:
            row, column = column, row
        offset = ir.Binary("+", ir.Binary("*", first, row), ir.Binary("*", second, column))
        return loops.MatrixView(
            buffer, read.stored, simplify(ir.Binary("+", origin, offset)), row, column
        )

    def _pack(self, stem: str, extent: ir.Expr, depth: ir.Expr, margin: int, dtype: DType) -> str:
        name = self.maker.versions.fresh(stem)
        limited = ir.Binary("min", depth, ir.Literal(PACK_DEPTH))
        extents = (limited, simplify(ir.Binary("+", extent, ir.Literal(margin))))
        self.packs.append(loops.Storage(name, dtype, extents, "arena", "packed panels"))
        return name


def _span(lower: ir.Expr, upper: ir.Expr) -> ir.Expr:
    return upper if lower == ir.Literal(0) else ir.Binary("-", upper, lower)


def _index(term: Term, scope: _Scope) -> ir.Expr:
    if term.axis is None:
        return term.offset
    lane = scope.variables[term.axis]
    if term.offset == ir.Literal(0):
        return lane
    return ir.Binary("+", term.offset, lane)


def _texts(leaf: Leaf) -> list[str]:
    """The statements of the sketch that a nest carries out."""
    return [*(read.note for read in leaf.nest.reads if read.note), *leaf.nest.notes]


def _loop_notes(node: LoopNode) -> list[str]:
    """The comments above an innermost loop; in other loops each nest carries its own."""
    if not node.innermost:
        return []
    texts = [text for leaf in leaves([node]) for text in _texts(leaf)]
    return list(dict.fromkeys(texts))


def _leaf_notes(leaf: Leaf) -> list[str]:
    if leaf.path and leaf.path[-1].innermost:
        return []
    return list(dict.fromkeys(_texts(leaf)))


def _argument_dtype(nest: Nest, position: int) -> DType:
    if nest.operation == "where" and position == 0:
        return DType.BOOL
    if nest.operation.startswith("logical_"):
        return DType.BOOL
    return nest.dtype.compute


def _converted(value: loops.Value, dtype: DType) -> loops.Value:
    if value.dtype is dtype and not isinstance(value, loops.Apply):
        return value
    if isinstance(value, loops.Apply):
        return value if value.result is dtype else loops.Convert(value, dtype)
    if isinstance(value, loops.Number):
        return _number(value.value, dtype)
    return loops.Convert(value, dtype)


def _number(value: int | float | bool, dtype: DType) -> loops.Number:
    if dtype is DType.BOOL:
        return loops.Number(bool(value), dtype)
    if dtype.is_float:
        return loops.Number(float(value), dtype)
    return loops.Number(int(value), dtype)


def _scalar(value: ir.Expr, dtype: DType) -> loops.Value:
    match value:
        case ir.Literal(number):
            return _number(number, dtype)
        case ir.Unary("-", ir.Literal(number)):
            return _number(-number, dtype)
        case _:
            return _converted(loops.Scalar(value, scalar_dtype(value)), dtype)

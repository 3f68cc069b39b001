"""Operations that are called on memory as a whole: matrix products and functions on tiles."""

from __future__ import annotations

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.indices import row_major, strides
from sketchc.lowering.loops.nests import LibraryCall, Nest, Product, Read
from sketchc.lowering.loops.reads import Reads, Scope

#: Rows, columns and depth by which packed panels may exceed a tile (see `matrix.hpp`).
PACK_MARGIN = (16, 64)
PACK_DEPTH = 256


@attrs.define
class Calls(Reads):
    """Makes the calls of one phase; `packs` are the storages for packed panels."""

    packs: list[nodes.Storage] = attrs.field(factory=list)

    # ------------------------------------------------------------ calls of the library on tiles

    def call(self, nest: Nest, call: LibraryCall, scope: Scope) -> nodes.TileCall:
        """The call of a library's function on tiles in memory."""
        views = []
        for block in call.blocks:
            home = self.homes[block.reference.name]
            bounds = (
                tuple(axis.lower for axis in block.lanes),
                tuple(a.upper for a in block.lanes),
            )
            views.append(
                nodes.TileView(home.name, home.dtype, *bounds, strides(home.extents, None))
            )
        targets = {target.name for target in nest.targets}
        written = [n for n, block in enumerate(call.blocks) if block.reference.name in targets]
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
        return nodes.MatrixView(
            buffer, read.stored, simplify(ir.Binary("+", origin, offset)), row, column
        )

    def _pack(self, stem: str, extent: ir.Expr, depth: ir.Expr, margin: int, dtype: DType) -> str:
        name = self.maker.versions.fresh(stem)
        limited = ir.Binary("min", depth, ir.Literal(PACK_DEPTH))
        extents = (limited, simplify(ir.Binary("+", extent, ir.Literal(margin))))
        self.packs.append(nodes.Storage(name, dtype, extents, "arena"))
        return name


def _span(lower: ir.Expr, upper: ir.Expr) -> ir.Expr:
    return upper if lower == ir.Literal(0) else ir.Binary("-", upper, lower)

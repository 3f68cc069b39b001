"""Where tiles live after fusion: as a scalar local, on the stack, or in the arena.

A tile axis whose every access happens in one and the same loop, at the loop's own lane, needs no
memory: the axis disappears. A tile without axes left is a local; small compile-time sizes go on the
stack; everything else is carved from the thread's arena.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import substitute
from sketchc.lowering.loops.fusion import BlockNode, Leaf, LoopNode, Node, leaves
from sketchc.lowering.loops.nest_maker import NestMaker
from sketchc.lowering.loops.nests import Kind, Reference
from sketchc.lowering.loops.nodes import Storage

#: Compile-time tiles up to this many bytes live on the stack.
STACK_BYTES = 4096


@attrs.frozen
class Home:
    """Where one tile version lives. `kept` are the tile axes that have memory; a local has none.
    `defined_by` is the leaf whose write declares the local (None: declared up front)."""

    name: str
    dtype: DType
    extents: tuple[ir.Expr, ...]
    kept: tuple[int, ...]
    local: bool
    mutable: bool = True
    defined_by: Leaf | None = None


@attrs.frozen
class _Use:
    reference: Reference
    leaf: Leaf
    writes: bool


def place(
    nodes: list[Node], maker: NestMaker, constants: Mapping[str, ir.Expr]
) -> tuple[dict[str, Home], tuple[Storage, ...]]:
    """The home of every tile that the tree touches, and the storages to provide."""
    uses: dict[str, list[_Use]] = {}
    addressed: set[str] = set()
    for leaf in leaves(nodes):
        nest = leaf.nest
        for read in nest.reads:
            if not read.reference.tensor:
                uses.setdefault(read.reference.name, []).append(_Use(read.reference, leaf, False))
        for target in nest.targets:
            if not target.tensor:
                uses.setdefault(target.name, []).append(_Use(target, leaf, True))
        if nest.kind in (Kind.PRODUCT, Kind.LIBRARY_CALL):
            addressed.update(target.name for target in nest.targets)
            addressed.update(r.reference.name for r in nest.reads if not r.reference.tensor)
    homes = {name: _home(name, found, maker, name in addressed) for name, found in uses.items()}
    storages = tuple(_storage(home, constants) for home in homes.values() if not home.local)
    return homes, storages


def _home(name: str, uses: list[_Use], maker: NestMaker, addressed: bool) -> Home:
    extents = maker.extents(name)
    dtype = maker.dtype(name)
    if addressed:
        return Home(name, dtype, extents, tuple(range(len(extents))), local=False)
    kept = tuple(
        axis
        for axis, extent in enumerate(extents)
        if constant_value(extent) != 1 and not _contracted(axis, uses)
    )
    if kept:
        return Home(name, dtype, extents, kept, local=False)
    writes = [use for use in uses if use.writes]
    first = writes[0].leaf
    mutable = len(writes) > 1 or any(use.leaf.nest.kind is Kind.ACCUMULATE for use in writes)
    definer = first if _encloses(first, uses) else None
    return Home(name, dtype, extents, (), True, mutable or definer is None, definer)


def _contracted(axis: int, uses: list[_Use]) -> bool:
    """True if every access is at the same lane of one common loop."""
    loops: set[int] = set()
    for use in uses:
        term = use.reference.terms[axis]
        if term.axis is None or not term.plain:
            return False
        loops.add(id(use.leaf.path[term.axis]))
    return len(loops) == 1


def _encloses(first: Leaf, uses: Iterable[_Use]) -> bool:
    """True if a declaration at `first` is in scope at every use."""
    if first.nest.kind is not Kind.ASSIGN:
        return False
    for use in uses:
        if not _is_prefix(first.block, use.leaf.block):
            return False
        if not _is_prefix(first.path, use.leaf.path):
            return False
    return True


def _is_prefix(
    outer: tuple[LoopNode, ...] | tuple[BlockNode, ...],
    inner: tuple[LoopNode, ...] | tuple[BlockNode, ...],
) -> bool:
    return len(outer) <= len(inner) and all(
        mine is theirs for mine, theirs in zip(outer, inner, strict=False)
    )


def _storage(home: Home, constants: Mapping[str, ir.Expr]) -> Storage:
    extents = tuple(home.extents[axis] for axis in home.kept)
    elements: int | None = 1
    for extent in extents:
        value = constant_value(substitute(extent, constants))
        elements = None if elements is None or value is None else elements * value
    small = elements is not None and elements * home.dtype.bytes <= STACK_BYTES
    return Storage(home.name, home.dtype, extents, "stack" if small else "arena")

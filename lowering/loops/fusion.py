"""Fusion: nests over the same lanes become one loop, level by level.

Two nests share a loop when its bounds are the same and every element that both touch (one of them
writing) belongs to the same lane (LOWERING 9). A nest may move up to an earlier loop when nothing
between depends on it; initialisations move up furthest, so that they do not part their neighbours.

What is fused decides what needs memory (`place`): a tile axis whose every access happens in one and
the same loop, at the loop's own lane, disappears. A tile without axes left is a local; small
compile-time sizes go on the stack; everything else is carved from the thread's arena.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value, equal
from sketchc.ir.walk import has_lanes
from sketchc.lowering.loops.nest_maker import NestMaker
from sketchc.lowering.loops.nests import Axis, Kind, Nest, Reference
from sketchc.lowering.loops.nodes import Define, Note, bound
from sketchc.lowering.plan import Storage


@attrs.define(eq=False)
class Leaf:
    """One nest inside all of its loops; `path` are those loops, `block` the blocks around them,
    both outermost first."""

    nest: Nest
    path: tuple[LoopNode, ...]
    block: tuple[Block, ...]

    @property
    def members(self) -> list[Nest]:
        """The one nest of the leaf, as a list like `LoopNode.members`."""
        return [self.nest]


@attrs.define(eq=False)
class LoopNode:
    """A loop over one axis of all the nests inside."""

    axis: Axis
    level: int
    members: list[Nest]
    children: list[Node] = attrs.field(factory=list)

    @property
    def innermost(self) -> bool:
        """Whether the loop contains no other loop."""
        return all(isinstance(child, Leaf) for child in self.children)


@attrs.define(eq=False)
class Block:
    """A phase, the body of a sequential loop, or one side of a branch: no nest moves into it or out
    of it."""

    children: list[Node] = attrs.field(factory=list)


@attrs.define(eq=False)
class ControlNode:
    """A sequential loop of the sketch with its body, or a branch, whose condition is the same for
    all lanes, with its two sides."""

    statement: ir.For | ir.If
    blocks: list[Block]


Control: TypeAlias = ir.For | ir.If | ir.HostFor | ir.HostIf
#: A fetch keeps its place among the nests; bound integers and notes are loop IR already.
Node: TypeAlias = Leaf | LoopNode | ControlNode | ir.Fetch | Note | Define


def arms(statement: Control) -> list[tuple[Any, ...]]:
    """The body of a loop, or both sides of a branch."""
    if isinstance(statement, ir.For | ir.HostFor):
        return [statement.body]
    return [statement.body, statement.orelse]


def build_tree(
    body: tuple[ir.Statement, ...], maker: NestMaker, around: tuple[Block, ...] = ()
) -> Block:
    """The nests of a phase's body in its control flow, each one a leaf; `fuse` makes the loops."""
    block = Block()
    path, nodes = (*around, block), block.children
    for statement in body:
        match statement:
            case ir.For() | ir.If():
                blocks = [build_tree(arm, maker, path) for arm in arms(statement)]
                nodes.append(ControlNode(statement, blocks))
            case ir.Fetch():
                nodes.append(statement)
            case _:
                nodes += (Leaf(nest, (), path) for nest in maker.nests(statement))
                if isinstance(statement, ir.Bind):
                    nodes.append(Note(statement.text, origins=(statement.span,)))
                    # An index tile is calculated where it is used.
                    if not has_lanes(statement.value, maker.bindings):
                        nodes.append(bound(statement.name, statement.value, (statement.span,)))
    return block


def fuse(block: Block, around: tuple[Block, ...] = ()) -> None:
    """Put the leaves of a tree into loops, those with the same lanes into one."""
    path, nodes, run = (*around, block), list[Node](), list[Nest]()

    def close() -> None:
        nodes.extend(_fuse(run, 0, (), path))
        run.clear()

    for node in block.children:
        match node:
            case Leaf(nest):
                run.append(nest)
                continue
            case ControlNode(blocks=blocks):
                close()
                for arm in blocks:
                    fuse(arm, path)
            case ir.Fetch():
                # Stores before it are visible to it.
                close()
            case LoopNode() | Note() | Define():
                pass
            case _:
                assert_never(node)
        nodes.append(node)
    close()
    block.children = nodes


def leaves(nodes: list[Node]) -> Iterator[Leaf]:
    """All nests in the order in which they run."""
    for node in nodes:
        match node:
            case Leaf():
                yield node
            case LoopNode():
                yield from leaves(node.children)
            case ControlNode(blocks=blocks):
                for block in blocks:
                    yield from leaves(block.children)
            case ir.Fetch() | Note() | Define():
                pass
            case _:
                assert_never(node)


# ---------------------------------------------------------------- grouping


def _fuse(
    nests: list[Nest], level: int, path: tuple[LoopNode, ...], block: tuple[Block, ...]
) -> list[Node]:
    """The nests in loops over their axes from number `level` on; `path` are the loops around."""
    nodes: list[Leaf | LoopNode] = []
    for nest in nests:
        axis = nest.axes[level] if len(nest.axes) > level else None
        if axis is not None and _join(nodes, nest, axis, level):
            continue
        node = Leaf(nest, path, block) if axis is None else LoopNode(axis, level, [nest])
        nodes.insert(_place(nodes, nest) if nest.early else len(nodes), node)
    for node in nodes:
        if isinstance(node, LoopNode):
            node.children = _fuse(node.members, level + 1, (*path, node), block)
    return [*nodes]


def _join(nodes: list[Leaf | LoopNode], nest: Nest, axis: Axis, level: int) -> bool:
    """Put `nest` into the latest loop that it can share; False where there is none."""
    for node in reversed(nodes):
        pairs = [pair for member in node.members for pair in member.conflicts(nest)]
        if (
            isinstance(node, LoopNode)
            and equal(node.axis.lower, axis.lower)
            and equal(node.axis.upper, axis.upper)
            # Lane by lane is the same as one after the other.
            and all(mine.aligned(theirs, level) for mine, theirs in pairs)
        ):
            node.members.append(nest)
            return True
        if pairs:
            return False
    return False


def _place(nodes: list[Leaf | LoopNode], nest: Nest) -> int:
    """The earliest position for a nest that may move up."""
    position = len(nodes)
    while position and not any(m.conflicts(nest) for m in nodes[position - 1].members):
        position -= 1
    return position


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


def place(nodes: list[Node], maker: NestMaker) -> tuple[dict[str, Home], tuple[Storage, ...]]:
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
        if nest.kind is Kind.CALL:
            addressed.update(target.name for target in nest.targets)
            addressed.update(r.reference.name for r in nest.reads if not r.reference.tensor)
    homes = {name: _home(name, found, maker, name in addressed) for name, found in uses.items()}
    storages = tuple(_storage(home, maker) for home in homes.values() if not home.local)
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
    # A declaration at the first write must be in scope at every use.
    in_scope = first.nest.kind is Kind.ASSIGN and all(
        use.leaf.block[: len(first.block)] == first.block
        and use.leaf.path[: len(first.path)] == first.path
        for use in uses
    )
    definer = first if in_scope else None
    return Home(name, dtype, extents, (), True, mutable or definer is None, definer)


def _contracted(axis: int, uses: list[_Use]) -> bool:
    """True if every access along `axis` is at the same lane of one common loop."""
    loops: set[int] = set()
    for use in uses:
        term = use.reference.terms[axis]
        if term.axis is None or not term.plain:
            return False
        loops.add(id(use.leaf.path[term.axis]))
    return len(loops) == 1


def _storage(home: Home, maker: NestMaker) -> Storage:
    extents = tuple(home.extents[axis] for axis in home.kept)
    return Storage(home.name, maker.versions.origin(home.name), home.dtype, extents)

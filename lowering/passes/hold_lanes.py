"""Combine blocks of a row lane by lane, and the lanes once, behind the loop."""

from __future__ import annotations

import attrs

from sketchc.base.diagnostics import has_errors
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import known_value
from sketchc.lowering.plan import Plan, has_product
from sketchc.ops.table import COMBINING, OPS, Category, identity_value

_Block = tuple[ir.Statement, ...]


@attrs.frozen
class HoldLanes:
    """Rewrite `reduce_sum(x, 0, block)`, `add(total, block, total)` in a loop to `add(lanes, x,
    lanes)`, and put both of them behind the loop, with `lanes` for `x`.

    Why: lanes of a tile in registers meet through shuffles and shared memory, and the threads of a
    program wait for each other; for a row of 6,144 in blocks of 1,024, that took as long as its way
    from memory (measured on an H200, docs/BENCHMARKS.md). Requires: an elaborated sketch whose
    domains have not been inferred yet. Ensures: each lane begins at the reduction's identity, so
    that the result is one of another order; sums are not less exact, since they are of fewer terms.
    Only floats, loops without matrix products, and what nothing else reads or writes are rewritten,
    and no phase of which the lanes would have another domain in each iteration.
    Targets that keep tiles in memory, or fuse reductions into loops, keep the sketch.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        capabilities = plan.capabilities
        if capabilities.loops is not None or not capabilities.launch_options:
            return plan
        sketch = plan.sketch
        for index, phase in enumerate(sketch.phases):
            if not has_product(phase.body):
                rewritten = _Rewriter(sketch, index).run()
                if rewritten is not sketch and _has_domains(rewritten):
                    sketch = rewritten
        return attrs.evolve(plan, sketch=sketch)


def _has_domains(sketch: ir.Sketch) -> bool:
    """Whether the valid lanes of all tiles can be stated: those that stand outside of a loop now
    have one domain for all of its iterations."""
    from sketchc.checker.api import infer_domains

    _, found = infer_domains(sketch)
    return not has_errors(found)


@attrs.frozen
class _Pair:
    """A reduction of a block, and the statement that combines its result with that so far."""

    reduction: ir.Compute
    combination: ir.Compute

    @property
    def total(self) -> str:
        return self.combination.destination


class _Rewriter:
    """Rewrites one phase of a sketch."""

    def __init__(self, sketch: ir.Sketch, phase: int) -> None:
        self._sketch, self._phase = sketch, phase
        self._tiles = {tile.name: tile for tile in sketch.tiles}
        self._taken = {*walk.declared_names(sketch), *self._tiles}

    def run(self) -> ir.Sketch:
        """The sketch with the phase rewritten."""
        phases = list(self._sketch.phases)
        body = self._block(phases[self._phase].body)
        if body == phases[self._phase].body:
            return self._sketch
        phases[self._phase] = attrs.evolve(phases[self._phase], body=body)
        tiles = tuple(self._tiles.values())
        return attrs.evolve(self._sketch, tiles=tiles, phases=tuple(phases))

    def _block(self, body: _Block) -> _Block:
        found: list[ir.Statement] = []
        for statement in body:
            match statement:
                case ir.For(parallel=False):
                    found += self._loop(attrs.evolve(statement, body=self._block(statement.body)))
                case ir.For():
                    found.append(attrs.evolve(statement, body=self._block(statement.body)))
                case ir.If(_, then, orelse):
                    then, orelse = self._block(then), self._block(orelse)
                    found.append(attrs.evolve(statement, body=then, orelse=orelse))
                case _:
                    found.append(statement)
        return tuple(found)

    def _loop(self, loop: ir.For) -> _Block:
        """The loop, with what comes before and behind it now."""
        before: list[ir.Statement] = []
        behind: list[ir.Statement] = []
        while pair := self._pair(loop):
            reduction, source = pair.reduction, pair.reduction.operands[0]
            assert isinstance(source, ir.TileOperand)
            block = self._tiles[reduction.destination]
            lanes = self._lanes(self._tiles[source.tile], block, OPS[reduction.operation].identity)
            held = attrs.evolve(source, tile=lanes.name)
            name = pair.combination.operation
            each = attrs.evolve(
                pair.combination,
                operands=(held, source),
                destination=lanes.name,
                text=f"{name}({lanes.name}, {source.tile}, {lanes.name})",
            )
            axes = ", ".join(map(str, reduction.axes))
            whole = attrs.evolve(
                reduction,
                operands=(held, *reduction.operands[1:]),
                text=f"{reduction.operation}({lanes.name}, {axes}, {block.name})",
            )
            own = [s for s in loop.body if isinstance(s, ir.Alloc) and s.tile == block.name]
            body = (each if s is reduction else s for s in loop.body if s not in own)
            body = (s for s in body if s is not pair.combination)
            carried = (lanes.name if one == pair.total else one for one in loop.carried)
            if own:
                self._tiles[block.name] = attrs.evolve(block, depth=lanes.depth)
                behind += own
            loop = attrs.evolve(loop, body=tuple(body), carried=tuple(carried))
            before.append(ir.Alloc(lanes.name, span=reduction.span))
            behind += [whole, pair.combination]
        return (*before, loop, *behind)

    def _lanes(self, source: ir.Tile, block: ir.Tile, identity: str | None) -> ir.Tile:
        """A new tile of the source's extents with the block's type."""
        assert identity is not None
        name = walk.free_name(f"{block.source_name}_lanes", self._taken)
        self._taken.add(name)
        made = ir.Tile(
            name,
            name,
            source.extents,
            block.dtype,
            identity_value(identity, block.dtype),
            ("fastest", "accumulator"),
            depth=source.depth - 1,
            span=block.span,
        )
        self._tiles[name] = made
        return made

    def _pair(self, loop: ir.For) -> _Pair | None:
        """A pair in the loop's own body that may be rewritten."""
        bounds = [known_value(b, self._sketch) for b in (loop.start, loop.stop, loop.step)]
        if None not in bounds and len(range(*(int(b) for b in bounds if b is not None))) < 2:
            return None
        for place, first in enumerate(loop.body):
            if (
                not isinstance(first, ir.Compute)
                or OPS[first.operation].category is not Category.REDUCTION
            ):
                continue
            for second in loop.body[place + 1 :]:
                if isinstance(second, ir.Compute) and self._is_pair(first, second, loop):
                    return _Pair(first, second)
        return None

    def _is_pair(self, first: ir.Compute, second: ir.Compute, loop: ir.For) -> bool:
        combines = COMBINING.get(OPS[first.operation].identity or "")
        read = [
            o.tile for o in second.operands if isinstance(o, ir.TileOperand) and o.layout is None
        ]
        source = first.operands[0]
        total, block = second.destination, first.destination
        if second.operation != combines or sorted(read) != sorted((total, block)):
            return False
        if not isinstance(source, ir.TileOperand) or source.layout is not None or total == block:
            return False
        # The lanes stand outside of the loop, so that the source's extents must be known there.
        tiles = [self._tiles[name] for name in (total, block, source.tile)]
        own = {loop.variable, *walk.bound_names(loop.body)}
        used = {name for extent in tiles[2].extents for name in walk.names(extent)}
        if own & used or self._tiles[source.tile].depth < 1:
            return False
        kinds = {tiles[0].dtype, tiles[1].dtype, first.dtype, second.dtype}
        if len(kinds) > 1 or not tiles[1].dtype.is_float or not tiles[2].dtype.is_float:
            return False
        everywhere = self._sketch.phases[self._phase].body
        return _touching(total, loop.body) == 1 and _touching(block, everywhere) == 2


def _touching(tile: str, body: _Block) -> int:
    """How many statements read or write a tile."""
    return sum(tile in (*walk.reads(s), *walk.writes(s)) for s in walk.statements(body))

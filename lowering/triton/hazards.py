"""Where a program needs a barrier: its threads share memory without any order of their own.

A barrier stands before a load of a tensor that the same program stored since the last barrier, and
before a store over something loaded or stored since then (the threads that hold an element may
differ from access to access); an atomic update counts as a store. Iterations of a sequential loop
count as consecutive, except where all its accesses to the tensor are the same and move on by at
least their own size.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.symbolic import constant_value, normalize
from sketchc.ir.walk import names, substitute

Access: TypeAlias = ir.Load | ir.Store | ir.Atomic | ir.Fetch
Pending = frozenset[tuple[str, bool]]  # base tensors accessed since a barrier; True: a store


@attrs.define
class Hazards:
    """`before` holds the positions (pre-order) of accesses that need a barrier; `loops` the
    positions of loops that store a tensor they load."""

    sketch: ir.Sketch
    before: set[int] = attrs.field(factory=set)
    loops: set[int] = attrs.field(factory=set)
    _position: int = 0

    def find(self, body: tuple[ir.Statement, ...]) -> Hazards:
        """Fill in `before` and `loops` for the body of one kernel; gives this object."""
        self._visit(body, frozenset())
        return self

    def _visit(self, body: tuple[ir.Statement, ...], pending: Pending) -> Pending:
        for statement in body:
            here = self._position
            self._position += 1
            match statement:
                case ir.Load(access=access) | ir.Fetch(access=access):
                    pending = self._access(access, False, pending, here)
                case ir.Store(access=access) | ir.Atomic(access=access):
                    pending = self._access(access, True, pending, here)
                case ir.For():
                    pending = self._loop(statement, pending, here)
                case ir.If(_, then, orelse):
                    pending = self._visit(then, pending) | self._visit(orelse, pending)
                case ir.Alloc() | ir.Compute() | ir.Bind():
                    pass
                case _:
                    assert_never(statement)
        return pending

    def _access(self, access: ir.Access, store: bool, pending: Pending, at: int) -> Pending:
        own = (self.sketch.tensor(access.tensor).name, store)
        if any(other == own[0] and (store or stored) for other, stored in pending):
            self.before.add(at)
            return frozenset({own})
        return pending | {own}

    def _loop(self, loop: ir.For, pending: Pending, at: int) -> Pending:
        inside = [
            (self.sketch.tensor(s.access.tensor).name, s)
            for s in walk.statements(loop.body)
            if isinstance(s, Access)
        ]
        touched = {(tensor, isinstance(s, ir.Store | ir.Atomic)) for tensor, s in inside}
        stored = {tensor for tensor, store in touched if store}
        if any((tensor, False) in touched for tensor in stored):
            self.loops.add(at)
        for tensor in stored:
            if self._moves_on(loop, [s for other, s in inside if other == tensor]):
                touched -= {(tensor, False), (tensor, True)}
        around = pending | {(tensor, store) for tensor, store in touched if tensor in stored}
        return pending | self._visit(loop.body, around)

    def _moves_on(self, loop: ir.For, accesses: list[Access]) -> bool:
        """True where every iteration touches elements that no other iteration touches."""
        first = accesses[0]
        if any(s.access.subscripts != first.access.subscripts for s in accesses):
            return False
        if any(s.access.tensor != first.access.tensor for s in accesses):
            return False
        inner = set(walk.bound_names(walk.statements(loop.body)))
        known = {c.name: normalize(ir.Literal(c.value)) for c in self.sketch.constants}
        tile = () if isinstance(first, ir.Fetch) else self.sketch.tile(first.tile).extents
        extents = iter(tile)
        step = constant_value(loop.step, known)
        following = ir.Binary("+", ir.Ref(loop.variable, ir.NameKind.LOOP), ir.Literal(1))
        for subscript in first.access.subscripts:
            match subscript:
                case ir.ScalarSubscript(index):
                    start, size = index, 1
                case ir.SliceSubscript(lower, _, _, stride):
                    extent = constant_value(next(extents), known)
                    pace = constant_value(stride, known)
                    if extent is None or pace is None:
                        continue
                    start, size = lower, abs(pace) * (extent - 1) + 1
                case ir.IndexSubscript(axis=axis):
                    if axis is not None:
                        next(extents)
                    continue
                case _:
                    assert_never(subscript)
            later = substitute(start, {loop.variable: following})
            slope = constant_value(ir.Binary("-", later, start), known)
            if step is None or slope is None or names(start) & inner:
                continue
            if abs(slope * step) >= size and slope != 0:
                return True
        return False

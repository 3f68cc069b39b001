"""Where the threads of a block wait for each other: `with_barriers` puts barriers into a program.

Threads run a program in step. A statement must not begin before all threads have done the earlier
ones that touch memory which it writes, or that write memory which it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import attrs

from sketchc.lowering.loops import nodes


@attrs.frozen
class _Touched:
    """The memory that statements read and write."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()

    def __or__(self, other: _Touched) -> _Touched:
        return _Touched(self.read | other.read, self.written | other.written)

    def conflicts(self, other: _Touched) -> bool:
        """Whether one side writes what the other touches."""
        mine, its = self.read | self.written, other.read | other.written
        return bool(self.written & its or mine & other.written)


def with_barriers(
    body: tuple[nodes.Statement, ...],
    shared: Collection[str],
    owners: Mapping[str, str],
    at_once: Callable[[nodes.Statement], bool],
) -> tuple[nodes.Statement, ...]:
    """The statements with barriers between those that touch the buffers `shared`, which threads
    have in common and some statement writes. `owners` gives for a buffer in the memory of another
    one the name of that one. The threads run a loop of which `at_once` holds together, turn by
    turn any other."""
    return _Waiting(frozenset(shared), owners, at_once).body(body)


@attrs.define
class _Waiting:
    shared: frozenset[str]
    owners: Mapping[str, str]
    at_once: Callable[[nodes.Statement], bool]
    pending: _Touched = _Touched()

    def body(self, statements: tuple[nodes.Statement, ...]) -> tuple[nodes.Statement, ...]:
        found: list[nodes.Statement] = []
        for statement in statements:
            found += self.statement(statement)
        return tuple(found)

    def statement(self, statement: nodes.Statement) -> list[nodes.Statement]:
        before = self.pending
        match statement:
            case nodes.Branch(body=body, orelse=orelse):
                first = self.body(body)
                after, self.pending = self.pending, before
                second = self.body(orelse)
                self.pending |= before | after
                return [attrs.evolve(statement, body=first, orelse=second)]
            case nodes.SerialLoop(body=body) | nodes.Loop(body=body) if not self.at_once(statement):
                inside = self._touched(body)
                # A turn comes after the one before; what that touched is pending as well.
                self.pending |= inside if inside.written else _Touched()
                inner = self.body(body)
                # There may have been a barrier in a turn, or no turn.
                self.pending |= before | inside
                return [attrs.evolve(statement, body=inner)]
            case _:
                touched = self._touched([statement])
                waits = self.pending.conflicts(touched)
                if waits:
                    self.pending = _Touched()
                self.pending |= touched
                return [nodes.Barrier(), statement] if waits else [statement]

    def _touched(self, statements: Iterable[nodes.Statement]) -> _Touched:
        everything = nodes.walk(tuple(statements))
        rows = {
            row.name: row.buffer
            for each in everything
            if isinstance(each, nodes.LaneLoop)
            for row in each.rows
        }
        read: set[str] = set()
        written: set[str] = set()
        for statement in everything:
            for part in nodes.parts(statement):
                match part:
                    case nodes.Element(buffer):
                        read.add(buffer)
                    case nodes.MatrixView(writable=writable) | nodes.TileView(writable=writable):
                        (written if writable else read).add(part.buffer)
            match statement:
                case nodes.Write(buffer) | nodes.AtomicUpdate(_, buffer):
                    written.add(buffer)
                case nodes.Accumulate(_, nodes.Element(buffer)):
                    written.add(buffer)

        def memories(names: set[str]) -> frozenset[str]:
            whole = (rows.get(name, name) for name in names)
            return frozenset(self.owners.get(name, name) for name in whole) & self.shared

        return _Touched(memories(read), memories(written))

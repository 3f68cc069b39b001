"""Remove memory traffic that fusion has made pointless.

A tile kept in memory is often read back in the loop that writes it, where the value is still a
local. A write to private storage is dropped when the same loop body overwrites it unread, or when
nothing reads the storage afterwards; storage that nothing reads disappears with its writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.ir import nodes as ir
from sketchc.ir.walk import names
from sketchc.lowering.loops import nodes


def without_dead_stores(program: nodes.Program) -> nodes.Program:
    """The program without dead writes, unread storage and unused locals; repeated until stable."""
    private = {storage.name for storage in program.storages}
    while True:
        body = _sweep(_drop_dead(program.body, private, program.body))
        read = buffers_read(body)
        body = _drop_writes(body, private - read)
        storages = tuple(s for s in program.storages if s.name in read)
        smaller = nodes.Program(storages, body)
        if smaller == program:
            return smaller
        program = smaller


# ---------------------------------------------------------------- what is read


def _values(statement: nodes.Statement) -> Iterator[nodes.Value]:
    """The values that a statement evaluates, without those of the statements inside."""
    match statement:
        case nodes.Define(value=value) | nodes.Assign(value=value) | nodes.Write(value=value):
            yield value
        case nodes.AtomicUpdate(value=value):
            yield value
        case nodes.Accumulate(target=target, value=value):
            yield target
            yield value
        case _:
            pass


def _parts(value: nodes.Value) -> Iterator[nodes.Value]:
    yield value
    match value:
        case nodes.Convert(value=inner):
            yield from _parts(inner)
        case nodes.Apply(arguments=arguments):
            for argument in arguments:
                yield from _parts(argument)
        case nodes.Select(value=inner, otherwise=otherwise):
            yield from _parts(inner)
            yield from _parts(otherwise)
        case _:
            pass


def _reads(statement: nodes.Statement) -> set[str]:
    """The buffers that one statement reads itself."""
    found = {
        part.buffer
        for value in _values(statement)
        for part in _parts(value)
        if isinstance(part, nodes.Element)
    }
    if isinstance(statement, nodes.MatrixProduct):
        found |= {statement.left.buffer, statement.right.buffer, statement.destination.buffer}
        found |= set(statement.packs)
    if isinstance(statement, nodes.TileCall):
        found |= {view.buffer for view in statement.tiles}
    if isinstance(statement, nodes.AtomicUpdate):
        found.add(statement.buffer)
    return found


def buffers_read(body: tuple[nodes.Statement, ...]) -> set[str]:
    """The buffers that statements read, those inside included."""
    found: set[str] = set()
    for statement in nodes.walk(body):
        found |= _reads(statement)
    return found


# ---------------------------------------------------------------- dead writes


def _drop_dead(
    body: tuple[nodes.Statement, ...], private: set[str], whole: tuple[nodes.Statement, ...]
) -> tuple[nodes.Statement, ...]:
    """Without writes to storage that is not read afterwards (nor on a later turn of a loop of the
    sketch around them; the loops over lanes touch one lane per turn)."""
    order = nodes.walk(whole)
    last_read: dict[str, int] = {}
    for position, statement in enumerate(order):
        for buffer in _reads(statement):
            last_read[buffer] = position
    # A loop that reads the storage and may turn again keeps the writes before its end.
    kept_until: dict[str, int] = dict(last_read)
    for position, statement in enumerate(order):
        if isinstance(statement, nodes.SerialLoop):
            inside = nodes.walk(statement.body)
            for buffer in buffers_read(statement.body):
                end = position + len(inside) + 1
                kept_until[buffer] = max(kept_until.get(buffer, -1), end)
    counter = iter(range(len(order)))

    def dead(buffer: str, at: int) -> bool:
        return buffer in private and kept_until.get(buffer, -1) <= at

    def visit(statements: tuple[nodes.Statement, ...]) -> tuple[nodes.Statement, ...]:
        found = []
        for statement in statements:
            at = next(counter)
            if isinstance(statement, nodes.Write) and dead(statement.buffer, at):
                continue
            found.append(nodes.with_bodies(statement, visit))
        return _without_overwritten(found, private)

    return visit(body)


def _without_overwritten(
    body: list[nodes.Statement], private: set[str]
) -> tuple[nodes.Statement, ...]:
    """Without writes that a later statement of the same body repeats before any read."""
    found: list[nodes.Statement] = []
    overwritten: set[tuple[str, object]] = set()
    for statement in reversed(body):
        if isinstance(statement, nodes.Write) and statement.buffer in private:
            key = (statement.buffer, statement.index)
            if key in overwritten:
                continue
            overwritten.add(key)
        read = _reads(statement) | buffers_read(nodes.children(statement))
        overwritten = {key for key in overwritten if key[0] not in read}
        found.append(statement)
    return tuple(reversed(found))


def _drop_writes(
    body: tuple[nodes.Statement, ...], unread: set[str]
) -> tuple[nodes.Statement, ...]:
    return tuple(
        nodes.with_bodies(statement, lambda inner: _drop_writes(inner, unread))
        for statement in body
        if not (isinstance(statement, nodes.Write) and statement.buffer in unread)
    )


# ---------------------------------------------------------------- unused locals, empty loops


def _indices(statement: nodes.Statement) -> tuple[ir.Expr, ...]:
    """The index and bound expressions of a statement, without those inside its values."""
    match statement:
        case nodes.Write(index=index) | nodes.AtomicUpdate(index=index):
            return (index,)
        case nodes.Branch(condition=condition):
            return (condition,)
        case nodes.TileCall(tiles=tiles):
            return tuple(x for view in tiles for x in (*view.lower, *view.upper, *view.strides))
        case nodes.Loop(lower=lower, upper=upper) | nodes.LaneLoop(lower=lower, upper=upper):
            return (lower, upper)
        case nodes.SerialLoop(start=start, stop=stop, step=step):
            return (start, stop, step)
        case nodes.MatrixProduct():
            views = (statement.left, statement.right, statement.destination)
            strided = tuple(x for view in views for x in (view.origin, view.row, view.column))
            return (*strided, statement.rows, statement.columns, statement.depth)
        case _:
            return ()


def _sweep(body: tuple[nodes.Statement, ...]) -> tuple[nodes.Statement, ...]:
    """Without locals that nothing uses and loops that do nothing."""
    used: set[str] = set()
    for statement in nodes.walk(body):
        used |= {name for index in _indices(statement) for name in names(index)}
        for part in (part for value in _values(statement) for part in _parts(value)):
            match part:
                case nodes.Local(name):
                    used.add(name)
                case nodes.Scalar(value=index) | nodes.Element(index=index):
                    used |= names(index)
                case nodes.Select(condition=condition):
                    used |= names(condition)
                case _:
                    pass
        if isinstance(statement, nodes.LaneLoop):
            used |= {reduction.name for reduction in statement.reductions}
    return _swept(body, used)


def _swept(body: tuple[nodes.Statement, ...], used: set[str]) -> tuple[nodes.Statement, ...]:
    found: list[nodes.Statement] = []
    for statement in body:
        if isinstance(statement, nodes.Define | nodes.Assign) and statement.name not in used:
            continue
        changed = nodes.with_bodies(statement, lambda inner: _swept(inner, used))
        empty = not _effects(nodes.children(changed))
        block = nodes.Loop | nodes.LaneLoop | nodes.SerialLoop | nodes.Branch
        if empty and isinstance(changed, block):
            continue
        found.append(changed)
    return tuple(found)


def _effects(body: tuple[nodes.Statement, ...]) -> bool:
    return any(not isinstance(statement, nodes.Note | nodes.Define) for statement in body)

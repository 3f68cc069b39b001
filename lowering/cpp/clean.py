"""Remove memory traffic that fusion has made pointless.

A tile kept in memory is often read back in the loop that writes it, where the value is still a
local. A write to private storage is dropped when the same loop body overwrites it unread, or when
nothing reads the storage afterwards; storage that nothing reads disappears with its writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from sketchc import ir
from sketchc.lowering import loops
from sketchc.symbolic import references

_Change = Callable[[tuple[loops.Statement, ...]], tuple[loops.Statement, ...]]


def clean(program: loops.Program) -> loops.Program:
    """The program without dead writes, unread storage and unused locals; repeated until stable."""
    private = {storage.name for storage in program.storages}
    while True:
        body = _sweep(_drop_dead(program.body, private, program.body))
        read = buffers_read(body)
        body = _drop_writes(body, private - read)
        storages = tuple(s for s in program.storages if s.name in read)
        cleaned = loops.Program(storages, body)
        if cleaned == program:
            return cleaned
        program = cleaned


# ---------------------------------------------------------------- what is read


def _values(statement: loops.Statement) -> Iterator[loops.Value]:
    """The values that a statement evaluates, without those of the statements inside."""
    match statement:
        case loops.Define(value=value) | loops.Assign(value=value) | loops.Write(value=value):
            yield value
        case loops.AtomicUpdate(value=value):
            yield value
        case loops.Accumulate(target=target, value=value):
            yield target
            yield value
        case loops.TileCall(values=values):
            yield from values
        case _:
            pass


def _parts(value: loops.Value) -> Iterator[loops.Value]:
    yield value
    match value:
        case loops.Convert(value=inner):
            yield from _parts(inner)
        case loops.Apply(arguments=arguments):
            for argument in arguments:
                yield from _parts(argument)
        case loops.Select(value=inner, otherwise=otherwise):
            yield from _parts(inner)
            yield from _parts(otherwise)
        case _:
            pass


def _reads(statement: loops.Statement) -> set[str]:
    """The buffers that one statement reads itself."""
    found = {
        part.buffer
        for value in _values(statement)
        for part in _parts(value)
        if isinstance(part, loops.Element)
    }
    if isinstance(statement, loops.MatrixProduct):
        found |= {statement.left.buffer, statement.right.buffer, statement.destination.buffer}
        found |= set(statement.packs)
    if isinstance(statement, loops.TileCall):
        found |= {view.buffer for view in statement.tiles}
    if isinstance(statement, loops.AtomicUpdate):
        found.add(statement.buffer)
    return found


def buffers_read(body: tuple[loops.Statement, ...]) -> set[str]:
    found: set[str] = set()
    for statement in loops.walk(body):
        found |= _reads(statement)
    return found


# ---------------------------------------------------------------- dead writes


def _drop_dead(
    body: tuple[loops.Statement, ...], private: set[str], whole: tuple[loops.Statement, ...]
) -> tuple[loops.Statement, ...]:
    """Without writes to storage that is not read afterwards (nor on a later turn of a loop of the
    sketch around them; the loops over lanes touch one lane per turn)."""
    order = loops.walk(whole)
    last_read: dict[str, int] = {}
    for position, statement in enumerate(order):
        for buffer in _reads(statement):
            last_read[buffer] = position
    # A loop that reads the storage and may turn again keeps the writes before its end.
    kept_until: dict[str, int] = dict(last_read)
    for position, statement in enumerate(order):
        if isinstance(statement, loops.SerialLoop):
            inside = loops.walk(statement.body)
            for buffer in buffers_read(statement.body):
                end = position + len(inside) + 1
                kept_until[buffer] = max(kept_until.get(buffer, -1), end)
    counter = iter(range(len(order)))

    def dead(buffer: str, at: int) -> bool:
        return buffer in private and kept_until.get(buffer, -1) <= at

    def visit(statements: tuple[loops.Statement, ...]) -> tuple[loops.Statement, ...]:
        found = []
        for statement in statements:
            at = next(counter)
            if isinstance(statement, loops.Write) and dead(statement.buffer, at):
                continue
            found.append(_with_body(statement, visit))
        return _without_overwritten(found, private)

    return visit(body)


def _with_body(statement: loops.Statement, change: _Change) -> loops.Statement:
    match statement:
        case loops.Loop() | loops.LaneLoop() | loops.SerialLoop():
            return attrs.evolve(statement, body=change(statement.body))
        case loops.Branch(body=body, orelse=orelse):
            return attrs.evolve(statement, body=change(body), orelse=change(orelse))
        case _:
            return statement


def _without_overwritten(
    body: list[loops.Statement], private: set[str]
) -> tuple[loops.Statement, ...]:
    """Without writes that a later statement of the same body repeats before any read."""
    found: list[loops.Statement] = []
    overwritten: set[tuple[str, object]] = set()
    for statement in reversed(body):
        if isinstance(statement, loops.Write) and statement.buffer in private:
            key = (statement.buffer, statement.index)
            if key in overwritten:
                continue
            overwritten.add(key)
        read = _reads(statement) | buffers_read(loops.children(statement))
        overwritten = {key for key in overwritten if key[0] not in read}
        found.append(statement)
    return tuple(reversed(found))


def _drop_writes(
    body: tuple[loops.Statement, ...], unread: set[str]
) -> tuple[loops.Statement, ...]:
    return tuple(
        _with_body(statement, lambda inner: _drop_writes(inner, unread))
        for statement in body
        if not (isinstance(statement, loops.Write) and statement.buffer in unread)
    )


# ---------------------------------------------------------------- unused locals, empty loops


def _indices(statement: loops.Statement) -> tuple[ir.Expr, ...]:
    """The index and bound expressions of a statement, without those inside its values."""
    match statement:
        case loops.Write(index=index) | loops.AtomicUpdate(index=index):
            return (index,)
        case loops.Branch(condition=condition):
            return (condition,)
        case loops.TileCall(tiles=tiles):
            return tuple(x for view in tiles for x in (*view.lower, *view.upper, *view.strides))
        case loops.Loop(lower=lower, upper=upper) | loops.LaneLoop(lower=lower, upper=upper):
            return (lower, upper)
        case loops.SerialLoop(start=start, stop=stop, step=step):
            return (start, stop, step)
        case loops.MatrixProduct():
            views = (statement.left, statement.right, statement.destination)
            strided = tuple(x for view in views for x in (view.origin, view.row, view.column))
            return (*strided, statement.rows, statement.columns, statement.depth)
        case _:
            return ()


def _names(expression: ir.Expr) -> Iterator[str]:
    return (reference.name for reference in references(expression))


def _sweep(body: tuple[loops.Statement, ...]) -> tuple[loops.Statement, ...]:
    """Without locals that nothing uses and loops that do nothing."""
    used: set[str] = set()
    for statement in loops.walk(body):
        used |= {name for index in _indices(statement) for name in _names(index)}
        for part in (part for value in _values(statement) for part in _parts(value)):
            match part:
                case loops.Local(name):
                    used.add(name)
                case loops.Scalar(value=index) | loops.Element(index=index):
                    used |= set(_names(index))
                case loops.Select(condition=condition):
                    used |= set(_names(condition))
                case _:
                    pass
        if isinstance(statement, loops.LaneLoop):
            used |= {reduction.name for reduction in statement.reductions}
    return _swept(body, used)


def _swept(body: tuple[loops.Statement, ...], used: set[str]) -> tuple[loops.Statement, ...]:
    found: list[loops.Statement] = []
    for statement in body:
        if isinstance(statement, loops.Define | loops.Assign) and statement.name not in used:
            continue
        changed = _with_body(statement, lambda inner: _swept(inner, used))
        empty = not _effects(loops.children(changed))
        block = loops.Loop | loops.LaneLoop | loops.SerialLoop | loops.Branch
        if empty and isinstance(changed, block):
            continue
        found.append(changed)
    return tuple(found)


def _effects(body: tuple[loops.Statement, ...]) -> bool:
    return any(not isinstance(statement, loops.Note | loops.Define) for statement in body)

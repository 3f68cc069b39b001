"""The loop IR and what cleans it up."""

from __future__ import annotations

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.transformations import (
    ROWS,
    add_rows,
    unroll_and_jam,
    without_dead_stores,
)

F32 = DType.F32
LANE = ir.Ref("lane", ir.NameKind.LOOP)
N = ir.Ref("N", ir.NameKind.SYMBOL)
ONE = nodes.Number(1.0, F32)


def lanes(*body: nodes.Statement) -> nodes.LaneLoop:
    return nodes.LaneLoop("lane", ir.Literal(0), N, body)


def serial(*body: nodes.Statement) -> nodes.SerialLoop:
    return nodes.SerialLoop("f", ir.Literal(0), N, ir.Literal(1), body)


def tile(name: str) -> nodes.Storage:
    return nodes.Storage(name, F32, (N,), "arena")


def write(name: str, value: nodes.Value = ONE) -> nodes.Write:
    return nodes.Write(name, LANE, value)


def read(name: str, into: str = "x") -> nodes.Define:
    return nodes.Define(into, F32, nodes.Element(name, LANE, F32))


def test_storage_that_nothing_reads_disappears() -> None:
    program = nodes.Program((tile("t"),), (lanes(write("t"), write("Y")),))
    assert without_dead_stores(program) == nodes.Program((), (lanes(write("Y")),))


def test_a_write_that_is_overwritten_unread_disappears() -> None:
    last = write("t", nodes.Number(2.0, F32))
    used = write("Y", nodes.Local("x", F32))
    program = nodes.Program((tile("t"),), (lanes(write("t"), last), lanes(read("t"), used)))
    assert without_dead_stores(program).body == (lanes(last), lanes(read("t"), used))


def test_a_write_before_the_next_turn_of_a_serial_loop_stays() -> None:
    used = write("Y", nodes.Local("x", F32))
    turning = serial(lanes(read("t"), used), lanes(write("t")))
    program = nodes.Program((tile("t"),), (lanes(write("t")), turning))
    assert without_dead_stores(program) == program


def test_a_write_after_the_last_read_disappears() -> None:
    used = write("Y", nodes.Local("x", F32))
    program = nodes.Program((tile("t"),), (lanes(write("t")), lanes(read("t"), used, write("t"))))
    assert without_dead_stores(program).body == (lanes(write("t")), lanes(read("t"), used))


def test_outputs_are_never_removed() -> None:
    program = nodes.Program((), (lanes(write("Y"), write("Y")),))
    assert without_dead_stores(program) == program


def test_rows_take_what_does_not_depend_on_the_lane() -> None:
    index = ir.Binary("+", ir.Binary("*", ir.Ref("i", ir.NameKind.LOOP), N), LANE)
    names = iter(("X_row",))
    body = add_rows((lanes(nodes.Write("X", index, ONE)),), lambda _: next(names))
    row = nodes.Row("X_row", "X", ir.Binary("*", ir.Ref("i", ir.NameKind.LOOP), N), F32, True)
    assert body == (attrs.evolve(lanes(nodes.Write("X_row", LANE, ONE)), rows=(row,)),)


def test_rows_leave_other_strides_alone() -> None:
    index = ir.Binary("*", LANE, N)
    body = (lanes(nodes.Write("X", index, ONE)),)
    assert add_rows(body, lambda name: name) == body


def test_walk_visits_nested_statements_in_order() -> None:
    inner = lanes(write("Y"))
    outer = serial(inner)
    assert nodes.walk((outer,)) == [outer, inner, write("Y")]


def test_sums_over_rows_take_several_rows_at_once() -> None:
    index = ir.Binary("+", ir.Binary("*", ir.Ref("row", ir.NameKind.LOOP), N), LANE)
    x = nodes.Define("x", F32, nodes.Element("X", index, F32))
    add = nodes.Accumulate("reduce_sum", nodes.Element("t", LANE, F32), nodes.Local("x", F32))
    rows = nodes.Loop("row", ir.Literal(0), N, (lanes(x, add),))
    _, several, rest = unroll_and_jam((rows,), lambda name: name, {})
    assert isinstance(several, nodes.Loop)
    assert several.step == ROWS
    inner = [s for s in nodes.walk((several,)) if isinstance(s, nodes.Loop)][1]
    assert (inner.upper, inner.unrolled) == (ir.Literal(ROWS), True)
    assert rest == nodes.Loop("row", several.upper, N, (lanes(x, add),))


def test_maxima_and_moving_targets_are_not_jammed() -> None:
    moving = ir.Binary("+", ir.Ref("row", ir.NameKind.LOOP), LANE)
    for operation, at in (("reduce_max", LANE), ("reduce_sum", moving)):
        add = nodes.Accumulate(operation, nodes.Element("t", at, F32), ONE)
        body = (nodes.Loop("row", ir.Literal(0), N, (lanes(add),)),)
        assert unroll_and_jam(body, lambda name: name, {}) == body

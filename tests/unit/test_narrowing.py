"""Loops run over the lanes that are read, and index calculations are shared between rows."""

from __future__ import annotations

from cpp_cases import lower

from sketchc.lowering.c_source.expressions import Expressions
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.build import build_phases

GRID = '@llm_hint("parallel", "grididx")'
CODE = Expressions()


def program(text: str) -> nodes.Program:
    """The loop program of the only phase."""
    (phase,) = build_phases(lower(text)[0])
    return phase.program


def lane_loops(found: nodes.Program) -> list[nodes.LaneLoop]:
    return [each for each in nodes.walk(found.body) if isinstance(each, nodes.LaneLoop)]


def ends(found: nodes.Program) -> set[str]:
    """The ends of the loops over lanes, in C++."""
    return {str(CODE.scalar(loop.upper)) for loop in lane_loops(found)}


def padded(body: str) -> nodes.Program:
    """A sum of padded windows, with what `body` makes of it."""
    return program(f"""sketch windows {{
    symbols: N;
    params: K: i64 = 3;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    {GRID}
    for i in range(cdiv(N, T)):
        y = alloc([T], init=0)
        for k in range(K):
            x = alloc([T])
            load(X[i*T+k-1:i*T+k-1+T] -> x, pad=0)
            add(y, x, y)
        {body}
        store(y -> Y[i*T:(i+1)*T])
}}""")


STORED = "std::min<int64_t>(T, N - i * T)"
#: Where lanes of a padded load enter and leave its tensor, within the ends of the loop over them.
SPLIT = {"first_inside", "last_inside"}


def test_lanes_behind_a_stores_end_are_not_computed() -> None:
    """The padded load is valid at all lanes of the tile; what fills, adds and stores them runs over
    those inside of the tensor."""
    assert ends(padded("relu(y, y)")) == {STORED} | SPLIT


def test_lanes_that_somebody_else_reads_are_computed() -> None:
    """A sum over all lanes of a tile wants all of them, whatever else a store takes."""
    found = padded("""e = alloc([T])
        s = alloc([1])
        fill(0.5, e)
        reduce_sum(e, 0, s)
        add(y, e, y)
        add(y, s, y)""")
    assert ends(found) == {"T", STORED} | SPLIT


def test_bounds_of_a_loops_turn_do_not_leave_it() -> None:
    """What is read in one turn of a loop may be less than what the next one reads."""
    found = program(f"""sketch turns {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 16;
    {GRID}
    for r in range(M):
        x = alloc([T])
        load(X[r, 0:T] -> x, pad=0)
        exp(x, x)
        for j in range(cdiv(N, T)):
            store(x -> Y[r, j*T:(j+1)*T])
}}""")
    assert "T" in ends(found)


GATHERED = f"""sketch digits {{
    symbols: A, B, C, D;
    tensors: X[A, B, C, D]: in f32; Y[A*B, C*D]: out f32;
    constexpr: TM = 4, TN = 16;
    require: B >= 1 and D >= 1;
    {GRID}
    for i in range(cdiv(A*B, TM)):
        for j in range(cdiv(C*D, TN)):
            x = alloc([TM, TN])
            m = iota(TM, i*TM, A*B)
            n = iota(TN, j*TN, C*D)
            load(X[(m // B)[:, None], (m % B)[:, None], (n // D)[None, :], (n % D)[None, :]] -> x)
            store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}}"""


def test_divisions_that_rows_share_are_tabulated_before_the_loop_over_rows() -> None:
    """In the loop over lanes inside of that over rows, no division is left."""
    found = program(GATHERED)
    (rows,) = (each for each in nodes.walk(found.body) if isinstance(each, nodes.Loop))
    inside = [each for each in nodes.walk(rows.body) if isinstance(each, nodes.LaneLoop)]
    assert len(inside) == 1
    assert not any(_divides(each) for each in nodes.walk(tuple(inside)))
    tables = [loop for loop in lane_loops(found) if loop not in inside]
    assert len(tables) == 2
    assert all(_divides(statement) for table in tables for statement in table.body)
    # Two tables of as many numbers as the tile has columns.
    assert [str(CODE.scalar(s.extents[0])) for s in found.storages] == ["TN", "TN"]


def test_divisions_by_constants_are_left_to_the_compiler() -> None:
    found = program(GATHERED.replace(" D;", ";").replace(", D]", ", 8]").replace(" D)", " 8)")
        .replace("C*D", "C*8").replace(" and D >= 1", "").replace("C, D;", "C;"))  # fmt: skip
    assert not found.storages


def _divides(statement: nodes.Statement) -> bool:
    kinds = {str(CODE.scalar(p)) for p in nodes.parts(statement) if isinstance(p, nodes.ir.Expr)}
    return any("floor_" in text for text in kinds)

"""Properties of generated C++ loops for general accesses, guards, branches and atomics."""

from __future__ import annotations

from cpp_cases import lower

from sketchc.lowering.c_source.expressions import Expressions
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.build import build_phases

GRID = '@llm_hint("parallel", "grididx")'

#: Prints expressions of tests.
CODE = Expressions()


def program(text: str) -> nodes.Program:
    """The loop program of the only phase."""
    (phase,) = build_phases(lower(text)[0])
    return phase.program


def of_kind(found: nodes.Program, kind: type[nodes.Statement]) -> list[nodes.Statement]:
    return [statement for statement in nodes.walk(found.body) if isinstance(statement, kind)]


def test_a_gather_and_its_user_share_one_loop() -> None:
    """Indices, elements and what is made of them need no memory."""
    found = program(f"""sketch pick {{
    symbols: N, K;
    tensors: X[N]: in f32; I[K]: in i32; Y[K]: out f32;
    {GRID}
    for k in range(cdiv(K, 16)):
        i = alloc([16])
        x = alloc([16])
        load(I[k*16:(k+1)*16] -> i)
        load(X[i] -> x)
        exp(x, x)
        store(x -> Y[k*16:(k+1)*16])
}}""")
    (lanes,) = of_kind(found, nodes.LaneLoop)
    assert not found.storages
    selects = [s.value for s in nodes.walk((lanes,)) if isinstance(s, nodes.Define)]
    assert any(isinstance(select, nodes.Select) for select in selects)


def test_a_gather_does_not_share_a_loop_with_a_store_to_its_tensor() -> None:
    """LOWERING 9 with indices that nobody knows."""
    found = program(f"""sketch move {{
    symbols: M, N <= 64;
    tensors: Z[M, N]: inout f32; I[N]: in i64; Y[M, N]: out f32;
    constexpr: T = 64;
    {GRID}
    for m in range(M):
        a = alloc([T])
        i = alloc([T])
        b = alloc([T])
        load(I[0:N] -> i)
        load(Z[m, 0:N] -> a)
        neg(a, a)
        store(a -> Z[m, 0:N])
        load(Z[m, i] -> b)
        store(b -> Y[m, 0:N])
}}""")
    assert len(of_kind(found, nodes.LaneLoop)) == 2


def test_lanes_of_scatters_and_atomics_run_in_order() -> None:
    found = program(f"""sketch spread {{
    symbols: N, K;
    tensors: X[K]: in f32; I[K]: in i64; S[N]: inout f32; C[N]: out f32 = 0;
    {GRID}
    for k in range(cdiv(K, 16)):
        i = alloc([16])
        x = alloc([16])
        load(I[k*16:(k+1)*16] -> i)
        load(X[k*16:(k+1)*16] -> x)
        store(x -> S[i], unique=True)
        atomic_add(x -> C[i])
}}""")
    assert not of_kind(found, nodes.LaneLoop)
    (update,) = of_kind(found, nodes.AtomicUpdate)
    assert isinstance(update, nodes.AtomicUpdate)
    assert (update.operation, update.buffer) == ("add", "C")
    guarded = of_kind(found, nodes.Branch)
    assert any(update in nodes.children(branch) for branch in guarded)


def test_divisions_of_outer_lanes_leave_the_inner_loop() -> None:
    """Digits of a row's number are taken once per row, and a digit that both the guard and the
    index need is taken once per lane."""
    found = program(f"""sketch digits {{
    symbols: A, B, N;
    tensors: X[A, B, N]: in f32; Y[A*B, N]: out f32;
    constexpr: TM = 4, TN = 16;
    require: B >= 1;
    {GRID}
    for i in range(cdiv(A*B, TM)):
        x = alloc([TM, TN])
        for j in range(cdiv(N, TN)):
            m = iota(TM, i*TM, A*B)
            n = iota(TN, j*TN, N)
            load(X[(m // B)[:, None], (m % B)[:, None], n[None, :] // 2 + 1] -> x, pad=0)
            store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}}""")
    (lanes,) = of_kind(found, nodes.LaneLoop)
    text = " ".join(
        CODE.value(statement.value).text
        for statement in nodes.walk((lanes,))
        if isinstance(statement, nodes.Define | nodes.Write)
    )
    assert text.count("floor_div") == 1
    assert "floor_mod" not in text


def test_strides_and_directions_reach_the_index() -> None:
    found = program(f"""sketch back {{
    symbols: N;
    tensors: X[N]: in f32; Y[cdiv(N, 3)]: out f32;
    {GRID}
    for k in range(cdiv(cdiv(N, 3), 16)):
        x = alloc([16])
        load(X[N-1-48*k:N-1-48*(k+1):-3] -> x)
        store(x -> Y[k*16:(k+1)*16])
}}""")
    (lanes,) = of_kind(found, nodes.LaneLoop)
    reads = [s.value for s in nodes.walk((lanes,)) if isinstance(s, nodes.Define)]
    assert [CODE.scalar(r.index).text for r in reads if isinstance(r, nodes.Element)] == [
        "N - 1 - 48 * k + lane * -3"
    ]


def test_loops_that_count_down_test_the_other_way() -> None:
    _, kernel = lower(f"""sketch down {{
    symbols: K, N;
    tensors: X[K, N]: in f32; Y[K, N]: out f32;
    {GRID}
    for j in range(cdiv(N, 16)):
        state = alloc([16], f32, init=0)
        for k in range(K - 1, -1, -1):
            x = alloc([16])
            load(X[k, j*16:(j+1)*16] -> x)
            add(state, x, state)
            store(state -> Y[k, j*16:(j+1)*16])
}}""")
    assert "for (int64_t k = K - 1; k > -1; k += -1)" in kernel.source

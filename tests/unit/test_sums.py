"""How many terms are added up is read off a plan: over phases, and along no axis that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchc.api import sketches
from sketchc.ir.evaluate import host_values
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.runtime.cases.sums import INPUT, Amount, Sums

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

ROW_SUMS = """
sketch row_sums {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32 = 0;
    constexpr: T = 27;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            x = alloc([T])
            s = alloc([1])
            load(X[i, j*T:(j+1)*T] -> x)
            reduce_sum(x, 0, s)
            atomic_add(s -> Y[i:i+1])
}
"""
SUM_AND_COPY = """
sketch both {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32; Z[M, N]: out f32;
    constexpr: T = 32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        y = alloc([1], init=0)
        for j in range(ceil(N, T)):
            x = alloc([T])
            s = alloc([1])
            load(X[i, j*T:(j+1)*T] -> x)
            store(x -> Z[i, j*T:(j+1)*T])
            reduce_sum(x, 0, s)
            add(y, s, y)
        store(y -> Y[i:i+1])
}
"""
GROUPED = """
sketch grouped {
    symbols: G, M, N, K;
    tensors: A[G, M, K]: in f32; B[G, K, N]: in f32; C[G, M, N]: out f32;
    constexpr: TM = 16, TN = 16, TK = 64;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, TM)):
        for g in range(G):
            for j in range(ceil(N, TN)):
                c = alloc([TM, TN], init=0)
                for k in range(0, K, TK):
                    a = alloc([TM, TK])
                    b = alloc([TK, TN])
                    load(A[g, i*TM:(i+1)*TM, k:k+TK] -> a)
                    load(B[g, k:k+TK, j*TN:(j+1)*TN] -> b)
                    gemm(a, b, c)
                store(c -> C[g, i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}
"""
TWO_PHASES = """
sketch projected {
    symbols: M, N, K;
    tensors: X[M, K]: in f32; W[K, N]: in f32; Y[M]: out f32;
    workspace: P[M, N]: f32;
    constexpr: T = 16;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, T)):
        for j in range(ceil(N, T)):
            p = alloc([T, T], init=0)
            for k in range(0, K, T):
                x = alloc([T, T])
                w = alloc([T, T])
                load(X[i*T:(i+1)*T, k:k+T] -> x)
                load(W[k:k+T, j*T:(j+1)*T] -> w)
                gemm(x, w, p)
            store(p -> P[i*T:(i+1)*T, j*T:(j+1)*T])

    @llm_hint("parallel", "grididx")
    for i in range(M):
        y = alloc([1], init=0)
        for j in range(0, N, T):
            p = alloc([T])
            s = alloc([1])
            load(P[i, j:j+T] -> p)
            exp(p, p)
            reduce_sum(p, 0, s)
            add(y, s, y)
        store(y -> Y[i:i+1])
}
"""
TRIANGLE = """
sketch triangle {
    symbols: N;
    tensors: X[N, N]: in f32; Y[N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(N):
        y = alloc([1], init=0)
        for j in range(N):
            for k in range(j, N):
                x = alloc([1])
                load(X[k:k+1, j] -> x)
                add(y, x, y)
        store(y -> Y[i:i+1])
}
"""


def totals(folder: Path, text: str, **symbols: int) -> dict[str, float]:
    """The additions behind an element of each tensor that is written."""
    path = folder / "one.sketch"
    path.write_text(text)
    _, tree = sketches.load_sketch(str(path))
    plan = build_plan(tree, "cpp").plan
    found = Sums(plan, 1e9).run(host_values(plan.sketch, symbols))
    return {name: amount.total for name, amount in found.items()}


def test_atomics_add_what_meets_in_one_element(tmp_path: Path) -> None:
    """Not what all rows add."""
    assert totals(tmp_path, ROW_SUMS, M=193, N=513)["Y"] == 513
    assert 500 <= totals(tmp_path, ROW_SUMS, M=193, N=500)["Y"] <= 513


def test_a_copy_beside_a_sum_adds_up_nothing(tmp_path: Path) -> None:
    found = totals(tmp_path, SUM_AND_COPY, M=5, N=1543)
    assert found == {"Y": 1543, "Z": 0}


@pytest.mark.parametrize("inner", [1, 63, 64, 65, 200])
def test_groups_and_tiles_beside_a_product_do_not_count(inner: int, tmp_path: Path) -> None:
    wanted = inner if inner > 1 else 0
    assert totals(tmp_path, GROUPED, G=5, M=40, N=80, K=inner)["C"] == wanted


def test_phases_add_up(tmp_path: Path) -> None:
    assert totals(tmp_path, TWO_PHASES, M=30, N=50, K=70)["Y"] == 50 + 70


def test_bounds_that_follow_from_outer_loops(tmp_path: Path) -> None:
    assert totals(tmp_path, TRIANGLE, N=41)["Y"] == 41 * 42 / 2


def test_examples_with_known_sums() -> None:
    def of(name: str, **symbols: int) -> dict[str, Amount]:
        _, tree = sketches.load_sketch(str(EXAMPLES / f"{name}.sketch"))
        plan = build_plan(tree, "cpp").plan
        return Sums(plan, 1e9).run(host_values(plan.sketch, symbols, {}))

    assert of("matmul", M=70, N=80, K=301)["C"].total == 301
    assert of("online_softmax", M=2, N=10_001)["Y"].total == pytest.approx(10_001, abs=8)
    assert of("relu", M=2, N=1001)["Y"] == INPUT
    attention = of("softmax", M=3, N=77)["Y"].total
    assert 77 <= attention <= 85

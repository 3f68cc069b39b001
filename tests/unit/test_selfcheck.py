"""The self-check (R6b): right sketches pass, and what every proof misses is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sketchc.base.diagnostics import Severity, Source
from sketchc.checker.api import check
from sketchc.checker.selfcheck import first_difference, self_check

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.sketch"))


def run(text: str, **constants: int):
    return self_check(Source("one.sketch", text), constants)


def softmax(constexpr: str) -> str:
    """A softmax over each block of T columns instead of each row."""
    return f"""sketch block_softmax {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: {constexpr};
    @llm_hint("parallel")
    for i in range(M):
        for j in range(ceil(N, T)):
            x = alloc([T])
            largest = alloc([1])
            total = alloc([1])
            load(X[i, j*T:(j+1)*T] -> x)
            reduce_max(x, 0, largest)
            sub(x, largest, x)
            exp(x, x)
            reduce_sum(x, 0, total)
            div(x, total, x)
            store(x -> Y[i, j*T:(j+1)*T])
}}
"""


def matmul(trips: str) -> str:
    return f"""sketch product {{
    symbols: M, N, K;
    tensors: A[M, K]: in f32; B[K, N]: in f32; C[M, N]: out f32;
    constexpr: TM = 64 in [32, 64], TN = 32 in [32, 64], TK = 32 in [16, 32];
    @llm_hint("parallel")
    for i in range(ceil(M, TM)):
        @llm_hint("parallel")
        for j in range(ceil(N, TN)):
            c = alloc([TM, TN], f32, init=0)
            for k in range({trips}):
                a = alloc([TM, TK])
                b = alloc([TK, TN])
                load(A[i*TM:(i+1)*TM, k*TK:(k+1)*TK] -> a)
                load(B[k*TK:(k+1)*TK, j*TN:(j+1)*TN] -> b)
                gemm(a, b, c)
            store(c -> C[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}}
"""


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_pass(path):
    assert self_check(Source(path.name, path.read_text("utf-8"))) == ()


@pytest.mark.parametrize("constexpr", ["T = 64 in [32, 64, 128]", "T"])
def test_a_block_local_softmax_passes_every_proof_and_is_caught(constexpr):
    text = softmax(constexpr)
    assert check(Source("one.sketch", text)).ok
    (diagnostic,) = run(text)
    assert diagnostic.code == "SK0809"
    assert diagnostic.severity is Severity.ERROR
    assert "depend on its tile sizes (T)" in diagnostic.message
    default, other, sizes = diagnostic.notes
    assert default.startswith("Y[")
    assert default.endswith("with T = 64")
    assert other.split(" is ")[0] == default.split(" is ")[0]
    assert "T = 64" not in other
    assert sizes.startswith("executed with M = ")


def test_a_constant_of_one_value_is_only_warned_about():
    """It may be the size of a group: then the sketch says what it means."""
    (diagnostic,) = run(softmax("T = 4"))
    assert (diagnostic.code, diagnostic.severity) == ("SK0809", Severity.WARNING)


def test_a_bound_constant_is_not_varied():
    assert run(softmax("T"), T=16) == ()


def test_a_dropped_last_block_of_a_matmul_is_caught():
    """Every output element is written and in bounds, yet the tail of K is missing."""
    assert run(matmul("ceil(K, TK)")) == ()
    text = matmul("K // TK")
    assert check(Source("one.sketch", text)).ok
    assert [diagnostic.code for diagnostic in run(text)] == ["SK0809"]


def test_conditions_steer_the_sizes():
    """Both sizes must be even, and bounded: sizes that satisfy this are found and executed."""
    text = softmax("T").replace(
        "constexpr", "require: N % 6 == 0;\n    require: M > 1;\n    constexpr"
    )
    assert [diagnostic.code for diagnostic in run(text)] == ["SK0809"]


def test_conditions_that_no_small_size_satisfies():
    rare = "require: N % 1000000 == 999999;\n    constexpr"
    (diagnostic,) = run(softmax("T").replace("constexpr", rare))
    assert (diagnostic.code, diagnostic.severity) == ("SK0810", Severity.ERROR)
    (diagnostic,) = run(softmax("T = 4").replace("constexpr", rare))
    assert (diagnostic.code, diagnostic.severity) == ("SK0810", Severity.WARNING)


def test_what_the_checker_refuses_is_left_to_it():
    assert run("sketch broken {") == ()
    assert run(matmul("ceil(K, TK)").replace(", init=0", "")) == ()


def test_errors_of_the_random_data_are_not_the_sketchs():
    """Random divisors hold zeros; that says nothing about the sketch."""
    text = """sketch ratio {
    symbols: M;
    tensors: X[M]: in i32; D[M]: in i32; Y[M]: out i32;
    constexpr: T = 4 in [4, 8];
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        d = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        load(D[i*T:(i+1)*T] -> d)
        floordiv(x, d, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
    assert run(text) == ()


def test_differences():
    x = np.array([1.0, np.nan, np.inf, 1e6, 1e-3])
    assert first_difference(x, x * (1 + 1e-12)) is None
    assert first_difference(x, np.where(np.isnan(x), 0.0, x)) == (1,)
    assert first_difference(x, x * np.array([1, 1, -1, 1, 1])) == (2,)
    assert first_difference(x, x + np.array([0, 0, 0, 0, 0.1])) == (4,)
    assert first_difference(np.array([[1, 2]]), np.array([[1, 3]])) == (0, 1)

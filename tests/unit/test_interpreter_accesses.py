"""Every access form of the interpreter against NumPy: strides, index tiles, padding, predicates,
promises, atomics. Domains are checked, loops shuffled, tiles padded with poison."""

from __future__ import annotations

import numpy as np
import pytest
from operation_cases import elaborated

from sketchc.base.diagnostics import DiagnosticError, InternalError
from sketchc.interpreter.api import Options, interpret

CHECKED = (
    Options(check_domains=True, shuffle=5),
    Options(check_domains=True, shuffle=6, padding=3),
)
SIZES = (0, 1, 3, 4, 5, 13)


def run(text: str, *options: Options, **tensors: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs, which must not depend on order or padding."""
    sketch = elaborated(text)
    first, *others = (interpret(sketch, tensors, options=o).outputs for o in options or CHECKED)
    for other in others:
        for name, array in first.items():
            np.testing.assert_array_equal(array, other[name])
    return first


def violations(text: str, symbols: dict[str, int] | None = None, **tensors: np.ndarray):
    result = interpret(elaborated(text), tensors, symbols, options=Options(collect=True))
    return {violation.kind: violation for violation in result.violations}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tiled(body: str, tensors: str, symbols: str = "M", count: str = "M", head: str = "") -> str:
    lines = "\n        ".join(body.strip().splitlines())
    return f"""sketch accesses {{
    symbols: {symbols};
    tensors: {tensors}
    {head}
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(cdiv({count}, T)):
        {lines}
}}
"""


# ---------------------------------------------------------------- slices with a step


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_strided_slices(size, step):
    text = tiled(
        f"x = alloc([T])\nload(X[i*T*{step}:(i+1)*T*{step}:{step}] -> x)\n"
        "store(x -> Y[i*T:(i+1)*T])",
        "X[M]: in f32; Y[N]: out f32;",
        symbols="M",
        head=f"let: N = cdiv(M, {step});",
        count="N",
    )
    x = numbers(size)
    np.testing.assert_array_equal(run(text, X=x)["Y"], x[::step])


@pytest.mark.parametrize("size", SIZES)
def test_a_reversed_slice_goes_down_to_the_first_element(size):
    text = tiled(
        "x = alloc([T])\nload(X[M-1-i*T:M-1-(i+1)*T:-1] -> x)\nstore(x -> Y[i*T:(i+1)*T])",
        "X[M]: in f32; Y[M]: out f32;",
    )
    x = numbers(size)
    np.testing.assert_array_equal(run(text, X=x)["Y"], x[::-1])


@pytest.mark.parametrize("size", SIZES)
def test_strided_stores_interleave(size):
    text = tiled(
        "x = alloc([T])\nload(X[i*T:(i+1)*T] -> x)\nstore(x -> Y[2*i*T:2*(i+1)*T:2])\n"
        "neg(x, x)\nstore(x -> Y[2*i*T+1:2*(i+1)*T+1:2])",
        "X[M]: in f32; Y[2*M]: out f32;",
    )
    x = numbers(size)
    expected = np.stack((x, -x), axis=1).reshape(-1)
    np.testing.assert_array_equal(run(text, X=x)["Y"], expected)


# ---------------------------------------------------------------- index tiles


@pytest.mark.parametrize("size", SIZES)
def test_lane_form_with_computed_indices(size):
    """The diagonal of a square matrix."""
    text = tiled(
        "m = iota(T, i*T, M)\nx = alloc([T])\nload(X[m, m] -> x)\nstore(x -> Y[i*T:(i+1)*T])",
        "X[M, M]: in f32; Y[M]: out f32;",
    )
    x = numbers(size, size)
    np.testing.assert_array_equal(run(text, X=x)["Y"], np.diagonal(x))


@pytest.mark.parametrize("size", SIZES)
def test_lane_form_broadcasts_to_a_matrix(size):
    text = tiled(
        "for j in range(cdiv(M, T)):\n"
        "            r = iota(T, i*T, M)[:, None]\n"
        "            c = iota(T, j*T, M)[None, :]\n"
        "            x = alloc([T, T])\n"
        "            load(X[c, r] -> x)\n"
        "            store(x -> Y[r, c])",
        "X[M, M]: in f32; Y[M, M]: out f32;",
    )
    x = numbers(size, size)
    np.testing.assert_array_equal(run(text, X=x)["Y"], x.T)


@pytest.mark.parametrize("dtype", ["i64", "i32", "u8"])
@pytest.mark.parametrize("size", SIZES)
def test_gather_of_rows_with_loaded_indices(size, dtype):
    text = tiled(
        "k = alloc([T])\nload(K[i*T:(i+1)*T] -> k)\n"
        "x = alloc([T, 3])\nload(X[k, 0:3] -> x)\nstore(x -> Y[i*T:(i+1)*T, 0:3])",
        f"X[N, 3]: in f32; K[M]: in {dtype}; Y[M, 3]: out f32;",
        symbols="M, N",
    )
    generator = np.random.default_rng(size)
    names = {"i64": np.int64, "i32": np.int32, "u8": np.uint8}
    k = generator.integers(0, 7, size).astype(names[dtype])
    x = numbers(7, 3)
    np.testing.assert_array_equal(run(text, X=x, K=k)["Y"], x[k])


def test_a_loaded_index_out_of_range_is_an_error_unless_padded():
    body = (
        "k = alloc([T])\nload(K[i*T:(i+1)*T] -> k)\nx = alloc([T])\nload(X[k] -> x{})\n"
        "store(x -> Y[i*T:(i+1)*T])"
    )
    declared = "X[N]: in f32; K[M]: in i32; Y[M]: out f32;"
    x, k = numbers(3), np.array([0, 2, 7, 1, -1], np.int32)
    bare = tiled(body.format(""), declared, symbols="M, N")
    found = violations(bare, X=x, K=k)
    assert found["in-bounds"].element == (7,)
    assert "X[7] is out of range: axis 0 has 3 elements" in found["in-bounds"].text
    with pytest.raises(DiagnosticError, match="SK0802"):
        interpret(elaborated(bare), {"X": x, "K": k})
    padded = tiled(body.format(", pad=9"), declared, symbols="M, N")
    assert run(padded, X=x, K=k)["Y"].tolist() == [x[0], x[2], 9, x[1], 9]


@pytest.mark.parametrize("size", SIZES)
def test_scatter_through_a_permutation(size):
    text = tiled(
        "k = alloc([T])\nload(K[i*T:(i+1)*T] -> k)\nx = alloc([T])\nload(X[i*T:(i+1)*T] -> x)\n"
        "store(x -> Y[k], unique=True, covers=True)",
        "X[M]: in f32; K[M]: in i64; Y[M]: out f32;",
    )
    x, k = numbers(size), np.random.default_rng(size).permutation(size)
    assert np.array_equal(run(text, X=x, K=k)["Y"][k], x)


def test_broken_promises_are_found():
    text = tiled(
        "k = alloc([T])\nload(K[i*T:(i+1)*T] -> k)\nx = alloc([T])\nload(X[i*T:(i+1)*T] -> x)\n"
        "store(x -> Y[k], unique=True, covers=True)",
        "X[M]: in f32; K[M]: in i64; Y[M]: out f32;",
    )
    one_store = violations(text, X=numbers(6), K=np.array([0, 1, 1, 3, 4, 5]))
    assert one_store["independent"].element == (1,)
    assert "two lanes of one store write Y[1]" in one_store["independent"].text
    assert "unique=True" in one_store["independent"].text
    assert one_store["covered"].element == (2,)
    assert "covers=True" in one_store["covered"].text
    two_stores = violations(text, X=numbers(6), K=np.array([0, 1, 2, 3, 2, 5]))
    assert two_stores["independent"].iterations == ({"i": 0}, {"i": 1})
    assert violations(text, X=numbers(6), K=np.array([5, 1, 0, 3, 4, 2])) == {}


def test_an_index_tile_is_a_snapshot_of_the_tile():
    text = tiled(
        "k = alloc([T])\nload(K[i*T:(i+1)*T] -> k)\nold = k + 0\nadd(k, 1, k)\n"
        "x = alloc([T])\nload(X[old] -> x)\nz = alloc([T])\nload(X[k] -> z)\n"
        "sub(z, x, x)\nstore(x -> Y[i*T:(i+1)*T])",
        "X[N]: in f32; K[M]: in i32; Y[M]: out f32;",
        symbols="M, N",
    )
    x, k = numbers(9), np.array([3, 0, 7, 7, 2], np.int32)
    np.testing.assert_array_equal(run(text, X=x, K=k)["Y"], x[k + 1] - x[k])


# ---------------------------------------------------------------- padding and predicates


@pytest.mark.parametrize("size", SIZES)
def test_padded_windows_see_the_padding_beyond_both_ends(size):
    text = tiled(
        "x = alloc([T])\ny = alloc([T], f32, init=0)\n"
        "for k in range(3):\n"
        "            load(X[i*T+k-1:(i+1)*T+k-1] -> x, pad=-5)\n"
        "            add(y, x, y)\n"
        "store(y -> Y[i*T:(i+1)*T])",
        "X[M]: in f32; Y[M]: out f32;",
    )
    x = numbers(size)
    p = np.concatenate(([-5], x.astype(np.float64), [-5]))
    expected = (p[:-2].astype(np.float32) + p[1:-1].astype(np.float32)) + p[2:].astype(np.float32)
    np.testing.assert_allclose(run(text, X=x)["Y"], expected, rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_a_predicate_that_separates_bounds_the_domain(size):
    """The prefix sums of a triangle: only lanes up to the row's number take part."""
    text = tiled(
        "j = iota(T, i*T)\nx = alloc([T])\nload(X[i*T:(i+1)*T] -> x, where=j < B)\n"
        "s = alloc([1])\nreduce_sum(x, 0, s)\nstore(s -> Y[i:i+1])",
        "X[M]: in f32; Y[N]: out f32;",
        symbols="M",
        head="params: B: i64;\n    let: N = cdiv(M, T4);".replace("T4", "4"),
    )
    x = numbers(size)
    sketch = elaborated(text)
    for bound in (-1, 0, 2, 5, 100):
        kept = np.where(np.arange(size) < bound, x, 0).astype(np.float64)
        expected = [kept[i : i + 4].sum() for i in range(0, size, 4)]
        for options in CHECKED:
            got = interpret(sketch, {"X": x}, params={"B": bound}, options=options).outputs["Y"]
            np.testing.assert_allclose(got, np.array(expected, np.float32), rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_a_predicate_that_does_not_separate_pads(size):
    """The lower triangle of a matrix."""
    text = tiled(
        "for j in range(cdiv(M, T)):\n"
        "            r = iota(T, i*T, M)[:, None]\n"
        "            c = iota(T, j*T, M)[None, :]\n"
        "            x = alloc([T, T])\n"
        "            load(X[i*T:(i+1)*T, j*T:(j+1)*T] -> x, pad=0, where=c <= r)\n"
        "            store(x -> Y[r, c])",
        "X[M, M]: in f32; Y[M, M]: out f32;",
    )
    x = numbers(size, size)
    np.testing.assert_array_equal(run(text, X=x)["Y"], np.tril(x))


@pytest.mark.parametrize("size", SIZES)
def test_a_bool_tile_masks_a_store(size):
    text = tiled(
        "x = alloc([T])\nload(X[i*T:(i+1)*T] -> x)\np = alloc([T], bool)\ngt(x, 0.0, p)\n"
        "store(x -> Y[i*T:(i+1)*T], where=p)",
        "X[M]: in f32; Y[M]: out f32 = 7;",
    )
    x = numbers(size)
    np.testing.assert_array_equal(run(text, X=x)["Y"], np.where(x > 0, x, np.float32(7)))


# ---------------------------------------------------------------- atomics


HISTOGRAM = (
    "k = alloc([T])\nload(K[i*T:(i+1)*T] -> k)\nx = alloc([T])\nload(X[i*T:(i+1)*T] -> x)\n"
    "atomic_{}(x -> Y[k])"
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", ["add", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "i64"])
def test_atomics_count_every_lane(size, operation, dtype):
    text = tiled(
        HISTOGRAM.format(operation),
        f"X[M]: in {dtype}; K[M]: in i32; Y[N]: inout {dtype};",
        symbols="M, N",
    )
    kind = {"f32": np.float32, "i32": np.int32, "i64": np.int64}[dtype]
    generator = np.random.default_rng(size)
    x = (generator.standard_normal(size) * 50).astype(kind)
    k = generator.integers(0, 3, size).astype(np.int32)
    y = (generator.standard_normal(3) * 9).astype(kind)
    expected = y.astype(np.float64 if dtype == "f32" else np.int64)
    {"add": np.add, "max": np.maximum, "min": np.minimum}[operation].at(expected, k, x)
    np.testing.assert_array_equal(run(text, X=x, K=k, Y=y)["Y"], expected.astype(kind))


def test_the_order_of_atomic_additions_does_not_show():
    """1e8 and many small numbers: rounding after each would lose all that come after it."""
    text = tiled(
        HISTOGRAM.format("add"), "X[M]: in f32; K[M]: in i32; Y[1]: out f32 = 0;", symbols="M"
    )
    x = np.concatenate(([1e8], np.ones(999))).astype(np.float32)
    results = set()
    for shuffle in range(5):
        options = Options(shuffle=shuffle)
        given = {"X": x, "K": np.zeros(1000, np.int32)}
        results.add(float(interpret(elaborated(text), given, options=options).outputs["Y"][0]))
    assert results == {float(np.float32(1e8 + 999))}


def test_integer_atomics_wrap():
    text = tiled(
        HISTOGRAM.format("add"), "X[M]: in i32; K[M]: in i32; Y[1]: out i32 = 0;", symbols="M"
    )
    x = np.array([2**31 - 1, 1, 5], np.int32)
    assert run(text, X=x, K=np.zeros(3, np.int32))["Y"].tolist() == [-(2**31) + 5]


@pytest.mark.parametrize("other", ["store(x -> Y[k], unique=True)", "atomic_max(x -> Y[k])"])
def test_atomics_conflict_with_other_accesses_of_other_iterations(other):
    text = tiled(
        HISTOGRAM.format("add") + "\n" + other,
        "X[M]: in f32; K[M]: in i32; Y[N]: inout f32;",
        symbols="M, N",
    )
    apart = np.arange(8, dtype=np.int32)
    assert violations(text, X=numbers(8), K=apart, Y=numbers(8)) == {}
    found = violations(
        text, X=numbers(8), K=np.array([0, 1, 2, 3, 3, 5, 6, 7], np.int32), Y=numbers(8)
    )
    assert found["independent"].element == (3,)


# ---------------------------------------------------------------- the checker is checked


def test_a_wrong_guard_is_an_internal_error():
    import attrs

    from sketchc.ir import nodes as ir

    text = tiled(
        "for j in range(cdiv(M, T)):\n"
        "            r = iota(T, i*T, M)[:, None]\n"
        "            c = iota(T, j*T, M)[None, :]\n"
        "            x = alloc([T, T])\n"
        "            load(X[i*T:(i+1)*T, j*T:(j+1)*T] -> x, pad=0, where=c <= r)\n"
        "            store(x -> Y[r, c])",
        "X[M, M]: in f32; Y[M, M]: out f32;",
    )

    def weaker(node):
        """The same statement without its guards."""
        if isinstance(node, ir.For):
            return attrs.evolve(node, body=tuple(map(weaker, node.body)))
        return attrs.evolve(node, guards=()) if isinstance(node, ir.Load) else node

    sketch = elaborated(text)
    wrong = attrs.evolve(
        sketch,
        phases=tuple(
            attrs.evolve(phase, body=tuple(map(weaker, phase.body))) for phase in sketch.phases
        ),
    )
    with pytest.raises(InternalError, match="lane"):
        interpret(wrong, {"X": numbers(5, 5)}, options=Options(check_domains=True))

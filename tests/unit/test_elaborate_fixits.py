"""What the public listings write otherwise than the language asks is accepted, with a fix-it."""

from __future__ import annotations

import numpy as np
import pytest

from sketchc.base.diagnostics import Diagnostic, Source, apply_edits
from sketchc.checker.api import check, check_sketch
from sketchc.checker.elaboration.elaborate import bindable, elaborate
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse

FIGURE_2 = """sketch rms_norm_optimized {
    symbols: B, F, D1, D2;
    tensors: X[B, F, D1, D2]: f32; Y[B, F, D1, D2]: f32;
    constexpr: eps, TILE_SIZE;

    @llm_hint("parallel", "coreidx")
    for b in range(B):
        @llm_hint("parallel", "coreidx")
        for d1_outer in range(0, ceil(D1, TILE_SIZE)):
            square_sum = alloc([TILE_SIZE, D2], llm_hint=["fast", "accumulator", "init_zero"])
            @llm_hint("pipeline")
            for f in range(F):
                x_row = alloc([TILE_SIZE, D2], llm_hint=["fast", "input_cache"])
                load(X[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2] -> x_row)
                square_row = alloc([TILE_SIZE, D2], llm_hint=["fastest", "temp_workspace"])
                mul(x_row, x_row, square_row)
                add(square_sum, square_row, square_sum)
            mean_row = alloc([TILE_SIZE, D2], llm_hint=["fastest", "temp_workspace"])
            rms_row = alloc([TILE_SIZE, D2], llm_hint=["fastest", "temp_workspace"])
            div(square_sum, F, mean_row)
            add(mean_row, eps, mean_row)
            sqrt(mean_row, rms_row)
            @llm_hint("pipeline")
            for f in range(F):
                x_row = alloc([TILE_SIZE, D2], llm_hint=["fast", "input_cache"])
                load(X[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2] -> x_row)
                y_row = alloc([TILE_SIZE, D2], llm_hint=["fast", "output_buffer"])
                div(x_row, rms_row, y_row)
                store(y_row -> Y[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2])
}
"""

MATMUL = """sketch matmul {
    symbols: M, N, K;
    tensors: A[M, K]: f32; B[K, N]: f32; C[M, N]: f32
    constexpr: m0, k0, n0 = 128, 256, 256;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, m0)):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, n0)):
            c = alloc([m0, n0], llm_hint=["fastest", "accumulator", "init_zero"])
            for k in range(ceil(K, k0)):
                a = alloc([m0, k0], llm_hint="fast")
                b = alloc([k0, n0], llm_hint=["fast"])
                load(A[i:i+m0, k:k+k0] -> a)
                load(B[k:k+k0, j:j+n0] -> b)
                gemm(a, b, c)
            store(c -> C[i:i+m0, j:j+n0])
}
"""


def elaborated(text: str, **constants: float) -> ir.Sketch:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], constants)
    assert sketch is not None, found
    return sketch


def said(text: str) -> list[Diagnostic]:
    """What the checker says of a sketch, advice on its speed (SK065x) aside."""
    found = check(Source("test.sketch", text)).diagnostics
    return [diagnostic for diagnostic in found if not diagnostic.code.startswith("SK065")]


def codes(text: str) -> list[str]:
    return [diagnostic.code for diagnostic in said(text)]


def row(statements: str, declarations: str = "") -> str:
    """A sketch over rows of X[M, N], with `x` loaded and then stored, and these between."""
    lines = "\n".join("        " + line for line in statements.split("\n"))
    return f"""sketch rows {{
    symbols: M, N <= 1024;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    {declarations}
    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N])
        m = alloc([1])
        load(X[i, 0:N] -> x)
{lines}
        store(x -> Y[i, 0:N])
}}
"""


def test_figure_2_is_accepted_with_one_warning():
    assert codes(FIGURE_2) == ["SK0601"]


def test_figure_2_leaves_eps_to_the_caller_and_the_tile_to_the_plan():
    sketch = elaborated(FIGURE_2)
    assert [(param.name, param.from_constexpr) for param in sketch.params] == [("eps", True)]
    (tile,) = sketch.constants
    assert (tile.name, tile.tunable, tile.chosen_by) == ("TILE_SIZE", True, "plan")


def test_figure_2_with_everything_bound_by_the_user():
    sketch = elaborated(FIGURE_2, eps=1e-5, TILE_SIZE=8)
    assert sketch.params == ()
    assert {c.name: (c.value, c.tunable, c.chosen_by) for c in sketch.constants} == {
        "eps": (1e-5, False, "user"),
        "TILE_SIZE": (8, True, "user"),
    }


def test_a_bound_silences_the_unbounded_extent():
    assert codes(FIGURE_2.replace("D1, D2;", "D1, D2 <= 1024;", 1)) == []


def test_tile_index_loops_are_refuted_and_every_fix_mends_them_all():
    result = check(Source("test.sketch", MATMUL))
    assert not result.ok
    errors = [d for d in result.diagnostics if d.code.startswith("SK05")]
    assert errors
    for error in errors:
        assert len(error.fixes) == 2
        for fix in error.fixes:
            mended = check(Source("test.sketch", apply_edits(MATMUL, fix.edits)))
            assert {d.code for d in mended.diagnostics} == {"SK0604"}, fix.title


def test_ceil_of_two_is_accepted_and_integer_division_is_not():
    text = row("mul(x, 2.0, x)").replace("range(M)", "range(M / 1)")
    assert codes(text) == ["SK0301"]
    assert codes(text.replace("M / 1", "ceil(M, 1)")) == []
    assert codes(text.replace("M / 1", "cdiv(M, 1)")) == []


def test_integer_division_can_be_mended_by_rounding_up_or_down():
    text = row("mul(x, 2.0, x)").replace("range(M)", "range(M / 1)")
    (diagnostic,) = said(text)
    replacements = [fix.edits[0].replacement for fix in diagnostic.fixes]
    assert replacements == ["ceil(M, 1)", "M//1"]


def test_a_late_positional_is_the_destination():
    text = row("reduce_max(x, axis=0, m)\nsub(x, m, x)")
    assert codes(text) == ["SK0603"]
    plain = elaborated(text.replace("axis=0, m", "0, m"))
    assert elaborated(text).phases == plain.phases


def test_shapes_may_be_repeated_on_operands():
    assert codes(row("reduce_max(x, 0, m)\nsub(x[N], m[1], x)")) == []
    assert codes(row("reduce_max(x, 0, m)\nsub(x[M], m[1], x)")) == ["SK0303"]


def test_vectors_broadcast_against_one_lane():
    assert codes(row("reduce_max(x, 0, m)\nsub(x, m, x)")) == []


def test_tuple_constants_are_fixed_constants_with_a_warning():
    sketch = elaborated(MATMUL)
    assert {c.name: (c.value, c.tunable) for c in sketch.constants} == {
        "m0": (128, False),
        "k0": (256, False),
        "n0": (256, False),
    }


def test_constants_at_the_top_of_the_body_are_fixed_constants():
    text = row("mul(x, 2.0, x)").replace(
        '    @llm_hint("parallel")', '    m0, k0 = 2, 3\n    @llm_hint("parallel")', 1
    )
    assert codes(text) == ["SK0604"]
    assert [(c.name, c.value, c.tunable) for c in elaborated(text).constants] == [
        ("m0", 2, False),
        ("k0", 3, False),
    ]
    assert elaborated(text, k0=7).constants[1].value == 7


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ('"fast"', []),
        ('["fast", "temp_workspace"]', []),
        ('"l1_buffer"', ["SK0605"]),
        ('["l0c", "nonsense_word"]', ["SK0605", "SK0606"]),
    ],
)
def test_hints_as_text_or_list(hint, expected):
    text = row("mul(x, 2.0, x)").replace("alloc([1])", f"alloc([1], llm_hint={hint})")
    assert codes(text) == expected


def test_hints_never_change_meaning_but_for_init_zero():
    plain = elaborated(row("mul(x, 2.0, x)"))
    hinted = elaborated(
        row("mul(x, 2.0, x)").replace("alloc([N])", 'alloc([N], llm_hint=["l1_buffer", "fast"])')
    )
    assert plain.phases == hinted.phases
    zeroed = elaborated(
        row("mul(x, 2.0, x)").replace("alloc([N])", 'alloc([N], llm_hint="init_zero")')
    )
    assert zeroed.tiles[0].initial == 0
    assert (
        zeroed.tiles
        == elaborated(
            row("mul(x, 2.0, x)").replace("alloc([N])", 'alloc([N], init=0, llm_hint="init_zero")')
        ).tiles
    )


def test_gemm_into_an_uninitialised_tile_is_an_error():
    text = MATMUL.replace(', "init_zero"', "")
    found = check(Source("test.sketch", text)).diagnostics
    (error,) = [d for d in found if d.code == "SK0403"]
    mended = apply_edits(text, error.fixes[0].edits)
    assert "SK0403" not in codes(mended)


def test_fill_before_a_product_does_not_outlive_the_loop():
    text = MATMUL.replace(', "init_zero"', "").replace(
        "            for k in", "            fill(0, c)\n            for k in"
    )
    assert "SK0421" in codes(text)


def test_a_reduction_that_looks_like_accumulation_is_a_warning():
    text = row("for k in range(3):\n    reduce_sum(x, 0, total)\nadd(x, total, x)").replace(
        "m = alloc([1])", "total = alloc([1], init=0)"
    )
    found = said(text)
    assert [d.code for d in found] == ["SK0607"]
    mended = apply_edits(text, found[0].fixes[0].edits)
    assert codes(mended) == []
    assert "add(total, total_part, total)" in mended


def test_misspelt_tiling_block_is_accepted():
    text = row("mul(x, 2.0, x)", "constexpr: T = 4;") + "avaliable_tiling:\n    T = 8\n"
    assert codes(text) == ["SK0608"]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_accumulator_is_a_warning(dtype):
    text = row("mul(x, 2.0, x)").replace(
        "alloc([1])", f'alloc([1], {dtype}, llm_hint="accumulator")'
    )
    assert codes(text) == ["SK0602"]


# ---------------------------------------------------------------- what the repairs mean


def interpreted(text: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a sketch that passes the check, with tile sizes of 3 and 4."""
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    names = bindable(tree.sketches[0])
    sizes = {name: size for name, size in (("m0", 3), ("k0", 4), ("n0", 4)) if name in names}
    checked, found = check_sketch(tree.sketches[0], sizes)
    assert checked is not None, found
    return dict(interpret(checked.sketch, arrays).outputs)


def signed(*shape: int) -> np.ndarray:
    """Signed values of mixed scale."""
    generator = np.random.default_rng(sum(shape))
    scale = 10.0 ** generator.integers(-2, 3, shape)
    return (generator.standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(1, 1, 1), (3, 4, 4), (7, 5, 11), (2, 3, 5)]
)
def test_repaired_tile_index_loops_multiply(rows, inner, columns):
    left, right = signed(rows, inner), signed(inner, columns)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    error = next(d for d in check(Source("s", MATMUL)).diagnostics if d.code == "SK0520")
    for fix in error.fixes:
        result = interpreted(apply_edits(MATMUL, fix.edits), {"A": left, "B": right})["C"]
        bound = 1e-5 * (np.abs(left).astype(np.float64) @ np.abs(right).astype(np.float64))
        assert np.all(np.abs(result - exact) <= bound + 1e-30), fix.title


@pytest.mark.parametrize("operation", ["sum", "max", "min", "prod"])
def test_repaired_reduction_accumulates(operation):
    start, reduce = {
        "sum": ("0", np.sum),
        "max": ("-inf", np.max),
        "min": ("inf", np.min),
        "prod": ("1", np.prod),
    }[operation]
    text = f"""sketch blocks {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    constexpr: n0 = 4;
    @llm_hint("parallel")
    for i in range(M):
        total = alloc([1], init={start})
        for j in range(ceil(N, n0)):
            x = alloc([n0])
            load(X[i, j*n0:(j+1)*n0] -> x)
            reduce_{operation}(x, 0, total)
        store(total -> Y[i])
}}
"""
    (warning,) = said(text)
    assert warning.code == "SK0607"
    for columns in (1, 3, 4, 5, 11):
        values = signed(3, columns)
        result = interpreted(apply_edits(text, warning.fixes[0].edits), {"X": values})["Y"]
        expected = reduce(values.astype(np.float64), axis=1)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("source", "destination"), [("i32", "f32"), ("f32", "i32"), ("i64", "i32"), ("bool", "f32")]
)
def test_casts_put_in_by_fixes_convert(source, destination):
    text = f"""sketch convert {{
    symbols: M;
    tensors: X[M]: in {source}; Y[M]: out {destination};
    constexpr: n0 = 4;
    @llm_hint("parallel")
    for i in range(ceil(M, n0)):
        x = alloc([n0])
        load(X[i*n0:(i+1)*n0] -> x)
        store(x -> Y[i*n0:(i+1)*n0])
}}
"""
    (error,) = said(text)
    assert error.code == "SK0307"
    numpy_type = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "bool": np.bool_}
    values = np.array([0, 1, 3, 7, 0], numpy_type[source])
    result = interpreted(apply_edits(text, error.fixes[0].edits), {"X": values})["Y"]
    assert result.dtype == numpy_type[destination]
    np.testing.assert_array_equal(result, values.astype(numpy_type[destination]))


TRUTHS = """sketch truths {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out bool;
    constexpr: n0 = 4;
    @llm_hint("parallel")
    for i in range(M):
        total = alloc([1], bool, init=START)
        for j in range(0, N, n0):
            x = alloc([n0])
            positive = alloc([n0], bool)
            load(X[i, j:j+n0] -> x)
            gt(x, 0, positive)
            REDUCE(positive, 0, total)
        store(total -> Y[i])
}
"""


@pytest.mark.parametrize("reduce", ["any", "all"])
def test_repaired_reductions_of_conditions_combine_conditions(reduce):
    text = TRUTHS.replace("START", str(reduce == "all")).replace("REDUCE", f"reduce_{reduce}")
    (warning,) = said(text)
    values = signed(9, 11)
    values[0], values[1] = 1.0, -1.0
    result = interpreted(apply_edits(text, warning.fixes[0].edits), {"X": values})["Y"]
    np.testing.assert_array_equal(result, getattr(values > 0, reduce)(axis=1))


def test_no_cast_is_put_between_a_product_and_its_accumulator():
    """It would keep the last product alone."""
    text = """sketch products {
    symbols: M <= 16, K;
    tensors: A[M, K]: in f16; C[M, M]: out i32;
    constexpr: T = 16;
    acc = alloc([M, M], i32, init=0)
    for k in range(0, K, T):
        a = alloc([M, T])
        load(A[:, k:k+T] -> a)
        gemm(a, a, acc, trans_b=True)
    store(acc -> C[:, :])
}
"""
    (error,) = said(text)
    assert (error.code, error.fixes) == ("SK0307", ())


@pytest.mark.parametrize("value", ["iota(4) + 0.5", "min(iota(4), 0.5)", "max(1.5, iota(4))"])
def test_floats_beside_lanes_are_errors(value):
    text = f"""sketch lanes {{
    symbols: N;
    tensors: X[N]: in f32; Y[4]: out f32;
    x = alloc([4])
    load(X[0:4] -> x)
    n = {value}
    add(x, n, x)
    store(x -> Y[0:4])
}}
"""
    assert "SK0302" in codes(text)

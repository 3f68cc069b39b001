"""The interpreter's rules: launch conditions, phases, views, violations, domains checked."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import pytest
import torch

from sketchc.base.diagnostics import DiagnosticError, InternalError, Source, UsageError, has_errors
from sketchc.base.types import DType
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.memory import runs_in_parallel
from sketchc.interpreter.tiles import round_bfloat16, to_tile
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse

CHECKED = Options(check_domains=True, shuffle=5)
PADDED = Options(check_domains=True, shuffle=6, padding=3)
COLLECT = Options(collect=True, check_domains=True)


def elaborated(text: str, domains: bool = True) -> ir.Sketch:
    tree, found = parse(Source("one.sketch", text))
    assert tree is not None, found
    sketch, more = elaborate(tree.sketches[0], {})
    assert sketch is not None, more
    assert not has_errors(more), more
    if domains:
        sketch, more = infer_domains(sketch)
        assert not has_errors(more), more
    return sketch


def vector(body: str, head: str = "", tensors: str = "X[M]: in f32; Y[M]: out f32;") -> str:
    """A sketch over M elements in tiles of 4; `body` works on the tile x of X."""
    lines = "\n        ".join(body.strip().splitlines())
    return f"""sketch vector {{
    symbols: M;
    tensors: {tensors}
    {head}
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        {lines}
}}
"""


STORE = "store(x -> Y[i*T:(i+1)*T])"
X10 = np.linspace(-3, 6, 10).astype(np.float32)


def kinds(text: str, tensors: dict[str, np.ndarray], domains: bool = True, **symbols: int):
    result = interpret(elaborated(text, domains), tensors, symbols, options=COLLECT)
    return {violation.kind: violation for violation in result.violations}


# ---------------------------------------------------------------- violations


def test_a_correct_sketch_has_no_violations():
    assert kinds(vector(STORE), {"X": X10}) == {}


def test_an_output_that_is_not_covered_names_the_first_unwritten_element():
    found = kinds(vector("store(x -> Y[i*T:i*T+T-1])"), {"X": X10}, domains=False)
    assert found["covered"].element == (3,)
    assert "Y[3] is never written" in found["covered"].text
    with pytest.raises(DiagnosticError, match="SK0805"):
        interpret(elaborated(vector("store(x -> Y[i*T:i*T+T-1])"), False), {"X": X10})


def test_overlapping_stores_name_both_iterations_and_the_element():
    found = kinds(vector("store(x -> Y[i*2:i*2+T])"), {"X": X10}, domains=False)
    violation = found["independent"]
    assert violation.tensor == "Y"
    assert violation.element == (2,)
    assert violation.iterations == ({"i": 0}, {"i": 1})


def test_reading_what_another_iteration_writes():
    text = vector(
        "z = alloc([T])\nload(Y[(i+1)*T:(i+2)*T] -> z)\nadd(x, 1.0, x)\n" + STORE,
        tensors="X[M]: in f32; Y[M]: inout f32;",
    )
    found = kinds(text, {"X": X10, "Y": X10}, domains=False)
    assert set(found) == {"independent"}
    assert {frozenset(v.items()) for v in found["independent"].iterations} == {
        frozenset({("i", 0)}),
        frozenset({("i", 1)}),
    }


def test_many_readers_of_one_element_that_another_iteration_writes():
    """Every iteration reads element 0, and only the last one writes it."""
    text = vector(
        "z = alloc([1])\nload(Y[0:1] -> z)\nstore(x -> Y[i*T+4-12:i*T+4-12+T])",
        tensors="X[M]: in f32; Y[M]: inout f32;",
    )
    found = kinds(text, {"X": X10, "Y": X10}, domains=False)
    assert found["independent"].element == (0,)


def test_a_sequential_loop_orders_its_parallel_nests():
    """Iterations of an inner parallel loop conflict with each other, never across the outer one."""
    outer = (1, "k", 0, False)
    assert not runs_in_parallel((outer, (2, "j", 0, True)), ((1, "k", 1, False), (2, "j", 1, True)))
    assert runs_in_parallel((outer, (2, "j", 0, True)), (outer, (2, "j", 1, True)))
    assert not runs_in_parallel((outer,), (outer, (2, "j", 1, True)))
    assert not runs_in_parallel((outer, (2, "j", 0, True)), (outer, (3, "l", 1, True)))


def test_a_scalar_subscript_out_of_range():
    text = """sketch rows {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N])
        load(X[i + 1, 0:N] -> x)
        store(x -> Y[i, 0:N])
}
"""
    found = kinds(text, {"X": np.ones((3, 2), np.float32)}, domains=False)
    assert set(found) == {"in-bounds"}
    assert found["in-bounds"].element == (3, 0)
    assert found["in-bounds"].iterations == ({"i": 2},)


def test_a_slice_longer_than_its_tile():
    text = vector("load(X[i*T:(i+2)*T] -> x)\n" + STORE)
    found = kinds(text, {"X": X10}, domains=False)
    assert set(found) == {"slice-fits"}


def test_reading_a_tile_before_anything_is_assigned():
    """The elaborator refuses such texts, so the loads are taken out of the IR."""
    sketch = elaborated(vector("neg(x, x)\n" + STORE), domains=False)
    (phase,) = sketch.phases
    (loop,) = phase.body
    assert isinstance(loop, ir.For)
    body = tuple(statement for statement in loop.body if not isinstance(statement, ir.Load))
    broken = attrs.evolve(sketch, phases=(ir.Phase((attrs.evolve(loop, body=body),)),))
    (violation,) = interpret(broken, {"X": X10}, options=COLLECT).violations
    assert (violation.kind, violation.tensor) == ("initialised", "x")
    assert violation.iterations == ({"i": 0},)


def test_a_workspace_read_before_it_is_written():
    text = """sketch phases {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    workspace: W[M]: f32;
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        store(x -> W[i*T:i*T+2])
    @llm_hint("parallel")
    for j in range(ceil(M, T)):
        y = alloc([T])
        load(W[j*T:(j+1)*T] -> y)
        store(y -> Y[j*T:(j+1)*T])
}
"""
    found = kinds(text, {"X": X10}, domains=False)
    assert found["initialised"].element == (2,)
    whole = text.replace("W[i*T:i*T+2]", "W[i*T:(i+1)*T]")
    for options in (CHECKED, PADDED):
        result = interpret(elaborated(whole), {"X": X10}, options=options)
        np.testing.assert_array_equal(result.outputs["Y"], X10)


# ---------------------------------------------------------------- domains


def test_a_wrong_static_domain_is_found():
    """The debug option is worth something: drop the mask of a load and it is reported."""
    sketch = elaborated(vector(STORE))
    wrong = attrs.evolve(sketch, phases=tuple(_unmasked(phase) for phase in sketch.phases))
    interpret(sketch, {"X": X10}, options=CHECKED)
    interpret(wrong, {"X": X10[:8]}, options=CHECKED)  # 8 divides: there is nothing to mask
    with pytest.raises(InternalError, match="static domain"):
        interpret(wrong, {"X": X10}, options=CHECKED)


def _unmasked(phase: ir.Phase) -> ir.Phase:
    loop = phase.body[0]
    assert isinstance(loop, ir.For)
    body = tuple(
        attrs.evolve(statement, domain=(ir.FULL,)) if isinstance(statement, ir.Load) else statement
        for statement in loop.body
    )
    return ir.Phase((attrs.evolve(loop, body=body),))


@pytest.mark.parametrize("options", [CHECKED, PADDED])
def test_rows_that_do_not_exist_do_not_contribute(options):
    """R4: an accumulator has the domain of what is written into it, so its void lanes stay void."""
    text = """sketch total {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[N]: out f32;
    constexpr: T = 4;
    acc = alloc([T, N], f32, init=5)
    total = alloc([N], f32)
    for i in range(ceil(M, T)):
        x = alloc([T, N])
        load(X[i*T:(i+1)*T, 0:N] -> x)
        add(acc, x, acc)
    reduce_sum(acc, 0, total)
    store(total -> Y[0:N])
}
"""
    sketch = elaborated(text)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    result = interpret(sketch, {"X": x}, options=options)
    np.testing.assert_array_equal(result.outputs["Y"], x.sum(0) + 4 * 5)


@pytest.mark.parametrize("options", [CHECKED, PADDED])
def test_predicates_over_iota_and_bindings(options):
    """The lower triangle of a matrix: `m[:, None] >= n` as an operand of where."""
    text = """sketch triangle {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 4, S = 3;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        @llm_hint("parallel")
        for j in range(ceil(N, S)):
            x = alloc([T, S])
            m = i*T + iota(T)
            n = j*S + iota(S)
            load(X[i*T:(i+1)*T, j*S:(j+1)*S] -> x)
            where(m[:, None] >= n, x, 0.0, x)
            store(x -> Y[i*T:(i+1)*T, j*S:(j+1)*S])
}
"""
    sketch = elaborated(text)
    for shape in [(1, 1), (4, 3), (5, 7), (9, 2), (0, 4)]:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        result = interpret(sketch, {"X": x}, options=options)
        np.testing.assert_array_equal(result.outputs["Y"], np.tril(x))


# ---------------------------------------------------------------- launch


def test_symbols_are_bound_from_shapes_and_must_agree():
    text = vector(STORE, tensors="X[M]: in f32; B[M]: in f32; Y[M]: out f32;")
    with pytest.raises(UsageError, match=r"M is 10 by X.* but 3 by B"):
        interpret(elaborated(text), {"X": X10, "B": X10[:3]})
    with pytest.raises(UsageError, match="M is 4 by the sizes given but 10"):
        interpret(elaborated(vector(STORE)), {"X": X10}, {"M": 4})


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "no array was given for the input X"),
        ({"X": X10, "Q": X10}, "Q is not an input of vector"),
        ({"X": X10, "Y": X10}, "Y is not an input of vector"),
        ({"X": X10[None]}, r"X has 2 axes, the sketch declares 1: X\[M\]: f32"),
        ({"X": X10.astype(np.float64)}, r"float64.*declares f32.*astype\('float32'\)"),
        ({"X": np.array(["a"])}, "the sketch declares f32"),
    ],
)
def test_arguments_that_do_not_fit(tensors, message):
    with pytest.raises(UsageError, match=message):
        interpret(elaborated(vector(STORE)), tensors)


def test_a_require_that_fails_names_the_condition_and_the_values():
    sketch = elaborated(vector(STORE, head="require: M % 4 == 0;"))
    interpret(sketch, {"X": X10[:8]})
    with pytest.raises(DiagnosticError, match="M % 4 == 0") as caught:
        interpret(sketch, {"X": X10})
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "SK0801"
    assert "M = 10" in " ".join(diagnostic.notes)


def test_a_symbol_above_its_bound():
    sketch = elaborated(vector(STORE).replace("symbols: M;", "symbols: M <= 9;"))
    with pytest.raises(DiagnosticError, match="the condition M <= 9 does not hold"):
        interpret(sketch, {"X": X10})


def test_params_and_lets():
    sketch = elaborated(
        vector(
            "mul(x, scale, x)\nadd(x, shift, x)\n" + STORE,
            head="params: factor: f32 = 0.1; shift: f32;\n    let: scale = factor * M;",
        )
    )
    with pytest.raises(UsageError, match="shift has no value"):
        interpret(sketch, {"X": X10})
    result = interpret(sketch, {"X": X10}, params={"shift": 2.0}, options=CHECKED)
    expected = X10.astype(np.float64) * (float(np.float32(0.1)) * 10)
    expected = (expected.astype(np.float32) + np.float32(2.0)).astype(np.float32)
    np.testing.assert_allclose(result.outputs["Y"], expected, rtol=3e-7)
    with pytest.raises(UsageError, match="sideways is not a parameter"):
        interpret(sketch, {"X": X10}, params={"sideways": 1})


def test_sizes_too_large_for_the_interpreter_are_refused():
    text = vector(STORE).replace("Y[M]: out", "Y[M*M*M]: out")
    sketch = elaborated(text, domains=False)
    with pytest.raises(UsageError, match=r"GiB.*choose smaller sizes"):
        interpret(sketch, {"X": np.zeros(3000, np.float32)})


def test_an_input_is_left_alone_and_an_inout_is_copied():
    text = vector(
        "y = alloc([T])\nload(Y[i*T:(i+1)*T] -> y)\nadd(x, y, y)\nstore(y -> Y[i*T:(i+1)*T])",
        tensors="X[M]: in f32; Y[M]: inout f32;",
    )
    x, y = X10.copy(), X10.copy()
    result = interpret(elaborated(text), {"X": x, "Y": y}, options=CHECKED)
    np.testing.assert_array_equal(x, X10)
    np.testing.assert_array_equal(y, X10)
    np.testing.assert_array_equal(result.outputs["Y"], X10 + X10)


def test_an_initial_value_covers_an_output():
    text = vector("store(x -> Y[i*T:i*T+2])", tensors="X[M]: in f32; Y[M]: out f32 = 7;")
    result = interpret(elaborated(text), {"X": X10}, options=CHECKED)
    expected = np.where(np.arange(10) % 4 < 2, X10, np.float32(7))
    np.testing.assert_array_equal(result.outputs["Y"], expected)


def test_views_and_broadcast_extents():
    text = """sketch flat {
    symbols: M, N;
    tensors: X[M, N]: in f32; B[M|1, N]: in f32; Y[M, N]: out f32; Z[M, N]: out f32;
    views: XF[M*N] = X; YF[M*N] = Y;
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(ceil(M*N, T)):
        x = alloc([T])
        load(XF[i*T:(i+1)*T] -> x)
        neg(x, x)
        store(x -> YF[i*T:(i+1)*T])
    @llm_hint("parallel")
    for r in range(M):
        b = alloc([N])
        load(B[r, 0:N] -> b)
        store(b -> Z[r, 0:N])
}
"""
    sketch = elaborated(text)
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    for b in (x[:1], x):
        given = {"X": np.asfortranarray(x), "B": b}
        outputs = interpret(sketch, given, options=CHECKED).outputs
        np.testing.assert_array_equal(outputs["Y"], -x)
        np.testing.assert_array_equal(outputs["Z"], np.broadcast_to(b, x.shape))
    with pytest.raises(UsageError, match="B has shape"):
        interpret(sketch, {"X": x, "B": x[:2]})


# ---------------------------------------------------------------- rounding


def test_bfloat16_is_rounded_once():
    """Values near ties of bfloat16, where a detour over float32 would round twice."""
    ties = 1.0 + 2.0**-8 + np.array([2.0**-30, -(2.0**-30), 0.0, 2.0**-50, -(2.0**-50)])
    values = np.concatenate([ties, -ties, [np.nan, np.inf, -np.inf, 0.0, 1e39, 1e-42]])
    expected = [1.0078125, 1.0, 1.0, 1.0078125, 1.0]
    actual = round_bfloat16(values).astype(np.float64)
    assert actual[:5].tolist() == expected
    assert actual[5:10].tolist() == [-value for value in expected]
    assert np.isnan(actual[10])
    assert actual[11:15].tolist() == [np.inf, -np.inf, 0.0, np.inf]


def test_bfloat16_agrees_with_pytorch_on_float32_values():
    assert round_bfloat16(np.asarray(1.01)).shape == ()
    values = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    mine = round_bfloat16(values.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(mine, torch.from_numpy(values).to(torch.bfloat16).float().numpy())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32])
def test_what_is_too_large_for_a_type_is_infinite_without_a_warning(dtype: DType) -> None:
    huge = np.array([1e300, -1e300, np.nan, 1.0])
    np.testing.assert_array_equal(to_tile(huge, dtype), [np.inf, -np.inf, np.nan, 1.0])


def test_raw_bfloat16_arrays_of_numpy_files():
    text = vector(STORE, tensors="X[M]: in bf16; Y[M]: out bf16;")
    x = X10.astype(ml_dtypes.bfloat16)
    result = interpret(elaborated(text), {"X": x.view("V2")}, options=CHECKED)
    assert result.outputs["Y"].dtype == ml_dtypes.bfloat16
    assert result.outputs["Y"].tobytes() == x.tobytes()


# ---------------------------------------------------------------- tiles and shapes


@pytest.mark.parametrize("options", [CHECKED, PADDED])
def test_a_masked_update_changes_valid_lanes_only(options):
    """R2: lanes that the last block of a row lacks keep what earlier blocks put there."""
    text = """sketch lanewise {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32; Z[M]: out f32;
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(M):
        total = alloc([T], f32, init=0)
        largest = alloc([T], f32, init=-inf)
        for k in range(ceil(N, T)):
            x = alloc([T])
            load(X[i, k*T:(k+1)*T] -> x)
            add(total, x, total)
            max(largest, x, largest)
        y = alloc([1], f32)
        z = alloc([1], f32)
        reduce_sum(total, 0, y)
        reduce_max(largest, 0, z)
        store(y -> Y[i])
        store(z -> Z[i])
}
"""
    sketch = elaborated(text)
    for shape in [(1, 1), (2, 3), (3, 4), (2, 5), (3, 11), (2, 0)]:
        x = np.random.default_rng(4).integers(-9, 0, shape).astype(np.float32)
        outputs = interpret(sketch, {"X": x}, options=options).outputs
        np.testing.assert_array_equal(outputs["Y"], x.sum(1))
        np.testing.assert_array_equal(outputs["Z"], x.max(1, initial=-np.inf))


@pytest.mark.parametrize("options", [CHECKED, PADDED])
@pytest.mark.parametrize("axes", ["[0, 1]", "[0, 2]", "[1, 2]", "[0, 1, 2]", "-1"])
def test_reductions_over_several_axes(options, axes):
    listed = [-1] if axes == "-1" else [int(axis) for axis in axes.strip("[]").split(",")]
    kept = ["1" if axis in listed or axis - 3 in listed else "ABC"[axis] for axis in range(3)]
    tile = f"[{', '.join(kept)}]"
    slices = ", ".join(f"0:{extent}" for extent in kept)
    text = f"""sketch several {{
    symbols: A <= 8, B <= 8, C <= 8;
    tensors: X[A, B, C]: in f32; Y{tile}: out f32;
    x = alloc([A, B, C])
    y = alloc({tile}, f32)
    load(X[0:A, 0:B, 0:C] -> x)
    reduce_sum(x, {axes}, y)
    store(y -> Y[{slices}])
}}
"""
    sketch = elaborated(text)
    for shape in [(1, 1, 1), (2, 3, 4), (5, 1, 2), (2, 0, 3)]:
        x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
        result = interpret(sketch, {"X": x}, options=options)
        expected = x.sum(tuple(listed), keepdims=True)
        np.testing.assert_array_equal(result.outputs["Y"], expected)


@pytest.mark.parametrize("options", [CHECKED, PADDED])
def test_all_four_kinds_of_broadcast(options):
    """A row, a column, a single element and a scalar meet a ragged matrix."""
    text = """sketch broadcasts {
    symbols: M, N;
    tensors: X[M, N]: in f32; R[N]: in f32; C[M, 1]: in f32; E[1, 1]: in f32; Y[M, N]: out f32;
    constexpr: T = 4, S = 3;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        @llm_hint("parallel")
        for j in range(ceil(N, S)):
            x = alloc([T, S])
            r = alloc([S])
            c = alloc([T, 1])
            e = alloc([1, 1])
            load(X[i*T:(i+1)*T, j*S:(j+1)*S] -> x)
            load(R[j*S:(j+1)*S] -> r)
            load(C[i*T:(i+1)*T, 0:1] -> c)
            load(E[0, 0] -> e)
            mul(x, r, x)
            add(x, c, x)
            sub(x, e, x)
            mul(x, 2, x)
            store(x -> Y[i*T:(i+1)*T, j*S:(j+1)*S])
}
"""
    sketch = elaborated(text)
    generator = np.random.default_rng(2)
    for rows, columns in [(1, 1), (4, 3), (5, 7), (11, 2), (1, 4), (9, 1)]:
        shapes = {"X": (rows, columns), "R": (columns,), "C": (rows, 1), "E": (1, 1)}
        given = {
            name: generator.integers(-9, 9, shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        result = interpret(sketch, given, options=options)
        expected = 2 * (given["X"] * given["R"] + given["C"] - given["E"])
        np.testing.assert_array_equal(result.outputs["Y"], expected)

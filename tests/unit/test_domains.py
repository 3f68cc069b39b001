"""Domains: exactly the lanes that are valid, and no bound that says nothing (LANGUAGE R1-R4)."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from example_sizes import inputs_for, params_for, sizes_for
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.base.diagnostics import Diagnostic, Source, has_errors
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.domains.messages import describe
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.interpreter.api import Options, interpret
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.parsing.parser import parse

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.sketch"))


def inferred(text: str) -> tuple[ir.Sketch, tuple[Diagnostic, ...]]:
    tree, found = parse(Source("test", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert sketch is not None, found
    assert not has_errors(found), found
    return infer_domains(sketch)


def statements(sketch: ir.Sketch) -> list[ir.Statement]:
    return list(walk.in_phases(sketch.phases))


def domains(sketch: ir.Sketch) -> dict[str, str]:
    """The domain of each load (`tile`) and store (`-> tensor`), in words."""
    result = {}
    for statement in statements(sketch):
        if isinstance(statement, ir.Load):
            result[statement.tile] = describe(statement.domain)
        elif isinstance(statement, ir.Store):
            result[f"-> {statement.access.tensor}"] = describe(statement.domain)
    return result


def copying(extent: str, loop: str, access: str, head: str = "", tile: str = "T") -> str:
    symbols = "" if extent.isdigit() else "symbols: M;"
    return f"""sketch copying {{
    {symbols}
    tensors: X[{extent}]: in f32; Y[{extent}]: out f32 = 0;
    constexpr: T = 8;
    {head}
    for i in range({loop}):
        x = alloc([{tile}])
        load(X[{access}] -> x)
        store(x -> Y[{access}])
}}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (copying("M", "ceil(M, T)", "i*T:(i+1)*T"), "[lane < M - i*T]"),
        (copying("M", "0, M, T", "i:i+T"), "[lane < M - i]"),
        (copying("M", "M // T", "i*T:(i+1)*T"), "all lanes"),
        (copying("M", "ceil(M, T)", "i*T:(i+1)*T", "require: M % T == 0;"), "all lanes"),
        (copying("M", "0, M, T", "i:i+T", "require: M % T == 0;"), "all lanes"),
        (copying("M", "ceil(M, T)", "i*T:(i+1)*T", "require: M % 16 == 0;"), "all lanes"),
        (copying("M", "ceil(M, T)", "i*T:(i+1)*T", "require: M % 4 == 0;"), "[lane < M - i*T]"),
        (copying("64", "ceil(64, T)", "i*T:(i+1)*T"), "all lanes"),
        (copying("60", "ceil(60, T)", "i*T:(i+1)*T"), "[lane < 60 - i*T]"),
        (copying("M", "1", "0:M", tile="M"), "all lanes"),
        (copying("M", "1", "0:M", "require: M <= 16;", tile="16"), "[lane < M]"),
        (copying("M", "ceil(M, T)", "i*T:min((i+1)*T, M)"), "[lane < M - i*T]"),
        (copying("M", "M", "i:i+1", tile="1"), "all lanes"),
        (
            copying("M", "ceil(M, T)", "i*T - 1:i*T - 1 + T"),
            "[1 - T*i <= lane and lane < M - (i*T - 1)]",
        ),
        (copying("M", "ceil(M, T)", "i*T:i*T + 3", tile="3"), "[lane < M - i*T]"),
    ],
)
def test_bounds_are_the_necessary_ones_in_the_sketch_s_own_names(text: str, expected: str) -> None:
    sketch, found = inferred(text)
    assert not has_errors(found), found
    told = domains(sketch)
    assert told["-> Y"] == told["x"]
    assert told["x"] == expected


@st.composite
def accesses(draw: st.DrawFn) -> tuple[str, str]:
    """A loop and a slice with literal coefficients, around a tile of 4 lanes."""
    start, step = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    stop = draw(st.sampled_from(("M", "M // 4", "ceil(M, 4)", "M + 2", "7", "(M + 1) // 2")))
    factor, offset = draw(st.integers(0, 5)), draw(st.integers(-3, 3))
    length = draw(st.integers(0, 4))
    lower = f"i*{factor} + {offset}"
    upper = draw(
        st.sampled_from(
            (f"i*{factor} + {offset + length}", f"min(i*{factor} + {offset + length}, M)")
        )
    )
    return f"{start}, {stop}, {step}", f"{lower}:{upper}"


@settings(max_examples=80, deadline=None)
@given(accesses(), st.sampled_from(("", "require: M % 4 == 0;", "require: M >= 9;")))
def test_static_domains_equal_brute_force(access: tuple[str, str], require: str) -> None:
    """Every lane of every iteration at sizes 0 to 13, for the load and for the store."""
    sketch, found = inferred(copying("M", access[0], access[1], require, tile="4"))
    assert not has_errors(found), found
    (loop,) = [s for s in statements(sketch) if isinstance(s, ir.For)]
    for size in range(14):
        values = {"M": size, "T": 8}
        if not all(evaluate(r.condition, values) for r in sketch.requires):
            continue
        bounds = [int(evaluate(e, values)) for e in (loop.start, loop.stop, loop.step)]
        for i in range(*bounds):
            check_lanes(loop, {**values, "i": i}, size)


def check_lanes(loop: ir.For, values: dict[str, int], size: int) -> None:
    for statement in loop.body:
        if not isinstance(statement, ir.Load | ir.Store):
            continue
        (subscript,) = statement.access.subscripts
        assert isinstance(subscript, ir.SliceSubscript)
        lower = int(evaluate(subscript.lower, values))
        upper = int(evaluate(subscript.upper, values))
        (axis,) = statement.domain
        for lane in range(4):
            valid = lower + lane < upper and 0 <= lower + lane < size
            told = all(int(evaluate(b, values)) <= lane for b in axis.lower) and all(
                lane < int(evaluate(b, values)) for b in axis.upper
            )
            assert told == valid, (values, lane, describe(statement.domain))


SIZES = (1, 2, 63, 64, 65, 131)


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_the_interpreter_finds_the_same_lanes(path: Path) -> None:
    """Of every operation, at ragged sizes; `check_domains` raises on any difference."""
    tree, found = parse(Source(path.name, path.read_text("utf-8")))
    assert tree is not None, found
    constants = {"TM": 16, "TN": 64, "TK": 16, "TILE": 64, "TILE_SIZE": 16, "eps": 1e-5}
    constants |= {"T": 64, "TP": 32, "TO": 16, "TB": 16, "TD": 16, "TH": 4, "TW": 16, "PART": 64}
    sketch, found = elaborate(tree.sketches[0], constants)
    assert sketch is not None, found
    sketch, found = infer_domains(sketch)
    assert not has_errors(found), found
    params = params_for(sketch)
    for round_number in range(3):
        sizes = [SIZES[(place + 2 * round_number) % len(SIZES)] for place in range(len(SIZES))]
        if len(sketch.symbols) > 3:
            sizes = [size % 13 + 1 for size in sizes]
        sizes = [size % 67 + 1 for size in sizes]
        while prod(sizes[: len(sketch.symbols)]) > 50_000:  # work grows with it
            sizes = [size // 2 + 1 for size in sizes]
        symbols = sizes_for(sketch, sizes, params)
        inputs = inputs_for(sketch, symbols, params, seed=round_number)
        interpret(sketch, inputs, symbols, params, Options(check_domains=True))


# ---------------------------------------------------------------- operations and init tiles

REDUCED = """sketch reduced {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    constexpr: T = 8, S = 4;

    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        total = alloc([T], f32, init=0)
        for k in range(ceil(N, S)):
            x = alloc([T, S])
            row = alloc([T])
            load(X[i*T:(i+1)*T, k*S:(k+1)*S] -> x)
            reduce_sum(x, 1, row)
            add(total, row, total)
        store(total -> Y[i*T:(i+1)*T])
}
"""


def computed(sketch: ir.Sketch, operation: str) -> ir.Compute:
    return next(
        s for s in statements(sketch) if isinstance(s, ir.Compute) and s.operation == operation
    )


def test_a_reduction_sees_the_reduced_axis_and_its_result_does_not() -> None:
    sketch, found = inferred(REDUCED)
    assert not found
    reduction = computed(sketch, "reduce_sum")
    (operand,) = reduction.operands
    assert isinstance(operand, ir.TileOperand)
    assert describe(operand.domain) == "[lane < M - i*T, lane < N - k*S]"
    assert describe(reduction.domain) == "[lane < M - i*T]"


def test_an_accumulator_has_the_domain_of_its_operands_and_needs_no_mask() -> None:
    sketch, _ = inferred(REDUCED)
    assert describe(sketch.tile("total").domain or ()) == "[lane < M - i*T]"
    assert not computed(sketch, "add").masked
    assert domains(sketch)["-> Y"] == "[lane < M - i*T]"


def test_inner_variables_of_an_accumulator_s_domain_are_quantified() -> None:
    """Block after block into one tile: the last one covers less, and is a masked update."""
    text = """sketch folded {
    symbols: M;
    tensors: X[M]: in f32; Y[T]: out f32 = 0;
    constexpr: T = 8;

    total = alloc([T], f32, init=0)
    for k in range(ceil(M, T)):
        x = alloc([T])
        load(X[k*T:(k+1)*T] -> x)
        add(total, x, total)
    store(total -> Y[0:T])
}
"""
    sketch, found = inferred(text)
    assert not has_errors(found), found
    assert describe(sketch.tile("total").domain or ()) == "[lane < M]"
    add = computed(sketch, "add")
    assert add.masked
    assert describe(add.written) == "[lane < M - k*T]"
    assert domains(sketch)["-> Y"] == "[lane < M]"


def test_gemm_takes_rows_and_columns_and_shows_k_on_its_operands() -> None:
    path = ROOT / "examples" / "matmul_bias_gelu.sketch"
    sketch, _ = inferred(path.read_text("utf-8"))
    gemm = computed(sketch, "gemm")
    assert describe(gemm.domain) == "[lane < M - i*TM, lane < N - j*TN]"
    told = [describe(o.domain) for o in gemm.operands if isinstance(o, ir.TileOperand)]
    assert told == ["[lane < M - i*TM, lane < K - k*TK]", "[lane < N - j*TN, lane < K - k*TK]"]
    assert not gemm.masked


def test_index_tiles_carry_the_bound_of_their_iota() -> None:
    text = """sketch indexed {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32;
    constexpr: T = 8;

    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        y = alloc([T])
        m = iota(T, i*T, M)
        load(X[i*T:(i+1)*T] -> x)
        where(m < 3, x, 0.0, y)
        store(y -> Y[i*T:(i+1)*T])
}
"""
    sketch, found = inferred(text)
    assert not has_errors(found), found
    index = computed(sketch, "where").operands[0]
    assert isinstance(index, ir.IndexOperand)
    assert describe(index.domain) == "[lane < M - i*T]"
    assert domains(sketch)["-> Y"] == "[lane < M - i*T]"

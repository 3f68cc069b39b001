"""Properties of the C++ that is generated: fusion, bounds, names, expressions."""

from __future__ import annotations

import re

import pytest
from cpp_cases import example, lower

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.c_source.expressions import Expressions
from sketchc.lowering.cpp.library.texts import library_text
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.build import build_phases

#: Prints expressions of tests.
CODE = Expressions()
GRID = '@llm_hint("parallel", "grididx")'


def program(text: str, **constants: int) -> nodes.Program:
    """The loop program of the only phase."""
    (phase,) = build_phases(lower(text, constants)[0])
    return phase.program


def count(found: nodes.Program, kind: type[nodes.Statement]) -> int:
    return sum(isinstance(statement, kind) for statement in nodes.walk(found.body))


@pytest.mark.parametrize(
    ("name", "lane_loops", "storages"),
    [
        ("relu", 1, set()),
        ("gelu", 1, set()),
        ("add", 1, set()),
        ("softmax", 3, {"x_exp"}),  # maximum; exponentials and their sum; division
        ("layer_norm", 3, {"x_sub"}),
        ("rms", 4, {"square_sum", "rms_row_sqrt"}),
        ("online_softmax", 3, set()),
    ],
)
def test_operations_are_fused(name: str, lane_loops: int, storages: set[str]) -> None:
    """One pass where lanes allow it; a tile gets memory only where it crosses loops."""
    found = program(example(name))
    assert count(found, nodes.LaneLoop) == lane_loops
    assert {storage.name for storage in found.storages} == storages


@pytest.mark.parametrize(("name", "kept"), [("rms", {"square_sum", "rms_row"}), ("gelu", set())])
def test_the_plan_names_fused_tiles(name: str, kept: set[str]) -> None:
    tiles = lower(example(name))[0].tiles
    assert {name for name, placed in tiles.items() if placed.memory != "fused"} == kept


def test_the_plan_accounts_for_packed_panels() -> None:
    plan = lower(example("matmul"), constants={"TM": 64, "TN": 64, "TK": 128})[0]
    (use,) = plan.phases[0].memory_use
    assert (use.memory, use.bytes) == ("arena", sum(size for _, size in use.parts))
    sizes = dict(use.parts)
    assert sizes.keys() == {"c", "a_panels", "b_panels"}
    assert sizes["c"] == 4 * 64 * 64
    assert min(sizes["a_panels"], sizes["b_panels"]) > 4 * 64 * 128  # and a margin


def test_whole_tiles_have_constant_bounds() -> None:
    """Where divisibility is known there is neither a mask nor a tail."""
    text = f"""sketch whole {{
    tensors: X[4096]: in f32; Y[4096]: out f32;
    constexpr: T = 256;
    {GRID}
    for i in range(16):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        relu(x, x)
        store(x -> Y[i*T:(i+1)*T])
}}"""
    lanes = [s for s in nodes.walk(program(text).body) if isinstance(s, nodes.LaneLoop)]
    bounds = {(CODE.scalar(lane.lower).text, CODE.scalar(lane.upper).text) for lane in lanes}
    assert bounds == {("0", "T")}


def test_lanes_are_bounded_not_masked() -> None:
    """A ragged tile shortens the loop; nothing is tested inside."""
    _, kernel = lower(example("relu"))
    source = kernel.source
    body = source[source.index("#pragma omp simd") :]
    body = body[: body.index("}")]
    assert "block < std::min<int64_t>(TILE, M * N - i * TILE)" in source
    assert "lane < block_end" in body
    assert "?" not in body
    assert "if (" not in body


def test_no_fusion_across_store_and_load_of_other_lanes() -> None:
    """A load that reads what other lanes stored waits for the whole store (LOWERING 9)."""
    text = f"""sketch shifted {{
    symbols: M;
    tensors: Z[M, 64]: inout f32; Y[M, 64]: out f32;
    {GRID}
    for i in range(M):
        a = alloc([64])
        b = alloc([1])
        load(Z[i, 0:64] -> a)
        add(a, 1, a)
        store(a -> Z[i, 0:64])
        load(Z[i, 0:1] -> b)
        add(a, b, a)
        store(a -> Y[i, 0:64])
}}"""
    assert count(program(text), nodes.LaneLoop) == 2


def test_reserved_names_are_renamed() -> None:
    text = f"""sketch exp {{
    symbols: int;
    tensors: float[int]: in f32; double[int]: out f32;
    constexpr: T = 16;
    {GRID}
    for lane in range(ceil(int, T)):
        class = alloc([T])
        load(float[lane*T:(lane+1)*T] -> class)
        store(class -> double[lane*T:(lane+1)*T])
}}"""
    _, kernel = lower(text)
    assert kernel.entry == "exp_sketch"
    for name in ("int_", "float_", "double_"):
        assert re.search(rf"\b{name}\b", kernel.source)


def test_emission_is_deterministic() -> None:
    assert lower(example("matmul_bias_gelu"))[1] == lower(example("matmul_bias_gelu"))[1]


def test_lines_are_short() -> None:
    for name in ("rms", "matmul", "sum_middle"):
        source = lower(example(name))[1].source
        assert all(len(line) <= 100 or "//" in line for line in source.splitlines())


def test_only_used_helpers_are_printed() -> None:
    assert library_text(()) == ""
    text = library_text(("relu",))
    assert "relu" in text
    assert "multiply" not in text
    assert "to_half" not in text


M, K = ir.Ref("M", ir.NameKind.SYMBOL), ir.Ref("K", ir.NameKind.SYMBOL)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (ir.Binary("-", M, ir.Binary("-", K, M)), "M - (K - M)"),
        (ir.Binary("*", ir.Binary("+", M, K), K), "(M + K) * K"),
        (ir.Binary("//", M, K), "sketch::floor_div(M, K)"),
        (ir.Binary("min", M, ir.Literal(3)), "std::min<int64_t>(M, 3)"),
        (ir.Binary("/", ir.Literal(1), M), "1.0 / static_cast<double>(M)"),
        (ir.Unary("not", ir.Binary("<", M, K)), "!(M < K)"),
        (
            ir.Binary("or", ir.Binary("and", M, K), M),
            "(M && K) || M",
        ),
        (ir.Literal(2**40), "INT64_C(1099511627776)"),
    ],
)
def test_scalar_expressions(expression: ir.Expr, text: str) -> None:
    assert CODE.scalar(expression).text == text


def test_values_convert_through_float() -> None:
    half = nodes.Local("x", DType.F16)
    assert CODE.value(nodes.Convert(half, DType.F32)).text == "sketch::to_float(x)"
    assert (
        CODE.value(nodes.Convert(half, DType.F64)).text
        == "static_cast<double>(sketch::to_float(x))"
    )
    wide = nodes.Local("y", DType.F64)
    assert CODE.value(nodes.Convert(wide, DType.BF16)).text == "sketch::to_bfloat16(y)"
    infinity = nodes.Number(float("-inf"), DType.F32)
    assert CODE.value(infinity).text == "-std::numeric_limits<float>::infinity()"

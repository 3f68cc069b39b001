"""What the plan says that hints became is what the compiled code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from toolchains import require
from triton_cases import assert_close, compile_all, lower, make_case, run_cases

from sketchc.base.diagnostics import Source
from sketchc.checker.context.hints import LOOP_HINTS, TILE_HINTS
from sketchc.cli.main import run
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import HintAnswer, Plan
from sketchc.lowering.registry import TARGETS
from sketchc.parsing.parser import parse

PRODUCT = """sketch product {{
    symbols: M, N, K;
    tensors: A[M, K]: in {dtype}; B[K, N]: in {dtype}; C[M, N]: out f32;
    constexpr: TM = 64, TN = 64, TK = 32;

    @llm_hint("parallel", "grididx")
    for i in range(0, M, TM):
        @llm_hint("parallel", "grididx")
        for j in range(0, N, TN):
            c = alloc([TM, TN], f32, init=0, llm_hint=["fastest", "accumulator"])
            @llm_hint({hints})
            for k in range(0, K, TK):
                a = alloc([TM, TK], llm_hint=["fast"])
                b = alloc([TK, TN], llm_hint=["fast"])
                load(A[i:i+TM, k:k+TK] -> a)
                load(B[k:k+TK, j:j+TN] -> b)
                gemm(a, b, c, precision="{precision}")
            store(c -> C[i:i+TM, j:j+TN])
}}
"""
STREAM = """sketch stream {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: {role} f32;
    constexpr: T = 1024;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint({hints})
        for j in range(0, N, T):
            x = alloc([T])
            load({source}[i, j:j+T] -> x)
            add(x, 1.0, x)
            store(x -> Y[i, j:j+T])
}}
"""
MANY = """sketch hinted {
    symbols: M, N;
    params: n: i64 = 3;
    tensors: X[M, N]: in f32; Y[M, N]: out f32; Z[M, N]: out f32;
    constexpr: T = 16;

    @llm_hint("parallel", "grididx.y", "gibberish")
    for i in range(M):
        @llm_hint("parallel", "grididx.x")
        for j in range(0, N, T):
            x = alloc([T], llm_hint=["smem", "parallel", "fast"])
            load(X[i, j:j+T] -> x)
            a = alloc([T], f32, init=0)
            add(a, x, a)
            @llm_hint("unroll")
            for k in range(4):
                add(a, k, a)
            @llm_hint("unroll")
            for u in range(0, n):
                add(a, u, a)
            @llm_hint("unroll")
            for v in range(9, 0, -2):
                mul(a, v, a)
            store(a -> Y[i, j:j+T])
    @llm_hint("unroll")
    for h in range(3):
        @llm_hint("parallel")
        for i in range(M):
            @llm_hint("pipeline", stages=2)
            for j in range(0, N, T):
                x = alloc([T])
                load(X[i, j:j+T] -> x)
                add(x, h, x)
                store(x -> Z[i, j:j+T])
}
"""


def plan_of(text: str, target: str, chip: str | None = None) -> Plan:
    tree, _ = parse(Source("hints.sketch", text))
    assert tree is not None
    return build_plan(tree.sketches[0], target, chip).plan


def answer(text: str, target: str, hint: str, subject: str) -> str:
    (found,) = {
        given.became
        for given in plan_of(text, target).answers
        if given.hint == hint and given.subject == subject
    }
    return found


def ptx(text: str, folder: Path) -> str:
    ((variant, *_),) = compile_all([lower(text)[1]], folder, (90,))
    return Path(variant["ptx"]).read_text()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("dtype", "precision"), [("f16", "ieee"), ("bf16", "ieee"), ("f32", "ieee"), ("f32", "tf32")]
)
def test_tensor_cores_are_used_where_the_plan_says_so(dtype, precision, tmp_path):
    require("triton_cuda")
    text = PRODUCT.format(dtype=dtype, precision=precision, hints='"tensor_core"')
    said = "on the tensor cores" in answer(text, "triton_cuda", "tensor_core", "loop k")
    done = re.search(r"\bw?gmma\.|\bmma\.sync", ptx(text, tmp_path)) is not None
    assert said == done == ((dtype, precision) != ("f32", "ieee"))


@pytest.mark.parametrize(
    ("dtype", "precision", "said"),
    [
        ("f16", "ieee", "wgmma, mma.sync"),
        ("f32", "tf32x3", "mma.sync"),
        ("f32", "tf32", "mma.sync"),
        ("f32", "ieee", "multiply-adds of threads"),
    ],
)
def test_what_multiplies_in_cuda_c_is_told(dtype: str, precision: str, said: str) -> None:
    text = PRODUCT.format(dtype=dtype, precision=precision, hints='"tensor_core"')
    assert answer(text, "cuda_c", "tensor_core", "loop k") == said


@pytest.mark.parametrize("chip", ["h200", "b200", "a100", "l40s", "rtx4090"])
def test_the_precision_that_is_named_is_multiplied_by_matrix_units(chip: str) -> None:
    """Also on chips whose units are no faster than their f32."""

    def told(precision: str) -> HintAnswer:
        text = PRODUCT.format(dtype="f32", precision=precision, hints='"tensor_core"')
        answers = plan_of(text, "cuda_c", chip).answers
        return next(each for each in answers if each.hint == "tensor_core")

    named = re.search(r'precision="(\w+)"', told("ieee").reason)
    assert named is not None
    assert told(named[1]).became == "mma.sync"


@pytest.mark.parametrize(("dtype", "said"), [("f16", "TMA, cp.async"), ("f32", "loads run ahead")])
def test_what_brings_operands_in_cuda_c_is_told(dtype: str, said: str) -> None:
    text = PRODUCT.format(dtype=dtype, precision="ieee", hints='"async"')
    assert answer(text, "cuda_c", "async", "loop k") == said


@pytest.mark.sweep
@pytest.mark.parametrize("hints", ['"pipeline", stages=3', '"async"', '"unroll"'])
def test_loads_run_ahead_where_the_plan_says_so(hints, tmp_path):
    require("triton_cuda")
    text = STREAM.format(role="out", source="X", hints=hints)
    hint = hints.split('"')[1]
    stages = re.search(r"num_stages=(\d+)", answer(text, "triton_cuda", hint, "loop j"))
    ahead = "cp.async" in ptx(text, tmp_path)
    assert ahead == (stages is not None and int(stages[1]) > 1) == (hint != "unroll")


def test_a_loop_that_stores_what_it_loads_is_not_pipelined(tmp_path):
    require("triton_cuda")
    text = STREAM.format(role="inout", source="Y", hints='"pipeline", stages=4')
    text = text.replace("X[M, N]: in f32; ", "")
    assert answer(text, "triton_cuda", "pipeline", "loop j") == "num_stages=1"
    assert "cp.async" not in ptx(text, tmp_path)


def given(target: str) -> dict[tuple[str, str], tuple[str, str]]:
    """What the hints of `MANY` became, each answered once."""
    answers = plan_of(MANY, target).answers
    found = {(each.hint, each.subject): (each.became, each.reason) for each in answers}
    assert len(found) == len(answers)
    return found


def test_short_loops_are_unrolled_where_the_plan_says_so(tmp_path):
    require("triton_cuda")
    found, kernel = given("triton_cuda"), lower(MANY)[1]
    assert found["unroll", "loop k"][0] == "loop_unroll_factor=4"
    assert found["unroll", "loop v"][0] == "loop_unroll_factor=5"
    assert "launch only" in found["unroll", "loop u"][1]
    assert set(re.findall(r"for \w+ in (.*):", kernel.source)) >= {
        "tl.range(4, loop_unroll_factor=4)",
        "tl.range(9, 0, -2, loop_unroll_factor=5)",
        "range(n)",
    }
    ((variant, *_),) = compile_all([kernel], tmp_path, (90,))
    # The loop whose bounds the launch tells is the only one left.
    assert len(re.findall(r"^\$L.*:.*\n.*Loop Header", Path(variant["ptx"]).read_text(), re.M)) == 1
    case = make_case(kernel, {"M": 3, "N": 21}, {"n": 2})
    (outputs,) = run_cases([case], tmp_path)
    assert isinstance(outputs, dict), outputs
    for name, expected in case.expected.items():
        assert_close(outputs[name], expected)


@pytest.mark.parametrize("target", TARGETS)
def test_loops_of_one_name_and_axes_of_the_grid_are_told_apart(target):
    found = given(target)
    assert "axis 1 of 2" in found["grididx.y", "loop i of line 8"][1]
    assert "axis 2 of 2" in found["grididx.x", "loop j of line 10"][1]
    assert ("parallel", "loop i of line 28") in found
    assert ("pipeline", "loop j of line 30") in found


@pytest.mark.parametrize("target", TARGETS)
def test_ignored_hints_are_answered(target):
    found = given(target)
    ignored = {key: why for key, (became, why) in found.items() if became == "ignored"}
    assert ignored == {
        ("gibberish", "loop i of line 8"): "it is no hint of a loop",
        ("smem", "tile x"): 'it names hardware; "fast" is the portable word',
        ("parallel", "tile x"): "it is no hint of a tile",
        ("unroll", "loop h"): "the loop runs on the host; hints are for loops of kernels",
    }


@pytest.mark.parametrize("target", TARGETS)
def test_every_hint_gets_an_answer(target):
    words = ["threadidx", "warp", "simd", "pipeline", "vectorize", "unroll", "async", "tensor_core"]
    assert set(words) <= LOOP_HINTS
    text = PRODUCT.format(
        dtype="f16", precision="ieee", hints=", ".join(f'"{word}"' for word in words)
    )
    tiles = sorted(TILE_HINTS - {"no_init", "init_zero"})
    listed = ", ".join(f'"{word}"' for word in tiles)
    text = text.replace('llm_hint=["fastest", "accumulator"]', f"llm_hint=[{listed}]")
    given = {(each.hint, each.subject) for each in plan_of(text, target).answers}
    assert {(word, "loop k") for word in words} <= given
    assert {(word, "tile c") for word in tiles} <= given
    assert {("parallel", f"loop {name}") for name in "ij"} <= given


def test_tiles_that_the_code_fuses_are_said_to_take_no_memory():
    text = PRODUCT.format(dtype="f32", precision="ieee", hints='"pipeline"')
    assert answer(text, "cpp", "fast", "tile a") == "fused into its loops"
    assert answer(text, "cpp", "fastest", "tile c") == "arena"
    assert answer(text, "triton_cuda", "fast", "tile a") == "shared"
    # Who writes other code than the emitter is told of the memory that there is.
    (given,) = [
        a for a in plan_of(text, "cpp").answers if (a.hint, a.subject) == ("fast", "tile a")
    ]
    assert given.unfused is not None
    assert given.unfused.became == "arena"


def test_the_command_line_shows_the_answers(tmp_path, capsys):
    path = tmp_path / "product.sketch"
    hints = '"pipeline", "async", "tensor_core"'
    path.write_text(PRODUCT.format(dtype="f16", precision="ieee", hints=hints), "utf-8")
    assert run(["lower", str(path), "--target", "triton_cuda", "--emit", "plan"]) == 0
    out = capsys.readouterr().out
    for hint in ("pipeline", "async", "tensor_core"):
        assert f'# hint "{hint}" of loop k: ' in out

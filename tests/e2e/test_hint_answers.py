"""What the plan says that hints became is what the compiled code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from toolchains import require
from triton_cases import compile_all, lower

from sketchc.checker.hints import LOOP_HINTS, TILE_HINTS
from sketchc.cli.main import run
from sketchc.lowering.passes import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import TARGETS
from sketchc.parser import parse
from sketchc.source import Source

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


def plan_of(text: str, target: str) -> Plan:
    tree, _ = parse(Source("hints.sketch", text))
    assert tree is not None
    return build_plan(tree.sketches[0], target).plan


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


@pytest.mark.parametrize(
    ("dtype", "precision"), [("f16", "ieee"), ("bf16", "ieee"), ("f32", "ieee"), ("f32", "tf32")]
)
def test_tensor_cores_are_used_where_the_plan_says_so(dtype, precision, tmp_path):
    require("triton_cuda")
    text = PRODUCT.format(dtype=dtype, precision=precision, hints='"tensor_core"')
    said = "on the tensor cores" in answer(text, "triton_cuda", "tensor_core", "loop k")
    done = re.search(r"\bw?gmma\.|\bmma\.sync", ptx(text, tmp_path)) is not None
    assert said == done == ((dtype, precision) != ("f32", "ieee"))


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

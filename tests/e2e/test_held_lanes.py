"""Reductions of rows, block by block: whichever target combines the lanes behind the loop instead,
the result is that of the interpreter, at ragged sizes, with NaN, infinities and mixed scales."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from every_target import agreement, disagreements
from triton_cases import Array, dtype_of

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.ops.table import OPS, Category
from sketchc.parsing.parser import parse

T = 16
SIZES = (1, T - 1, T, T + 1, 3 * T, 53)
TARGETS = ("triton_cuda", "cuda_c", "cpp")
#: Of a row each: its first result, and what combines it with that of a block.
ROWS = {"sum": ("0", "add"), "max": ("-inf", "max"), "min": ("inf", "min"), "prod": ("1", "mul")}


def row(name: str, dtype: str, start: str | None = None, factor: str = "") -> str:
    """A reduction of each row, which may begin at a value that is no identity."""
    identity, combines = ROWS[name]
    return f"""sketch {name}_{dtype} {{
        symbols: M, N;
        tensors: X[M, N]: in {dtype}; Y[M]: out f32;
        @llm_hint("parallel", "grididx")
        for i in range(M):
            total = alloc([1], f32, init={start or identity})
            for j in range(ceil(N, {T})):
                x = alloc([{T}], f32)
                block = alloc([1])
                load(X[i, j*{T}:(j+1)*{T}] -> x)
                reduce_{name}(x{factor}, 0, block)
                {combines}(total, block, total)
            store(total -> Y[i])
    }}"""


def several(both: bool) -> str:
    """Sums of some rows at a time, of two tensors, the second within a loop over its planes; where
    `both`, something else reads the blocks of the first, whose lanes then stay in the loop."""
    more = "add(last, part, last)" if both else ""
    end = "add(total, last, total)" if both else ""
    return f"""sketch rows_{"both" if both else "one"} {{
        symbols: M, N;
        tensors: X[M, N]: in f32; W[3, M, N]: in f16; Y[M]: out f32; Z[M]: out f32;
        @llm_hint("parallel", "grididx")
        for i in range(ceil(M, 4)):
            total = alloc([4, 1], f32, init=0)
            {"last = alloc([4, 1], f32, init=0)" if both else ""}
            other = alloc([4], f32, init=0)
            for j in range(ceil(N, {T})):
                x = alloc([4, {T}])
                part = alloc([4, 1])
                load(X[i*4:(i+1)*4, j*{T}:(j+1)*{T}] -> x)
                reduce_sum(x, 1, part)
                add(total, part, total)
                {more}
            for p in range(3):
                for j in range(ceil(N, {T})):
                    w = alloc([4, {T}], f32)
                    of_w = alloc([4])
                    load(W[p, i*4:(i+1)*4, j*{T}:(j+1)*{T}] -> w)
                    reduce_sum(w, 1, of_w)
                    add(of_w, other, other)
            {end}
            store(total -> Y[i*4:(i+1)*4])
            store(other -> Z[i*4:(i+1)*4])
    }}"""


def tensors(size: int, dtype: str, scale: str) -> dict[str, Array]:
    generator = np.random.default_rng(size)
    x = generator.uniform(0.5, 1.5, (5, size)) * generator.choice([-1.0, 1.0], (5, size))
    if scale == "mixed":
        x *= 2.0 ** generator.integers(-6, 7, x.shape)
    if scale == "special" and size > 2:
        x[0, size // 2], x[1, size - 1], x[2, 0] = np.nan, np.inf, -np.inf
    return {"X": x.astype(dtype_of(DType(dtype)))}


@pytest.mark.parametrize("target", TARGETS)
def test_rows(target: str, tmp_path: Path) -> None:
    texts = {name: row(name, "f32") for name in ROWS}
    texts |= {f"{name} of halves": row(name, "bf16") for name in ("sum", "max")}
    texts["squares"] = row("sum", "f32", factor="*x").replace("sum_f32", "squares")
    texts["beginning elsewhere"] = row("max", "f32", start="0.25").replace("max_f32", "from_there")
    sketches = {}
    for name, text in texts.items():
        dtype = "bf16" if "bf16" in text else "f32"
        sketches[name] = (
            text,
            [
                ({"M": 5, "N": size}, tensors(size, dtype, scale))
                for size in SIZES
                for scale in ("plain", "mixed", "special")
            ],
        )
    for both in (False, True):
        runs = []
        for size in SIZES:
            generator = np.random.default_rng(size)
            given = tensors(size, "f32", "mixed")
            given["W"] = generator.standard_normal((3, 5, size)).astype(np.float16)
            runs.append(({"M": 5, "N": size}, given))
        sketches[f"several {both}"] = several(both), runs
    assert disagreements(target, sketches, tmp_path, lambda c, f: agreement(c, f, 64)) == []


#: What adds a block to a tile that it has lanes in common with, the tile at each operand's place.
KEPT = (
    "add(total, x, total)",
    "add(x, total, total)",
    "sub(total, x, total)",
    "sub(x, total, total)",
    "fma(x, x, total, total)",
    "fma(x, total, x, total)",
    "fma(total, x, x, total)",
)


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_behind_a_row_stay_as_they_are(target: str, tmp_path: Path) -> None:
    """Lanes that the last block has no elements for keep what the blocks before gave them."""
    sketches = {}
    for number, statement in enumerate(KEPT):
        text = f"""sketch kept_{number} {{
            symbols: M, N;
            tensors: X[M, N]: in f32; Y[M]: out f32;
            @llm_hint("parallel", "grididx")
            for i in range(M):
                total = alloc([{T}], f32, init=0.5)
                y = alloc([1])
                for j in range(ceil(N, {T})):
                    x = alloc([{T}])
                    load(X[i, j*{T}:(j+1)*{T}] -> x)
                    {statement}
                reduce_sum(total, 0, y)
                store(y -> Y[i])
        }}"""
        runs = [({"M": 5, "N": size}, tensors(size, "f32", "plain")) for size in SIZES]
        sketches[statement] = text, runs
    assert disagreements(target, sketches, tmp_path, lambda c, f: agreement(c, f, 64)) == []


def inside(text: str, target: str) -> int:
    """How many reductions stand in sequential loops of a plan."""
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    plan = build_plan(tree.entries[0], target).plan
    loops = [s for s in walk.in_phases(plan.phases) if isinstance(s, ir.For)]
    return sum(
        isinstance(each, ir.Compute) and OPS[each.operation].category is Category.REDUCTION
        for loop in loops
        for each in loop.body
    )


def test_lanes_meet_once_where_tiles_are_in_registers_and_nothing_else_reads_the_parts() -> None:
    for name in ROWS:
        assert inside(row(name, "f32"), "triton_cuda") == 0
        assert inside(row(name, "f32"), "cuda_c") == 1
    assert (inside(several(False), "triton_cuda"), inside(several(True), "triton_cuda")) == (0, 1)

"""What became of the hints that only the CUDA-C emitter can answer, from the plan alone."""

from __future__ import annotations

from collections.abc import Sequence

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.cuda_c.products import MATRIX, in_groups, is_split
from sketchc.lowering.loops.hints import Became, answered, operand_types
from sketchc.lowering.plan import HintAnswer, Plan
from sketchc.lowering.precisions import SPLIT

_PLAIN = "there is no matrix product in it: the blocks of an SM overlap loads with work"
_AHEAD = "operands of the next step come while those of this one are multiplied"
_UNITS = "operands of f16 or bf16, added up in f32"
_GROUPS = f"wgmma from 64 x 64 elements on; {_UNITS}"
_ENGINE = (
    "the copy engine brings operands of wgmma that are tiles of tensors whose lines begin on 16 "
    "bytes, threads all others, while those of the step before are multiplied"
)
_IN_TF32 = "three products in tf32 are nearly one in f32"
_NONE = 'matrix units take operands of f16 or bf16 here, and of f32 with precision="{}"'
_THREADS = "lanes are the threads of a block here"
#: What hints of loops became, and why.
_LOOPS = {
    "unroll": ("left to nvcc", "nvcc unrolls where its cost model says so"),
    **dict.fromkeys(
        ("vectorize", "simd", "warp", "threadidx"), ("lanes dealt out to threads", _THREADS)
    ),
}


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    return answered(plan, _LOOPS, _of_products)


def _of_products(word: str, plan: Plan, products: Sequence[ir.Compute]) -> Became:
    in_halves = operand_types(plan, products) <= set(MATRIX)
    if word != "tensor_core":
        if not products:
            return "not used", _PLAIN
        by_engine = in_halves and in_groups(plan)
        return ("TMA, cp.async", _ENGINE) if by_engine else ("loads run ahead", _AHEAD)
    if not products:
        return "not used", "there is no matrix product in it"
    if in_halves:
        return ("wgmma, mma.sync", _GROUPS) if in_groups(plan) else ("mma.sync", _UNITS)
    floors = ((operand_types(plan, [each]), each.attributes.get("precision")) for each in products)
    if all(is_split(plan, dtypes, precision) for dtypes, precision in floors):
        return "mma.sync", _IN_TF32
    asked = SPLIT if is_split(plan, {DType.F32}, SPLIT) else "tf32x3"
    return "multiply-adds of threads", _NONE.format(asked)

"""What became of the hints that only the TileLang emitter can answer, from the plan alone."""

from __future__ import annotations

from collections.abc import Sequence

from sketchc.ir import nodes as ir
from sketchc.lowering.loops.hints import Became, answered, operand_types
from sketchc.lowering.plan import HintAnswer, Plan
from sketchc.lowering.tilelang_cuda.products import OPERANDS

_NO_PRODUCT = ("not used", "there is no matrix product in it")
_UNITS = ("T.gemm, where its tiles are known at compile time", "")
_THREADS = ("multiply-adds of threads", "matrix units take f16 and bf16, and sum in f32")
_AHEAD = ("T.Pipelined, where its products stand alone in it", "")
_NOT_AHEAD = ("not used", "only the loads of matrix products are fetched ahead")
_DEALT = ("lanes dealt out to threads", "lanes are dealt out by T.Parallel")
#: What hints of loops became, whatever is in the loop.
_LOOPS = {
    "unroll": ("left to nvcc", "nvcc unrolls where its cost model says so"),
    **dict.fromkeys(("vectorize", "simd", "warp", "threadidx"), _DEALT),
}


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    return answered(plan, _LOOPS, _of_products)


def _of_products(word: str, plan: Plan, products: Sequence[ir.Compute]) -> Became:
    if word != "tensor_core":
        return _AHEAD if products else _NOT_AHEAD
    if not products:
        return _NO_PRODUCT
    kinds = [operand_types(plan, [each]) for each in products]
    on_units = any(len(each) == 1 and each <= OPERANDS for each in kinds)
    return _UNITS if on_units else _THREADS

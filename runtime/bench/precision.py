"""The precision class of a kernel, and of the baselines beside it.

A speedup that comes from rounding more coarsely is no speedup: a result says which class it is of,
the baseline is set to the same class, and where PyTorch has none no speedup is quoted. Classes are
"ieee f64", "ieee f32", "tf32x3", "tf32", "f16", "bf16" and "integer", after the narrowest type that
floats pass through.
"""

from __future__ import annotations

import ast

import attrs

from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan, is_product
from sketchc.lowering.registry import load_language

#: From the most exact to the coarsest.
CLASSES = ("integer", "ieee f64", "ieee f32", "tf32x3", "tf32", "f16", "bf16")
_OF_TYPE = {
    DType.F64: "ieee f64",
    DType.F32: "ieee f32",
    DType.F16: "f16",
    DType.BF16: "bf16",
}
#: What PyTorch can be set to; nothing in it computes in tf32x3.
_BASELINE = {"tf32x3": "ieee f32"}


@attrs.frozen
class Precision:
    """A class and how it was found."""

    name: str
    reason: str

    @property
    def of_baseline(self) -> str:
        """The class in which the baselines run."""
        return _BASELINE.get(self.name, self.name)

    @property
    def comparable(self) -> bool:
        """Whether a speedup may be quoted."""
        return self.of_baseline == self.name


def precision_of(plan: Plan, kernel: Kernel) -> Precision:
    """The class of a kernel, from its sketch; from its signature and its text without one."""
    tensors = [t.dtype for t in plan.sketch.tensors if t.role is not ir.Role.WORKSPACE]
    found = {_OF_TYPE[dtype]: f"{dtype.value} tensors" for dtype in tensors if dtype.is_float}
    for statement in walk.in_phases(plan.phases):
        if is_product(statement):
            found.update(_product(plan, statement))
    if kernel.foreign and load_language(kernel.language).hosted and "ieee f32" in found:
        found.update(_written(kernel.source))
    name = max(found, key=CLASSES.index, default="integer")
    return Precision(name, found.get(name, "no floating-point tensors"))


def _product(plan: Plan, product: ir.Compute) -> dict[str, str]:
    """The class of one matrix product of a sketch; none for one of integers."""
    names = [operand.tile for operand in product.operands if isinstance(operand, ir.TileOperand)]
    dtype = promote(*(plan.sketch.tile(name).dtype for name in names))
    if not dtype.is_float:
        return {}
    asked = str(product.attributes.get("precision", "ieee"))
    if dtype is DType.F32 and asked != "ieee" and plan.hardware.family != "cpu":
        return {asked: f'{product.operation} with precision="{asked}"'}
    return {_OF_TYPE[dtype]: f"{product.operation} of {dtype.value}"}


def _written(source: str) -> dict[str, str]:
    """The classes of `tl.dot` calls on f32 in somebody else's Triton kernel: without a word on it,
    Triton takes tf32."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(_, "dot"), _, keywords):
                given = {k.arg: k.value for k in keywords}
                asked = given.get("input_precision")
                exact = given.get("allow_tf32")
                if isinstance(exact, ast.Constant) and exact.value is False:
                    continue
                name = str(asked.value) if isinstance(asked, ast.Constant) else "tf32"
                if name in ("tf32", "tf32x3"):
                    found[name] = f"line {node.lineno}: tl.dot in {name}"
            case _:
                pass
    return found

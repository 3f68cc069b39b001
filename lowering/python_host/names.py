"""What Python host code calls things: a sketch's names as identifiers, torch's types, numbers."""

from __future__ import annotations

import keyword
import math

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.precedence import PYTHON, Code

#: Names that generated code uses itself, and those that linters object to as ambiguous.
_USED = """tl torch triton math range min max abs float int bool tuple dict sum zip len out device
program programs index index_bound INDEX annotations LaunchError ValueError require check_tensor
check_overlap check_elements check_integer check_number check_bool plain allocate row_major rounded
with_an_element absent object isinstance AttributeError RuntimeError TypeError
l O I"""
RESERVED = frozenset((*keyword.kwlist, *_USED.split()))


class Names:
    """Injective map from sketch names to Python identifiers, plus fresh names beside them. No name
    of the sketch becomes one of `reserved`."""

    def __init__(self, sketch: ir.Sketch, reserved: frozenset[str] = frozenset()) -> None:
        reserved |= RESERVED
        self.taken = set(reserved)
        self.mapping: dict[str, str] = {}
        self.functions: dict[str, str] = {}  # device functions that have another name here
        # Names that stand as they are go first, so that a renamed one cannot take their place.
        for name in sorted(walk.declared_names(sketch), key=lambda name: name in reserved):
            if name not in self.mapping:
                self.mapping[name] = self.fresh(name)

    def fresh(self, wish: str) -> str:
        """`wish`, or the first free spelling with underscores appended."""
        name = wish
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def __getitem__(self, name: str) -> str:
        if name not in self.mapping:
            self.mapping[name] = self.fresh(name)
        return self.mapping[name]

    def given(self, tensor: str) -> str:
        """The name of the truth value that says whether an optional tensor is there."""
        return self.derived(tensor, "given")

    def derived(self, name: str, suffix: str) -> str:
        """The one name made of a sketch name and a suffix, `X_given`."""
        key = f"{name} {suffix}"
        if key not in self.mapping:
            self.mapping[key] = self.fresh(f"{self[name]}_{suffix}")
        return self.mapping[key]


#: Element types of the host's tensors.
TORCH = {dtype: f"torch.{dtype.numpy_name}" for dtype in DType}


def literal(value: int | float | bool) -> Code:
    """A Python literal; infinities and NaN through `float`."""
    if isinstance(value, float) and not math.isfinite(value):
        return Code(f'float("{value}")')
    level = PYTHON.unary_levels["-"] if not isinstance(value, bool) and value < 0 else 100
    return Code(repr(value), level)

"""How the function of a Python-hosted kernel is spelled: see `lowering.abi.Abi`."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.lowering.abi import out_required, passed, wrapped
from sketchc.lowering.python_host.expressions import TORCH, Names, literal

ABSENT = "None"
_ROLES = {ir.Role.INOUT: ", updated in place", ir.Role.OUT: ", returned"}


def entry(sketch: ir.Sketch, reserved: frozenset[str]) -> str:
    """The name of the wrapper."""
    return Names(sketch, reserved)[sketch.name]


def spelled(sketch: ir.Sketch, reserved: frozenset[str]) -> dict[str, str]:
    """The wrapper's parameter name of each tensor, by the tensor's name in the sketch."""
    names = Names(sketch, reserved)
    return {tensor.name: names[tensor.name] for tensor in passed(sketch)}


def element(tensor: ir.Tensor) -> str:
    """The type that torch has for a tensor's elements."""
    return TORCH[tensor.dtype]


def actual_extents(sketch: ir.Sketch) -> tuple[tuple[str, ir.Tensor, int], ...]:
    """The extents to pass beside the tensors: none, since torch tensors know theirs."""
    return ()


def declaration(sketch: ir.Sketch, entry: str, reserved: frozenset[str]) -> str:
    """The head of the wrapper, with its annotations."""
    parameters, returned = signature(sketch, Names(sketch, reserved))
    return wrapped(f"def {entry}(", parameters, f") -> {returned}:")


def given(sketch: ir.Sketch) -> list[ir.Tensor]:
    """The tensors that a kernel takes, in call order; outputs may be given besides."""
    return [tensor for tensor in passed(sketch) if tensor.role is not ir.Role.OUT]


def results(sketch: ir.Sketch) -> list[ir.Tensor]:
    """The tensors that a kernel of the sketch returns, in call order."""
    return [tensor for tensor in passed(sketch) if tensor.role is not ir.Role.IN]


def kind(param: ir.Param) -> str:
    """The type of a param as Python and the schema of a torch operator call it."""
    return "float" if param.dtype.is_float else "bool" if param.dtype is DType.BOOL else "int"


def described(tensor: ir.Tensor) -> str:
    """A tensor in words: extents, type, and whether it is updated or returned."""
    extents = ", ".join(show(extent) for extent in tensor.extents)
    text = f"[{extents}] {tensor.dtype.value}{' or None' if tensor.optional else ''}"
    return text + _ROLES.get(tensor.role, "")


def signature(
    sketch: ir.Sketch, names: Names, kind_of_tensor: str = "torch.Tensor"
) -> tuple[list[str], str]:
    """The parameters of the wrapper with their annotations, and what it returns."""
    outputs = [t for t in sketch.tensors if t.role is ir.Role.OUT]
    taken = given(sketch)
    # `None` is a default only where no tensor that must be given follows.
    last = max((place for place, tensor in enumerate(taken) if not tensor.optional), default=-1)
    several = f"tuple[{kind_of_tensor}, ...]"
    parameters = [
        f"{names[tensor.name]}: {kind_of_tensor}"
        + (" | None" if tensor.optional else "")
        + (" = None" if place > last else "")
        for place, tensor in enumerate(taken)
    ]
    keywords = []
    for param in sketch.params:
        default = "" if param.default is None else f" = {literal(param.default)}"
        keywords.append(f"{names[param.name]}: {kind(param)}{default}")
    if outputs:
        form = several if len(outputs) > 1 else kind_of_tensor
        keywords.append(f"out: {form}" + ("" if out_required(sketch) else " | None = None"))
    if keywords:
        parameters += ["*", *keywords]
    return parameters, several if len(results(sketch)) > 1 else kind_of_tensor

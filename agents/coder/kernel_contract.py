"""The contract of a kernel, spelled out for one signature: what the Coder's prompt demands.

`lowering/kernel.py` states the rules once and for all; here they become the exact head of the
function, its arguments with their types and extents, and the conditions that it must refuse. Takes
a typed sketch (with phases or without: a signature), returns plain data for the templates.
"""

from __future__ import annotations

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.launch.conditions import Kind, actual_extent, launch_conditions
from sketchc.lowering.cpp.expressions import CPP_TYPES
from sketchc.lowering.cpp.names import entry_name, identifier
from sketchc.lowering.triton.dialect import TORCH
from sketchc.lowering.triton.expressions import literal
from sketchc.lowering.triton.scope import Names

#: Language of a kernel -> the word behind the fence of its code block.
FENCES = {"python": "python", "c++": "cpp"}

#: Element types that C++ has no name for: their bits are passed.
_BITS = {DType.BF16: "uint16_t", DType.F16: "uint16_t"}
_WIDTH = 98


@attrs.frozen
class Argument:
    """One tensor: `name` as the code spells it, `text` what it is, `role` as in the sketch."""

    name: str
    role: str
    text: str


#: Conditions that are not asked of a coder: callers take sizes from arrays, and such large numbers
#: are looked at by the built-in coder alone.
_OWN = (Kind.SIZE, Kind.REPEAT, Kind.ELEMENTS, Kind.WIDTH, Kind.FETCHED)


@attrs.frozen
class Contract:
    """What the code must offer. `checks` are refused with a message (Python) or by their number
    (C++, 1-based); `bounds` are upper bounds of symbols; `results` name what is returned."""

    language: str
    fence: str
    entry: str
    declaration: str
    arguments: tuple[Argument, ...]
    scalars: tuple[str, ...]
    checks: tuple[tuple[int, str], ...]  # (what the C function returns, the condition)
    results: tuple[str, ...]
    out_required: bool
    initial: tuple[str, ...]


def contract_of(sketch: ir.Sketch, language: str, entry: str = "") -> Contract:
    """The contract of kernels for `sketch` in "python" or "c++". `entry` is the function's name;
    "" is the sketch's own, as the language allows it."""
    entry = entry or _entry(sketch, language)
    head = _cpp_head(sketch, entry) if language == "c++" else _python_head(sketch, entry)
    names = Names(sketch)
    spelled = {t.name: t.name if language == "c++" else names[t.name] for t in _tensors(sketch)}
    return Contract(
        language=language,
        fence=FENCES[language],
        entry=entry,
        declaration=head,
        arguments=tuple(
            Argument(spelled[t.name], t.role.value, _described(t, language))
            for t in _tensors(sketch)
        ),
        scalars=_scalars(sketch, language),
        checks=tuple(
            (condition.number, condition.text)
            for condition in launch_conditions(sketch)
            if condition.kind not in _OWN
        ),
        results=tuple(
            spelled[t.name] for t in _tensors(sketch) if t.role in (ir.Role.OUT, ir.Role.INOUT)
        ),
        out_required=_out_required(sketch),
        initial=tuple(
            f"{spelled[t.name]} = {t.initial}" for t in _tensors(sketch) if t.initial is not None
        ),
    )


def _entry(sketch: ir.Sketch, language: str) -> str:
    return entry_name(sketch.name) if language == "c++" else Names(sketch)[sketch.name]


def _tensors(sketch: ir.Sketch) -> list[ir.Tensor]:
    return [tensor for tensor in sketch.tensors if tensor.role is not ir.Role.WORKSPACE]


def _repeats(tensor: ir.Tensor, axis: int) -> bool:
    return axis < len(tensor.broadcast) and tensor.broadcast[axis]


def _described(tensor: ir.Tensor, language: str) -> str:
    """Type, extents and role of a tensor in words."""
    extents = ", ".join(
        f"{show(extent)} or 1" if _repeats(tensor, axis) else show(extent)
        for axis, extent in enumerate(tensor.extents)
    )
    kind = tensor.dtype.value if language == "c++" else TORCH[tensor.dtype]
    if language == "c++" and tensor.dtype in _BITS:
        kind += " (the pointer is to its 16 bits)"
    absent = ("nullptr" if language == "c++" else "None") if tensor.optional else ""
    return f"{kind} [{extents}]" + (f", or {absent} where it is absent" if absent else "")


def _scalars(sketch: ir.Sketch, language: str) -> tuple[str, ...]:
    """Symbols and params in words."""
    lines = [f"{symbol.name}: size, 0 or more" for symbol in sketch.symbols]
    for param in sketch.params:
        default = "" if param.default is None else f", default {param.default}"
        lines.append(f"{param.name}: {param.dtype.value}{default}")
    if language == "c++":
        for tensor in sketch.tensors:
            for axis in range(len(tensor.extents)):
                if _repeats(tensor, axis):
                    declared = show(tensor.extents[axis])
                    lines.append(
                        f"{actual_extent(tensor.name, axis)}: the extent that {tensor.name} really "
                        f"has on axis {axis}: {declared}, or 1, and then its one element repeats"
                    )
    return tuple(lines)


# ---------------------------------------------------------------- the head of the function


def _cpp_head(sketch: ir.Sketch, entry: str) -> str:
    parameters = []
    for tensor in _tensors(sketch):
        constant = "const " if tensor.role is ir.Role.IN else ""
        kind = _BITS.get(tensor.dtype) or CPP_TYPES[tensor.dtype]
        parameters.append(f"{constant}{kind} *{tensor.name}")
    parameters += [f"int64_t {identifier(symbol.name)}" for symbol in sketch.symbols]
    parameters += [
        f"{'double' if param.dtype.is_float else 'int64_t'} {identifier(param.name)}"
        for param in sketch.params
    ]
    parameters += [
        f"int64_t {actual_extent(tensor.name, axis)}"
        for tensor in sketch.tensors
        for axis in range(len(tensor.extents))
        if _repeats(tensor, axis)
    ]
    return _wrapped(f'extern "C" int64_t {entry}(', parameters, ")")


def _python_head(sketch: ir.Sketch, entry: str) -> str:
    names = Names(sketch)
    outputs = [t for t in sketch.tensors if t.role is ir.Role.OUT]
    given = [t for t in _tensors(sketch) if t.role is not ir.Role.OUT]
    results = [t for t in _tensors(sketch) if t.role is not ir.Role.IN]
    # `None` is a default only where no tensor that must be given follows.
    last = max((place for place, tensor in enumerate(given) if not tensor.optional), default=-1)
    parameters = [
        f"{names[tensor.name]}: torch.Tensor"
        + (" | None" if tensor.optional else "")
        + (" = None" if place > last else "")
        for place, tensor in enumerate(given)
    ]
    keywords = []
    for param in sketch.params:
        kind = "float" if param.dtype.is_float else "int"
        kind = "bool" if param.dtype is DType.BOOL else kind
        default = "" if param.default is None else f" = {literal(param.default)}"
        keywords.append(f"{names[param.name]}: {kind}{default}")
    if outputs:
        kind = "tuple[torch.Tensor, ...]" if len(outputs) > 1 else "torch.Tensor"
        keywords.append(f"out: {kind}" + ("" if _out_required(sketch) else " | None = None"))
    if keywords:
        parameters += ["*", *keywords]
    returned = "tuple[torch.Tensor, ...]" if len(results) > 1 else "torch.Tensor"
    return _wrapped(f"def {entry}(", parameters, f") -> {returned}:")


def _wrapped(start: str, parameters: list[str], end: str) -> str:
    """The head on one line where it fits, else one parameter a line."""
    line = f"{start}{', '.join(parameters)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([start, *(f"    {p}," for p in parameters[:-1]), f"    {parameters[-1]}", end])


def _out_required(sketch: ir.Sketch) -> bool:
    """True where the device may be known from the outputs only."""
    given = [t for t in sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
    outputs = any(t.role is ir.Role.OUT for t in sketch.tensors)
    return outputs and all(tensor.optional for tensor in given)

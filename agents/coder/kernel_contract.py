"""The contract of a kernel, spelled out for one signature: what the Coder's prompt demands.

`lowering/kernel.py` states the rules once and for all; here they become the exact head of the
function (from the target's `abi` module), its arguments with their types and extents, and the
conditions that it must refuse. Takes
a typed sketch (with phases or without: a signature), returns plain data for the templates.
"""

from __future__ import annotations

import importlib

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.launch.conditions import Kind, launch_conditions
from sketchc.lowering.abi import Abi, out_required, passed
from sketchc.lowering.language import Language
from sketchc.lowering.registry import load_target


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

    language: Language
    entry: str
    declaration: str
    arguments: tuple[Argument, ...]
    scalars: tuple[str, ...]
    checks: tuple[tuple[int, str], ...]  # (what the C function returns, the condition)
    results: tuple[str, ...]
    out_required: bool
    initial: tuple[str, ...]


def contract_of(sketch: ir.Sketch, target: str, entry: str = "") -> Contract:
    """The contract of kernels for `sketch` and a target. `entry` is the function's name; "" is the
    sketch's own, as the language allows it."""
    record = load_target(target)
    abi: Abi = importlib.import_module(record.abi)
    entry = entry or abi.entry(sketch)
    names = abi.spelled(sketch)
    tensors = passed(sketch)
    return Contract(
        language=record.language,
        entry=entry,
        declaration=abi.declaration(sketch, entry),
        arguments=tuple(Argument(names[t.name], t.role.value, _described(t, abi)) for t in tensors),
        scalars=_scalars(sketch, abi),
        checks=tuple(
            (condition.number, condition.text)
            for condition in launch_conditions(sketch)
            if condition.kind not in _OWN
        ),
        results=tuple(names[t.name] for t in tensors if t.role in (ir.Role.OUT, ir.Role.INOUT)),
        out_required=out_required(sketch),
        initial=tuple(f"{names[t.name]} = {t.initial}" for t in tensors if t.initial is not None),
    )


def _described(tensor: ir.Tensor, abi: Abi) -> str:
    """Type, extents and role of a tensor in words."""
    extents = ", ".join(
        f"{show(extent)} or 1" if any(tensor.broadcast[axis : axis + 1]) else show(extent)
        for axis, extent in enumerate(tensor.extents)
    )
    absent = f", or {abi.ABSENT} where it is absent" if tensor.optional else ""
    return f"{abi.element(tensor)} [{extents}]{absent}"


def _scalars(sketch: ir.Sketch, abi: Abi) -> tuple[str, ...]:
    """Symbols and params in words."""
    lines = [f"{symbol.name}: size, 0 or more" for symbol in sketch.symbols]
    for param in sketch.params:
        default = "" if param.default is None else f", default {param.default}"
        lines.append(f"{param.name}: {param.dtype.value}{default}")
    for name, tensor, axis in abi.actual_extents(sketch):
        lines.append(
            f"{name}: the extent that {tensor.name} really has on axis {axis}: "
            f"{show(tensor.extents[axis])}, or 1, and then its one element repeats"
        )
    return tuple(lines)

"""Bodies, in MLIR, for the functions that the front end leaves to the NPU's own compiler."""

from __future__ import annotations

import re

_DECLARATION = re.compile(r"func\.func private @(\w+)\((.*)\)(?: -> ([^{]*?))?(?: attributes .*)?$")

#: `__hmf_<name>f` on f32 and `__hmf_<name>Dh` on f16 -> one operation of MLIR's math dialect.
_MATH = {
    "tanh": "math.tanh",
    "tan": "math.tan",
    "atan": "math.atan",
    "log1p": "math.log1p",
    "round": "math.round",
    "pow": "math.powf",
}
_SCANS = {
    "cumsum": ("arith.addf", "arith.addi", "0"),
    "cumprod": ("arith.mulf", "arith.muli", "1"),
}


class UnsupportedLinalgError(Exception):
    """The text uses something of the NPU's compiler that has no meaning here yet."""


def library_body(name: str, declaration: str, text: str) -> str:
    """The definition that replaces a private declaration; `text` holds its call sites.

    Raises `UnsupportedLinalgError` for a function that is not known.
    """
    found = _DECLARATION.search(declaration)
    assert found is not None
    types = [part.strip() for part in re.split(r",(?![^<]*>)", found.group(2)) if part.strip()]
    result = (found.group(3) or "").strip()
    if name.startswith("__hmf_") and (body := _math_body(name, types, result)):
        return body
    if scan := re.fullmatch(r"triton_(cumsum|cumprod)_\d+", name):
        return _scan_body(name, scan.group(1), types, _constant_operand(name, text))
    if re.fullmatch(r"triton_flip(_\d+)?", name):
        return _flip_body(name, types, _constant_operand(name, text))
    if re.fullmatch(r"triton_gather(_\d+)?", name):
        return _gather_body(name, types, result, _constant_operand(name, text, position=2))
    if re.fullmatch(r"triton_(print|assert)_\d+", name):
        return _define(name, types, "", ["return"])
    message = f"the Linalg calls {name}, a function of the NPU's own library"
    raise UnsupportedLinalgError(message)


def _define(name: str, types: list[str], result: str, lines: list[str]) -> str:
    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(types))
    arrow = f" -> {result}" if result else ""
    body = "\n".join(f"    {line}" for line in lines)
    return f"  func.func private @{name}({arguments}){arrow} {{\n{body}\n  }}"


def _math_body(name: str, types: list[str], result: str) -> str | None:
    stem = re.sub(r"(?:f|Dh)$", "", name.removeprefix("__hmf_"))
    kind = types[0]
    if operation := _MATH.get(stem):
        operands = ", ".join(f"%a{i}" for i in range(len(types)))
        return _define(
            name, types, result, [f"%r = {operation} {operands} : {kind}", *_end(result)]
        )
    constant = f"%c = arith.constant {'0.0' if stem == 'relu' else '1.0'} : {kind}"
    match name.removeprefix("__hmf_"):
        case "isnan":
            lines = [f"%r = arith.cmpf uno, %a0, %a0 : {kind}"]
        case "isinf":
            infinity = {"f32": "0x7F800000", "f16": "0x7C00", "bf16": "0x7F80"}[kind]
            lines = [
                f"%c = arith.constant {infinity} : {kind}",
                f"%s = math.absf %a0 : {kind}",
                f"%r = arith.cmpf oeq, %s, %c : {kind}",
            ]
        case "reluf" | "reluDh":
            lines = [constant, f"%r = arith.maximumf %a0, %c : {kind}"]
        case "recipf" | "recipDh":
            lines = [constant, f"%r = arith.divf %c, %a0 : {kind}"]
        case _:
            return None
    return _define(name, types, result, [*lines, *_end(result)])


def _end(result: str) -> list[str]:
    return [f"return %r : {result}"]


def _constant_operand(name: str, text: str, position: int = 1) -> int:
    """The axis: the operand of the call at this position, a constant."""
    before = r"%[\w#]+, " * position
    call = re.search(rf"call @{name}\({before}(%[\w#]+)[,)]", text)
    value = call and re.search(rf"{call.group(1)} = arith\.constant (-?\d+) :", text)
    return int(value.group(1)) if value else 0


def _shape(tensor: str) -> tuple[list[int], str]:
    *extents, element = tensor.removeprefix("tensor<").removesuffix(">").split("x")
    return [int(extent) for extent in extents], element


def _scan_body(name: str, kind: str, types: list[str], axis: int) -> str:
    """Loops over every axis, the scanned one innermost with the running value."""
    tensor = types[0]
    extents, element = _shape(tensor)
    axis %= len(extents)
    floating, integral, identity = _SCANS[kind]
    is_float = element[0] in "fb"
    operation = floating if is_float else integral
    start = f"{identity}.0" if is_float else identity
    outer = [i for i in range(len(extents)) if i != axis]
    indices = ", ".join("%p" if i == axis else f"%i{i}" for i in range(len(extents)))
    lines = [
        *_constants(extents),
        f"%last = arith.constant {extents[axis] - 1} : index",
        f"%start = arith.constant {start} : {element}",
        f"%t = tensor.empty() : {tensor}",
    ]
    carried = "%t"
    for i in outer:
        lines.append(_loop(f"%r{i}", f"%i{i}", f"%d{i}", f"%t{i} = {carried}", tensor))
        carried = f"%t{i}"
    both = f"{element}, {tensor}"
    lines += [
        f"%inner:2 = scf.for %k = %zero to %d{axis} step %one "
        f"iter_args(%sum = %start, %u = {carried}) -> ({both}) {{",
        "%back = arith.subi %last, %k : index",
        "%p = arith.select %a2, %back, %k : index",
        f"%v = tensor.extract %a0[{indices}] : {tensor}",
        f"%next = {operation} %sum, %v : {element}",
        f"%w = tensor.insert %next into %u[{indices}] : {tensor}",
        f"scf.yield %next, %w : {both}",
        "}",
    ]
    inner = "%inner#1"
    for i in reversed(outer):
        lines += [f"scf.yield {inner} : {tensor}", "}"]
        inner = f"%r{i}"
    return _define(name, types, tensor, [*lines, f"return {inner} : {tensor}"])


def _flip_body(name: str, types: list[str], axis: int) -> str:
    tensor = types[0]
    extents, element = _shape(tensor)
    axis %= len(extents)
    indices = ", ".join("%p" if i == axis else f"%i{i}" for i in range(len(extents)))
    lines = [
        f"%last = arith.constant {extents[axis] - 1} : index",
        "%r = tensor.generate {",
        f"^bb0({', '.join(f'%i{i}: index' for i in range(len(extents)))}):",
        f"%p = arith.subi %last, %i{axis} : index",
        f"%v = tensor.extract %a0[{indices}] : {tensor}",
        f"tensor.yield %v : {element}",
        f"}} : {tensor}",
    ]
    return _define(name, types, tensor, [*lines, f"return %r : {tensor}"])


def _gather_body(name: str, types: list[str], result: str, axis: int) -> str:
    """`result[i, j] = a0[i, a1[i, j]]` along axis 1."""
    source, index = types[0], types[1]
    extents, element = _shape(result)
    axis %= len(extents)
    places = ", ".join(f"%i{i}" for i in range(len(extents)))
    indices = ", ".join("%p" if i == axis else f"%i{i}" for i in range(len(extents)))
    lines = [
        "%r = tensor.generate {",
        f"^bb0({', '.join(f'%i{i}: index' for i in range(len(extents)))}):",
        f"%n = tensor.extract %a1[{places}] : {index}",
        f"%p = arith.index_cast %n : {_shape(index)[1]} to index",
        f"%v = tensor.extract %a0[{indices}] : {source}",
        f"tensor.yield %v : {element}",
        f"}} : {result}",
    ]
    return _define(name, types, result, [*lines, f"return %r : {result}"])


def _constants(extents: list[int]) -> list[str]:
    return [
        "%zero = arith.constant 0 : index",
        "%one = arith.constant 1 : index",
        *(f"%d{i} = arith.constant {extent} : index" for i, extent in enumerate(extents)),
    ]


def _loop(result: str, variable: str, extent: str, carried: str, tensor: str) -> str:
    return (
        f"{result} = scf.for {variable} = %zero to {extent} step %one "
        f"iter_args({carried}) -> ({tensor}) {{"
    )

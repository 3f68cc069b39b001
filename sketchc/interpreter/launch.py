"""The steps of a launch before any statement runs: symbols from shapes, host values, requires,
and memory for outputs and workspaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from sketchc.base import records
from sketchc.base.diagnostics import MemoryLimitError, refuse
from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.memory import Memory, Window
from sketchc.interpreter.tiles import Array, fits_an_array, poison, tile_dtype, to_tensor, to_tile
from sketchc.interpreter.violations import Options, launch_error
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate, given_values, param_value
from sketchc.ir.show import assignments, show
from sketchc.ir.walk import references
from sketchc.launch.conditions import Condition, Kind, launch_steps, may_repeat
from sketchc.launch.inputs import absent_symbols, solve_symbols

Scalar = int | float | bool

#: Bytes of the widest element, in memory or in a shadow of it.
WIDEST_ELEMENT = 8


@records.frozen
class Launch:
    """Host values by name, and the tensors' memory and windows."""

    symbols: dict[str, int]
    values: dict[str, Scalar]
    memories: dict[str, Memory]
    windows: dict[str, Window]


def prepare(
    sketch: ir.Sketch,
    tensors: Mapping[str, Array | None],
    symbols: Mapping[str, int],
    params: Mapping[str, Scalar],
    options: Options,
) -> Launch:
    """Bind and check everything the host knows; an optional tensor may be None or missing.

    Raises `UsageError` for arguments that do not fit the sketch, `DiagnosticError` (SK0801) for a
    condition of the sketch that does not hold.
    """
    given = _inputs(sketch, {n: array for n, array in tensors.items() if array is not None})
    sizes = {**symbols, **absent_symbols(sketch, given)}
    bound = bind_symbols(sketch, {name: array.shape for name, array in given.items()}, sizes)
    present = {t.name: t.name in given for t in sketch.tensors if t.optional}
    values = bind_values(sketch, bound, params, present)
    shapes = tensor_shapes(sketch, values, options.memory_limit)
    memories = {
        tensor.name: _memory(sketch, tensor, shapes[tensor.name], given.get(tensor.name), options)
        for tensor in sketch.tensors
    }
    windows = {
        name: Window(name, memory, shapes[name], any(memory.tensor.broadcast))
        for name, memory in memories.items()
    }
    for view in sketch.views:
        shape = _extents(view.extents, values)
        _refuse_shape(view.name, shape)
        windows[view.name] = Window(view.name, memories[view.base], shape)
    return Launch(bound, values, memories, windows)


def _inputs(sketch: ir.Sketch, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The given arrays, checked against names, ranks and types."""
    wanted = {t.name: t for t in sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)}
    for name in tensors:
        if name not in wanted:
            known = ", ".join(wanted) or "none"
            refuse(f"{name} is not an input of {sketch.name}; its inputs are: {known}")
    missing = [n for n, tensor in wanted.items() if n not in tensors and not tensor.optional]
    if missing:
        refuse(f"no array was given for the input{'s' * (len(missing) > 1)} {', '.join(missing)}")
    return {
        name: checked_array(tensor, tensors[name])
        for name, tensor in wanted.items()
        if name in tensors
    }


def checked_array(tensor: ir.Tensor, value: Array) -> Array:
    """`value` as an array of the tensor's type and rank; raises `UsageError` otherwise."""
    array = np.asarray(value)
    expected = numpy_dtype(tensor.dtype)
    if tensor.dtype is DType.BF16 and array.dtype.kind == "V" and array.dtype.itemsize == 2:
        array = array.view(expected)  # how NumPy files hold bfloat16
    if array.ndim != len(tensor.extents):
        axes = "1 axis" if array.ndim == 1 else f"{array.ndim} axes"
        refuse(
            f"{tensor.name} has {axes}, the sketch declares {len(tensor.extents)}: "
            f"{show_declaration(tensor)}"
        )
    if array.dtype != expected:
        convertible = array.dtype.kind in "fiub" or array.dtype == numpy_dtype(DType.BF16)
        advice = f"; convert it first: array.astype({expected.name!r})" if convertible else ""
        refuse(
            f"{tensor.name} is {array.dtype}, the sketch declares {tensor.dtype.value} "
            f"({expected.name}){advice}"
        )
    return array


def show_declaration(tensor: ir.Tensor) -> str:
    """The declaration of a tensor as text, such as `X[M, 2*N]: f32`."""
    extents = ", ".join(show(extent) for extent in tensor.extents)
    return f"{tensor.name}[{extents}]: {tensor.dtype.value}"


def bind_symbols(
    sketch: ir.Sketch, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int]
) -> dict[str, int]:
    """Every symbol's value from the inputs' shapes and from `given`.

    An axis declared `M|1` binds M only where nothing else does. Raises `UsageError` for a symbol
    without a value or with two, and for a negative one in `given`, which is the caller's mistake
    and not a condition of the sketch.
    """
    known = [symbol.name for symbol in sketch.symbols]
    for name, value in given.items():
        if name not in known:
            refuse(f"{name} is not a symbol of {sketch.name}; its symbols are: {_listed(known)}")
        if value < 0:
            refuse(f"the symbol {name} = {value} is negative; sizes are 0 or more")
    bound = dict(given)
    source = dict.fromkeys(given, "the sizes given")
    later: list[tuple[str, int]] = []
    for tensor in sketch.tensors:
        if tensor.name not in shapes:
            continue
        broadcast = tensor.broadcast or (False,) * len(tensor.extents)
        for extent, size, free in zip(tensor.extents, shapes[tensor.name], broadcast, strict=True):
            if not isinstance(extent, ir.Ref) or extent.name not in known:
                continue
            if free:
                later.append((extent.name, size))
            elif bound.setdefault(extent.name, size) != size:
                refuse(
                    f"{extent.name} is {bound[extent.name]} by {source[extent.name]} "
                    f"but {size} by {tensor.name}{list(shapes[tensor.name])}"
                )
            source.setdefault(extent.name, f"{tensor.name}{list(shapes[tensor.name])}")
    bound = solve_symbols(sketch, shapes, bound)
    for name, size in sorted(later, key=lambda pair: pair[1] == 1):
        bound.setdefault(name, size)
    missing = [symbol.name for symbol in sketch.symbols if symbol.name not in bound]
    if missing:
        example = ",".join(f"{name}=64" for name in missing)
        refuse(f"no size for {', '.join(missing)}; give --symbols {example}")
    return {symbol.name: int(bound[symbol.name]) for symbol in sketch.symbols}


def bind_values(
    sketch: ir.Sketch,
    symbols: Mapping[str, int],
    params: Mapping[str, Scalar],
    present: Mapping[str, bool] | None = None,
) -> dict[str, Scalar]:
    """All host scalars, with the conditions of the launch checked. `present`: which optional
    tensors are given; those that are not in it count as given.

    Params are rounded to their type. Raises `UsageError` for a param without value or unknown, and
    `DiagnosticError` (SK0801) for a condition that does not hold.
    """
    declared = {param.name: param for param in sketch.params}
    for name in params:
        if name not in declared:
            refuse(f"{name} is not a parameter of {sketch.name}; it has: {_listed(declared)}")
    given = {p.name: p.default for p in sketch.params if p.default is not None} | dict(params)
    rounded = {name: _param(declared[name], value) for name, value in given.items()}
    for name in declared:
        if name not in rounded:
            refuse(f"{name} has no value; give --set {name}=VALUE")
    values = given_values(sketch, symbols, rounded) | dict(present or {})
    for step in launch_steps(sketch):
        match step:
            case ir.Let():
                values[step.name] = _let(step, values)
            case Condition(kind=Kind.REPEAT):
                pass  # arrays have shapes: `_memory` looks at them
            case Condition():
                check_condition(step, values)
    return values


def _let(let: ir.Let, values: Mapping[str, Scalar]) -> Scalar:
    try:
        return evaluate(let.value, values)
    except (ArithmeticError, ValueError) as error:
        known = {r.name: values[r.name] for r in references(let.value)}
        msg = f"`{let.name}` has no value: {error}"
        raise launch_error(msg, let.span, f"with {assignments(known)}") from error


def check_condition(condition: Condition, values: Mapping[str, Scalar]) -> None:
    """Raises `DiagnosticError` (SK0801) with the values when the condition does not hold."""
    try:
        holds = bool(evaluate(condition.holds, values))
    except (ArithmeticError, ValueError):
        holds = False  # what it is about has no value
    if not holds:
        told = (r.name for r in references(condition.holds) if r.kind is not ir.NameKind.PRESENT)
        used = {name: values[name] for name in told}
        note = (f"with {assignments(used)}",) if used else ()
        advice = "choose sizes or constants for which it does"
        msg = f"the condition {condition.text} does not hold"
        raise launch_error(msg, condition.span, *note, advice=advice)


def _param(param: ir.Param, value: Scalar) -> Scalar:
    """The value rounded to the param's type."""
    if param.dtype.is_float:
        return param_value(param, value)
    if param.dtype is DType.BOOL:
        return bool(value)
    if not isinstance(value, int) and not value.is_integer():
        refuse(f"{param.name} is {param.dtype.value}; {value} is not an integer")
    if not -(2**63) <= value < 2**63:
        refuse(f"{param.name} = {int(value)} does not fit 64 bits")
    return int(value)


def _extents(extents: tuple[ir.Expr, ...], values: Mapping[str, Scalar]) -> tuple[int, ...]:
    """Extents at launch; that none is negative is a condition of the launch."""
    return tuple(int(evaluate(extent, values)) for extent in extents)


def _sizes(tensor: ir.Tensor, values: Mapping[str, Scalar]) -> tuple[int, ...]:
    """A tensor's extents at launch; an absent one's may come out negative, and are then 0."""
    shape = _extents(tensor.extents, values)
    return shape if values.get(tensor.name, True) else tuple(max(0, size) for size in shape)


def _refuse_shape(name: str, shape: tuple[int, ...]) -> None:
    """Raises `UsageError` for a shape that no array can have, even one without elements."""
    if not fits_an_array(shape, WIDEST_ELEMENT):
        refuse(f"{name}{list(shape)} is beyond what the interpreter can hold; choose smaller sizes")


def tensor_shapes(
    sketch: ir.Sketch, values: Mapping[str, Scalar], limit: int
) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, workspaces included.

    Raises `MemoryLimitError` when the tensors and their shadow memory exceed `limit` bytes.
    """
    shapes = {tensor.name: _sizes(tensor, values) for tensor in sketch.tensors}
    total = 0
    for tensor in sketch.tensors:
        _refuse_shape(tensor.name, shapes[tensor.name])
        shadow = 0 if tensor.role is ir.Role.IN else 9
        total += prod(shapes[tensor.name]) * (tensor.dtype.bytes + shadow)
    if total > limit:
        msg = (
            f"the tensors of {sketch.name} would take {total / 2**30:.1f} GiB in the interpreter, "
            f"more than its limit of {limit / 2**30:.1f} GiB; choose smaller sizes"
        )
        raise MemoryLimitError(msg)
    return shapes


def _memory(
    sketch: ir.Sketch,
    tensor: ir.Tensor,
    shape: tuple[int, ...],
    given: Array | None,
    options: Options,
) -> Memory:
    wide = not options.rounding
    if given is not None:
        fits = all(
            actual == wanted or (actual == 1 and may_repeat(sketch, tensor, axis))
            for axis, (actual, wanted) in enumerate(zip(given.shape, shape, strict=True))
        )
        if not fits:
            refuse(f"{tensor.name} has shape {list(given.shape)}, the sketch expects {list(shape)}")
        kind = tile_dtype(tensor.dtype) if wide else numpy_dtype(tensor.dtype)
        if tensor.role is ir.Role.IN:
            data = np.ascontiguousarray(given.astype(kind, copy=False)).reshape(given.shape)
            data = data.view()
            data.flags.writeable = False
            return Memory(tensor, data)
        return Memory(tensor, given.astype(kind, order="C", copy=True))
    if tensor.optional:
        absent = np.broadcast_to(poison(tensor.dtype, options.poison), shape)
        return Memory(tensor, absent, present=False)
    initial = poison(tensor.dtype, options.poison) if tensor.initial is None else tensor.initial
    value = to_tile(
        np.asarray(initial), DType.F64 if wide and tensor.dtype.is_float else tensor.dtype
    )
    data = np.full(shape, value) if wide else np.full(shape, to_tensor(value, tensor.dtype))
    written = np.zeros(shape, np.bool_) if tensor.initial is None else None
    return Memory(tensor, data, written)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"

"""What the host's part of a lowered TileLang kernel does in a call, as JSON data: the launches of
its kernels, and the tensor maps that they take.

Source: TVM's host code calls `NAME(arguments, extents and shared memory)`, the latter in the order
of the kernel's attribute "tirx.kernel_launch_params", and TileLang's `__tvm_tensormap_create_tiled`
(type, rank, address, then extents, steps, box and element steps, one for each axis, and interleave,
swizzle, promotion, fill).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tilelang

tvm = tilelang.tvm
tirx = tvm.tirx
#: Calls of the host that launch nothing.
_IGNORED = frozenset({"__tvm_set_device"})
_TILED = "__tvm_tensormap_create_tiled"
_SHARED = "tirx.use_dyn_shared_memory"
_EXTENTS = tuple(f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz")


def host_launches(lowered: Any, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The launches of a call of `lowered` (what `tilelang.lower` returns), in order.

    `values` has, by the names of the traced function's variables, numbers, and for tensors records
    of places (dicts). Arguments are such records, {"scalar": type, "value"} or {"map"}. Raises
    `NotImplementedError` for what cannot be told before the call or launched by `cubin_launches`.
    """
    (entry,) = lowered.host_mod.functions.values()
    calls: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.For | tirx.While | tirx.IfThenElse):
            msg = f"the host's part has a {type(node).__name__}"
            raise NotImplementedError(msg)
        if isinstance(node, tirx.Call) and node.op.same_as(tvm.ir.Op.get("tirx.tvm_call_packed")):
            calls.append(node.args)

    tirx.stmt_functor.post_order_visit(entry.body, visit)
    kernels = {name.name_hint: kernel for name, kernel in lowered.device_mod.functions.items()}
    maps: list[tuple[Any, dict[str, Any]]] = []
    launches = []
    for name, *arguments in calls:
        if name.value == _TILED:
            maps.append((arguments[0], _map(arguments[1:], values)))
        elif name.value in kernels:
            launches.append(_launch(name.value, kernels[name.value], arguments, values, maps))
        elif name.value not in _IGNORED:
            msg = f"the host's part calls {name.value}"
            raise NotImplementedError(msg)
    return launches


def _launch(
    name: str,
    kernel: Any,
    arguments: Sequence[Any],
    values: Mapping[str, Any],
    maps: Sequence[tuple[Any, dict[str, Any]]],
) -> dict[str, Any]:
    own = len(kernel.params)
    words = [str(word) for word in kernel.attrs["tirx.kernel_launch_params"]]
    if unknown := set(words) - {*_EXTENTS, _SHARED}:
        msg = f"launches with {', '.join(sorted(unknown))}"
        raise NotImplementedError(msg)
    numbers = [_number(each, values) for each in arguments[own:]]
    told = dict(zip(words, numbers, strict=True))
    sizes = [int(told.get(word, 1)) for word in _EXTENTS]
    return {
        "function": name,
        "grid": sizes[:3],
        "block": sizes[3:],
        "shared": int(told.get(_SHARED, 0)),
        "arguments": [_argument(each, values, maps) for each in arguments[:own]],
    }


def _argument(
    argument: Any, values: Mapping[str, Any], maps: Sequence[tuple[Any, dict[str, Any]]]
) -> dict[str, Any]:
    for variable, told in maps:
        if variable.same_as(argument):
            return {"map": told}
    if str(argument.dtype) == "handle":
        return _place(argument, values)
    return {"scalar": str(argument.dtype), "value": _number(argument, values)}


def _place(argument: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    found = values.get(argument.name) if isinstance(argument, tirx.Var) else None
    if not isinstance(found, dict):
        msg = f"the address {argument} is no tensor's"
        raise NotImplementedError(msg)
    return found


def _map(arguments: Sequence[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    element, rank = (int(_number(each, values)) for each in arguments[:2])
    numbers = [int(_number(each, values)) for each in arguments[3:]]
    extents, steps, box, each = (numbers[n * rank : (n + 1) * rank] for n in range(4))
    return {
        "element": element,
        "place": _place(arguments[2], values),
        "extents": extents,
        "steps": steps[1:],  # the first one is the size of an element
        "box": box,
        "each": each,
        "kinds": numbers[4 * rank :],
    }


def _number(expression: Any, values: Mapping[str, Any]) -> int | float:
    """The value of an expression of the host's. Raises `NotImplementedError` for one that reads
    more than `values`."""
    variables: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.Var):
            variables.append(node)

    tirx.stmt_functor.post_order_visit(expression, visit)
    known = {
        each: tirx.const(values[each.name], each.dtype) for each in variables if each.name in values
    }
    found = tvm.arith.Analyzer().simplify(tirx.stmt_functor.substitute(expression, known))
    if not isinstance(found, tirx.IntImm | tirx.FloatImm):
        msg = f"the host's part computes {expression}"
        raise NotImplementedError(msg)
    return bool(found.value) if str(found.dtype) == "bool" else found.value

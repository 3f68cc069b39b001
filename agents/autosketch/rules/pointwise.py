"""Rules for pointwise operations: each is one operation of the op table, or a few of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.agents.autosketch.builder import (
    Builder,
    Rule,
    alike,
    broadcast,
    converted,
    plain,
)
from sketchc.agents.autosketch.graph import Made, Node, Use
from sketchc.agents.autosketch.loops import Apply, Index, Number, Scalar
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir

#: Primitive -> the operation of the op table with the same operands.
_POINTWISE = {
    **{
        name: name
        for name in (
            *("abs", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt"),
            *("sin", "cos", "tan", "atan"),
            *("tanh", "erf", "neg", "floor", "ceil", "round", "trunc", "sign", "sigmoid", "silu"),
            *("add", "sub", "mul", "pow", "atan2", "eq", "ne", "lt", "le", "gt", "ge"),
            *("where", "bitwise_not", "isfinite", "relu", "hardsigmoid", "hardswish"),
        )
    },
    "maximum": "max",
    "minimum": "min",
    "remainder": "mod",
    "floor_divide": "floordiv",
    "isnan": "isnan",
    "__rshift__": "shr",
    "shift_right_arithmetic": "shr",
    "__lshift__": "shl",
    "shift_left": "shl",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
}
#: In integers of fewer bytes, a float that is NaN becomes 0.
_WIDE_INTEGER = 4
#: Operation -> the operation that stands for it where the operands are conditions.
_LOGICAL = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "ne",
    "bitwise_not": "logical_not",
    "mul": "logical_and",
}


def _operands(node: Node) -> list[Any]:
    """The arguments that are operands of a pointwise operation: tensors and numbers in order."""
    order = ("self", "inp", "a", "pred", "input", "other", "b", "exponent")
    found = {n: v for n, v in node.arguments.items() if n in order}
    if "pred" in found:
        return [node.arguments[name] for name in ("pred", "a", "b")]
    return [found[name] for name in order if name in found]


def _pointwise(operation: str) -> Rule:
    def rule(builder: Builder, node: Node) -> None:
        given = _operands(node)
        own = operation
        dtypes = [builder.graph.specification(g).dtype for g in given if isinstance(g, Use | Made)]
        if dtypes and dtypes[-1] is DType.BOOL and own in _LOGICAL:
            own = _LOGICAL[own]

        def body(index: Index) -> Scalar:
            operands = [builder.element(g, broadcast(index, builder.shape(g))) for g in given]
            return Apply(own, tuple(alike(operands)), node.results[0].dtype)

        builder.map(node, body)

    return rule


def _unary(*steps: tuple[str, float | None]) -> Rule:
    """A chain of operations on one operand, each with a number on its right, or none."""

    def rule(builder: Builder, node: Node) -> None:
        (given, *_) = _operands(node)
        dtype = node.results[0].dtype

        def body(index: Index) -> Scalar:
            found = builder.element(given, broadcast(index, builder.shape(given)))
            for operation, number in steps:
                beside = () if number is None else (Number(number, dtype),)
                found = Apply(operation, (found, *beside), dtype)
            return found

        builder.map(node, body)

    return rule


def _gelu(builder: Builder, node: Node) -> None:
    source = node.arguments["self"]
    how = (("approximate", str(node.arguments["approximate"])),)
    builder.map(
        node,
        lambda index: Apply("gelu", (builder.element(source, index),), node.results[0].dtype, how),
    )


def _constant(builder: Builder, node: Node, name: str) -> float:
    """A number that a node is given, and that no size decides."""
    found = builder.element(node.arguments[name], ())
    if not isinstance(found, Number) or not isinstance(found.value, int | float):
        refuse(
            f"the built-in Designer has no form for {plain(node.operation)} with {name} that is "
            "computed"
        )
    return float(found.value)


def _with(operation: str, **attributes: str) -> Rule:
    """The rule of one operation whose `attributes` are the arguments of the node named there."""

    def rule(builder: Builder, node: Node) -> None:
        dtype = node.results[0].dtype
        given = tuple(
            (name, _constant(builder, node, argument)) for name, argument in attributes.items()
        )
        source = node.arguments["self"]
        builder.map(
            node, lambda index: Apply(operation, (builder.element(source, index),), dtype, given)
        )

    return rule


def _clamp(builder: Builder, node: Node) -> None:
    """A clamp to those of the two bounds that are given, which are numbers or tensors."""
    dtype = node.results[0].dtype
    bounds = {"max": ("min", "min_val"), "min": ("max", "max_val")}
    names = [(operation, name) for operation, each in bounds.items() for name in each]

    def body(index: Index) -> Scalar:
        found = builder.element(node.arguments["self"], index)
        for operation, name in names:
            bound = node.arguments.get(name)
            if bound is not None:
                beside = builder.element(bound, broadcast(index, builder.shape(bound)))
                found = Apply(operation, tuple(alike((found, beside))), dtype)
        return found

    builder.map(node, body)


def _elu(builder: Builder, node: Node) -> None:
    dtype, source = node.results[0].dtype, node.arguments["self"]
    alpha, scale, inner = (
        _constant(builder, node, name) for name in ("alpha", "scale", "input_scale")
    )
    if inner != 1:
        refuse("the built-in Designer has no form for elu with an input scale")

    def body(index: Index) -> Scalar:
        x = builder.element(source, index)
        found: Scalar = Apply("elu", (x,), dtype, (("alpha", alpha),))
        if scale != 1:
            found = Apply("mul", (found, Number(scale, dtype)), dtype)
        return found

    builder.map(node, body)


#: PyTorch's default of `softplus`.
_THRESHOLD = 20


def _softplus(builder: Builder, node: Node) -> None:
    """log(1 + exp(beta*x)) / beta, and x where beta*x is above the threshold: that of PyTorch's own
    default is x to the last digit of f32 anyway."""
    dtype, source = node.results[0].dtype, node.arguments["self"]
    beta, threshold = (builder.element(node.arguments[name], ()) for name in ("beta", "threshold"))

    def body(index: Index) -> Scalar:
        x = builder.element(source, index)
        if isinstance(beta, Number) and beta.value == 1:
            scaled: Scalar = x
            found = Apply("softplus", (x,), dtype)
        else:
            scaled = Apply("mul", tuple(alike((x, beta))), dtype)
            softplus = Apply("softplus", (scaled,), dtype)
            found = Apply("div", tuple(alike((softplus, beta))), dtype)
        if isinstance(threshold, Number) and threshold.value == _THRESHOLD:
            return found
        above = Apply("gt", tuple(alike((scaled, threshold))), DType.BOOL)
        return Apply("where", (above, x, found), dtype)

    builder.map(node, body)


def _fmod(builder: Builder, node: Node) -> None:
    """The remainder with the sign of the dividend."""
    given = _operands(node)
    dtype = node.results[0].dtype

    def body(index: Index) -> Scalar:
        one, other = alike([builder.element(g, broadcast(index, builder.shape(g))) for g in given])
        sizes = tuple(Apply("abs", (each,), dtype) for each in (one, other))
        return Apply("mul", (Apply("sign", (one,), dtype), Apply("mod", sizes, dtype)), dtype)

    builder.map(node, body)


def _div(builder: Builder, node: Node) -> None:
    """A quotient; that of integers is cut off towards zero."""
    given = _operands(node)
    dtype = node.results[0].dtype

    def body(index: Index) -> Scalar:
        one, other = alike([builder.element(g, broadcast(index, builder.shape(g))) for g in given])
        if not dtype.is_integer:
            return Apply("div", (one, other), dtype)
        sizes: list[Scalar] = [Apply("abs", (each,), dtype) for each in (one, other)]
        signed = [one, other]
        if isinstance(other, Number) and isinstance(other.value, int) and other.value > 0:
            sizes[1], signed = other, [one]
        found = Apply("floordiv", tuple(sizes), dtype)
        for each in signed:
            found = Apply("mul", (Apply("sign", (each,), dtype), found), dtype)
        return found

    builder.map(node, body)


def _signbit(builder: Builder, node: Node) -> None:
    """Whether a number is below 0, or is -0.0, the zero whose reciprocal is below 0."""
    (source, *_) = _operands(node)

    def body(index: Index) -> Scalar:
        found = builder.element(source, index)
        if found.dtype.is_float:
            zero = Apply("eq", (found, Number(0.0, found.dtype)), DType.BOOL)
            over = Apply("div", (Number(1.0, found.dtype), found), found.dtype)
            found = Apply("where", (zero, over, found), found.dtype)
        number = Number(0.0 if found.dtype.is_float else 0, found.dtype)
        return converted(Apply("lt", (found, number), DType.BOOL), node.results[0].dtype)

    builder.map(node, body)


def _empty(builder: Builder, node: Node) -> None:
    """An uninitialized tensor, as zeros: all elements that are read were written before."""
    dtype = node.results[0].dtype
    builder.map(node, lambda index: Number(0.0 if dtype.is_float else 0, dtype))


def _reciprocal(builder: Builder, node: Node) -> None:
    (source, *_) = _operands(node)
    dtype = node.results[0].dtype
    builder.map(
        node,
        lambda index: Apply("div", (Number(1.0, dtype), builder.element(source, index)), dtype),
    )


def _convert(builder: Builder, node: Node) -> None:
    source = node.arguments.get("a", node.arguments.get("self"))
    dtype = node.results[0].dtype

    def body(index: Index) -> Scalar:
        found = builder.element(source, index)
        if found.dtype is dtype:
            return found
        if dtype is DType.BOOL:
            return Apply("ne", (found, Number(0, found.dtype)), dtype)
        if not (found.dtype.is_float and dtype.is_integer):
            return Apply("cast", (found,), dtype)
        if dtype.bytes < _WIDE_INTEGER:  # PyTorch makes 0 of NaN there, and a sketch refuses it
            missing = Apply("isnan", (found,), DType.BOOL)
            found = Apply("where", (missing, Number(0.0, found.dtype), found), found.dtype)
        return Apply("cast", (found,), dtype, (("round", "zero"),))

    builder.map(node, body)


def _filled(name: str) -> Rule:
    """A tensor of one number."""

    def rule(builder: Builder, node: Node) -> None:
        value = builder.element(node.arguments[name], ())
        dtype = node.results[0].dtype
        number = value if isinstance(value, Number) else None
        if number is None:
            refuse("the built-in Designer has no form for a tensor filled with an element")
        builder.map(node, lambda index: attrs.evolve(number, dtype=dtype))

    return rule


def _iota(builder: Builder, node: Node) -> None:
    start, step = node.arguments["start"], node.arguments["step"]

    def body(index: Index) -> Scalar:
        scaled = ir.Binary("*", index[0], step)
        return Number(ir.Binary("+", scaled, start), node.results[0].dtype)

    builder.map(node, body)


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    **{name: _pointwise(operation) for name, operation in _POINTWISE.items()},
    "gelu": _gelu,
    "elu": _elu,
    "softplus": _softplus,
    "leaky_relu": _with("leaky_relu", slope="negative_slope"),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), _clamp),
    "reciprocal": _reciprocal,
    "fmod": _fmod,
    "div": _div,
    "signbit": _signbit,
    **dict.fromkeys(("empty", "empty_strided", "empty_permuted", "empty_like"), _empty),
    "log10": _unary(("log2", None), ("mul", 0.30102999566398120)),
    "convert_element_type": _convert,
    "full_like": _filled("fill_value"),
    "full": _filled("fill_value"),
    "scalar_tensor": _filled("s"),
    "iota": _iota,
}

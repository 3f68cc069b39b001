"""Sources, inputs and references of one-operation sketches, for the tests of the op table."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from sketchc.base.diagnostics import Source, has_errors
from sketchc.base.types import DType
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_array
from sketchc.parsing.parser import parse

F = torch.nn.functional
FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i32", "i64")
SIZES = (0, 1, 7, 8, 9, 13)
TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "bool": torch.bool,
}
EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7, -3.0, 0.5, 1.5, 2.5, -2.5, 100.0]


def elaborated(text: str):
    tree, found = parse(Source("one.sketch", text))
    assert tree is not None, found
    sketch, more = elaborate(tree.sketches[0], {})
    assert sketch is not None, more
    assert not has_errors(more), more
    sketch, more = infer_domains(sketch)
    assert not has_errors(more), more
    return sketch


def to_torch(array: np.ndarray):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(array.copy())


def assert_same(actual: np.ndarray, expected, dtype: str, slack: float = 1.0) -> None:
    """Floats to `slack` roundings of `dtype`, everything else exactly."""
    assert list(actual.shape) == list(expected.shape)
    if dtype not in EPSILON:
        np.testing.assert_array_equal(actual, expected.to(TORCH[dtype]).numpy())
        return
    rounded = expected.double().to(TORCH[dtype]).double()
    tiny = 1e-7 if dtype == "f16" else 1e-44 if dtype != "f64" else 1e-300
    torch.testing.assert_close(
        torch.from_numpy(actual.astype(np.float64)),
        rounded,
        rtol=slack * EPSILON[dtype],
        atol=tiny,
        equal_nan=True,
    )


def inputs(generator: np.random.Generator, size: int, dtype: str, special: bool) -> np.ndarray:
    array = random_array(generator, (size,), DType(dtype))
    if special and dtype in EPSILON:
        count = min(size, len(SPECIAL))
        places = generator.permutation(size)[:count]
        array[places] = np.array(SPECIAL[:count]).astype(array.dtype)
    return array


def one_operation(call: str, sources: list[str], result: str) -> str:
    """A sketch that applies `call` (to x0, x1, ..., y) tile by tile."""
    declared = " ".join(f"X{n}[M]: in {dtype};" for n, dtype in enumerate(sources))
    body = []
    for n in range(len(sources)):
        body += [f"x{n} = alloc([T])", f"load(X{n}[i*T:(i+1)*T] -> x{n})"]
    body += [f"y = alloc([T], {result})", call, "store(y -> Y[i*T:(i+1)*T])"]
    lines = "\n        ".join(body)
    return f"""sketch one {{
    symbols: M;
    tensors: {declared} Y[M]: out {result};
    constexpr: T = 8;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        {lines}
}}
"""


def check(call, sources, result, expect, arrays=None, special=True, slack=1.0) -> None:
    sketch = elaborated(one_operation(call, sources, result))
    generator = np.random.default_rng(sum(map(ord, call + result)))
    for size in SIZES:
        made = arrays or (lambda n, g, s: inputs(g, s, sources[n], special))
        given = {f"X{n}": made(n, generator, size) for n in range(len(sources))}
        for padding in (0, 3):
            options = Options(check_domains=True, shuffle=size, padding=padding)
            outputs = interpret(sketch, given, {"M": size}, options=options).outputs
            expected = expect(*(to_torch(array) for array in given.values()))
            assert_same(outputs["Y"], expected, result, slack)


def wide(function):
    """PyTorch's function on the operands in float64."""
    return lambda *operands: function(*(operand.double() for operand in operands))


def keep_nan(function):
    """As `function`, but NaN stays NaN (NumPy's rule where PyTorch has another)."""
    return lambda x: torch.where(torch.isnan(x), x, function(x))


UNARY_FLOAT = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "atan": torch.atan,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "elu": F.elu,
    "selu": F.selu,
    "leaky_relu": F.leaky_relu,
}
UNARY_SAME = {
    "copy": lambda x: x,
    "neg": lambda x: -x,
    "abs": torch.abs,
    "relu": torch.relu,
    "clamp": lambda x: torch.clamp(x, -2, 5),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sign": torch.sign,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "pow": torch.pow,
}
COMPARISONS = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
}
TESTS = {"isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite}
BITWISE = {
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
}
REDUCTIONS = {
    "reduce_sum": lambda x, axis: torch.sum(x, axis),
    "reduce_prod": lambda x, axis: torch.prod(x, axis),
    "reduce_max": lambda x, axis: torch.amax(x, axis),
    "reduce_min": lambda x, axis: torch.amin(x, axis),
    "reduce_any": lambda x, axis: torch.any(x != 0, axis),
    "reduce_all": lambda x, axis: torch.all(x != 0, axis),
}
OTHERS = {
    "div", "atan2", "floordiv", "mod", "fma", "logical_not", "bitwise_not", "shl", "shr", "where",
    "cast", "fill", "gemm", "matmul", "dot", "transpose", "broadcast",
}  # fmt: skip
#: The rows that order, scan or move lanes, and those that expand to others: test_ops_lanes.py.
LANES = {
    "cumsum", "cumprod", "argmax", "argmin", "topk", "sort", "permute", "reshape", "concat",
    "rand", "randn", "softmax", "layer_norm", "rms_norm", "rank",
}  # fmt: skip

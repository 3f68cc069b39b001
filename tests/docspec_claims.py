"""What the API documents of the Triton targets say exists, and what they say does not, as kernels.

Each claim is the body of a kernel over ready-made tiles (`PRELUDE`); the titles of `AVAILABLE` are
those of the entries of `api.md`, whose claims make one kernel. `test_docspec_api_claims.py`
compiles them all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

#: Module level of the generated file. `libdevice` is imported where a target has it.
HEADER = """
import triton
import triton.language as tl
{imports}
GLOBAL = 2.0

@triton.jit
def add(a, b):
    return a + b

@triton.jit
def product(a, b):
    return a * b

@triton.jit
def add_two(a, b, c, d):
    return a + c, b + d

@triton.jit
def add_three(a, b, c, d, e, f):
    return a + d, b + e, c + f

@triton.jit
def nan_maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
"""

#: Tiles [16, 32] of f32 (x, y), f16 (h), i32 (i), i64 (k); [32, 16] (xb, hb); [32] (v).
PRELUDE = """
@triton.jit
def {name}(X, H, I, L, O, n):
    r16 = tl.arange(0, 16)
    r32 = tl.arange(0, 32)
    at = r16[:, None] * 32 + r32[None, :]
    flat = r16[:, None] * 16 + r16[None, :]
    x = tl.load(X + at)
    y = tl.load(X + at + 512)
    v = tl.load(X + r32)
    h = tl.load(H + at)
    hb = tl.load(H + r32[:, None] * 16 + r16[None, :])
    xb = tl.load(X + r32[:, None] * 16 + r16[None, :])
    i = tl.load(I + at)
    k = tl.load(L + at)
"""
#: Arguments of every claim, as the launchers name their types.
TYPES = {"X": "*fp32", "H": "*fp16", "I": "*i32", "L": "*i64", "O": "*fp32", "n": "i32"}

_Claims = Mapping[str, tuple[str, ...]]


def _each(*expressions: str) -> tuple[str, ...]:
    """Claims that store one f32 tile each."""
    return tuple(f"tl.store(O + at, {expression})" for expression in expressions)


_LOOP = "a = x\nfor q in {}:\n    a += tl.load(X + q * 512 + at)\ntl.store(O + at, a)"
_TRANSPOSED = "tl.store(O + r32[:, None] * 16 + r16[None, :], {})"
_PRODUCT = "tl.store(O + flat, {})"

#: Entries that both targets share.
_COMMON: _Claims = {
    "tl.program_id, tl.num_programs": _each(
        "x + tl.program_id(0) + tl.program_id(axis=1) + tl.program_id(2) + tl.num_programs(0)",
        "x + tl.program_id(0).to(tl.int64)",
    ),
    "tl.cdiv": _each("x + tl.cdiv(n, 16)"),
    "Branches on scalars": (
        "a = x\nif n > 3:\n    a = x + y\nelse:\n    a = x - y\ntl.store(O + at, a)",
        "a = x\nif tl.load(I + n) > 3:\n    a = x + y\ntl.store(O + at, a)",
        "if 16 == 16:\n    tl.store(O + at, x)",
    ),
    "tl.debug_barrier": (
        "tl.store(O + at, x)\ntl.debug_barrier()\ntl.store(O + at, tl.load(O + at))",
    ),
    "tl.load": (
        "tl.store(O + at, tl.load(X + at, mask=r16[:, None] < n, other=0.0))",
        'tl.store(O + at, tl.load(X + at, mask=r16[:, None] < n, other=float("-inf")))',
        "tl.store(O + at, x + tl.load(X + n))",
        "tl.store(O + at, tl.load(X + i))",
    ),
    "tl.store": (
        "tl.store(O + at, x, mask=(r16[:, None] < n) & (r32[None, :] < n))",
        "tl.store(H + at, x)",
        "tl.store(O + n, tl.sum(v, axis=0))",
    ),
    "tl.atomic_add and its like": (
        "tl.atomic_add(I + at, i, mask=r16[:, None] < n)",
        "tl.atomic_max(I + at, i)\ntl.atomic_min(I + at, i)",
        "tl.atomic_and(I + at, i)\ntl.atomic_or(I + at, i)\ntl.atomic_xor(I + at, i)",
        "tl.atomic_xchg(I + at, i)",
    ),
    "tl.arange": _each("x + tl.arange(16, 48)[None, :]"),
    "tl.full, tl.zeros": _each(
        "tl.full((16, 32), 1.0, tl.float32)",
        'x + tl.full((), float("-inf"), tl.float32)',
        "tl.zeros((16, 32), tl.float32)",
        "tl.zeros_like(x)",
    ),
    "tl.cast": _each(
        "tl.cast(i, tl.float32)",
        "i.to(tl.float32, bitcast=True)",
        "x / tl.cast(n, tl.float32)",
        "x.to(tl.bfloat16).to(tl.float32)",
        "(i != 0).to(tl.float32)",
    ),
    "tl.where": _each(
        "tl.where(x > 0, x, 0.01 * x)", "tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x))"
    ),
    "Operators": _each("-(x + y) * x - y / x + v[None, :]", "i / 7"),
    "Comparisons and bits": (
        *_each("tl.where(((x > 0) & (y <= 0)) | ~(x != x) ^ (x == y), x, y)"),
        *_each('tl.where((tl.abs(x) == float("inf")) == 0, x, y)'),
        "tl.store(I + at, ((i & 3) | (i ^ 1) | ~i) + ((i << 2) >> 1))",
    ),
    "tl.maximum, tl.minimum, tl.clamp": (
        *_each("tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)"),
        *_each("tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)"),
        *_each("tl.clamp(x, 0.0, 1.0)"),
        "tl.store(I + at, tl.maximum(tl.minimum(i, 3), 0))",
    ),
    "Integer quotient and remainder": ("tl.store(I + at, i // 7 + i % 7)", *_each("x % y")),
    "tl.exp, tl.exp2": _each("tl.exp(x)", "tl.exp2(x)", "tl.sigmoid(x)"),
    "tl.sqrt, tl.rsqrt": _each("tl.sqrt(x)", "tl.rsqrt(x)", "tl.sqrt_rn(x)"),
    "tl.erf": _each("tl.erf(x)"),
    "tl.sum": (
        *_each("x - tl.sum(x, axis=1)[:, None]", "x - tl.sum(x, axis=0, keep_dims=True)"),
        *_each("x - tl.sum(x)", "x - tl.sum(i, axis=1)[:, None]", "x - tl.sum(k, axis=1)[:, None]"),
        "z = tl.load(X + tl.arange(0, 2)[:, None, None] * 512 + at[None, :, :])\n"
        "tl.store(O + tl.arange(0, 2)[:, None] * 32 + r32[None, :], tl.sum(z, axis=1))",
    ),
    "tl.max, tl.min": _each(
        "x - tl.max(x, axis=1)[:, None]",
        "x - tl.min(x, axis=1, keep_dims=True)",
        "x - tl.max((x != 0).to(tl.int32), axis=1)[:, None]",
    ),
    "tl.reduce": _each(
        "x - tl.reduce(x, 1, nan_maximum)[:, None]",
        "x - tl.reduce(x, 1, product, keep_dims=True)",
    ),
    "tl.argmax, tl.argmin": _each(
        "x + tl.argmax(x, axis=1)[:, None]",
        "x + tl.argmin(x, axis=1, tie_break_left=True)[:, None]",
    ),
    "tl.trans, tl.permute": (
        _TRANSPOSED.format("tl.trans(x)"),
        _TRANSPOSED.format("tl.permute(x, (1, 0))"),
    ),
    "tl.reshape, tl.expand_dims, tl.broadcast_to": (
        "tl.store(O + tl.arange(0, 512), tl.reshape(x, (512,)))",
        *_each("x + tl.expand_dims(v, 0)", "tl.broadcast_to(v[None, :], (16, 32))"),
        *_each("x + tl.sum(tl.where(r32 == 3, v, 0.0), axis=0)"),
    ),
    "tl.rand, tl.randn": _each("tl.rand(0, at)", "tl.randn(n, at)"),
}

_JOINED = (
    "tl.store(O + tl.arange(0, 1024), tl.reshape(tl.join(x, y), (1024,)))",
    "a, b = tl.split(tl.join(x, y))\ntl.store(O + at, a + b)",
    "tl.store(O + tl.arange(0, 64), tl.interleave(v, v))",
)
_THREE = "a, b, c = tl.reduce((x, y, x), 1, add_three)\ntl.store(O + at, x + (a + b + c)[:, None])"
_DOTS = (
    _PRODUCT.format('tl.dot(x, xb, input_precision="ieee")'),
    _PRODUCT.format("tl.dot(h, hb)"),
    _PRODUCT.format("tl.dot(h, hb, tl.zeros((16, 16), tl.float32))"),
    _PRODUCT.format("tl.dot(h.to(tl.bfloat16), hb.to(tl.bfloat16))"),
    "tl.store(I + flat, tl.dot(i.to(tl.int8), tl.trans(i).to(tl.int8), out_dtype=tl.int32))",
)

#: target -> title of an API entry -> kernels that must compile and run.
AVAILABLE: Mapping[str, _Claims] = {
    "triton_cuda": {
        **_COMMON,
        "tl.range": (
            _LOOP.format("tl.range(0, n, 2, num_stages=6)"),
            _LOOP.format("tl.range(n, loop_unroll_factor=2)"),
            _LOOP.format("range(0, n, 2)"),
            _LOOP.format("tl.static_range(4)"),
        ),
        "Launch options": _each("x"),
        "tl.load": (
            *_COMMON["tl.load"],
            "tl.store(O + at, tl.load(X + at, mask=r16[:, None] < n, other=y))",
            'tl.store(O + at, tl.load(X + at, eviction_policy="evict_first"))',
        ),
        "tl.atomic_add and its like": (
            *_COMMON["tl.atomic_add and its like"],
            "tl.atomic_cas(I, 0, 1)",
            "tl.atomic_add(X + at, x)",
        ),
        "tl.maximum, tl.minimum, tl.clamp": (
            *_COMMON["tl.maximum, tl.minimum, tl.clamp"],
            *_each("tl.clamp(x, 0.0, 1.0, propagate_nan=tl.PropagateNan.ALL)"),
        ),
        "tl.div_rn, tl.fdiv, tl.sqrt_rn": _each(
            "tl.div_rn(x, y)", "tl.fdiv(x, y)", "tl.sqrt_rn(x)", "tl.floor(tl.div_rn(x, y))"
        ),
        "tl.fma": _each("tl.fma(x, y, x)"),
        "tl.log, tl.log2": _each("tl.log(x)", "tl.log2(x)"),
        "tl.sin, tl.cos": _each("tl.sin(x) / tl.cos(x)"),
        "tl.abs, tl.floor, tl.ceil": (
            *_each("tl.abs(x)", "tl.where(x < 0, tl.ceil(x), tl.floor(x))"),
            "tl.store(I + at, tl.abs(i))",
        ),
        "Powers and arc tangents": _each("tl.exp2(y * tl.log2(x))"),
        "tl.sum": (
            *_COMMON["tl.sum"],
            *_each("x + tl.sum(x > 0, axis=1)[:, None]"),
            *_each("x - tl.sum(h, axis=1, dtype=tl.float32)[:, None]"),
        ),
        "tl.reduce": (
            *_COMMON["tl.reduce"],
            "a, b = tl.reduce((x, y), 1, add_two)\ntl.store(O + at, x + (a + b)[:, None])",
            _THREE,
        ),
        "tl.cumsum, tl.cumprod, tl.associative_scan": _each(
            "tl.cumsum(x, axis=1)",
            "tl.cumprod(x, axis=1)",
            "tl.cumsum(x, axis=0, reverse=True)",
            "tl.associative_scan(x, 1, add)",
        ),
        "tl.sort, tl.topk": (
            *_each("tl.sort(x, dim=1, descending=True)"),
            "tl.store(O + tl.arange(0, 8), tl.topk(v, 8))",
        ),
        "tl.gather, tl.histogram, tl.flip": (
            *_each("tl.gather(x, i, 1)", "tl.flip(x, 1)"),
            "tl.store(I + r32, tl.histogram(tl.reshape(i, (512,)), 32))",
        ),
        "tl.dot": (
            *_DOTS,
            _PRODUCT.format('tl.dot(x, xb, input_precision="tf32")'),
            _PRODUCT.format('tl.dot(x, xb, input_precision="tf32x3")'),
            "d = x.to(tl.float64)\n"
            "c = tl.dot(d, xb.to(tl.float64), out_dtype=tl.float64)\n"
            "tl.store(O + flat, c.to(tl.float32))",
            "a = tl.load(X + r32[None, :])\n"
            'c = tl.dot(a, xb, input_precision="ieee")\n'
            "tl.store(O + r16[None, :], c)",
        ),
        "tl.join, tl.split, tl.interleave, tl.cat": (
            *_JOINED,
            "tl.store(O + tl.arange(0, 64), tl.cat(v, v, can_reorder=True))",
        ),
        "tl.rand, tl.randn": (
            *_COMMON["tl.rand, tl.randn"],
            *_each(
                "tl.randint(0, at) * 1.0", "tl.umulhi(at.to(tl.uint32), at.to(tl.uint32)) * 1.0"
            ),
        ),
        "tl.multiple_of, tl.max_contiguous, tl.assume": (
            "tl.assume(n > 0)\n"
            "tl.store(O + at, x + tl.multiple_of(n, 2) + tl.max_contiguous(i, (1, 32)))",
        ),
        "tl.static_assert, tl.device_print": (
            'tl.static_assert(16 == 16, "equal")\ntl.device_assert(n > 0, "positive")\n'
            'tl.store(O + at, x)\nif n > 5:\n    tl.device_print("n", n)',
        ),
    },
    "triton_ascend": {
        **_COMMON,
        "range, tl.range, tl.static_range": (
            _LOOP.format("range(tl.program_id(0), n, tl.num_programs(0))"),
            _LOOP.format("tl.range(0, n, 2, num_stages=3)"),
            _LOOP.format("tl.static_range(4)"),
            "a = x\nq = 0\nwhile q < n:\n    a += y\n    q += 1\ntl.store(O + at, a)",
            "if n > 40:\n    return\ntl.store(O + at, x)",
        ),
        "tl.fma, tl.div_rn": _each("tl.fma(x, y, x)", "tl.div_rn(x, y)"),
        "tl.exp, tl.exp2": _each("tl.exp(x)", "tl.exp2(x)", "tl.sigmoid(x)", "tl.exp(h)"),
        "tl.log, tl.log2, tl.math.log1p": _each("tl.log(x)", "tl.log2(x)", "tl.math.log1p(x)"),
        "tl.sin, tl.cos, tl.math.tan, tl.math.atan": _each(
            "tl.sin(x)", "tl.cos(x)", "tl.math.tan(x)", "tl.math.atan(x)"
        ),
        "tl.math.tanh": _each("tl.math.tanh(x)"),
        "tl.abs, tl.floor, tl.ceil, tl.math.rint, tl.math.trunc": (
            *_each("tl.abs(x)", "tl.floor(x)", "tl.ceil(x)", "tl.math.rint(x)", "tl.math.trunc(x)"),
            *_each("tl.math.round(x)"),
            "tl.store(I + at, tl.abs(i))",
        ),
        "tl.math.pow": _each("tl.math.pow(x, y)"),
        "tl.max, tl.min": (
            *_COMMON["tl.max, tl.min"],
            *_each("x - tl.max(x, axis=1, propagate_nan=True)[:, None]"),
        ),
        "tl.cumsum, tl.cumprod": _each(
            "tl.cumsum(x, axis=1)", "tl.cumprod(x, axis=1)", "tl.cumsum(x, axis=0, reverse=True)"
        ),
        "tl.flip, tl.gather": _each("tl.flip(x, 1)", "tl.gather(x, i, 1)"),
        "tl.dot": (*_DOTS, _PRODUCT.format('tl.dot(x, xb, input_precision="hf32")')),
        "tl.join, tl.interleave": _JOINED,
    },
}

#: Entries that the front end takes and the check on a CPU cannot run.
UNCHECKED: Mapping[str, _Claims] = {
    "triton_ascend": {
        "tl.sort, tl.topk, tl.histogram": (
            *_each("tl.sort(x, 1, False)"),
            "tl.store(I + r32, tl.histogram(tl.reshape(i, (512,)), 32))",
            "a, b = tl.reduce((x, y), 1, add_two)\ntl.store(O + at, x + (a + b)[:, None])",
            *_each("x + tl.reduce(i, 1, product)[:, None]"),
            'tl.store(H + at, tl.cast(x, tl.float16, fp_downcast_rounding="rtz"))',
        )
    }
}

_NOWHERE = (
    *_each("tl.pow(x, y)", "tl.prod(x, axis=1)", "tl.any(x > 0, axis=1)", "tl.mean(x, axis=1)"),
    *_each("tl.ones((16, 32), tl.float32)", "tl.full_like(x, 1.0)", "tl.math.expm1(x)"),
    *_each("tl.math.max(x, y)", "tl.math.fmod(x, y)", "x ** 2", "x @ xb", "x // y"),
    *_each("tl.exp(i)", "abs(x)", "float(n) + x", "x * GLOBAL", "tl.where(0 < x < 1, x, y)"),
    *_each("x + tl.arange(0, n)", "tl.load(X + at, other=0.0)", "tl.cat(v, v)"),
    "tl.store(O, v[0])",
    "tl.store(O + tl.arange(0, 8), v[0:8])",
    "for q in range(n):\n    if q > 3:\n        break\n    tl.store(O + at, x)",
    "for q in range(n):\n    if q > 3:\n        continue\n    tl.store(O + at, x)",
    "f = lambda a: a + 1\ntl.store(O + at, f(x))",
    "if n > 4:\n    a = x\ntl.store(O + at, a)",
    "for q in range(n):\n    a = x\ntl.store(O + at, a)",
    "a = 0\nfor q in range(n):\n    a = a + x\ntl.store(O + at, a)",
    "a = h\nfor q in range(n):\n    a = a + x\ntl.store(O + at, a)",
    "if x > 0:\n    x = y\ntl.store(O + at, x)",
    _PRODUCT.format("tl.dot(x, hb)"),
)
_NO_DEEP = "a = tl.load(X + r16[:, None] * 8 + tl.arange(0, 8)[None, :])\n" + _PRODUCT.format(
    "tl.dot(a, tl.trans(a))"
)

#: target -> kernels that must be refused.
MISSING: Mapping[str, tuple[str, ...]] = {
    "triton_cuda": (
        *_NOWHERE,
        _NO_DEEP,
        *_each("tl.tanh(x)", "tl.math.tanh(x)", "tl.math.pow(x, y)", "tl.math.log1p(x)"),
        *_each("tl.math.round(x)", "tl.math.isnan(x)", "tl.exp(h)", "tl.exp(x.to(tl.bfloat16))"),
        *_each("tl.max(x, axis=1, propagate_nan=tl.PropagateNan.ALL)[:, None] + x"),
        "tl.store(O + tl.arange(0, 10), 0.0)",
        "tl.store(O + tl.arange(0, 2097152), 0.0)",
        _PRODUCT.format('tl.dot(x, xb, input_precision="hf32")'),
    ),
    "triton_ascend": (
        *_NOWHERE,
        *_each("tl.sum(h, axis=1, dtype=tl.float32)[:, None] + x", "tl.math.exp10(x)"),
        *_each("x.sum(axis=1)[:, None] + x", "x.to(tl.float8e4nv).to(tl.float32)"),
        *_each("tl.load(X + at, mask=r16[:, None] < n, other=y)"),
        *_each("x + tl.div_rn(tl.load(X), tl.load(X + 1))"),
        _THREE,
        "z = (x, y)\ntl.store(O + at, z[0])",
        *(
            _PRODUCT.format(f'tl.dot(x, xb, input_precision="{name}")')
            for name in ("tf32", "tf32x3")
        ),
    ),
}

#: Functions that compile for a GPU and fail in Triton's interpreter.
COMPILED_ONLY: tuple[str, ...] = (
    *_each("libdevice.tanh(x)", "libdevice.pow(x, y)", "libdevice.rint(x)", "x.exp()"),
    *_each("tl.map_elementwise(add, x, y)"),
    _PRODUCT.format('tl.dot(x, xb, input_precision="bf16x3")'),
)
#: What the interpreter takes and the compiler refuses, as basic.md warns.
INTERPRETED_ONLY: tuple[str, ...] = (
    "for q in range(n):\n    if q > 1:\n        break\n    tl.store(O + at, x)",
    "f = lambda a: a + 1\ntl.store(O + at, f(x))",
    "a = 0\nfor q in range(n):\n    a = a + x\ntl.store(O + at, a)",
    _NO_DEEP,
)


def kernel_name(number: int) -> str:
    """The name of a claim's kernel."""
    return f"claim_{number}"


def module_of(claims: tuple[str, ...], imports: str = "") -> str:
    """A Python file with one kernel per claim."""
    parts = [HEADER.format(imports=imports)]
    for number, body in enumerate(claims):
        parts.append(PRELUDE.format(name=kernel_name(number)) + textwrap.indent(body, "    "))
    return "\n\n".join(parts) + "\n"

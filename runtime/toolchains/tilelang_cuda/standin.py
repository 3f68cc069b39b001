"""Stands in for `tilelang.language` where kernels run on the CPU, through TileLang's C backend.

What that lacks becomes what it has: one thread runs a block, shared memory and fragments are local
arrays, parallel and pipelined loops plain ones. A bfloat16 is held as its 16 bits.
"""

# mypy: ignore-errors

import builtins
import math
from functools import partial

import tilelang.language as real
from tilelang.language import *  # noqa: F403
from tilelang.language.kernel import kernel_launch_factory


def _held(dtype):
    """The type in which elements of a type are held."""
    return "uint16" if str(dtype) == "bfloat16" else dtype


class _Exact(type(real.float32)):
    """A type of floats whose literals keep all their digits: the C backend prints seven."""

    def __call__(self, value=None, **options):
        short = not isinstance(value, builtins.float) or not math.isfinite(value)
        if short or builtins.float(f"{value:.6e}") == value:
            return super().__call__(value, **options)
        fraction, exponent = math.frexp(value)
        digits = real.int64(builtins.int(math.ldexp(fraction, 53)))
        number = real.call_extern("float64", "exact_number", digits, real.int32(exponent - 53))
        return number if str(self) == "float64" else real.cast(number, "float32")


float32, float64 = _Exact("float32"), _Exact("float64")


def _without(made):
    """A function without the options that only a GPU knows."""
    return lambda *given, **_: made(*given)


def _holding(made):
    """A function of a shape and an element type, which becomes the one that holds such elements."""
    return lambda shape, dtype="float32", *_, **__: made(shape, _held(dtype))


Tensor = _holding(real.Tensor)
alloc_local = alloc_shared = alloc_fragment = _holding(real.alloc_local)
alloc_var = _without(lambda dtype: real.alloc_var(_held(dtype)))
Parallel, Pipelined = _without(real.grid), _without(real.serial)
Kernel = kernel_launch_factory(_without(real.Kernel))
vectorized = unroll = real.serial
sync_threads, get_thread_binding = _without(lambda: None), _without(lambda *_: 0)


def _called(name, *values):
    """A function of the C library, in the type of its arguments."""
    kind = str(values[0].dtype)
    return real.call_extern(kind, name if kind == "float64" else f"{name}f", *values)


def abs(x):
    """The magnitude: the C backend has none of floats."""
    return _called("fabs", x) if "float" in str(x.dtype) else real.abs(x)


fmod = partial(_called, "fmod")


def cast(value, dtype):
    """A value in another type."""
    if str(getattr(value, "dtype", "")) == "uint16":
        value = real.reinterpret(real.cast(value, "uint32") << real.uint32(16), "float32")
    if str(dtype) != "bfloat16":
        return real.cast(value, dtype)
    return real.call_extern("uint16", "bfloat16_bits", real.cast(value, "float32"))


def reinterpret(value, dtype):
    """The same bits as another type."""
    return value if value.dtype == _held(dtype) else real.reinterpret(value, _held(dtype))


def _as(value, memory):
    """A value as an element of a tile or tensor."""
    held = str(memory.dtype)
    return cast(value, "bfloat16" if held == "uint16" else held)


def fill(tile, value):
    """A tile of one value."""
    return real.fill(tile, _as(value, tile))


def copy(source, target, **_):
    """A tile to or from a window of a tensor: zero beyond that, where nothing is written."""
    bits = [str(side.dtype) == "uint16" for side in (source, target)]
    tile = source if hasattr(source, "shape") else target  # the other one is a window
    return real.copy(source, target) if bits[0] == bits[1] else _converted(source, target, tile)


@real.macro
def _converted(source, target, tile):
    before = real.alloc_local(tile.shape, source.dtype)
    after = real.alloc_local(tile.shape, target.dtype)
    real.copy(source, before)
    for place in real.grid(1, *tile.shape):
        after[list(place[1:])] = _as(before[list(place[1:])], after)
    real.copy(after, target)


def atomic_add(element, value, **_):
    """An element and a value in its place: of a bfloat16, the sum of numbers and not of bits."""
    if str(element.dtype) != "uint16":
        return real.atomic_add(element, value)
    total = cast(element, "float32") + cast(value, "float32")
    return real.buffer_store(element.buffer, cast(total, "bfloat16"), list(element.indices))


@real.macro
def gemm(A, B, C, transpose_A=False, transpose_B=False, clear_accum=False, **_):
    """C += A @ B."""
    if clear_accum:
        real.clear(C)
    for row, column, term in real.grid(*C.shape, A.shape[0 if transpose_A else 1]):
        left = A[term, row] if transpose_A else A[row, term]
        right = B[column, term] if transpose_B else B[term, column]
        C[row, column] = C[row, column] + cast(left, "float32") * cast(right, "float32")


def cumsum(source, result=None, dim=0, reverse=False, **_):
    """Running sums along an axis."""
    axis, shape = dim % len(source.shape), list(source.shape)

    def at(place, lane):
        turned = shape[axis] - 1 - lane if reverse else lane
        return [*place[1 : axis + 1], turned, *place[axis + 2 :]]

    return _summed(source, result or source, at, [1, *shape[:axis], 1, *shape[axis + 1 :]])


@real.macro
def _summed(source, result, at, others):
    for place in real.grid(*others):
        result[at(place, 0)] = source[at(place, 0)]
        for lane in real.serial(1, math.prod(source.shape) // math.prod(others)):
            result[at(place, lane)] = result[at(place, lane - 1)] + source[at(place, lane)]

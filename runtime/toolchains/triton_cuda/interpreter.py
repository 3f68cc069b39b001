"""Changes to Triton's CPU interpreter, where it differs from compiled kernels or is too slow."""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np


@functools.cache
def mend() -> None:
    """Apply all changes to Triton's interpreter; further calls do nothing."""
    import triton.language as tl
    from triton.runtime import interpreter

    for change in (
        _prepare_once,
        _count_no_overflows,
        _describe_types_once,
        _reduce_whole_rows,
        _scan_as_a_tree,
        _multiply_bfloat16,
        _round_to_bfloat16,
        _take_bools,
        _update_bfloat16,
        _flush_to_zero,
        _approximate,
        _multiply_and_add_at_once,
    ):
        change(tl, interpreter)


def _prepare_once(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter replace the functions of `triton.language` once per launch. It would
    do so again for each call of a device function, which takes longer than most such functions."""
    original = interpreter._patch_lang
    done: set[int] = set()

    def patch_lang(function: Any) -> Any:
        languages = {id(v) for v in function.__globals__.values() if v is tl or v is tl.core}
        if done and languages <= done:
            return interpreter._LangPatchScope()
        scope = original(function)
        if not done:
            # The launch itself: the functions that it replaces are restored at its end.
            restore = scope.restore

            def restore_all() -> None:
                done.clear()
                restore()

            scope.restore = restore_all
        done.update(languages)
        return scope

    interpreter._patch_lang = patch_lang


def _count_no_overflows(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter leave out the overflow checks of debug mode: without that mode it
    computes every sum and product of integers again in 64 bits, and then asserts nothing."""
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


def _describe_types_once(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter cache what depends on a type alone: the NumPy type, and a tensor's
    shape and number of elements. It would build a table of all types for each number that it reads,
    and a type of its shape for each tensor."""
    numpy_type = interpreter._get_np_dtype
    equal, initialise = tl.dtype.__eq__, tl.tensor.__init__
    numpy_types: dict[str, Any] = {}
    shapes: dict[str, tuple[Any, Any]] = {}

    def get_np_dtype(kind: Any) -> Any:
        found = numpy_types.get(kind.name)
        if found is None:
            found = numpy_types[kind.name] = numpy_type(kind)
        return found

    def is_equal(self: Any, other: Any) -> Any:
        return self is other or equal(self, other)

    def make_tensor(self: Any, handle: Any, kind: Any) -> None:
        known = shapes.get(kind.name)
        if known is None:
            initialise(self, handle, kind)
            shapes[kind.name] = (self.shape, self.numel)
        else:
            self.handle, self.type, self.dtype = handle, kind, kind.scalar
            self.shape, self.numel = known

    interpreter._get_np_dtype = get_np_dtype
    tl.dtype.__eq__ = is_equal
    tl.tensor.__init__ = make_tensor


def _reduce_whole_rows(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter reduce with a combine function over whole slices.

    It would call the function once per element, which takes a second per row of a softmax; the
    function is element-wise, so halves of the axis (a power of two long) can be combined at once.
    """

    def generic_reduce(self: Any, inputs: Any) -> Any:
        values, axis = self.unravel(inputs, self.axis)
        parts = [value.handle.data for value in values]
        kinds = [value.dtype for value in values]
        while parts[0].shape[axis] > 1:
            half = parts[0].shape[axis] // 2
            first = [part.take(range(half), axis) for part in parts]
            second = [part.take(range(half, 2 * half), axis) for part in parts]
            parts = _combined(self, kinds, first, second)
        if not self.keep_dims:
            parts = [part.squeeze(axis) for part in parts]
        return [self.to_tensor(part, kind) for part, kind in zip(parts, kinds, strict=True)]

    interpreter.ReduceOps.generic_reduce = generic_reduce


def _combined(operation: Any, kinds: list[Any], *sides: list[Any]) -> list[Any]:
    """Apply the combine function of `operation` to whole slices: the lists `sides` hold the arrays
    of both operands, `kinds` their Triton types; returns the results' arrays."""
    arguments = [
        operation.to_tensor(part, kind)
        for side in sides
        for part, kind in zip(side, kinds, strict=True)
    ]
    result = operation.combine_fn.fn(*arguments)
    results = result if isinstance(result, tuple) else (result,)
    return [tensor.handle.data for tensor in results]


def _scan_as_a_tree(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter scan over whole slices, and as a tree, as compiled kernels do: each
    lane is combined with the lane before it, then with that two before it, then four, and so on.
    The order matters: a partial product of inner lanes may overflow where no prefix product does.
    """

    def generic_scan(self: Any, inputs: Any) -> Any:
        kinds, axis = [value.dtype for value in inputs], self.axis
        parts = [value.handle.data for value in inputs]
        lanes, step = parts[0].shape[axis], 1
        while step < lanes:
            # A tensor's extents are powers of two. The lanes that `roll` wraps around are replaced.
            before = [np.roll(part, step, axis) for part in parts]
            with np.errstate(all="ignore"):
                combined = _combined(self, kinds, before, parts)
            first, behind = range(step), range(step, lanes)
            parts = [
                np.concatenate((old.take(first, axis), new.take(behind, axis)), axis)
                for old, new in zip(parts, combined, strict=True)
            ]
            step *= 2
        return [self.to_tensor(part, kind) for part, kind in zip(parts, kinds, strict=True)]

    def cumprod(self: Any, value: Any) -> Any:
        return self.generic_scan([value])

    interpreter.ScanOps.generic_scan = generic_scan
    interpreter.ScanOps.cumprod = cumprod


def _multiply_bfloat16(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter multiply bf16 matrices: it keeps bf16 as bits in integers, and its
    `tl.dot` would multiply these integers."""
    original = interpreter.InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        wide = (_widened(handle, tl, interpreter) for handle in (a, b))
        return original(self, *wide, *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


def _widened(handle: Any, tl: Any, interpreter: Any) -> Any:
    """A bf16 `handle` converted to f32, exactly; handles of other types unchanged."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    bits = handle.data.view(np.uint16).astype(np.uint32) << 16
    return interpreter.TensorHandle(bits.view(np.float32), tl.float32)


def _round_to_bfloat16(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter round to bf16 as compiled kernels do, to nearest: it would truncate
    f32, and store the integer part of other types as if it were bf16 bits. And let it widen all
    bf16 numbers: it would make the smallest ones zero."""
    original = interpreter.InterpreterBuilder.cast_impl

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if source.dtype.scalar == tl.bfloat16:
            if target.scalar == tl.bfloat16:
                return source
            source = _widened(source, tl, interpreter)
            if target.scalar == tl.float32:
                return source
        if target.scalar != tl.bfloat16:
            return original(self, source, target)
        with np.errstate(invalid="ignore", over="ignore"):
            rounded = source.data.astype(ml_dtypes.bfloat16)
        return interpreter.TensorHandle(rounded.view(np.uint16), target.scalar)

    interpreter.InterpreterBuilder.cast_impl = cast_impl


def _take_bools(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter take Python's bools as arguments: it would convert them to 32-bit
    numbers and then refuse these as bools. The kernels that this project lowers pass integers;
    kernels by others may pass bools, which work on GPUs."""
    original = interpreter._implicit_cvt

    def implicit_cvt(argument: Any) -> Any:
        if not isinstance(argument, bool):
            return original(argument)
        handle = interpreter.TensorHandle(np.array([argument], np.bool_), tl.int1)
        return tl.tensor(handle, tl.int1)

    interpreter._implicit_cvt = implicit_cvt


def _update_bfloat16(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter execute atomic additions of bf16, whose type it does not support
    there. Its programs and lanes run one after another, so plain reads and writes are atomic."""
    original = interpreter.InterpreterBuilder.create_atomic_rmw

    def create_atomic_rmw(
        self: Any, operation: Any, pointer: Any, value: Any, mask: Any, *rest: Any
    ) -> Any:
        if value.dtype.scalar != tl.bfloat16:
            return original(self, operation, pointer, value, mask, *rest)
        old = np.zeros_like(value.data)
        numbers = value.data.view(ml_dtypes.bfloat16)
        for lane in np.argwhere(mask.data):
            at = tuple(lane)
            cell = ctypes.c_uint16.from_address(int(pointer.data[at]))
            old[at] = cell.value
            total = np.asarray(old[at]).view(ml_dtypes.bfloat16) + numbers[at]
            cell.value = int(np.asarray(total).view(np.uint16))
        return interpreter.TensorHandle(old, value.dtype.scalar)

    interpreter.InterpreterBuilder.create_atomic_rmw = create_atomic_rmw


def _flush_to_zero(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter flush f32 subnormals to zero where compiled kernels do
    (`sqrt.approx.ftz`, `rsqrt.approx.ftz`, `cvt.rmi.ftz`, `cvt.rpi.ftz`): the square root of a
    negative subnormal is no NaN there, and the ceiling of a positive one is 0."""
    smallest = np.finfo(np.float32).smallest_normal
    builder = interpreter.InterpreterBuilder

    def flushing(function: Any) -> Any:
        def flushed(self: Any, argument: Any) -> Any:
            values = argument.data
            if values.dtype == np.float32:
                values = np.where(
                    np.abs(values) < smallest, np.copysign(np.float32(0), values), values
                )
                argument = interpreter.TensorHandle(values, argument.dtype)
            return function(self, argument)

        return flushed

    for name in ("create_sqrt", "create_rsqrt", "create_floor", "create_ceil"):
        setattr(builder, name, flushing(getattr(builder, name)))


def _approximate(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter compute f32 divisions and exponentials like the instructions of
    compiled kernels: a product with the reciprocal (`div.full`), which is not always an integer
    where the exact quotient is one, and 2 to the power of a rounded product (`ex2.approx`)."""
    builder = interpreter.InterpreterBuilder
    divide, exponential = builder.create_fdiv, builder.create_exp

    def create_fdiv(self: Any, left: Any, right: Any) -> Any:
        exact = divide(self, left, right)
        if exact.data.dtype != np.float32:
            return exact
        with np.errstate(all="ignore"):
            inverse = np.float32(1) / right.data
            rough = left.data * inverse
            usual = np.abs(inverse) >= np.finfo(np.float32).smallest_normal
            usual = usual & np.isfinite(rough) & (rough != 0)
        return interpreter.TensorHandle(np.where(usual, rough, exact.data), exact.dtype)

    def create_exp(self: Any, argument: Any) -> Any:
        if argument.data.dtype != np.float32:
            return exponential(self, argument)
        with np.errstate(all="ignore"):
            grown = np.exp2(argument.data * np.float32(math.log2(math.e)))
        return interpreter.TensorHandle(grown, argument.dtype)

    builder.create_fdiv, builder.create_exp = create_fdiv, create_exp


def _multiply_and_add_at_once(tl: Any, interpreter: Any) -> None:
    """Let Triton's interpreter round only after the addition in `tl.fma` of f32: it is computed in
    f64, where the product is exact."""
    original = interpreter.InterpreterBuilder.create_fma

    def create_fma(self: Any, left: Any, right: Any, added: Any) -> Any:
        if left.data.dtype != np.float32:
            return original(self, left, right, added)
        with np.errstate(all="ignore"):
            total = left.data.astype(np.float64) * right.data + added.data
            return interpreter.TensorHandle(total.astype(np.float32), left.dtype)

    interpreter.InterpreterBuilder.create_fma = create_fma

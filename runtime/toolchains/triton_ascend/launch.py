"""Execute the library that was built from a kernel, over a grid, on guarded copies of its buffers.

Needs only ctypes: a launcher process (`execute`) loads nothing else beside the kernel's library.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sketchc.runtime.guards.pages import GuardedBuffer
from sketchc.runtime.process.messages import Raw, failure
from sketchc.runtime.sandbox import seccomp

_SCALARS: dict[str, Any] = {
    "i1": ctypes.c_bool,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


class IllegalAccessError(Exception):
    """A kernel wrote before the start of a buffer."""


class Buffer(NamedTuple):
    """A tensor as an argument: it begins `offset` bytes after `start`, the address of its storage,
    which has `size` bytes."""

    name: str
    start: int
    size: int
    offset: int
    item_bytes: int


#: A buffer, or a number as (type, value).
Argument = Buffer | tuple[str, Any]


def run_library(
    library: str,
    name: str,
    arguments: Sequence[Argument],
    grid: Sequence[int],
    order: str,
) -> int:
    """Run the kernel `name` of a `library` over `grid`; returns the most bytes that one program
    allocated at a time.

    Raises `IllegalAccessError`; an access behind a buffer ends the process, with a line on stderr.
    """
    code = ctypes.CDLL(library)
    code.sketchc_launch.restype = ctypes.c_int64
    guards: dict[int, tuple[str, GuardedBuffer]] = {}
    pointers = (ctypes.c_void_p * max(1, len(arguments)))()
    lengths = (ctypes.c_int64 * max(1, len(arguments)))()
    keep = []
    try:
        for i, argument in enumerate(arguments):
            if isinstance(argument, Buffer):
                guard = _guard(guards, argument)
                pointers[i] = guard.start + argument.offset
                lengths[i] = (guard.size - argument.offset) // argument.item_bytes
            else:
                kind, value = argument
                scalar = _SCALARS[kind](value)
                keep.append(scalar)
                pointers[i] = ctypes.addressof(scalar)
        _name_buffers(code, guards)
        count = grid[0] * grid[1] * grid[2]
        numbers = (ctypes.c_int64 * count)(*_ordered(count, order))
        extents = (ctypes.c_int32 * 3)(*grid)
        held = int(code.sketchc_launch(pointers, lengths, numbers, ctypes.c_int64(count), extents))
        for buffer_name, guard in guards.values():
            if not guard.intact():
                raise IllegalAccessError(f"{name} writes before the start of {buffer_name}")
            guard.copy_back()
        return held
    finally:
        for _, guard in guards.values():
            guard.close()


def _guard(guards: dict[int, tuple[str, GuardedBuffer]], buffer: Buffer) -> GuardedBuffer:
    """The guarded copy of the storage of `buffer`; tensors that share a storage share the copy."""
    key = buffer.start
    if key == 0 or buffer.size == 0:
        key = -len(guards) - 1
    if key not in guards:
        guards[key] = buffer.name, GuardedBuffer(buffer.start, buffer.size)
    return guards[key][1]


def _name_buffers(code: ctypes.CDLL, guards: Mapping[int, tuple[str, GuardedBuffer]]) -> None:
    code.sketchc_forget_buffers()
    for name, guard in guards.values():
        start, end = ctypes.c_size_t(guard.start), ctypes.c_size_t(guard.start + guard.size)
        code.sketchc_name_buffer(start, end, name.encode())


def _ordered(count: int, order: str) -> list[int]:
    numbers = list(range(count))
    match order:
        case "forward":
            pass
        case "reversed":
            numbers.reverse()
        case "shuffled":
            random.Random(0).shuffle(numbers)
        case _:
            raise ValueError(f"unknown program order {order!r}")
    return numbers


# ---------------------------------------------------------------- as a launcher

_KINDS = ("IllegalAccessError",)


def execute(request: dict[str, Any], raws: dict[str, Raw]) -> tuple[dict[str, Any], dict[str, Raw]]:
    """Execute "launches" (see `tracer`) one after the other; returns all buffers but "unchanged".

    Once their libraries are loaded, this process opens no file and starts no program. The reply is
    {} or {"failure": {"stage", "message", "log", "kinds"}}.
    """
    for launch in request["launches"]:
        ctypes.CDLL(launch["library"])
    seccomp.close_ways_out()
    before = {name: bytes(raws[name].data) for name in request["unchanged"] if name in raws}
    try:
        for launch in request["launches"]:
            bound = [_bound(argument, raws) for argument in launch["arguments"]]
            run_library(
                launch["library"], launch["kernel"], bound, launch["grid"], request["order"]
            )
    except IllegalAccessError as error:
        return failure("launch", str(error), _KINDS), {}
    changed = [name for name, old in before.items() if old != raws[name].data]
    if changed:
        message = f"the kernel changes its input {', '.join(changed)}"
        return failure("launch", message, _KINDS), {}
    return {}, {name: raw for name, raw in raws.items() if name not in before}


execute.takes_raw = True  # type: ignore[attr-defined]


def _bound(argument: Mapping[str, Any], raws: Mapping[str, Raw]) -> Argument:
    if "buffer" not in argument:
        return argument["scalar"], argument["value"]
    data = raws[argument["buffer"]].data
    size = data.nbytes
    start = ctypes.addressof(ctypes.c_char.from_buffer(data)) if size else 0
    return Buffer(argument["name"], start, size, argument["offset"], argument["item"])

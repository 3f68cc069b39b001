"""In a worker: call a compiled native kernel on guarded buffers.

Needs only ctypes: the process that forks these workers starts no threads and loads no library that
could do a kernel's work (NumPy would load a BLAS).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sketchc.runtime.guards.pages import GuardedBuffer
from sketchc.runtime.process.messages import ITEM_BYTES, Raw, failure
from sketchc.runtime.sandbox import seccomp

#: The parameter of `mallopt` that fills memory from malloc with the complement of a byte, and the
#: byte: read as f32, 0x5a5a5a5a is 1.5e16.
_M_PERTURB, _PATTERN = -6, 0xA5


def call(library: ctypes.CDLL, request: Mapping[str, Any], pointers: Sequence[int | None]) -> int:
    """Call the entry point of `library` that `request` names; returns its status. `pointers` are
    the tensors' addresses, None for an absent tensor."""
    function = getattr(library, request["entry"])
    function.restype = ctypes.c_int64
    arguments: list[Any] = [ctypes.c_void_p(pointer) for pointer in pointers]
    for kind, value in request["scalars"]:
        arguments.append(ctypes.c_double(value) if kind == "f" else ctypes.c_int64(value))
    return int(function(*arguments))


def loaded(request: Mapping[str, Any]) -> tuple[ctypes.CDLL | None, str]:
    """The library of a request, or what is missing in it."""
    entry = request["signature"]["entry"]
    try:
        library = ctypes.CDLL(request["library"])
        getattr(library, entry)
    except (OSError, AttributeError) as error:
        return None, _missing(str(error), entry)
    return library, ""


def execute(request: dict[str, Any], raws: dict[str, Raw]) -> tuple[dict[str, Any], dict[str, Raw]]:
    """The worker's handler: run one call on copies, return the out and inout arrays.

    Once the library is loaded, the process can open no file and start no program: a kernel that
    finds functions of the C library in memory, past the check of the symbols that it links, can do
    neither. `request["closed"]` False leaves the process open, for tests of the sandbox itself.

    Every tensor ends at a page that nobody may touch, so that an access past its end faults; a
    write before its start, or into an `in` tensor, is reported as "stray" in the reply. What a
    stand-in for a device found wrong in a launch is a failure, whatever the entry point returns.
    """
    library, missing = loaded(request)
    if library is None:
        return {"missing": missing}, {}
    if request.get("closed", True):
        _shut()
    results: dict[str, Raw] = {}
    held: list[tuple[str, str, Raw, GuardedBuffer]] = []
    pointers: list[int | None] = []
    for name, role, shape, dtype in request["signature"]["tensors"]:
        if role == "absent":
            pointers.append(None)
            continue
        size = math.prod(shape) * ITEM_BYTES[dtype]
        raw = raws.get(name) or Raw(dtype, tuple(shape), memoryview(bytearray(size)))
        filled = ctypes.c_char.from_buffer(raw.data) if raw.data.nbytes else None
        address = 0 if filled is None else ctypes.addressof(filled)
        guard = GuardedBuffer(address, raw.data.nbytes)
        held.append((name, role, raw, guard))
        pointers.append(guard.start)
    status = call(library, request["signature"], pointers)
    stray = ""
    for name, role, raw, guard in held:
        if not guard.intact():
            stray = f"memory before {name} was overwritten"
        if role == "in":
            if guard.changed():
                stray = f"the input {name} was changed"
        else:
            guard.copy_back()
            results[name] = raw
        guard.close()
    if why := _failed_launch(library):
        return failure("launch", why), {}
    return {"status": status, "stray": stray}, results


def _failed_launch(library: ctypes.CDLL) -> str:
    """Why a launch of the last call failed, as a library says that stands in for a device."""
    try:
        asked = library.sketch_failed_launch
    except AttributeError:
        return ""
    asked.restype = ctypes.c_char_p
    return (asked() or b"").decode("utf-8", "replace")


@functools.cache
def _shut() -> None:
    """Close the process's ways out, once. Memory that malloc allocates from now on is filled with a
    pattern, so that a kernel's read of memory that it has not written shows."""
    ctypes.CDLL(None).mallopt(_M_PERTURB, _PATTERN)
    seccomp.close_ways_out()


execute.takes_raw = True  # type: ignore[attr-defined]


def _missing(words: str, entry: str) -> str:
    """A message on why the loader failed, from its `words` but without paths: a missing symbol, or
    the missing function `entry`."""
    _, found, rest = words.rpartition("undefined symbol: ")
    if not found:
        return "the compiled library cannot be loaded"
    name = rest.split(",")[0].strip()
    if name == entry:
        return f'the file defines no function `{entry}` with extern "C"'
    return f"undefined symbol: {name}, which is declared and nowhere defined"

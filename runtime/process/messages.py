"""The messages between two processes: JSON over a socket, and arrays in memory files.

A message is its length, a JSON object, and at most one memory file with the bytes of all arrays in
that object (each a `Raw`, at any place), which travels as a descriptor: nothing is ever written to
a disk, and nothing is left behind. Only the standard library is needed, so that this module also
runs where sketchc is not installed; NumPy is imported where a NumPy array is asked for. bfloat16
arrays have the type of ml_dtypes where that is installed, else uint16.
"""

from __future__ import annotations

import array as numbers
import importlib
import importlib.util
import json
import math
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

#: The type of a handler's arrays.
Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
BFLOAT16 = "bfloat16"
#: Bytes of one element, by NumPy's name of the type.
ITEM_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("float16", BFLOAT16, "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}
#: The most bytes of JSON that one message may have.
LONGEST = 256 << 20
#: Arrays start at multiples of so many bytes in their memory file.
_ALIGNMENT = 64
_LENGTH = struct.Struct("<Q")
#: The most bytes that one system call moves; the kernel stops short of 2 GiB.
_PIECE = 1 << 30
#: The key of an object that stands for an array.
_ARRAY = "$array"
#: Bound here: code that runs in a process of this channel can replace methods of `socket.socket`.
_receive, _receive_with = socket.SocketType.recv, socket.SocketType.recvmsg
_send, _send_with = socket.SocketType.sendall, socket.SocketType.sendmsg


class MessageError(ValueError):
    """The bytes received are no valid message, or the data to send cannot be put into one."""


class Closed(EOFError):
    """The other side of the channel is gone."""


class Raw:
    """One array: its type's NumPy name, its shape, and its bytes, row-major."""

    def __init__(self, dtype: str, shape: tuple[int, ...], data: memoryview) -> None:
        self.dtype = dtype
        self.shape = shape
        self.data = data


def failure(stage: str, message: str, kinds: Iterable[str] = (), log: str = "") -> dict[str, Any]:
    """A worker's reply that reports a failure; its fields are those of `ToolchainError`."""
    return {"failure": {"stage": stage, "message": message, "kinds": list(kinds), "log": log}}


def raw_of(array: np.ndarray[Any, Any]) -> Raw:
    """`array` as a `Raw`. Raises `MessageError` for elements that are not numbers."""
    import numpy as np

    name = array.dtype.name
    if name not in ITEM_BYTES:
        raise MessageError(f"an array of {name} cannot be sent")
    plain: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Raw(name, tuple(array.shape), memoryview(plain))


def array_of(raw: Raw) -> np.ndarray[Any, Any]:
    """`raw` as a NumPy array that shares its memory."""
    import numpy as np

    dtype: Any = raw.dtype
    if dtype == BFLOAT16:
        installed = importlib.util.find_spec("ml_dtypes") is not None
        dtype = importlib.import_module("ml_dtypes").bfloat16 if installed else np.uint16
    found: np.ndarray[Any, Any] = np.frombuffer(raw.data, np.dtype(dtype)).reshape(raw.shape)
    return found


def _hurry(channel: socket.socket, deadline: float | None) -> None:
    """Set the timeout of `channel` so that the next wait ends at `deadline` (monotonic clock).
    Raises `TimeoutError` where that has passed."""
    if deadline is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        channel.settimeout(left)


# ---------------------------------------------------------------- sending


def send(channel: socket.socket, body: Mapping[str, Any], deadline: float | None = None) -> None:
    """Send one message with the object `body`. Raises `OSError` when the other side is gone,
    `TimeoutError` at `deadline`, `TypeError` or `ValueError` for what is neither JSON nor `Raw`."""
    raws: list[Raw] = []
    place = 0

    def described(value: object) -> dict[str, Any]:
        nonlocal place
        if not isinstance(value, Raw):
            raise TypeError(f"a {type(value).__name__} cannot be sent")
        start = _aligned(place)
        place = start + value.data.nbytes
        raws.append(value)
        return {_ARRAY: start, "dtype": value.dtype, "shape": list(value.shape)}

    text = json.dumps(body, default=described).encode()
    start = _LENGTH.pack(len(text)) + text
    memory = _memory_file(place, raws) if place else -1
    try:
        _hurry(channel, deadline)
        with_memory = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers.array("i", [memory]))]
        sent = _send_with(channel, [start], with_memory if place else [])
        if sent < len(start):
            _hurry(channel, deadline)
            _send(channel, memoryview(start)[sent:])
    finally:
        if place:
            os.close(memory)


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT


def _memory_file(size: int, raws: Iterable[Raw]) -> int:
    """The descriptor of a memory file of `size` bytes that holds the arrays `raws` in order."""
    memory = os.memfd_create("arrays", os.MFD_CLOEXEC)
    try:
        os.ftruncate(memory, size)
        place = 0
        for raw in raws:
            place = _aligned(place)
            plain = raw.data.cast("B") if raw.data.nbytes else raw.data
            done = 0
            while done < plain.nbytes:
                done += os.pwrite(memory, plain[done : done + _PIECE], place + done)
            place += done
    except BaseException:
        os.close(memory)
        raise
    return memory


# ---------------------------------------------------------------- receiving


def receive(
    channel: socket.socket, deadline: float | None = None, most: int = 1 << 62
) -> dict[str, Any]:
    """The next message, its arrays (at most `most` bytes in all) in private memory of this process.

    Raises `Closed`, `MessageError` for what is no message, and `TimeoutError` at the deadline,
    however slowly the other side sends. The memory file of the arrays is read, never mapped: a
    sender that shrinks the file later would crash a reader that had mapped it.
    """
    head, descriptors = _head(channel, deadline)
    try:
        (length,) = _LENGTH.unpack(head)
        if length > LONGEST:
            raise MessageError(f"a message of {length} bytes")
        try:
            reader = _Reader(descriptors, most)
            body = json.loads(_exactly(channel, length, deadline), object_hook=reader.read)
            if not isinstance(body, dict):
                raise MessageError("its body is no object")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise MessageError(f"{type(error).__name__}: {error}") from error
        return body
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _head(channel: socket.socket, deadline: float | None) -> tuple[bytes, list[int]]:
    found = numbers.array("i")
    space = socket.CMSG_SPACE(16 * found.itemsize)
    _hurry(channel, deadline)
    head, extra, _, _ = _receive_with(channel, _LENGTH.size, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    try:
        if not head:
            raise Closed
        return head + _exactly(channel, _LENGTH.size - len(head), deadline), list(found)
    except BaseException:
        for descriptor in found:
            os.close(descriptor)
        raise


def _exactly(channel: socket.socket, length: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        _hurry(channel, deadline)
        part = _receive(channel, min(length - len(parts), 1 << 20))
        if not part:
            raise Closed
        parts += part
    return bytes(parts)


class _Reader:
    """Reads the arrays of one message, which may have `most` bytes in all."""

    def __init__(self, descriptors: list[int], most: int) -> None:
        self._descriptors = descriptors
        self._left = most

    def read(self, value: dict[str, Any]) -> Any:
        """The JSON object `value` itself, or the `Raw` where it describes an array.
        Raises `MessageError` for a description that is not valid."""
        if _ARRAY not in value:
            return value
        place, dtype = int(value[_ARRAY]), value["dtype"]
        extents = tuple(int(extent) for extent in value["shape"])
        if min(extents, default=0) < 0 or dtype not in ITEM_BYTES or place < 0:
            raise MessageError(f"an array is described as {dtype} of shape {value['shape']}")
        size = math.prod(extents) * ITEM_BYTES[dtype]
        self._left -= size
        if self._left < 0:
            raise MessageError(f"its arrays are too long: one has {size} bytes")
        if not size:
            return Raw(dtype, extents, memoryview(bytearray()))
        if not self._descriptors:
            raise MessageError("an array came without its memory")
        return Raw(dtype, extents, _read_at(self._descriptors[0], size, place))


def _read_at(descriptor: int, size: int, place: int) -> memoryview:
    """`size` bytes of a file from `place` on, in fresh memory. Raises `MessageError` where the file
    ends before."""
    if os.fstat(descriptor).st_size < place + size:
        raise MessageError("an array is longer than what was sent")
    memory = memoryview(mmap.mmap(-1, size))
    done = 0
    while done < size:
        count = os.preadv(descriptor, [memory[done : done + _PIECE]], place + done)
        if count <= 0:
            raise MessageError("an array is longer than what was sent")
        done += count
    return memory

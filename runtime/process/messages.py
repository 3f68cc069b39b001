"""What parent and worker say to each other: JSON over a socket, and arrays in memory files.

A message is its length, JSON text, and at most one memory file with the bytes of all its arrays,
which travels as a descriptor: nothing is ever written to a disk, and nothing is left behind. Only
the standard library is needed, so that this also runs where sketchc is not installed; numpy is
imported where somebody asks for its arrays. bfloat16 is ml_dtypes' where that is installed, else
it stays uint16.
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
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

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
#: Arrays start at multiples of this in their memory file.
_ALIGNMENT = 64
_LENGTH = struct.Struct("<Q")
#: What one system call moves at most; the kernel stops short of 2 GiB.
_PIECE = 1 << 30


class MessageError(ValueError):
    """What came is no message."""


class Closed(EOFError):
    """The other side is gone."""


class Raw:
    """One array: its type's NumPy name, its shape, and its bytes, row-major."""

    def __init__(self, dtype: str, shape: tuple[int, ...], data: memoryview) -> None:
        self.dtype = dtype
        self.shape = shape
        self.data = data


def raw_of(array: np.ndarray[Any, Any]) -> Raw:
    """A NumPy array's bytes. Raises `MessageError` for elements that are not numbers."""
    import numpy as np

    name = array.dtype.name
    if name not in ITEM_BYTES:
        msg = f"an array of {name} cannot be sent"
        raise MessageError(msg)
    plain: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Raw(name, tuple(array.shape), memoryview(plain))


def array_of(raw: Raw) -> np.ndarray[Any, Any]:
    """The bytes as a NumPy array that shares them."""
    import numpy as np

    dtype: Any = raw.dtype
    if dtype == BFLOAT16:
        dtype = _bfloat16() or np.uint16
    found: np.ndarray[Any, Any] = np.frombuffer(raw.data, np.dtype(dtype)).reshape(raw.shape)
    return found


def _bfloat16() -> Any:
    import numpy as np

    if importlib.util.find_spec("ml_dtypes") is None:
        return None
    return np.dtype(importlib.import_module("ml_dtypes").bfloat16)


# ---------------------------------------------------------------- sending


def send(channel: socket.socket, body: Mapping[str, Any], arrays: Mapping[str, Raw]) -> None:
    """Send one message. Raises `OSError` when nobody listens any more."""
    manifest = []
    place = 0
    for name, raw in arrays.items():
        place = -(-place // _ALIGNMENT) * _ALIGNMENT
        manifest.append([name, raw.dtype, list(raw.shape), place])
        place += raw.data.nbytes
    text = json.dumps({"body": body, "arrays": manifest}).encode()
    memory = _memory_file(place, arrays.values()) if place else -1
    try:
        with_memory = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers.array("i", [memory]))]
        channel.sendmsg([_LENGTH.pack(len(text))], with_memory if place else [])
        channel.sendall(text)
    finally:
        if place:
            os.close(memory)


def _memory_file(size: int, raws: Iterable[Raw]) -> int:
    """A descriptor of a memory file that holds the arrays one after the other."""
    memory = os.memfd_create("arrays", os.MFD_CLOEXEC)
    try:
        os.ftruncate(memory, size)
        place = 0
        for raw in raws:
            place = -(-place // _ALIGNMENT) * _ALIGNMENT
            _write_at(memory, raw.data, place)
            place += raw.data.nbytes
    except BaseException:
        os.close(memory)
        raise
    return memory


def _write_at(descriptor: int, data: memoryview, place: int) -> None:
    plain = data.cast("B") if data.nbytes else data
    done = 0
    while done < plain.nbytes:
        done += os.pwrite(descriptor, plain[done : done + _PIECE], place + done)


# ---------------------------------------------------------------- receiving


class Readable(Protocol):
    """What is asked of a socket here."""

    def recv(self, size: int, /) -> bytes: ...

    def recvmsg(self, size: int, space: int, flags: int, /) -> Any: ...


def receive(channel: Readable, most: int = 1 << 62) -> tuple[dict[str, Any], dict[str, Raw]]:
    """The next message, its arrays (of `most` bytes in all) in private memory of this process.

    Raises `Closed`, `MessageError` for what is no message, `TimeoutError` where the socket has a
    limit. What is sent as an array is read, never mapped: a sender that shrinks the file later
    would end the reader.
    """
    head, descriptors = _head(channel)
    try:
        (length,) = _LENGTH.unpack(head)
        if length > LONGEST:
            msg = f"a message of {length} bytes"
            raise MessageError(msg)
        try:
            message = json.loads(_exactly(channel, length))
            body, manifest = message["body"], message["arrays"]
            if not isinstance(body, dict):
                msg = "its body is no object"
                raise MessageError(msg)
            return body, _arrays(manifest, descriptors, most)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            msg = f"{type(error).__name__}: {error}"
            raise MessageError(msg) from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _head(channel: Readable) -> tuple[bytes, list[int]]:
    found = numbers.array("i")
    space = socket.CMSG_SPACE(16 * found.itemsize)
    head, extra, _, _ = channel.recvmsg(_LENGTH.size, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    try:
        return head + _exactly(channel, _LENGTH.size - len(head), started=bool(head)), list(found)
    except BaseException:
        for descriptor in found:
            os.close(descriptor)
        raise


def _exactly(channel: Readable, length: int, started: bool = True) -> bytes:
    parts = bytearray()
    if not started:
        raise Closed
    while len(parts) < length:
        part = channel.recv(min(length - len(parts), 1 << 20))
        if not part:
            raise Closed
        parts += part
    return bytes(parts)


def _arrays(manifest: list[Any], descriptors: list[int], most: int) -> dict[str, Raw]:
    found = {}
    for name, dtype, shape, place in manifest:
        extents = tuple(int(extent) for extent in shape)
        if min(extents, default=0) < 0 or dtype not in ITEM_BYTES or place < 0:
            msg = f"{name} is described as {dtype} of shape {shape}"
            raise MessageError(msg)
        size = math.prod(extents) * ITEM_BYTES[dtype]
        most -= size
        if most < 0:
            msg = f"its arrays are too long: {name} has {size} bytes"
            raise MessageError(msg)
        memory = _read_at(descriptors[0], size, place) if size else memoryview(bytearray())
        found[str(name)] = Raw(str(dtype), extents, memory)
    return found


def _read_at(descriptor: int, size: int, place: int) -> memoryview:
    """So many bytes of a file in fresh memory. Raises `MessageError` where it has fewer."""
    if os.fstat(descriptor).st_size < place + size:
        msg = "an array is longer than what was sent"
        raise MessageError(msg)
    memory = memoryview(mmap.mmap(-1, size))
    done = 0
    while done < size:
        count = os.preadv(descriptor, [memory[done : done + _PIECE]], place + done)
        if count <= 0:
            msg = "an array is longer than what was sent"
            raise MessageError(msg)
        done += count
    return memory

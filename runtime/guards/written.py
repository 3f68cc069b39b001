"""Which tensors a launch has written: a model may not make its outputs of copies alone.

Allocations, fills and copies are allowed outside of launches, and with them all tasks that only
move elements could be done without a kernel. So the memory that forward allocates is looked at
before and after each launch; a tensor that a launch has changed is *written*, and so is a copy of
one. What forward did not allocate (a buffer of NumPy's, or one made with the model) is not judged.
"""

from __future__ import annotations

import ctypes
import weakref
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch

_CHUNK = 1 << 24


class Memory:
    """One allocation, as long as it lives."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.storage = weakref.ref(storage)
        self.address, self.size = storage.data_ptr(), storage.nbytes()
        self.device = tensor.device
        self.written = False

    def alive(self) -> bool:
        storage = self.storage()
        return storage is not None and storage.data_ptr() == self.address

    def fingerprint(self) -> int:
        """A checksum of the contents."""
        storage = self.storage()
        if storage is None or not self.size:
            return 0
        if self.device.type != "cpu":
            contents = torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage).cpu()
            return _checksum(contents.data_ptr(), self.size)
        return _checksum(self.address, self.size)


def _checksum(address: int, size: int) -> int:
    found = 0
    for start in range(0, size, _CHUNK):
        part = (ctypes.c_uint8 * min(_CHUNK, size - start)).from_address(address + start)
        found = zlib.crc32(part, found)
    return found


class Writes:
    """The allocations of a forward; `enter` and `leave` stand around a launch."""

    def __init__(self) -> None:
        self.memories: dict[int, Memory] = {}
        self._before: list[tuple[Memory, int]] = []
        self._depth = 0

    def begin(self) -> None:
        """A new forward: nothing is written yet."""
        self.memories = {a: m for a, m in self.memories.items() if m.alive()}
        for memory in self.memories.values():
            memory.written = False

    def made(self, tensor: torch.Tensor, sources: Iterable[object] = ()) -> None:
        """Forward has allocated or filled a tensor; `sources` are what it was copied from."""
        address = tensor.untyped_storage().data_ptr()
        written = any(self._written(source) for source in sources)
        known = self.memories.get(address)
        if known is None or not known.alive():
            if address:
                self.memories[address] = Memory(tensor)
                self.memories[address].written = written
        elif tensor.numel() * tensor.element_size() == known.size:
            known.written = written
        else:  # only a part of it
            known.written |= written
        now = self.memories.get(address)
        if self._depth and now is not None and not now.written:
            # A library allocates its result itself: what it writes from now on counts.
            self._before.append((now, now.fingerprint()))

    def _written(self, value: object) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        memory = self.memories.get(value.untyped_storage().data_ptr())
        return memory is not None and memory.written

    def enter(self) -> None:
        """A launch begins."""
        self._depth += 1
        if self._depth == 1:
            open_ones = [m for m in self.memories.values() if not m.written and m.alive()]
            self._before = [(memory, memory.fingerprint()) for memory in open_ones]

    def leave(self) -> None:
        """It has ended."""
        self._depth -= 1
        if self._depth == 0:
            for memory, before in self._before:
                memory.written |= memory.alive() and memory.fingerprint() != before
            self._before = []

    def unwritten(self, outputs: Mapping[str, torch.Tensor], inputs: Iterable[Any]) -> list[str]:
        """The outputs that forward allocated and no launch has written, and those that are views
        of its inputs."""
        given = {
            value.untyped_storage().data_ptr()
            for value in inputs
            if isinstance(value, torch.Tensor) and value.numel()
        }
        found = []
        for name, output in outputs.items():
            address = output.untyped_storage().data_ptr()
            memory = self.memories.get(address)
            idle = memory is not None and memory.alive() and not memory.written
            if output.numel() and (idle or address in given):
                found.append(name)
        return found

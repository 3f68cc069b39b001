"""Copies of a launch's buffers that end at pages without access rights.

A kernel that reads or writes past the end of a tensor faults; a write before the tensor's start is
found afterwards, because the slack before the start holds a pattern.
"""

from __future__ import annotations

import ctypes
import mmap

_PATTERN = 0xA5
#: Bytes that are forbidden on either side; they take address space, but no memory.
_FORBIDDEN_BYTES = 4 << 20
_FORBIDDEN = 0  # PROT_NONE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class GuardedBuffer:
    """`size` bytes copied from `source`, with forbidden pages before and behind."""

    def __init__(self, source: int, size: int) -> None:
        page = mmap.PAGESIZE
        inner = max(1, -(-size // page)) * page
        self.source, self.size, self.total = source, size, inner + 2 * _FORBIDDEN_BYTES
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.mapping = _LIBC.mmap(
            None, self.total, mmap.PROT_READ | mmap.PROT_WRITE, private, -1, 0
        )
        if self.mapping in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"no memory for a buffer of {size} bytes")
        behind = self.mapping + _FORBIDDEN_BYTES + inner
        _LIBC.mprotect(self.mapping, _FORBIDDEN_BYTES, _FORBIDDEN)
        _LIBC.mprotect(behind, _FORBIDDEN_BYTES, _FORBIDDEN)
        self.slack = self.mapping + _FORBIDDEN_BYTES
        self.slack_size = inner - size
        self.start = self.slack + self.slack_size
        ctypes.memset(self.slack, _PATTERN, self.slack_size)
        ctypes.memmove(self.start, source, size)

    def intact(self) -> bool:
        """Whether nothing was written before the start."""
        slack = ctypes.string_at(self.slack, self.slack_size)
        return slack == bytes([_PATTERN]) * self.slack_size

    def changed(self) -> bool:
        """Whether the buffer's contents differ from those of `source`."""
        return bool(_LIBC.memcmp(self.start, self.source, self.size))

    def copy_back(self) -> None:
        """Copy the buffer's contents back to `source`."""
        ctypes.memmove(self.source, self.start, self.size)

    def close(self) -> None:
        """Unmap the buffer's memory."""
        _LIBC.munmap(self.mapping, self.total)

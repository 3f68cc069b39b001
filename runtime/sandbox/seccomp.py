"""A filter of system calls for candidates: what no kernel needs, and what leads out of a sandbox.

A classic BPF program, made here; see seccomp(2). Architectures other than x86-64 and AArch64 go
without, which `install` says.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import struct
from typing import Any

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS = 38
_ALLOW, _ERRNO, _ASK = 0x7FFF0000, 0x00050000, 0x7FC00000
_LOAD, _EQUAL, _SET, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
#: Offsets in `struct seccomp_data`.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_CLONE_NEW = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_X32 = 0x40000000
_AF_UNIX = 1

#: machine -> (audit architecture, numbers of system calls).
_TABLES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41,
            "clone": 56,
            "ptrace": 101,
            "pivot_root": 155,
            "chroot": 161,
            "mount": 165,
            "umount2": 166,
            "swapon": 167,
            "reboot": 169,
            "init_module": 175,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "unshare": 272,
            "perf_event_open": 298,
            "setns": 308,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "finit_module": 313,
            "bpf": 321,
            "userfaultfd": 323,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "chroot": 51,
            "unshare": 97,
            "kexec_load": 104,
            "init_module": 105,
            "ptrace": 117,
            "reboot": 142,
            "socket": 198,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "clone": 220,
            "swapon": 224,
            "perf_event_open": 241,
            "setns": 268,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "finit_module": 273,
            "bpf": 280,
            "userfaultfd": 282,
        },
    ),
}
#: The same numbers on all architectures.
_COMMON = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
}
_CLONE3 = 435
#: What leads to programs and files, and so to code that is not the candidate's own.
_WAYS_OUT: dict[str, dict[str, int]] = {
    "x86_64": {"open": 2, "execve": 59, "openat": 257, "execveat": 322},
    "aarch64": {"openat": 56, "execve": 221, "execveat": 281},
}
_OPENAT2 = 437
#: seccomp(2) itself, what it shall do, and that somebody else will answer.
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER = 1, 8
#: The first Linux on which who answers may let a system call go on.
_ANSWERS_SINCE = (5, 5)


def program(machine: str, network: bool) -> bytes | None:
    """The filter's instructions; None for a machine that has no table. `network`: sockets other
    than local ones are allowed as far as the filter is concerned."""
    table = _TABLES.get(machine)
    if table is None:
        return None
    architecture, numbers = table
    refused = _ERRNO | errno.EPERM
    special = {"clone", "socket"}
    plain = [n for name, n in {**numbers, **_COMMON}.items() if name not in special]
    lines = _refusing(architecture, plain)
    # Its flags lie in memory, which no filter can read: glibc falls back to clone.
    lines += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    lines += [
        (_EQUAL, 0, 4, numbers["clone"]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_SET, 0, 1, _CLONE_NEW),
        (_RETURN, 0, 0, refused),
        (_RETURN, 0, 0, _ALLOW),
    ]
    if not network:
        lines += [
            (_EQUAL, 0, 4, numbers["socket"]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_EQUAL, 1, 0, _AF_UNIX),
            (_RETURN, 0, 0, refused),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return _packed(lines)


def _refusing(
    architecture: int, numbers: list[int], action: int = _ERRNO | errno.EPERM
) -> list[tuple[int, int, int, int]]:
    """The start of a filter: these system calls are refused, or whatever `action` says, and all of
    another architecture are refused."""
    refused = _ERRNO | errno.EPERM
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, refused),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if architecture == _TABLES["x86_64"][0]:
        lines += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, refused)]
    for number in numbers:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]
    return lines


def _packed(lines: list[tuple[int, int, int, int]]) -> bytes:
    """The instructions of a filter that allows what it does not refuse."""
    return b"".join(struct.pack("<HBBI", *line) for line in [*lines, (_RETURN, 0, 0, _ALLOW)])


def install(network: bool) -> bool:
    """Install the filter in this process, which must have given up new privileges; False where
    there is none for this machine, or the kernel takes none."""
    return _install(program(platform.machine(), network))


def closed_program(machine: str) -> bytes | None:
    """The filter that refuses programs and files; None for a machine that has no table."""
    if machine not in _TABLES:
        return None
    lines = _refusing(_TABLES[machine][0], [*_WAYS_OUT[machine].values(), _OPENAT2])
    return _packed(lines)


def close_ways_out() -> bool:
    """From now on this process starts no program and opens no file, whatever code it runs; False
    where the machine has no such filter. What is loaded already stays."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return _install(closed_program(platform.machine()))


def asking_program(machine: str) -> bytes | None:
    """The filter that has somebody asked before a program is started; None without a table."""
    if machine not in _TABLES:
        return None
    ways = _WAYS_OUT[machine]
    return _packed(_refusing(_TABLES[machine][0], [ways["execve"], ways["execveat"]], _ASK))


def listen() -> int:
    """From now on, whoever reads the descriptor that is returned decides whether this process, its
    threads and children start a program (see `gate`); -1 where this machine has no such filter."""
    text = asking_program(platform.machine())
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if text is None or release is None or tuple(map(int, release.groups())) < _ANSWERS_SINCE:
        return -1
    filter_ = _Program.of(text)
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = (_SECCOMP[platform.machine()], _SET_FILTER, _NEW_LISTENER)
    return int(libc.syscall(*map(ctypes.c_long, numbers), ctypes.byref(filter_)))


class _Program(ctypes.Structure):
    """`struct sock_fprog`, which keeps its instructions."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))
    kept: Any

    @classmethod
    def of(cls, text: bytes) -> _Program:
        buffer = ctypes.create_string_buffer(text, len(text))
        made = cls(len(text) // 8, ctypes.addressof(buffer))
        made.kept = buffer
        return made


def _install(text: bytes | None) -> bool:
    if text is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    filter_ = _Program.of(text)
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filter_), 0, 0) == 0)

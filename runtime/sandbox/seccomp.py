"""A filter that refuses candidates the system calls that no kernel needs, or that lead out of a
sandbox; and a gate, by which a process outside the sandbox decides whether a candidate may start
programs, and may change that at any time.

The filter is a classic BPF program, made here; see seccomp(2). There is none for architectures
other than x86-64 and AArch64, where `install` returns False.

Where the parent asks for a gate, the kernel holds every `execve` of the candidate and of what it
starts until the watcher, which runs nothing of the candidate's, has answered (seccomp's user
notifications, Linux 5.5). No thread, child or code of the candidate's own is exempt, and nothing
that it writes into its memory changes the answer. When the gate is shut, programs that were started
before are killed. The candidate's own process never becomes another program. The parent writes one
byte to the watcher's status channel, and waits for {"gate": word}.

Needs only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import re
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS = 38
_ALLOW, _ERRNO, _ASK = 0x7FFF0000, 0x00050000, 0x7FC00000
_REFUSE = _ERRNO | errno.EPERM
_LOAD, _EQUAL, _SET, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
#: Offsets in `struct seccomp_data`.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_CLONE_NEW = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_X32 = 0x40000000
_AF_UNIX = 1
#: One BPF instruction: its code, how far it jumps if its test holds and if not, and its constant.
Line: TypeAlias = tuple[int, int, int, int]

#: machine -> its audit architecture.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Numbers of system calls, for the machines of `_ARCHITECTURES` in that order.
_NUMBERS = {
    "socket": (41, 198),
    "clone": (56, 220),
    "ptrace": (101, 117),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "finit_module": (313, 273),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
}
#: Numbers of system calls that are the same on all architectures.
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
#: System calls that start programs or open files, and so load code that is not the candidate's own.
_WAYS_OUT: dict[str, dict[str, int]] = {
    "x86_64": {"open": 2, "execve": 59, "openat": 257, "execveat": 322},
    "aarch64": {"openat": 56, "execve": 221, "execveat": 281},
}
_OPENAT2 = 437
#: The number of seccomp(2) itself, its operation, and the flag that another process will answer.
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER = 1, 8
#: The first Linux on which the process that answers may let a system call continue.
_ANSWERS_SINCE = (5, 5)
#: The bytes that the parent writes, and the words of the answer: "none" where there is no filter.
OPEN, SHUT = b"+", b"-"
WORDS = {OPEN: "open", SHUT: "shut"}
NONE = "none"
#: `ioctl` requests, the size and first fields (id, thread) of `struct seccomp_notif`, the answer.
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_ASKED_BYTES = 80
_ASKED, _ANSWER = struct.Struct("<QI"), struct.Struct("<QqiI")
_CONTINUE = 1
#: Seconds that ending the started processes may take, and checks that must find none alive.
_PATIENCE = 5.0
_CLEAN_LOOKS = 2


def program(machine: str) -> bytes | None:
    """The instructions of the candidates' filter; None for a `machine` that has no table."""
    if machine not in _ARCHITECTURES:
        return None
    place = list(_ARCHITECTURES).index(machine)
    numbers = {name: known[place] for name, known in _NUMBERS.items()}
    clone, socket_ = numbers.pop("clone"), numbers.pop("socket")
    # The flags of clone3 lie in memory, which no filter can read: glibc falls back to clone.
    lines = [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    lines += _looking(clone, (_SET, 0, 1, _CLONE_NEW))
    lines += _looking(socket_, (_EQUAL, 1, 0, _AF_UNIX))
    return _filter(machine, [*numbers.values(), *_COMMON.values()], more=lines)


def _looking(number: int, test: Line) -> list[Line]:
    """Instructions for the system call `number`: `test`, on its first argument, either goes on to
    the next instruction, which refuses the call, or skips that one, and the call is allowed."""
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        test,
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _filter(
    machine: str, numbers: Iterable[int], action: int = _REFUSE, more: Iterable[Line] = ()
) -> bytes:
    """The instructions of a filter that takes `action` (by default refuses) for the system calls
    `numbers`, refuses all calls of other architectures, goes on with the instructions `more`, and
    allows the rest."""
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE)]
    for number in sorted(numbers):
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]
    lines += [*more, (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def install() -> bool:
    """Install the filter in this process, which must have given up new privileges; False where
    there is no filter for this machine, or the kernel does not accept it."""
    return _install(program(platform.machine()))


def closed_program(machine: str) -> bytes | None:
    """The filter that refuses to start programs and open files; None for a `machine` without a
    table."""
    if machine not in _ARCHITECTURES:
        return None
    return _filter(machine, [*_WAYS_OUT[machine].values(), _OPENAT2])


def close_ways_out() -> bool:
    """Prevent this process from starting programs and opening files from now on, whatever code it
    runs; False where the machine has no such filter. What is loaded already stays."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return _install(closed_program(platform.machine()))


def asking_program(machine: str) -> bytes | None:
    """The filter that asks a listener before a program is started; None for a `machine` without a
    table."""
    if machine not in _ARCHITECTURES:
        return None
    ways = _WAYS_OUT[machine]
    return _filter(machine, [ways["execve"], ways["execveat"]], _ASK)


def listen() -> int:
    """Install the filter of `asking_program` and return its listener: from now on the reader of
    that descriptor decides whether this process, its threads and children may start a program (see
    `Gate`). -1 where this machine has no such filter."""
    text = asking_program(platform.machine())
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if text is None or release is None or tuple(map(int, release.groups())) < _ANSWERS_SINCE:
        return -1
    filter_ = _Program.of(text)
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = (_SECCOMP[platform.machine()], _SET_FILTER, _NEW_LISTENER)
    return int(libc.syscall(*map(ctypes.c_long, numbers), ctypes.byref(filter_)))


class _Program(ctypes.Structure):
    """`struct sock_fprog`, which also keeps the buffer of its instructions alive."""

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


# ---------------------------------------------------------------- the gate


def hand_over(channel: socket.socket) -> None:
    """In the candidate, before any code of its own: install the gate's filter, send the listener
    over `channel`, and close both."""
    listener = listen()
    try:
        socket.send_fds(channel, [b"g"], [listener] if listener >= 0 else [])
    finally:
        channel.close()
        if listener >= 0:
            os.close(listener)


def taken(channel: socket.socket) -> int | None:
    """In the watcher: the listener received over `channel`; None where the machine has none."""
    _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    return descriptors[0] if descriptors else None


class Gate:
    """The watcher's side of the gate: answers the `execve` calls that `listener` reports, and obeys
    the parent's bytes from `status`. `others` yields the candidate's processes, of which `child` is
    the first."""

    def __init__(
        self, listener: int | None, status: int, child: int, others: Callable[[], Iterator[int]]
    ) -> None:
        self._listener, self._status, self._child = listener, status, child
        self._others = others
        self._open = True
        self._asks = select.poll()
        self._watched = {status} if listener is None else {status, listener}
        for descriptor in self._watched:
            self._asks.register(descriptor, select.POLLIN)

    def start(self) -> threading.Thread:
        """Serve in a thread of the watcher, which ends with the watcher, or when both descriptors
        are closed on their other side. Until then they must stay open here: another file would get
        their numbers."""
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        return thread

    def _serve(self) -> None:
        while self._watched:
            for descriptor, event in self._asks.poll():
                if not event & select.POLLIN:
                    self._leave(descriptor)  # nobody is left on the other side
                elif descriptor == self._status:
                    with contextlib.suppress(OSError):
                        self._told(os.read(descriptor, 1))
                else:
                    self._judge()

    def _leave(self, descriptor: int) -> None:
        self._asks.unregister(descriptor)
        self._watched.discard(descriptor)

    def _told(self, word: bytes) -> None:
        if not word:
            self._leave(self._status)
            return
        answer = NONE
        if self._listener is not None:
            self._open = word == OPEN
            if not self._open:
                self._end_others()
            answer = WORDS[word]
        os.write(self._status, json.dumps({"gate": answer}).encode() + b"\n")

    def _judge(self) -> None:
        """Answer one `execve`: it continues if the gate is open and the caller is not `child`."""
        assert self._listener is not None
        asked = bytearray(_ASKED_BYTES)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, asked)
        except OSError:
            return  # the process that asked has ended meanwhile
        number, thread = _ASKED.unpack_from(asked)
        allowed = self._open and _process_of(thread) not in (None, self._child)
        answer = (0, _CONTINUE) if allowed else (-errno.EPERM, 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(number, 0, *answer))

    def _end_others(self) -> None:
        """Kill all processes of the candidate but `child`; after `_PATIENCE` seconds `child`, too,
        since it starts others faster than they are killed."""
        clean = 0
        deadline = time.monotonic() + _PATIENCE
        while clean < _CLEAN_LOOKS:
            # Parents, which usually have smaller numbers, are killed before they see children end.
            others = sorted(self._others())
            found = [one for one in others if one != self._child and _lives(one)]
            clean = 0 if found else clean + 1
            if found and time.monotonic() > deadline:
                found.append(self._child)
                clean = _CLEAN_LOOKS
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if found:
                time.sleep(0.001)


def _process_of(thread: int) -> int | None:
    """The id of the process that a thread belongs to; None where it has ended."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{thread}/status") as file:
        for line in file:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return None


def _lives(process: int) -> bool:
    """Whether `process` is alive: False where it is gone, or a zombie."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False

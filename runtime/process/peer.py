"""A process of one's own that answers messages, with an end to every wait.

It leads a session of its own, prints into a file that belongs to nobody else, and is ended with all
that it started. Who asks gives each message a deadline, by the monotonic clock. What runs on the
other side is `program`.

A process that runs somebody's code sees no more of the environment than is named here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from sketchc.runtime.process import memory, messages

#: What runs on the other side, by path: it also runs where sketchc is not installed.
PROGRAM = str(Path(__file__).resolve().with_name("program.py"))
#: How much of what a process printed is kept, in bytes.
OUTPUT_TAIL = 32_768
#: Seconds that a compiler has to say its version.
_ANSWER = 20.0
#: Seconds that a process that has closed its channel has to end.
_GRACE = 5.0
#: Environment variables that a worker may see; everything else may hold a secret.
ENVIRONMENT_NAMES = frozenset(
    {"PATH", "HOME", "USER", "LANG", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CC", "CXX"}
)
ENVIRONMENT_PREFIXES = (
    "LC_",
    "XDG_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "OPENBLAS_",
    "CUDA_",
    "ASCEND_RT_",
    "NVIDIA_",
    "TRITON_",
)

#: Never passed on, whatever the prefix: NVIDIA_API_KEY is a secret.
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")

#: What compilers and linkers need besides: where temporary files, headers and libraries are.
COMPILER_NAMES = frozenset(
    {
        *("TMPDIR", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
        *("COMPILER_PATH", "GCC_EXEC_PREFIX", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET"),
    }
)

#: What the user's own Python code needs besides: a task may import modules of its own, and make no
#: more than there is room for.
PYTHON_NAMES = frozenset(
    {"TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LD_PRELOAD", memory.BOUND}
)
PYTHON_PREFIXES = ("TORCH", "PYTORCH_", "MKL_", "MALLOC_", "GLIBC_")


class Process(Protocol):
    """What is known of a process; it leads its own process group."""

    @property
    def pid(self) -> int:
        """The process number that the system gave it."""

    def wait(self) -> int:
        """Wait for the end of the process; returns its exit status, negative for a signal."""


#: Starts a process, given the descriptors of its channel and of what it prints to.
Start: TypeAlias = Callable[[int, int], Process]


class PeerEndedError(Exception):
    """The process ended with this status, negative for a signal; `by_itself`: it was not ended
    because it went on after it had closed its channel."""

    def __init__(self, status: int, *, by_itself: bool) -> None:
        self.status, self.by_itself = status, by_itself
        super().__init__(f"the process ended with status {status}")


def program(function: str, python: str | Path, environment: Mapping[str, str]) -> Start:
    """Starts an interpreter that calls `function` ("package.module:name") with its channel."""

    def start(channel: int, output: int) -> Process:
        # -P: a folder called `runtime` where the user stands must not shadow anything.
        return subprocess.Popen(
            [str(python), "-P", PROGRAM, "--call", function, str(channel)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(channel,),
            start_new_session=True,
        )

    return start


class Peer:
    """The process that `start` starts. Raises what that raises."""

    def __init__(self, start: Start) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._gone = False
        try:
            with theirs:
                self.process = start(theirs.fileno(), self._output.fileno())
        except BaseException:
            self._gone = True
            self.close()
            raise

    def tell(self, body: Mapping[str, Any], deadline: float) -> None:
        """Send a message; one that is gone says so when it is heard. Raises `TimeoutError`."""
        with contextlib.suppress(ConnectionError):
            messages.send(self._channel, body, deadline)

    def speaks(self, seconds: float) -> bool:
        """Wait until the process says something or is gone; False where neither happens. A
        message that is heard with a short deadline may be lost in its middle."""
        something = select.poll()
        something.register(self._channel, select.POLLIN)
        return bool(something.poll(1000 * seconds))

    def hear(self, deadline: float, most: int = 1 << 62) -> dict[str, Any]:
        """The next message, with arrays of `most` bytes. Raises `TimeoutError`, `PeerEndedError`,
        and `MessageError` for what is none."""
        try:
            return messages.receive(self._channel, deadline, most)
        except (messages.Closed, ConnectionError):
            pass
        by_itself = end_group(self.process.pid, _GRACE)
        status = self.process.wait()
        self._gone = True  # its number may be another's from now on
        raise PeerEndedError(status, by_itself=by_itself)

    @property
    def printed(self) -> str:
        """The last part of what the process printed."""
        return printed(self._output.fileno())

    def close(self) -> None:
        """End the process and all that it started."""
        if not self._gone:
            signal_group(self.process.pid)  # before it is told by the end of its channel
            self.process.wait()
            self._gone = True
        self._channel.close()
        self._output.close()


def printed(descriptor: int, since: int = 0) -> str:
    """The end of what a process printed into this file; it may go on writing there."""
    start = max(since, os.fstat(descriptor).st_size - OUTPUT_TAIL)
    return os.pread(descriptor, OUTPUT_TAIL, start).decode("utf-8", "replace")


def signal_name(number: int) -> str:
    """What the system calls a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_group(leader: int, number: int = signal.SIGKILL) -> None:
    """End a process and what it started, or stop them, or let them go on. The group's id stays
    reserved while a member lives."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
        os.killpg(leader, number)


def end_group(leader: int, patience: float) -> bool:
    """End the group once the process has ended by itself, or has not within `patience` seconds: one
    that has closed its channel may go on for ever. It must not have been waited for. Returns
    whether it had ended."""
    gone = True
    with contextlib.suppress(OSError):  # it is gone, or this machine has no such descriptors
        descriptor = os.pidfd_open(leader)
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            gone = bool(ended.poll(1000 * patience))
        finally:
            os.close(descriptor)
    signal_group(leader)
    return gone


def run_compiler(
    command: Sequence[str], timeout: float, folder: Path | None = None
) -> tuple[int | None, str]:
    """(exit status, standard error) of a compiler in `folder`; None when its time was up. What it
    started ends with it. It reads somebody's source, which can embed what it sees."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**compiler_environment(), "LC_ALL": "C"},  # diagnostics are read by their words
        start_new_session=True,
    )
    try:
        _, printed = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        signal_group(process.pid)
        process.communicate()
        return None, ""
    except BaseException:  # told to end: a compiler would go on for a while
        signal_group(process.pid)
        raise
    return process.returncode, printed.decode("utf-8", "replace")


def answer_of(compiler: str, question: str) -> str:
    """What a compiler prints when it is asked about itself; "" where it cannot be."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            [compiler, question],
            capture_output=True,
            text=True,
            timeout=_ANSWER,
            check=False,
            env=compiler_environment(),
        ).stdout
    return ""


# ---------------------------------------------------------------- environments


def clean_environment(
    extra: Mapping[str, str],
    names: frozenset[str] = frozenset(),
    prefixes: tuple[str, ...] = (),
) -> dict[str, str]:
    """The part of the environment that a worker may see, and `extra`.

    `names` and `prefixes` let more through; nothing lets a name through that says it is a secret.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in ENVIRONMENT_NAMES | names or name.startswith(ENVIRONMENT_PREFIXES + prefixes))
        and not any(word in name.upper() for word in SECRET_WORDS)
    }
    return {**kept, **extra}


def compiler_environment() -> dict[str, str]:
    """For compilers and assemblers: generated source can embed what they see of it (`.incbin`)."""
    return clean_environment({}, COMPILER_NAMES)


def python_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """For processes that run a user's task, or a kernel beside one, and `extra`."""
    return clean_environment(extra, PYTHON_NAMES, PYTHON_PREFIXES)

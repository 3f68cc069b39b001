"""A separate process that answers messages, with a deadline for every wait.

The process leads a session of its own, prints into a file of its own, and is ended with all that it
started. The asking side gives each message a deadline, by the monotonic clock. The program that the
process runs is `program`.

A process that runs somebody's code sees only the environment variables that are named here.
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

#: The program that the process runs, by path: it also runs where sketchc is not installed.
PROGRAM = str(Path(__file__).resolve().with_name("program.py"))
#: How many bytes of a process's output are kept, counted from its end.
OUTPUT_TAIL = 32_768
#: Seconds that a compiler has to print its version.
_ANSWER = 20.0
#: Seconds within which a process that has closed its channel must end.
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

#: Variables that compilers and linkers need besides: where temporary files, headers and libraries
#: are.
COMPILER_NAMES = frozenset(
    {
        *("TMPDIR", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
        *("COMPILER_PATH", "GCC_EXEC_PREFIX", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET"),
    }
)

#: Variables that the user's own Python code needs besides: a task may import modules of its own,
#: and must keep its tensors within the bound on memory.
PYTHON_NAMES = frozenset(
    {"TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LD_PRELOAD", memory.BOUND}
)
PYTHON_PREFIXES = ("TORCH", "PYTORCH_", "MKL_", "MALLOC_", "GLIBC_")


class Process(Protocol):
    """A process that leads its own process group."""

    @property
    def pid(self) -> int:
        """The process number that the system gave it."""

    def wait(self) -> int:
        """Wait for the end of the process; returns its exit status, negative for a signal."""


#: Starts a process, given the descriptors of its channel and of what it prints to.
Start: TypeAlias = Callable[[int, int], Process]


class PeerEndedError(Exception):
    """The process ended with `status`, negative for a signal. `by_itself` is false where it had
    closed its channel but kept running, and was killed for that."""

    def __init__(self, status: int, *, by_itself: bool) -> None:
        self.status, self.by_itself = status, by_itself
        super().__init__(f"the process ended with status {status}")


def program(function: str, python: str | Path, environment: Mapping[str, str]) -> Start:
    """A `Start` that runs the interpreter `python` in `environment` and calls `function`
    ("package.module:name") there with its channel."""

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
    """The process that `start` starts. Raises what `start` raises."""

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
        """Send the message `body`. Raises `TimeoutError`; that the process is gone is not reported
        here, but by the next `hear`."""
        with contextlib.suppress(ConnectionError):
            messages.send(self._channel, body, deadline)

    def speaks(self, seconds: float) -> bool:
        """Wait until the process sends something or is gone; False where neither happens within
        `seconds`. For short waits: `hear` with a short deadline may lose half a message."""
        something = select.poll()
        something.register(self._channel, select.POLLIN)
        return bool(something.poll(1000 * seconds))

    def hear(self, deadline: float, most: int = 1 << 62) -> dict[str, Any]:
        """The next message, with arrays of at most `most` bytes in all. Raises `TimeoutError`,
        `PeerEndedError`, and `MessageError` for bytes that are no message."""
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
            signal_group(self.process.pid)  # before it can notice that its channel was closed
            self.process.wait()
            self._gone = True
        self._channel.close()
        self._output.close()


def printed(descriptor: int, since: int = 0) -> str:
    """The last `OUTPUT_TAIL` bytes of what a process printed into the file `descriptor` from offset
    `since` on, as text; the process may go on writing."""
    start = max(since, os.fstat(descriptor).st_size - OUTPUT_TAIL)
    return os.pread(descriptor, OUTPUT_TAIL, start).decode("utf-8", "replace")


def signal_name(number: int) -> str:
    """The system's name of signal `number`, as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_group(leader: int, number: int = signal.SIGKILL) -> None:
    """Send signal `number` to the process group of `leader`: kill, stop or continue the process
    and what it started. The group's id stays reserved while a member lives."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
        os.killpg(leader, number)


def end_group(leader: int, patience: float) -> bool:
    """Kill the process group of `leader` once `leader` has ended by itself, at the latest after
    `patience` seconds: a process that has closed its channel may go on for ever. `leader` must not
    have been waited for. Returns whether it ended by itself."""
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
    """Run a compiler in `folder`; returns its exit status (None after `timeout` seconds) and its
    standard error. On a timeout what it started ends with it. It sees only part of the environment:
    the source is somebody's, and can embed what a compiler sees."""
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


def answer_of(compiler: str, *question: str) -> str:
    """What `compiler` prints for the options `question`, as `--version`; "" where it cannot run."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            [compiler, *question],
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
    """The environment variables that a worker may see, and `extra`.

    `names` and `prefixes` let more variables through, but never one whose name has a secret word.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in ENVIRONMENT_NAMES | names or name.startswith(ENVIRONMENT_PREFIXES + prefixes))
        and not any(word in name.upper() for word in SECRET_WORDS)
    }
    return {**kept, **extra}


def compiler_environment() -> dict[str, str]:
    """The environment for compilers and assemblers, which generated source can read (`.incbin`)."""
    return clean_environment({}, COMPILER_NAMES)


def python_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment for processes that run a user's task or a kernel beside it, and `extra`."""
    return clean_environment(extra, PYTHON_NAMES, PYTHON_PREFIXES)

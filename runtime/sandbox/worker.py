"""Run a function in a sandboxed process of its own: somebody's code may hang, crash, or worse.

`run_worker("sketchc.runtime.toolchains.native.worker:execute", request, arrays)` calls a handler
with a request and arrays; the handler returns `(reply, arrays)`. A `Worker` serves several calls.
The sandbox itself is in `confine`; which files a candidate sees is decided here: everything
read-only, and nothing of the user's folders, of temporary files, of sockets, but what `readable`
and `writable` name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.runtime.process import memory, messages
from sketchc.runtime.process.peer import (
    Peer,
    PeerEndedError,
    clean_environment,
    printed,
    program,
    signal_name,
)
from sketchc.runtime.process.templates import template
from sketchc.runtime.sandbox import confine, namespaces, seccomp

if TYPE_CHECKING:
    import numpy as np

#: The most that one worker may have: bytes of folders in memory, and processes and threads.
SCRATCH_BYTES = 2 << 30
PROCESSES = 512
#: CPU seconds of one process of a worker that serves many calls.
CPU_SECONDS = 4 * 3600
#: The share of the machine's memory that one worker may hold.
_MEMORY_SHARE = 0.8
#: Kinds of a worker that was killed from outside: while the machine was short of memory, and while
#: it was not. A worker that held more than `_OWN_SHARE` of what was free at its start caused that.
SHORT, KILLED = "MachineShortError", "KilledError"
_OWN_SHARE = 0.5
_CONFINE = "sketchc.runtime.sandbox.confine"
#: Bytes that a call's output arrays may have besides four times its inputs', without `file_bytes`.
_OUTPUT_BYTES = 4 << 30
#: Seconds within which processes that were killed must be gone.
_GRACE = 20.0
#: Seconds that a worker which has closed its channel may take to end by itself, for its status.
_FAREWELL = 5.0
#: Bytes that a run of a persistent worker may print, and the least bytes of tensors that a
#: persistent worker is made for.
_PRINTED_BYTES = 64 << 20
_SMALL_BYTES = 64 << 20
#: Folders of which a candidate sees nothing, besides the home and the temporary folder.
_PRIVATE = ("/root", "/home", "/tmp", "/var/tmp", "/run", "/dev/shm", "/mnt", "/media", "/srv")
_PACKAGES = ("agents", "docspec", "grammar", "lowering", "runtime")
#: Variables that every worker has in its environment.
_QUIET = {"PYTHONDONTWRITEBYTECODE": "1"}
#: How often a call is tried: with namespaces, with them again, and without.
_ATTEMPTS = 3


@attrs.frozen
class WorkerResult:
    """How one call of a handler ended, and what the handler returned.

    `exit_code` is negative when a signal ended the process (-6: aborted, -11: segmentation fault),
    and `reply` and `arrays` are there only when the handler returned. `error` is the handler's
    exception as "Type: message" and `traceback` its text; both are empty when it did not raise.
    `kinds` are the types of that exception and of its causes. `error` and `kinds` also say why a
    worker was killed.
    """

    exit_code: int
    timed_out: bool
    seconds: float
    output: str
    reply: Mapping[str, Any] | None = None
    arrays: Mapping[str, np.ndarray[Any, Any]] = attrs.field(factory=dict, repr=False)
    error: str = ""
    traceback: str = ""
    kinds: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the handler returned."""
        return self.reply is not None

    def describe(self) -> str:
        """One line on why there is no reply."""
        if self.ok:
            return "done"
        if self.timed_out:
            return f"no answer within {self.seconds:.0f} s"
        if self.error:
            return self.error
        if self.exit_code < 0:
            return f"the process was ended by {signal_name(-self.exit_code)}"
        return f"the process ended with status {self.exit_code} and no answer"


def outcome_of_end(plain: WorkerResult, told: Mapping[str, Any], limits: Limits) -> WorkerResult:
    """`plain`, the result of a worker that ended, with the cause that its watcher `told`."""
    why, cap = str(told.get("why", "")), limits.settings()["memory_bytes"]
    if why == "memory" or told.get("own"):
        msg = f"MemoryError: its processes held more than {memory.text(cap)} of memory"
        return attrs.evolve(plain, error=msg, kinds=("MemoryError",))
    if why == "processes":
        msg = f"OSError: it started more than {limits.processes} processes"
        return attrs.evolve(plain, error=msg, kinds=("OSError",))
    if plain.exit_code != -signal.SIGKILL or "least" not in told:
        return plain
    return killed(plain, told)


def killed(plain: WorkerResult, told: Mapping[str, Any]) -> WorkerResult:
    """`plain`, the result of a worker that was killed from outside, with the likely cause: the
    kernel kills processes when memory runs out, by what the watcher `told` about memory."""
    held, free, least = (int(told[name]) for name in ("held", "free", "least"))
    if not (told["kills"] or memory.is_short(least)):
        msg = f"the process was ended by SIGKILL, with {memory.text(least)} of memory free"
        return attrs.evolve(plain, error=msg, kinds=(KILLED,))
    if held > _OWN_SHARE * free:
        msg = f"its processes held {memory.text(held)} of the {memory.text(free)} that were free"
        return attrs.evolve(plain, error=f"MemoryError: {msg}", kinds=("MemoryError",))
    msg = (
        "the process was ended by SIGKILL while the machine was short of memory "
        f"({memory.text(least)} of {memory.text(memory.total())} left)"
    )
    return attrs.evolve(plain, error=msg, kinds=(SHORT,))


@attrs.frozen
class Limits:
    """The resources that one worker may use. `memory_bytes` bounds the address space of each
    process, and the resident memory of all of them together; `cpu_seconds` (default: `CPU_SECONDS`)
    bounds each process, `file_bytes` each file."""

    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    file_bytes: int | None = None
    processes: int = PROCESSES

    def settings(self) -> dict[str, Any]:
        """The limits in the form that `confine.keep` takes."""
        held = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MEMORY_SHARE)
        limits = {
            "RLIMIT_CORE": 0,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_CPU": self.cpu_seconds or CPU_SECONDS,
            "RLIMIT_FSIZE": self.file_bytes,
        }
        return {
            "limits": {key: value for key, value in limits.items() if value is not None},
            "memory_bytes": min(held, self.memory_bytes or held),
            "processes": self.processes,
            "scratch_bytes": min(SCRATCH_BYTES, held // 4),
        }


@attrs.frozen
class Isolation:
    """How workers are sandboxed on this machine: `confine.NAMESPACES`, or `PLAIN` and why."""

    mode: str = confine.NAMESPACES
    reason: str = ""

    @property
    def complete(self) -> bool:
        """Whether workers have the full sandbox, with namespaces."""
        return self.mode == confine.NAMESPACES

    @property
    def text(self) -> str:
        """One line that describes the sandbox to the user."""
        if self.mode == confine.NAMESPACES:
            return "PID, network, IPC and mount namespaces; read-only files; system calls filtered"
        return (
            f"process groups and limits only, since this kernel refuses namespaces: {self.reason}"
        )


#: The sandbox of workers on this machine; None while no worker has run.
_found: Isolation | None = None


def isolation() -> Isolation:
    """How workers are sandboxed on this machine; runs a worker to find out if none has run yet."""
    if _found is None:
        run_worker("builtins:dict", {})
    return _assumed()


def _assumed() -> Isolation:
    return _found or Isolation()


def _texts(paths: Iterable[str | Path]) -> list[str]:
    return [str(path) for path in paths]


@attrs.define(kw_only=True, eq=False, slots=False)
class Worker:
    """One sandboxed process that serves calls one after the other; use as a context manager.

    `readable` and `writable` are paths that the process may see although they lie in private
    folders. `preload` names modules that a kept process has imported already; `environment` adds
    variables to the cleaned environment; `gated` workers may be told to start no programs
    (`let_start`). `folder` is where a scratch folder is made where the kernel allows no namespaces
    (default: the system's temporary folder). Raises `OSError` when no process can be started.
    """

    _limits: Limits = Limits()
    _preload: tuple[str, ...] = ()
    _environment: Mapping[str, str] = attrs.field(factory=dict)
    _readable: list[str] = attrs.field(default=(), converter=_texts)
    _writable: list[str] = attrs.field(default=(), converter=_texts)
    _gated: bool = False
    _folder: Path | None = None

    def __attrs_post_init__(self) -> None:
        self._template = template(sys.executable, self._preload)
        self._output = os.memfd_create("output", os.MFD_CLOEXEC)
        self._open = False
        self._refused = 0
        try:
            self._start()
        except BaseException:
            os.close(self._output)
            raise

    def _start(self) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        place = "/tmp"
        if _assumed().mode == confine.PLAIN:
            self._scratch = tempfile.TemporaryDirectory(prefix="worker-", dir=self._folder)
            place = self._scratch.name
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ends, self._lifeline = os.pipe()
        status, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._status, told = status.detach(), others.detach()
        self._told = b""
        try:
            message = self._message(place)
            descriptors = [theirs.fileno(), self._output, ends, told]
            self._template.fork(f"{_CONFINE}:keep", message, descriptors)
        finally:
            theirs.close()
            os.close(ends)
            os.close(told)
        self._open = True

    def _message(self, place: str) -> dict[str, Any]:
        readable = [*self._template.needs, *_own_packages(), *_tools(), *self._readable]
        return {
            **self._limits.settings(),
            "mode": _assumed().mode,
            "hidden": _private(),
            "readable": readable,
            "writable": self._writable,
            "gated": self._gated,
            # Without namespaces, the user nobody could not even enter the folder of its library; a
            # container whose root is somebody outside may have no other user.
            "nobody": _assumed().mode == confine.NAMESPACES
            and namespaces.has_nobody()
            and _others_may_read((*self._template.needs, *_own_packages())),
            "folder": place,
            "environment": clean_environment({**_QUIET, **self._environment, "TMPDIR": place}),
        }

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the worker still serves calls: False after a call that ended it."""
        return self._open

    def call(
        self,
        handler: str,
        request: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
        timeout: float = 300.0,
    ) -> WorkerResult:
        """Call `handler` ("package.module:function" or "/path/file.py:function").

        `request` must be JSON-able. `arrays` are copied (bfloat16 as ml_dtypes.bfloat16). Never
        raises for what the handler does; where no message comes back (a timeout, the end of the
        process, or bytes that are no message), the worker is ended.
        """
        given = {name: messages.raw_of(array) for name, array in (arrays or {}).items()}
        most = self._limits.file_bytes or _OUTPUT_BYTES + 4 * sum(
            raw.data.nbytes for raw in given.values()
        )
        asked = {"handler": handler, "request": dict(request), "arrays": given}
        started = time.monotonic()
        for _ in range(_ATTEMPTS):
            result = self._try(asked, started, timeout, most)
            if result is not None:
                return result
        raise OSError(f"no worker can be started: {_assumed().reason}")

    def let_start(self, allowed: bool) -> bool:
        """Let a gated worker start programs, which it may at first, or not: then those that it has
        started are ended. Returns False where this machine has no means to refuse programs. Raises
        `OSError` where the watcher does not answer."""
        if not self._open:
            return True
        with contextlib.suppress(OSError):  # the worker is gone: the next call says how it ended
            os.write(self._status, seccomp.OPEN if allowed else seccomp.SHUT)
        for part in _parts(self._status, _GRACE):
            if not part:
                return True  # no process of the worker is left
            self._told += part
            *lines, _ = self._told.split(b"\n")
            for line in lines:
                if b'"gate"' in line:
                    self._told = self._told.replace(line + b"\n", b"", 1)
                    return bool(json.loads(line)["gate"] != seccomp.NONE)
        self._end()
        raise OSError("the worker's watcher does not answer")

    def _try(
        self, asked: Mapping[str, Any], started: float, timeout: float, most: int
    ) -> WorkerResult | None:
        """Send the call `asked` once and return its result; None where the sandbox could not be
        made. `started` is on the monotonic clock, `most` bounds the bytes of the reply's arrays."""
        deadline = started + timeout
        offset = os.fstat(self._output).st_size
        try:
            messages.send(self._channel, asked, deadline)
            body = messages.receive(self._channel, deadline, most)
        except TimeoutError:
            self._end()
            return attrs.evolve(self._result(-signal.SIGKILL, started, offset), timed_out=True)
        except (messages.Closed, ConnectionError, BrokenPipeError):
            return self._ended(started, offset)
        except messages.MessageError as error:
            self._end()
            plain = self._result(0, started, offset)
            return attrs.evolve(plain, error=f"the worker's reply cannot be read: {error}")
        _note_that_it_works()
        return _understood(self._result(0, started, offset), body)

    def _result(self, code: int, started: float, offset: int) -> WorkerResult:
        """A result without an answer: the process's status, and what it printed since `offset`."""
        return WorkerResult(code, False, time.monotonic() - started, printed(self._output, offset))

    def _ended(self, started: float, offset: int) -> WorkerResult | None:
        """The result of a worker that closed its channel, by what the watcher reports; None where
        the sandbox could not be made, and the worker was started anew."""
        global _found
        told = self._end(patience=_FAREWELL)
        if "failed" in told and _found is None:
            # One failure may be for want of memory; after two, workers run without namespaces.
            self._refused += 1
            if self._refused > 1:
                _found = Isolation(confine.PLAIN, str(told["failed"]))
            self._start()
            return None
        _note_that_it_works()
        plain = self._result(int(told.get("status", -signal.SIGKILL)), started, offset)
        if "failed" in told:
            return attrs.evolve(plain, error=f"OSError: {told['failed']}", kinds=("OSError",))
        return outcome_of_end(plain, told, self._limits)

    def _end(self, patience: float = 0.0) -> dict[str, Any]:
        """Close everything, and wait until nothing of the worker is left; returns what the watcher
        reported.

        For `patience` seconds the worker may end by itself first, so that its status is known.
        """
        if not self._open:
            return {}
        self._open = False
        self._channel.close()
        told = self._told
        if patience:
            told += b"".join(_parts(self._status, patience))
        os.close(self._lifeline)
        told += b"".join(_parts(self._status, _GRACE))
        os.close(self._status)
        if self._scratch is not None:
            self._scratch.cleanup()
        found: dict[str, Any] = {}
        for line in told.splitlines():
            with contextlib.suppress(ValueError):
                found |= json.loads(line)
        return found

    def close(self) -> None:
        """End the worker and all that it started."""
        self._end()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


def _note_that_it_works() -> None:
    global _found
    _found = _assumed()


def _understood(plain: WorkerResult, body: Mapping[str, Any]) -> WorkerResult:
    """`plain` with what the worker answered in `body`: a reply and arrays, or an exception."""
    try:
        if "error" in body:
            error = body["error"]
            return attrs.evolve(
                plain,
                exit_code=1,
                error=_printable(f"{error['type']}: {error['message']}"),
                traceback=_printable(str(error["traceback"])),
                kinds=tuple(str(kind) for kind in error.get("kinds", ())),
            )
        json.dumps(body["answer"])  # arrays have no place there: this raises for one
        arrays = {name: messages.array_of(raw) for name, raw in body["arrays"].items()}
        return attrs.evolve(plain, reply=dict(body["answer"]), arrays=arrays)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # The candidate shares the process with the channel: a garbled reply is its doing.
        return attrs.evolve(plain, error=f"the worker's reply cannot be read: {error}")


def _printable(text: str) -> str:
    """`text` with lone surrogates as question marks, since nothing downstream could encode them."""
    return text.encode("utf-8", "replace").decode()


def _parts(descriptor: int, seconds: float) -> Iterator[bytes]:
    """The bytes that arrive at `descriptor` within `seconds`, in parts; the last part is b"" where
    the other side was closed."""
    deadline = time.monotonic() + seconds
    part = b"-"
    while part and (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            return
        try:
            part = os.read(descriptor, 4096)
        except ConnectionResetError:  # the other side ended before it had read everything
            part = b""
        yield part


def run_worker(
    handler: str,
    request: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    timeout: float = 300.0,
    memory_bytes: int | None = None,
    cpu_seconds: int | None = None,
    file_bytes: int | None = None,
    readable: Iterable[str | Path] = (),
    **others: Any,
) -> WorkerResult:
    """Call `handler` once in a new worker; see `Worker`, which takes the `others`, and
    `Worker.call`.

    `cpu_seconds` bounds each process: by default the CPU time of all processors in twice `timeout`,
    so that a loop ends even where the wall clock stands still.
    """
    if cpu_seconds is None:
        cpu_seconds = math.ceil(2 * timeout * (os.cpu_count() or 1)) + 1
    own = [handler.rpartition(":")[0]] if handler.rpartition(":")[0].endswith(".py") else []
    limits = Limits(memory_bytes, cpu_seconds, file_bytes)
    with Worker(limits=limits, readable=[*own, *readable], **others) as worker:
        return worker.call(handler, request, arrays, timeout)


def run_inside(
    handler: str,
    request: Mapping[str, Any],
    *,
    python: str | Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> WorkerResult:
    """For handlers: call another handler in the interpreter `python`, inside the same sandbox."""
    variables = clean_environment({**_QUIET, **(environment or {})})
    free, kills = memory.available(), memory.kills()
    started = time.monotonic()
    deadline = started + timeout
    body: dict[str, Any] = {}
    timed_out, code = False, -signal.SIGKILL
    peer = Peer(program(f"{_CONFINE}:serve", python, variables))
    try:
        peer.tell({"handler": handler, "request": dict(request), "arrays": {}}, deadline)
        body = peer.hear(deadline, _OUTPUT_BYTES)
    except TimeoutError:
        timed_out = True
    except PeerEndedError as ended:
        code = ended.status
    except messages.MessageError:
        pass
    finally:
        said = peer.printed
        peer.close()
    plain = WorkerResult(code, timed_out, time.monotonic() - started, said)
    if body or timed_out or code != -signal.SIGKILL:
        return _understood(plain, body) if body else plain
    left = {"held": 0, "free": free, "least": min(free, memory.available())}
    return killed(plain, {**left, "kills": memory.kills() - kills})


def file_limit(arrays: Mapping[str, np.ndarray[Any, Any]]) -> int:
    """The most bytes that a worker may write into one file, for a call with `arrays`: enough for
    its results, and a bound for a kernel that prints without end."""
    return (64 << 20) + 2 * sum(array.nbytes for array in arrays.values())


class PersistentWorker:
    """Calls one handler, run after run, in one worker. `make(tensor_bytes, file_bytes)` starts the
    worker; a new one is started after a run that ended it, and for larger tensors."""

    def __init__(self, handler: str, make: Callable[[int, int], Worker]) -> None:
        self._handler = handler
        self._make = make
        self._worker: Worker | None = None
        self._bytes = 0

    def call(
        self,
        request: Mapping[str, Any],
        tensors: Mapping[str, np.ndarray[Any, Any]],
        timeout: float,
    ) -> WorkerResult:
        """Call the handler once, like `Worker.call`."""
        size = sum(array.nbytes for array in tensors.values())
        if self._worker is None or not self._worker.alive or size > self._bytes:
            self.close()
            self._bytes = max(2 * size, _SMALL_BYTES)
            self._worker = self._make(self._bytes, _PRINTED_BYTES + 2 * self._bytes)
        return self._worker.call(self._handler, request, tensors, timeout)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


# ---------------------------------------------------------------- files that a worker sees


def _private() -> list[str]:
    """Folders with private files, which candidates must not see."""
    return sorted({*_PRIVATE, str(Path.home()), tempfile.gettempdir()})


@functools.lru_cache(maxsize=1)
def _own_packages() -> tuple[str, ...]:
    """Where sketchc itself is: an editable installation may be anywhere."""
    found: list[str] = []
    for name in ("sketchc", *(f"sketchc.{name}" for name in _PACKAGES)):
        specification = importlib.util.find_spec(name)
        if specification is not None:
            found += specification.submodule_search_locations or []
    return tuple(found)


def _tools() -> list[str]:
    """The folders where the user's compilers and libraries may be, by environment variables."""
    names = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CUDA_HOME", "CUDA_PATH")
    places = [place for name in names for place in os.environ.get(name, "").split(os.pathsep)]
    return [place for place in places if os.path.isabs(place)]


@functools.lru_cache(maxsize=64)
def _others_may_read(paths: tuple[str, ...]) -> bool:
    """Whether other users may read and enter all folders of `paths`; else root's candidates stay
    root, without any capability."""
    return all(os.stat(path).st_mode & 5 == 5 for path in paths if os.path.isdir(path))

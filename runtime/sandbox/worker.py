"""Run a function in a process of its own, shut in: somebody's code may hang, crash, or worse.

`run_worker("sketchc.runtime.toolchains.cpp.worker:execute", request, arrays)` calls a handler with
a request and arrays; it returns `(reply, arrays)`. A `Worker` serves several calls. What holds the
candidate is in `confine`; what it may see of files is decided here: everything read-only, and
nothing of the user's folders, of temporary files, of sockets, but what `readable` and `writable`
name.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.runtime.process import memory, messages
from sketchc.runtime.process.environment import clean_environment
from sketchc.runtime.process.peer import Peer, PeerEndedError, printed, program
from sketchc.runtime.process.templates import template
from sketchc.runtime.sandbox import confine, gate, view
from sketchc.runtime.sandbox.results import Isolation, Limits, WorkerResult, killed, outcome_of_end

if TYPE_CHECKING:
    import numpy as np

_INSIDE = "sketchc.runtime.sandbox.inside"
#: What its outputs may be larger than its inputs, where nothing else is said.
_OUTPUT_BYTES = 4 << 30
#: Seconds until what was ended is gone.
_GRACE = 20.0
#: Seconds that a worker which has closed its channel may take to end by itself, for its status.
_FAREWELL = 5.0

_ATTEMPTS = 3

#: What holds workers here; None while none has run.
_found: Isolation | None = None


def isolation() -> Isolation:
    """What holds workers here; tries it when nothing was run yet."""
    if _found is None:
        run_worker("builtins:dict", {})
    return _assumed()


def _assumed() -> Isolation:
    return _found or Isolation()


class Worker:
    """One shut-in process that serves calls one after the other; use as a context manager.

    `readable` and `writable` are paths that it may see although they lie in private places.
    `preload` names modules that a kept process has imported already; `python` defaults to this
    interpreter; `environment` adds to the cleared one; `gated` workers may be told to start no
    programs (`let_start`). Raises `OSError` when no process can be started.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        python: str | Path | None = None,
        preload: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        readable: Iterable[str | Path] = (),
        writable: Iterable[str | Path] = (),
        network: bool = False,
        gated: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._environment = {"PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        self._template = template(str(python or sys.executable), preload)
        self._readable = [str(path) for path in readable]
        self._writable = [str(path) for path in writable]
        self._network = network
        self._gated = gated
        self._folder = folder
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
            self._template.fork(f"{_INSIDE}:keep", message, descriptors)
        finally:
            theirs.close()
            os.close(ends)
            os.close(told)
        self._open = True

    def _message(self, place: str) -> dict[str, Any]:
        readable = [*self._template.needs, *view.own_packages(), *view.tools(), *self._readable]
        return {
            **self._limits.settings(),
            "mode": _assumed().mode,
            "hidden": view.private(),
            "readable": readable,
            "writable": self._writable,
            "network": self._network,
            "gated": self._gated,
            # Without mounts of its own it could not even enter the folder of its library.
            "nobody": _assumed().mode == confine.NAMESPACES
            and view.others_may_read((*self._template.needs, *view.own_packages())),
            "folder": place,
            "environment": clean_environment({**self._environment, "TMPDIR": place}),
        }

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """False after a call that ended it: make another one."""
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
        raises for what the handler does; after anything but an answer the worker is closed.
        """
        given = {name: messages.raw_of(array) for name, array in (arrays or {}).items()}
        most = self._limits.file_bytes or _OUTPUT_BYTES + 4 * sum(
            raw.data.nbytes for raw in given.values()
        )
        started = time.monotonic()
        for _ in range(_ATTEMPTS):  # with namespaces, with them again, and without
            result = self._try(handler, request, given, timeout, started, most)
            if result is not None:
                return result
        msg = f"no worker can be started: {_assumed().reason}"
        raise OSError(msg)

    def let_start(self, allowed: bool) -> bool:
        """Let a gated worker start programs, as at first, or no more: those that it has started are
        ended then. False where this machine has no means to refuse them. Raises `OSError` where
        nobody answers."""
        if not self._open:
            return True
        with contextlib.suppress(OSError):  # it is gone: the next call says how
            os.write(self._status, gate.OPEN if allowed else gate.SHUT)
        deadline = time.monotonic() + _GRACE
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._status], [], [], left)[0]:
                break
            if not (part := _read(self._status)):
                return True  # nothing of it is left
            self._told += part
            *lines, _ = self._told.split(b"\n")
            for line in lines:
                if b'"gate"' in line:
                    self._told = self._told.replace(line + b"\n", b"", 1)
                    return bool(json.loads(line)["gate"] != gate.NONE)
        self._end()
        msg = "the worker's watcher does not answer"
        raise OSError(msg)

    def _try(
        self,
        handler: str,
        request: Mapping[str, Any],
        given: Mapping[str, messages.Raw],
        timeout: float,
        started: float,
        most: int,
    ) -> WorkerResult | None:
        """One attempt; None where the sandbox could not be made."""
        deadline = started + timeout
        offset = os.fstat(self._output).st_size
        try:
            asked = {"handler": handler, "request": dict(request), "arrays": dict(given)}
            messages.send(self._channel, asked, deadline)
            body = messages.receive(self._channel, deadline, most)
        except TimeoutError:
            self._end()
            seconds = time.monotonic() - started
            return WorkerResult(-signal.SIGKILL, True, seconds, printed(self._output, offset))
        except (messages.Closed, ConnectionError, BrokenPipeError):
            return self._ended(started, offset)
        except messages.MessageError as error:
            self._end()
            plain = WorkerResult(
                0, False, time.monotonic() - started, printed(self._output, offset)
            )
            return attrs.evolve(plain, error=f"the worker's reply cannot be read: {error}")
        _note_that_it_works()
        plain = WorkerResult(0, False, time.monotonic() - started, printed(self._output, offset))
        return _understood(plain, body)

    def _ended(self, started: float, offset: int) -> WorkerResult | None:
        """The worker closed its end: how, by the watcher's words."""
        global _found
        told = self._end(patience=_FAREWELL)
        if "failed" in told and _found is None:
            # Once may be for want of memory; twice, and it is known for all that come.
            self._refused += 1
            if self._refused > 1:
                _found = Isolation(confine.PLAIN, str(told["failed"]))
            self._start()
            return None
        _note_that_it_works()
        seconds = time.monotonic() - started
        plain = WorkerResult(
            int(told.get("status", -signal.SIGKILL)), False, seconds, printed(self._output, offset)
        )
        if "failed" in told:
            return attrs.evolve(plain, error=f"OSError: {told['failed']}", kinds=("OSError",))
        return outcome_of_end(plain, told, self._limits)

    def _end(self, patience: float = 0.0) -> dict[str, Any]:
        """Close everything, wait until nothing of the worker is left; what the watcher said.

        With `patience` it may end by itself for a moment first, so that its status is known.
        """
        if not self._open:
            return {}
        self._open = False
        self._channel.close()
        told = self._told
        if patience:
            told += _read_until_closed(self._status, patience)
        os.close(self._lifeline)
        told += _read_until_closed(self._status, _GRACE)
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
    """The result with what the worker answered."""
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
        arrays = {name: messages.array_of(raw) for name, raw in body["arrays"].items()}
        return attrs.evolve(plain, reply=dict(body["answer"]), arrays=arrays)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # The candidate shares the process with the channel: a garbled reply is its doing.
        return attrs.evolve(plain, error=f"the worker's reply cannot be read: {error}")


def _read_until_closed(descriptor: int, seconds: float) -> bytes:
    parts = b""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            break
        part = _read(descriptor)
        if not part:
            break
        parts += part
    return parts


def _read(descriptor: int) -> bytes:
    """What is there; b"" when nobody is left on the other side."""
    try:
        return os.read(descriptor, 4096)
    except ConnectionResetError:  # it did not hear all that it was told
        return b""


def run_worker(
    handler: str,
    request: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    folder: Path | None = None,
    timeout: float = 300.0,
    python: str | Path | None = None,
    memory_bytes: int | None = None,
    cpu_seconds: int | None = None,
    file_bytes: int | None = None,
    environment: Mapping[str, str] | None = None,
    preload: tuple[str, ...] = (),
    readable: Iterable[str | Path] = (),
    writable: Iterable[str | Path] = (),
    network: bool = False,
) -> WorkerResult:
    """Call `handler` once in a new worker; see `Worker` and `Worker.call`.

    `folder` is where a scratch folder is made where the kernel allows no namespaces (default: the
    system's temporary folder); it is removed afterwards. `cpu_seconds` of one process: by default
    what all processors give in twice the time, so that the answer to a wall clock that stands still
    is not an endless loop.
    """
    if cpu_seconds is None:
        cpu_seconds = math.ceil(2 * timeout * (os.cpu_count() or 1)) + 1
    own = [handler.rpartition(":")[0]] if handler.rpartition(":")[0].endswith(".py") else []
    with Worker(
        limits=Limits(memory_bytes, cpu_seconds, file_bytes),
        python=python,
        preload=preload,
        environment=environment,
        readable=[*own, *readable],
        writable=writable,
        network=network,
        folder=folder,
    ) as worker:
        return worker.call(handler, request, arrays, timeout)


def run_inside(
    handler: str,
    request: Mapping[str, Any],
    *,
    python: str | Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> WorkerResult:
    """For handlers: call another handler in another interpreter, inside of the same sandbox."""
    variables = clean_environment({"PYTHONDONTWRITEBYTECODE": "1", **(environment or {})})
    free, kills = memory.available(), memory.kills()
    started = time.monotonic()
    deadline = started + timeout
    body: dict[str, Any] = {}
    timed_out, code = False, -signal.SIGKILL
    peer = Peer(program(f"{_INSIDE}:serve", python, variables))
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
    """What a worker may write into one file, in bytes: its results, and not what a kernel that
    prints without end makes of it."""
    return (64 << 20) + 2 * sum(array.nbytes for array in arrays.values())


def _printable(text: str) -> str:
    """Half surrogate pairs as question marks: nothing downstream could encode them."""
    return text.encode("utf-8", "replace").decode()


__all__ = [
    "Isolation",
    "Limits",
    "Worker",
    "WorkerResult",
    "file_limit",
    "isolation",
    "run_inside",
    "run_worker",
]

"""The program of the processes that `peer` and `templates` start, by its path.

`program.py --call FUNCTION FD` calls a function ("package.module:name") with the socket FD, and
ends with its parent. `program.py --template WORD MODULES FD [LISTENER]` imports the modules once
(torch takes two seconds), and forks a process for every request from the socket FD, and a template
for every process that connects to the socket LISTENER; with the word "bound" it ends with its
parent, with "free" when the parent closes its socket. It needs only the standard library, so that
it runs in environments without sketchc: there it makes `sketchc.runtime` importable by itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import json
import os
import random
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

#: The longest request of the parent to a template.
LONGEST_REQUEST = 1 << 18
#: A constant of prctl(2).
_PR_SET_PDEATHSIG = 1
#: A constant of madvise(2), and the bytes of a huge page.
_MADV_COLLAPSE = 25
_HUGE = 2 << 20
#: The process that started this one.
_PARENT = os.getppid()
_RUNTIME = Path(__file__).resolve().parent.parent


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone, however that ended: nobody else
    would end a process that hangs. (Linux; elsewhere nothing happens.)"""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() == 1 and os.getpid() != 1 and _PARENT != 1:
        os._exit(1)  # the parent was gone before the call


def _show_rooms() -> None:
    """In an environment where sketchc is not installed: make the packages `sketchc.runtime` and
    `sketchc.base` importable, and nothing else of sketchc. Their folders lie beside each other in
    an installed sketchc, not in a checkout."""
    rooms = {
        "sketchc": (),
        "sketchc.base": (_RUNTIME.parent / "base", _RUNTIME.parent / "sketchc" / "base"),
        "sketchc.runtime": (_RUNTIME,),
    }
    for name, folders in rooms.items():
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = [str(folder) for folder in folders]


def named(function: str) -> Callable[..., Any]:
    """The function that a text "package.module:name" names."""
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


class _Template:
    """Forks processes for the process at the other end of `control` until that goes away.

    The first message, `told`, says which imports failed, and which paths this interpreter reads. A
    request is JSON with descriptors: {"function", "message"} forks a process that calls the
    function with the message and the descriptors. With {"waited": true} the answer is the number of
    the new process, whose exit status {"wait": number} then asks for; nobody waits for other
    processes. A process that connects to `listener` gets a fork of this template, which serves that
    process alone and ends with it.
    """

    def __init__(
        self, control: socket.socket, told: bytes, listener: socket.socket | None = None
    ) -> None:
        self._control, self._told, self._listener = control, told, listener
        self._unwatched: set[int] = set()
        signal.signal(signal.SIGCHLD, self._reap)
        control.send(told)

    def serve(self, client: int = -1) -> int:
        """Answer requests until `control` is closed, or the process of the descriptor `client` has
        ended; returns the exit status of this process."""
        asked = select.poll()
        for end in (self._control, self._listener, client):
            if end not in (None, -1):
                asked.register(end, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in asked.poll()}
            if client in ready or (self._control.fileno() in ready and not self._answer()):
                return 0
            if self._listener is not None and self._listener.fileno() in ready:
                self._serve_another(self._listener)

    def _answer(self) -> bool:
        """Do what the next request asks for; False where `control` was closed instead."""
        try:
            text, descriptors, _, _ = socket.recv_fds(self._control, LONGEST_REQUEST, 8)
        except OSError:
            return False
        if not text:
            return False
        request = json.loads(text)
        if "wait" in request:
            answer = self._status(request["wait"])
            if answer is None:
                return False
        else:
            answer = self._fork(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if answer is not None:
            self._control.send(answer.encode())
        return True

    def _status(self, process: int) -> str | None:
        """Wait for the end of `process`; returns its exit status and its CPU seconds as a text, or
        None where `control` was closed meanwhile."""
        ended = os.pidfd_open(process)
        waiting = select.poll()
        waiting.register(ended, select.POLLIN)
        waiting.register(self._control, 0)  # nothing but POLLHUP and POLLERR
        if self._listener is not None:
            waiting.register(self._listener, select.POLLIN)
        ready: set[int] = set()
        while not ready & {ended, self._control.fileno()}:
            ready = {descriptor for descriptor, _ in waiting.poll()}
            if self._listener is not None and self._listener.fileno() in ready:
                self._serve_another(self._listener)
        os.close(ended)
        if self._control.fileno() in ready:
            return None
        _, status, used = os.wait4(process, 0)
        return f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}"

    def _serve_another(self, listener: socket.socket) -> None:
        """Fork a template for the process that has connected, unless that process is sandboxed."""
        connection = listener.accept()[0]
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        asks = int.from_bytes(credentials[:4], sys.byteorder)
        if _shut_in(asks):
            connection.close()
            return
        process = os.fork()
        if process == 0:
            try:
                os.setsid()
                self._control.close()
                listener.close()
                _Template(connection, self._told).serve(os.pidfd_open(asks))
            finally:
                os._exit(0)
        self._unwatched.add(process)
        connection.close()

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> str | None:
        """Fork the process that `request` asks for; returns its number, None where nobody waits
        for it."""
        known = len(sys.modules)
        _imported([request["function"].partition(":")[0], *request["modules"]])
        if len(sys.modules) > known:
            _settle()
        process = os.fork()
        if process == 0:
            if self._listener is not None:
                self._listener.close()
            _become(self._control, request, descriptors)
        if request["waited"]:
            return str(process)
        self._unwatched.add(process)
        return None

    def _reap(self, *_: object) -> None:
        for process in list(self._unwatched):
            try:
                ended = os.waitpid(process, os.WNOHANG)[0]
            except ChildProcessError:  # the handler of another signal has reaped it meanwhile
                continue
            if ended:
                self._unwatched.discard(process)


def _shut_in(process: int) -> bool:
    """Whether `process` is confined further than this one, or is gone. A candidate that is confined
    without namespaces can reach the sockets of this user, and must not have a process outside its
    sandbox do something for it."""
    try:
        theirs = _confinement(process)
    except OSError:
        return True
    return any(one > other for one, other in zip(theirs, _confinement(os.getpid()), strict=True))


def _confinement(process: int) -> tuple[int, ...]:
    """How far `process` is confined, by the fields of /proc/PID/status on new privileges and
    seccomp: larger numbers for a process that may do less."""
    found = dict.fromkeys(("NoNewPrivs", "Seccomp", "Seccomp_filters"), 0)
    with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value)
    return tuple(found.values())


def _imported(modules: list[str]) -> list[str]:
    """Import `modules`, of which an entry "module:name" is a function that is called to prepare
    what all forks need; returns one line for each entry that failed, with the error."""
    missing = []
    for name in modules:
        try:
            if ":" in name:
                named(name)()
            else:
                importlib.import_module(name)
        except Exception as error:  # reported by the code that needs the module
            missing.append(f"{name}: {type(error).__name__}: {error}")
    return missing


def _settle() -> None:
    """Make forks of this process cheap: its objects are frozen for the garbage collector, and its
    memory is moved into huge pages, where the kernel does so on demand (Linux 6.1). A fork copies
    an entry per page: with torch 36,000 entries in three quarters of its time, else 600."""
    gc.freeze()
    try:
        libc = ctypes.CDLL(None)
        with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
            lines = [line.split() for line in maps]
        for place, allowed, _, _, inode, *_ in lines:
            first, end = (int(number, 16) for number in place.split("-"))
            first, end = -(-first // _HUGE) * _HUGE, end // _HUGE * _HUGE
            if allowed == "rw-p" and inode == "0" and first < end:
                size = ctypes.c_size_t(end - first)
                libc.madvise(ctypes.c_void_p(first), size, _MADV_COLLAPSE)
    except (OSError, AttributeError):
        return  # another system


def _become(control: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the requested function in the forked process, and exit; does not return."""
    status = 1
    try:
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        named(request["function"])(request["message"], descriptors)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue  # somebody's code has closed it
        os._exit(status)


def serve_apart(message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """In a process that a template forked: call the function that `message` names with its channel,
    in the working directory and with the variables that `message` names, as the leader of a session
    of its own. `descriptors` are the channel and the file for standard output and error."""
    channel, output = descriptors
    os.setsid()
    die_with_parent()
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.environ.update(message["environment"])
    os.chdir(message["place"])
    # Every fork inherits the state of the template's random generators: seed them anew.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    with socket.socket(fileno=channel) as connection:
        named(message["function"])(connection)


def _needs() -> list[str]:
    """The outermost paths that this interpreter must be able to read in order to run."""
    paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(sys.executable)}
    paths |= {path for path in sys.path if path}
    for name, module in list(sys.modules.items()):
        places = getattr(getattr(module, "__spec__", None), "submodule_search_locations", None)
        if name.count(".") < 2 and isinstance(places, list):
            paths |= set(places)
    paths.add(str(_RUNTIME))
    outermost: list[str] = []
    for path in sorted(path for path in paths if os.path.isabs(path)):
        if not any(path.startswith(one + "/") for one in outermost):
            outermost.append(path)
    return outermost


def main(arguments: list[str]) -> int:
    """Run the command line that the module's docstring describes; returns the exit status."""
    if importlib.util.find_spec("sketchc") is None:
        _show_rooms()
    match arguments:
        case ["--call", function, descriptor]:
            die_with_parent()
            with socket.socket(fileno=int(descriptor)) as channel:
                named(function)(channel)
        case ["--template", word, modules, *descriptors]:
            if word == "bound":
                die_with_parent()
            control, *listeners = (socket.socket(fileno=int(number)) for number in descriptors)
            missing = _imported([name for name in modules.split(",") if name])
            _settle()
            # Most objects of a fork are freed by reference counting: collections rarely find any.
            gc.set_threshold(20_000, 20, 20)
            told = json.dumps({"missing": missing, "needs": _needs()}).encode()
            return _Template(control, told, *listeners).serve()
        case _:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

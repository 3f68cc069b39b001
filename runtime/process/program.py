"""What runs in the processes that `peer` starts, by its path.

As `program.py --call FUNCTION FD` it calls a function ("package.module:name") with the socket FD,
and ends with its parent. As `program.py --template WORD MODULES FD [LISTENER]` it imports the
modules once (torch takes two seconds), and forks a process for every request from the socket FD,
and a template for everybody who connects to the socket LISTENER; the word "bound" has it end with
its parent, "free" when that closes its socket. Only the standard library, so that it runs in
environments without sketchc: there it shows itself the rooms of `sketchc.runtime`.
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
#: Of prctl(2).
_PR_SET_PDEATHSIG = 1
#: Of madvise(2), and the bytes of a huge page.
_MADV_COLLAPSE = 25
_HUGE = 2 << 20
#: Who started this process.
_PARENT = os.getppid()
_RUNTIME = Path(__file__).resolve().parent.parent


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone, however it ended:
    nobody else would end what hangs. (Linux; elsewhere nothing happens.)"""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() == 1 and os.getpid() != 1 and _PARENT != 1:
        os._exit(1)  # it was gone before that


def _show_rooms() -> None:
    """In an environment of others, where sketchc is not installed: make the rooms of
    `sketchc.runtime` and `sketchc.base` importable, and nothing else of sketchc. The two lie beside
    each other where sketchc is installed, not in a checkout."""
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
    """Forks processes for the one at the other end of `control` until that goes away.

    The first message, `told`, says which imports failed, and what this interpreter lives from. A
    request is JSON with descriptors: {"function", "message"} forks a process that calls the
    function with the message and the descriptors. {"waited": true} in it asks for its number, which
    {"wait": number} then asks the exit status of; nobody waits for the others. Who connects to the
    `listener` gets a fork of this process, which serves it alone and ends with it.
    """

    def __init__(
        self, control: socket.socket, told: bytes, listener: socket.socket | None = None
    ) -> None:
        self._control, self._told, self._listener = control, told, listener
        self._unwatched: set[int] = set()
        signal.signal(signal.SIGCHLD, self._reap)
        control.send(told)

    def serve(self, client: int = -1) -> int:
        """Answer until nobody asks, or the process of the descriptor `client` has ended; returns
        the exit status."""
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
        """Do what the next request asks for; False where nobody asks any more."""
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
        """How a process has ended, once it has, and the seconds it has computed; None where nobody
        is left who asks."""
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
        """Fork a template for the process that has connected, unless that is shut in."""
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
        """The number of the new process; None where nobody waits for it."""
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
            except ChildProcessError:  # another signal came meanwhile, and saw to it
                continue
            if ended:
                self._unwatched.discard(process)


def _shut_in(process: int) -> bool:
    """Whether a process has been shut in further than this one, or is gone. A kernel without
    namespaces may reach what this user may, and must not have a process outside of its sandbox do
    something for it."""
    try:
        theirs = _confinement(process)
    except OSError:
        return True
    return any(one > other for one, other in zip(theirs, _confinement(os.getpid()), strict=True))


def _confinement(process: int) -> tuple[int, ...]:
    """How far a process has been shut in: what the kernel counts, more for less that it may do."""
    found = dict.fromkeys(("NoNewPrivs", "Seccomp", "Seccomp_filters"), 0)
    with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value)
    return tuple(found.values())


def _imported(modules: list[str]) -> list[str]:
    """Import these modules, and call the functions ("module:name") that prepare what all forks
    need; returns a line on each that failed, and why."""
    missing = []
    for name in modules:
        try:
            if ":" in name:
                named(name)()
            else:
                importlib.import_module(name)
        except Exception as error:  # who needs it will say what is missing
            missing.append(f"{name}: {type(error).__name__}: {error}")
    return missing


def _settle() -> None:
    """Make forks of this process cheap: its objects are no longer looked at for garbage, and its
    memory lies in huge pages, where the kernel has them on demand (Linux 6.1). A fork copies an
    entry for each page: with torch 36,000 in three quarters of its time, else 600."""
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
    """In the forked process; does not return."""
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
    """In a process that a template forked: call the function that the message names with its
    channel, in the place and with the variables that the message names, as in a process of its own.
    The descriptors are the channel and what is printed to."""
    channel, output = descriptors
    os.setsid()
    die_with_parent()
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.environ.update(message["environment"])
    os.chdir(message["place"])
    # The template's state is the same for all.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    with socket.socket(fileno=channel) as connection:
        named(message["function"])(connection)


def _needs() -> list[str]:
    """What this interpreter must be able to read in order to run."""
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
    """See the module's text."""
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
            # What a fork makes mostly goes when nothing refers to it: few collections find any.
            gc.set_threshold(20_000, 20, 20)
            told = json.dumps({"missing": missing, "needs": _needs()}).encode()
            return _Template(control, told, *listeners).serve()
        case _:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

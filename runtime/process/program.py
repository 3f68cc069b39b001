"""What runs in the processes that `peer` starts, by its path.

As `program.py --call FUNCTION FD` it calls a function ("package.module:name") with the socket FD,
and ends with its parent. As `program.py --template FD WORD MODULES` it imports the modules once
(torch takes two seconds), and forks a process for every request from the socket FD; the word
"bound" has it end with its parent, "free" when that closes its socket. Only the standard library,
so that it runs in environments without sketchc: there it shows itself the rooms of
`sketchc.runtime`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

#: The longest request of the parent to a template.
LONGEST_REQUEST = 1 << 18
#: Of prctl(2).
_PR_SET_PDEATHSIG = 1
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
    """Forks processes for the parent until it goes away.

    The first message says which imports failed, and what this interpreter lives from. A request is
    JSON with descriptors: {"function", "message"} forks a process that calls the function with the
    message and the descriptors. {"waited": true} in it asks for its number, which {"wait": number}
    then asks the exit status of; nobody waits for the others.
    """

    def __init__(self, control: socket.socket, modules: list[str]) -> None:
        self._control = control
        self._unwatched: set[int] = set()
        missing = _imported(modules)
        gc.freeze()
        signal.signal(signal.SIGCHLD, self._reap)
        control.send(json.dumps({"missing": missing, "needs": _needs()}).encode())

    def serve(self) -> int:
        """Answer until nobody asks; returns the exit status."""
        while True:
            try:
                text, descriptors, _, _ = socket.recv_fds(self._control, LONGEST_REQUEST, 8)
            except OSError:
                return 0
            if not text:
                return 0
            request = json.loads(text)
            answer: int | None
            if "wait" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
            else:
                answer = self._fork(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            if answer is not None:
                self._control.send(str(answer).encode())

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> int | None:
        """The number of the new process; None where nobody waits for it."""
        _imported(request["modules"])
        process = os.fork()
        if process == 0:
            _become(self._control, request, descriptors)
        if request["waited"]:
            return process
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


def _imported(modules: list[str]) -> list[str]:
    """Import these modules; returns a line on each that failed, and why."""
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # who needs it will say what is missing
            missing.append(f"{name}: {type(error).__name__}: {error}")
    return missing


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
        case ["--template", descriptor, word, modules]:
            if word == "bound":
                die_with_parent()
            with socket.socket(fileno=int(descriptor)) as control:
                return _Template(control, [name for name in modules.split(",") if name]).serve()
        case _:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

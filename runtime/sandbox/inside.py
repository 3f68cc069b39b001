"""The inside of workers: a template process that forks them, and the loop that serves requests.

As `inside.py --template FD MODULES` it imports the modules once (torch takes two seconds) and forks
a shut-in worker (`confine`) per request from the socket FD. As `inside.py --direct FD` it is a
worker itself, for processes that are inside of a sandbox already. A worker gets messages
(`messages`) with a handler ("package.module:function" or "/path/file.py:function"), its request and
arrays, and answers each. Only the standard library, so that it runs in environments without
sketchc.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

#: What a worker needs of sketchc lies here.
_RUNTIME = Path(__file__).resolve().parent.parent

if importlib.util.find_spec("sketchc") is None:  # started by path, in an environment of others
    # `python -P` keeps that folder off the path, so that no name in it shadows a module.
    sys.path.insert(0, str(_RUNTIME / "process"))
    import by_path  # type: ignore[import-not-found]

    sys.path.pop(0)
    by_path.show_rooms()

from sketchc.runtime.process import messages  # noqa: E402
from sketchc.runtime.sandbox import confine, namespaces  # noqa: E402

#: What a handler is: (request, input arrays) -> (JSON-able reply, output arrays). Its arrays are
#: NumPy's, or `messages.Raw` where the function has an attribute `takes_raw`.
Handler: TypeAlias = (
    "Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]"
)

#: The longest request of the parent to a template.
LONGEST_REQUEST = 1 << 18
#: The descriptor of a worker's channel.
_CHANNEL = 3


def load_handler(text: str) -> Handler:
    """The function that a handler's text names."""
    place, _, name = text.rpartition(":")
    if not place.endswith(".py"):
        handler: Handler = getattr(importlib.import_module(place), name)
        return handler
    known = sys.modules.get(Path(place).stem)
    if known is not None and getattr(known, "__file__", None) == place:
        again: Handler = getattr(known, name)
        return again
    by_path: Handler = getattr(import_file(place, Path(place).stem), name)
    return by_path


def import_file(path: str | Path, name: str) -> ModuleType:
    """A Python file as the module `name`, executed anew. Raises `ImportError` for another file."""
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        message = f"cannot load {path}"
        raise ImportError(message)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def exception_kinds(error: BaseException) -> list[str]:
    """The types of an exception and of those behind it, the outermost first."""
    kinds: list[str] = []
    behind: BaseException | None = error
    while behind is not None and len(kinds) < 8:
        kinds.append(type(behind).__name__)
        behind = behind.__cause__ or behind.__context__
    return kinds


# ---------------------------------------------------------------- the worker


def serve(channel: socket.socket) -> int:
    """Answer messages until the parent goes away; returns the exit status."""
    while True:
        try:
            body, raws = messages.receive(channel)
        except (messages.Closed, OSError):
            return 0
        try:
            _answer(channel, body, raws)
        except BrokenPipeError:
            return 0


def _answer(channel: socket.socket, body: Mapping[str, Any], raws: Mapping[str, Any]) -> None:
    """Call the handler; what it raises is reported to the parent, which decides what it means."""
    try:
        handler = load_handler(body["handler"])
        raw = getattr(handler, "takes_raw", False)
        given = dict(raws) if raw else {k: messages.array_of(v) for k, v in raws.items()}
        answer, results = handler(body["request"], given)
        sent = results if raw else {k: messages.raw_of(v) for k, v in results.items()}
        json.dumps(answer)
        _flush()
        messages.send(channel, {"answer": answer}, sent)
    except BrokenPipeError:
        raise
    except Exception as error:
        told = {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
            "kinds": exception_kinds(error),
        }
        _flush()
        messages.send(channel, {"error": told}, {})


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # the limit on what is printed, or the candidate has closed it


def _run(channel: int, output: int, message: Mapping[str, Any]) -> int:
    """The candidate's process: own streams, folder and environment, then requests."""
    status = 70
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if channel != _CHANNEL:
            os.dup2(channel, _CHANNEL, inheritable=False)
        os.closerange(_CHANNEL + 1, 1 << 16)
        os.chdir(message["folder"])
        os.environ.clear()
        os.environ.update(message["environment"])
        with socket.socket(fileno=_CHANNEL) as connection:
            status = serve(connection)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    _flush()
    return status


# ---------------------------------------------------------------- the template


def template(control: socket.socket, modules: list[str]) -> int:
    """Fork workers for the parent until it goes away.

    The first message says what came of the imports. A request is JSON with four descriptors:
    channel, output, lifeline and status (see `confine.keep`).
    """
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # the handler itself will say what is missing
            missing.append(f"{name}: {type(error).__name__}: {error}")
    gc.freeze()
    # Keepers report for themselves; nobody waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control.send(json.dumps({"ready": True, "missing": missing, **_needs()}).encode())
    while True:
        try:
            text, descriptors, _, _ = socket.recv_fds(control, LONGEST_REQUEST, 4)
        except OSError:
            return 0
        if not text:
            return 0
        if os.fork() == 0:
            _keep(control, json.loads(text), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(control: socket.socket, message: Mapping[str, Any], descriptors: list[int]) -> None:
    """The forked keeper; does not return."""
    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel, output, lifeline, status = descriptors

    def candidate() -> int:
        return _run(channel, output, message)

    confine.keep(message, confine.Descriptors(lifeline, status, (channel, output)), candidate)


def _needs() -> dict[str, Any]:
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
    return {"needs": outermost}


def main(arguments: list[str]) -> int:
    """See the module's text."""
    with socket.socket(fileno=int(arguments[1])) as channel:
        if arguments[0] == "--template":
            return template(channel, [name for name in arguments[2].split(",") if name])
        namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
        return serve(channel)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

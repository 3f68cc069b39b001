"""The inside of workers: the loop that serves requests, and the process around it.

A worker gets messages (`messages`) with a handler ("package.module:function" or
"/path/file.py:function"), its request and arrays, and answers each. `keep` is called in a process
that a template has forked (`process.program`), and shuts it in (`confine`); `serve` also where a
process is inside of a sandbox already. Only the standard library, so that it runs in environments
without sketchc.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from sketchc.runtime.process import messages
from sketchc.runtime.sandbox import confine

#: What a handler is: (request, input arrays) -> (JSON-able reply, output arrays). Its arrays are
#: NumPy's, or `messages.Raw` where the function has an attribute `takes_raw`.
Handler: TypeAlias = (
    "Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]"
)

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


def serve(channel: socket.socket) -> None:
    """Answer messages until the parent goes away."""
    while True:
        try:
            body = messages.receive(channel)
        except (messages.Closed, OSError):
            return
        try:
            _answer(channel, body)
        except BrokenPipeError:
            return


def _answer(channel: socket.socket, body: Mapping[str, Any]) -> None:
    """Call the handler; what it raises is reported to the parent, which decides what it means."""
    try:
        handler = load_handler(body["handler"])
        raw, raws = getattr(handler, "takes_raw", False), body["arrays"]
        given = raws if raw else {k: messages.array_of(v) for k, v in raws.items()}
        answer, results = handler(body["request"], given)
        sent = results if raw else {k: messages.raw_of(v) for k, v in results.items()}
        _flush()
        messages.send(channel, {"answer": answer, "arrays": sent})
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
        messages.send(channel, {"error": told})


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
            serve(connection)
            status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    _flush()
    return status


def keep(message: Mapping[str, Any], descriptors: list[int]) -> None:
    """A worker's keeper; does not return. The descriptors are channel, output, lifeline and status
    (see `confine.keep`)."""
    channel, output, lifeline, status = descriptors

    def candidate() -> int:
        return _run(channel, output, message)

    confine.keep(message, confine.Descriptors(lifeline, status, (channel, output)), candidate)

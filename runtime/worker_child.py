"""The inside of a worker process: reads a request, calls a handler, writes the reply.

Started by `sketchc.runtime.worker` as `python -P worker_child.py HANDLER FOLDER`; it needs only
the standard library, and numpy where arrays are passed, so that it also runs in an environment that
has no sketchc, and starts there without delay. HANDLER
is "package.module:function", or "/path/to/file.py:function". The folder holds `request.json` and
the input arrays; `reply.json` and the output arrays are written there. A bfloat16 array travels as
uint16 with "bfloat16" in the manifest, and stays uint16 where ml_dtypes is not installed.

As `worker_child.py --server MODULES` it imports the modules once (torch takes two seconds) and then
forks one child per request, each in a session of its own; the children have no access to the pipes.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
#: What a handler is: (request, input arrays) -> (JSON-able reply, output arrays).
Handler: TypeAlias = "Callable[[dict[str, Any], Arrays], tuple[dict[str, Any], Arrays]]"

BFLOAT16 = "bfloat16"
#: Of prctl(2).
_PR_SET_PDEATHSIG = 1
#: Who started this process.
_PARENT = os.getppid()


def write_arrays(arrays: Mapping[str, np.ndarray[Any, Any]], folder: Path) -> list[dict[str, str]]:
    """Save arrays as .npy files of `folder`; returns the manifest that `read_arrays` takes."""
    folder.mkdir(parents=True, exist_ok=True)
    if not arrays:
        return []
    import numpy as np

    manifest = []
    for position, (name, array) in enumerate(arrays.items()):
        dtype = array.dtype.name
        plain = array.view(np.uint16) if dtype == BFLOAT16 else array
        np.save(folder / f"{position}.npy", plain, allow_pickle=False)
        manifest.append({"name": name, "file": f"{position}.npy", "dtype": dtype})
    return manifest


def read_arrays(manifest: list[dict[str, str]], folder: Path) -> Arrays:
    """The arrays of a manifest. Raises `ValueError` or `OSError` for files that are not arrays."""
    arrays: Arrays = {}
    if not manifest:
        return arrays
    import numpy as np

    for entry in manifest:
        array = np.load(folder / Path(entry["file"]).name, allow_pickle=False)
        if entry["dtype"] == BFLOAT16 and (dtype := _bfloat16()) is not None:
            array = array.view(dtype)
        arrays[entry["name"]] = array
    return arrays


def _bfloat16() -> Any:
    import numpy as np

    if importlib.util.find_spec("ml_dtypes") is None:
        return None
    return np.dtype(importlib.import_module("ml_dtypes").bfloat16)


def load_handler(text: str) -> Handler:
    """The function that HANDLER names."""
    place, _, name = text.rpartition(":")
    if not place.endswith(".py"):
        handler: Handler = getattr(importlib.import_module(place), name)
        return handler
    specification = importlib.util.spec_from_file_location(Path(place).stem, place)
    if specification is None or specification.loader is None:
        message = f"cannot load {place}"
        raise ImportError(message)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    by_path: Handler = getattr(module, name)
    return by_path


def _set_limits(limits: Mapping[str, int]) -> None:
    """Caps on this process and its children: they are inherited and cannot be raised again."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def exception_kinds(error: BaseException) -> list[str]:
    """The types of an exception and of those behind it, the outermost first."""
    kinds: list[str] = []
    behind: BaseException | None = error
    while behind is not None and len(kinds) < 8:
        kinds.append(type(behind).__name__)
        behind = behind.__cause__ or behind.__context__
    return kinds


def main(handler: str, folder: Path) -> int:
    """Serve one request; returns the exit status (1: the handler raised)."""
    request = json.loads((folder / "request.json").read_text())
    _set_limits(request["limits"])
    reply: dict[str, Any]
    try:
        arrays = read_arrays(request["arrays"], folder / "in")
        answer, results = load_handler(handler)(request["body"], arrays)
        reply = {"answer": answer, "arrays": write_arrays(results, folder / "out")}
    except Exception as error:
        # Reported to the parent, which decides what it means.
        reply = {
            "error": {
                "type": type(error).__name__,
                "message": str(error),
                "traceback": traceback.format_exc(),
                "kinds": exception_kinds(error),
            }
        }
    partial = folder / "reply.part"
    partial.write_text(json.dumps(reply))
    partial.rename(folder / "reply.json")
    return 1 if "error" in reply else 0


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone, however it ended:
    nobody else would end a kernel that hangs. (Linux; elsewhere nothing happens.)"""
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() == 1 and os.getpid() != 1 and _PARENT != 1:
        os._exit(1)  # it was gone before that


def serve(modules: list[str]) -> int:
    """Answer requests, one JSON line each, until the input ends.

    A request is {"handler", "folder", "environment"}; the answers are {"pid"} when the child runs
    and {"status"} (negative: ended by that signal) when it is done.
    """
    die_with_parent()
    for name in ("numpy", *modules):
        importlib.import_module(name)
    _answer({"ready": True})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _child(request["handler"], Path(request["folder"]), request["environment"])
        _answer({"pid": child})
        _, status = os.waitpid(child, 0)
        _answer({"status": os.waitstatus_to_exitcode(status)})
    return 0


def _answer(message: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def _child(handler: str, folder: Path, environment: Mapping[str, str]) -> None:
    """The forked child: leaves the server's session and pipes, serves the request, ends."""
    status = 70
    try:
        os.setsid()
        die_with_parent()
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder / "tmp")
        os.environ.clear()
        os.environ.update(environment)
        try:
            status = main(handler, folder)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "--server":
        sys.exit(serve(sys.argv[2].split(",")))
    die_with_parent()
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))

"""Run a function in a process of its own: generated code may hang, crash or print.

`run_worker("sketchc.runtime.toolchains.cpp_worker:execute", request, arrays, folder)` starts a
Python process in its own process group with a scratch folder, an environment without secrets, a
wall-clock limit and optional memory, CPU and file-size caps. The handler gets the request and the
arrays and returns `(reply, arrays)`; see `worker_child`. When the process is done or its time is
up, its whole group is killed. No network isolation is attempted.

Importing torch takes two seconds: `preload=("torch",)` keeps a server process that has imported it
and forks a fresh child per request, with the same isolation (see `runtime.worker_server`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    import numpy as np

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

#: What the user's own Python code needs besides: a task may import modules of its own.
PYTHON_NAMES = frozenset({"TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LD_PRELOAD"})
PYTHON_PREFIXES = ("TORCH", "PYTORCH_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_")

#: The script that runs inside a worker, by path: it also runs where sketchc is not installed.
CHILD = str(Path(__file__).resolve().with_name("worker_child.py"))

#: How much of what a worker printed is kept, in bytes.
OUTPUT_TAIL = 32_768


@attrs.frozen
class WorkerResult:
    """What came of one request.

    `exit_code` is negative when a signal ended the process (-6: aborted, -11: segmentation fault),
    and `reply` and `arrays` are there only when the handler returned. `error` is the handler's
    exception as "Type: message" and `traceback` its text; both are empty when it did not raise.
    `kinds` are the types of that exception and of those behind it.
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
            return f"the process was ended by {_signal_name(-self.exit_code)}"
        return f"the process ended with status {self.exit_code} and no answer"


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
    own_group: bool = True,
) -> WorkerResult:
    """Call `handler` ("package.module:function" or "/path/file.py:function") in a new process.

    `request` must be JSON-able. `arrays` are copied (bfloat16 as ml_dtypes.bfloat16). `folder` is
    where the scratch folder is made (default: the system's temporary folder); it is removed
    afterwards. `python` defaults to this interpreter; `environment` adds to the cleared one;
    `preload` names modules that a kept server process has imported already. A worker that starts
    a worker of its own does so with `own_group=False`, so that both end together.
    Never raises for what the handler does; raises `OSError` when no process can be started.
    """
    from sketchc.runtime import worker_child, worker_server

    with tempfile.TemporaryDirectory(prefix="worker-", dir=folder) as name:
        scratch = Path(name)
        limits = {
            "RLIMIT_AS": memory_bytes,
            "RLIMIT_CPU": cpu_seconds,
            "RLIMIT_FSIZE": file_bytes,
        }
        body = {
            "body": dict(request),
            "arrays": worker_child.write_arrays(arrays or {}, scratch / "in"),
            "limits": {key: value for key, value in limits.items() if value is not None},
        }
        (scratch / "request.json").write_text(json.dumps(body))
        (scratch / "tmp").mkdir()
        interpreter = str(python or sys.executable)
        started = time.monotonic()
        variables = {"TMPDIR": str(scratch / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
        cleared = clean_environment({**variables, **(environment or {})})
        outcome = None
        if preload:
            outcome = worker_server.run(interpreter, preload, handler, scratch, timeout, cleared)
        if outcome is None:
            command = [interpreter, "-P", CHILD, handler, str(scratch)]
            outcome = _run(command, scratch, timeout, cleared, own_group)
        exit_code, timed_out = outcome
        seconds = time.monotonic() - started
        output = _tail(scratch / "output.txt")
        return _collect(scratch, exit_code, timed_out, seconds, output)


def file_limit(arrays: Mapping[str, np.ndarray[Any, Any]]) -> int:
    """What a worker may write into one file, in bytes: its results, and not what a kernel that
    prints without end makes of it."""
    return (64 << 20) + 2 * sum(array.nbytes for array in arrays.values())


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


def _run(
    command: list[str],
    scratch: Path,
    timeout: float,
    environment: Mapping[str, str],
    own_group: bool,
) -> tuple[int, bool]:
    with (scratch / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=scratch / "tmp",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=own_group,
        )
        try:
            return process.wait(timeout), False
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL, True
        finally:
            if own_group:
                kill_group(process.pid)
            process.kill()
            process.wait()


def kill_group(leader: int) -> None:
    """End a worker and what it started. The group's id stays reserved while a member lives."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
        os.killpg(leader, signal.SIGKILL)


def _collect(
    scratch: Path, exit_code: int, timed_out: bool, seconds: float, output: str
) -> WorkerResult:
    from sketchc.runtime.worker_child import read_arrays

    plain = WorkerResult(exit_code, timed_out, seconds, output)
    path = scratch / "reply.json"
    if timed_out or not path.exists():
        return plain
    try:
        reply = json.loads(path.read_text())
        if "error" in reply:
            error = reply["error"]
            text = _printable(f"{error['type']}: {error['message']}")
            kinds = tuple(str(kind) for kind in error.get("kinds", ()))
            trace = _printable(str(error["traceback"]))
            return attrs.evolve(plain, error=text, traceback=trace, kinds=kinds)
        arrays = read_arrays(reply["arrays"], scratch / "out")
        return attrs.evolve(plain, reply=dict(reply["answer"]), arrays=arrays)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError) as error:
        # The candidate shares the process with the channel: a garbled reply is its doing.
        return attrs.evolve(plain, error=f"the worker's reply cannot be read: {error}")


def _printable(text: str) -> str:
    """Half surrogate pairs as question marks: nothing downstream could encode them."""
    return text.encode("utf-8", "replace").decode()


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - OUTPUT_TAIL))
        return file.read().decode("utf-8", "replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

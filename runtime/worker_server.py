"""Kept processes that have imported heavy modules and fork one child per request.

One server per interpreter and module list, started on first use and ended with this process. See
`worker.run_worker(preload=...)`; the child's side is `worker_child.serve`.
"""

from __future__ import annotations

import atexit
import json
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sketchc.runtime.worker import CHILD, clean_environment, kill_group

#: Seconds that the imports may take.
START_TIMEOUT = 120.0


class _ServerError(Exception):
    """The server ended or does not answer."""


class _Server:
    """One server process; requests are served one at a time."""

    def __init__(self, python: str, modules: tuple[str, ...]) -> None:
        self.lock = threading.Lock()
        self.buffer = b""
        self.process = subprocess.Popen(
            [python, "-P", CHILD, "--server", ",".join(modules)],
            env=clean_environment({"PYTHONDONTWRITEBYTECODE": "1"}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self.read(START_TIMEOUT)
        except _ServerError:
            self.close()
            raise

    def request(
        self, handler: str, folder: Path, timeout: float, environment: Mapping[str, str]
    ) -> tuple[int, bool]:
        """Exit status of the child, and whether its time was up."""
        message = {"handler": handler, "folder": str(folder), "environment": dict(environment)}
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise _ServerError from error
        child = int(self.read(START_TIMEOUT)["pid"])
        try:
            return int(self.read(timeout)["status"]), False
        except TimeoutError:
            kill_group(child)
            self.read(START_TIMEOUT)
            return -signal.SIGKILL, True
        finally:
            kill_group(child)

    def read(self, timeout: float) -> dict[str, Any]:
        """The next answer. Raises `TimeoutError`, or `_ServerError` when the server is gone."""
        assert self.process.stdout is not None
        end = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            left = max(0.0, end - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError
            part = self.process.stdout.read1()  # type: ignore[attr-defined]
            if not part:
                raise _ServerError
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


_SERVERS: dict[tuple[str, tuple[str, ...]], _Server] = {}
_STARTING = threading.Lock()


def run(
    python: str,
    modules: tuple[str, ...],
    handler: str,
    folder: Path,
    timeout: float,
    environment: Mapping[str, str],
) -> tuple[int, bool] | None:
    """Serve one request; None where no server can be had (busy, or the imports fail): the caller
    then starts a process of its own, which shows why."""
    key = (python, modules)
    try:
        with _STARTING:
            if key not in _SERVERS:
                _SERVERS[key] = _Server(python, modules)
            server = _SERVERS[key]
    except (_ServerError, TimeoutError):
        return None
    if not server.lock.acquire(blocking=False):
        return None
    try:
        return server.request(handler, folder, timeout, environment)
    except (_ServerError, TimeoutError):
        _SERVERS.pop(key, None)
        server.close()
        return None
    finally:
        server.lock.release()


@atexit.register
def _close_all() -> None:
    for server in _SERVERS.values():
        server.close()
    _SERVERS.clear()

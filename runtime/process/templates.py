"""Kept processes that have imported heavy modules and fork a process per request.

There is one for each interpreter, list of modules and environment, started on first use; it ends
with this process, whose end of the socket closes then. The other side is `program`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sketchc.runtime.process.environment import clean_environment

#: What runs on the other side, by path: it also runs where sketchc is not installed.
PROGRAM = str(Path(__file__).resolve().with_name("program.py"))
#: Seconds that the imports may take, and until any other answer.
TIMEOUT = 120.0
_LONGEST_ANSWER = 1 << 18


class TemplateError(OSError):
    """The template ended: its modules cannot be imported, or somebody killed it."""


class Template:
    """One kept process. `bound` to the thread that starts it, too: it ends with that, even where
    another process holds the socket."""

    def __init__(
        self, python: str, modules: Sequence[str], environment: Mapping[str, str], *, bound: bool
    ) -> None:
        self._lock = threading.Lock()
        self._python = python
        self._ready: Mapping[str, Any] | None = None
        #: How many processes were forked.
        self.forks = 0
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(TIMEOUT)
        word = "bound" if bound else "free"
        command = [python, "-P", PROGRAM, "--template", str(theirs.fileno()), word]
        with theirs:
            self.process = subprocess.Popen(
                [*command, ",".join(modules)],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    @property
    def missing(self) -> tuple[str, ...]:
        """The imports that failed, and why. Waits for them; raises `TemplateError`."""
        return tuple(self._told()["missing"])

    @property
    def needs(self) -> tuple[str, ...]:
        """The paths that it lives from. Waits for the imports; raises `TemplateError`."""
        return tuple(self._told()["needs"])

    def _told(self) -> Mapping[str, Any]:
        """What it says when it has imported everything."""
        with self._lock:
            if self._ready is None:
                try:
                    self._ready = dict(json.loads(self._socket.recv(_LONGEST_ANSWER)))
                except (OSError, ValueError) as error:  # ValueError: nothing came, it is gone
                    self.close()
                    ended = f"{self._python} ended with {self.process.returncode}"
                    msg = f"no worker can be started: {ended}"
                    raise TemplateError(msg) from error
            return self._ready

    def fork(self, function: str, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """Fork a process that calls `function` ("package.module:name") with the message and the
        descriptors, and that nobody waits for. Raises `OSError`."""
        self._told()
        with self._lock:
            self._send(self._forking(function, message, waited=False), descriptors)

    def start(
        self,
        function: str,
        message: Mapping[str, Any],
        descriptors: Sequence[int],
        modules: Sequence[str] = (),
    ) -> ForkedProcess:
        """Like `fork`, of a process that somebody waits for; the template first imports `modules`.
        Raises `TemplateError`, also where an import failed."""
        if self.missing:
            raise TemplateError(self.missing[0])
        asked = self._forking(function, message, waited=True, modules=modules)
        return ForkedProcess(self, self.ask(asked, descriptors))

    def _forking(
        self,
        function: str,
        message: Mapping[str, Any],
        *,
        waited: bool,
        modules: Sequence[str] = (),
    ) -> dict[str, Any]:
        self.forks += 1
        asked = {"function": function, "message": message}
        return {**asked, "waited": waited, "modules": list(modules)}

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> int:
        """One request; the number that comes back. After an error the template is closed, and after
        an interrupt: its answer would be taken for that of the next request."""
        with self._lock:
            try:
                self._send(request, descriptors)
                return int(self._socket.recv(_LONGEST_ANSWER))
            except (OSError, ValueError) as error:
                self.close()
                raise TemplateError from error
            except BaseException:
                self.close()
                raise

    def _send(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        socket.send_fds(self._socket, [json.dumps(request).encode()], list(descriptors))

    def close(self) -> None:
        """End it, and with it the processes made from it: by themselves, or when their lifelines
        are cut."""
        self.process.kill()
        self.process.wait()
        self._socket.close()


@attrs.define
class ForkedProcess:
    """A process that a template forked."""

    template: Template
    pid: int
    status: int | None = None

    def wait(self) -> int:
        """The exit status when it has ended, negative for a signal."""
        if self.status is None:
            try:
                self.status = self.template.ask({"wait": self.pid})
            except TemplateError:
                self.status = -signal.SIGKILL  # it ends with its template
        return self.status


_TEMPLATES: dict[tuple[Any, ...], Template] = {}
_STARTING = threading.Lock()


def template(
    python: str,
    modules: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    bound: bool = False,
) -> Template:
    """The kept process of this interpreter with these modules, and in this environment; without one
    it has what a worker may see, whatever that is by now. Raises `OSError`."""
    # A forked process must not talk to its parent's.
    own = None if environment is None else tuple(sorted(environment.items()))
    key = (os.getpid(), python, tuple(modules), bound, own)
    with _STARTING:
        found = _TEMPLATES.get(key)
        if found is None or found.process.poll() is not None:
            variables = {"PYTHONDONTWRITEBYTECODE": "1"}
            seen = clean_environment(variables) if environment is None else environment
            found = _TEMPLATES[key] = Template(python, modules, seen, bound=bound)
        return found


@atexit.register
def close_templates() -> None:
    """End all that this process has started; the next request starts another one."""
    for (process, *_), one in list(_TEMPLATES.items()):
        if process == os.getpid():
            one.close()
    _TEMPLATES.clear()

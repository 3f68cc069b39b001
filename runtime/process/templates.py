"""Templates: kept processes that have imported heavy modules and fork a process per request.

There is one template for each interpreter, list of modules and environment, started on first use;
it ends with this process, whose end of the socket closes then. A template runs `program`.

Processes that have the same folder in the variable `SHARED` share what is imported: the first that
needs a template has it listen in that folder for the others. Each of these is given a fork of the
template that serves that process alone, and ends with it. Only this user may enter the folder, and
no sandboxed process sees it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs

from sketchc.runtime.process.peer import PROGRAM, Start, clean_environment

#: The environment variable with the folder of the templates that processes share.
SHARED = "SKETCHC_TEMPLATES"
#: The prefix of variables that say where a user's folders are: they are read when the folders are
#: used, so that templates need not differ by them.
FOLDERS = "XDG_"
#: Makes glibc back the heap with huge pages, where the kernel gives them on request (madvise).
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
#: Seconds that the imports may take, and that any other answer may take.
TIMEOUT = 120.0
_LONGEST_ANSWER = 1 << 18
#: Processes that may wait while a template imports.
_WAITING = 64


class TemplateError(OSError):
    """The template ended: its modules cannot be imported, or somebody killed it."""


class Template:
    """One kept process. `bound`: it also ends with the thread that starts it, even where another
    process holds the socket. `place`: the path of the socket at which this process finds a template
    that another one has started, or makes its own available. `process` is None where the template
    is a fork of another process's template."""

    def __init__(
        self,
        python: str,
        modules: Sequence[str],
        environment: Mapping[str, str],
        *,
        bound: bool,
        place: Path | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._python = python
        self._arguments = ("bound" if bound else "free", ",".join(modules))
        self._environment = dict(environment)
        self._ready: Mapping[str, Any] | None = None
        #: How many processes were forked.
        self.forks = 0
        self.process: subprocess.Popen[bytes] | None = None
        found = None if place is None else _connected(place)
        if found is None:
            self._start(None if place is None else _listening(place))
        else:
            self._socket = found

    def _start(self, listener: socket.socket | None) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(TIMEOUT)
        ends = [theirs] if listener is None else [theirs, listener]
        passed = [end.fileno() for end in ends]
        command = [self._python, "-P", PROGRAM, "--template", *self._arguments, *map(str, passed)]
        with contextlib.ExitStack() as stack:
            for end in ends:
                stack.enter_context(end)
            self.process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=passed,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether the template is gone, or was closed."""
        if self._socket.fileno() < 0:
            return True
        state = select.poll()
        state.register(self._socket, 0)  # nothing but POLLHUP and POLLERR
        return bool(state.poll(0))

    @property
    def missing(self) -> tuple[str, ...]:
        """The imports that failed, and why. Waits for them; raises `TemplateError`."""
        return tuple(self._told()["missing"])

    @property
    def needs(self) -> tuple[str, ...]:
        """The paths that the template reads. Waits for its imports; raises `TemplateError`."""
        return tuple(self._told()["needs"])

    def _told(self) -> Mapping[str, Any]:
        """The message that the template sends when it has imported everything."""
        with self._lock:
            if self._ready is None and self.process is None:
                with contextlib.suppress(OSError, ValueError):
                    self._ready = self._heard()
                if self._ready is None:  # it ended with the process that had started it
                    self._socket.close()
                    self._start(None)
            if self._ready is None:
                try:
                    self._ready = self._heard()
                except (OSError, ValueError) as error:  # ValueError: nothing came, it is gone
                    self.close()
                    status = self.process and self.process.returncode
                    ended = f"{self._python} ended with {status}"
                    raise TemplateError(f"no worker can be started: {ended}") from error
            return self._ready

    def _heard(self) -> Mapping[str, Any]:
        return dict(json.loads(self._socket.recv(_LONGEST_ANSWER)))

    def fork(self, function: str, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """Fork a process that calls `function` ("package.module:name") with the message and the
        descriptors, and that nobody waits for. Raises `OSError`."""
        self._told()
        self.forks += 1
        asked = {"function": function, "message": message, "waited": False, "modules": []}
        with self._lock:
            self._send(asked, descriptors)

    def start(
        self,
        function: str,
        message: Mapping[str, Any],
        descriptors: Sequence[int],
        modules: Sequence[str] = (),
    ) -> ForkedProcess:
        """Like `fork`, but of a process that can be waited for; the template first imports
        `modules`. Raises `TemplateError`, also where an import failed."""
        if self.missing:
            raise TemplateError(self.missing[0])
        self.forks += 1
        asked = {"function": function, "message": message, "waited": True, "modules": list(modules)}
        return ForkedProcess(self, int(self.ask(asked, descriptors)))

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> str:
        """Send `request` and return the text of the answer. After an error or an interrupt the
        template is closed: a late answer would be taken for that of the next request."""
        with self._lock:
            try:
                self._send(request, descriptors)
                answer = self._socket.recv(_LONGEST_ANSWER).decode()
                if answer:
                    return answer
                raise ValueError("it is gone")
            except (OSError, ValueError) as error:
                self.close()
                raise TemplateError from error
            except BaseException:
                self.close()
                raise

    def _send(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        socket.send_fds(self._socket, [json.dumps(request).encode()], list(descriptors))

    def close(self) -> None:
        """End the template. The processes that it has forked end with it, or when their lifelines
        are cut."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        else:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
                while self._socket.recv(_LONGEST_ANSWER):  # until it is gone
                    pass
        self._socket.close()


def _connected(place: Path) -> socket.socket | None:
    """A connection to the template that listens at `place`; None where none does."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(TIMEOUT)
    try:
        made.connect(str(place))
    except OSError:
        made.close()
        return None
    return made


def _listening(place: Path) -> socket.socket | None:
    """A socket at `place`, by which other processes reach the template that is about to be started;
    None where it cannot be made."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own = place.with_name(f"{os.getpid()}-{threading.get_ident()}")
    try:
        made.bind(str(own))
        made.listen(_WAITING)
        own.replace(place)
    except OSError:
        made.close()
        return None
    return made


@attrs.define
class ForkedProcess:
    """A process that a template forked. `seconds`, of the class, is the CPU time of all forked
    processes that were waited for: the system counts them as children of the template."""

    seconds: ClassVar[float] = 0.0
    template: Template
    pid: int
    status: int | None = None

    def wait(self) -> int:
        """Wait for the end of the process; returns its exit status, negative for a signal."""
        if self.status is None:
            try:
                status, seconds = self.template.ask({"wait": self.pid}).split()
                self.status = int(status)
                ForkedProcess.seconds += float(seconds)
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
    """The template of the interpreter `python` with `modules` imported, in `environment`; without
    `environment`, in the variables that a worker may see when it starts. Raises `OSError`."""
    # The key has the process's id: a forked process must not use its parent's templates.
    own = None if environment is None else tuple(sorted(environment.items()))
    folder = os.environ.get(SHARED)
    key = (os.getpid(), python, tuple(modules), bound, own, folder)
    with _STARTING:
        found = _TEMPLATES.get(key)
        if found is None or found.ended:
            variables = {"PYTHONDONTWRITEBYTECODE": "1", **HUGE_PAGES}
            seen = clean_environment(variables) if environment is None else environment
            place = None if folder is None else Path(folder) / _name(python, modules, seen)
            found = Template(python, modules, seen, bound=bound, place=place)
            _TEMPLATES[key] = found
        return found


def forking(
    function: str,
    python: str,
    modules: Sequence[str],
    environment: Mapping[str, str],
    later: Sequence[str] = (),
) -> tuple[Template, Start]:
    """The template of `modules` in `environment`, without waiting until it has imported anything,
    and a `Start` whose processes call `function` with their channel, like those of `peer.program`.
    The template also imports `later` from the second process on. Starting raises `TemplateError`.
    """
    # Variables that name the user's folders are read on use: they need no template of their own.
    folders = {name: text for name, text in environment.items() if name.startswith(FOLDERS)}
    others = {name: text for name, text in environment.items() if name not in folders}
    found = template(python, modules, others, bound=True)

    def start(channel: int, output: int) -> ForkedProcess:
        message = {"function": function, "place": str(Path.cwd()), "environment": folders}
        more = later if found.forks else ()
        return found.start(f"{__package__}.program:serve_apart", message, (channel, output), more)

    return found, start


def _name(python: str, modules: Sequence[str], environment: Mapping[str, str]) -> str:
    """The name of a template's socket: equal for all templates that are interchangeable."""
    told = sorted(item for item in environment.items() if not item[0].startswith(FOLDERS))
    return hashlib.sha256(json.dumps([python, list(modules), told]).encode()).hexdigest()[:16]


@atexit.register
def close_templates() -> None:
    """End all templates of this process; the next request starts a new one."""
    for (process, *_), one in list(_TEMPLATES.items()):
        if process == os.getpid():
            one.close()
    _TEMPLATES.clear()

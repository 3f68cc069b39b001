"""A kept process that has imported torch and forks one process for each task.

Importing torch takes two seconds, more than most requests to a task. The template runs nothing but
imports; every task gets a process in a session of its own, made from it. There is one template for
each environment that tasks are given; it ends with this process.
"""

from __future__ import annotations

import atexit
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import attrs

from sketchc.runtime.process.environment import python_environment

#: Start a worker, and the template. -P: a folder called `runtime` where the user stands must not
#: shadow anything.
COMMAND = (sys.executable, "-P", "-m", "sketchc.runtime.tasks.worker.torch_worker")
_TEMPLATE = (sys.executable, "-P", "-m", "sketchc.runtime.tasks.worker.torch_server")
#: Seconds until an answer: the first one comes when torch has been imported.
TIMEOUT = 120.0
_FOLDER = "XDG_"
#: The longest message, either way.
MESSAGE = 1 << 16


class TemplateError(Exception):
    """The template ended: torch cannot be imported, or somebody killed it."""


class Template:
    """The kept process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.lock = threading.Lock()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(TIMEOUT)
        with theirs:
            self.process = subprocess.Popen(
                [*_TEMPLATE, str(theirs.fileno())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def ask(self, message: Mapping[str, object], descriptors: tuple[int, ...] = ()) -> int:
        """One request; the number that comes back. After an error the template is closed."""
        with self.lock:
            try:
                socket.send_fds(self.socket, [json.dumps(message).encode()], descriptors)
                return int(self.socket.recv(MESSAGE))
            except (OSError, ValueError) as error:  # ValueError: nothing came, it is gone
                self.close()
                raise TemplateError from error

    def close(self) -> None:
        """End it, and with it the processes made from it."""
        self.process.kill()
        self.process.wait()
        self.socket.close()


@attrs.define
class TaskProcess:
    """A process of one task; `pid` leads its own process group."""

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


_TEMPLATES: dict[tuple[tuple[str, str], ...], Template] = {}
_STARTING = threading.Lock()


def start(reads: int, writes: int, log: int, more: Mapping[str, str] | None = None) -> TaskProcess:
    """A process that serves requests from one pipe to another and prints to a log, in the current
    folder, with `more` variables. Raises `TemplateError`."""
    template, folders = template_of(more or {})
    message = {"place": str(Path.cwd()), "environment": folders}
    return TaskProcess(template, template.ask(message, (reads, writes, log)))


def template_of(more: Mapping[str, str]) -> tuple[Template, dict[str, str]]:
    """The template of the environment of now and `more`, without waiting until it has imported
    anything, and the variables that it does not know."""
    environment = python_environment(more)
    # Where folders of the user are is read when they are used: no reason for another template.
    folders = {
        name: environment.pop(name) for name in tuple(environment) if name.startswith(_FOLDER)
    }
    key = tuple(sorted(environment.items()))
    with _STARTING:
        template = _TEMPLATES.get(key)
        if template is None or template.process.poll() is not None:
            template = _TEMPLATES[key] = Template(environment)
    return template, folders


@atexit.register
def close_templates() -> None:
    """End all templates, and with them the tasks; the next task starts another one."""
    for template in list(_TEMPLATES.values()):
        template.close()
    _TEMPLATES.clear()

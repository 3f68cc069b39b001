"""Kept processes that have imported heavy modules and fork a worker per request.

One per interpreter and list of modules, started on first use; it ends with this process, whose end
of the socket closes then. The other side is `inside.template`.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sketchc.runtime.process.environment import clean_environment

#: The script that runs inside, by path: it also runs where sketchc is not installed.
INSIDE = str(Path(__file__).resolve().with_name("inside.py"))
#: Seconds that the imports may take.
START_TIMEOUT = 120.0


class Template:
    """One kept process. `missing` are imports that failed, `needs` the paths that it lives from.

    Raises `OSError` where it cannot be started, or is gone.
    """

    def __init__(self, python: str, modules: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [python, "-P", INSIDE, "--template", str(theirs.fileno()), ",".join(modules)],
                env=clean_environment({"PYTHONDONTWRITEBYTECODE": "1"}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._socket.settimeout(START_TIMEOUT)
        text = self._socket.recv(1 << 18)
        if not text:
            self.close()
            msg = f"no worker can be started: {python} ended with {self.process.returncode}"
            raise OSError(msg)
        ready = json.loads(text)
        self.missing: tuple[str, ...] = tuple(ready["missing"])
        self.needs: tuple[str, ...] = tuple(ready["needs"])

    def fork(self, message: Mapping[str, Any], descriptors: list[int]) -> None:
        """Have a worker forked; see `inside.template`."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)

    def close(self) -> None:
        """End it; its workers end when their lifelines are cut."""
        self.process.kill()
        self.process.wait()
        self._socket.close()


_TEMPLATES: dict[tuple[int, str, tuple[str, ...]], Template] = {}
_STARTING = threading.Lock()


def template(python: str, modules: tuple[str, ...]) -> Template:
    """The kept process of this interpreter with these modules. Raises `OSError`."""
    key = (os.getpid(), python, modules)  # a forked process must not talk to its parent's
    with _STARTING:
        found = _TEMPLATES.get(key)
        if found is None or found.process.poll() is not None:
            found = _TEMPLATES[key] = Template(python, modules)
        return found


@atexit.register
def close_templates() -> None:
    """End all that this process has started; the next worker starts another one."""
    for (process, _, _), one in list(_TEMPLATES.items()):
        if process == os.getpid():
            one.close()
    _TEMPLATES.clear()

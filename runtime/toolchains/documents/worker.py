"""In a worker: run the build command of a target of documents, and talk to its runner
(docs/RUNNERS.md).

The runner is a process inside of the worker's sandbox. It gets the path of a manifest on its
standard input, a line for each run, and answers a line. Every tensor is a file with guards on both
sides of its bytes, which the runner leaves as the kernel left the memory: an input that changed,
and a write beyond a tensor, show there.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import math
import os
import subprocess
import tempfile
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sketchc.runtime.process.messages import ITEM_BYTES, Raw, failure
from sketchc.runtime.process.peer import signal_name

#: Version of the manifest; raised with every change that an older runner would misread.
PROTOCOL = 1
#: Bytes before and behind a tensor's own, and what they hold: around inputs NaN, or large integers,
#: and something else around what is written, so that copies show.
GUARD_BYTES = 4096
_FLOATS, _INTEGERS, _WRITTEN = b"\xff", b"\x7f", b"\x7e"
#: How much of what a program printed is kept, counted from its end.
_TAIL = 16_384
#: How much of a line is read at once.
_LONGEST_LINE = 1 << 20
#: Stages that a runner may report, and what stands for any other one.
_STAGES = frozenset({"compile", "launch", "illegal_access"})


def build(request: dict[str, Any], _raws: dict[str, Raw]) -> tuple[dict[str, Any], dict[str, Raw]]:
    """The handler of a build: run `request["command"]`; the reply holds its "status" and what it
    "printed", the beginning and the end of it."""
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                request["command"],
                env={**os.environ, "LC_ALL": "C"},  # compilers complain in English then
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except OSError as error:
            return failure("infrastructure", f"the build command cannot be started: {error}"), {}
        size = os.fstat(said.fileno()).st_size
        begin = os.pread(said.fileno(), _TAIL, 0)
        end = os.pread(said.fileno(), _TAIL, max(_TAIL, size - _TAIL))
    return {"status": done.returncode, "printed": (begin + end).decode("utf-8", "replace")}, {}


class _Runner:
    """The process of a runner; `said` is where it prints what is no answer, `taken` whether it had
    read the last line when it ended without an answer, and `killed` whether it had to be."""

    def __init__(self, command: Sequence[str]) -> None:
        # Without a buffer: `printed` reads the file, and the process writes at the same place.
        self.said = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed by `close`)
        self.taken = self.killed = False
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said
            )
        except BaseException:
            self.said.close()
            raise

    def answer(self, manifest: Path) -> dict[str, Any] | None:
        """The answer to one manifest; None where the process ends without one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.said.seek(0)
        self.said.truncate()
        self.taken, told = False, os.fsencode(manifest) + b"\n"
        try:
            self.process.stdin.write(told)
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        while line := self.process.stdout.readline(_LONGEST_LINE):
            if (found := _answer_in(line)) is not None:
                return found
            with contextlib.suppress(OSError):  # as much as a file may hold
                self.said.write(line)
        left = array.array("i", [0])
        fcntl.ioctl(self.process.stdin, termios.FIONREAD, left)
        self.taken = left[0] < len(told)
        return None

    def printed(self) -> str:
        """The end of what it printed."""
        size = os.fstat(self.said.fileno()).st_size
        return os.pread(self.said.fileno(), _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace")

    def close(self) -> int:
        """End the process; returns its status, negative for a signal."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:
            # After the last answer a runner may be about to end by itself, with a status.
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                self.process.stdin.close()
                self.process.wait(timeout=1.0)
        self.killed = self.process.poll() is None
        self.process.kill()
        self.process.stdout.close()
        self.said.close()
        return self.process.wait()


_CLOSED = "the runner closed its output, and went on"
#: The runner of this worker, kept from run to run.
_running: _Runner | None = None


def execute(request: dict[str, Any], raws: dict[str, Raw]) -> tuple[dict[str, Any], dict[str, Raw]]:
    """The handler of a run: the out and inout arrays, with the reply {}, or a failure."""
    global _running
    with tempfile.TemporaryDirectory(prefix="run-") as name:
        while True:
            try:
                tensors = [_Tensor.of(tensor, raws, Path(name)) for tensor in request["tensors"]]
                told = {**request["manifest"], "tensors": [tensor.told for tensor in tensors]}
                manifest = Path(name) / "manifest.json"
                manifest.write_text(json.dumps({"protocol": PROTOCOL, **told}), "utf-8")
            except OSError as error:
                return failure("infrastructure", f"tensors cannot be written: {error}"), {}
            kept = _running is not None
            try:
                _running = _running or _Runner(request["command"])
            except OSError as error:
                return failure("infrastructure", f"the runner cannot be started: {error}"), {}
            if (answer := _running.answer(manifest)) is not None:
                break
            ended, printed = _running, _running.printed()
            status, _running = ended.close(), None
            # Else it ended after the answer before, as it may.
            if status or not kept or ended.taken:
                why = _CLOSED if ended.killed else _ending(status)
                return failure("launch", why, log=printed), {}
        if answer["status"] != "done":
            stage = answer.get("stage")
            stage = stage if isinstance(stage, str) and stage in _STAGES else "launch"
            log = _plain(answer.get("log") or _running.printed())
            return failure(stage, _plain(answer.get("message", "it failed")), log=log), {}
        for tensor in tensors:
            if wrong := tensor.stray():
                return failure("illegal_access", wrong), {}
        return {}, {t.name: t.left() for t in tensors if t.role in ("out", "inout")}


execute.takes_raw = True  # type: ignore[attr-defined]


class _Tensor:
    """One tensor of a run, in a file; an absent one has none."""

    def __init__(self, name: str, role: str, dtype: str, shape: Sequence[int]) -> None:
        self.name, self.role, self.dtype, self.shape = name, role, dtype, tuple(shape)
        self.size = math.prod(self.shape) * ITEM_BYTES[dtype]
        self.file, self.told, self.given = Path(), dict[str, Any](), b""
        read = _FLOATS if "float" in dtype else _INTEGERS
        self.pattern = read if role == "in" else _WRITTEN

    @classmethod
    def of(cls, given: Mapping[str, Any], raws: Mapping[str, Raw], folder: Path) -> _Tensor:
        """The tensor that `given` describes, with its file in `folder`."""
        made = cls(given["name"], given["role"], given["numpy"], given["shape"])
        made.told = {"name": made.name, "role": made.role, "dtype": given["dtype"]}
        if made.role == "absent":
            return made
        raw = raws.get(made.name)
        made.given = bytes(made.size) if raw is None else bytes(raw.data)
        made.file = folder / f"{made.name}.bin"
        guard = made.pattern * GUARD_BYTES
        made.file.write_bytes(guard + made.given + guard)
        place = {"file": str(made.file), "offset": GUARD_BYTES, "bytes": made.size}
        made.told |= {"shape": list(made.shape), **place}
        return made

    def stray(self) -> str:
        """What was written where nothing may be, as a sentence; "" for nothing."""
        if self.role == "absent":
            return ""
        found = self._contents()
        if len(found) != self.size + 2 * GUARD_BYTES:
            return f"the file of {self.name} has another size"
        if found[:GUARD_BYTES].strip(self.pattern):
            return f"memory before {self.name} was overwritten"
        if found[GUARD_BYTES + self.size :].strip(self.pattern):
            return f"memory behind {self.name} was overwritten"
        if self.role == "in" and found[GUARD_BYTES : GUARD_BYTES + self.size] != self.given:
            return f"the input {self.name} was changed"
        return ""

    def left(self) -> Raw:
        """What the kernel left of the tensor."""
        content = self._contents()[GUARD_BYTES : GUARD_BYTES + self.size]
        return Raw(self.dtype, self.shape, memoryview(bytearray(content)))

    def _contents(self) -> bytes:
        try:
            return self.file.read_bytes()
        except OSError:
            return b""


def _ending(status: int) -> str:
    """What is said of a runner that ended without an answer."""
    if status < 0:
        return f"the runner was ended by {signal_name(-status)}"
    return f"the runner ended with status {status} and no answer"


def _answer_in(line: bytes) -> dict[str, Any] | None:
    """The answer that a line is; None for one that is none."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict) and found.get("status") in ("done", "failed"):
            return found
    return None


def _plain(text: object) -> str:
    """The end of a runner's text, which may hold half of a surrogate pair."""
    return str(text).encode("utf-8", "replace").decode()[-_TAIL:]

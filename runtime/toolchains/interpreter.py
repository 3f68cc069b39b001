"""The reference interpreter as a toolchain: runs a sketch itself, in a worker process.

The interpreter is no target: `runtime.verify.design` judges sketches with it, and `verify` finds
out with it whether sketch or kernel is wrong. A sketch may loop for hours or need all memory, hence
the worker. The sketch goes as a pickle *to* the worker, which runs no foreign code; only plain
arrays and JSON come back.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchc.ir import nodes as ir
from sketchc.runtime.process.venvs import installed
from sketchc.runtime.sandbox.worker import Limits, PersistentWorker, Worker
from sketchc.runtime.toolchains.base import (
    COMPILE_TIMEOUT,
    Arrays,
    Artefact,
    Params,
    Session,
    Sizes,
    Tensors,
    Toolchain,
    ToolchainError,
    ToolchainStatus,
)

if TYPE_CHECKING:
    from sketchc.lowering.kernel import Kernel

HOW_IT_RUNS = "the sketch itself, in the reference interpreter"
#: Address space of one interpretation.
MEMORY_BYTES = 16 << 30
_HANDLER = "sketchc.runtime.toolchains.interpreter:execute"
_PRELOAD = ("sketchc.interpreter.api", "sketchc.runtime.toolchains.interpreter")
_SKETCH = "the sketch"  # no tensor has this name


class InterpreterToolchain(Toolchain):
    """See `base.Toolchain`. Kernels need no source here: the interpreter runs their `sketch`."""

    target = "interpreter"

    def status(self) -> ToolchainStatus:
        """Always ready, since the interpreter is a part of sketchc; see `Toolchain.status`."""
        return ToolchainStatus(
            self.target,
            True,
            True,
            HOW_IT_RUNS,
            installed("numpy"),
            interpreted=True,
        )

    def install(self) -> str:
        """Do nothing; returns a message that says so."""
        return "Nothing to install: the interpreter comes with sketchc."

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        """An `Artefact` of the kernel; nothing is built."""
        return Artefact(kernel, folder)

    def open(self, artefact: Artefact) -> Session:
        """A session for several interpretations of one sketch."""
        return InterpreterSession(artefact.kernel.sketch)


class InterpreterSession(Session):
    """One worker that interprets one sketch, run after run: starting the worker takes ten times as
    long as a small sketch does. The worker keeps nothing from one run to the next."""

    def __init__(self, sketch: ir.Sketch) -> None:
        self._sketch = sketch
        self._packed = np.frombuffer(pickle.dumps(sketch), np.uint8)
        self._worker = PersistentWorker(_HANDLER, self._make)
        self.workers = (self._worker,)

    def run(
        self, tensors: Tensors, symbols: Sizes, params: Params, timeout: float = 300.0
    ) -> Arrays:
        """Interpret the sketch once; returns its out and inout tensors by name. Of `tensors` only
        its in and inout tensors are read.

        Raises `ToolchainError` with stage "design" for a condition or a rule of the language that
        does not hold or, with kind "MemoryError", for too much memory, "timeout", or
        "infrastructure".
        """
        read = {tensor.name for tensor in self._sketch.tensors if tensor.role is not ir.Role.OUT}
        given = {name: array for name, array in tensors.items() if name in read}
        request = {"symbols": dict(symbols), "params": dict(params)}
        result = self._worker.call(request, {**given, _SKETCH: self._packed}, timeout)
        if result.timed_out:
            msg = f"the interpretation took more than {timeout:g} s"
            raise ToolchainError(stage="timeout", message=msg)
        if result.kinds[:1] == ("MemoryError",):
            msg = f"the sketch needs more than {MEMORY_BYTES >> 30} GiB at these sizes"
            raise ToolchainError(stage="design", message=msg, kinds=result.kinds)
        if result.reply is None:
            log = result.traceback or result.output
            raise ToolchainError(
                stage="infrastructure", message=result.describe(), log=log, kinds=result.kinds
            )
        if "refused" in result.reply:
            refused, log = str(result.reply["refused"]), str(result.reply["log"])
            kinds = tuple(result.reply.get("kinds", ()))
            raise ToolchainError(stage="design", message=refused, log=log, kinds=kinds)
        return dict(result.arrays)

    def _make(self, tensor_bytes: int, file_bytes: int) -> Worker:
        return Worker(limits=Limits(MEMORY_BYTES), preload=_PRELOAD)


def interpret_apart(
    sketch: ir.Sketch, tensors: Tensors, symbols: Sizes, params: Params, timeout: float
) -> Arrays:
    """One interpretation in a worker process; see `InterpreterSession.run`."""
    with InterpreterSession(sketch) as session:
        return session.run(tensors, symbols, params, timeout)


def execute(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """The worker's handler. The reply is {} or {"refused": one sentence, "log": the notes,
    and, of too much memory, "kinds": ["MemoryError"]}."""
    from sketchc.base.diagnostics import DiagnosticError, MemoryLimitError, UsageError
    from sketchc.interpreter.api import interpret

    sketch = pickle.loads(arrays.pop(_SKETCH).tobytes())
    try:
        found = interpret(sketch, arrays, request["symbols"], request["params"])
    except DiagnosticError as error:
        first = error.diagnostics[0]
        lines = [*first.notes, *([f"help: {first.help}"] if first.help else [])]
        return {"refused": f"{first.code}: {first.message}", "log": "\n".join(lines)}, {}
    except MemoryLimitError as error:
        return {"refused": str(error), "log": "", "kinds": ["MemoryError"]}, {}
    except UsageError as error:
        return {"refused": str(error), "log": ""}, {}
    return {}, found.outputs


TOOLCHAIN = InterpreterToolchain()
